//! The formats that are checked up to draft 7: dates, addresses, names, pointers.
//!
//! Mirrors `format.go` of santhosh-tekuri/jsonschema and the parts of Go's `net/netip` and `net/url`
//! it calls; the reasons are theirs word for word.

use golib::regexp::Regexp;
use golib::strconv::{self, quote, quote_rune};
use golib::time::{Time, Zone};
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
            let mut rest = part[digits..].chars();
            let unit = rest.next().ok_or("missing unit")?;
            match units.find(unit) {
                Some(at) => units = &units[at + 1..],
                None => {
                    let shown = quote_rune(u32::from(unit));
                    return Err(if all_units.contains(unit) {
                        format!("unit {shown} out of order")
                    } else {
                        format!("invalid unit {shown}")
                    });
                }
            }
            part = rest.as_str();
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
    let zone = parse_address(text)?;
    require(!zone, "zone id is not a part of ipv6 address")
}

/// Go's `netip.ParseAddr`; tells whether there is a zone.
fn parse_address(text: &str) -> Result<bool, String> {
    let failed = |why: &str, at: &str| {
        let at = if at.is_empty() {
            String::new()
        } else {
            format!(" (at {})", quote(at))
        };
        format!("ParseAddr({}): {why}{at}", quote(text))
    };
    match text.find(['.', ':', '%']).map(|at| text.as_bytes()[at]) {
        Some(b'.') => {
            return ipv4_fields(text)
                .map(|()| false)
                .map_err(|(why, at)| failed(why, at));
        }
        Some(b':') => {}
        Some(_) => return Err(failed("missing IPv6 address", "")),
        None => return Err(failed("unable to parse IP", "")),
    }
    let (address, zone) = match text.split_once('%') {
        Some((_, "")) => return Err(failed("zone must be a non-empty string", "")),
        Some((address, _)) => (address, true),
        None => (text, false),
    };
    ipv6_fields(address).map_err(|(why, at)| failed(why, at))?;
    Ok(zone)
}

type AddressError<'t> = (&'static str, &'t str);

fn ipv6_fields(text: &str) -> Result<(), AddressError<'_>> {
    let mut rest = text;
    let mut ellipsis = None;
    let mut bytes = 0;
    if let Some(after) = rest.strip_prefix("::") {
        ellipsis = Some(0);
        rest = after;
        if rest.is_empty() {
            return Ok(());
        }
    }
    while bytes < 16 {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits > 4 {
            return Err(("each group must have 4 or less digits", rest));
        }
        if digits == 0 {
            return Err((
                "each colon-separated field must have at least one digit",
                rest,
            ));
        }
        if rest.as_bytes().get(digits) == Some(&b'.') {
            if ellipsis.is_none() && bytes != 12 {
                let why = "embedded IPv4 address must replace the final 2 fields of the address";
                return Err((why, rest));
            }
            if bytes + 4 > 16 {
                let why = "too many hex fields to fit an embedded IPv4 at the end of the address";
                return Err((why, rest));
            }
            ipv4_fields(rest)?;
            rest = "";
            bytes += 4;
            break;
        }
        bytes += 2;
        rest = &rest[digits..];
        if rest.is_empty() {
            break;
        }
        let Some(after) = rest.strip_prefix(':') else {
            return Err(("unexpected character, want colon", rest));
        };
        if after.is_empty() {
            return Err(("colon must be followed by more characters", rest));
        }
        rest = after;
        if let Some(after) = rest.strip_prefix(':') {
            if ellipsis.is_some() {
                return Err(("multiple :: in address", rest));
            }
            ellipsis = Some(bytes);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return Err(("trailing garbage after address", rest));
    }
    match ellipsis {
        None if bytes < 16 => Err(("address string too short", "")),
        Some(_) if bytes == 16 => Err(("the :: must expand to at least one field of zeros", "")),
        _ => Ok(()),
    }
}

fn ipv4_fields(text: &str) -> Result<(), AddressError<'_>> {
    let bytes = text.as_bytes();
    let (mut value, mut digits, mut fields) = (0_u32, 0, 0);
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return Err(("IPv4 field has octet with leading zero", ""));
                }
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
                if value > 255 {
                    return Err(("IPv4 field has value >255", ""));
                }
            }
            b'.' => {
                if at == 0 || at == bytes.len() - 1 || bytes[at - 1] == b'.' {
                    return Err(("IPv4 field must have at least one digit", &text[at..]));
                }
                if fields == 3 {
                    return Err(("IPv4 address too long", ""));
                }
                fields += 1;
                (value, digits) = (0, 0);
            }
            _ => return Err(("unexpected character", text.get(at..).unwrap_or_default())),
        }
    }
    if fields < 3 {
        Err(("IPv4 address too short", ""))
    } else {
        Ok(())
    }
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

