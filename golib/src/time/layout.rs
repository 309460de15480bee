//! Layouts: the reference time's elements, and formatting by them.

use std::io::Write as _;

use super::{Civil, Time};

/// RFC 3339 in whole seconds.
pub const RFC3339: &str = "2006-01-02T15:04:05Z07:00";
/// RFC 3339 with as many fractional digits as are needed.
pub const RFC3339_NANO: &str = "2006-01-02T15:04:05.999999999Z07:00";

/// `time.Month`'s names, January first.
#[rustfmt::skip]
pub const MONTHS: [&str; 12] = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
];
/// `time.Weekday`'s names, Sunday first.
#[rustfmt::skip]
pub const DAYS: [&str; 7] = [
    "Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday",
];

/// How an element stands in a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pad {
    /// As it is: `1`.
    None,
    /// Filled with spaces: `_2`.
    Space,
    /// Filled with zeros: `01`.
    Zero,
}

/// One element of a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    LongMonth,
    Month,
    NumMonth(Pad),
    LongWeekDay,
    WeekDay,
    Day(Pad),
    YearDay(Pad),
    Hour,
    Hour12(Pad),
    Minute(Pad),
    Second(Pad),
    LongYear,
    Year,
    /// `PM` or `pm`.
    HalfDay {
        upper: bool,
    },
    ZoneName,
    Offset(Offset),
    /// A separator and digits: `.000` keeps zeros, `.999` drops them.
    Fraction {
        separator: u8,
        digits: usize,
        trim: bool,
    },
}

/// How an offset from UTC is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offset {
    /// `Z07…`: UTC is `Z`.
    pub(super) iso: bool,
    pub(super) colon: bool,
    pub(super) precision: Precision,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Precision {
    Hours,
    Minutes,
    Seconds,
}

/// The literal text before the first element, the element, the rest.
pub(super) fn next_element(layout: &[u8]) -> (&[u8], Option<Element>, &[u8]) {
    for at in 0..layout.len() {
        // A year after an underscore leaves the underscore in the text.
        if layout[at..].starts_with(b"_2006") {
            return (&layout[..=at], Some(Element::LongYear), &layout[at + 5..]);
        }
        if let Some((element, length)) = element_at(&layout[at..]) {
            return (&layout[..at], Some(element), &layout[at + length..]);
        }
    }
    (layout, None, b"")
}

/// The element a text begins with, and its length.
fn element_at(text: &[u8]) -> Option<(Element, usize)> {
    let is = |prefix: &str| text.starts_with(prefix.as_bytes());
    let lower_at = |at: usize| text.get(at).is_some_and(u8::is_ascii_lowercase);
    let found = match text.first()? {
        b'J' if is("January") => (Element::LongMonth, 7),
        b'J' if is("Jan") && !lower_at(3) => (Element::Month, 3),
        b'M' if is("Monday") => (Element::LongWeekDay, 6),
        b'M' if is("Mon") && !lower_at(3) => (Element::WeekDay, 3),
        b'M' if is("MST") => (Element::ZoneName, 3),
        b'0' => match text.get(1)? {
            b'1' => (Element::NumMonth(Pad::Zero), 2),
            b'2' => (Element::Day(Pad::Zero), 2),
            b'3' => (Element::Hour12(Pad::Zero), 2),
            b'4' => (Element::Minute(Pad::Zero), 2),
            b'5' => (Element::Second(Pad::Zero), 2),
            b'6' => (Element::Year, 2),
            b'0' if is("002") => (Element::YearDay(Pad::Zero), 3),
            _ => return None,
        },
        b'1' if is("15") => (Element::Hour, 2),
        b'1' => (Element::NumMonth(Pad::None), 1),
        b'2' if is("2006") => (Element::LongYear, 4),
        b'2' => (Element::Day(Pad::None), 1),
        b'_' if is("_2") => (Element::Day(Pad::Space), 2),
        b'_' if is("__2") => (Element::YearDay(Pad::Space), 3),
        b'3' => (Element::Hour12(Pad::None), 1),
        b'4' => (Element::Minute(Pad::None), 1),
        b'5' => (Element::Second(Pad::None), 1),
        b'P' if is("PM") => (Element::HalfDay { upper: true }, 2),
        b'p' if is("pm") => (Element::HalfDay { upper: false }, 2),
        b'-' | b'Z' => offset_at(text)?,
        &separator @ (b'.' | b',') => {
            let digit = *text.get(1).filter(|b| matches!(b, b'0' | b'9'))?;
            let digits = text[1..].iter().take_while(|&&b| b == digit).count();
            if text.get(1 + digits).is_some_and(u8::is_ascii_digit) {
                return None;
            }
            (
                Element::Fraction {
                    separator,
                    // Go keeps twelve bits of it.
                    digits: digits & 0xfff,
                    trim: digit == b'9',
                },
                1 + digits,
            )
        }
        _ => return None,
    };
    Some(found)
}

