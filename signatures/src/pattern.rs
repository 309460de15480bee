//! Patterns of addresses. One that no address can match would be a rule about nothing, and nobody would hear of it.

use golib::glob::Glob;

use crate::address::{DOCKER_HUB, DOCKER_HUBS, Scheme, host_as_asked};

/// A longer pattern, in bytes, is none.
const MAX_BYTES: usize = 2 << 10;
/// Patterns without braces that one with braces stands for.
const MAX_ALTERNATIVES: usize = 200;

/// Addresses that a rule is about. Scheme, host and path are each in the form that addresses have, whichever of what stands in braces is taken.
#[derive(Clone, Debug)]
pub(crate) struct SourcePattern {
    alternatives: Vec<Glob>,
}

impl SourcePattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// It is malformed, or one of its alternatives matches no address.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut alternatives = Vec::new();
        for pattern in expanded(text)? {
            for pattern in Alternative::all(&pattern)? {
                let Alternative { scheme, host, path } = pattern;
                let pattern = format!("{}://{host}{path}", scheme.text());
                let glob = Glob::as_documented(&pattern, '/').map_err(|error| error.to_string())?;
                alternatives.push(glob);
            }
        }
        Ok(Self { alternatives })
    }

    /// Whether it matches an address in one of its forms.
    pub(crate) fn matches(&self, form: &str) -> bool {
        self.alternatives.iter().any(|glob| glob.matches(form))
    }
}

/// A pattern without braces.
struct Alternative {
    scheme: Scheme,
    host: String,
    path: String,
}

impl Alternative {
    /// For each scheme that a pattern's may be.
    fn all(pattern: &str) -> Result<Vec<Self>, String> {
        let Some((scheme, rest)) = pattern.split_once("://") else {
            return Err(
                "a pattern begins with a scheme, as in oci://registry.example/charts/**".to_owned(),
            );
        };
        let end = rest.find('/').unwrap_or(rest.len());
        let (host, path) = rest.split_at(end);
        // No address has these in its form.
        let dots = path.split('/').any(|part| part == "." || part == "..");
        if dots
            || path.contains("//")
            || pattern.contains(['%', '#', '[', ']', '\\', '\0'])
            || host.contains('@')
        {
            return Err(
                "a pattern has no user, percent sign, bracket, backslash, fragment, doubled slash or dots between slashes".to_owned(),
            );
        }
        let known = Glob::as_documented(&scheme.to_ascii_lowercase(), '/');
        let known = known.map_err(|error| error.to_string())?;
        let schemes = Scheme::ALL.into_iter();
        let schemes: Vec<Scheme> = schemes
            .filter(|scheme| known.matches(scheme.text()))
            .collect();
        if schemes.is_empty() {
            return Err(format!(
                "its scheme is http, https or oci, and not {scheme:?}"
            ));
        }
        let mut all = Vec::new();
        let mut refused = None;
        for scheme in schemes {
            let hosts = check_path(scheme, host, path).and_then(|()| hosts(scheme, host));
            match hosts {
                Ok(hosts) => all.extend(hosts.into_iter().map(|host| {
                    let path = path.to_owned();
                    Self { scheme, host, path }
                })),
                Err(error) => refused = Some(error),
            }
        }
        // Of a scheme with wildcards one is enough that has such addresses.
        match refused {
            Some(error) if all.is_empty() => Err(error),
            _ => Ok(all),
        }
    }
}

fn is_wildcard(text: &str) -> bool {
    text.contains(['*', '?'])
}

fn check_path(scheme: Scheme, host: &str, path: &str) -> Result<(), String> {
    // Two stars are about paths too, wherever they stand.
    if path.is_empty() && !host.contains("**") {
        return Err(
            "it has no path, so no chart has such an address; /** is all of them".to_owned(),
        );
    }
    if path.ends_with('/') {
        return Err("it ends in a slash, which no address does; /** is all below".to_owned());
    }
    let repository = path.split([':', '@']).next().unwrap_or_default();
    let is_of_one = |c: char| {
        c.is_ascii_lowercase() || c.is_ascii_digit() || "._-/".contains(c) || "*?".contains(c)
    };
    if scheme == Scheme::Oci && !repository.chars().all(is_of_one) {
        return Err(
            "repositories of registries are of lower-case letters, digits, dots, hyphens and underscores"
                .to_owned(),
        );
    }
    Ok(())
}

