//! Kubernetes objects whose names, references, labels and images come from few enough words that they meet.

use super::maker::Maker;
use super::tree::{Tree, list, map, raw, text};

pub(super) const NAMES: [&str; 7] = ["web", "api", "settings", "login", "db", "cache", "web-2"];
pub(super) const NAMESPACES: [&str; 4] = ["prod", "dev", "default", "other"];
pub(super) const KEYS: [&str; 5] = ["app", "tier", "team", "example.com/owner", "a.b"];
pub(super) const WORDS: [&str; 6] = ["web", "back", "front", "x-1", "blue green", "p:q"];
pub(super) const IMAGES: [&str; 8] = [
    "nginx",
    "nginx:1.25",
    "registry.example/web:1",
    "registry.example:5000/web",
    "registry.example/team/api@sha256:24a0c4b4a4c0eb97a1aabb8e29f18e917d05abfe1b7a7c07857230879ce7d3d3",
    "busybox:1.36@sha256:24a0c4b4a4c0eb97a1aabb8e29f18e917d05abfe1b7a7c07857230879ce7d3d3",
    "web",
    "$(IMAGE)",
];
/// Scalars that readers of YAML do not agree on.
const ODD: [&str; 22] = [
    "yes",
    "no",
    "on",
    "y",
    "true",
    "True",
    "null",
    "~",
    "",
    "1",
    "014",
    "0o14",
    "0x1F",
    "1_000",
    "1.0",
    "1e3",
    ".5",
    "2001-01-01",
    "12:30:45",
    "'1'",
    "\"true\"",
    "!!str 5",
];

/// Scalars that not everything can be made of.
const UNWRITABLE: [&str; 3] = [".inf", "<<", "!!binary x"];

/// A scalar of a user's data.
pub(super) fn scalar(maker: &mut Maker<'_>) -> Tree {
    match maker.below(8) {
        0 => raw(maker.mostly(&ODD, &UNWRITABLE)),
        1 => text("two\nlines\n"),
        2 => text("a: {b: 1}\nc: [x, y]\n"),
        3 => text("{\"a\": {\"b\": \"web\"}, \"c\": [1, 2]}"),
        4 => text(format!("$({})", maker.pick(&["NAME", "IMAGE", "HOST"]))),
        5 => text("http://web.prod.svc:80/path?a=b"),
        _ => text(maker.pick(&WORDS)),
    }
}

fn data(maker: &mut Maker<'_>) -> Tree {
    let count = maker.below(4);
    let keys = ["a", "b.yaml", "c", "d.json"];
    map(keys
        .into_iter()
        .take(count)
        .map(|key| (key, scalar(maker)))
        .collect::<Vec<_>>())
}

/// Labels or annotations that a kustomization adds.
pub(super) fn labels(maker: &mut Maker<'_>) -> Tree {
    labels_with(maker, |maker| maker.fault(20))
}

/// Labels or annotations of an object.
fn own_labels(maker: &mut Maker<'_>) -> Tree {
    labels_with(maker, |maker| maker.chance(6))
}

fn labels_with(maker: &mut Maker<'_>, is_odd: impl Fn(&mut Maker<'_>) -> bool) -> Tree {
    let count = 1 + maker.below(3);
    let start = maker.below(KEYS.len());
    let entries = (0..count).map(|at| {
        let value = match is_odd(maker) {
            true => raw(maker.mostly(&ODD, &UNWRITABLE)),
            false => text(maker.pick(&WORDS)),
        };
        (KEYS[(start + at) % KEYS.len()], value)
    });
    map(entries.collect::<Vec<_>>())
}

fn name(maker: &mut Maker<'_>) -> Tree {
    text(maker.pick(&NAMES))
}

fn metadata(maker: &mut Maker<'_>, kind: &str) -> Tree {
    let name = maker.free_name(kind, &NAMES);
    let mut made = map([("name", text(name))]);
    if maker.chance(35) {
        made.set("namespace", text(maker.pick(&NAMESPACES)));
    }
    if maker.chance(35) {
        made.set("labels", own_labels(maker));
    }
    if maker.chance(20) {
        made.set("annotations", own_labels(maker));
    }
    if maker.chance(2) && made.get("annotations").is_none() {
        made.set(
            "annotations",
            map([("config.kubernetes.io/local-config", text("true"))]),
        );
    }
    if maker.fault(4) {
        made.set("labels", raw(maker.pick(&["", "{}", "null", "x", "[a]"])));
    }
    made
}

