//! Sprig's `date.go`. The clock and the local zone are the host's.

use golib::duration::Duration;
use golib::strconv;
use golib::time::{Time, Zone};

use super::functions::Functions;
use super::moment::{Moment, Span, local_zone, now, object};
use crate::error::Error;
use crate::state::State;
use crate::value::{Str, Value};

/// The layout of an HTML date field.
const HTML_DATE: &str = "2006-01-02";

pub(super) fn add(f: &mut Functions) {
    f.add("now", |state: &mut State<'_>| Moment(now(state)));
    f.add("date", |state: &mut State<'_>, layout: Str, date: Value| {
        time_or_now(state, &date)
            .in_zone(local_zone(state))
            .format(&*layout)
    });
    f.add("htmlDate", |state: &mut State<'_>, date: Value| {
        time_or_now(state, &date)
            .in_zone(local_zone(state))
            .format(HTML_DATE)
    });
    f.add(
        "dateInZone",
        |state: &mut State<'_>, layout: Str, date: Value, zone: Str| {
            let zone = load_zone(state, &zone);
            time_or_now(state, &date).in_zone(zone).format(&*layout)
        },
    );
    f.add(
        "htmlDateInZone",
        |state: &mut State<'_>, date: Value, zone: Str| {
            let zone = load_zone(state, &zone);
            time_or_now(state, &date).in_zone(zone).format(HTML_DATE)
        },
    );
    f.add(
        "dateModify",
        |duration: Str, date: Moment| match Duration::parse(&*duration) {
            Ok(duration) => Moment(date.0.add(duration)),
            Err(_) => date,
        },
    );
    f.add(
        "mustDateModify",
        |duration: Str, date: Moment| -> Result<Moment, Error> {
            let duration =
                Duration::parse(&*duration).map_err(|e| Error::message(e.to_string()))?;
            Ok(Moment(date.0.add(duration)))
        },
    );
    f.add("toDate", |state: &mut State<'_>, layout: Str, text: Str| {
        Moment(Time::parse(&*layout, &*text, &local_zone(state)).unwrap_or_else(|_| Time::zero()))
    });
    f.add(
        "mustToDate",
        |state: &mut State<'_>, layout: Str, text: Str| {
            Time::parse(&*layout, &*text, &local_zone(state))
                .map(Moment)
                .map_err(|error| Error::message(error.to_string()))
        },
    );
    f.add("unixEpoch", |date: Moment| date.0.unix().to_string());
    f.add("ago", |state: &mut State<'_>, date: Value| {
        let now = now(state);
        let then = match &date {
            // Unlike `date`, this one has no int32.
            Value::Int32(_) => now.clone(),
            other => time_of(state, other).unwrap_or_else(|| now.clone()),
        };
        now.since(&then).round(Duration::SECOND).to_string()
    });
    f.add("duration", |seconds: Value| {
        let seconds = match &seconds {
            Value::Str(text) => {
                strconv::parse_int(&**text, 10, 64).unwrap_or_else(|error| error.saturated())
            }
            Value::Int64(seconds) => *seconds,
            _ => 0,
        };
        Duration(seconds.wrapping_mul(Duration::SECOND.0)).to_string()
    });
    f.add("durationRound", |state: &mut State<'_>, duration: Value| {
        let duration = match &duration {
            Value::Str(text) => Duration::parse(&**text).unwrap_or_default(),
            Value::Int64(nanoseconds) => Duration(*nanoseconds),
            other => match object::<Moment>(other) {
                Some(then) => now(state).since(&then.0),
                None => Duration(0),
            },
        };
        largest_unit(duration)
    });
    f.alias("dateInZone", "date_in_zone");
    f.alias("dateModify", "date_modify");
    f.alias("mustDateModify", "must_date_modify");
}

/// The time a value stands for: itself, or the seconds since 1970 of an integer that is no value's number.
fn time_of(state: &State<'_>, value: &Value) -> Option<Time> {
    let seconds = match value {
        Value::Int(n) | Value::Int64(n) => *n,
        Value::Int32(n) => i64::from(*n),
        other => return object::<Moment>(other).map(|moment| moment.0),
    };
    Some(Time::from_unix(seconds, 0, local_zone(state)))
}

fn time_or_now(state: &State<'_>, value: &Value) -> Time {
    time_of(state, value).unwrap_or_else(|| now(state))
}

fn load_zone(state: &State<'_>, name: &Str) -> Zone {
    if *name == "Local" {
        return local_zone(state);
    }
    name.as_str()
        .and_then(|name| Zone::load(name).ok())
        .unwrap_or(Zone::Utc)
}

