//! The agent's intervals.

use std::time::Duration;

use super::environment::{Environment, SettingsError, TIMING_VARIABLE, parse_duration};

/// Declares [`Timing`]: a line each with the interval's meaning, its field and its default. In [`TIMING_VARIABLE`] an
/// interval is called like its field, with dashes.
macro_rules! intervals {
    ($($(#[doc = $doc:literal])+ $field:ident = $default:expr;)+) => {
        /// The agent's intervals. Defaults are upstream's `pkg/durations` unless said otherwise.
        #[derive(Clone, Copy, Debug)]
        pub struct Timing {
            $($(#[doc = $doc])+ pub $field: Duration,)+
        }

        impl Default for Timing {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl Timing {
            fn interval(&mut self, name: &str) -> Option<&mut Duration> {
                match name.replace('-', "_").as_str() {
                    $(stringify!($field) => Some(&mut self.$field),)+
                    _ => None,
                }
            }
        }
    };
}

intervals! {
    /// Pause after a registration that upstream did not answer.
    registration_retry = Duration::from_secs(60);
    /// How often to look for the credential Secret.
    credential_poll = Duration::from_secs(2);
    /// How long to look for it.
    credential_timeout = Duration::from_secs(30 * 60);
    /// When the first heartbeat goes out.
    first_checkin = Duration::from_secs(15);
    /// How long changes to live objects are collected before they are compared.
    drift_delay = Duration::from_secs(5);
    /// How often dependencies are checked again.
    dependency_retry = Duration::from_secs(15);
    /// When a forbidden namespace update is tried again.
    namespace_retry = Duration::from_secs(2 * 60);
    /// When overwritten objects are installed anew, and the first pause after that and after a deploy that had run hooks.
    overwrite_retry = Duration::from_secs(5);
    /// First pause after a failed reconcile.
    backoff_min = Duration::from_millis(5);
    /// Longest pause (ours: 60 s; upstream's grows to 1000 s).
    backoff_max = Duration::from_secs(60);
    /// First pause after an attempt that was undone (`atomic`), before the same content is tried again.
    undo_retry = Duration::from_secs(2 * 60);
    /// The longest of these pauses, and of those after a hook that failed.
    undo_retry_max = Duration::from_secs(60 * 60);
    /// The longest pause between two answers to somebody who changes a release, and after a deploy that failed when its hooks had run.
    answer_retry_max = Duration::from_secs(5 * 60);
    /// How long the templates of a bundle may take.
    render_limit = Duration::from_secs(2 * 60);
    /// How long a BundleDeployment must be gone before its release is removed.
    removal_grace = Duration::from_secs(3);
    /// For how long fewer than three BundleDeployments must have vanished before one that did counts as deleted.
    removal_settle = Duration::from_secs(15);
    /// How long facts must have given a bundle another release before a bundle that waits for the former one gets it.
    rename_grace = Duration::from_secs(10 * 60);
    /// How often facts that cannot be watched are read again.
    facts_refresh = Duration::from_secs(5 * 60);
    /// How long a cluster may not answer before readiness is denied.
    unready_after = Duration::from_secs(5 * 60);
}

impl Timing {
    /// The defaults, with what [`TIMING_VARIABLE`] overrides.
    ///
    /// # Errors
    /// An interval that there is not, or a value that is no duration.
    pub(super) fn from_environment(env: &Environment) -> Result<Self, SettingsError> {
        let mut timing = Self::default();
        let Some(list) = env.get(TIMING_VARIABLE) else {
            return Ok(timing);
        };
        for entry in list.split(',') {
            let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
            let name = name.trim();
            let interval = timing.interval(name).ok_or_else(|| SettingsError::Timing {
                name: name.to_owned(),
            })?;
            *interval = parse_duration(TIMING_VARIABLE, value.trim())?;
        }
        Ok(timing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_overridden_by_name() {
        let timing =
            |list| Timing::from_environment(&Environment::from_iter([(TIMING_VARIABLE, list)]));
        let read = timing("drift-delay=100ms,backoff-max=2s").unwrap();
        assert_eq!(read.drift_delay, Duration::from_millis(100));
        assert_eq!(read.backoff_max, Duration::from_secs(2));
        assert!(timing("no-such=1s").is_err());
    }
}