fn container(maker: &mut Maker<'_>) -> Tree {
    let mut made = map([("name", text(maker.pick(&["main", "side", "web"])))]);
    if maker.chance(85) {
        made.set("image", text(maker.pick(&IMAGES)));
    }
    if maker.chance(40) {
        let count = 1 + maker.below(3);
        let env = (0..count).map(|at| {
            let entry = map([("name", text(["A", "B", "C"][at]))]);
            match maker.below(4) {
                0 => entry.with(
                    "valueFrom",
                    map([(
                        "configMapKeyRef",
                        map([("name", name(maker)), ("key", text("a"))]),
                    )]),
                ),
                1 => entry.with(
                    "valueFrom",
                    map([(
                        "secretKeyRef",
                        map([("name", name(maker)), ("key", text("a"))]),
                    )]),
                ),
                _ => entry.with("value", scalar(maker)),
            }
        });
        made.set("env", list(env.collect::<Vec<_>>()));
    }
    if maker.chance(25) {
        let kind = maker.pick(&["configMapRef", "secretRef"]);
        made.set(
            "envFrom",
            list([map([(kind, map([("name", name(maker))]))])]),
        );
    }
    if maker.chance(30) {
        let port = map([("containerPort", raw(maker.pick(&["80", "443", "8080"])))]);
        let port = if maker.chance(50) {
            port.with("protocol", text(maker.pick(&["TCP", "UDP"])))
        } else {
            port
        };
        made.set("ports", list([port]));
    }
    if maker.chance(30) {
        made.set("args", list([scalar(maker), text("--name=$(NAME)")]));
    }
    if maker.chance(20) {
        made.set(
            "volumeMounts",
            list([map([("name", text("v")), ("mountPath", text("/v"))])]),
        );
    }
    made
}

fn pod_spec(maker: &mut Maker<'_>) -> Tree {
    let mut made = map([(
        "containers",
        list(
            (0..1 + maker.below(2))
                .map(|_| container(maker))
                .collect::<Vec<_>>(),
        ),
    )]);
    if maker.chance(15) {
        made.set("initContainers", list([container(maker)]));
    }
    if maker.chance(25) {
        made.set("serviceAccountName", name(maker));
    }
    if maker.chance(25) {
        let volume = map([("name", text("v"))]);
        let volume = match maker.below(4) {
            0 => volume.with("configMap", map([("name", name(maker))])),
            1 => volume.with("secret", map([("secretName", name(maker))])),
            2 => volume.with("persistentVolumeClaim", map([("claimName", name(maker))])),
            _ => volume.with(
                "projected",
                map([(
                    "sources",
                    list([map([("configMap", map([("name", name(maker))]))])]),
                )]),
            ),
        };
        made.set("volumes", list([volume]));
    }
    if maker.chance(8) {
        made.set("imagePullSecrets", list([map([("name", name(maker))])]));
    }
    made
}

fn template(maker: &mut Maker<'_>) -> Tree {
    let mut made = map::<&str>([]);
    if maker.chance(80) {
        made.set("metadata", map([("labels", own_labels(maker))]));
    }
    made.set("spec", pod_spec(maker));
    made
}

fn workload(maker: &mut Maker<'_>, kind: &str) -> Tree {
    let mut spec = map::<&str>([]);
    if maker.chance(60) && kind != "DaemonSet" {
        spec.set("replicas", raw(maker.pick(&["1", "2", "3", "0"])));
    }
    if maker.chance(70) {
        spec.set("selector", map([("matchLabels", own_labels(maker))]));
    }
    spec.set("template", template(maker));
    if kind == "StatefulSet" {
        spec.set("serviceName", name(maker));
        if maker.chance(40) {
            spec.set(
                "volumeClaimTemplates",
                list([map([
                    ("metadata", map([("name", text("v"))])),
                    (
                        "spec",
                        map([("accessModes", list([text("ReadWriteOnce")]))]),
                    ),
                ])]),
            );
        }
    }
    spec
}