fn offset_at(text: &[u8]) -> Option<(Element, usize)> {
    // In Go's order: the longer forms first.
    const FORMS: [(&[u8], bool, Precision); 5] = [
        (b"070000", false, Precision::Seconds),
        (b"07:00:00", true, Precision::Seconds),
        (b"0700", false, Precision::Minutes),
        (b"07:00", true, Precision::Minutes),
        (b"07", false, Precision::Hours),
    ];
    let iso = text[0] == b'Z';
    let (form, colon, precision) = FORMS
        .iter()
        .find(|(form, ..)| text[1..].starts_with(form))?;
    let offset = Offset {
        iso,
        colon: *colon,
        precision: *precision,
    };
    Some((Element::Offset(offset), 1 + form.len()))
}

impl Time {
    /// This time in the form of a layout.
    ///
    /// ```
    /// use golib::time::{Time, Zone};
    ///
    /// let time = Time::from_unix(0, 0, Zone::Utc);
    /// assert_eq!(time.format("Mon Jan 2 15:04:05 MST 2006"), b"Thu Jan 1 00:00:00 UTC 1970");
    /// ```
    pub fn format(&self, layout: impl AsRef<[u8]>) -> Vec<u8> {
        let civil = self.civil();
        let mut layout = layout.as_ref();
        let mut out = Vec::with_capacity(layout.len() + 10);
        loop {
            let (prefix, element, rest) = next_element(layout);
            out.extend_from_slice(prefix);
            let Some(element) = element else { return out };
            self.write_element(element, &civil, &mut out);
            layout = rest;
        }
    }

