//! The charts that are measured, made here so that every machine measures the same.

use std::fmt::Write as _;

use bytes::Bytes;
use chart::{Chart, File};

/// A chart as files: for our loader and for Go's.
pub(crate) struct Generated {
    pub(crate) name: String,
    files: Vec<(String, String)>,
}

impl Generated {
    fn new(name: &str, values: String) -> Self {
        let metadata = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\nappVersion: 1.2.3\n");
        Self {
            name: name.to_owned(),
            files: vec![
                ("Chart.yaml".to_owned(), metadata),
                ("values.yaml".to_owned(), values),
            ],
        }
    }

    fn template(&mut self, file: &str, text: impl Into<String>) {
        self.files.push((format!("templates/{file}"), text.into()));
    }

    /// Bytes of all templates.
    pub(crate) fn template_bytes(&self) -> usize {
        let templates = self.files.iter().filter(|(name, _)| name.starts_with("t"));
        templates.map(|(_, text)| text.len()).sum()
    }

    /// Bytes of values.yaml.
    pub(crate) fn values_bytes(&self) -> usize {
        self.files[1].1.len()
    }

    /// The chart as our loader gives it.
    pub(crate) fn load(&self) -> anyhow::Result<Chart> {
        let files = self.files.iter();
        let files = files.map(|(name, text)| File::new(name, Bytes::from(text.clone())));
        Ok(chart::loader::load_files(
            files.collect(),
            &mut chart::Warnings::default(),
        )?)
    }

    /// Writes the chart into `directory`.
    pub(crate) fn write(&self, directory: &std::path::Path) -> std::io::Result<()> {
        for (name, text) in &self.files {
            let path = directory.join(name);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            std::fs::write(path, text)?;
        }
        Ok(())
    }
}

/// One object, a few lines.
pub(crate) fn small() -> Generated {
    let mut chart = Generated::new("small", "color: blue\nlevel: 3\n".to_owned());
    chart.template("configmap.yaml", SMALL);
    chart
}

/// What `helm create` users end up with: partials, a Deployment, a Service, an Ingress and company.
pub(crate) fn typical() -> Generated {
    let mut chart = Generated::new("typical", TYPICAL_VALUES.to_owned());
    chart.template("_helpers.tpl", helpers("typical"));
    chart.template("deployment.yaml", DEPLOYMENT.replace("CHART", "typical"));
    chart.template("service.yaml", SERVICE.replace("CHART", "typical"));
    chart.template("ingress.yaml", INGRESS.replace("CHART", "typical"));
    chart.template("hpa.yaml", AUTOSCALER.replace("CHART", "typical"));
    chart
}

/// Rules and dashboards like those of kube-prometheus: with 40 groups, 300 KiB of templates.
pub(crate) fn monitoring(name: &str, groups: usize) -> Generated {
    let mut values = TYPICAL_VALUES.to_owned();
    values.push_str("defaultRules:\n  labels: {team: platform}\n  disabled: {}\n  rules:\n");
    for group in 0..groups {
        let _ = writeln!(values, "    group{group}: true");
    }
    let mut chart = Generated::new(name, values);
    chart.template("_helpers.tpl", helpers(name));
    for group in 0..groups {
        chart.template(&format!("rules-{group}.yaml"), rules(name, group));
        chart.template(&format!("dashboard-{group}.yaml"), dashboard(name, group));
    }
    chart
}

/// A chart of few templates and many values, which are ranged over and printed.
pub(crate) fn settings(name: &str, entries: usize) -> Generated {
    let mut values = "services:\n".to_owned();
    for entry in 0..entries {
        let _ = write!(
            values,
            "  service-{entry}:\n    enabled: true\n    image: registry.example/team/service:{entry}.4.2\n    ports:\n    \
             - {{name: http, port: {port}}}\n    - {{name: metrics, port: 9090}}\n    env:\n      LOG_LEVEL: info\n      \
             TIMEOUT: \"{entry}s\"\n    labels:\n      app: service-{entry}\n      tier: backend\n",
            port = 8000 + entry,
        );
    }
    let mut chart = Generated::new(name, values);
    chart.template("services.yaml", SETTINGS);
    chart
}

const SMALL: &str = r#"apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-config
  labels: {app: {{ .Chart.Name }}}
data:
  color: {{ .Values.color | quote }}
  {{- if gt (int .Values.level) 2 }}
  level: "{{ .Values.level }}"
  {{- end }}
"#;

const SETTINGS: &str = r#"{{- range $name, $service := .Values.services }}
{{- if $service.enabled }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ printf "%s-%s" $.Release.Name $name | trunc 63 | trimSuffix "-" }}
  labels:
    {{- toYaml $service.labels | nindent 4 }}
  annotations:
    image: {{ $service.image | quote }}
    {{- range $key, $value := $service.env }}
    {{ $key | lower | replace "_" "-" }}: {{ $value | quote }}
    {{- end }}
