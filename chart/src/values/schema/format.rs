//! The formats that are checked up to draft 7: dates, addresses, names, pointers.
//!
//! Mirrors `format.go` of santhosh-tekuri/jsonschema; the reasons are its word for word.

use golib::netip;
use golib::regexp::Regexp;
use golib::strconv::{self, quote_rune};
use golib::time::{Time, Zone};
use golib::url::{self, Url};
use serde_json::Value;

/// A format that is checked. Others mean nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Format(&'static str, fn(&str) -> Result<(), String>);

const FORMATS: &[Format] = &[
    Format("json-pointer", json_pointer),
    Format("relative-json-pointer", relative_json_pointer),
    Format("uuid", uuid),
    Format("duration", duration),
    Format("period", period),
    Format("ipv4", ipv4),
    Format("ipv6", ipv6),
    Format("hostname", hostname),
    Format("email", email),
    Format("date", date),
    Format("time", time),
    Format("date-time", date_time),
    Format("uri", uri),
    Format("iri", uri),
    Format("uri-reference", uri_reference),
    Format("iri-reference", uri_reference),
    Format("uri-template", uri_template),
    Format("semver", semver),
    Format("regex", regex),
];

impl Format {
    pub(super) fn named(name: &str) -> Option<Self> {
        FORMATS.iter().find(|format| format.0 == name).copied()
    }

    pub(super) const fn name(self) -> &'static str {
        self.0
    }

    /// Only texts have a format; everything else passes.
    pub(super) fn check(self, value: &Value) -> Result<(), String> {
        value.as_str().map_or(Ok(()), self.1)
    }
}

fn require(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(otherwise.to_owned())
    }
}

fn all_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn leading_digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

fn unexpected(c: char) -> String {
    format!("invalid character {}", quote_rune(u32::from(c)))
}

fn regex(text: &str) -> Result<(), String> {
    Regexp::compile(text)
        .map(|_| ())
        .map_err(|error| error.to_string())
}

fn json_pointer(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    let rest = text.strip_prefix('/').ok_or("not starting with /")?;
    for key in rest.split('/') {
        for escaped in key.split('~').skip(1) {
            require(
                escaped.starts_with(['0', '1']),
                "~ must be followed by 0 or 1",
            )?;
        }
    }
    Ok(())
}

fn relative_json_pointer(text: &str) -> Result<(), String> {
    let digits = leading_digits(text);
    require(digits > 0, "must start with non-negative integer")?;
    require(digits == 1 || !text.starts_with('0'), "starts with zero")?;
    match &text[digits..] {
        "#" => Ok(()),
        rest => json_pointer(rest),
    }
}

fn uuid(text: &str) -> Result<(), String> {
    const LENGTHS: [usize; 5] = [8, 4, 4, 4, 12];
    let groups: Vec<&str> = text.split('-').collect();
    require(groups.len() == LENGTHS.len(), "must have 5 elements")?;
    for (index, (group, length)) in groups.iter().zip(LENGTHS).enumerate() {
        if group.len() != length {
            return Err(format!(
                "element {} must be {length} characters long",
                index + 1
            ));
        }
        if let Some(c) = group.chars().find(|c| !c.is_ascii_hexdigit()) {
            return Err(format!("non-hex character {}", quote_rune(u32::from(c))));
        }
    }
    Ok(())
}

fn duration(text: &str) -> Result<(), String> {
    let text = text.strip_prefix('P').ok_or("must start with P")?;
    require(!text.is_empty(), "nothing after P")?;
    if let Some(weeks) = text.strip_suffix('W') {
        require(!weeks.is_empty(), "no number in week")?;
        return require(all_digits(weeks), "invalid week");
    }
    for (index, part) in text.split('T').enumerate() {
        require(index == 0 || !part.is_empty(), "no time elements")?;
        let all_units = match index {
            0 => "YMD",
            1 => "HMS",
            _ => return Err("more than one T".to_owned()),
        };
        let (mut units, mut part) = (all_units, part);
        while !part.is_empty() {
            let digits = leading_digits(part);
            require(digits > 0, "missing number")?;
            part = &part[digits..];
            // Units are bytes to the library, so of a longer character it names the first one.
            let unit = *part.as_bytes().first().ok_or("missing unit")?;
            let position = |units: &str| units.bytes().position(|known| known == unit);
            let Some(at) = position(units) else {
                let shown = quote_rune(u32::from(unit));
                return Err(match position(all_units) {
                    Some(_) => format!("unit {shown} out of order"),
                    None => format!("invalid unit {shown}"),
                });
            };
            (units, part) = (&units[at + 1..], &part[1..]);
        }
    }
    Ok(())
}

