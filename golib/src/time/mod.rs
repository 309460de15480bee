//! Points in time as Go's `time` package has them: seconds, nanoseconds and a zone, formatted and
//! parsed by example layouts (`2006-01-02 15:04:05`).
//!
//! Zone rules come from the system's database through jiff; the calendar is our own, because Go's
//! reaches 292 billion years either way. There is no clock here: callers pass the time in.

mod layout;
mod parse;
mod zone;

use std::fmt;

pub use layout::{DAYS, MONTHS, RFC3339, RFC3339_NANO};
pub use parse::ParseError;
pub use zone::{UnknownZone, Zone};

use crate::duration::{Duration, quote};

const SECONDS_PER_DAY: i128 = 86_400;
/// Seconds from 1 January of year 1, Go's zero time, to 1970.
const ZERO_TO_UNIX: i64 = 62_135_596_800;
/// Days from 1 March of year -292277022400, where Go's unsigned calendar begins, to 1970.
const ABSOLUTE_TO_UNIX_DAYS: i128 = 730_692_556 * 146_097 + 719_468;

/// A point in time, to be shown in its zone.
#[derive(Debug, Clone)]
pub struct Time {
    /// Seconds since 1970, UTC.
    seconds: i64,
    nanoseconds: u32,
    zone: Zone,
}

/// Year, month (1 to 12) and day of the month.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Date {
    /// The year, which may be negative.
    pub year: i64,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
}

/// Date and clock as a zone shows them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Civil {
    date: Date,
    /// 1 to 366.
    year_day: u32,
    /// 0 is Sunday.
    week_day: u32,
    hour: u32,
    minute: u32,
    second: u32,
}

impl Time {
    /// The time `seconds` and `nanoseconds` (any number of them) after 1970.
    pub fn from_unix(seconds: i64, nanoseconds: i64, zone: Zone) -> Self {
        const BILLION: i64 = 1_000_000_000;
        Self {
            seconds: seconds.wrapping_add(nanoseconds.div_euclid(BILLION)),
            nanoseconds: nanoseconds.rem_euclid(BILLION) as u32,
            zone,
        }
    }

    /// Go's zero time: the first moment of year 1, UTC.
    pub fn zero() -> Self {
        Self {
            seconds: -ZERO_TO_UNIX,
            nanoseconds: 0,
            zone: Zone::Utc,
        }
    }

    /// The time of a date and clock in a zone; one that the zone skips or repeats is resolved as
    /// Go's `time.Date` does.
    pub(crate) fn from_civil(date: Date, clock: [u32; 3], nanoseconds: u32, zone: Zone) -> Self {
        let days = days_from_civil(date);
        let [hour, minute, second] = clock.map(i128::from);
        let local = days * SECONDS_PER_DAY + (hour * 60 + minute) * 60 + second;
        let local = i64::try_from(local).expect("parsed years have four digits");
        Self::from_local(local, nanoseconds, zone)
    }

    /// The time at which the zone's clock shows so many seconds since 1970.
    fn from_local(local: i64, nanoseconds: u32, zone: Zone) -> Self {
        // As in Go's Date: the offset at the local reading, corrected once.
        let seconds = match zone.offset_at(local) {
            0 => local,
            guess => local.saturating_sub(zone.offset_at(local.saturating_sub(guess))),
        };
        Self {
            seconds,
            nanoseconds,
            zone,
        }
    }

    /// Whether this is Go's zero time, in whatever zone.
    pub fn is_zero(&self) -> bool {
        self.seconds == -ZERO_TO_UNIX && self.nanoseconds == 0
    }

    /// Seconds since 1970.
    pub fn unix(&self) -> i64 {
        self.seconds
    }

    /// Seconds since Go's zero time, wrapping like Go's.
    pub fn seconds_since_year_1(&self) -> i64 {
        self.seconds.wrapping_add(ZERO_TO_UNIX)
    }

