//! The variables of the process, read by type.

use std::collections::BTreeMap;
use std::time::Duration;

use super::listen_address::ListenAddress;

/// `true` lets schemas of charts refer to others by address.
pub const REMOTE_SCHEMAS_VARIABLE: &str = "FLEET_AGENT_REMOTE_SCHEMAS";
/// `namespace/name` of the site's ConfigMap and Secret.
pub(super) const SITE_VARIABLE: &str = "FLEET_AGENT_SITE";
/// `auto`, `always` or `never`.
pub(super) const CLUSTER_VALUES_VARIABLE: &str = "FLEET_AGENT_CLUSTER_VALUES";
/// A folder for what is fetched, or `off`.
pub(super) const CACHE_VARIABLE: &str = "FLEET_AGENT_CACHE";
/// Size limit of the cache, in MiB.
pub(super) const CACHE_SIZE_VARIABLE: &str = "FLEET_AGENT_CACHE_MIB";
/// `required`: nothing is deployed where there is no signature policy. `optional`, the default, deploys then.
pub(super) const SIGNATURES_VARIABLE: &str = "FLEET_AGENT_SIGNATURES";
/// Overrides intervals, e.g. `drift-delay=100ms,credential-poll=50ms`. For tests and experiments.
pub(super) const TIMING_VARIABLE: &str = "FLEET_AGENT_TIMING";

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

    /// The value of a variable that is set, also to nothing.
    pub(super) fn get_even_if_empty(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A number of workers. Zero and below mean one, as upstream; absent or unreadable means `default`.
    pub(super) fn workers(&self, name: &str, default: usize) -> usize {
        let Some(value) = self.get(name) else {
            return default;
        };
        match value.parse::<i64>() {
            Ok(count) => usize::try_from(count).unwrap_or(1).max(1),
            Err(_) => {
                logging::error!(name, "no number of workers");
                default
            }
        }
    }

    /// A Go listen address; `0` turns the server off.
    pub(super) fn address(
        &self,
        name: &'static str,
        default: &str,
    ) -> Result<Option<ListenAddress>, SettingsError> {
        let value = self.get(name).unwrap_or(default);
        if value == "0" {
            return Ok(None);
        }
        let address = value.parse().map_err(|_| SettingsError::Address {
            name,
            value: value.to_owned(),
        });
        address.map(Some)
    }

    /// A Go duration that is not negative.
    pub(super) fn duration(
        &self,
        name: &str,
        default: Duration,
    ) -> Result<Duration, SettingsError> {
        self.get(name)
            .map_or(Ok(default), |value| parse_duration(name, value))
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Environment {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Self {
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        Self(pairs.into_iter().map(owned).collect())
    }
}

/// A setting the agent cannot start with.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("--namespace or env NAMESPACE is required to be set")]
    NoNamespace,
    #[error("failed to parse {name} with duration {value}, which is no Go duration such as 15m")]
    Duration { name: String, value: String },
    #[error("invalid address {value} in {name}")]
    Address { name: &'static str, value: String },
    #[error("leaseDuration must be greater than renewDeadline")]
    LeaseTooShort,
    #[error("renewDeadline must be greater than retryPeriod*JitterFactor")]
    RenewDeadlineTooShort,
    #[error("retryPeriod must be greater than zero")]
    NoRetryPeriod,
    #[error("Lock identity is empty: POD_NAME is")]
    NoIdentity,
    #[error("{SITE_VARIABLE} is {0:?}, not namespace/name")]
    Site(String),
    #[error("{SIGNATURES_VARIABLE} is {0:?}, not optional or required")]
    Signatures(String),
    #[error("{CLUSTER_VALUES_VARIABLE} is {0:?}, not auto, always or never")]
    ClusterValues(String),
    #[error("{CACHE_SIZE_VARIABLE} is {0:?}, not a number of MiB")]
    CacheSize(String),
    #[error("unknown interval {name} in {TIMING_VARIABLE}")]
    Timing { name: String },
}

/// A duration that the operator gave under this name.
pub(super) fn parse_duration(name: &str, value: &str) -> Result<Duration, SettingsError> {
    go_duration(value).ok_or_else(|| SettingsError::Duration {
        name: name.to_owned(),
        value: value.to_owned(),
    })
}

/// A Go duration that is not negative.
pub(super) fn go_duration(text: &str) -> Option<Duration> {
    let nanoseconds = golib::duration::Duration::parse(text).ok()?.0;
    u64::try_from(nanoseconds).ok().map(Duration::from_nanos)
}
