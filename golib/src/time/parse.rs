//! Parsing by layout.

use super::layout::{DAYS, Element, MONTHS, Offset, Pad, Precision, next_element};
use super::{Date, Time, Zone, days_in_month, is_leap};
use crate::duration::{leading_int, quote};

/// A text that does not follow its layout; prints in Go's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    layout: Vec<u8>,
    value: Vec<u8>,
    layout_element: Vec<u8>,
    value_element: Vec<u8>,
    message: String,
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "parsing time {}", quote(&self.value))?;
        if !self.message.is_empty() {
            return f.write_str(&self.message);
        }
        let (element, rest) = (quote(&self.layout_element), quote(&self.value_element));
        write!(
            f,
            " as {}: cannot parse {rest} as {element}",
            quote(&self.layout)
        )
    }
}

impl std::error::Error for ParseError {}

/// What can go wrong with one element.
enum Failure {
    /// It does not look like the element.
    Bad,
    /// It does, but this is out of range.
    Range(&'static str),
}

type Parsed<'v, T> = Result<(T, &'v [u8]), Failure>;

/// What was read so far.
#[derive(Default)]
struct Fields {
    year: i64,
    month: Option<u32>,
    day: Option<u32>,
    year_day: Option<u32>,
    hour: u32,
    minute: u32,
    second: u32,
    nanoseconds: u32,
    afternoon: Option<bool>,
    is_utc: bool,
    offset: Option<i64>,
    zone_name: Option<String>,
}

impl Time {
    /// Reads a time in the form of a layout. Without a zone in the text it is one of `zone`; an
    /// offset or an abbreviation in the text is looked up in `zone` too.
    ///
    /// ```
    /// use golib::time::{RFC3339, Time, Zone};
    ///
    /// let time = Time::parse(RFC3339, "2024-02-29T12:00:00Z", &Zone::Utc)?;
    /// assert_eq!(time.unix(), 1_709_208_000);
    /// let error = Time::parse("2006-01-02", "2023-02-29", &Zone::Utc).unwrap_err();
    /// assert_eq!(error.to_string(), "parsing time \"2023-02-29\": day out of range");
    /// # Ok::<(), golib::time::ParseError>(())
    /// ```
    ///
    /// # Errors
    /// When the text does not follow the layout or names no possible time.
    pub fn parse(
        layout: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        zone: &Zone,
    ) -> Result<Self, ParseError> {
        let (whole_layout, whole_value) = (layout.as_ref(), value.as_ref());
        let (mut layout, mut value) = (whole_layout, whole_value);
        let error = |element: &[u8], rest: &[u8], message: String| ParseError {
            layout: whole_layout.to_vec(),
            value: whole_value.to_vec(),
            layout_element: element.to_vec(),
            value_element: rest.to_vec(),
            message,
        };
        let mut fields = Fields::default();
        loop {
            let (prefix, element, rest) = next_element(layout);
            let text = &layout[prefix.len()..layout.len() - rest.len()];
            value = skip(value, prefix).map_err(|at| error(prefix, at, String::new()))?;
            let Some(element) = element else {
                if value.is_empty() {
                    break;
                }
                return Err(error(b"", value, format!(": extra text: {}", quote(value))));
            };
            layout = rest;
            value = fields
                .read(element, value, layout)
                .map_err(|failure| match failure {
                    Failure::Bad => error(text, value, String::new()),
                    Failure::Range(what) => error(text, value, format!(": {what} out of range")),
                })?;
        }
        fields
            .build(zone)
            .map_err(|message| error(b"", value, message.to_owned()))
    }
}

