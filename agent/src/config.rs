//! Settings of the process: flags and environment, and the agent's ConfigMap.
//!
//! Both are pure: the environment is handed in, the ConfigMap's data is read elsewhere.
//! Mirrors `internal/cmd/agent/root.go`, `internal/cmd/options.go` and `internal/config`.

mod args;

pub use args::AgentArgs;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::report::summary::ErrorMapping;
use crate::schemas::REMOTE_SCHEMAS_VARIABLE;
use crate::values::Mode;

/// Name of the agent's credential Secret, ConfigMap and Lease.
pub const AGENT_NAME: &str = "fleet-agent";
/// Name of the Secret registration starts from.
pub const BOOTSTRAP_NAME: &str = "fleet-agent-bootstrap";
/// Who asks: shown in audit logs, and the API server's field manager for writes that name none.
const USER_AGENT: &str = concat!("fleetagent/", env!("CARGO_PKG_VERSION"));

/// The header that tells API servers who asks.
pub fn user_agent() -> (http::HeaderName, http::HeaderValue) {
    (
        http::header::USER_AGENT,
        http::HeaderValue::from_static(USER_AGENT),
    )
}

/// Key of the ConfigMap that holds the configuration.
const CONFIG_KEY: &str = "config";

const DEFAULT_CHECKIN: Duration = Duration::from_secs(15 * 60);
const DEFAULT_WORKERS: usize = 50;

/// The variables of a process. An empty one counts as unset.
#[derive(Clone, Debug, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// The environment of this process; values that are not UTF-8 are left out.
    pub fn of_process() -> Self {
        let utf8 = |(key, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((key.into_string().ok()?, value.into_string().ok()?))
        };
        Self(std::env::vars_os().filter_map(utf8).collect())
    }

    /// The value of a variable that is set and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    fn get_even_if_empty(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(pairs: [(&str, &str); N]) -> Self {
        Self(
            pairs
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        )
    }
}

/// A setting the agent cannot start with.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("--namespace or env NAMESPACE is required to be set")]
    NoNamespace,
    #[error("failed to parse {name} with duration {value}")]
    Duration { name: String, value: String },
    #[error("invalid address {value} in {name}")]
    Address { name: &'static str, value: String },
    #[error("leaseDuration must be greater than renewDeadline")]
    LeaseTooShort,
    #[error("renewDeadline must be greater than retryPeriod*JitterFactor")]
    RenewDeadlineTooShort,
    #[error("{SITE_VARIABLE} is {0:?}, not namespace/name")]
    Site(String),
    #[error("{CLUSTER_VALUES_VARIABLE} is {0:?}, not auto, always or never")]
    ClusterValues(String),
    #[error("unknown interval {name} in {TIMING_VARIABLE}")]
    Timing { name: String },
}

/// Everything the process is told from outside the cluster.
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
    /// Identity on the lease.
    pub identity: String,
    /// Name of the pod, told upstream at registration.
    pub hostname: String,
    /// Bundles reconciled at once.
    pub workers: usize,
    /// Drift passes run at once.
    pub drift_workers: usize,
    /// Absent: no metrics.
    pub metrics_address: Option<SocketAddr>,
    /// Absent: no probes.
    pub probe_address: Option<SocketAddr>,
    pub timing: Timing,
    /// Where the operator of this cluster keeps facts and may hold deploys.
    pub site: SitePlace,
    /// When the agent fills in `${ }`.
    pub cluster_values: Mode,
    /// Whether schemas of charts may refer to others by address.
    pub remote_schemas: bool,
    /// Which conditions of live objects mean an error.
    pub error_mapping: ErrorMapping,
}

/// A ConfigMap and a Secret of one name, owned by the operator of this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SitePlace {
    pub namespace: String,
    pub name: String,
}

