//! How pods reach servers that listen on loopback: an address that forwards, and a name server that knows it by a few names.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use crate::bed::runtime;
use crate::cluster::{ControlPlane, GATEWAY_ADDRESS, IN_CLUSTER_ADDRESS, UPSTREAM_NAME};

/// Where HTTPS is served.
const HTTPS: u16 = 443;
/// Where `tests/tools/node.sh` has the names of the registries of images; the node has its images without them.
const IMAGES_ADDRESS: &str = "10.96.0.3";

/// The forwards of one node; they work until the program ends.
#[derive(Clone)]
pub struct Gateway {
    names: Arc<Mutex<BTreeSet<String>>>,
}

impl Gateway {
    /// Leads pods to their own cluster, and to another one by [`UPSTREAM_NAME`].
    ///
    /// # Errors
    /// When an address or a port is not to be had: this is no network namespace of our own.
    pub async fn open(cluster: &ControlPlane, upstream: &ControlPlane) -> Result<Self> {
        for address in [IN_CLUSTER_ADDRESS, GATEWAY_ADDRESS, IMAGES_ADDRESS] {
            let mut command = Command::new("ip");
            command.args(["address", "replace", &format!("{address}/32"), "dev", "lo"]);
            let status = command.status().context("running ip")?;
            ensure!(status.success(), "no address {address}: {status}");
        }
        let gateway = Self {
            names: Arc::default(),
        };
        forward(IN_CLUSTER_ADDRESS, HTTPS, cluster.port()).await?;
        gateway.lead(UPSTREAM_NAME, HTTPS, upstream.port()).await?;
        let socket = UdpSocket::bind((GATEWAY_ADDRESS, 53)).await?.into_std()?;
        let names = gateway.names.clone();
        runtime().spawn(async move {
            let Ok(socket) = UdpSocket::from_std(socket) else {
                return;
            };
            let mut question = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut question).await {
                let is_known = |name: &str| locked(&names).contains(name);
                if let Some(answer) = answer(&question[..length], is_known) {
                    let _ = socket.send_to(&answer, from).await;
                }
            }
        });
        Ok(gateway)
    }

    /// Leads pods that ask for a name and port to a port of loopback.
    ///
    /// # Errors
    /// When the port is taken.
    pub async fn lead(&self, name: &str, port: u16, to: u16) -> Result<()> {
        locked(&self.names).insert(name.to_owned());
        forward(GATEWAY_ADDRESS, port, to).await
    }

    /// Leads who pushes images by plain HTTP to a registry that listens at a port of loopback.
    ///
    /// # Errors
    /// When there is one already.
    pub async fn take_images(&self, registry: u16) -> Result<()> {
        forward(IMAGES_ADDRESS, 80, registry).await
    }
}

fn locked(names: &Mutex<BTreeSet<String>>) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
    names.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn forward(address: &str, port: u16, to: u16) -> Result<()> {
    let listener = TcpListener::bind((address, port)).await;
    let listener = listener.with_context(|| format!("listening at {address}:{port}"))?;
    let listener = listener.into_std()?;
    runtime().spawn(async move {
        let Ok(listener) = TcpListener::from_std(listener) else {
            return;
        };
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await {
                    // Either side may go away when it likes.
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                }
            });
        }
    });
    Ok(())
}

/// The answer to a question for one name: [`GATEWAY_ADDRESS`], no address of this kind, or that there is no such name.
fn answer(question: &[u8], is_known: impl Fn(&str) -> bool) -> Option<Vec<u8>> {
    const HEADER: usize = 12;
    const NO_SUCH_NAME: u8 = 3;
    let mut labels = Vec::new();
    let mut at = HEADER;
    loop {
        let length = usize::from(*question.get(at)?);
        if length == 0 {
            break;
        }
        let label = question.get(at + 1..=at + length)?;
        labels.push(String::from_utf8_lossy(label).to_lowercase());
        at += length + 1;
    }
    // The name's end, then its type and class.
    let end = at + 5;
    let asks_for_ipv4 = question.get(at + 1..at + 3)? == [0, 1];
    let is_known = is_known(&labels.join("."));
    let has_answer = is_known && asks_for_ipv4;
    let mut answer = question.get(..2)?.to_vec();
    answer.extend([0x85, 0x80 | if is_known { 0 } else { NO_SUCH_NAME }]);
    answer.extend([0, 1, 0, u8::from(has_answer), 0, 0, 0, 0]);
    answer.extend(question.get(HEADER..end)?);
    if has_answer {
        // The name as above, an address, for five seconds, four bytes.
        answer.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4]);
        answer.extend(GATEWAY_ADDRESS.parse::<Ipv4Addr>().ok()?.octets());
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The question for `name` of a kind: 1 for IPv4, 28 for IPv6.
    fn question(name: &str, kind: u8) -> Vec<u8> {
        let mut question = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            question.push(u8::try_from(label.len()).unwrap());
            question.extend(label.bytes());
        }
        question.extend([0, 0, kind, 0, 1]);
        question
    }

    #[test]
    fn known_names_have_one_address() {
        let known = |name: &str| name == "a.example";
        let found = answer(&question("A.example", 1), known).unwrap();
        assert_eq!((found[0], found[1], found[3] & 15, found[7]), (7, 9, 0, 1));
        assert!(found.ends_with(&[10, 96, 0, 2]));
        let other = answer(&question("a.example", 28), known).unwrap();
        assert_eq!((other[3] & 15, other[7]), (0, 0));
        let unknown = answer(&question("b.example", 1), known).unwrap();
        assert_eq!((unknown[3] & 15, unknown[7]), (3, 0));
        assert!(answer(&[0; 13], known).is_none());
    }
}
