//! URLs as Go's `net/url` reads and prints them.
//!
//! Ours rather than the crate `url`'s, which follows the browsers: what Go refuses that one repairs, and the words are Go's.
//!
//! ```
//! use golib::url::Url;
//!
//! let url = Url::parse(b"HTTPS://user:p%40ss@example.com:8443/a%20b")?;
//! assert_eq!((url.hostname(), url.path.as_slice()), (&b"example.com"[..], &b"/a b"[..]));
//! assert_eq!(Url::parse(b":a").unwrap_err(), r#"parse ":a": missing protocol scheme"#);
//! # Ok::<(), String>(())
//! ```

use crate::netip;
use crate::strconv::quote;

/// Go's `url.URL`, as much of it as parsing and printing need. Parts are bytes: escapes may stand for any.
#[derive(Debug, Default, Clone)]
pub struct Url {
    /// In small letters; empty in a relative reference.
    pub scheme: Vec<u8>,
    /// What follows the scheme of a URL such as `mailto:a@b`.
    pub opaque: Vec<u8>,
    /// What stands before the `@`.
    pub user: Option<User>,
    /// With the port, and with the brackets of an IPv6 address.
    pub host: Vec<u8>,
    /// Decoded.
    pub path: Vec<u8>,
    /// The path as it was written, where [`Self::to_text`] would write it otherwise; empty where not.
    pub raw_path: Vec<u8>,
    /// As it was written, without the `?`.
    pub query: Vec<u8>,
    /// Whether it ends in a `?` that no query follows.
    pub force_query: bool,
    /// Whether a scheme is followed by one slash alone.
    pub omit_host: bool,
    /// Decoded, without the `#`.
    pub fragment: Vec<u8>,
}

/// Go's `url.Userinfo`.
#[derive(Debug, Clone)]
pub struct User {
    name: Vec<u8>,
    password: Option<Vec<u8>>,
}

impl User {
    /// Name and password as they stand in a URL.
    pub fn to_text(&self) -> Vec<u8> {
        let mut text = escape(&self.name, Part::User);
        if let Some(password) = &self.password {
            text.push(b':');
            text.extend(escape(password, Part::User));
        }
        text
    }
}

/// The part of a URL, which decides what is escaped in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    Segment,
    Host,
    Zone,
    User,
    Fragment,
}

