//! Schemas that a chart's schema refers to by address.

/// Gets what is at an address of http or https. Helm always does; where charts of strangers are rendered inside a network, their
/// authors would choose what is requested there, so that nothing is fetched unless an implementation is given.
pub trait RemoteSchemas: Sync {
    /// The document, as it was sent. Called from a thread that may wait.
    ///
    /// # Errors
    /// It cannot be had; the text says why.
    fn fetch(&self, url: &str) -> Result<Vec<u8>, String>;
}
