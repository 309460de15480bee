//! Addresses that something is for: a host, with a port or without, and perhaps a path below it.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::fmt;

use golib::folder::Readings;
use url::{Host, Url};

/// The usual name of Docker's own registry.
const DOCKER_HUB: &str = "docker.io";

/// `host[:port][/path]`. Labels of the host may be patterns (`*.example.com`), each for one label.
#[derive(Clone, PartialEq, Eq)]
pub struct HostPattern {
    host: String,
    port: Option<u16>,
    /// Without slashes at its ends; empty for everything there.
    path: String,
}

impl HostPattern {
    /// Reads an address, with or without a scheme. A port that is not given is that of the scheme asked with.
    ///
    /// ```
    /// use chart::source::HostPattern;
    ///
    /// let charts = HostPattern::parse("charts.example/stable").expect("an address");
    /// let url = |text: &str| text.parse().expect("a URL");
    /// assert!(charts.matches(&url("https://charts.example/stable/index.yaml")));
    /// assert!(!charts.matches(&url("https://charts.example/other/index.yaml")));
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let bare = match text.split_once("://") {
            Some((scheme, rest)) if is_scheme(scheme) => rest,
            _ => text,
        };
        let (host, path) = bare.split_once('/').unwrap_or((bare, ""));
        let host = host.to_ascii_lowercase();
        let (host, port) = match host.rsplit_once(':') {
            // A host in brackets is an address of IPv6.
            Some((name, port)) if !port.contains(']') => (name, Some(port.parse().ok()?)),
            _ => (host.as_str(), None),
        };
        // What no URL has would be about nothing, and nobody would hear of it.
        if host.is_empty() || host.contains(['@', ' ']) || bare.contains(['?', '#', '\\']) {
            return None;
        }
        let host = match is_pattern(host) {
            true => {
                let mut labels = host.split('.');
                let is_usable = labels.all(|label| golib::path::matches(label, "").is_ok());
                is_usable.then(|| host.to_owned())?
            }
            // One host has several spellings.
            false => Host::parse(host).ok()?.to_string(),
        };
        Some(Self {
            host: canonical(&host).to_owned(),
            port,
            path: path.trim_matches('/').to_owned(),
        })
    }

    /// As docker's logins name registries: older ones end in a version of its API.
    pub(super) fn parse_login(text: &str) -> Option<Self> {
        let mut pattern = Self::parse(text)?;
        let mut parts = pattern.path.splitn(2, '/');
        if matches!(parts.next(), Some("v1" | "v2")) {
            pattern.path = parts.next().unwrap_or_default().to_owned();
        }
        Some(pattern)
    }

    /// Whether the pattern matches an address, however a server reads its path. A registry's API is not part of the paths in it:
    /// `/v2/team/web/tags/list` is below `team`.
    ///
    /// ```
    /// use chart::source::HostPattern;
    ///
    /// let team = HostPattern::parse("*.registry.example/team").expect("an address");
    /// let url = |text: &str| text.parse().expect("a URL");
    /// assert!(team.matches(&url("https://eu.registry.example/v2/team/web/tags/list")));
    /// assert!(!team.matches(&url("https://registry.example/v2/team/web/tags/list")));
    /// ```
    pub fn matches(&self, url: &Url) -> bool {
        self.is_for(&Address::of(url))
    }

    /// As [`Self::matches`]. What many patterns are compared with is read once.
    pub(super) fn is_for(&self, address: &Address<'_>) -> bool {
        self.is_at(address, Readings::are_below)
    }

    /// Whether some server may take an address for one that the pattern matches.
    pub(super) fn may_be_for(&self, address: &Address<'_>) -> bool {
        self.is_at(address, Readings::may_be_below)
    }

    fn is_at(&self, address: &Address<'_>, is_below: fn(&Readings, &str) -> bool) -> bool {
        let Some(host) = address.url.host_str() else {
            return false;
        };
        let port = match self.port {
            Some(port) => Some(port) == address.url.port_or_known_default(),
            None => address.url.port().is_none(),
        };
        let below = |path: &Readings| is_below(path, &self.path);
        port && self.matches_host(canonical(host))
            && (self.path.is_empty()
                || below(address.path())
                || address.in_registry().is_some_and(below))
    }

    fn matches_host(&self, host: &str) -> bool {
        if !self.is_pattern() {
            return self.host == host;
        }
        self.host.split('.').count() == host.split('.').count()
            && std::iter::zip(self.host.split('.'), host.split('.'))
                .all(|(pattern, label)| golib::path::matches(pattern, label).unwrap_or_default())
    }

    fn is_pattern(&self) -> bool {
        is_pattern(&self.host)
    }

    /// Of several that are for an address, the one whose precedence is least counts: longer paths before shorter ones, hosts before patterns.
    pub(super) fn precedence(&self) -> impl Ord {
        (
            Reverse(self.path.len()),
            self.is_pattern(),
            Reverse(self.port.is_some()),
            Reverse(self.host.len()),
            self.host.clone(),
            self.port,
        )
    }
}

