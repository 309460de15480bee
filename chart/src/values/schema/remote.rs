//! Schemas that a chart's schema refers to by address.

/// Gets what stands at an address of http or https. Helm does so without being asked; who renders charts of strangers from
/// inside a network lets nobody choose what is asked there, unless he decides to.
pub trait RemoteSchemas: Sync {
    /// The document, as it was sent. Called from a thread that may wait.
    ///
    /// # Errors
    /// It cannot be had; the text says why.
    fn fetch(&self, url: &str) -> Result<Vec<u8>, String>;
}