impl Fields {
    /// Reads one element; the rest of the layout is needed to know whether a fraction follows.
    fn read<'v>(
        &mut self,
        element: Element,
        value: &'v [u8],
        layout: &[u8],
    ) -> Result<&'v [u8], Failure> {
        let rest;
        match element {
            Element::Year => {
                let (text, after) = take(value, 2)?;
                let year = signed(text)?;
                self.year = if year >= 69 { year + 1900 } else { year + 2000 };
                rest = after;
            }
            Element::LongYear => {
                let (text, after) = take(value, 4)?;
                if !text[0].is_ascii_digit() {
                    return Err(Failure::Bad);
                }
                self.year = signed(text)?;
                rest = after;
            }
            Element::Month => {
                let index;
                (index, rest) = lookup(MONTHS.iter().map(|name| &name[..3]), value)?;
                self.month = Some(index + 1);
            }
            Element::LongMonth => {
                let index;
                (index, rest) = lookup(MONTHS.into_iter(), value)?;
                self.month = Some(index + 1);
            }
            Element::NumMonth(pad) => {
                let month;
                (month, rest) = two_digits(value, pad == Pad::Zero)?;
                if !(1..=12).contains(&month) {
                    return Err(Failure::Range("month"));
                }
                self.month = Some(month);
            }
            Element::WeekDay => (_, rest) = lookup(DAYS.iter().map(|name| &name[..3]), value)?,
            Element::LongWeekDay => (_, rest) = lookup(DAYS.into_iter(), value)?,
            Element::Day(pad) => {
                let value = match (pad, value) {
                    (Pad::Space, [b' ', value @ ..]) => value,
                    _ => value,
                };
                let day;
                (day, rest) = two_digits(value, pad == Pad::Zero)?;
                self.day = Some(day);
            }
            Element::YearDay(pad) => {
                let mut value = value;
                for _ in 0..2 {
                    if pad == Pad::Space {
                        value = value.strip_prefix(b" ").unwrap_or(value);
                    }
                }
                let length = value
                    .iter()
                    .take(3)
                    .take_while(|b| b.is_ascii_digit())
                    .count();
                if length == 0 || pad == Pad::Zero && length != 3 {
                    return Err(Failure::Bad);
                }
                let (day, after) = value.split_at(length);
                self.year_day = Some(signed(day)? as u32);
                rest = after;
            }
            Element::Hour => {
                (self.hour, rest) = two_digits(value, false)?;
                if self.hour >= 24 {
                    return Err(Failure::Range("hour"));
                }
            }
            Element::Hour12(pad) => {
                (self.hour, rest) = two_digits(value, pad == Pad::Zero)?;
                if self.hour > 12 {
                    return Err(Failure::Range("hour"));
                }
            }
            Element::Minute(pad) => {
                (self.minute, rest) = two_digits(value, pad == Pad::Zero)?;
                if self.minute >= 60 {
                    return Err(Failure::Range("minute"));
                }
            }
            Element::Second(pad) => {
                let after;
                (self.second, after) = two_digits(value, pad == Pad::Zero)?;
                if self.second >= 60 {
                    return Err(Failure::Range("second"));
                }
                // A fraction may follow the seconds though the layout has none.
                let next = next_element(layout).1;
                rest = match fraction_length(after) {
                    Some(length) if !matches!(next, Some(Element::Fraction { .. })) => {
                        let (fraction, after) = after.split_at(length);
                        self.nanoseconds = nanoseconds(fraction)?;
                        after
                    }
                    _ => after,
                };
            }
            Element::HalfDay { upper } => {
                let (text, after) = take(value, 2)?;
                self.afternoon = Some(match (text, upper) {
                    (b"PM", true) | (b"pm", false) => true,
                    (b"AM", true) | (b"am", false) => false,
                    _ => return Err(Failure::Bad),
                });
                rest = after;
            }
            Element::Offset(form) => match value {
                [b'Z', after @ ..] if form.iso => {
                    self.is_utc = true;
                    rest = after;
                }
                _ => {
                    let offset;
                    (offset, rest) = parse_offset(form, value)?;
                    self.offset = Some(offset);
                }
            },
            Element::ZoneName => {
                if let Some(after) = value.strip_prefix(b"UTC") {
                    self.is_utc = true;
                    rest = after;
                } else {
                    let length = zone_name_length(value).ok_or(Failure::Bad)?;
                    let (name, after) = value.split_at(length);
                    self.zone_name = Some(String::from_utf8_lossy(name).into_owned());
                    rest = after;
                }
            }
            Element::Fraction {
                digits,
                trim: false,
                ..
            } => {
                let (fraction, after) = take(value, 1 + digits)?;
                self.nanoseconds = nanoseconds(fraction)?;
                rest = after;
            }
            Element::Fraction { trim: true, .. } => {
                let (fraction, after) = value.split_at(fraction_length(value).unwrap_or(0));
                if !fraction.is_empty() {
                    self.nanoseconds = nanoseconds(fraction)?;
                }
                rest = after;
            }
        }
        Ok(rest)
    }

    /// The time, once everything is read.
    fn build(mut self, zone: &Zone) -> Result<Time, &'static str> {
        match self.afternoon {
            Some(true) if self.hour < 12 => self.hour += 12,
            Some(false) if self.hour == 12 => self.hour = 0,
            _ => {}
        }
        if let Some(year_day) = self.year_day {
            let (month, day) = month_of(year_day, self.year).ok_or(": day-of-year out of range")?;
            if self.month.is_some_and(|m| m != month) {
                return Err(": day-of-year does not match month");
            }
            if self.day.is_some_and(|d| d != day) {
                return Err(": day-of-year does not match day");
            }
            (self.month, self.day) = (Some(month), Some(day));
        }
        let date = Date {
            year: self.year,
            month: self.month.unwrap_or(1),
            day: self.day.unwrap_or(1),
        };
        if date.day < 1 || date.day > days_in_month(date.month, date.year) {
            return Err(": day out of range");
        }
        let in_zone = |zone: Zone| {
            Time::from_civil(
                date,
                [self.hour, self.minute, self.second],
                self.nanoseconds,
                zone,
            )
        };
        if self.is_utc {
            return Ok(in_zone(Zone::Utc));
        }
        // Go marks "no offset" with -1, so an offset of minus one second counts as none.
        if let Some(offset) = self.offset.filter(|&offset| offset != -1) {
            let mut time = in_zone(Zone::Utc);
            time.seconds -= offset;
            let name = zone.abbreviation_at(time.seconds);
            let is_here = zone.offset_at(time.seconds) == offset
                && self.zone_name.as_ref().is_none_or(|zone| *zone == name);
            let name = self.zone_name.unwrap_or_default().into();
            let zone = if is_here {
                zone.clone()
            } else {
                Zone::Fixed { name, offset }
            };
            return Ok(time.in_zone(zone));
        }
        if let Some(name) = self.zone_name {
            let mut time = in_zone(Zone::Utc);
            if let Some(offset) = zone.offset_named(&name, time.seconds) {
                time.seconds -= offset;
                return Ok(time.in_zone(zone.clone()));
            }
            // An unknown zone keeps its name and shows the clock as it was written.
            let hours = name
                .strip_prefix("GMT")
                .and_then(|hours| signed(hours.as_bytes()).ok());
            let offset = hours.unwrap_or(0) * 3600;
            return Ok(time.in_zone(Zone::Fixed {
                name: name.into(),
                offset,
            }));
        }
        Ok(in_zone(zone.clone()))
    }
}