fn is_scheme(text: &str) -> bool {
    let mut schemes = ["http", "https", "oci"].iter();
    schemes.any(|scheme| text.eq_ignore_ascii_case(scheme))
}

/// An address that patterns are compared with. Its path is read once, and where some pattern has one.
pub(super) struct Address<'u> {
    url: &'u Url,
    path: OnceCell<Readings>,
    in_registry: OnceCell<Option<Readings>>,
}

impl<'u> Address<'u> {
    pub(super) fn of(url: &'u Url) -> Self {
        Self {
            url,
            path: OnceCell::new(),
            in_registry: OnceCell::new(),
        }
    }

    fn path(&self) -> &Readings {
        self.path.get_or_init(|| Readings::of(self.url.path()))
    }

    /// The path without that of a registry's API.
    fn in_registry(&self) -> Option<&Readings> {
        let read = || {
            let path = self.url.path().trim_start_matches('/');
            path.strip_prefix("v2/").map(Readings::of)
        };
        self.in_registry.get_or_init(read).as_ref()
    }
}

fn is_pattern(host: &str) -> bool {
    // An address of IPv6 stands in brackets.
    !host.starts_with('[') && host.contains(['*', '?', '['])
}

/// Docker's own registry has a name of its own and several addresses. A dot at the end of a host only says that it is a whole one.
fn canonical(host: &str) -> &str {
    match host.strip_suffix('.').unwrap_or(host) {
        "index.docker.io" | "registry-1.docker.io" => DOCKER_HUB,
        host => host,
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        match self.path.as_str() {
            "" => Ok(()),
            path => write!(f, "/{path}"),
        }
    }
}

impl fmt::Debug for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("r.example", "r.example")]
    #[case("https://R.example:8443/a/b/", "r.example:8443/a/b")]
    #[case("[::1]:5000", "[::1]:5000")]
    #[case("[::1]", "[::1]")]
    #[case("[2001:DB8::0001]:5000", "[2001:db8::1]:5000")]
    #[case("bücher.example", "xn--bcher-kva.example")]
    #[case("*.example.com", "*.example.com")]
    #[case("oci://index.docker.io/library", "docker.io/library")]
    #[case("r.example.", "r.example")]
    fn addresses(#[case] text: &str, #[case] shown: &str) {
        assert_eq!(HostPattern::parse(text).unwrap().to_string(), shown);
    }

    #[rstest]
    #[case("")]
    #[case("https://")]
    #[case("user:pw@host")]
    #[case("host:port")]
    #[case("charts.example\\stable")]
    #[case("charts.example/stable?ref=v1")]
    #[case("r[1.example")]
    #[case("r^1.example")]
    fn no_addresses(#[case] text: &str) {
        assert_eq!(HostPattern::parse(text), None);
    }

    #[rstest]
    #[case("https://charts.example/stable/..%2ftenant/index.yaml")]
    #[case("https://charts.example/stable/..%5ctenant/index.yaml")]
    #[case("https://charts.example/stable/..;/tenant/index.yaml")]
    #[case("https://charts.example/stable/..%252ftenant/index.yaml")]
    #[case("https://charts.example/v2/stable/..%2F..%2Ftenant/index.yaml")]
    fn an_encoded_way_out_of_a_folder_does_not_lie_below_it(#[case] url: &str) {
        let url = url.parse().unwrap();
        let matches = |pattern: &str| HostPattern::parse(pattern).unwrap().matches(&url);
        assert!(!matches("charts.example/stable") && matches("charts.example"));
    }

    #[rstest]
    #[case("charts.example/stable", "https://charts.example/st%61ble/web-1.0.0%2Bb.tgz")]
    #[case("charts.example/stable", "https://charts.example//stable/a%2fb.tgz")]
    #[case("charts.example/my%20charts", "https://charts.example/my%20charts/index.yaml")]
    #[case(
        "gitlab.example/api/v4/projects/group%2Fweb",
        "https://gitlab.example/api/v4/projects/group%2Fweb/packages/helm/stable/index.yaml"
    )]
    fn other_spellings_of_a_path_lie_below_its_folder(#[case] folder: &str, #[case] url: &str) {
        let folder = HostPattern::parse(folder).unwrap();
        assert!(folder.matches(&url.parse().unwrap()));
    }
}