/// What the formats need of Go's `url.Parse`.
struct Url<'t> {
    scheme: &'t str,
    path: &'t str,
    is_opaque: bool,
}

fn parse_url(text: &str) -> Result<Url<'_>, String> {
    let failed = |why: String| format!("parse {}: {why}", quote(text));
    // The fragment is checked for its escapes only.
    let (whole, fragment) = text.split_once('#').unwrap_or((text, ""));
    let url = parse_whole(whole).map_err(failed)?;
    unescape(fragment, "").map_err(failed)?;
    Ok(url)
}

fn parse_whole(text: &str) -> Result<Url<'_>, String> {
    let control = text.bytes().any(|byte| byte < b' ' || byte == 0x7F);
    require(!control, "net/url: invalid control character in URL")?;
    if text == "*" {
        return Ok(Url {
            scheme: "",
            path: text,
            is_opaque: false,
        });
    }
    let (scheme, rest) = split_scheme(text)?;
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            return Ok(Url {
                scheme,
                path: rest,
                is_opaque: true,
            });
        }
        let first = rest.split('/').next().unwrap_or_default();
        let why = "first path segment in URL cannot contain colon";
        require(!first.contains(':'), why)?;
    }
    let mut path = rest;
    if (!scheme.is_empty() || !rest.starts_with("///"))
        && let Some(authority) = rest.strip_prefix("//")
    {
        let end = authority.find('/').unwrap_or(authority.len());
        path = &authority[end..];
        authority_is_valid(&authority[..end])?;
    }
    unescape(path, "")?;
    Ok(Url {
        scheme,
        path,
        is_opaque: false,
    })
}

fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn authority_is_valid(authority: &str) -> Result<(), String> {
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    host_is_valid(host)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    require(user.chars().all(allowed), "net/url: invalid userinfo")?;
    unescape(user, "")
}

fn host_is_valid(host: &str) -> Result<(), String> {
    let port_is_valid = |port: &str| {
        let valid = port.is_empty() || port.strip_prefix(':').is_some_and(all_digits);
        require(valid, &format!("invalid port {} after host", quote(port)))
    };
    match host.rfind('[') {
        Some(0) => {
            let end = host.rfind(']').ok_or("missing ']' in host")?;
            port_is_valid(&host[end + 1..])?;
            let address = host.get(1..end).unwrap_or_default().replacen("%25", "%", 1);
            parse_address(&address).map_err(|why| format!("invalid host: {why}"))?;
            require(address.contains(':'), "invalid IP-literal")?;
        }
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {
            if let Some(colon) = host.rfind(':') {
                port_is_valid(&host[colon..])?;
            }
            let strange = |c: char| c.is_ascii() && " \"<>\\^`{|}".contains(c);
            if let Some(c) = host.chars().find(|c| strange(*c)) {
                let shown = quote(c.to_string());
                return Err(format!("invalid character {shown} in host name"));
            }
            unescape(host, "host")?;
        }
    }
    Ok(())
}

/// Checks percent escapes; a host may escape non-ASCII bytes only.
fn unescape(text: &str, part: &str) -> Result<(), String> {
    for (at, _) in text.match_indices('%') {
        let hex = text
            .get(at + 1..at + 3)
            .filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(hex) = hex else {
            let shown: String = text[at..].chars().take(3).collect();
            return Err(format!("invalid URL escape {}", quote(shown)));
        };
        let is_ascii = hex.as_bytes()[0] < b'8';
        if part == "host" && is_ascii && hex != "25" {
            return Err(format!("invalid URL escape {}", quote(format!("%{hex}"))));
        }
    }
    Ok(())
}

fn uri(text: &str) -> Result<(), String> {
    let url = parse_url(text)?;
    require(!url.scheme.is_empty(), "relative url")
}

pub(super) fn uri_reference(text: &str) -> Result<(), String> {
    require(!text.contains('\\'), "contains \\")?;
    parse_url(text).map(|_| ())
}

fn uri_template(text: &str) -> Result<(), String> {
    let url = parse_url(text)?;
    // Go keeps the path as written only where its default escaping differs, as it does with braces.
    let differs = |c: char| !c.is_ascii() || " \"<>[\\]^`{|}%".contains(c);
    if url.is_opaque || !url.path.contains(differs) {
        return Ok(());
    }
    for segment in url.path.split('/') {
        let mut open = false;
        for c in segment.chars().filter(|c| matches!(c, '{' | '}')) {
            require((c == '{') != open, "nested curly braces")?;
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
    use super::{Format, email, ipv6, parse_url, time, uri_template};

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
        assert!(parse_url("http://[::1]:80/x?y#z").is_ok());
        assert!(parse_url("http://a b/").is_err());
        assert!(uri_template("/a/{b}/{c").is_err());
        assert!(Format::named("regex").is_some() && Format::named("nope").is_none());
    }
}