/// The largest unit a duration has more than one of.
fn largest_unit(duration: Duration) -> String {
    let hour = Duration::HOUR.0.unsigned_abs();
    let units = [
        (hour * 24 * 365, "y"),
        (hour * 24 * 30, "mo"),
        (hour * 24, "d"),
        (hour, "h"),
        (hour / 60, "m"),
        (hour / 3600, "s"),
    ];
    let total = duration.0.unsigned_abs();
    match units.iter().find(|(unit, _)| total > *unit) {
        Some((unit, name)) => format!("{}{name}", total / unit),
        None => "0s".to_owned(),
    }
}

/// Helm's own functions on durations (`pkg/engine/funcs.go`).
pub(super) fn add_helm(f: &mut Functions) {
    f.add("mustToDuration", |value: Value| -> Result<Span, Error> {
        as_duration(&value).map(Span).map_err(Error::message)
    });
    let parsed = |value: &Value| as_duration(value).unwrap_or_default();
    f.add("durationSeconds", move |value: Value| {
        parsed(&value).seconds()
    });
    f.add("durationMilliseconds", move |value: Value| {
        super::Int64(parsed(&value).0 / 1_000_000)
    });
    f.add("durationMicroseconds", move |value: Value| {
        super::Int64(parsed(&value).0 / 1_000)
    });
    f.add("durationNanoseconds", move |value: Value| {
        super::Int64(parsed(&value).0)
    });
    f.add("durationMinutes", move |value: Value| {
        parsed(&value).minutes()
    });
    f.add("durationHours", move |value: Value| parsed(&value).hours());
    f.add("durationDays", move |value: Value| {
        parsed(&value).hours() / 24.0
    });
    f.add("durationWeeks", move |value: Value| {
        parsed(&value).hours() / 24.0 / 7.0
    });
    f.add("durationRoundTo", move |value: Value, unit: Value| {
        let value = parsed(&value);
        Span(as_duration(&unit).map_or(value, |unit| value.round(unit)))
    });
    f.add("durationTruncateTo", move |value: Value, unit: Value| {
        let value = parsed(&value);
        Span(as_duration(&unit).map_or(value, |unit| value.truncate(unit)))
    });
}

/// A duration, the text of one, or a number of seconds.
fn as_duration(value: &Value) -> Result<Duration, String> {
    if let Some(Span(duration)) = object(value) {
        return Ok(duration);
    }
    if let Value::Str(text) = value {
        let trimmed = super::strings::trim_space(text);
        if trimmed.is_empty() {
            return Err("empty duration".to_owned());
        }
        if let Ok(duration) = Duration::parse(trimmed) {
            return Ok(duration);
        }
        return match strconv::parse_float(trimmed, 64) {
            Ok(seconds) => from_seconds(seconds),
            Err(_) => Err(format!(
                "could not parse duration {}",
                strconv::quote(&**text)
            )),
        };
    }
    let whole = |seconds: i128| {
        let nanoseconds = seconds * i128::from(Duration::SECOND.0);
        i64::try_from(nanoseconds)
            .map(Duration)
            .map_err(|_| format!("duration seconds overflow: {seconds}"))
    };
    match value {
        Value::Nil => Err("invalid duration".to_owned()),
        Value::Float(seconds) => from_seconds(*seconds),
        other => match (other.as_signed(), other.as_unsigned()) {
            (Some(seconds), _) => whole(i128::from(seconds)),
            (None, Some(seconds)) => whole(i128::from(seconds)),
            (None, None) => Err(format!("unsupported duration type {}", other.type_name())),
        },
    }
}

fn from_seconds(seconds: f64) -> Result<Duration, String> {
    let print = |value: f64| strconv::format_float(value, b'g', -1, 64);
    if !seconds.is_finite() {
        return Err(format!("invalid duration seconds: {}", print(seconds)));
    }
    let limit = i64::MAX as f64;
    if seconds.abs() > limit / Duration::SECOND.0 as f64 {
        return Err(format!("duration seconds overflow: {}", print(seconds)));
    }
    let nanoseconds = seconds * Duration::SECOND.0 as f64;
    if nanoseconds.abs() > limit {
        return Err(format!(
            "duration nanoseconds overflow: {}",
            print(nanoseconds)
        ));
    }
    // 2^63 itself passes the checks and, as in Go, becomes the smallest duration.
    Ok(Duration(if nanoseconds >= limit {
        i64::MIN
    } else {
        nanoseconds as i64
    }))
}
