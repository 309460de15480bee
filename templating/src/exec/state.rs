//! What one render carries along.

use crate::error::Error;
use crate::host::{Host, Limits};

/// The state of a render: what it has used of its limits, and the host around it. Functions receive it.
pub struct State<'a> {
    pub(super) host: &'a dyn Host,
    pub(super) limits: Limits,
    pub(super) steps: u64,
    pub(super) bytes: u64,
}

impl<'a> State<'a> {
    /// The world around the render.
    pub fn host(&self) -> &'a dyn Host {
        self.host
    }

    /// Counts work about to be done: elements to make, characters to look at.
    ///
    /// # Errors
    /// When the render has done more than its limit.
    pub fn spend_steps(&mut self, steps: u64) -> Result<(), Error> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > self.limits.steps {
            let limit = self.limits.steps;
            return Err(Error::limit(format!(
                "template needs more than {limit} steps"
            )));
        }
        Ok(())
    }

    /// Counts memory about to be filled. A function whose result can be much larger than its arguments (`repeat`,
    /// `indent`, `until`) calls this *before* building it.
    ///
    /// # Errors
    /// When the render has made more than its limit.
    pub fn spend_bytes(&mut self, bytes: u64) -> Result<(), Error> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limits.bytes {
            let limit = self.limits.bytes;
            return Err(Error::limit(format!(
                "template produces more than {limit} bytes"
            )));
        }
        Ok(())
    }
}