/// Removes the literal text of a layout; runs of spaces match runs of spaces. Fails with what is
/// left of the value.
fn skip<'v>(value: &'v [u8], prefix: &[u8]) -> Result<&'v [u8], &'v [u8]> {
    let (mut value, mut prefix) = (value, prefix);
    while let Some(&expected) = prefix.first() {
        if expected == b' ' {
            if value.first().is_some_and(|&b| b != b' ') {
                return Err(value);
            }
            prefix = trim_spaces(prefix);
            value = trim_spaces(value);
            continue;
        }
        match value.split_first() {
            Some((&byte, after)) if byte == expected => value = after,
            _ => return Err(value),
        }
        prefix = &prefix[1..];
    }
    Ok(value)
}

fn trim_spaces(text: &[u8]) -> &[u8] {
    &text[text.iter().take_while(|&&b| b == b' ').count()..]
}

fn take(value: &[u8], length: usize) -> Parsed<'_, &[u8]> {
    value.split_at_checked(length).ok_or(Failure::Bad)
}

/// A whole text as a number with an optional sign.
fn signed(text: &[u8]) -> Result<i64, Failure> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let value = match leading_int(digits) {
        Some((value, [])) => value as i64,
        _ => return Err(Failure::Bad),
    };
    Ok(if negative {
        value.wrapping_neg()
    } else {
        value
    })
}