    /// Milliseconds since 1970, wrapping like Go's.
    pub fn unix_milli(&self) -> i64 {
        self.seconds
            .wrapping_mul(1_000)
            .wrapping_add(i64::from(self.nanoseconds / 1_000_000))
    }

    /// Microseconds since 1970, wrapping like Go's.
    pub fn unix_micro(&self) -> i64 {
        self.seconds
            .wrapping_mul(1_000_000)
            .wrapping_add(i64::from(self.nanoseconds / 1_000))
    }

    /// Nanoseconds since 1970, wrapping like Go's.
    pub fn unix_nano(&self) -> i64 {
        self.seconds
            .wrapping_mul(1_000_000_000)
            .wrapping_add(i64::from(self.nanoseconds))
    }

    /// Nanoseconds within the second.
    pub fn nanosecond(&self) -> u32 {
        self.nanoseconds
    }

    /// The zone this time is shown in.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The same moment, shown in another zone.
    pub fn in_zone(&self, zone: Zone) -> Self {
        Self {
            zone,
            ..self.clone()
        }
    }

    /// Whether clocks in the zone are set to daylight saving time.
    pub fn is_dst(&self) -> bool {
        self.zone.is_dst_at(self.seconds)
    }

    /// Year, month and day.
    pub fn date(&self) -> Date {
        self.civil().date
    }

    /// Hour, minute and second.
    pub fn clock(&self) -> (u32, u32, u32) {
        let civil = self.civil();
        (civil.hour, civil.minute, civil.second)
    }

    /// The day of the week; 0 is Sunday.
    pub fn week_day(&self) -> u32 {
        self.civil().week_day
    }

    /// The day of the year, from 1.
    pub fn year_day(&self) -> u32 {
        self.civil().year_day
    }

    /// This time and a duration.
    pub fn add(&self, duration: Duration) -> Self {
        let nanoseconds = i64::from(self.nanoseconds) + duration.0 % 1_000_000_000;
        let seconds = self.seconds.wrapping_add(duration.0 / 1_000_000_000);
        Self::from_unix(seconds, nanoseconds, self.zone.clone())
    }

    /// The duration from `earlier` to this time, saturating.
    pub fn since(&self, earlier: &Self) -> Duration {
        let seconds = i128::from(self.seconds) - i128::from(earlier.seconds);
        let nanoseconds = i128::from(self.nanoseconds) - i128::from(earlier.nanoseconds);
        let total = seconds * 1_000_000_000 + nanoseconds;
        Duration(total.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }

    /// The last multiple of `unit` since Go's zero time; itself for a unit that is not positive.
    pub fn truncate(&self, unit: Duration) -> Self {
        if unit.0 <= 0 {
            self.clone()
        } else {
            self.add(Duration(-self.beyond(unit)))
        }
    }

    /// The nearest multiple of `unit` since Go's zero time, halves up; itself for a unit that is
    /// not positive.
    pub fn round(&self, unit: Duration) -> Self {
        if unit.0 <= 0 {
            return self.clone();
        }
        let beyond = self.beyond(unit);
        let is_less_than_half = beyond < unit.0 - beyond;
        self.add(Duration(if is_less_than_half {
            -beyond
        } else {
            unit.0 - beyond
        }))
    }

    /// Nanoseconds since the last multiple of `unit`.
    fn beyond(&self, unit: Duration) -> i64 {
        let seconds = i128::from(self.seconds) + i128::from(ZERO_TO_UNIX);
        let total = seconds * 1_000_000_000 + i128::from(self.nanoseconds);
        total.rem_euclid(i128::from(unit.0)) as i64
    }

    /// The same clock so many years, months and days later; days beyond the end of a month run on
    /// into the next.
    ///
    /// ```
    /// use golib::time::{Time, Zone};
    ///
    /// let last_of_january = Time::from_unix(2_592_000, 0, Zone::Utc);
    /// assert_eq!(last_of_january.add_date(0, 1, 0).format("2006-01-02"), b"1970-03-03");
    /// ```
    pub fn add_date(&self, years: i64, months: i64, days: i64) -> Self {
        let civil = self.civil();
        let month = i128::from(civil.date.month) - 1 + i128::from(months);
        let year = i128::from(civil.date.year) + i128::from(years) + month.div_euclid(12);
        // What Go's calendar cannot hold has no date to be added to; it stays at the end of it.
        let year = year.clamp(-292_277_022_399, 292_277_026_596) as i64;
        let first = Date {
            year,
            month: month.rem_euclid(12) as u32 + 1,
            day: 1,
        };
        let day = days_from_civil(first) + i128::from(civil.date.day) - 1 + i128::from(days);
        let seconds = day * SECONDS_PER_DAY
            + i128::from((civil.hour * 60 + civil.minute) * 60 + civil.second);
        let local = seconds.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        Self::from_local(local, self.nanoseconds, self.zone.clone())
    }

    /// The text that Go's JSON encoding gives: RFC 3339 with the fraction it needs.
    ///
    /// # Errors
    /// For years and offsets that RFC 3339 cannot write, in Go's words.
    pub fn to_rfc3339(&self) -> Result<String, &'static str> {
        if !(0..=9999).contains(&self.date().year) {
            return Err("year outside of range [0,9999]");
        }
        if self.zone.offset_at(self.seconds).abs() >= 24 * 3600 {
            return Err("timezone hour outside of range [0,23]");
        }
        Ok(String::from_utf8_lossy(&self.format(RFC3339_NANO)).into_owned())
    }

