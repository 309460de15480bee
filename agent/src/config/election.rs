//! Leader election: how long, and by which name.

use std::time::Duration;

use super::environment::{Environment, SettingsError};

/// What the holder of the lease is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub name: String,
    /// Whether it is a pod's, which no other process has at the same time.
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

    pub(super) fn from_environment(env: &Environment) -> Result<Self, SettingsError> {
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
