//! Addresses of charts as rules are matched with them: in each form that reaches the same place, so that no other spelling escapes a rule.

use url::Url;

/// An address as rules are matched with it. Only a URL that was parsed makes one, so that it is the one that is asked, however it was
/// written; one that leads to no server has no forms, and a policy that is about charts refuses it. User, password and query are no part of it.
///
/// ```
/// use signatures::Address;
///
/// let address = |text: &str| text.parse().map(|url| Address::from(&url));
/// assert_eq!(address("HTTPS://joe:secret@Charts.example:443/stable//web?v=1")?, address("https://charts.example/stable/web")?);
/// assert_eq!(address("oci://registry.example:80/web")?, address("oci://registry.example/web")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    forms: Vec<String>,
}

impl From<&Url> for Address {
    fn from(url: &Url) -> Self {
        let rest = url.as_str().split_once("://").map(|(_, rest)| rest);
        let scheme = Scheme::of(url.scheme()).filter(|_| url.has_host());
        Self {
            forms: match (scheme, rest) {
                (Some(scheme), Some(rest)) => forms(scheme, rest),
                _ => Vec::new(),
            },
        }
    }
}

impl Address {
    /// All forms; none where rules cannot be about it.
    pub(crate) fn forms(&self) -> &[String] {
        &self.forms
    }
}

/// How a chart's source is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
    Oci,
}

impl Scheme {
    pub(crate) const ALL: [Self; 3] = [Self::Http, Self::Https, Self::Oci];

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Oci => "oci",
        }
    }

    fn of(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scheme| scheme.text() == text)
    }

    /// Whether forms leave out a port. A registry's settings say whether it is spoken to by TLS, and its address does not.
    pub(crate) fn is_default(self, port: u16) -> bool {
        match self {
            Self::Http => port == 80,
            Self::Https => port == 443,
            Self::Oci => matches!(port, 80 | 443),
        }
    }
}

/// Docker's own registry by one of the names that its clients have for it.
pub(crate) const DOCKER_HUB: &str = "docker.io";
/// Its others.
pub(crate) const DOCKER_HUBS: [&str; 2] = ["index.docker.io", "registry-1.docker.io"];

/// The host that begins what follows a scheme, as forms have it, and the path behind it as a client asks for it.
fn asked(scheme: Scheme, rest: &str) -> Option<(String, Url)> {
    // As the client reads it that will ask for it; other schemes than http have no rules for this.
    let as_http = match scheme {
        Scheme::Http => format!("http://{rest}"),
        Scheme::Https | Scheme::Oci => format!("https://{rest}"),
    };
    let url = Url::parse(&as_http).ok()?;
    let host = url.host_str()?;
    let host = host.strip_suffix('.').unwrap_or(host);
    let host = match scheme == Scheme::Oci && DOCKER_HUBS.contains(&host) {
        true => DOCKER_HUB,
        false => host,
    };
    let host = match url.port().filter(|port| !scheme.is_default(*port)) {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    Some((host, url))
}

/// A host, perhaps with a port, as forms have it. `None` for what is more than that, or less.
pub(crate) fn host_as_asked(scheme: Scheme, host: &str) -> Option<String> {
    let (host, url) = asked(scheme, &format!("{host}/"))?;
    (url.path() == "/" && url.query().is_none()).then_some(host)
}

/// An address in the forms that reach the same place: without user, query, default port, dot segments, doubled slashes and percent signs,
/// and of a registry also without tag and digest.
fn forms(scheme: Scheme, rest: &str) -> Vec<String> {
    let Some((host, url)) = asked(scheme, rest) else {
        return Vec::new();
    };
    // What was encoded may be dots and slashes too, and a server may take it for them.
    let paths = golib::folder::possible_paths(url.path());
    let forms = paths.iter().map(|path| forms_at(scheme, &host, path));
    forms.flatten().collect()
}

/// The forms of an address whose path is read already.
fn forms_at(scheme: Scheme, host: &str, path: &str) -> Vec<String> {
    let other = match scheme {
        Scheme::Http => Some(Scheme::Https),
        Scheme::Https => Some(Scheme::Http),
        Scheme::Oci => None,
    };
    let mut forms = vec![format!("{}://{host}/{path}", scheme.text())];
    if let Some(other) = other {
        // One server as a rule, whatever it is spoken to by.
        forms.push(format!("{}://{host}/{path}", other.text()));
        forms.extend(in_registry(host, path));
        return forms;
    }
    let named = path.split('@').next().unwrap_or_default();
    let last = named.rfind('/').unwrap_or_default();
    let end = named[last..].find(':').map_or(named.len(), |at| last + at);
    let bare = format!("oci://{host}/{}", &named[..end]);
    if !forms.contains(&bare) {
        forms.push(bare);
    }
    forms
}

/// The repository of a registry that an address by HTTP leads into: what is pulled from there has to have what the repository's charts need.
fn in_registry(host: &str, path: &str) -> Vec<String> {
    let repository = path.strip_prefix("v2/").and_then(|path| {
        let ends = ["/blobs/", "/manifests/"].map(|part| path.rfind(part));
        path.get(..ends.into_iter().flatten().max()?)
    });
    repository.map_or_else(Vec::new, |repository| {
        forms(Scheme::Oci, &format!("{host}/{repository}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_some_server_takes_for_the_address_of_a_rule_is_one() {
        let stable = |address: &str| {
            let address = Address::from(&Url::parse(address).unwrap());
            let forms = address.forms();
            forms.contains(&"https://charts.example/stable/web".to_owned())
        };
        for path in [
            "stable/web",
            "x/..%2fstable/web",
            "x/..%5cstable%5cweb",
            "x/..;/stable;v=1/web",
            "x/%252e%252e/stable/web",
            "x%25252f..%25252fstable/web",
        ] {
            assert!(stable(&format!("https://charts.example/{path}")), "{path}");
        }
        assert!(!stable("https://charts.example/x/stable/web"));
    }
}
