//! Kubernetes objects whose names, references, labels and images come from few enough words that they meet.

use super::dice::Dice;
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
const ODD: [&str; 24] = [
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
    ".inf",
    "2001-01-01",
    "12:30:45",
    "'1'",
    "\"true\"",
    "!!str 5",
    "<<",
];

/// A scalar of a user's data.
pub(super) fn scalar(dice: &mut Dice) -> Tree {
    match dice.below(8) {
        0 => raw(dice.pick(&ODD)),
        1 => text("two\nlines\n"),
        2 => text("a: {b: 1}\nc: [x, y]\n"),
        3 => text("{\"a\": {\"b\": \"web\"}, \"c\": [1, 2]}"),
        4 => text(format!("$({})", dice.pick(&["NAME", "IMAGE", "HOST"]))),
        5 => text("http://web.prod.svc:80/path?a=b"),
        _ => text(dice.pick(&WORDS)),
    }
}

fn data(dice: &mut Dice) -> Tree {
    let count = dice.below(4);
    let keys = ["a", "b.yaml", "c", "d.json"];
    map(keys
        .into_iter()
        .take(count)
        .map(|key| (key, scalar(dice)))
        .collect::<Vec<_>>())
}

pub(super) fn labels(dice: &mut Dice) -> Tree {
    let count = 1 + dice.below(3);
    let start = dice.below(KEYS.len());
    let entries = (0..count).map(|at| {
        let value = if dice.chance(6) {
            raw(dice.pick(&ODD))
        } else {
            text(dice.pick(&WORDS))
        };
        (KEYS[(start + at) % KEYS.len()], value)
    });
    map(entries.collect::<Vec<_>>())
}

fn name(dice: &mut Dice) -> Tree {
    text(dice.pick(&NAMES))
}

fn metadata(dice: &mut Dice) -> Tree {
    let mut made = map([("name", name(dice))]);
    if dice.chance(35) {
        made.set("namespace", text(dice.pick(&NAMESPACES)));
    }
    if dice.chance(35) {
        made.set("labels", labels(dice));
    }
    if dice.chance(20) {
        made.set("annotations", labels(dice));
    }
    if dice.chance(2) {
        made.set(
            "annotations",
            map([("config.kubernetes.io/local-config", text("true"))]),
        );
    }
    if dice.chance(2) {
        made.set("labels", raw(dice.pick(&["", "{}", "null", "x", "[a]"])));
    }
    made
}

fn container(dice: &mut Dice) -> Tree {
    let mut made = map([("name", text(dice.pick(&["main", "side", "web"])))]);
    if dice.chance(85) {
        made.set("image", text(dice.pick(&IMAGES)));
    }
    if dice.chance(40) {
        let count = 1 + dice.below(3);
        let env = (0..count).map(|at| {
            let entry = map([("name", text(["A", "B", "C"][at]))]);
            match dice.below(4) {
                0 => entry.with(
                    "valueFrom",
                    map([(
                        "configMapKeyRef",
                        map([("name", name(dice)), ("key", text("a"))]),
                    )]),
                ),
                1 => entry.with(
                    "valueFrom",
                    map([(
                        "secretKeyRef",
                        map([("name", name(dice)), ("key", text("a"))]),
                    )]),
                ),
                _ => entry.with("value", scalar(dice)),
            }
        });
        made.set("env", list(env.collect::<Vec<_>>()));
    }
    if dice.chance(25) {
        let kind = dice.pick(&["configMapRef", "secretRef"]);
        made.set(
            "envFrom",
            list([map([(kind, map([("name", name(dice))]))])]),
        );
    }
    if dice.chance(30) {
        let port = map([("containerPort", raw(dice.pick(&["80", "443", "8080"])))]);
        let port = if dice.chance(50) {
            port.with("protocol", text(dice.pick(&["TCP", "UDP"])))
        } else {
            port
        };
        made.set("ports", list([port]));
    }
    if dice.chance(30) {
        made.set("args", list([scalar(dice), text("--name=$(NAME)")]));
    }
    if dice.chance(20) {
        made.set(
            "volumeMounts",
            list([map([("name", text("v")), ("mountPath", text("/v"))])]),
        );
    }
    made
}

