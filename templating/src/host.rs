//! What a render may ask of the world around it, and how much it may use.

use std::net::{IpAddr, ToSocketAddrs as _};

use jiff::tz::TimeZone;

use crate::error::Error;

/// The world outside a template. With a host that answers the same, a render gives the same.
///
/// ```
/// use std::sync::Arc;
/// use templating::{Dialect, Host, Limits, Renderer, Value};
///
/// /// A world in which nothing changes: renders are repeatable.
/// struct Frozen;
///
/// impl Host for Frozen {
///     fn now(&self) -> jiff::Timestamp {
///         jiff::Timestamp::UNIX_EPOCH
///     }
///
///     fn fill_random(&self, buffer: &mut [u8]) {
///         buffer.fill(7);
///     }
/// }
///
/// let mut set = Dialect::Helm.template_set("chart");
/// set.parse("t", r#"{{ now | date "2006-01-02" }} {{ uuidv4 }}"#)?;
/// let mut renderer = Renderer::new(Arc::new(set), &Frozen, Limits::default());
/// assert_eq!(renderer.render("t", &Value::Nil)?, b"1970-01-01 07070707-0707-4707-8707-070707070707");
/// # Ok::<(), templating::Error>(())
/// ```
pub trait Host {
    /// The time `now` gives.
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }

    /// The zone dates are shown in when a template names none. UTC by default, so that output does not depend on the machine.
    fn time_zone(&self) -> TimeZone {
        TimeZone::UTC
    }

    /// Fills the buffer with unpredictable bytes: passwords and keys are made of them.
    fn fill_random(&self, buffer: &mut [u8]) {
        rand::fill(buffer);
    }

    /// Asked before every question to the world outside, and every so often: an error ends the render, because its time is up or
    /// its result is no longer wanted. Never by default.
    ///
    /// # Errors
    /// Why the render is to end.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Resolves a host name for `getHostByName`. `None` when names may not be resolved, which is the default.
    ///
    /// # Errors
    /// When the name has no address.
    fn resolve(&self, _name: &str) -> Option<Result<Vec<IpAddr>, Error>> {
        None
    }

    /// An object of the cluster, or a list of them when `name` is empty, for `lookup`. Nothing is found by default.
    ///
    /// # Errors
    /// When the cluster refuses or does not know the kind. *Not found* is an empty object.
    fn lookup(
        &self,
        _api_version: &str,
        _kind: &str,
        _namespace: &str,
        _name: &str,
    ) -> Result<serde_json::Value, Error> {
        Ok(serde_json::Value::Object(serde_json::Map::new()))
    }
}

/// The system's clock and randomness, no names, no cluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemHost;

impl Host for SystemHost {}

/// The addresses of a host name as this machine resolves it, for a host that may.
///
/// ```
/// use std::net::IpAddr;
/// use std::sync::Arc;
/// use templating::{Dialect, Error, Host, Limits, Renderer, Value, resolve_name};
///
/// /// As `helm install --dry-run=server`: names may be resolved.
/// struct Resolving;
///
/// impl Host for Resolving {
///     fn resolve(&self, name: &str) -> Option<Result<Vec<IpAddr>, Error>> {
///         Some(resolve_name(name))
///     }
/// }
///
/// let mut set = Dialect::Helm.template_set("chart");
/// set.parse("t", r#"{{ getHostByName "127.0.0.1" }}"#)?;
/// let mut renderer = Renderer::new(Arc::new(set), &Resolving, Limits::default());
/// assert_eq!(renderer.render("t", &Value::Nil)?, b"127.0.0.1");
/// # Ok::<(), templating::Error>(())
/// ```
///
/// # Errors
/// When the name has no address.
pub fn resolve_name(name: &str) -> Result<Vec<IpAddr>, Error> {
    match (name, 0).to_socket_addrs() {
        Ok(addresses) => Ok(addresses.map(|address| address.ip()).collect()),
        Err(failed) => Err(Error::message(failed.to_string())),
    }
}

/// Limits of one render, after which it ends in an error.
///
/// ```
/// let limits = templating::Limits { output: 1 << 20, ..Default::default() };
/// assert_eq!(limits.include_depth, 1_000);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Nodes executed, elements ranged over and functions called. 50 million: seconds.
    pub steps: u64,
    /// Bytes written by templates or built by functions, all together. 128 MiB.
    pub bytes: u64,
    /// Bytes of any one text. 32 MiB.
    pub text: u64,
    /// Bytes that the templates rendered leave as output, all together. 32 MiB.
    pub output: u64,
    /// Bytes of lists, maps and larger texts that exist at one time, about. 128 MiB.
    pub memory: u64,
    /// `{{template}}` inside `{{template}}`; Go's own limit of 100,000.
    pub template_depth: usize,
    /// Nested includes of one name; Helm's own limit of 1,000.
    pub include_depth: usize,
    /// Bytes of native stack that nested includes and parentheses may use. 1 MiB, which fits any thread; give more
    /// where the thread has more.
    pub stack_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steps: 50_000_000,
            bytes: 128 << 20,
            text: 32 << 20,
            output: 32 << 20,
            memory: 128 << 20,
            template_depth: 100_000,
            include_depth: 1_000,
            stack_bytes: 1 << 20,
        }
    }
}