fn period(text: &str) -> Result<(), String> {
    let (start, end) = text.split_once('/').ok_or("missing slash")?;
    let date = |which: &str, text| {
        date_time(text).map_err(|why| format!("invalid {which} date-time: {why}"))
    };
    if start.starts_with('P') {
        duration(start).map_err(|why| format!("invalid start duration: {why}"))?;
        return date("end", end);
    }
    date("start", start)?;
    if end.starts_with('P') {
        duration(end).map_err(|why| format!("invalid end duration: {why}"))
    } else {
        date("end", end)
    }
}

fn ipv4(text: &str) -> Result<(), String> {
    let groups: Vec<&str> = text.split('.').collect();
    require(groups.len() == 4, "expected four decimals")?;
    for group in groups {
        require(group.len() < 2 || !group.starts_with('0'), "leading zeros")?;
        let number = strconv::atoi(group).map_err(|error| error.to_string())?;
        require(
            (0..=255).contains(&number),
            "decimal must be between 0 and 255",
        )?;
    }
    Ok(())
}

fn ipv6(text: &str) -> Result<(), String> {
    require(text.contains(':'), "missing colon")?;
    let address = netip::parse_addr(text.as_bytes())?;
    require(!address.has_zone, "zone id is not a part of ipv6 address")
}

fn hostname(text: &str) -> Result<(), String> {
    let text = text.strip_suffix('.').unwrap_or(text);
    require(text.len() <= 253, "more than 253 characters long")?;
    for label in text.split('.') {
        require(
            (1..=63).contains(&label.len()),
            "label must be 1 to 63 characters long",
        )?;
        require(!label.starts_with('-'), "label starts with hyphen")?;
        require(!label.ends_with('-'), "label ends with hyphen")?;
        let strange = |c: &char| !(c.is_ascii_alphanumeric() || *c == '-');
        if let Some(c) = label.chars().find(strange) {
            return Err(unexpected(c));
        }
    }
    Ok(())
}

fn email(text: &str) -> Result<(), String> {
    require(text.len() <= 254, "more than 255 characters long")?;
    let (local, domain) = text.rsplit_once('@').ok_or("missing @")?;
    require(local.len() <= 64, "local part more than 64 characters long")?;
    if local.len() > 1 && local.starts_with('"') && local.ends_with('"') {
        let inner = &local[1..local.len() - 1];
        let why = "backslash and quote are not allowed within quoted local part";
        require(!inner.contains(['\\', '"']), why)?;
    } else {
        require(!local.starts_with('.'), "starts with dot")?;
        require(!local.ends_with('.'), "ends with dot")?;
        require(!local.contains(".."), "consecutive dots")?;
        let strange =
            |c: &char| !(c.is_ascii_alphanumeric() || ".!#$%&'*+-/=?^_`{|}~".contains(*c));
        if let Some(c) = local.chars().find(strange) {
            return Err(unexpected(c));
        }
    }
    let literal = domain
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    match literal.map(|address| (address, address.strip_prefix("IPv6:"))) {
        Some((_, Some(address))) => {
            ipv6(address).map_err(|why| format!("invalid ipv6 address: {why}"))
        }
        Some((address, None)) => {
            ipv4(address).map_err(|why| format!("invalid ipv4 address: {why}"))
        }
        None => hostname(domain).map_err(|why| format!("invalid domain: {why}")),
    }
}

fn date(text: &str) -> Result<(), String> {
    let parsed = Time::parse("2006-01-02", text, &Zone::Utc);
    parsed.map(|_| ()).map_err(|error| error.to_string())
}

/// Numbers of `text`, split at colons, as Go's Atoi reads them.
fn clock(text: &str, parts: usize, what: &str) -> Result<Vec<i64>, String> {
    let mut numbers = Vec::new();
    for part in text.splitn(parts, ':') {
        let number = strconv::atoi(part).map_err(|_| format!("invalid {what}"))?;
        require(number >= 0, &format!("non-positive {what}"))?;
        numbers.push(number);
    }
    Ok(numbers)
}

fn time(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    require(bytes.len() >= 9, "less than 9 characters long")?;
    require(
        bytes[2] == b':' && bytes[5] == b':',
        "missing colon in correct place",
    )?;
    let (clock_text, mut rest) = text
        .split_at_checked(8)
        .ok_or_else(|| "invalid hour/min/sec".to_owned())?;
    let numbers = clock(clock_text, 3, "hour/min/sec")?;
    let [hour, minute, second] = numbers[..] else {
        return Err("missing hour/min/sec".to_owned());
    };
    let in_range = hour <= 23 && minute <= 59 && second <= 60;
    require(in_range, "hour/min/sec out of range")?;
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = leading_digits(fraction);
        require(digits > 0, "no digits in second fraction")?;
        rest = &fraction[digits..];
    }
    let mut minutes = hour * 60 + minute;
    if !matches!(rest, "z" | "Z") {
        require(rest.len() == 6, "offset must be 6 characters long")?;
        let sign = match rest.as_bytes()[0] {
            b'+' => -1,
            b'-' => 1,
            _ => return Err("offset must begin with plus/minus".to_owned()),
        };
        let offset = rest.get(1..).unwrap_or_default();
        let why = "missing colon in offset in correct place";
        require(offset.as_bytes().get(2) == Some(&b':'), why)?;
        let numbers = clock(offset, 2, "hour/min in offset")?;
        let [hours, offset_minutes] = numbers[..] else {
            return Err(why.to_owned());
        };
        let in_range = hours <= 23 && offset_minutes <= 59;
        require(in_range, "hour/min in offset out of range")?;
        minutes += sign * (hours * 60 + offset_minutes);
        if minutes < 0 {
            minutes += 24 * 60;
        }
    }
    let leaps = minutes / 60 == 23 && minutes % 60 == 59;
    require(second < 60 || leaps, "invalid leap second")
}

