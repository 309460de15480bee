//! Settings of the process: flags and environment, and the agent's ConfigMap.
//!
//! Both are pure: the environment is handed in, the ConfigMap's data is read elsewhere.
//! Mirrors `internal/cmd/agent/root.go`, `internal/cmd/options.go` and `internal/config`.

mod agent_config;
mod args;
mod environment;
mod listen_address;
mod timing;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use chart::source::DiskSettings;

use crate::api::ANNOTATION_CLUSTER_VALUES;
use crate::public::PublicText;
use crate::summary::ErrorMapping;
use environment::{
    CACHE_SIZE_VARIABLE, CACHE_VARIABLE, CLUSTER_VALUES_VARIABLE, SIGNATURES_VARIABLE,
    SITE_VARIABLE, parse_duration,
};

pub use agent_config::{AgentConfig, AgentConfigError, TlsMode};
pub use args::{AgentArgs, Encoder, LogOptions};
pub use environment::{Environment, REMOTE_SCHEMAS_VARIABLE, SettingsError};
pub use listen_address::{ListenAddress, NoAddress};
pub use timing::Timing;

/// Name of the agent's credential Secret, ConfigMap and Lease.
pub const AGENT_NAME: &str = "fleet-agent";
/// Name of the Secret registration starts from.
pub const BOOTSTRAP_NAME: &str = "fleet-agent-bootstrap";
/// Shown in audit logs, and the API server's field manager for writes that name none.
const USER_AGENT: &str = concat!("fleetagent/", env!("CARGO_PKG_VERSION"));

/// The agent's own version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The `User-Agent` header of requests to API servers.
pub fn user_agent() -> (http::HeaderName, http::HeaderValue) {
    (
        http::header::USER_AGENT,
        http::HeaderValue::from_static(USER_AGENT),
    )
}

const DEFAULT_CHECKIN: Duration = Duration::from_secs(15 * 60);
const DEFAULT_WORKERS: usize = 50;

/// Disk space for fetched charts where [`CACHE_SIZE_VARIABLE`] is unset, in MiB.
const DEFAULT_CACHE_MIB: u64 = 256;

/// The settings of the process, from flags and environment.
#[derive(Clone, Debug)]
pub struct Settings {
    /// System namespace.
    pub namespace: String,
    /// Suffix of set IDs; empty for none.
    pub scope: String,
    /// Kubeconfig given by flag.
    pub kubeconfig: Option<PathBuf>,
    /// Heartbeat interval.
    pub checkin_interval: Duration,
    /// Absent: act without a lease.
    pub election: Option<Election>,
    /// What the holder of the lease is called.
    pub identity: Identity,
    /// Name of the pod, a label of the cluster upstream after registration.
    pub hostname: String,
    /// Bundles reconciled at once.
    pub workers: usize,
    /// Bundles checked for drift at once.
    pub drift_workers: usize,
    /// Absent: no metrics.
    pub metrics_address: Option<ListenAddress>,
    /// Absent: no probes.
    pub probe_address: Option<ListenAddress>,
    pub timing: Timing,
    /// Where the operator of this cluster keeps facts and may hold deploys.
    pub site: SiteRef,
    /// When the agent fills in `${ }`.
    pub cluster_values: ClusterValuesMode,
    /// Whether schemas of charts may refer to others by address.
    pub remote_schemas: bool,
    /// Where fetched charts are kept for later processes.
    pub chart_cache: Option<DiskSettings>,
    /// Whether a missing signature policy stops all deploys.
    pub needs_signature_policy: bool,
    /// The conditions of live objects that mean an error.
    pub error_mapping: ErrorMapping,
}

