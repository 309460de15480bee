{{- define "fleet-agent.image" -}}
{{- with .Values.global.cattle.systemDefaultRegistry }}{{ . }}/{{ end -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- /* What the agent reads of its ConfigMap when it starts. */}}
{{- define "fleet-agent.config" -}}
{{- $config := dict "clientID" .Values.clientID "agentTLSMode" .Values.agentTLSMode }}
{{- with .Values.labels }}{{ $_ := set $config "labels" . }}{{ end }}
{{- with .Values.garbageCollectionInterval }}{{ $_ := set $config "garbageCollectionInterval" . }}{{ end }}
{{- toJson $config }}
{{- end -}}
