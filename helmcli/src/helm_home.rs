//! Helm's own settings: where its files lie, and which cluster it would talk to.
//!
//! Mirrors `pkg/cli/environment.go` and `pkg/helmpath`: a flag, else its variable, else the place by the XDG
//! rules.

use std::path::PathBuf;

use kube::config::Kubeconfig;

use crate::pflag;

/// Helm's global flags.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct HelmFlags {
    /// Namespace of the release; else the one of the kubeconfig's context, else default [env: HELM_NAMESPACE]
    #[arg(short, long)]
    pub namespace: Option<String>,

    /// Kubeconfig, for the namespace and for template's --dry-run=server [env: KUBECONFIG]
    #[arg(long, value_parser = pflag::path)]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [env: HELM_KUBECONTEXT]
    #[arg(long)]
    pub kube_context: Option<String>,

    /// Bearer token for the API server [env: HELM_KUBETOKEN]
    #[arg(long)]
    pub kube_token: Option<String>,

    /// User to impersonate [env: HELM_KUBEASUSER]
    #[arg(long)]
    pub kube_as_user: Option<String>,

    /// Group to impersonate
    #[arg(long)]
    pub kube_as_group: Vec<String>,

    /// Address of the API server [env: HELM_KUBEAPISERVER]
    #[arg(long)]
    pub kube_apiserver: Option<String>,

    /// Certificates to trust for the API server [env: HELM_KUBECAFILE]
    #[arg(long, value_parser = pflag::path)]
    pub kube_ca_file: Option<PathBuf>,

    /// Name to expect in the API server's certificate [env: HELM_KUBETLS_SERVER_NAME]
    #[arg(long)]
    pub kube_tls_server_name: Option<String>,

    /// Accept any certificate of the API server
    #[arg(long)]
    pub kube_insecure_skip_tls_verify: bool,

    /// On failure print what was rendered so far [env: HELM_DEBUG]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          value_parser = pflag::boolean, value_name = "BOOL")]
    pub debug: Option<bool>,

    /// Logins to registries [env: HELM_REGISTRY_CONFIG]
    #[arg(long, value_parser = pflag::path)]
    pub registry_config: Option<PathBuf>,

    /// Repositories by name [env: HELM_REPOSITORY_CONFIG]
    #[arg(long, value_parser = pflag::path)]
    pub repository_config: Option<PathBuf>,

    /// Indexes of those repositories [env: HELM_REPOSITORY_CACHE]
    #[arg(long, value_parser = pflag::path)]
    pub repository_cache: Option<PathBuf>,

    /// Accepted and ignored: charts are not kept on disk
    #[arg(long, value_parser = pflag::path)]
    pub content_cache: Option<PathBuf>,

    /// Accepted and ignored: requests to the cluster are few
    #[arg(long, value_parser = pflag::integer)]
    pub burst_limit: Option<i64>,

    /// Accepted and ignored: requests to the cluster are few
    #[arg(long, value_parser = pflag::float)]
    pub qps: Option<f64>,

    #[arg(short, long, hide = true, value_parser = pflag::integer)]
    pub v: Option<i64>,

    #[command(flatten)]
    pub klog: KlogFlags,

    /// never, auto or always, and ignored: nothing is printed in colour
    #[arg(long, alias = "colour")]
    pub color: Option<String>,
}