spec:
  ports:
    {{- range $service.ports }}
    - name: {{ .name }}
      port: {{ .port }}
    {{- end }}
  selector: {{ $service.labels | toJson }}
{{- end }}
{{- end }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: all
data:
  services.yaml: |
    {{- toYaml .Values.services | nindent 4 }}
"#;

const TYPICAL_VALUES: &str = r#"replicaCount: 2
nameOverride: ""
fullnameOverride: ""
image: {repository: registry.example/team/web, pullPolicy: IfNotPresent, tag: ""}
imagePullSecrets: [{name: pull}]
serviceAccount: {create: true, annotations: {}, name: ""}
podAnnotations: {prometheus.io/scrape: "true", prometheus.io/port: "8080"}
podLabels: {tier: front}
podSecurityContext: {fsGroup: 2000}
securityContext:
  capabilities: {drop: [ALL]}
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  runAsUser: 1000
service: {type: ClusterIP, port: 80}
ingress:
  enabled: true
  className: nginx
  annotations: {kubernetes.io/tls-acme: "true"}
  hosts:
    - host: web.example.com
      paths: [{path: /, pathType: Prefix}, {path: /api, pathType: Prefix}]
    - host: www.example.com
      paths: [{path: /, pathType: Prefix}]
  tls:
    - secretName: web-tls
      hosts: [web.example.com, www.example.com]
resources:
  limits: {cpu: 500m, memory: 256Mi}
  requests: {cpu: 100m, memory: 128Mi}
env: {LOG_LEVEL: info, MODE: production, REGION: eu-west-1}
autoscaling: {enabled: true, minReplicas: 1, maxReplicas: 10, targetCPUUtilizationPercentage: 80}
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{key: dedicated, operator: Equal, value: web, effect: NoSchedule}]
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {tier: front}}}
"#;

fn helpers(chart: &str) -> String {
    HELPERS.replace("CHART", chart)
}