/// A pattern's host in the form that addresses have: as it is asked, or where it has wildcards label by label. It may be several.
fn hosts(scheme: Scheme, host: &str) -> Result<Vec<String>, String> {
    if !is_wildcard(host) {
        let host = host_as_asked(scheme, host).ok_or("its host is none")?;
        return Ok(vec![host]);
    }
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (host, None),
    };
    let port = match port {
        None => String::new(),
        Some(port) if is_wildcard(port) => {
            let is_of_one = |c: char| c.is_ascii_digit() || "*?".contains(c);
            match port.chars().all(is_of_one) {
                true => format!(":{port}"),
                false => return Err("its port is none".to_owned()),
            }
        }
        Some(port) => match port.parse().map_err(|_| "its port is none")? {
            port if scheme.is_default(port) => String::new(),
            port => format!(":{port}"),
        },
    };
    let labels = name.strip_suffix('.').unwrap_or(name).split('.');
    let name = labels.map(label).collect::<Result<Vec<_>, _>>()?.join(".");
    let mut hosts = vec![format!("{name}{port}")];
    if scheme == Scheme::Oci {
        let matching = Glob::as_documented(&name, '/').map_err(|error| error.to_string())?;
        if DOCKER_HUBS.iter().any(|host| matching.matches(host)) {
            hosts.push(format!("{DOCKER_HUB}{port}"));
        }
    }
    Ok(hosts)
}

/// One label of a host with wildcards, though perhaps not in this one.
fn label(text: &str) -> Result<String, String> {
    let is_of_one = |c: char| c.is_ascii_alphanumeric() || "-_*?".contains(c);
    if !text.is_empty() && text.chars().all(is_of_one) {
        return Ok(text.to_ascii_lowercase());
    }
    if is_wildcard(text) {
        return Err(format!(
            "a part of a host with * or ? is otherwise of ASCII letters, digits and hyphens, and not {text:?}"
        ));
    }
    match url::Host::parse(text) {
        Ok(url::Host::Domain(name)) if !text.is_ascii() => Ok(name),
        _ => Err(format!("{text:?} is no part of a host")),
    }
}

/// The patterns without braces that one stands for.
fn expanded(pattern: &str) -> Result<Vec<String>, String> {
    if pattern.len() > MAX_BYTES {
        return Err(format!("it has more than {MAX_BYTES} bytes"));
    }
    let mut expanded = Vec::new();
    let mut waiting = vec![pattern.to_owned()];
    while let Some(pattern) = waiting.pop() {
        let Some(braces) = first_braces(&pattern)? else {
            expanded.push(pattern);
            continue;
        };
        for alternative in braces.alternatives {
            let (before, after) = (braces.before, braces.after);
            waiting.push(format!("{before}{alternative}{after}"));
            if expanded.len() + waiting.len() > MAX_ALTERNATIVES {
                return Err(format!(
                    "its braces stand for more than {MAX_ALTERNATIVES} patterns"
                ));
            }
        }
    }
    Ok(expanded)
}

/// The alternatives in braces, and what stands around them.
struct Braces<'p> {
    before: &'p str,
    alternatives: Vec<&'p str>,
    after: &'p str,
}

/// The first braces of a pattern, those in them left as they are.
fn first_braces(pattern: &str) -> Result<Option<Braces<'_>>, String> {
    let Some((before, rest)) = pattern.split_once('{') else {
        return Ok(None);
    };
    let (mut depth, mut start) = (0_usize, 0);
    let mut alternatives = Vec::new();
    for (at, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' if depth == 0 => {
                alternatives.push(&rest[start..at]);
                start = at + 1;
            }
            '}' => {
                alternatives.push(&rest[start..at]);
                let after = &rest[at + 1..];
                return Ok(Some(Braces {
                    before,
                    alternatives,
                    after,
                }));
            }
            _ => {}
        }
    }
    Err("its braces are not closed".to_owned())
}