    /// Go's binary form: a version, seconds since year 1, nanoseconds and minutes east of UTC.
    ///
    /// # Errors
    /// For an offset that it cannot hold, in Go's words.
    pub fn to_binary(&self) -> Result<Vec<u8>, &'static str> {
        let offset = match self.zone {
            Zone::Utc => None,
            _ => Some(self.zone.offset_at(self.seconds)),
        };
        let minutes = match offset.map(|offset| i16::try_from(offset / 60)) {
            None => -1,
            Some(Ok(minutes)) if minutes != -1 => minutes,
            Some(_) => return Err("unexpected zone offset"),
        };
        let odd_seconds = offset.map_or(0, |offset| offset % 60) as i8;
        let mut out = vec![if odd_seconds == 0 { 1 } else { 2 }];
        out.extend(self.seconds_since_year_1().to_be_bytes());
        out.extend(self.nanoseconds.to_be_bytes());
        out.extend(minutes.to_be_bytes());
        if odd_seconds != 0 {
            out.extend(odd_seconds.to_be_bytes());
        }
        Ok(out)
    }

    /// Go's `GoString`: the call that makes this time. Rules called UTC are the machine's: loaded by that name they would be [`Zone::Utc`].
    pub fn go_string(&self) -> String {
        let Date { year, month, day } = self.date();
        let (hour, minute, second) = self.clock();
        let month = MONTHS[month as usize - 1];
        let zone = match &self.zone {
            Zone::Utc => "time.UTC".to_owned(),
            Zone::Rules(_) if self.zone.name() == "UTC" => "time.Local".to_owned(),
            zone => format!("time.Location({})", quote(zone.name().as_bytes())),
        };
        let nanosecond = self.nanoseconds;
        format!(
            "time.Date({year}, time.{month}, {day}, {hour}, {minute}, {second}, {nanosecond}, {zone})"
        )
    }

    pub(crate) fn civil(&self) -> Civil {
        let offset = self.zone.offset_at(self.seconds);
        let mut seconds =
            i128::from(self.seconds) + i128::from(offset) + ABSOLUTE_TO_UNIX_DAYS * SECONDS_PER_DAY;
        if seconds < 0 {
            // Go counts absolute seconds in 64 bits without a sign.
            seconds += 1 << 64;
        }
        let days = seconds / SECONDS_PER_DAY - ABSOLUTE_TO_UNIX_DAYS;
        let second_of_day = (seconds % SECONDS_PER_DAY) as u32;
        let date = civil_from_days(days);
        let new_year = days_from_civil(Date {
            year: date.year,
            month: 1,
            day: 1,
        });
        Civil {
            date,
            year_day: (days - new_year) as u32 + 1,
            week_day: (days + 4).rem_euclid(7) as u32,
            hour: second_of_day / 3600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
        }
    }
}

