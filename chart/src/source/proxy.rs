//! Proxies from the environment, by the rules of Go's `golang.org/x/net/http/httpproxy`.
//!
//! They differ from those of other clients: loopback never goes through a proxy, `NO_PROXY` takes
//! domains with and without a leading dot, addresses, networks and ports.

use std::net::IpAddr;

use ipnet::IpNet;
use url::Url;

/// What `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` say, in capitals or small letters.
#[derive(Clone, Debug, Default)]
pub struct ProxyRules {
    http: Option<Url>,
    https: Option<Url>,
    exceptions: Vec<Exception>,
    never: bool,
}

#[derive(Clone, Debug)]
enum Exception {
    Address {
        ip: IpAddr,
        port: Option<u16>,
    },
    Network(IpNet),
    Domain {
        suffix: String,
        itself: bool,
        port: Option<u16>,
    },
}

impl ProxyRules {
    /// Reads the variables through `get` (normally the process environment). `None` when no proxy
    /// is set.
    ///
    /// ```
    /// let variables = |name: &str| match name {
    ///     "HTTPS_PROXY" => Some("http://proxy.example:3128".to_owned()),
    ///     "NO_PROXY" => Some("10.0.0.0/8,.internal".to_owned()),
    ///     _ => None,
    /// };
    /// assert!(chart::source::ProxyRules::from_variables(variables).is_some());
    /// assert!(chart::source::ProxyRules::from_variables(|_| None).is_none());
    /// ```
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let given = |name: &str| get(name).filter(|value| !value.is_empty());
        let either = |upper: &str| given(upper).or_else(|| given(&upper.to_ascii_lowercase()));
        let (http, https) = (either("HTTP_PROXY"), either("HTTPS_PROXY"));
        let mut rules = Self {
            http: http.as_deref().and_then(proxy_url),
            https: https.as_deref().and_then(proxy_url),
            ..Self::default()
        };
        if rules.http.is_none() && rules.https.is_none() {
            return None;
        }
        for text in either("NO_PROXY").unwrap_or_default().split(',') {
            let text = text.trim().to_ascii_lowercase();
            if text == "*" {
                rules.never = true;
            } else if !text.is_empty() {
                rules.exceptions.extend(exception(&text));
            }
        }
        Some(rules)
    }

    /// The proxy for a request, if it is to use one.
    ///
    /// ```
    /// let variables = |name: &str| match name {
    ///     "HTTPS_PROXY" => Some("http://proxy.example:3128".to_owned()),
    ///     "NO_PROXY" => Some(".internal".to_owned()),
    ///     _ => None,
    /// };
    /// let rules = chart::source::ProxyRules::from_variables(variables).unwrap();
    /// let proxy = |url: &str| rules.for_url(&url.parse().unwrap()).map(String::from);
    /// assert_eq!(proxy("https://charts.example/").as_deref(), Some("http://proxy.example:3128/"));
    /// assert_eq!(proxy("https://charts.internal/"), None);
    /// ```
    pub fn for_url(&self, url: &Url) -> Option<Url> {
        let proxy = match url.scheme() {
            "https" => self.https.as_ref(),
            "http" => self.http.as_ref(),
            _ => None,
        }?;
        (!self.is_excepted(url)).then(|| proxy.clone())
    }

    fn is_excepted(&self, url: &Url) -> bool {
        let Some(host) = url.host_str() else {
            return true;
        };
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_ascii_lowercase();
        let port = url.port_or_known_default();
        let ip = address(&host);
        if self.never || host == "localhost" || ip.is_some_and(|ip| ip.is_loopback()) {
            return true;
        }
        let fits = |requested: Option<u16>| requested.is_none() || requested == port;
        self.exceptions.iter().any(|exception| match exception {
            Exception::Address { ip: known, port } => ip == Some(*known) && fits(*port),
            Exception::Network(network) => ip.is_some_and(|ip| network.contains(&ip)),
            Exception::Domain {
                suffix,
                itself,
                port,
            } => {
                let is_in = host.ends_with(suffix.as_str()) || (*itself && host == suffix[1..]);
                ip.is_none() && fits(*port) && is_in
            }
        })
    }
}

/// A proxy without a scheme is an HTTP proxy; one of another scheme is reported when it is to be used.
fn proxy_url(text: &str) -> Option<Url> {
    match Url::parse(text) {
        Ok(url) if url.has_host() => Some(url),
        _ => Url::parse(&format!("http://{text}"))
            .ok()
            .filter(Url::has_host),
    }
}

/// One of IPv4 that is written as IPv6 is that of IPv4, requested or excepted.
fn address(text: &str) -> Option<IpAddr> {
    text.parse().ok().map(|ip: IpAddr| ip.to_canonical())
}

/// The network, as [`address`] has single ones, unless it is larger than all of IPv4.
fn network(text: &str) -> Option<IpNet> {
    let (ip, prefix) = text.split_once('/')?;
    let ip: IpAddr = ip.parse().ok()?;
    let network = IpNet::new(ip, prefix.parse().ok()?).ok()?;
    match (ip.to_canonical(), network.prefix_len().checked_sub(96)) {
        (ip @ IpAddr::V4(_), Some(prefix)) => IpNet::new(ip, prefix).ok(),
        _ => Some(network),
    }
}