impl SitePlace {
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

/// `namespace/name` of the site's ConfigMap and Secret.
const SITE_VARIABLE: &str = "FLEET_AGENT_SITE";
/// `auto`, `always` or `never`.
const CLUSTER_VALUES_VARIABLE: &str = "FLEET_AGENT_CLUSTER_VALUES";

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
            lease_duration: duration_or(env, "CATTLE_ELECTION_LEASE_DURATION", 30)?,
            renew_deadline: duration_or(env, "CATTLE_ELECTION_RENEW_DEADLINE", 25)?,
            retry_period: duration_or(env, "CATTLE_ELECTION_RETRY_PERIOD", 10)?,
        };
        if election.lease_duration <= election.renew_deadline {
            return Err(SettingsError::LeaseTooShort);
        }
        if election.renew_deadline <= election.retry_period.mul_f64(Self::JITTER) {
            return Err(SettingsError::RenewDeadlineTooShort);
        }
        Ok(election)
    }
}

impl Settings {
    /// Settings from flags, falling back to the environment where a flag is empty.
    ///
    /// # Errors
    /// No namespace, a duration or address that does not parse, or election durations that
    /// cannot work together.
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
        Ok(Self {
            namespace: namespace.clone(),
            scope: or_env(&args.agent_scope, "AGENT_SCOPE"),
            kubeconfig: args.kubeconfig.clone(),
            checkin_interval: if checkin_interval.is_zero() {
                DEFAULT_CHECKIN
            } else {
                checkin_interval
            },
            election: match args.leader_elect {
                true => Some(Election::from_environment(env)?),
                false => None,
            },
            identity: env.get_even_if_empty("POD_NAME").map_or_else(
                || format!("{hostname}-{}", std::process::id()),
                str::to_owned,
            ),
            hostname,
            workers: workers(env, "BUNDLEDEPLOYMENT_RECONCILER_WORKERS"),
            drift_workers: workers(env, "DRIFT_RECONCILER_WORKERS"),
            metrics_address: address(env, "FLEET_AGENT_METRICS_BIND_ADDRESS", ":8080")?,
            probe_address: address(env, "FLEET_AGENT_PROBE_BIND_ADDRESS", ":8081")?,
            timing: Timing::from_environment(env)?,
            site: SitePlace::from_environment(env, &namespace)?,
            cluster_values: match env.get(CLUSTER_VALUES_VARIABLE) {
                None => Mode::default(),
                Some(mode) => mode
                    .parse()
                    .map_err(|_| SettingsError::ClusterValues(mode.to_owned()))?,
            },
            remote_schemas: fetches_schemas(env),
            error_mapping: error_mapping(env),
        })
    }
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
        tracing::error!(error = %crate::error::chain(&failed), "ignoring the error mapping");
        ErrorMapping::default()
    })
}

fn system_hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| AGENT_NAME.to_owned(), |name| name.trim().to_owned())
}

/// Zero and below mean one worker, as upstream; absent or unreadable means the default.
fn workers(env: &Environment, name: &str) -> usize {
    let Some(value) = env.get(name) else {
        return DEFAULT_WORKERS;
    };
    match value.parse::<i64>() {
        Ok(count) => usize::try_from(count).unwrap_or(1).max(1),
        Err(_) => {
            tracing::error!(value, "failed to parse {name}");
            DEFAULT_WORKERS
        }
    }
}

/// A Go listen address: `:8080`, `127.0.0.1:8080`; `0` turns the server off.
fn address(
    env: &Environment,
    name: &'static str,
    default: &str,
) -> Result<Option<SocketAddr>, SettingsError> {
    let value = env.get(name).unwrap_or(default);
    if value == "0" {
        return Ok(None);
    }
    let any_host = || {
        let port = value.strip_prefix(':')?.parse().ok()?;
        Some(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port))
    };
    match value.parse().ok().or_else(any_host) {
        Some(address) => Ok(Some(address)),
        None => Err(SettingsError::Address {
            name,
            value: value.to_owned(),
        }),
    }
}

