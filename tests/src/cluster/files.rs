//! The files a control plane starts with: certificates, tokens, audit policy and kwok's stages.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use rcgen::KeyPair;
use serde_json::{Value, json};

use super::{ADMIN, AGENT_USERS};
use crate::certs::Authority;

/// Writes everything into the cluster's directory.
pub(super) fn write(directory: &Path, authority: &Authority) -> Result<()> {
    let server = authority.issue(&[
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        super::PROXIED_NAME,
        super::UNPROXIED_ADDRESS,
        super::IN_CLUSTER_ADDRESS,
        super::GATEWAY_ADDRESS,
        super::UPSTREAM_NAME,
        super::DOCUMENTED_NAME,
    ])?;
    let accounts = KeyPair::generate()?;
    for (name, content) in [
        ("authority.crt", authority.pem().to_owned()),
        ("server.crt", server.certificate),
        ("server.key", server.key),
        ("accounts.key", accounts.serialize_pem()),
        ("accounts.pub", accounts.public_key_pem()),
        ("tokens.csv", tokens()),
        ("audit-policy.json", audit_policy().to_string()),
        ("kwok.yaml", KWOK.to_owned()),
    ] {
        std::fs::write(directory.join(name), content)?;
    }
    Ok(())
}

/// The token of a user. The API server listens on loopback and lives minutes: a readable token is worth more than a random one.
pub(super) fn token(user: &str) -> String {
    format!("token-of-{user}")
}

fn tokens() -> String {
    let mut text = String::new();
    let agents = (0..AGENT_USERS).map(|n| format!("agent-{n}"));
    let parts = [
        ADMIN,
        "fleet-controller",
        "controller-manager",
        "scheduler",
        "kwok",
        "kubelet",
        "helm",
    ];
    for user in parts.into_iter().map(str::to_owned).chain(agents) {
        let _ = writeln!(text, "{},{user},{user},\"system:masters\"", token(&user));
    }
    text
}

/// One line for each request, at its end; watches also when they begin. What is written to Fleet's kinds and as Events is there
/// in full: the proof of what does not leave the agent. With `AUDIT=full` everything is, whoever asked: what [`crate::recording`] reads.
fn audit_policy() -> Value {
    if std::env::var_os("AUDIT").is_some_and(|level| level == "full") {
        return json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
            "omitStages": ["RequestReceived", "ResponseStarted"],
            "rules": [{ "level": "RequestResponse" }],
        });
    }
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            { "level": "None", "users": ["controller-manager", "scheduler", "kwok", "kubelet", "system:apiserver"] },
            { "level": "None", "userGroups": ["system:serviceaccounts:kube-system"] },
            { "level": "Request", "verbs": ["create", "update", "patch"], "resources": [
                { "group": "fleet.cattle.io" }, { "group": "", "resources": ["events"] },
            ]},
            { "level": "Metadata" },
        ],
    })
}

/// The node that runs everything.
pub(super) fn node() -> Value {
    let resources =
        json!({ "cpu": "1000", "memory": "1Ti", "pods": "100000", "ephemeral-storage": "10Ti" });
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": "node-0", "labels": {
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "kubernetes.io/hostname": "node-0",
            "node-role.kubernetes.io/control-plane": "true",
        }},
        "status": { "allocatable": resources, "capacity": resources },
    })
}

/// What kwok does to nodes and pods. Images that end in `:never` stay pending to tell "not ready" apart from "missing".
const KWOK: &str = r#"
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node-becomes-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions:
    - {key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: NotIn, values: ["True"]}
  next:
    statusTemplate: |
      {{ $now := Now }}
      conditions:
      {{ range NodeConditions }}
      - lastHeartbeatTime: {{ $now | Quote }}
        lastTransitionTime: {{ $now | Quote }}
        message: {{ .message | Quote }}
        reason: {{ .reason | Quote }}
        status: {{ .status | Quote }}
        type: {{ .type | Quote }}
      {{ end }}
      addresses:
      - {address: 127.0.0.1, type: InternalIP}
      phase: Running
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-becomes-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.phase, operator: In, values: [Pending]}
    - {key: '.spec.containers.[].image | select( endswith(":never") )', operator: DoesNotExist}
  next:
    statusTemplate: |
      {{ $now := Now }}
      conditions:
      - {lastTransitionTime: {{ $now | Quote }}, status: "True", type: Initialized}
      - {lastTransitionTime: {{ $now | Quote }}, status: "True", type: Ready}
      - {lastTransitionTime: {{ $now | Quote }}, status: "True", type: ContainersReady}
      {{ range .spec.readinessGates }}
      - {lastTransitionTime: {{ $now | Quote }}, status: "True", type: {{ .conditionType | Quote }}}
      {{ end }}
      containerStatuses:
      {{ range .spec.containers }}
      - image: {{ .image | Quote }}
        name: {{ .name | Quote }}
        ready: true
        restartCount: 0
        started: true
        state: {running: {startedAt: {{ $now | Quote }}}}
      {{ end }}
      initContainerStatuses:
      {{ range .spec.initContainers }}
      - image: {{ .image | Quote }}
        name: {{ .name | Quote }}
        ready: true
        restartCount: 0
        state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}}
      {{ end }}
      hostIP: 127.0.0.1
      podIP: {{ PodIPWith .spec.nodeName ( or .spec.hostNetwork false ) ( or .metadata.uid "" ) ( or .metadata.name "" ) ( or .metadata.namespace "" ) | Quote }}
      phase: Running
      startTime: {{ $now | Quote }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: job-pod-succeeds}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.phase, operator: In, values: [Running]}
    - {key: '.metadata.ownerReferences.[].kind', operator: In, values: [Job]}
  next:
    statusTemplate: |
      {{ $now := Now }}
      containerStatuses:
      {{ range .spec.containers }}
      - image: {{ .image | Quote }}
        name: {{ .name | Quote }}
        ready: false
        restartCount: 0
        started: false
        state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}}
      {{ end }}
      phase: Succeeded
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-goes}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: Exists}
  next:
    finalizers: {empty: true}
    delete: true
"#;