impl Settings {
    /// Settings from flags, falling back to the environment where a flag is empty.
    ///
    /// # Errors
    /// No namespace, a duration or address that does not parse, election durations that
    /// cannot work together, or nothing to be called on the lease.
    pub fn new(args: &AgentArgs, env: &Environment) -> Result<Self, SettingsError> {
        let or_env = |flag: &str, name: &str| {
            if flag.is_empty() {
                env.get(name).unwrap_or_default()
            } else {
                flag
            }
            .to_owned()
        };
        let namespace = or_env(&args.namespace, "NAMESPACE");
        if namespace.is_empty() {
            return Err(SettingsError::NoNamespace);
        }
        let checkin = or_env(&args.checkin_interval, "CHECKIN_INTERVAL");
        let checkin_interval = match checkin.as_str() {
            "" => Duration::ZERO,
            value => parse_duration("CHECKIN_INTERVAL", value)?,
        };
        let hostname = env
            .get("HOSTNAME")
            .map_or_else(system_hostname, str::to_owned);
        let election = match args.leader_elect {
            true => Some(Election::from_environment(env)?),
            false => None,
        };
        let pod = env.get_even_if_empty("POD_NAME");
        let identity = Identity {
            name: pod.map_or_else(
                || format!("{hostname}-{}", std::process::id()),
                str::to_owned,
            ),
            is_pods: pod.is_some(),
        };
        if election.is_some() && identity.name.is_empty() {
            return Err(SettingsError::NoIdentity);
        }
        Ok(Self {
            namespace: namespace.clone(),
            scope: or_env(&args.agent_scope, "AGENT_SCOPE"),
            kubeconfig: args.kubeconfig.clone(),
            checkin_interval: if checkin_interval.is_zero() {
                DEFAULT_CHECKIN
            } else {
                checkin_interval
            },
            election,
            identity,
            hostname,
            workers: env.workers("BUNDLEDEPLOYMENT_RECONCILER_WORKERS", DEFAULT_WORKERS),
            drift_workers: env.workers("DRIFT_RECONCILER_WORKERS", DEFAULT_WORKERS),
            metrics_address: env.address("FLEET_AGENT_METRICS_BIND_ADDRESS", ":8080")?,
            probe_address: env.address("FLEET_AGENT_PROBE_BIND_ADDRESS", ":8081")?,
            timing: Timing::from_environment(env)?,
            site: SiteRef::from_environment(env, &namespace)?,
            cluster_values: match env.get(CLUSTER_VALUES_VARIABLE) {
                None => ClusterValuesMode::default(),
                Some(mode) => mode
                    .parse()
                    .map_err(|_| SettingsError::ClusterValues(mode.to_owned()))?,
            },
            remote_schemas: fetches_schemas(env),
            chart_cache: chart_cache(env)?,
            needs_signature_policy: match env.get(SIGNATURES_VARIABLE) {
                None | Some("optional") => false,
                Some("required") => true,
                Some(other) => return Err(SettingsError::Signatures(other.to_owned())),
            },
            error_mapping: error_mapping(env),
        })
    }
}

/// What the holder of the lease is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub name: String,
    /// Whether the identity is a pod's name, which no other process has at the same time.
    pub is_pods: bool,
}

/// Durations of leader election, with client-go's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Election {
    /// How long others wait after the last renewal they saw.
    pub lease_duration: Duration,
    /// How long the leader keeps trying to renew before it gives up.
    pub renew_deadline: Duration,
    /// Pause between attempts.
    pub retry_period: Duration,
}

impl Election {
    /// client-go's JitterFactor.
    const JITTER: f64 = 1.2;

    fn from_environment(env: &Environment) -> Result<Self, SettingsError> {
        let election = Self {
            lease_duration: env
                .duration("CATTLE_ELECTION_LEASE_DURATION", Duration::from_secs(30))?,
            renew_deadline: env
                .duration("CATTLE_ELECTION_RENEW_DEADLINE", Duration::from_secs(25))?,
            retry_period: env.duration("CATTLE_ELECTION_RETRY_PERIOD", Duration::from_secs(10))?,
        };
        if election.lease_duration <= election.renew_deadline {
            return Err(SettingsError::LeaseTooShort);
        }
        if election.renew_deadline <= election.retry_period.mul_f64(Self::JITTER) {
            return Err(SettingsError::RenewDeadlineTooShort);
        }
        // The other two are longer.
        if election.retry_period.is_zero() {
            return Err(SettingsError::NoRetryPeriod);
        }
        Ok(election)
    }
}

/// A ConfigMap and a Secret of one name, owned by the operator of this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteRef {
    pub namespace: String,
    pub name: String,
}

impl SiteRef {
    /// Name in the system namespace where [`SITE_VARIABLE`] is unset.
    const DEFAULT_NAME: &str = "fleet-site";

