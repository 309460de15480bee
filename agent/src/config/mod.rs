//! Settings of the process: flags and environment, and the agent's ConfigMap.
//!
//! Both are pure: the environment is handed in, the ConfigMap's data is read elsewhere.
//! Mirrors `internal/cmd/agent/root.go`, `internal/cmd/options.go` and `internal/config`.

mod agent_config;
mod args;
mod chart_cache;
mod cluster_values;
mod election;
mod environment;
mod listen_address;
mod logging;
mod site;
mod timing;

use std::path::PathBuf;
use std::time::Duration;

use chart::source::DiskSettings;

use crate::public::PublicText;
use crate::summary::ErrorMapping;
use environment::{CLUSTER_VALUES_VARIABLE, SIGNATURES_VARIABLE, parse_duration};

pub use agent_config::{AgentConfig, AgentConfigError, TlsMode};
pub use args::AgentArgs;
pub use cluster_values::{ClusterValuesMode, UnknownMode};
pub use election::{Election, Identity};
pub use environment::{Environment, REMOTE_SCHEMAS_VARIABLE, SettingsError};
pub use listen_address::{ListenAddress, NoAddress};
pub use logging::{Encoder, LogOptions};
pub use site::SiteRef;
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
    /// Whether nothing is deployed where there is no signature policy.
    pub needs_signature_policy: bool,
    /// Which conditions of live objects mean an error.
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
            chart_cache: chart_cache::from_environment(env)?,
            needs_signature_policy: match env.get(SIGNATURES_VARIABLE) {
                None | Some("optional") => false,
                Some("required") => true,
                Some(other) => return Err(SettingsError::Signatures(other.to_owned())),
            },
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
        ::logging::error!(
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
    fn pod_name_is_the_identity_and_not_empty() {
        let identity = |variable| settings([variable].into()).unwrap().identity;
        let named = |name: &str, is_pods| Identity {
            name: name.to_owned(),
            is_pods,
        };
        assert_eq!(identity(("POD_NAME", "p")), named("p", true));
        let process = format!("h-{}", std::process::id());
        assert_eq!(identity(("HOSTNAME", "h")), named(&process, false));
        // client-go's `NewLeaderElector`, which the Go agent panics with.
        let refused = settings([("POD_NAME", "")].into()).unwrap_err();
        assert_eq!(refused.to_string(), "Lock identity is empty: POD_NAME is");
        // Without a lease nobody is called anything.
        let args = AgentArgs {
            namespace: "ns".into(),
            ..Default::default()
        };
        Settings::new(&args, &[("POD_NAME", "")].into()).unwrap();
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
        assert_eq!(settings(env.into()).unwrap_err().to_string(), message);
    }

    #[test]
    fn addresses_are_gos() {
        let env = [
            ("FLEET_AGENT_METRICS_BIND_ADDRESS", "0"),
            ("FLEET_AGENT_PROBE_BIND_ADDRESS", "localhost:9"),
        ];
        let settings = settings(env.into()).unwrap();
        assert_eq!(settings.metrics_address, None);
        let probes = settings.probe_address.unwrap();
        assert_eq!(probes.to_string(), "localhost:9");
    }
}
