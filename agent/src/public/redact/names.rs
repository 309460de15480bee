//! Names that every cluster has: who sets a value to one makes no secret of it, and all messages are full of them.

pub(super) const OF_EVERY_CLUSTER: [&str; 26] = [
    "0.0.0.0",
    "127.0.0.1",
    "cattle-fleet-system",
    "cattle-system",
    "cluster.local",
    "default",
    "fleet-default",
    "fleet-local",
    "kube-node-lease",
    "kube-public",
    "kube-system",
    "kubernetes",
    "localhost",
    "ClusterRole",
    "ClusterRoleBinding",
    "ConfigMap",
    "DaemonSet",
    "Deployment",
    "Ingress",
    "Namespace",
    "RoleBinding",
    "Secret",
    "Service",
    "ServiceAccount",
    "StatefulSet",
    "secret",
];

/// The names that are lines of a text.
pub(super) fn all_in(text: &str) -> impl Iterator<Item = &'static str> {
    let lines = text.lines().map(str::trim);
    lines.filter_map(|line| OF_EVERY_CLUSTER.into_iter().find(|name| *name == line))
}

#[cfg(test)]
mod tests {
    use objects::drift::MASK;
    use serde_json::json;

    use super::super::SensitiveData;

    #[test]
    fn names_every_cluster_has_and_short_words_are_not_redacted() {
        let mut secrets = SensitiveData::default();
        secrets.add_value(&json!({
            "namespace": "default", "system": "kube-system", "kind": "Deployment", "host": "localhost",
            "enabled": true, "debug": "true", "user": "admin", "replicas": 1, "level": "info",
            "password": "default-canary",
        }));
        let text = "Deployment.apps \"admin\" in default, kube-system: true, 1, info of http://localhost:1/kube-system";
        assert_eq!(secrets.redact(text), text);
        assert_eq!(
            secrets.redact("default: default-canary"),
            format!("default: {MASK}")
        );
    }

    #[test]
    fn a_name_that_is_the_data_of_a_secret_is_hidden() {
        let encoded = golib::base64::encode("default\n");
        for object in [
            json!({ "kind": "Secret", "data": { "password": encoded } }),
            json!({ "kind": "Secret", "stringData": { "password": "default" } }),
        ] {
            let mut secrets = SensitiveData::default();
            secrets.add_value(&json!("kubernetes"));
            secrets.add_object(&object);
            let text = secrets.redact("no user default of kubernetes");
            assert_eq!(text, format!("no user {MASK} of kubernetes"));
        }
    }
}
