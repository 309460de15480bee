//! A moment as Go's `time.Time` writes it in JSON: RFC 3339, nanoseconds without trailing zeros,
//! and the zone offset it was read with.

use std::fmt;
use std::str::FromStr;

use jiff::civil;
use jiff::tz::Offset;
use jiff::{Timestamp, Zoned, tz::TimeZone};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An instant with its offset from UTC. The default is Go's zero time, `0001-01-01T00:00:00Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time {
    instant: Timestamp,
    offset: Offset,
}

/// The text is no RFC 3339 time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an RFC 3339 time")]
pub struct TimeError(String);

impl Time {
    /// Go's zero time, which stands for "not set".
    pub const ZERO: Self = Self {
        // 0001-01-01T00:00:00Z, in seconds before the Unix epoch.
        instant: Timestamp::constant(-62_135_596_800, 0),
        offset: Offset::UTC,
    };

    /// The instant, shown in UTC.
    ///
    /// ```
    /// let time = chart::Time::utc(jiff::Timestamp::UNIX_EPOCH);
    /// assert_eq!(time.to_string(), "1970-01-01T00:00:00Z");
    /// ```
    pub const fn utc(instant: Timestamp) -> Self {
        Self {
            instant,
            offset: Offset::UTC,
        }
    }

    /// Seconds since the Unix epoch, as archives store modification times; out of range is zero
    /// time.
    ///
    /// ```
    /// use chart::Time;
    ///
    /// assert_eq!(Time::from_unix_seconds(86_400).to_string(), "1970-01-02T00:00:00Z");
    /// assert!(Time::from_unix_seconds(i64::MAX).is_zero());
    /// ```
    pub fn from_unix_seconds(seconds: i64) -> Self {
        Timestamp::from_second(seconds).map_or(Self::ZERO, Self::utc)
    }

    /// The instant, whatever zone it is shown in.
    pub const fn instant(self) -> Timestamp {
        self.instant
    }

    /// Whether this is Go's zero time.
    pub fn is_zero(&self) -> bool {
        self.instant == Self::ZERO.instant
    }

    fn civil(self) -> civil::DateTime {
        Zoned::new(self.instant, TimeZone::fixed(self.offset)).datetime()
    }
}

impl Default for Time {
    fn default() -> Self {
        Self::ZERO
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.civil();
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            at.year(),
            at.month(),
            at.day(),
            at.hour(),
            at.minute(),
            at.second()
        )?;
        if at.subsec_nanosecond() != 0 {
            let digits = format!("{:09}", at.subsec_nanosecond());
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        match self.offset.seconds() / 60 {
            0 => f.write_str("Z"),
            minutes => {
                let sign = if minutes < 0 { '-' } else { '+' };
                write!(
                    f,
                    "{sign}{:02}:{:02}",
                    minutes.abs() / 60,
                    minutes.abs() % 60
                )
            }
        }
    }
}

impl FromStr for Time {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        let refused = || TimeError(text.to_owned());
        let instant: Timestamp = text.parse().map_err(|_| refused())?;
        let offset = match text.as_bytes() {
            [.., b'Z' | b'z'] => Offset::UTC,
            [.., sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
                let digits = [h1, h2, m1, m2].map(|d| i32::from(d.wrapping_sub(b'0')));
                let seconds =
                    (digits[0] * 10 + digits[1]) * 3600 + (digits[2] * 10 + digits[3]) * 60;
                let signed = if *sign == b'-' { -seconds } else { seconds };
                Offset::from_seconds(signed).map_err(|_| refused())?
            }
            _ => return Err(refused()),
        };
        Ok(Self { instant, offset })
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::Time;

    #[test]
    fn a_time_prints_as_it_was_written() {
        for text in [
            "0001-01-01T00:00:00Z",
            "2024-01-01T00:00:00.5+02:00",
            "2024-02-03T04:05:06.000001Z",
            "2024-02-03T04:05:06-07:30",
        ] {
            let time: Time = text.parse().expect("a valid time");
            assert_eq!(time.to_string(), text);
        }
        assert!(Time::default().is_zero());
        assert!("2024-02-03".parse::<Time>().is_err());
    }
}