impl PartialEq for Time {
    /// Two times are equal if they are the same moment.
    fn eq(&self, other: &Self) -> bool {
        (self.seconds, self.nanoseconds) == (other.seconds, other.nanoseconds)
    }
}

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.seconds, self.nanoseconds).cmp(&(other.seconds, other.nanoseconds))
    }
}

impl fmt::Display for Time {
    /// Go's `String`: `2006-01-02 15:04:05.999999999 -0700 MST`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.format("2006-01-02 15:04:05.999999999 -0700 MST");
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

/// Days since 1970 of a date in the proleptic Gregorian calendar.
fn days_from_civil(date: Date) -> i128 {
    // Years begin in March, so that the leap day is the last.
    let year = i128::from(date.year) - i128::from(date.month <= 2);
    let month = i128::from((date.month + 9) % 12);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * month + 2) / 5 + i128::from(date.day) - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn civil_from_days(days: i128) -> Date {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * march_month + 2) / 5 + 1) as u32;
    let month = ((march_month + 2) % 12 + 1) as u32;
    let year = (era * 400 + year_of_era) as i64 + i64::from(month <= 2);
    Date { year, month, day }
}

/// The number of days in a month (1 to 12).
fn days_in_month(month: u32, year: i64) -> u32 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn berlin() -> Zone {
        Zone::load("Europe/Berlin").expect("the system's zone database is needed for this test")
    }

    #[test]
    fn times_print_as_in_go() {
        let time = Time::from_unix(1_136_214_245, 500_000_000, Zone::Utc);
        assert_eq!(time.to_string(), "2006-01-02 15:04:05.5 +0000 UTC");
        assert_eq!(Time::zero().to_string(), "0001-01-01 00:00:00 +0000 UTC");
        let summer = Time::from_unix(1_600_000_000, 0, berlin());
        assert_eq!(summer.to_string(), "2020-09-13 14:26:40 +0200 CEST");
        assert_eq!(
            summer.to_rfc3339().as_deref(),
            Ok("2020-09-13T14:26:40+02:00")
        );
        let last = Time::from_unix(i64::MAX, 0, Zone::Utc);
        assert_eq!(
            last.date(),
            Date {
                year: 292_277_026_596,
                month: 12,
                day: 4
            }
        );
        assert_eq!(last.to_rfc3339(), Err("year outside of range [0,9999]"));
    }

    #[test]
    fn civil_times_resolve_their_utc_offset() {
        let date = |month, day| Date {
            year: 2021,
            month,
            day,
        };
        let at = |date, clock| Time::from_civil(date, clock, 0, berlin()).to_string();
        assert_eq!(at(date(3, 28), [1, 59, 0]), "2021-03-28 01:59:00 +0100 CET");
        assert_eq!(at(date(3, 28), [3, 0, 0]), "2021-03-28 03:00:00 +0200 CEST");
        assert_eq!(at(date(7, 1), [0, 0, 0]), "2021-07-01 00:00:00 +0200 CEST");
    }

    #[test]
    fn arithmetic_carries_nanoseconds() {
        let time = Time::from_unix(0, 0, Zone::Utc).add(Duration(-1));
        assert_eq!((time.unix(), time.nanosecond()), (-1, 999_999_999));
        assert_eq!(time.since(&Time::from_unix(0, 0, Zone::Utc)), Duration(-1));
        assert_eq!(time.since(&Time::zero()), Duration(i64::MAX));
    }
}