    fn from_environment(env: &Environment, namespace: &str) -> Result<Self, SettingsError> {
        let Some(value) = env.get(SITE_VARIABLE) else {
            return Ok(Self {
                namespace: namespace.to_owned(),
                name: Self::DEFAULT_NAME.to_owned(),
            });
        };
        match value.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => Ok(Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(SettingsError::Site(value.to_owned())),
        }
    }
}

/// When `${ }` is filled in: the setting `FLEET_AGENT_CLUSTER_VALUES`, which an annotation overrides for one bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterValuesMode {
    /// Where the controller cannot have done it: in values that stand in the BundleDeployment. What came through
    /// the controller's Secret is left as it is, so nothing is ever filled in twice.
    #[default]
    Auto,
    /// Everywhere, also in values that the controller filled in before.
    Always,
    /// Nowhere: what the Go agent does.
    Never,
}

/// A word that is no [`ClusterValuesMode`].
#[derive(Debug, thiserror::Error)]
#[error("unknown mode {0:?} in {ANNOTATION_CLUSTER_VALUES}: auto, always or never is expected")]
pub struct UnknownMode(String);

impl FromStr for ClusterValuesMode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        match text {
            "auto" => Ok(Self::Auto),
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            other => Err(UnknownMode(other.to_owned())),
        }
    }
}

/// Where fetched charts are kept between processes: the system's folder for temporary files, `TMPDIR` or `/tmp`, unless [`CACHE_VARIABLE`] names one; `None` where that is `off` or nothing
/// may be kept.
fn chart_cache(env: &Environment) -> Result<Option<DiskSettings>, SettingsError> {
    let mib = match env.get(CACHE_SIZE_VARIABLE) {
        None => DEFAULT_CACHE_MIB,
        Some(text) => text
            .parse()
            .map_err(|_| SettingsError::CacheSize(text.to_owned()))?,
    };
    let directory = match env.get(CACHE_VARIABLE) {
        Some("off") => return Ok(None),
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(env.get("TMPDIR").unwrap_or("/tmp")),
    };
    let max_bytes = mib.saturating_mul(1 << 20);
    Ok((mib > 0).then_some(DiskSettings {
        directory,
        max_bytes,
    }))
}

/// Whether schemas of charts may refer to others by address.
pub fn fetches_schemas(env: &Environment) -> bool {
    env.get(REMOTE_SCHEMAS_VARIABLE) == Some("true")
}

/// A mapping that cannot be read is logged and ignored, as upstream.
fn error_mapping(env: &Environment) -> ErrorMapping {
    let Some(json) = env.get("CATTLE_WRANGLER_CHECK_GVK_ERROR_MAPPING") else {
        return ErrorMapping::default();
    };
    ErrorMapping::with_overrides(json).unwrap_or_else(|failed| {
        logging::error!(
            error = PublicText::nothing_secret_in(&failed),
            "ignoring the error mapping"
        );
        ErrorMapping::default()
    })
}

