//! Ports for programs that have to be told theirs.
//!
//! A port that the system picked is free only until somebody is next: an agent that is killed and started again found another test's server, or one
//! of a thousand outgoing connections, where it had listened before. So ports come from below those that the system gives away, in blocks; who
//! listens on the first port of a block has the others for as long as its process lives.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

/// Where blocks begin: below are well-known servers.
const LOWEST: u16 = 10_240;
/// Ports of a block, its first one with them.
const BLOCK: u16 = 64;
/// Where the system's own ports begin, if it does not say so.
const SYSTEM: u16 = 32_768;

/// A block of ports that is this process's, as long as its first one is listened on.
struct Block {
    _claim: TcpListener,
    left: Range<u16>,
}

impl Block {
    /// The next port that nobody listens on.
    fn next_free(&mut self) -> Option<u16> {
        self.left.find(|port| listen(*port).is_ok())
    }
}

/// All blocks of this process: one that is used up stays claimed.
static BLOCKS: Mutex<Vec<Block>> = Mutex::new(Vec::new());

/// A port that nobody listens on, and that is given to nobody else while this process lives.
///
/// # Errors
/// When all blocks are claimed.
pub fn free() -> Result<u16> {
    let mut blocks = BLOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(port) = blocks.last_mut().and_then(Block::next_free) {
            return Ok(port);
        }
        blocks.push(claim(system_ports())?);
    }
}

/// The first block that no other process has. Where it is looked for first depends on the process, as most begin at the same time.
fn claim(end: u16) -> Result<Block> {
    let blocks = end.saturating_sub(LOWEST) / BLOCK;
    let begin = std::process::id() % u32::from(blocks.max(1));
    let begin = u16::try_from(begin).unwrap_or(0);
    let mut all = (begin..blocks).chain(0..begin);
    all.find_map(|block| {
        let first = LOWEST + block * BLOCK;
        let claim = listen(first).ok()?;
        Some(Block {
            _claim: claim,
            left: first + 1..first + BLOCK,
        })
    })
    .with_context(|| format!("every block of ports from {LOWEST} to {end} is taken"))
}

/// The first port that the system gives to whoever asks for any. Where it gives nearly all, there is none that it does not.
fn system_ports() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let first = range.ok().and_then(|range| {
        let first = range.split_whitespace().next()?;
        first.parse().ok()
    });
    first
        .filter(|first| *first >= LOWEST + 16 * BLOCK)
        .unwrap_or(SYSTEM)
}

/// On every address: who listens on one of them has the port.
fn listen(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_port_is_given_twice_nor_one_that_the_system_gives_away() {
        let given: Vec<u16> = (0..3 * BLOCK).map(|_| free().unwrap()).collect();
        assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), given.len());
        let end = system_ports();
        assert!(given.iter().all(|port| (LOWEST..end).contains(port)));
    }

    #[test]
    fn a_port_that_somebody_listens_on_is_passed_over() {
        let mut block = claim(system_ports()).unwrap();
        let first = block.left.start;
        let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, first)).unwrap();
        assert_eq!(block.next_free(), Some(first + 1));
    }

    #[test]
    fn another_process_gets_another_block() {
        let (first, second) = (claim(system_ports()), claim(system_ports()));
        assert_ne!(first.unwrap().left, second.unwrap().left);
    }
}
