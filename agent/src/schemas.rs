//! Whether the schemas of charts may refer to others by address.

use chart::source::{SchemaFetcher, Settings};
use chart::values::schema::RemoteSchemas;

use crate::config::REMOTE_SCHEMAS_VARIABLE;

/// What `values.schema.json` refers to over http or https.
#[derive(Debug)]
pub enum Schemas {
    /// Charts that need one are refused.
    Refused,
    Fetched(SchemaFetcher),
}

impl Schemas {
    pub fn new(are_fetched: bool) -> Self {
        match are_fetched {
            true => Self::Fetched(SchemaFetcher::new(Settings::from_environment())),
            false => Self::Refused,
        }
    }
}

impl RemoteSchemas for Schemas {
    fn fetch(&self, url: &str) -> Result<Vec<u8>, String> {
        match self {
            Self::Refused => Err(format!(
                "fetching schemas is switched off ({REMOTE_SCHEMAS_VARIABLE}=true switches it on)"
            )),
            Self::Fetched(fetcher) => fetcher.fetch(url),
        }
    }
}