fn date_time(text: &str) -> Result<(), String> {
    require(text.len() >= 20, "less than 20 characters long")?;
    let separator = matches!(text.as_bytes()[10], b't' | b'T');
    require(separator, "11th character must be t or T")?;
    let day = text.get(..10).unwrap_or(text);
    date(day).map_err(|why| format!("invalid date element: {why}"))?;
    let clock = text.get(11..).unwrap_or_default();
    time(clock).map_err(|why| format!("invalid time element: {why}"))
}

/// Go's `url.Parse`, and what the library asks of addresses in hosts besides.
fn parse_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text.as_bytes())?;
    let host = String::from_utf8_lossy(url.hostname());
    if host.contains(':') {
        let in_brackets = url.host.contains(&b'[') && url.host.contains(&b']');
        require(in_brackets, "ipv6 address not enclosed in brackets")?;
        ipv6(&host).map_err(|why| format!("invalid ipv6 address: {why}"))?;
    }
    Ok(url)
}

fn uri(text: &str) -> Result<(), String> {
    let url = parse_url(text)?;
    require(!url.scheme.is_empty(), "relative url")
}

fn uri_reference(text: &str) -> Result<(), String> {
    require(!text.contains('\\'), "contains \\")?;
    parse_url(text).map(|_| ())
}

fn uri_template(text: &str) -> Result<(), String> {
    let url = parse_url(text)?;
    for segment in url.raw_path.split(|&byte| byte == b'/') {
        let segment =
            url::path_unescape(segment).map_err(|why| format!("percent decode failed: {why}"))?;
        let mut open = false;
        for &byte in segment.iter().filter(|byte| matches!(byte, b'{' | b'}')) {
            require((byte == b'{') != open, "nested curly braces")?;
            open = !open;
        }
        require(!open, "no matching closing brace")?;
    }
    Ok(())
}

fn semver(text: &str) -> Result<(), String> {
    let identifier = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
    let mut core = text;
    if let Some((rest, build)) = core.split_once('+') {
        require(!build.is_empty(), "build is empty")?;
        for id in build.split('.') {
            require(!id.is_empty(), "build identifier is empty")?;
            if let Some(c) = id.chars().find(|c| !identifier(c)) {
                return Err(format!("{} in build identifier", unexpected(c)));
            }
        }
        core = rest;
    }
    if let Some((rest, pre_release)) = core.split_once('-') {
        for id in pre_release.split('.') {
            require(!id.is_empty(), "pre-release identifier is empty")?;
            if let Some(c) = id.chars().find(|c| !identifier(c)) {
                return Err(format!("{} in pre-release identifier", unexpected(c)));
            }
            let padded = all_digits(id) && id.len() > 1 && id.starts_with('0');
            require(!padded, "pre-release numeric identifier starts with zero")?;
        }
        core = rest;
    }
    let numbers: Vec<&str> = core.split('.').collect();
    require(
        numbers.len() == 3,
        "versionCore must have 3 numbers separated by dot",
    )?;
    for (name, number) in ["major", "minor", "patch"].iter().zip(numbers) {
        require(!number.is_empty(), &format!("{name} is empty"))?;
        let padded = number.len() > 1 && number.starts_with('0');
        require(!padded, &format!("{name} starts with zero"))?;
        require(all_digits(number), &format!("{name} contains non-digit"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Format, email, ipv6, time, uri, uri_template};

    #[test]
    fn reasons_are_those_of_the_library() {
        assert_eq!(
            email("a@-x"),
            Err("invalid domain: label starts with hyphen".to_owned())
        );
        assert_eq!(time("23:59:60Z"), Ok(()));
        assert_eq!(time("12:00:60Z"), Err("invalid leap second".to_owned()));
        assert_eq!(ipv6("::ffff:1.2.3.4"), Ok(()));
        let short = r#"ParseAddr("1:2"): address string too short"#;
        assert_eq!(ipv6("1:2"), Err(short.to_owned()));
        assert!(uri("http://[::1]:80/x?y#z").is_ok());
        assert!(uri("http://a b/").is_err());
        assert!(uri_template("/a/{b}/{c").is_err());
        assert!(Format::named("regex").is_some() && Format::named("nope").is_none());
    }
}
