//! The controller's part of a registration, for one registration namespace.
//!
//! Mirrors `clusterregistrationtoken` and `clusterregistration` of Fleet's agentmanagement: a token's account may create
//! ClusterRegistrations and nothing else; a registration is granted by a Cluster, its namespace, an account with the rights of
//! the stock roles, and a credential secret that only the token's account may read. Left out: expiry, imports by a manager, and
//! the namespace and workload controllers.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{API_VERSION, SYSTEM_REGISTRATION_NAMESPACE, safe_concat_name, sha256_hex};
use crate::objects;

/// How often registrations are looked at.
const INTERVAL: Duration = Duration::from_millis(200);
/// The field manager of everything the controller writes.
const MANAGER: &str = "fleet-controller";

/// What a granted registration gave the agent.
#[derive(Debug, Clone)]
pub struct Granted {
    /// The Cluster's namespace, which is the registration namespace.
    pub cluster_namespace: String,
    /// The Cluster's name.
    pub cluster_name: String,
    /// The namespace that holds the cluster's BundleDeployments.
    pub deployment_namespace: String,
    /// The account the agent acts as, as the audit log prints it.
    pub user: String,
    /// The account's token.
    pub token: String,
}

/// Fleet's controller, seen from one registration namespace. It works until dropped.
pub struct Controller {
    client: Client,
    namespace: String,
    task: JoinHandle<()>,
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Controller {
    /// Prepares the namespaces and roles the stock controller makes at its start, and begins to grant registrations.
    ///
    /// # Errors
    /// When the API server refuses one.
    pub async fn start(client: Client, namespace: &str) -> Result<Self> {
        for name in [namespace, SYSTEM_REGISTRATION_NAMESPACE] {
            apply(
                &client,
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
            )
            .await?;
        }
        let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
        apply(
            &client,
            role(
                "ClusterRole",
                "",
                "fleet-bundle-deployment",
                json!([
                    rule(
                        "fleet.cattle.io",
                        &["bundledeployments"],
                        &["get", "list", "watch"]
                    ),
                    rule(
                        "fleet.cattle.io",
                        &["bundledeployments/status"],
                        &["update", "patch"]
                    ),
                    rule("", &["secrets", "configmaps"], &["get"]),
                ]),
            ),
        )
        .await?;
        let contents = json!([rule("fleet.cattle.io", &["contents"], &["get"])]);
        apply(&client, role("ClusterRole", "", "fleet-content", contents)).await?;
        let task = tokio::spawn(run(client.clone(), namespace.to_owned()));
        Ok(Self {
            client,
            namespace: namespace.to_owned(),
            task,
        })
    }

    /// Makes a registration token and returns the data of the bootstrap secret for agents that use it.
    ///
    /// # Errors
    /// When the API server refuses a part of it.
    pub async fn bootstrap(&self, token_name: &str, url: &str, authority: &str) -> Result<Value> {
        let namespace = self.namespace.as_str();
        let token = apply(
            &self.client,
            json!({
                "apiVersion": API_VERSION,
                "kind": "ClusterRegistrationToken",
                "metadata": { "name": token_name, "namespace": namespace },
                "spec": {},
            }),
        )
        .await?;
        let account = token_account(&token)?;
        apply(&self.client, service_account(namespace, &account)).await?;
        let role_name = safe_concat_name(&[&account, "role"]);
        let rules = json!([{
            "apiGroups": ["fleet.cattle.io"], "resources": ["clusterregistrations"], "verbs": ["create"],
        }]);
        apply(&self.client, role("Role", namespace, &role_name, rules)).await?;
        let binding_name = safe_concat_name(&[&account, "to", "role"]);
        apply(
            &self.client,
            binding(
                "RoleBinding",
                namespace,
                &binding_name,
                ("Role", &role_name),
                (namespace, &account),
            ),
        )
        .await?;
        Ok(json!({
            "apiServerURL": url,
            "apiServerCA": authority,
            "token": token_for(&self.client, namespace, &account).await?,
            "tokenName": token_name,
            "clusterNamespace": namespace,
            "systemRegistrationNamespace": SYSTEM_REGISTRATION_NAMESPACE,
        }))
    }

    /// What a registration of `client_id` leads to, without one: the Cluster, its namespace and an account with a token.
    ///
    /// # Errors
    /// When the API server refuses a part of it.
    pub async fn grant_directly(&self, client_id: &str) -> Result<Granted> {
        grant(
            &self.client,
            &self.namespace,
            client_id,
            &json!({}),
            "direct",
            client_id,
        )
        .await
    }
}

async fn run(client: Client, namespace: String) {
    loop {
        // Whatever fails is tried again: the API server of a test may be away for a while.
        let _ = look(&client, &namespace).await;
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn look(client: &Client, namespace: &str) -> Result<()> {
    let registrations: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &resource("ClusterRegistration"));
    let all = registrations
        .list(&kube::api::ListParams::default())
        .await?
        .items;
    for registration in &all {
        if registration.data["status"]["granted"] != json!(true) {
            grant_registration(client, namespace, registration).await?;
            for old in &all {
                let same = old.data["spec"]["clientID"] == registration.data["spec"]["clientID"];
                if same && old.name_any() != registration.name_any() {
                    registrations
                        .delete(&old.name_any(), &kube::api::DeleteParams::default())
                        .await?;
                }
            }
        }
    }
    Ok(())
}

async fn grant_registration(
    client: &Client,
    namespace: &str,
    registration: &DynamicObject,
) -> Result<()> {
    let text = |field: &str| {
        registration.data["spec"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let (client_id, client_random) = (text("clientID"), text("clientRandom"));
    let name = registration.name_any();
    let uid = registration.uid().context("a stored object has a UID")?;
    let labels = &registration.data["spec"]["clusterLabels"];
    let granted = grant(client, namespace, &client_id, labels, &name, &uid).await?;

    let mut secret_name = format!(
        "c-{}",
        sha256_hex(format!("{client_id}{client_random}").as_bytes())
    );
    secret_name.truncate(63);
    apply(client, json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "fleet.cattle.io/cluster-registration",
        "metadata": {
            "name": secret_name,
            "namespace": SYSTEM_REGISTRATION_NAMESPACE,
            "labels": { "fleet.cattle.io/cluster": granted.cluster_name, "fleet.cattle.io/managed": "true" },
        },
        "stringData": {
            "token": granted.token,
            "deploymentNamespace": granted.deployment_namespace,
            "clusterNamespace": granted.cluster_namespace,
            "clusterName": granted.cluster_name,
        },
    }))
    .await?;
    // Only the account of the token the agent named may read the secret.
    if let Some(token_name) = registration
        .labels()
        .get("fleet.cattle.io/registration-token")
    {
        let tokens: Api<DynamicObject> = Api::namespaced_with(
            client.clone(),
            namespace,
            &resource("ClusterRegistrationToken"),
        );
        let account = token_account(&tokens.get(token_name).await?)?;
        let role_name = safe_concat_name(&[&name, "creds"]);
        let rules = json!([{
            "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": [secret_name],
        }]);
        apply(
            client,
            role("Role", SYSTEM_REGISTRATION_NAMESPACE, &role_name, rules),
        )
        .await?;
        apply(
            client,
            binding(
                "RoleBinding",
                SYSTEM_REGISTRATION_NAMESPACE,
                &role_name,
                ("Role", &role_name),
                (namespace, &account),
            ),
        )
        .await?;
    }
    let registrations: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &resource("ClusterRegistration"));
    let status = json!({ "status": { "granted": true, "clusterName": granted.cluster_name } });
    registrations
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    Ok(())
}

/// The Cluster of a client ID with its namespace, account and rights.
async fn grant(
    client: &Client,
    namespace: &str,
    client_id: &str,
    labels: &Value,
    request: &str,
    uid: &str,
) -> Result<Granted> {
    let cluster_name = format!("cluster-{}", key_hash(client_id));
    let mut cluster_labels = serde_json::Map::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        let reserved =
            key.starts_with("fleet.cattle.io/") || key.starts_with("management.cattle.io/");
        if !reserved || key == "fleet.cattle.io/created-by-agent-pod" {
            cluster_labels.insert(key.clone(), value.clone());
        }
    }
    cluster_labels.insert("fleet.cattle.io/cluster".to_owned(), json!(cluster_name));
    apply(
        client,
        json!({
            "apiVersion": API_VERSION,
            "kind": "Cluster",
            "metadata": { "name": cluster_name, "namespace": namespace, "labels": cluster_labels },
            "spec": { "clientID": client_id },
        }),
    )
    .await?;
    let hash = key_hash(&format!("{namespace}::{cluster_name}"));
    let deployment_namespace = safe_concat_name(&["cluster", namespace, &cluster_name, &hash]);
    apply(client, json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": { "name": deployment_namespace, "labels": { "fleet.cattle.io/managed": "true" } },
    }))
    .await?;
    let clusters: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &resource("Cluster"));
    let status = json!({ "status": { "namespace": deployment_namespace } });
    clusters
        .patch_status(
            &cluster_name,
            &PatchParams::default(),
            &Patch::Merge(&status),
        )
        .await?;

    let account = safe_concat_name(&[request, uid]);
    let subject = (deployment_namespace.as_str(), account.as_str());
    apply(client, service_account(&deployment_namespace, &account)).await?;
    let own_cluster = json!([{
        "apiGroups": ["fleet.cattle.io"], "resources": ["clusters/status"], "verbs": ["patch"], "resourceNames": [cluster_name],
    }]);
    apply(client, role("Role", namespace, request, own_cluster)).await?;
    apply(
        client,
        binding(
            "RoleBinding",
            namespace,
            request,
            ("Role", request),
            subject,
        ),
    )
    .await?;
    apply(
        client,
        binding(
            "RoleBinding",
            &deployment_namespace,
            request,
            ("ClusterRole", "fleet-bundle-deployment"),
            subject,
        ),
    )
    .await?;
    let content = safe_concat_name(&[namespace, request, "content"]);
    apply(
        client,
        binding(
            "ClusterRoleBinding",
            "",
            &content,
            ("ClusterRole", "fleet-content"),
            subject,
        ),
    )
    .await?;
    Ok(Granted {
        cluster_namespace: namespace.to_owned(),
        token: token_for(client, &deployment_namespace, &account).await?,
        user: format!("system:serviceaccount:{deployment_namespace}:{account}"),
        cluster_name,
        deployment_namespace,
    })
}