fn duration_or(env: &Environment, name: &str, seconds: u64) -> Result<Duration, SettingsError> {
    env.get(name)
        .map_or(Ok(Duration::from_secs(seconds)), |value| {
            parse_duration(name, value)
        })
}

fn parse_duration(name: &str, value: &str) -> Result<Duration, SettingsError> {
    go_duration(value).ok_or_else(|| SettingsError::Duration {
        name: name.to_owned(),
        value: value.to_owned(),
    })
}

/// A Go duration that is not negative.
fn go_duration(text: &str) -> Option<Duration> {
    let nanoseconds = golib::duration::Duration::parse(text).ok()?.0;
    u64::try_from(nanoseconds).ok().map(Duration::from_nanos)
}

/// Overrides intervals, e.g. `drift-delay=100ms,credential-poll=50ms`. For tests and experiments.
const TIMING_VARIABLE: &str = "FLEET_AGENT_TIMING";

/// The agent's intervals. Defaults are upstream's `pkg/durations` unless said otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// `registration-retry`: pause after a registration that upstream did not answer.
    pub registration_retry: Duration,
    /// `credential-poll`: how often to look for the credential Secret.
    pub credential_poll: Duration,
    /// `credential-timeout`: how long to look for it.
    pub credential_timeout: Duration,
    /// `first-checkin`: when the first heartbeat goes out.
    pub first_checkin: Duration,
    /// `drift-delay`: how long changes to live objects are collected before a look.
    pub drift_delay: Duration,
    /// `dependency-retry`: how often dependencies are looked at again.
    pub dependency_retry: Duration,
    /// `namespace-retry`: when a forbidden namespace update is tried again.
    pub namespace_retry: Duration,
    /// `overwrite-retry`: when overwritten objects are installed anew.
    pub overwrite_retry: Duration,
    /// `backoff-min`: first pause after a failed reconcile.
    pub backoff_min: Duration,
    /// `backoff-max`: longest pause (ours: 60 s; upstream's grows to 1000 s).
    pub backoff_max: Duration,
    /// `removal-grace`: how long a BundleDeployment must be gone before its release goes.
    pub removal_grace: Duration,
    /// `facts-refresh`: how often facts that cannot be watched are read again.
    pub facts_refresh: Duration,
    /// `unready-after`: how long without upstream before readiness is denied.
    pub unready_after: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            registration_retry: Duration::from_secs(60),
            credential_poll: Duration::from_secs(2),
            credential_timeout: Duration::from_secs(30 * 60),
            first_checkin: Duration::from_secs(15),
            drift_delay: Duration::from_secs(5),
            dependency_retry: Duration::from_secs(15),
            namespace_retry: Duration::from_secs(2 * 60),
            overwrite_retry: Duration::from_secs(5),
            backoff_min: Duration::from_millis(5),
            backoff_max: Duration::from_secs(60),
            removal_grace: Duration::from_secs(3),
            facts_refresh: Duration::from_secs(5 * 60),
            unready_after: Duration::from_secs(5 * 60),
        }
    }
}

impl Timing {
    fn from_environment(env: &Environment) -> Result<Self, SettingsError> {
        let mut timing = Self::default();
        let Some(list) = env.get(TIMING_VARIABLE) else {
            return Ok(timing);
        };
        for entry in list.split(',') {
            let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
            let slot = match name.trim() {
                "registration-retry" => &mut timing.registration_retry,
                "credential-poll" => &mut timing.credential_poll,
                "credential-timeout" => &mut timing.credential_timeout,
                "first-checkin" => &mut timing.first_checkin,
                "drift-delay" => &mut timing.drift_delay,
                "dependency-retry" => &mut timing.dependency_retry,
                "namespace-retry" => &mut timing.namespace_retry,
                "overwrite-retry" => &mut timing.overwrite_retry,
                "backoff-min" => &mut timing.backoff_min,
                "backoff-max" => &mut timing.backoff_max,
                "removal-grace" => &mut timing.removal_grace,
                "facts-refresh" => &mut timing.facts_refresh,
                "unready-after" => &mut timing.unready_after,
                name => {
                    return Err(SettingsError::Timing {
                        name: name.to_owned(),
                    });
                }
            };
            *slot = parse_duration(TIMING_VARIABLE, value.trim())?;
        }
        Ok(timing)
    }
}

