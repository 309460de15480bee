//! Where the process listens, as Go's `net.Listen` takes it.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// `:8080`, `127.0.0.1:8080`, `[::1]:8080` or `localhost:8080`. A name is looked up when it is listened on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// Without brackets; empty for every address of this machine.
    host: String,
    port: u16,
}

/// A text is no address to listen on.
#[derive(Debug, PartialEq, Eq)]
pub struct NoAddress;

impl FromStr for ListenAddress {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Self, NoAddress> {
        let (host, port) = text.rsplit_once(':').ok_or(NoAddress)?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').ok_or(NoAddress)?,
            None if host.contains([':', ']']) => return Err(NoAddress),
            None => host,
        };
        Ok(Self {
            host: host.to_owned(),
            port: port.parse().map_err(|_| NoAddress)?,
        })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl ListenAddress {
    /// The address itself: of several that a name has the first of IPv4, else the first.
    ///
    /// # Errors
    /// Nobody knows the name.
    pub async fn resolve(&self) -> io::Result<SocketAddr> {
        if self.host.is_empty() {
            let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
            return Ok(SocketAddr::new(any, self.port));
        }
        let found: Vec<_> = tokio::net::lookup_host((self.host.as_str(), self.port))
            .await?
            .collect();
        let chosen = found.iter().find(|address| address.is_ipv4());
        let chosen = chosen.or(found.first()).copied();
        chosen.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(":8080", "[::]:8080")]
    #[case("127.0.0.1:9", "127.0.0.1:9")]
    #[case("[::1]:9", "[::1]:9")]
    #[case("localhost:9", "127.0.0.1:9")]
    #[tokio::test]
    async fn listen_addresses_are_read_as_go_reads_them(#[case] text: &str, #[case] address: &str) {
        let read: ListenAddress = text.parse().unwrap();
        assert_eq!(read.to_string(), text);
        assert_eq!(read.resolve().await.unwrap().to_string(), address);
    }

    #[rstest]
    fn a_malformed_listen_address_or_one_without_a_port_is_refused(
        #[values("", "8080", "nowhere", "localhost:", "::1", "::1:9", "[::1:9", "a]:9", ":65536")]
        text: &str,
    ) {
        assert_eq!(text.parse::<ListenAddress>(), Err(NoAddress));
    }
}