fn two_digits(value: &[u8], fixed: bool) -> Parsed<'_, u32> {
    let digit = |at: usize| {
        value
            .get(at)
            .filter(|b| b.is_ascii_digit())
            .map(|b| u32::from(b - b'0'))
    };
    match (digit(0), digit(1)) {
        (Some(tens), Some(ones)) => Ok((tens * 10 + ones, &value[2..])),
        (Some(ones), None) if !fixed => Ok((ones, &value[1..])),
        _ => Err(Failure::Bad),
    }
}

/// The index of the first name the value begins with, whatever the case.
fn lookup<'n, 'v>(names: impl Iterator<Item = &'n str>, value: &'v [u8]) -> Parsed<'v, u32> {
    for (index, name) in names.enumerate() {
        if let Some((head, rest)) = value.split_at_checked(name.len())
            && head.eq_ignore_ascii_case(name.as_bytes())
        {
            return Ok((index as u32, rest));
        }
    }
    Err(Failure::Bad)
}

/// The length of a separator with at least one digit.
fn fraction_length(value: &[u8]) -> Option<usize> {
    value.first().filter(|b| matches!(b, b'.' | b','))?;
    let digits = value[1..].iter().take_while(|b| b.is_ascii_digit()).count();
    (digits > 0).then_some(1 + digits)
}

/// Nanoseconds of a separator and digits; what is finer is cut off.
fn nanoseconds(fraction: &[u8]) -> Result<u32, Failure> {
    if !fraction.first().is_some_and(|b| matches!(b, b'.' | b',')) {
        return Err(Failure::Bad);
    }
    let digits = &fraction[1..fraction.len().min(10)];
    let value = signed(digits)?;
    if value < 0 {
        return Err(Failure::Range("fractional second"));
    }
    let scale = 10_i64.pow(9 - digits.len() as u32);
    Ok((value * scale) as u32)
}

fn parse_offset(form: Offset, value: &[u8]) -> Parsed<'_, i64> {
    let (length, minutes_at, seconds_at) = match (form.precision, form.colon) {
        (Precision::Hours, _) => (3, None, None),
        (Precision::Minutes, false) => (5, Some(3), None),
        (Precision::Minutes, true) => (6, Some(4), None),
        (Precision::Seconds, false) => (7, Some(3), Some(5)),
        (Precision::Seconds, true) => (9, Some(4), Some(7)),
    };
    let (text, rest) = take(value, length)?;
    let colons: &[usize] = match (form.colon, form.precision) {
        (false, _) => &[],
        (true, Precision::Seconds) => &[3, 6],
        (true, _) => &[3],
    };
    if colons.iter().any(|&at| text[at] != b':') {
        return Err(Failure::Bad);
    }
    let part = |at: Option<usize>| match at {
        Some(at) => two_digits(&text[at..at + 2], true).map(|(value, _)| value),
        None => Ok(0),
    };
    // Go looks at the ranges of what it could read before it complains about the rest.
    let hours = part(Some(1));
    let minutes = if hours.is_ok() {
        part(minutes_at)
    } else {
        Ok(0)
    };
    let seconds = if hours.is_ok() && minutes.is_ok() {
        part(seconds_at)
    } else {
        Ok(0)
    };
    if seconds.as_ref().is_ok_and(|&s| s > 60) {
        return Err(Failure::Range("time zone offset second"));
    }
    if minutes.as_ref().is_ok_and(|&m| m > 60) {
        return Err(Failure::Range("time zone offset minute"));
    }
    if hours.as_ref().is_ok_and(|&h| h > 24) {
        return Err(Failure::Range("time zone offset hour"));
    }
    let offset = i64::from((hours? * 60 + minutes?) * 60 + seconds?);
    match text[0] {
        b'+' => Ok((offset, rest)),
        b'-' => Ok((-offset, rest)),
        _ => Err(Failure::Bad),
    }
}

