//! What this crate takes from the process it runs in, besides a client: the time of day, and a place for work that takes long.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

/// The process around a cluster handle. Cloning is cheap.
#[derive(Clone, Default)]
pub struct Host {
    clock: Option<Arc<dyn Fn() -> Timestamp + Send + Sync>>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}

impl Host {
    /// A host that does the same at the same times: `clock` tells them, and work is done at once by
    /// whoever has it, so that no other thread has a say in what comes first. Templates that look into the cluster would
    /// wait for themselves there.
    pub fn repeatable(clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self {
            clock: Some(Arc::new(clock)),
        }
    }

    /// The time of day; the system's by default.
    pub fn now(&self) -> Timestamp {
        self.clock.as_ref().map_or_else(Timestamp::now, |now| now())
    }

    /// Does work that takes long or blocks, by default on a thread that may.
    ///
    /// # Errors
    /// It panicked.
    pub async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, tokio::task::JoinError> {
        match self.clock {
            Some(_) => Ok(work()),
            None => tokio::task::spawn_blocking(work).await,
        }
    }
}