/// Which authorities vouch for the upstream API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// The given CA and no other.
    #[default]
    Strict,
    /// The system's authorities and the given CA.
    SystemStore,
}

/// The agent's ConfigMap, read once per start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConfig {
    /// Labels the cluster registers with.
    pub labels: BTreeMap<String, String>,
    /// Overrides the UID of `kube-system`; empty for none.
    pub client_id: String,
    pub tls_mode: TlsMode,
    pub garbage_collection_interval: Duration,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            labels: BTreeMap::new(),
            client_id: String::new(),
            tls_mode: TlsMode::default(),
            garbage_collection_interval: Duration::from_secs(15 * 60),
        }
    }
}

/// The ConfigMap holds something that is not a configuration.
#[derive(Debug, thiserror::Error)]
pub enum AgentConfigError {
    #[error("failed to parse the agent's configuration: {0}")]
    Syntax(String),
}

impl AgentConfig {
    /// Reads the ConfigMap's data: JSON or YAML under `config`, defaults where it says nothing.
    ///
    /// # Errors
    /// The text is not YAML. A field of the wrong type counts as absent, with a log line.
    pub fn from_data(data: &BTreeMap<String, String>) -> Result<Self, AgentConfigError> {
        let text = data.get(CONFIG_KEY).map(String::as_str).unwrap_or_default();
        let value = golib::yaml::decode(text.as_bytes())
            .map_err(|error| AgentConfigError::Syntax(error.to_string()))?;
        let mut config = Self::default();
        if let Some(Value::Object(labels)) = value.get("labels") {
            let pairs = labels
                .iter()
                .filter_map(|(key, v)| Some((key.clone(), v.as_str()?.into())));
            config.labels = pairs.collect();
        }
        if let Some(id) = value.get("clientID").and_then(Value::as_str) {
            config.client_id = id.to_owned();
        }
        if value.get("agentTLSMode").and_then(Value::as_str) == Some("system-store") {
            config.tls_mode = TlsMode::SystemStore;
        }
        match value.get("garbageCollectionInterval") {
            None | Some(Value::Null) => {}
            Some(given) => match given.as_str().and_then(go_duration) {
                Some(interval) if !interval.is_zero() => {
                    config.garbage_collection_interval = interval;
                }
                _ => tracing::info!("garbageCollectionInterval is no duration, using the default"),
            },
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn settings(env: Environment) -> Result<Settings, SettingsError> {
        let args = AgentArgs {
            leader_elect: true,
            namespace: "ns".into(),
            ..Default::default()
        };
        Settings::new(&args, &env)
    }

    #[test]
    fn flags_win_over_environment() {
        let settings = settings([("NAMESPACE", "other"), ("AGENT_SCOPE", "scope")].into()).unwrap();
        assert_eq!(
            (settings.namespace.as_str(), settings.scope.as_str()),
            ("ns", "scope")
        );
    }

    #[test]
    fn a_namespace_is_required() {
        let error = Settings::new(&AgentArgs::default(), &[("NAMESPACE", "")].into()).unwrap_err();
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
        let settings = settings([("CHECKIN_INTERVAL", value)].into()).unwrap();
        assert_eq!(settings.checkin_interval, Duration::from_secs(seconds));
    }

    #[rstest]
    #[case::unset("", 50)]
    #[case::stock("20", 20)]
    #[case::zero("0", 1)]
    #[case::negative("-3", 1)]
    #[case::garbage("many", 50)]
    fn worker_counts(#[case] value: &str, #[case] count: usize) {
        let env = [("BUNDLEDEPLOYMENT_RECONCILER_WORKERS", value)].into();
        assert_eq!(settings(env).unwrap().workers, count);
    }

    #[test]
    fn pod_name_is_the_identity_even_when_empty() {
        assert_eq!(settings([("POD_NAME", "p")].into()).unwrap().identity, "p");
        assert_eq!(settings([("POD_NAME", "")].into()).unwrap().identity, "");
        let identity = settings([("HOSTNAME", "h")].into()).unwrap().identity;
        assert_eq!(identity, format!("h-{}", std::process::id()));
    }

    #[rstest]
    #[case::bad(
        [("CATTLE_ELECTION_RETRY_PERIOD", "x"), ("A", "")],
        "failed to parse CATTLE_ELECTION_RETRY_PERIOD with duration x"
    )]
    #[case::too_short(
        [("CATTLE_ELECTION_RETRY_PERIOD", "10s"), ("CATTLE_ELECTION_RENEW_DEADLINE", "12s")],
        "renewDeadline must be greater than retryPeriod*JitterFactor"
    )]
    #[case::lease(
        [("CATTLE_ELECTION_LEASE_DURATION", "5s"), ("A", "")],
        "leaseDuration must be greater than renewDeadline"
    )]
    fn bad_election_durations(#[case] env: [(&str, &str); 2], #[case] message: &str) {
        assert_eq!(settings(env.into()).unwrap_err().to_string(), message);
    }

    #[test]
    fn addresses_are_gos() {
        let env = [
            ("FLEET_AGENT_METRICS_BIND_ADDRESS", "0"),
            ("FLEET_AGENT_PROBE_BIND_ADDRESS", "127.0.0.1:9"),
        ];
        let settings = settings(env.into()).unwrap();
        assert_eq!(settings.metrics_address, None);
        assert_eq!(
            settings.probe_address,
            Some(SocketAddr::from(([127, 0, 0, 1], 9)))
        );
    }

    #[test]
    fn timing_is_overridden_by_name() {
        let timing = settings([(TIMING_VARIABLE, "drift-delay=100ms,backoff-max=2s")].into())
            .unwrap()
            .timing;
        assert_eq!(timing.drift_delay, Duration::from_millis(100));
        assert_eq!(timing.backoff_max, Duration::from_secs(2));
        assert!(settings([(TIMING_VARIABLE, "no-such=1s")].into()).is_err());
    }

    fn config(text: &str) -> AgentConfig {
        AgentConfig::from_data(&[(CONFIG_KEY.to_owned(), text.to_owned())].into()).unwrap()
    }

    #[test]
    fn agent_config_takes_json_with_blank_lines_and_unknown_fields() {
        let read = config(
            "{\n\n\"labels\": {\"env\": \"lab\"},\n \"clientID\":\"c1\", \"new\": 1,\n\
             \"agentTLSMode\": \"system-store\", \"garbageCollectionInterval\": \"20m\"}\n",
        );
        assert_eq!(read.labels, [("env".to_owned(), "lab".to_owned())].into());
        assert_eq!(
            (read.client_id.as_str(), read.tls_mode),
            ("c1", TlsMode::SystemStore)
        );
        assert_eq!(read.garbage_collection_interval, Duration::from_secs(1200));
    }

    #[test]
    fn agent_config_falls_back_to_defaults() {
        assert_eq!(config(""), AgentConfig::default());
        assert_eq!(
            AgentConfig::from_data(&BTreeMap::new()).unwrap(),
            AgentConfig::default()
        );
        assert_eq!(
            config("garbageCollectionInterval: 1d"),
            AgentConfig::default()
        );
        assert_eq!(
            config("labels: null\nagentTLSMode: strict"),
            AgentConfig::default()
        );
    }
}