fn system_hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| AGENT_NAME.to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn settings<'a>(
        env: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Settings, SettingsError> {
        let args = AgentArgs {
            leader_elect: true,
            namespace: "ns".into(),
            ..Default::default()
        };
        Settings::new(&args, &env.into_iter().collect())
    }

    #[test]
    fn flags_win_over_environment() {
        let settings = settings([("NAMESPACE", "other"), ("AGENT_SCOPE", "scope")]).unwrap();
        assert_eq!(
            (settings.namespace.as_str(), settings.scope.as_str()),
            ("ns", "scope")
        );
    }

    #[test]
    fn a_namespace_is_required() {
        let error = Settings::new(
            &AgentArgs::default(),
            &Environment::from_iter([("NAMESPACE", "")]),
        )
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "--namespace or env NAMESPACE is required to be set"
        );
    }

    #[rstest]
    #[case::stock("0s", 900)]
    #[case::empty("", 900)]
    #[case::given("1m30s", 90)]
    fn checkin_interval(#[case] value: &str, #[case] seconds: u64) {
        let settings = settings([("CHECKIN_INTERVAL", value)]).unwrap();
        assert_eq!(settings.checkin_interval, Duration::from_secs(seconds));
    }

    #[rstest]
    #[case::unset("", 50)]
    #[case::stock("20", 20)]
    #[case::zero("0", 1)]
    #[case::negative("-3", 1)]
    #[case::garbage("many", 50)]
    fn worker_counts(#[case] value: &str, #[case] count: usize) {
        let env = [("BUNDLEDEPLOYMENT_RECONCILER_WORKERS", value)];
        assert_eq!(settings(env).unwrap().workers, count);
    }

    #[test]
    fn pod_name_is_the_identity_and_not_empty() {
        let identity = |variable| settings([variable]).unwrap().identity;
        let named = |name: &str, is_pods| Identity {
            name: name.to_owned(),
            is_pods,
        };
        assert_eq!(identity(("POD_NAME", "p")), named("p", true));
        let process = format!("h-{}", std::process::id());
        assert_eq!(identity(("HOSTNAME", "h")), named(&process, false));
        // client-go's `NewLeaderElector`, which the Go agent panics with.
        let refused = settings([("POD_NAME", "")]).unwrap_err();
        assert_eq!(refused.to_string(), "Lock identity is empty: POD_NAME is");
        // Without a lease nobody is called anything.
        let args = AgentArgs {
            namespace: "ns".into(),
            ..Default::default()
        };
        Settings::new(&args, &Environment::from_iter([("POD_NAME", "")])).unwrap();
    }

    #[rstest]
    #[case::bad(
        [("CATTLE_ELECTION_RETRY_PERIOD", "x"), ("A", "")],
        "failed to parse CATTLE_ELECTION_RETRY_PERIOD with duration x, which is no Go duration such as 15m"
    )]
    #[case::too_short(
        [("CATTLE_ELECTION_RETRY_PERIOD", "10s"), ("CATTLE_ELECTION_RENEW_DEADLINE", "12s")],
        "renewDeadline must be greater than retryPeriod*JitterFactor"
    )]
    #[case::lease(
        [("CATTLE_ELECTION_LEASE_DURATION", "5s"), ("A", "")],
        "leaseDuration must be greater than renewDeadline"
    )]
    #[case::no_pause(
        [("CATTLE_ELECTION_RETRY_PERIOD", "0s"), ("A", "")],
        "retryPeriod must be greater than zero"
    )]
    #[case::nothing(
        [("CATTLE_ELECTION_RETRY_PERIOD", "0s"), ("CATTLE_ELECTION_RENEW_DEADLINE", "0s")],
        "renewDeadline must be greater than retryPeriod*JitterFactor"
    )]
    fn bad_election_durations(#[case] env: [(&str, &str); 2], #[case] message: &str) {
        assert_eq!(settings(env).unwrap_err().to_string(), message);
    }

    #[test]
    fn addresses_are_read_from_the_environment_and_0_means_none() {
        let env = [
            ("FLEET_AGENT_METRICS_BIND_ADDRESS", "0"),
            ("FLEET_AGENT_PROBE_BIND_ADDRESS", "localhost:9"),
        ];
        let settings = settings(env).unwrap();
        assert_eq!(settings.metrics_address, None);
        let probes = settings.probe_address.unwrap();
        assert_eq!(probes.to_string(), "localhost:9");
    }

    #[rstest]
    #[case::unset(&[], Some(("/tmp", 256)))]
    #[case::temporary(&[("TMPDIR", "/scratch")], Some(("/scratch", 256)))]
    #[case::a_volume(&[("FLEET_AGENT_CACHE", "/cache"), ("FLEET_AGENT_CACHE_MIB", "1024")], Some(("/cache", 1024)))]
    #[case::off(&[("FLEET_AGENT_CACHE", "off")], None)]
    #[case::nothing(&[("FLEET_AGENT_CACHE_MIB", "0")], None)]
    fn where_charts_are_kept(#[case] env: &[(&str, &str)], #[case] want: Option<(&str, u64)>) {
        let settings = chart_cache(&env.iter().copied().collect()).unwrap();
        let want = want.map(|(directory, mib)| DiskSettings {
            directory: directory.into(),
            max_bytes: mib << 20,
        });
        assert_eq!(settings, want);
    }

    #[test]
    fn a_cache_size_that_is_no_number_is_refused() {
        let failed =
            chart_cache(&Environment::from_iter([("FLEET_AGENT_CACHE_MIB", "1Gi")])).unwrap_err();
        let text = "FLEET_AGENT_CACHE_MIB is \"1Gi\", not a number of MiB";
        assert_eq!(failed.to_string(), text);
    }
}