/// Flags that command lines carry and that do nothing: texts, those that are there or not, and those of which it counts whether they are given.
macro_rules! unheeded {
    ($(#[$doc:meta])* $name:ident { texts: $($text:ident)*; switches: $($switch:ident)*; given: $($given:ident)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, clap::Args)]
        pub struct $name {
            $(#[arg(long, hide = true)] pub $text: Option<String>,)*
            $(#[arg(long, hide = true)] pub $switch: bool,)*
            $(#[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true",
                    value_parser = pflag::boolean)]
              pub $given: Option<bool>,)*
        }
    };
}
pub(crate) use unheeded;

unheeded! {
    /// Flags of the logging in Kubernetes' libraries, which are not in here.
    KlogFlags {
        texts: vmodule log_dir log_file log_file_max_size log_backtrace_at stderrthreshold alsologtostderrthreshold;
        switches: legacy_stderr_threshold_behavior logtostderr alsologtostderr add_dir_header one_output skip_headers skip_log_headers;
        given:
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn given(flag: Option<&PathBuf>, name: &str, otherwise: impl FnOnce() -> PathBuf) -> PathBuf {
    match flag {
        Some(path) => path.clone(),
        None => variable(name).map_or_else(otherwise, PathBuf::from),
    }
}

/// `HELM_…_HOME`, else `XDG_…_HOME/helm`, else the place below the home directory.
fn home(helm: &str, xdg: &str, below: &str) -> PathBuf {
    if let Some(home) = variable(helm) {
        return home.into();
    }
    if let Some(base) = variable(xdg) {
        return PathBuf::from(base).join("helm");
    }
    let user = variable("HOME").unwrap_or_default();
    PathBuf::from(user).join(below).join("helm")
}

impl HelmFlags {
    /// Whether helm would tell more.
    pub fn is_debug(&self) -> bool {
        let by_variable =
            || variable("HELM_DEBUG").is_some_and(|text| pflag::boolean(&text) == Ok(true));
        self.debug.unwrap_or_else(by_variable)
    }

    /// Checks where helm would keep releases, though none is kept.
    ///
    /// # Errors
    /// Helm knows no such place.
    pub fn check_driver() -> Result<(), String> {
        const KNOWN: [&str; 6] = [
            "secret",
            "secrets",
            "configmap",
            "configmaps",
            "memory",
            "sql",
        ];
        match variable("HELM_DRIVER") {
            Some(name) if !KNOWN.contains(&name.as_str()) => {
                Err(format!("unknown driver {}", golib::strconv::quote(name)))
            }
            _ => Ok(()),
        }
    }

    /// `repositories.yaml`.
    pub fn repositories(&self) -> PathBuf {
        given(
            self.repository_config.as_ref(),
            "HELM_REPOSITORY_CONFIG",
            || config_home().join("repositories.yaml"),
        )
    }

    /// The cached index of a repository by name.
    pub fn cached_index(&self, repository: &str) -> PathBuf {
        self.cache().join(format!("{repository}-index.yaml"))
    }

    /// The cached list of the charts in a repository.
    pub fn cached_charts(&self, repository: &str) -> PathBuf {
        self.cache().join(format!("{repository}-charts.txt"))
    }

    fn cache(&self) -> PathBuf {
        given(
            self.repository_cache.as_ref(),
            "HELM_REPOSITORY_CACHE",
            || home("HELM_CACHE_HOME", "XDG_CACHE_HOME", ".cache").join("repository"),
        )
    }

    /// Logins to registries, in docker's form.
    pub fn registry_logins(&self) -> PathBuf {
        given(
            self.registry_config.as_ref(),
            "HELM_REGISTRY_CONFIG",
            || config_home().join("registry/config.json"),
        )
    }

    /// Checks the one flag that helm looks at before all others.
    ///
    /// # Errors
    /// No such mode.
    pub fn check_color(&self) -> Result<(), String> {
        match self.color.as_deref() {
            None | Some("never" | "auto" | "always") => Ok(()),
            Some(mode) => Err(format!(
                "invalid color mode {}: must be one of: never, auto, always",
                golib::strconv::quote(mode)
            )),
        }
    }

    /// The namespace of a release.
    pub fn namespace(&self) -> String {
        let named = self.namespace.clone().filter(|name| !name.is_empty());
        named
            .or_else(|| variable("HELM_NAMESPACE"))
            .or_else(|| self.context_namespace())
            .unwrap_or_else(|| "default".to_owned())
    }

    /// The context to use, if one is named.
    pub fn context(&self) -> Option<String> {
        let named = self.kube_context.clone().filter(|name| !name.is_empty());
        named.or_else(|| variable("HELM_KUBECONTEXT"))
    }

    /// The kubeconfig that the flag names.
    pub fn named_kubeconfig(&self) -> Option<&PathBuf> {
        let named = self.kubeconfig.as_ref();
        named.filter(|path| !path.as_os_str().is_empty())
    }

    /// The kubeconfig. `None` when there is none.
    pub fn read_kubeconfig(&self) -> Option<Kubeconfig> {
        match self.named_kubeconfig() {
            Some(path) => Kubeconfig::read_from(path).ok(),
            None if variable("KUBECONFIG").is_some() => merged_kubeconfig(),
            None => Kubeconfig::read().ok(),
        }
    }

    /// A flag of this name, else its variable.
    pub fn or_variable(flag: Option<&String>, name: &str) -> Option<String> {
        let flag = flag.cloned().filter(|text| !text.is_empty());
        flag.or_else(|| variable(name))
    }

    fn context_namespace(&self) -> Option<String> {
        let config = self.read_kubeconfig()?;
        let name = self.context().or(config.current_context)?;
        let found = config.contexts.into_iter().find(|known| known.name == name);
        let namespace = found?.context?.namespace?;
        Some(namespace).filter(|namespace| !namespace.is_empty())
    }
}

/// The files of `KUBECONFIG` that are there, as one.
fn merged_kubeconfig() -> Option<Kubeconfig> {
    let list = std::env::var_os("KUBECONFIG")?;
    let files = std::env::split_paths(&list).filter(|file| file.exists());
    let merged = files
        .map(Kubeconfig::read_from)
        .try_fold(Kubeconfig::default(), |all, one| all.merge(one?));
    merged.ok()
}

fn config_home() -> PathBuf {
    home("HELM_CONFIG_HOME", "XDG_CONFIG_HOME", ".config")
}

/// Whether a plugin of this name lies where Helm looks for plugins.
pub fn has_plugin(name: &str) -> bool {
    let folders = variable("HELM_PLUGINS").map_or_else(
        || vec![home("HELM_DATA_HOME", "XDG_DATA_HOME", ".local/share").join("plugins")],
        |list| std::env::split_paths(&list).collect(),
    );
    folders
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .filter_map(Result::ok)
        .any(|entry| {
            let text = std::fs::read(entry.path().join("plugin.yaml")).unwrap_or_default();
            golib::yaml::decode(&text)
                .is_ok_and(|plugin| plugin["name"] == name && plugin["type"] == "postrenderer/v1")
        })
}