const HELPERS: &str = r#"{{/* The name of the chart. */}}
{{- define "CHART.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The full name: the release's and the chart's. */}}
{{- define "CHART.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "CHART.chart" -}}
{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "CHART.selectorLabels" -}}
app.kubernetes.io/name: {{ include "CHART.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "CHART.labels" -}}
helm.sh/chart: {{ include "CHART.chart" . }}
{{ include "CHART.selectorLabels" . }}
{{- if .Chart.AppVersion }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "CHART.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "CHART.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}
"#;

const DEPLOYMENT: &str = r#"apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "CHART.fullname" . }}
  labels:
    {{- include "CHART.labels" . | nindent 4 }}
spec:
  {{- if not .Values.autoscaling.enabled }}
  replicas: {{ .Values.replicaCount }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "CHART.selectorLabels" . | nindent 6 }}
  template:
    metadata:
      {{- with .Values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      labels:
        {{- include "CHART.labels" . | nindent 8 }}
        {{- with .Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      serviceAccountName: {{ include "CHART.serviceAccountName" . }}
      securityContext:
        {{- toYaml .Values.podSecurityContext | nindent 8 }}
      containers:
        - name: {{ .Chart.Name }}
          securityContext:
            {{- toYaml .Values.securityContext | nindent 12 }}
          image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          env:
            {{- range $name, $value := .Values.env }}
            - name: {{ $name }}
              value: {{ $value | quote }}
            {{- end }}
          ports:
            - name: http
              containerPort: {{ .Values.service.port }}
              protocol: TCP
          livenessProbe:
            httpGet: {path: /healthz, port: http}
          readinessProbe:
            httpGet: {path: /ready, port: http}
          resources:
            {{- toYaml .Values.resources | nindent 12 }}
      {{- with .Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
"#;

const SERVICE: &str = r#"apiVersion: v1
kind: Service
metadata:
  name: {{ include "CHART.fullname" . }}
  labels:
    {{- include "CHART.labels" . | nindent 4 }}
spec:
  type: {{ .Values.service.type }}
  ports:
    - port: {{ .Values.service.port }}
      targetPort: http
      protocol: TCP
      name: http
  selector:
    {{- include "CHART.selectorLabels" . | nindent 4 }}
"#;

const INGRESS: &str = r#"{{- if .Values.ingress.enabled -}}
{{- $fullName := include "CHART.fullname" . -}}
{{- $svcPort := .Values.service.port -}}
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {{ $fullName }}
  labels:
    {{- include "CHART.labels" . | nindent 4 }}
  {{- with .Values.ingress.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- if .Values.ingress.className }}
  ingressClassName: {{ .Values.ingress.className }}
  {{- end }}
  {{- if .Values.ingress.tls }}
  tls:
    {{- range .Values.ingress.tls }}
    - hosts:
        {{- range .hosts }}
        - {{ . | quote }}
        {{- end }}
      secretName: {{ .secretName }}
    {{- end }}
  {{- end }}
  rules:
    {{- range .Values.ingress.hosts }}
    - host: {{ .host | quote }}
      http:
        paths:
          {{- range .paths }}
          - path: {{ .path }}
            pathType: {{ .pathType }}
            backend:
              service:
                name: {{ $fullName }}
                port:
                  number: {{ $svcPort }}
          {{- end }}
    {{- end }}
{{- end }}
"#;

const AUTOSCALER: &str = r#"{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.maxReplicas) 1) }}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ include "CHART.fullname" . }}
  labels:
    {{- include "CHART.labels" . | nindent 4 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ include "CHART.fullname" . }}
  minReplicas: {{ .Values.autoscaling.minReplicas }}
  maxReplicas: {{ .Values.autoscaling.maxReplicas }}
  metrics:
    {{- if .Values.autoscaling.targetCPUUtilizationPercentage }}
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ .Values.autoscaling.targetCPUUtilizationPercentage }}
    {{- end }}
{{- end }}
"#;

/// A PrometheusRule: conditions, escaped template syntax, labels from values.
fn rules(chart: &str, group: usize) -> String {
    let mut text = format!(
        r#"{{{{- if and .Values.defaultRules .Values.defaultRules.rules.group{group} }}}}
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {{{{ printf "%s-%s" (include "{chart}.fullname" .) "group{group}" | trunc 63 | trimSuffix "-" }}}}
  labels:
    {{{{- include "{chart}.labels" . | nindent 4 }}}}
    {{{{- with .Values.defaultRules.labels }}}}
    {{{{- toYaml . | nindent 4 }}}}
    {{{{- end }}}}
spec:
  groups:
  - name: group{group}
    rules:
"#
    );
    for alert in 0..8 {
        let _ = write!(
            text,
            r#"{{{{- if not (.Values.defaultRules.disabled.Alert{group}x{alert} | default false) }}}}
    - alert: Alert{group}x{alert}
      annotations:
        description: Pod {{{{`{{{{`}}}} $labels.namespace {{{{`}}}}`}}}}/{{{{`{{{{`}}}} $labels.pod {{{{`}}}}`}}}} is in a state nobody wants.
        runbook_url: https://runbooks.example.com/group{group}/alert{alert}
        summary: Something is not as it should be.
      expr: max_over_time(kube_pod_container_status_waiting_reason{{reason="CrashLoopBackOff", job="kube-state-metrics", namespace=~"{{{{ .Release.Namespace }}}}"}}[5m]) >= {alert}
      for: {{{{ dig "Alert{group}x{alert}" "for" "15m" .Values.defaultRules.disabled }}}}
      labels:
        severity: {{{{ if eq .Release.Service "Helm" }}}}warning{{{{ else }}}}critical{{{{ end }}}}
      {{{{- if .Values.defaultRules.labels }}}}
        {{{{- with .Values.defaultRules.labels }}}}
          {{{{- toYaml . | nindent 8 }}}}
        {{{{- end }}}}
      {{{{- end }}}}
{{{{- end }}}}
"#
        );
    }
    text.push_str("{{- end }}\n");
    text
}

/// A dashboard: mostly plain text with some escapes.
fn dashboard(chart: &str, group: usize) -> String {
    let mut text = format!(
        r#"{{{{- if .Values.service.port }}}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{{{ include "{chart}.fullname" . }}}}-dashboard-{group}
  labels:
    {{{{- include "{chart}.labels" . | nindent 4 }}}}
data:
  dashboard-{group}.json: |-
    {{{{`{{"title": "Dashboard {group}", "uid": "d{group}", "panels": [`}}}}
"#
    );
    for panel in 0..6 {
        let _ = write!(
            text,
            r#"      {{"id": {panel}, "type": "graph", "datasource": {{"type": "prometheus", "uid": "${{datasource}}"}},
       "targets": [{{"expr": "sum(rate(container_cpu_usage_seconds_total{{job=\"kubelet\", cluster=\"$cluster\", image!=\"\"}}[5m])) by (namespace)",
       "legendFormat": "{{{{`{{{{`}}}}namespace{{{{`}}}}`}}}}", "format": "time_series", "intervalFactor": 2}}],
       "title": "Usage {panel}", "gridPos": {{"h": 7, "w": 24, "x": 0, "y": {panel}}}, "options": {{"legend": {{"displayMode": "list"}}}}}},
"#
        );
    }
    text.push_str("      {\"id\": 99}\n    ]}\n{{- end }}\n");
    text
}
