//! The order objects are created and deleted in, by kind.

/// Order of creation. Kinds not listed come last, by name.
#[rustfmt::skip]
pub const INSTALL_ORDER: &[&str] = &[
    "PriorityClass", "Namespace", "NetworkPolicy", "ResourceQuota", "LimitRange", "PodSecurityPolicy",
    "PodDisruptionBudget", "ServiceAccount", "Secret", "SecretList", "ConfigMap", "StorageClass", "PersistentVolume",
    "PersistentVolumeClaim", "CustomResourceDefinition", "ClusterRole", "ClusterRoleList", "ClusterRoleBinding",
    "ClusterRoleBindingList", "Role", "RoleList", "RoleBinding", "RoleBindingList", "Service", "DaemonSet", "Pod",
    "ReplicationController", "ReplicaSet", "Deployment", "HorizontalPodAutoscaler", "StatefulSet", "Job", "CronJob",
    "IngressClass", "Ingress", "APIService", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
];

/// Order of deletion. Kinds not listed come last, by name.
#[rustfmt::skip]
pub const UNINSTALL_ORDER: &[&str] = &[
    "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "APIService", "Ingress", "IngressClass",
    "Service", "CronJob", "Job", "StatefulSet", "HorizontalPodAutoscaler", "Deployment", "ReplicaSet",
    "ReplicationController", "Pod", "DaemonSet", "RoleBindingList", "RoleBinding", "RoleList", "Role",
    "ClusterRoleBindingList", "ClusterRoleBinding", "ClusterRoleList", "ClusterRole", "CustomResourceDefinition",
    "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "ConfigMap", "SecretList", "Secret", "ServiceAccount",
    "PodDisruptionBudget", "PodSecurityPolicy", "LimitRange", "ResourceQuota", "NetworkPolicy", "Namespace",
    "PriorityClass",
];

/// Sorts by kind; what has the same kind stays in its order.
///
/// ```
/// use chart::manifest::{INSTALL_ORDER, sort_by_kind};
///
/// let mut kinds = ["Deployment", "Unheard", "Namespace"];
/// sort_by_kind(&mut kinds, &INSTALL_ORDER, |kind| *kind);
/// assert_eq!(kinds, ["Namespace", "Deployment", "Unheard"]);
/// ```
pub fn sort_by_kind<T>(items: &mut [T], order: &[&str], kind: impl Fn(&T) -> &str) {
    let rank = |kind: &str| {
        order
            .iter()
            .position(|known| *known == kind)
            .unwrap_or(order.len())
    };
    items.sort_by(|a, b| {
        let (a, b) = (kind(a), kind(b));
        let (first, second) = (rank(a), rank(b));
        let both_unknown = first == order.len() && second == order.len();
        if both_unknown {
            a.cmp(b)
        } else {
            first.cmp(&second)
        }
    });
}