impl Url {
    /// Go's `url.Parse`.
    ///
    /// # Errors
    /// What is wrong, in Go's words.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let failed = |text: &[u8], error: String| format!("parse {}: {error}", quote(text));
        let (front, fragment) = cut(text, b'#');
        let mut url = Self::parse_without_fragment(front).map_err(|e| failed(front, e))?;
        url.fragment = unescape(fragment, Part::Fragment).map_err(|e| failed(text, e))?;
        Ok(url)
    }

    fn parse_without_fragment(text: &[u8]) -> Result<Self, String> {
        if text.iter().any(u8::is_ascii_control) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        if text == b"*" {
            return Ok(Self {
                path: text.to_vec(),
                ..Self::default()
            });
        }
        let (scheme, whole) = split_scheme(text)?;
        let mut url = Self {
            scheme: scheme.to_ascii_lowercase(),
            ..Self::default()
        };
        let (mut rest, query) = cut(whole, b'?');
        url.force_query = whole.ends_with(b"?") && query.is_empty();
        url.query = query.to_vec();
        if !rest.starts_with(b"/") {
            if !url.scheme.is_empty() {
                url.opaque = rest.to_vec();
                return Ok(url);
            }
            if cut(rest, b'/').0.contains(&b':') {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        if let Some(after) = rest.strip_prefix(b"//")
            && (!url.scheme.is_empty() || !after.starts_with(b"/"))
        {
            let end = after.iter().position(|&b| b == b'/').unwrap_or(after.len());
            let authority = &after[..end];
            rest = &after[end..];
            (url.user, url.host) = parse_authority(&url.scheme, authority)?;
        } else {
            url.omit_host = !url.scheme.is_empty() && rest.starts_with(b"/");
        }
        url.set_path(rest)?;
        Ok(url)
    }

    fn set_path(&mut self, text: &[u8]) -> Result<(), String> {
        self.path = unescape(text, Part::Path)?;
        self.raw_path = match escape(&self.path, Part::Path) == text {
            true => Vec::new(),
            false => text.to_vec(),
        };
        Ok(())
    }

    /// Go's `EscapedPath`: as it was written where that is a way to write it.
    fn escaped_path(&self) -> Vec<u8> {
        let is_allowed = |&b: &u8| b"!'()*[]%".contains(&b) || !is_escaped(b, Part::Path);
        if !self.raw_path.is_empty()
            && self.raw_path.iter().all(is_allowed)
            && unescape(&self.raw_path, Part::Path).as_ref() == Ok(&self.path)
        {
            return self.raw_path.clone();
        }
        match self.path.as_slice() {
            b"*" => b"*".to_vec(),
            path => escape(path, Part::Path),
        }
    }

    /// Go's `ResolveReference`.
    ///
    /// ```
    /// use golib::url::Url;
    ///
    /// let (base, reference) = (Url::parse(b"http://host/a/b")?, Url::parse(b"../c d")?);
    /// assert_eq!(base.resolve(&reference).to_text(), b"http://host/c%20d");
    /// # Ok::<(), String>(())
    /// ```
    pub fn resolve(&self, reference: &Self) -> Self {
        let mut url = reference.clone();
        // Paths that are escaped properly are never refused.
        let set_path = |url: &mut Self, path: Vec<u8>| _ = url.set_path(&path);
        if reference.scheme.is_empty() {
            url.scheme.clone_from(&self.scheme);
        }
        if !reference.scheme.is_empty() || !reference.host.is_empty() || reference.user.is_some() {
            set_path(&mut url, resolve_path(&reference.escaped_path(), b""));
            return url;
        }
        if reference.path.is_empty() && !reference.force_query && reference.query.is_empty() {
            url.query.clone_from(&self.query);
            if reference.fragment.is_empty() {
                url.fragment.clone_from(&self.fragment);
            }
        }
        if reference.path.is_empty() && !self.opaque.is_empty() {
            url.opaque.clone_from(&self.opaque);
            return url;
        }
        url.host.clone_from(&self.host);
        url.user.clone_from(&self.user);
        let path = resolve_path(&self.escaped_path(), &reference.escaped_path());
        set_path(&mut url, path);
        url
    }

    /// The host without its port and brackets.
    pub fn hostname(&self) -> &[u8] {
        let mut host = self.host.as_slice();
        if let Some(colon) = host.iter().rposition(|&b| b == b':')
            && is_optional_port(&host[colon..])
        {
            host = &host[..colon];
        }
        host.strip_prefix(b"[")
            .and_then(|inner| inner.strip_suffix(b"]"))
            .unwrap_or(host)
    }

    /// Go's `String`; how a fragment was written counts for nothing.
    pub fn to_text(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.scheme.is_empty() {
            out.extend_from_slice(&self.scheme);
            out.push(b':');
        }
        if !self.opaque.is_empty() {
            out.extend_from_slice(&self.opaque);
        } else {
            let has_authority = !self.host.is_empty() || self.user.is_some();
            let has_scheme = !self.scheme.is_empty() && !self.omit_host;
            if has_authority || has_scheme && !self.path.is_empty() {
                out.extend_from_slice(b"//");
                if let Some(user) = &self.user {
                    out.extend(user.to_text());
                    out.push(b'@');
                }
                out.extend(escape(&self.host, Part::Host));
            }
            let path = self.escaped_path();
            if !path.is_empty() && !path.starts_with(b"/") && !self.host.is_empty() {
                out.push(b'/');
            }
            if out.is_empty() && cut(&path, b'/').0.contains(&b':') {
                out.extend_from_slice(b"./");
            }
            out.extend(path);
        }
        if self.force_query || !self.query.is_empty() {
            out.push(b'?');
            out.extend_from_slice(&self.query);
        }
        if !self.fragment.is_empty() {
            out.push(b'#');
            out.extend(escape(&self.fragment, Part::Fragment));
        }
        out
    }
}

/// A path relative to another, without `.` and `..`.
fn resolve_path(base: &[u8], reference: &[u8]) -> Vec<u8> {
    let full = match reference.first() {
        None => base.to_vec(),
        Some(b'/') => reference.to_vec(),
        Some(_) => {
            let folder = base.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
            [&base[..folder], reference].concat()
        }
    };
    if full.is_empty() {
        return full;
    }
    let mut out = vec![b'/'];
    let (mut is_first, mut last) = (true, &b""[..]);
    for element in full.split(|&b| b == b'/') {
        last = element;
        match element {
            b"." => is_first = false,
            b".." => {
                let parent = out.iter().skip(1).rposition(|&b| b == b'/');
                out.truncate(parent.map_or(1, |at| at + 1));
                is_first = out.len() == 1;
            }
            _ => {
                if !is_first {
                    out.push(b'/');
                }
                out.extend_from_slice(element);
                is_first = false;
            }
        }
    }
    if matches!(last, b"." | b"..") {
        out.push(b'/');
    }
    if out.get(1) == Some(&b'/') {
        out.remove(0);
    }
    out
}

/// The text before and after the first separator.
fn cut(text: &[u8], separator: u8) -> (&[u8], &[u8]) {
    match text.iter().position(|&b| b == separator) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, b""),
    }
}