fn object(api_version: &str, kind: &str, metadata: Tree) -> Tree {
    map([
        ("apiVersion", raw(api_version)),
        ("kind", raw(kind)),
        ("metadata", metadata),
    ])
}

fn subjects(maker: &mut Maker<'_>) -> Tree {
    let count = 1 + maker.below(2);
    list(
        (0..count)
            .map(|_| {
                let kind = maker
                    .mostly(&["ServiceAccount"], &["User", "Group"])
                    .to_owned();
                let subject = map([
                    ("kind", raw(kind)),
                    ("name", text(maker.pick(&["default", "web", "api"]))),
                ]);
                if maker.chance(60) {
                    subject.with("namespace", text(maker.pick(&NAMESPACES)))
                } else {
                    subject
                }
            })
            .collect::<Vec<_>>(),
    )
}

fn role_ref(maker: &mut Maker<'_>) -> Tree {
    map([
        ("apiGroup", raw("rbac.authorization.k8s.io")),
        ("kind", raw(maker.pick(&["Role", "ClusterRole"]))),
        ("name", name(maker)),
    ])
}

/// An object of one of some thirty kinds.
pub(super) fn any(maker: &mut Maker<'_>) -> Tree {
    match maker.below(33) {
        0..=5 => object("apps/v1", "Deployment", metadata(maker, "Deployment"))
            .with("spec", workload(maker, "Deployment")),
        6 => object("apps/v1", "StatefulSet", metadata(maker, "StatefulSet"))
            .with("spec", workload(maker, "StatefulSet")),
        7 => object("apps/v1", "DaemonSet", metadata(maker, "DaemonSet"))
            .with("spec", workload(maker, "DaemonSet")),
        8 => object("batch/v1", "Job", metadata(maker, "Job"))
            .with("spec", map([("template", template(maker))])),
        9 => {
            let job = map([("spec", map([("template", template(maker))]))]);
            object("batch/v1", "CronJob", metadata(maker, "CronJob")).with(
                "spec",
                map([("schedule", text("* * * * *")), ("jobTemplate", job)]),
            )
        }
        10 => object("v1", "Pod", metadata(maker, "Pod")).with("spec", pod_spec(maker)),
        11..=13 => {
            let port = map([
                ("port", raw("80")),
                ("targetPort", raw(maker.pick(&["80", "http"]))),
            ]);
            let spec = map([("ports", list([port])), ("selector", own_labels(maker))]);
            object("v1", "Service", metadata(maker, "Service")).with("spec", spec)
        }
        14..=17 => {
            object("v1", "ConfigMap", metadata(maker, "ConfigMap")).with("data", data(maker))
        }
        18 | 19 => {
            let field = maker.pick(&["data", "stringData"]);
            let made =
                object("v1", "Secret", metadata(maker, "Secret")).with("type", raw("Opaque"));
            made.with(field, map([("a", text("aGlkZGVu")), ("b", scalar(maker))]))
        }
        20 => {
            let service = map([
                ("name", name(maker)),
                ("port", map([("number", raw("80"))])),
            ]);
            let path = map([
                ("path", text("/")),
                ("backend", map([("service", service)])),
            ]);
            let rule = map([
                ("host", text("web.example")),
                ("http", map([("paths", list([path]))])),
            ]);
            let tls = map([
                ("hosts", list([text("web.example")])),
                ("secretName", name(maker)),
            ]);
            object(
                "networking.k8s.io/v1",
                "Ingress",
                metadata(maker, "Ingress"),
            )
            .with("spec", map([("rules", list([rule])), ("tls", list([tls]))]))
        }
        21 => object("v1", "ServiceAccount", metadata(maker, "ServiceAccount"))
            .with("secrets", list([map([("name", name(maker))])])),
        22 => {
            let rule = map([
                ("apiGroups", list([text("")])),
                ("resources", list([text("secrets")])),
                ("verbs", list([text("get")])),
            ]);
            let rule = if maker.chance(50) {
                rule.with("resourceNames", list([name(maker), name(maker)]))
            } else {
                rule
            };
            let kind = maker.pick(&["Role", "ClusterRole"]);
            object("rbac.authorization.k8s.io/v1", kind, metadata(maker, kind))
                .with("rules", list([rule]))
        }
        23 => {
            let kind = maker.pick(&["RoleBinding", "ClusterRoleBinding"]);
            let made = object("rbac.authorization.k8s.io/v1", kind, metadata(maker, kind));
            made.with("roleRef", role_ref(maker))
                .with("subjects", subjects(maker))
        }
        // Setting a namespace names them all alike.
        24 if NAMESPACES
            .iter()
            .all(|name| !maker.is_taken("Namespace", name)) =>
        {
            let name = maker.free_name("Namespace", &NAMESPACES);
            object("v1", "Namespace", map([("name", text(name))]))
        }
        25 => {
            let names = map([("kind", raw("Widget")), ("plural", raw("widgets"))]);
            let spec = map([
                ("group", raw("example.com")),
                ("names", names),
                ("scope", raw(maker.pick(&["Namespaced", "Cluster"]))),
            ]);
            let kind = "CustomResourceDefinition";
            let name = maker.free_name(kind, &["widgets.example.com", "things.example.com"]);
            object("apiextensions.k8s.io/v1", kind, map([("name", raw(name))])).with("spec", spec)
        }
        26 | 27 => {
            let spec = map([
                ("size", scalar(maker)),
                ("image", text(maker.pick(&IMAGES))),
                ("secretRef", map([("name", name(maker))])),
            ]);
            let spec = spec.with(
                "items",
                list([
                    map([("name", text("a")), ("value", scalar(maker))]),
                    map([("name", text("b")), ("value", scalar(maker))]),
                ]),
            );
            object("example.com/v1", "Widget", metadata(maker, "Widget")).with("spec", spec)
        }
        28 => {
            let target = map([
                ("apiVersion", raw("apps/v1")),
                ("kind", raw("Deployment")),
                ("name", name(maker)),
            ]);
            object(
                "autoscaling/v2",
                "HorizontalPodAutoscaler",
                metadata(maker, "HorizontalPodAutoscaler"),
            )
            .with(
                "spec",
                map([("scaleTargetRef", target), ("maxReplicas", raw("3"))]),
            )
        }
        29 => {
            let spec = map([
                ("podSelector", map([("matchLabels", own_labels(maker))])),
                (
                    "ingress",
                    list([map([(
                        "from",
                        list([map([(
                            "podSelector",
                            map([("matchLabels", own_labels(maker))]),
                        )])]),
                    )])]),
                ),
            ]);
            object(
                "networking.k8s.io/v1",
                "NetworkPolicy",
                metadata(maker, "NetworkPolicy"),
            )
            .with("spec", spec)
        }
        30 => {
            let hook = map([
                ("name", raw("a.example.com")),
                (
                    "clientConfig",
                    map([(
                        "service",
                        map([
                            ("name", name(maker)),
                            ("namespace", text(maker.pick(&NAMESPACES))),
                        ]),
                    )]),
                ),
            ]);
            let kind = maker.pick(&[
                "ValidatingWebhookConfiguration",
                "MutatingWebhookConfiguration",
            ]);
            object(
                "admissionregistration.k8s.io/v1",
                kind,
                metadata(maker, kind),
            )
            .with("webhooks", list([hook]))
        }
        31 => {
            let kind = maker.pick(&[
                "PersistentVolumeClaim",
                "PersistentVolume",
                "PodDisruptionBudget",
                "LimitRange",
            ]);
            let version = if kind == "PodDisruptionBudget" {
                "policy/v1"
            } else {
                "v1"
            };
            object(version, kind, metadata(maker, kind)).with(
                "spec",
                map([
                    ("selector", map([("matchLabels", own_labels(maker))])),
                    ("storageClassName", name(maker)),
                ]),
            )
        }
        _ => {
            let kind = maker.pick(&["List", "ConfigMapList", "WidgetList"]);
            let item =
                object("v1", "ConfigMap", metadata(maker, "ConfigMap")).with("data", data(maker));
            map([
                ("apiVersion", raw("v1")),
                ("kind", raw(kind)),
                ("items", list([item])),
            ])
        }
    }
}
