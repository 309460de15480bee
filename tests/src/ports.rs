//! Free loopback ports.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::Result;

/// A port nobody listens on now. The system hands them out in turn, so two callers rarely get the same one.
///
/// # Errors
/// When no port can be bound.
pub fn free() -> Result<u16> {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    Ok(listener.local_addr()?.port())
}
