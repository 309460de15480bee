//! `--dry-run=server`: capabilities and `lookup` from a cluster.
//!
//! Helm also validates the rendered objects with the server's schemas and looks whether they belong to
//! somebody else; this only checks that the server knows their kinds.

use chart::Capabilities;
use chart::rendered::Rendered;
use chart::trust::certificates;
use golib::strconv::quote;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use release::action::capabilities;
use release::error_chain as chain;
use release::kube::{Cluster, ClusterLookup, connection};
use serde_json::json;

use crate::files::read_file;
use crate::helm_home::HelmFlags;

/// A cluster to render against.
pub(super) struct Server {
    pub capabilities: Capabilities,
    pub lookup: ClusterLookup,
    cluster: Cluster,
}

fn unreachable(cause: &str) -> String {
    format!("cluster reachability check failed: kubernetes cluster unreachable: {cause}")
}

impl Server {
    /// Connects as the flags, the variables and the kubeconfig say.
    ///
    /// # Errors
    /// There is no cluster, or it does not answer.
    pub(super) async fn connect(helm: &HelmFlags, resolves_names: bool) -> Result<Self, String> {
        let options = KubeConfigOptions {
            context: helm.context(),
            ..KubeConfigOptions::default()
        };
        let address = HelmFlags::or_variable(helm.kube_apiserver.as_ref(), "HELM_KUBEAPISERVER");
        let address = address.map(|address| {
            let uri = address.parse::<http::Uri>();
            uri.map_err(|error| unreachable(&error.to_string()))
        });
        let mut config = match kubeconfig(helm)? {
            Some(kubeconfig) if !is_empty(&kubeconfig) => connection::config(kubeconfig, &options)
                .await
                .map_err(|error| unreachable(&chain(&error)))?,
            _ => kube::Config::new(http::Uri::from_static("http://localhost:8080")),
        };
        if let Some(address) = address {
            config.cluster_url = address?;
        }
        if let Some(token) = HelmFlags::or_variable(helm.kube_token.as_ref(), "HELM_KUBETOKEN") {
            let auth = serde_json::from_value(json!({"token": token}));
            let auth: AuthInfo = auth.map_err(|error| error.to_string())?;
            config.auth_info.token = auth.token;
        }
        let user = HelmFlags::or_variable(helm.kube_as_user.as_ref(), "HELM_KUBEASUSER");
        if user.is_some() {
            config.auth_info.impersonate = user;
        }
        if !helm.kube_as_group.is_empty() {
            config.auth_info.impersonate_groups = Some(helm.kube_as_group.clone());
        }
        let server_name = helm.kube_tls_server_name.as_ref();
        let server_name = HelmFlags::or_variable(server_name, "HELM_KUBETLS_SERVER_NAME");
        if server_name.is_some() {
            config.tls_server_name = server_name;
        }
        let ca = helm
            .kube_ca_file
            .as_ref()
            .map(|file| file.display().to_string());
        if let Some(file) = HelmFlags::or_variable(ca.as_ref(), "HELM_KUBECAFILE") {
            let pem = read_file(&file)?;
            let given = certificates(&pem);
            config.root_cert = Some(given.iter().map(|given| given.to_vec()).collect());
        }
        config.accept_invalid_certs |= helm.kube_insecure_skip_tls_verify;
        let client = connection::client(config).map_err(|error| unreachable(&chain(&error)))?;
        let cluster = Cluster::new(client);
        let capabilities = capabilities(&cluster)
            .await
            .map_err(|error| unreachable(&chain(&error)))?;
        Ok(Self {
            capabilities,
            lookup: ClusterLookup::new(cluster.clone()).resolving_names(resolves_names),
            cluster,
        })
    }

    /// Checks that the server knows the kinds of everything that was rendered.
    ///
    /// # Errors
    /// It does not, in Helm's words.
    pub(super) async fn check(&self, rendered: &Rendered) -> Result<(), String> {
        let discovery = self
            .cluster
            .discovery()
            .await
            .map_err(|error| chain(&error))?;
        for manifest in &rendered.manifests {
            let head = &manifest.head;
            let version = head.api_version.as_str();
            let (group, number) = version.split_once('/').unwrap_or(("", version));
            if discovery.resource(group, number, &head.kind).is_none() {
                return Err(format!(
                    "unable to build kubernetes objects from release manifest: resource mapping not found for \
                     name: \"{}\" namespace: \"\" from \"\": no matches for kind \"{}\" in version \"{version}\"\n\
                     ensure CRDs are installed first",
                    head.name, head.kind
                ));
            }
        }
        Ok(())
    }
}

/// The kubeconfig; one that a flag names must be readable.
fn kubeconfig(helm: &HelmFlags) -> Result<Option<Kubeconfig>, String> {
    let Some(path) = helm.named_kubeconfig() else {
        return Ok(helm.read_kubeconfig());
    };
    let shown = path.display().to_string();
    if !path.exists() {
        return Err(unreachable(&format!(
            "stat {shown}: no such file or directory"
        )));
    }
    let failed = |cause: &str| {
        unreachable(&format!(
            "error loading config file {}: {cause}",
            quote(&shown)
        ))
    };
    let text = read_file(&shown).map_err(|cause| failed(&cause))?;
    if text.trim_ascii().is_empty() {
        return Ok(None);
    }
    // Reads it again, as paths in it are relative to its folder.
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| failed(&chain(&error)))?;
    Ok(Some(kubeconfig))
}

fn is_empty(kubeconfig: &Kubeconfig) -> bool {
    kubeconfig.clusters.is_empty()
}