/// The length of what looks like a zone's abbreviation.
fn zone_name_length(value: &[u8]) -> Option<usize> {
    if value.len() < 3 {
        return None;
    }
    if value.starts_with(b"ChST") || value.starts_with(b"MeST") {
        return Some(4);
    }
    if let Some(after) = value.strip_prefix(b"GMT") {
        return Some(3 + signed_offset_length(after));
    }
    if matches!(value[0], b'+' | b'-') {
        return Some(signed_offset_length(value)).filter(|&length| length > 0);
    }
    match value
        .iter()
        .take(6)
        .take_while(|b| b.is_ascii_uppercase())
        .count()
    {
        3 => Some(3),
        4 if value[3] == b'T' || value.starts_with(b"WITA") => Some(4),
        5 if value[4] == b'T' => Some(5),
        _ => None,
    }
}

/// The length of a sign and a number up to 23, or 0.
fn signed_offset_length(value: &[u8]) -> usize {
    let Some((b'+' | b'-', digits)) = value.split_first() else {
        return 0;
    };
    match leading_int(digits) {
        Some((number, rest)) if rest.len() < digits.len() && number <= 23 => {
            value.len() - rest.len()
        }
        _ => 0,
    }
}

/// Month and day of a day of the year.
fn month_of(year_day: u32, year: i64) -> Option<(u32, u32)> {
    let mut day = year_day;
    if day < 1 || day > if is_leap(year) { 366 } else { 365 } {
        return None;
    }
    for month in 1..=12 {
        let days = days_in_month(month, year);
        if day <= days {
            return Some((month, day));
        }
        day -= days;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(layout: &str, value: &str) -> Result<String, String> {
        match Time::parse(layout, value, &Zone::Utc) {
            Ok(time) => Ok(time.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn texts_become_times() {
        for (layout, value, want) in [
            ("2006-01-02", "2021-02-28", "2021-02-28 00:00:00 +0000 UTC"),
            (
                "2006-01-02T15:04:05Z07:00",
                "2021-02-28T23:59:59.5-02:30",
                "2021-02-28 23:59:59.5 -0230 -0230",
            ),
            (
                "Jan _2 06 3:04PM",
                "feb  3 70 12:01AM",
                "1970-02-03 00:01:00 +0000 UTC",
            ),
            ("2006 002", "2020 060", "2020-02-29 00:00:00 +0000 UTC"),
            (
                "2006-01-02 MST",
                "2021-02-28 CEST",
                "2021-02-28 00:00:00 +0000 CEST",
            ),
            ("15:04", "07:30", "0000-01-01 07:30:00 +0000 UTC"),
        ] {
            assert_eq!(
                parse(layout, value).as_deref(),
                Ok(want),
                "{layout} {value}"
            );
        }
    }

    #[test]
    fn refusals_have_gos_words() {
        for (layout, value, want) in [
            (
                "2006-01-02",
                "x",
                r#"parsing time "x" as "2006-01-02": cannot parse "x" as "2006""#,
            ),
            (
                "2006-01-02",
                "2021-13-01",
                r#"parsing time "2021-13-01": month out of range"#,
            ),
            (
                "2006-01-02",
                "2021-02-30",
                r#"parsing time "2021-02-30": day out of range"#,
            ),
            ("2006", "2021x", r#"parsing time "2021x": extra text: "x""#),
            (
                "15:04",
                "1504",
                r#"parsing time "1504" as "15:04": cannot parse "04" as ":""#,
            ),
        ] {
            assert_eq!(
                parse(layout, value),
                Err(want.to_owned()),
                "{layout} {value}"
            );
        }
    }
}