fn pod_spec(dice: &mut Dice) -> Tree {
    let mut made = map([(
        "containers",
        list(
            (0..1 + dice.below(2))
                .map(|_| container(dice))
                .collect::<Vec<_>>(),
        ),
    )]);
    if dice.chance(15) {
        made.set("initContainers", list([container(dice)]));
    }
    if dice.chance(25) {
        made.set("serviceAccountName", name(dice));
    }
    if dice.chance(25) {
        let volume = map([("name", text("v"))]);
        let volume = match dice.below(4) {
            0 => volume.with("configMap", map([("name", name(dice))])),
            1 => volume.with("secret", map([("secretName", name(dice))])),
            2 => volume.with("persistentVolumeClaim", map([("claimName", name(dice))])),
            _ => volume.with(
                "projected",
                map([(
                    "sources",
                    list([map([("configMap", map([("name", name(dice))]))])]),
                )]),
            ),
        };
        made.set("volumes", list([volume]));
    }
    if dice.chance(8) {
        made.set("imagePullSecrets", list([map([("name", name(dice))])]));
    }
    made
}

fn template(dice: &mut Dice) -> Tree {
    let mut made = map::<&str>([]);
    if dice.chance(80) {
        made.set("metadata", map([("labels", labels(dice))]));
    }
    made.set("spec", pod_spec(dice));
    made
}