fn split_scheme(text: &[u8]) -> Result<(&[u8], &[u8]), String> {
    for (index, byte) in text.iter().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..index], &text[index + 1..])),
            _ => break,
        }
    }
    Ok((b"", text))
}

fn parse_authority(scheme: &[u8], authority: &[u8]) -> Result<(Option<User>, Vec<u8>), String> {
    let Some(at) = authority.iter().rposition(|&b| b == b'@') else {
        return Ok((None, parse_host(scheme, authority)?));
    };
    let host = parse_host(scheme, &authority[at + 1..])?;
    let userinfo = &authority[..at];
    let is_allowed = |b: &u8| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(b);
    if !userinfo.iter().all(is_allowed) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    let (name, password) = cut(userinfo, b':');
    let name = unescape(name, Part::User)?;
    let password = match userinfo.contains(&b':') {
        true => Some(unescape(password, Part::User)?),
        false => None,
    };
    Ok((Some(User { name, password }), host))
}

fn parse_host(scheme: &[u8], host: &[u8]) -> Result<Vec<u8>, String> {
    let bad_port = |port: &[u8]| format!("invalid port {} after host", quote(port));
    match host.iter().rposition(|&b| b == b'[') {
        Some(0) => {}
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {
            if let Some(mut colon) = host.iter().position(|&b| b == b':') {
                if scheme != b"http" && scheme != b"https" {
                    colon = host.iter().rposition(|&b| b == b':').unwrap_or(colon);
                }
                if !is_optional_port(&host[colon..]) {
                    return Err(bad_port(&host[colon..]));
                }
            }
            return unescape(host, Part::Host);
        }
    }
    let Some(close) = host.iter().rposition(|&b| b == b']') else {
        return Err("missing ']' in host".to_owned());
    };
    let port = &host[close + 1..];
    if !is_optional_port(port) {
        return Err(bad_port(port));
    }
    let inner = &host[1..close];
    let address = match inner.windows(3).position(|part| part == b"%25") {
        Some(zone) => {
            let mut address = unescape(&inner[..zone], Part::Host)?;
            address.extend(unescape(&inner[zone..], Part::Zone)?);
            address
        }
        None => unescape(inner, Part::Host)?,
    };
    let parsed = netip::parse_addr(&address).map_err(|why| format!("invalid host: {why}"))?;
    if parsed.is_v4 {
        return Err("invalid IP-literal".to_owned());
    }
    Ok([b"[", address.as_slice(), b"]", port].concat())
}

/// Nothing, or a colon and digits.
fn is_optional_port(text: &[u8]) -> bool {
    match text.split_first() {
        None => true,
        Some((b':', digits)) => digits.iter().all(u8::is_ascii_digit),
        Some(_) => false,
    }
}

/// Go's table of what each part escapes.
fn is_escaped(byte: u8, part: Part) -> bool {
    if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
        return false;
    }
    let allowed: &[u8] = match part {
        Part::Host | Part::Zone => b"!$&'()*+,;=:[]<>\"",
        Part::Path => b"$&+,/:;=@",
        Part::Segment => b"$&+:=@",
        Part::User => b"$&+,;=",
        Part::Fragment => b"$&+,/:;=?@!()*",
    };
    !allowed.contains(&byte)
}

/// Go's `url.PathEscape`.
///
/// ```
/// assert_eq!(golib::url::path_escape(b"a/b;c d"), b"a%2Fb%3Bc%20d");
/// ```
pub fn path_escape(text: &[u8]) -> Vec<u8> {
    escape(text, Part::Segment)
}

/// Go's `url.PathUnescape`.
///
/// ```
/// assert_eq!(golib::url::path_unescape(b"a%2Fb+c").as_deref(), Ok(&b"a/b+c"[..]));
/// assert_eq!(golib::url::path_unescape(b"%zz1"), Err("invalid URL escape \"%zz\"".to_owned()));
/// ```
///
/// # Errors
/// What is wrong, in Go's words.
pub fn path_unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    unescape(text, Part::Segment)
}