    fn write_element(&self, element: Element, civil: &Civil, out: &mut Vec<u8>) {
        let date = civil.date;
        let hour12 = if civil.hour.is_multiple_of(12) {
            12
        } else {
            civil.hour % 12
        };
        let month = MONTHS[date.month as usize - 1];
        let day = DAYS[civil.week_day as usize];
        match element {
            Element::LongMonth => out.extend_from_slice(month.as_bytes()),
            Element::Month => out.extend_from_slice(&month.as_bytes()[..3]),
            Element::LongWeekDay => out.extend_from_slice(day.as_bytes()),
            Element::WeekDay => out.extend_from_slice(&day.as_bytes()[..3]),
            Element::NumMonth(pad) => number(date.month, 2, pad, out),
            Element::Day(pad) => number(date.day, 2, pad, out),
            Element::YearDay(pad) => number(civil.year_day, 3, pad, out),
            Element::Hour => number(civil.hour, 2, Pad::Zero, out),
            Element::Hour12(pad) => number(hour12, 2, pad, out),
            Element::Minute(pad) => number(civil.minute, 2, pad, out),
            Element::Second(pad) => number(civil.second, 2, pad, out),
            Element::LongYear => {
                if date.year < 0 {
                    out.push(b'-');
                }
                number(date.year.unsigned_abs(), 4, Pad::Zero, out);
            }
            Element::Year => number(date.year.unsigned_abs() % 100, 2, Pad::Zero, out),
            Element::HalfDay { upper } => out.extend_from_slice(match (civil.hour >= 12, upper) {
                (true, true) => b"PM",
                (false, true) => b"AM",
                (true, false) => b"pm",
                (false, false) => b"am",
            }),
            Element::ZoneName => match self.zone.abbreviation_at(self.seconds).as_str() {
                "" => self.write_offset(
                    Offset {
                        iso: false,
                        colon: false,
                        precision: Precision::Minutes,
                    },
                    out,
                ),
                name => out.extend_from_slice(name.as_bytes()),
            },
            Element::Offset(offset) => self.write_offset(offset, out),
            Element::Fraction {
                separator,
                digits,
                trim,
            } => {
                let all = format!("{:09}", self.nanoseconds);
                let mut fraction = all.into_bytes();
                // There are nine digits to write, whatever is asked for.
                fraction.truncate(digits);
                if trim {
                    let used = fraction
                        .iter()
                        .rposition(|&b| b != b'0')
                        .map_or(0, |at| at + 1);
                    fraction.truncate(used);
                    if fraction.is_empty() {
                        return;
                    }
                }
                out.push(separator);
                out.extend_from_slice(&fraction);
            }
        }
    }

    fn write_offset(&self, form: Offset, out: &mut Vec<u8>) {
        let seconds = self.zone.offset_at(self.seconds);
        if seconds == 0 && form.iso {
            out.push(b'Z');
            return;
        }
        // The sign is that of the whole minutes, as in Go.
        let minutes = seconds / 60;
        out.push(if minutes < 0 { b'-' } else { b'+' });
        let (minutes, seconds) = if minutes < 0 {
            (-minutes, -seconds)
        } else {
            (minutes, seconds)
        };
        number(minutes / 60, 2, Pad::Zero, out);
        if form.precision >= Precision::Minutes {
            if form.colon {
                out.push(b':');
            }
            number(minutes % 60, 2, Pad::Zero, out);
        }
        if form.precision == Precision::Seconds {
            if form.colon {
                out.push(b':');
            }
            number(seconds % 60, 2, Pad::Zero, out);
        }
    }
}

fn number(value: impl std::fmt::Display, width: usize, pad: Pad, out: &mut Vec<u8>) {
    let written = match pad {
        Pad::None => write!(out, "{value}"),
        Pad::Space => write!(out, "{value:>width$}"),
        Pad::Zero => write!(out, "{value:0>width$}"),
    };
    written.expect("writing to memory");
}

#[cfg(test)]
mod tests {
    use crate::time::{Time, Zone};

    fn format(layout: &str) -> String {
        let zone = Zone::Fixed {
            name: "".into(),
            offset: -(5 * 3600 + 30 * 60 + 15),
        };
        let time = Time::from_unix(1_136_214_245, 120_000_000, zone);
        String::from_utf8(time.format(layout)).expect("UTF-8")
    }

    #[test]
    fn every_element_has_its_form() {
        for (layout, want) in [
            (
                "Monday Mon January Jan Month",
                "Monday Mon January Jan Month",
            ),
            (
                "2006 06 01 1 02 2 _2 __2 002",
                "2006 06 01 1 02 2  2   2 002",
            ),
            ("15 03 3 04 4 05 5 PM pm", "09 09 9 33 33 50 50 AM am"),
            (
                "-0700 -07 -07:00 -070000 -07:00:00",
                "-0530 -05 -05:30 -053015 -05:30:15",
            ),
            ("Z0700 Z07:00 MST", "-0530 -05:30 -0530"),
            ("05.000 05.999999 05,0", "50.120 50.12 50,1"),
            ("_2006 .00x 0 .001", "_2006 .12x 0 .001"),
        ] {
            assert_eq!(format(layout), want, "{layout}");
        }
    }
}