/// The first twelve hex digits of the hash, as Fleet shortens IDs.
fn key_hash(text: &str) -> String {
    let first: String = text.chars().take(100).collect();
    sha256_hex(first.as_bytes()).chars().take(12).collect()
}

fn token_account(token: &DynamicObject) -> Result<String> {
    let uid = token.uid().context("a stored object has a UID")?;
    Ok(safe_concat_name(&[&token.name_any(), &uid]))
}

fn service_account(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": { "name": name, "namespace": namespace, "labels": { "fleet.cattle.io/managed": "true" } },
    })
}

fn role(kind: &str, namespace: &str, name: &str, rules: Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": { "name": name, "namespace": namespace },
        "rules": rules,
    })
}

fn binding(
    kind: &str,
    namespace: &str,
    name: &str,
    role: (&str, &str),
    account: (&str, &str),
) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": { "name": name, "namespace": namespace },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1 },
        "subjects": [{ "kind": "ServiceAccount", "namespace": account.0, "name": account.1 }],
    })
}

async fn token_for(client: &Client, namespace: &str, account: &str) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: Vec::new(),
            expiration_seconds: Some(86_400),
            ..Default::default()
        },
        ..Default::default()
    };
    let answer = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await?;
    Ok(answer
        .status
        .context("a token request is answered with a status")?
        .token)
}

/// One of Fleet's kinds.
pub fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("fleet.cattle.io", "v1alpha1", kind))
}

/// Server-side applies an object as the controller.
///
/// # Errors
/// When the API server refuses it.
pub async fn apply(client: &Client, object: Value) -> Result<DynamicObject> {
    let text = |pointer: &str| {
        let text = object.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default()
    };
    let (kind, name) = (text("/kind"), text("/metadata/name"));
    let namespace = text("/metadata/namespace");
    let params = PatchParams::apply(MANAGER).force();
    objects::api(client, text("/apiVersion"), kind, namespace)
        .patch(name, &params, &Patch::Apply(&object))
        .await
        .with_context(|| format!("applying {kind} {namespace}/{name}"))
}