fn escape(text: &[u8], part: Part) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &byte in text {
        if is_escaped(byte, part) {
            out.extend(format!("%{byte:02X}").into_bytes());
        } else {
            out.push(byte);
        }
    }
    out
}

fn unescape(text: &[u8], part: Part) -> Result<Vec<u8>, String> {
    let bad = |at: &[u8]| {
        Err(format!(
            "invalid URL escape {}",
            quote(&at[..at.len().min(3)])
        ))
    };
    let digit = |b: Option<&u8>| b.and_then(|b| char::from(*b).to_digit(16));
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(&byte) = rest.first() {
        if byte == b'%' {
            let (Some(high), Some(low)) = (digit(rest.get(1)), digit(rest.get(2))) else {
                return bad(rest);
            };
            let decoded = (high * 16 + low) as u8;
            let is_percent = decoded == b'%';
            let refused = match part {
                // Only what is not ASCII may be escaped in a host.
                Part::Host => high < 8 && !is_percent,
                Part::Zone => !is_percent && decoded != b' ' && is_escaped(decoded, Part::Host),
                _ => false,
            };
            if refused {
                return bad(rest);
            }
            out.push(decoded);
            rest = &rest[3..];
            continue;
        }
        if matches!(part, Part::Host | Part::Zone) && byte.is_ascii() && is_escaped(byte, part) {
            return Err(format!("invalid character {} in host name", quote([byte])));
        }
        out.push(byte);
        rest = &rest[1..];
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        Url::parse(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn urls_are_taken_apart() {
        let url = Url::parse(b"HTTPS://user:p%40ss@host.name:8443/a/b%20c/?q=1#frag%20x").unwrap();
        assert_eq!(
            (url.scheme.as_slice(), url.hostname()),
            (&b"https"[..], &b"host.name"[..])
        );
        assert_eq!(
            (url.path.as_slice(), url.fragment.as_slice()),
            (&b"/a/b c/"[..], &b"frag x"[..])
        );
        assert_eq!(url.user.unwrap().to_text(), b"user:p%40ss");
        assert_eq!(
            Url::parse(b"http://[fe80::1%25en0]/").unwrap().hostname(),
            b"fe80::1%en0"
        );
    }

    #[test]
    fn refusals_have_gos_words() {
        assert_eq!(refused(":a"), r#"parse ":a": missing protocol scheme"#);
        assert_eq!(
            refused("http://h:x/"),
            r#"parse "http://h:x/": invalid port ":x" after host"#
        );
        assert_eq!(refused("%zz#"), r#"parse "%zz": invalid URL escape "%zz""#);
    }

    /// What Go 1.26 makes of them.
    #[test]
    fn references_are_resolved() {
        let cases = [
            ("http://a/b/c/d;p?q", "g:h", "g:h"),
            ("http://a/b/c/d;p?q", "g", "http://a/b/c/g"),
            ("http://a/b/c/d;p?q", "./g/", "http://a/b/c/g/"),
            ("http://a/b/c/d;p?q", "/g", "http://a/g"),
            ("http://a/b/c/d;p?q", "//g", "http://g"),
            ("http://a/b/c/d;p?q", "?y", "http://a/b/c/d;p?y"),
            ("http://a/b/c/d;p?q", "", "http://a/b/c/d;p?q"),
            ("http://a/b/c/d;p?q", "../../../g", "http://a/g"),
            ("http://a/b/c/d;p?q", "..", "http://a/b/"),
            ("http://a/b/c/d;p?q", "g/../h/.", "http://a/b/c/h/"),
            ("http://a/b/c/d;p?q", "x?", "http://a/b/c/x?"),
            ("file:///values.json", " a|b", "file:///%20a%7Cb"),
            ("file:///values.json", "%7ea", "file:///%7ea"),
            ("file:///values.json", "a[b]'", "file:///a[b]'"),
            ("urn:a:b", "c", "urn:///c"),
            ("urn:a:b", "", "urn:a:b"),
            ("HTTP://H/a", "b#f", "http://H/b#f"),
            ("file:/x/y", "z", "file:///x/z"),
            ("a/b", "c:d/e", "c:d/e"),
            ("a/b", "./c:d", "/a/c:d"),
            ("http://u:p@h", "é", "http://u:p@h/%C3%A9"),
            ("http://h//a", "..//b", "http://h/b"),
        ];
        for (base, reference, want) in cases {
            let parse = |text: &str| Url::parse(text.as_bytes()).unwrap();
            let got = parse(base).resolve(&parse(reference)).to_text();
            assert_eq!(String::from_utf8_lossy(&got), want, "{reference} at {base}");
        }
    }
}