fn workload(dice: &mut Dice, kind: &str) -> Tree {
    let mut spec = map::<&str>([]);
    if dice.chance(60) && kind != "DaemonSet" {
        spec.set("replicas", raw(dice.pick(&["1", "2", "3", "0"])));
    }
    if dice.chance(70) {
        spec.set("selector", map([("matchLabels", labels(dice))]));
    }
    spec.set("template", template(dice));
    if kind == "StatefulSet" {
        spec.set("serviceName", name(dice));
        if dice.chance(40) {
            spec.set(
                "volumeClaimTemplates",
                list([map([
                    ("metadata", metadata(dice)),
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

fn subjects(dice: &mut Dice) -> Tree {
    let count = 1 + dice.below(2);
    list(
        (0..count)
            .map(|_| {
                let kind = dice
                    .mostly(&["ServiceAccount"], &["User", "Group"])
                    .to_owned();
                let subject = map([
                    ("kind", raw(kind)),
                    ("name", text(dice.pick(&["default", "web", "api"]))),
                ]);
                if dice.chance(60) {
                    subject.with("namespace", text(dice.pick(&NAMESPACES)))
                } else {
                    subject
                }
            })
            .collect::<Vec<_>>(),
    )
}

fn role_ref(dice: &mut Dice) -> Tree {
    map([
        ("apiGroup", raw("rbac.authorization.k8s.io")),
        ("kind", raw(dice.pick(&["Role", "ClusterRole"]))),
        ("name", name(dice)),
    ])
}

/// An object of one of some thirty kinds.
pub(super) fn any(dice: &mut Dice) -> Tree {
    let meta = metadata(dice);
    match dice.below(33) {
        0..=5 => object("apps/v1", "Deployment", meta).with("spec", workload(dice, "Deployment")),
        6 => object("apps/v1", "StatefulSet", meta).with("spec", workload(dice, "StatefulSet")),
        7 => object("apps/v1", "DaemonSet", meta).with("spec", workload(dice, "DaemonSet")),
        8 => object("batch/v1", "Job", meta).with("spec", map([("template", template(dice))])),
        9 => {
            let job = map([("spec", map([("template", template(dice))]))]);
            object("batch/v1", "CronJob", meta).with(
                "spec",
                map([("schedule", text("* * * * *")), ("jobTemplate", job)]),
            )
        }
        10 => object("v1", "Pod", meta).with("spec", pod_spec(dice)),
        11..=13 => {
            let port = map([
                ("port", raw("80")),
                ("targetPort", raw(dice.pick(&["80", "http"]))),
            ]);
            let spec = map([("ports", list([port])), ("selector", labels(dice))]);
            object("v1", "Service", meta).with("spec", spec)
        }
        14..=17 => object("v1", "ConfigMap", meta).with("data", data(dice)),
        18 | 19 => {
            let field = dice.pick(&["data", "stringData"]);
            let made = object("v1", "Secret", meta).with("type", raw("Opaque"));
            made.with(field, map([("a", text("aGlkZGVu")), ("b", scalar(dice))]))
        }
        20 => {
            let service = map([("name", name(dice)), ("port", map([("number", raw("80"))]))]);
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
                ("secretName", name(dice)),
            ]);
            object("networking.k8s.io/v1", "Ingress", meta)
                .with("spec", map([("rules", list([rule])), ("tls", list([tls]))]))
        }
        21 => object("v1", "ServiceAccount", meta)
            .with("secrets", list([map([("name", name(dice))])])),
        22 => {
            let rule = map([
                ("apiGroups", list([text("")])),
                ("resources", list([text("secrets")])),
                ("verbs", list([text("get")])),
            ]);
            let rule = if dice.chance(50) {
                rule.with("resourceNames", list([name(dice), name(dice)]))
            } else {
                rule
            };
            let kind = dice.pick(&["Role", "ClusterRole"]);
            object("rbac.authorization.k8s.io/v1", kind, meta).with("rules", list([rule]))
        }
        23 => {
            let kind = dice.pick(&["RoleBinding", "ClusterRoleBinding"]);
            let made = object("rbac.authorization.k8s.io/v1", kind, meta);
            made.with("roleRef", role_ref(dice))
                .with("subjects", subjects(dice))
        }
        24 => object(
            "v1",
            "Namespace",
            map([("name", text(dice.pick(&NAMESPACES)))]),
        ),
        25 => {
            let names = map([("kind", raw("Widget")), ("plural", raw("widgets"))]);
            let spec = map([
                ("group", raw("example.com")),
                ("names", names),
                ("scope", raw(dice.pick(&["Namespaced", "Cluster"]))),
            ]);
            object(
                "apiextensions.k8s.io/v1",
                "CustomResourceDefinition",
                map([("name", raw("widgets.example.com"))]),
            )
            .with("spec", spec)
        }
        26 | 27 => {
            let spec = map([
                ("size", scalar(dice)),
                ("image", text(dice.pick(&IMAGES))),
                ("secretRef", map([("name", name(dice))])),
            ]);
            let spec = spec.with(
                "items",
                list([
                    map([("name", text("a")), ("value", scalar(dice))]),
                    map([("name", text("b")), ("value", scalar(dice))]),
                ]),
            );
            object("example.com/v1", "Widget", meta).with("spec", spec)
        }
        28 => {
            let target = map([
                ("apiVersion", raw("apps/v1")),
                ("kind", raw("Deployment")),
                ("name", name(dice)),
            ]);
            object("autoscaling/v2", "HorizontalPodAutoscaler", meta).with(
                "spec",
                map([("scaleTargetRef", target), ("maxReplicas", raw("3"))]),
            )
        }
        29 => {
            let spec = map([
                ("podSelector", map([("matchLabels", labels(dice))])),
                (
                    "ingress",
                    list([map([(
                        "from",
                        list([map([("podSelector", map([("matchLabels", labels(dice))]))])]),
                    )])]),
                ),
            ]);
            object("networking.k8s.io/v1", "NetworkPolicy", meta).with("spec", spec)
        }
        30 => {
            let hook = map([
                ("name", raw("a.example.com")),
                (
                    "clientConfig",
                    map([(
                        "service",
                        map([
                            ("name", name(dice)),
                            ("namespace", text(dice.pick(&NAMESPACES))),
                        ]),
                    )]),
                ),
            ]);
            let kind = dice.pick(&[
                "ValidatingWebhookConfiguration",
                "MutatingWebhookConfiguration",
            ]);
            object("admissionregistration.k8s.io/v1", kind, meta).with("webhooks", list([hook]))
        }
        31 => {
            let kind = dice.pick(&[
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
            object(version, kind, meta).with(
                "spec",
                map([
                    ("selector", map([("matchLabels", labels(dice))])),
                    ("storageClassName", name(dice)),
                ]),
            )
        }
        _ => {
            let kind = dice.pick(&["List", "ConfigMapList", "WidgetList"]);
            let item = object("v1", "ConfigMap", metadata(dice)).with("data", data(dice));
            map([
                ("apiVersion", raw("v1")),
                ("kind", raw(kind)),
                ("items", list([item])),
            ])
        }
    }
}