fn exception(text: &str) -> Option<Exception> {
    if let Some(network) = network(text) {
        return Some(Exception::Network(network));
    }
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if let Some(ip) = address(bare) {
        return Some(Exception::Address { ip, port: None });
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(port.parse().ok()?)),
        None => (text, None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return None;
    }
    if let Some(ip) = address(host) {
        return Some(Exception::Address { ip, port });
    }
    let host = host
        .strip_prefix('*')
        .filter(|rest| rest.starts_with('.'))
        .unwrap_or(host);
    Some(match host.starts_with('.') {
        true => Exception::Domain {
            suffix: host.to_owned(),
            itself: false,
            port,
        },
        false => Exception::Domain {
            suffix: format!(".{host}"),
            itself: true,
            port,
        },
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn rules(no_proxy: &str) -> ProxyRules {
        ProxyRules::from_variables(|name| match name {
            "HTTP_PROXY" | "https_proxy" => Some("proxy.example:3128".into()),
            "NO_PROXY" => Some(no_proxy.into()),
            _ => None,
        })
        .unwrap()
    }

    #[rstest]
    #[case("", "https://charts.example/x", true)]
    #[case("", "http://localhost:8080/", false)]
    #[case("", "http://127.0.0.2/", false)]
    #[case("", "http://[::1]/", false)]
    #[case("*", "https://charts.example/", false)]
    #[case("example.com", "https://example.com/", false)]
    #[case("example.com", "https://a.example.com/", false)]
    #[case("example.com", "https://badexample.com/", true)]
    #[case(".example.com", "https://example.com/", true)]
    #[case(".example.com", "https://a.example.com/", false)]
    #[case("*.example.com", "https://a.example.com/", false)]
    #[case("example.com:8443", "https://example.com/", true)]
    #[case("example.com:443", "https://example.com/", false)]
    #[case("10.0.0.0/8, 192.168.1.1", "http://10.1.2.3/", false)]
    #[case("10.0.0.0/8, 192.168.1.1", "http://192.168.1.1:99/", false)]
    #[case("10.0.0.0/8", "http://11.1.2.3/", true)]
    #[case("0.0.0.0/0", "http://11.1.2.3/", false)]
    #[case("fd00::/8", "http://[fd12::1]/", false)]
    #[case("10.0.0.0/33", "http://10.0.0.0/", true)]
    #[case("010.0.0.0/8", "http://10.0.0.1/", true)]
    #[case("10.0.0.0/8", "http://[::ffff:10.1.2.3]/", false)]
    #[case("10.1.2.3", "http://[::ffff:10.1.2.3]/", false)]
    #[case("10.1.2.3/32", "http://[::ffff:10.1.2.3]/", false)]
    #[case("0.0.0.0/0", "http://[::ffff:10.1.2.3]/", false)]
    #[case("::ffff:10.1.2.3", "http://[::ffff:10.1.2.3]/", false)]
    #[case("::ffff:10.1.2.3", "http://10.1.2.3/", false)]
    #[case("::ffff:a01:203", "http://10.1.2.3/", false)]
    #[case("::ffff:10.1.2.3", "http://10.1.2.4/", true)]
    #[case("[::ffff:10.1.2.3]:80", "http://10.1.2.3/", false)]
    #[case("[::ffff:10.1.2.3]:81", "http://10.1.2.3/", true)]
    #[case("::ffff:10.0.0.0/104", "http://10.1.2.3/", false)]
    #[case("::ffff:10.0.0.0/104", "http://[::ffff:10.1.2.3]/", false)]
    #[case("::ffff:10.0.0.0/104", "http://11.1.2.3/", true)]
    #[case("::ffff:10.1.2.3/128", "http://10.1.2.3/", false)]
    #[case("::ffff:10.1.2.3/128", "http://10.1.2.4/", true)]
    #[case("::ffff:10.1.2.3/129", "http://10.1.2.3/", true)]
    #[case("::ffff:0.0.0.0/96", "http://11.1.2.3/", false)]
    #[case("::ffff:0.0.0.0/96", "http://[fd12::1]/", true)]
    #[case("::ffff:0.0.0.0/95", "http://11.1.2.3/", true)]
    #[case("::ffff:0.0.0.0/95", "http://[::ffff:11.1.2.3]/", true)]
    #[case("::ffff:0.0.0.0/95", "http://[::fffe:b01:203]/", false)]
    #[case("::/0", "http://10.1.2.3/", true)]
    #[case("::/0", "http://[::ffff:10.1.2.3]/", true)]
    #[case("::/0", "http://[fd12::1]/", false)]
    #[case("::10.1.2.3", "http://10.1.2.3/", true)]
    #[case("", "http://[::ffff:127.0.0.1]/", false)]
    #[case("0.1", "http://10.0.0.1/", true)]
    fn exceptions(#[case] no_proxy: &str, #[case] url: &str, #[case] proxied: bool) {
        let proxy = rules(no_proxy).for_url(&Url::parse(url).unwrap());
        assert_eq!(proxy.is_some(), proxied, "{proxy:?}");
    }

    #[rstest]
    #[case("proxy.example:3128", "http://proxy.example:3128/")]
    #[case("http://user:p%40ss@proxy.example", "http://user:p%40ss@proxy.example/")]
    #[case("10.0.0.9:3128", "http://10.0.0.9:3128/")]
    #[case("socks5://proxy.example:1080", "socks5://proxy.example:1080")]
    fn addresses_of_proxies(#[case] text: &str, #[case] read: &str) {
        assert_eq!(proxy_url(text).unwrap().as_str(), read);
    }

    #[test]
    fn an_empty_variable_is_none() {
        let rules = ProxyRules::from_variables(|name| match name {
            "HTTP_PROXY" => Some(String::new()),
            "http_proxy" => Some("proxy.example".into()),
            _ => None,
        });
        assert!(rules.is_some());
    }

    #[test]
    fn without_variables_there_is_no_proxy() {
        assert!(ProxyRules::from_variables(|_| None).is_none());
        assert!(ProxyRules::from_variables(|_| Some(String::new())).is_none());
    }
}
