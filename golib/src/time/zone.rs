//! Zones: UTC, a fixed offset, or rules from the system's database.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Where a time is shown.
#[derive(Debug, Clone)]
pub enum Zone {
    /// Coordinated universal time.
    Utc,
    /// An offset from UTC in seconds, with the abbreviation a parsed text gave it (maybe none).
    Fixed {
        /// What `MST` in a layout prints; empty prints the offset.
        name: Arc<str>,
        /// Seconds east of UTC.
        offset: i64,
    },
    /// Rules of a place.
    Rules(TimeZone),
}

/// The system's database has no zone of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown time zone {0}")]
pub struct UnknownZone(pub String);

impl Zone {
    /// The zone of an IANA name; nothing and `UTC` are UTC. (`Local` is the caller's to know.)
    ///
    /// ```
    /// use golib::time::Zone;
    ///
    /// assert!(matches!(Zone::load("UTC"), Ok(Zone::Utc)));
    /// assert_eq!(Zone::load("Nowhere/At-All").unwrap_err().to_string(), "unknown time zone Nowhere/At-All");
    /// ```
    ///
    /// # Errors
    /// When the system knows no such zone. Names are case-sensitive, as files are to Go.
    pub fn load(name: &str) -> Result<Self, UnknownZone> {
        if matches!(name, "" | "UTC") {
            return Ok(Self::Utc);
        }
        TimeZone::get(name)
            .ok()
            .filter(|zone| zone.iana_name() == Some(name))
            .map(Self::Rules)
            .ok_or_else(|| UnknownZone(name.to_owned()))
    }

    /// Seconds east of UTC at a moment (seconds since 1970).
    pub(crate) fn offset_at(&self, seconds: i64) -> i64 {
        match self {
            Self::Utc => 0,
            Self::Fixed { offset, .. } => *offset,
            Self::Rules(zone) => i64::from(zone.to_offset(timestamp(seconds)).seconds()),
        }
    }

    /// The abbreviation at a moment (seconds since 1970), such as `CEST`; may be empty.
    pub fn abbreviation_at(&self, seconds: i64) -> String {
        match self {
            Self::Utc => "UTC".to_owned(),
            Self::Fixed { name, .. } => name.to_string(),
            Self::Rules(zone) => zone
                .to_offset_info(timestamp(seconds))
                .abbreviation()
                .to_owned(),
        }
    }

    /// The zone's name: of the database, or what a parsed text gave a fixed offset.
    ///
    /// ```
    /// assert_eq!(golib::time::Zone::Utc.name(), "UTC");
    /// ```
    pub fn name(&self) -> &str {
        match self {
            Self::Utc => "UTC",
            Self::Fixed { name, .. } => name,
            Self::Rules(zone) => zone.iana_name().unwrap_or("Local"),
        }
    }

    /// Whether clocks are set to daylight saving time at a moment (seconds since 1970).
    pub(super) fn is_dst_at(&self, seconds: i64) -> bool {
        match self {
            Self::Utc | Self::Fixed { .. } => false,
            Self::Rules(zone) => zone.to_offset_info(timestamp(seconds)).dst().is_dst(),
        }
    }

    /// The offset that an abbreviation means here, at the moment nearest to `seconds` at which it
    /// is in use; looks a few transitions around it.
    pub(super) fn offset_named(&self, name: &str, seconds: i64) -> Option<i64> {
        const NEIGHBOURS: usize = 4;
        let Self::Rules(zone) = self else { return None };
        let now = timestamp(seconds);
        let info = zone.to_offset_info(now);
        if info.abbreviation() == name {
            return Some(i64::from(info.offset().seconds()));
        }
        let following = zone.following(now).take(NEIGHBOURS);
        let preceding = zone.preceding(now).take(NEIGHBOURS);
        following
            .chain(preceding)
            .find(|transition| transition.abbreviation() == name)
            .map(|transition| i64::from(transition.offset().seconds()))
    }
}

/// jiff's calendar ends at years -9999 and 9999; rules do not change beyond them.
fn timestamp(seconds: i64) -> Timestamp {
    let clamped = seconds.clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    Timestamp::from_second(clamped).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exact() {
        assert!(matches!(Zone::load(""), Ok(Zone::Utc)));
        assert!(Zone::load("Europe/Berlin").is_ok());
        for bad in [
            "europe/berlin",
            "Nope/Where",
            "../etc/passwd",
            "/etc/localtime",
        ] {
            let error = Zone::load(bad).expect_err(bad);
            assert_eq!(error.to_string(), format!("unknown time zone {bad}"));
        }
    }
}
