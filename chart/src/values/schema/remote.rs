//! Schemas that a chart's schema refers to by address.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How many a chart may refer to, with all charts in it.
const MAX_DOCUMENTS: usize = 50;
/// How long fetching them may take together: each has a time of its own, and what waits for them has others waiting.
const MAX_TIME: Duration = Duration::from_secs(30);

/// Gets what is at an address of http or https. Helm always does; where charts of strangers are rendered inside a network, their
/// authors would choose what is requested there, so that nothing is fetched unless an implementation is given.
pub trait RemoteSchemas: Sync {
    /// The document, as it was sent. Called from a thread that may wait.
    ///
    /// # Errors
    /// It cannot be had; the text says why.
    fn fetch(&self, url: &str) -> Result<Vec<u8>, String>;
}

/// What is fetched for one chart, with all charts in it.
pub(super) struct Fetches<'r> {
    remote: &'r dyn RemoteSchemas,
    documents_left: Cell<usize>,
    time_left: Cell<Duration>,
}

impl<'r> Fetches<'r> {
    pub(super) fn new(remote: &'r dyn RemoteSchemas) -> Self {
        Self {
            remote,
            documents_left: Cell::new(MAX_DOCUMENTS),
            time_left: Cell::new(MAX_TIME),
        }
    }

    /// See [`RemoteSchemas::fetch`].
    pub(super) fn fetch(&self, url: &str) -> Result<Vec<u8>, String> {
        let Some(left) = self.documents_left.get().checked_sub(1) else {
            return Err(format!(
                "more than {MAX_DOCUMENTS} schemas are referred to by address"
            ));
        };
        self.documents_left.set(left);
        if self.time_left.get().is_zero() {
            return Err(format!(
                "fetching schemas took more than {} s",
                MAX_TIME.as_secs()
            ));
        }
        let begun = Instant::now();
        let fetched = self.remote.fetch(url);
        let left = self.time_left.get().saturating_sub(begun.elapsed());
        self.time_left.set(left);
        fetched
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::values::schema::validate;
    use crate::{Chart, Metadata, Warnings};

    /// Has what takes anything, at any address.
    struct Anything;

    impl RemoteSchemas for Anything {
        fn fetch(&self, _: &str) -> Result<Vec<u8>, String> {
            Ok(b"true".to_vec())
        }
    }

    /// A chart whose schema refers to so many others, with charts in it.
    fn chart(name: &str, references: usize, dependencies: Vec<Chart>) -> Chart {
        let references =
            (0..references).map(|at| json!({"$ref": format!("https://h/{name}/{at}")}));
        let schema = json!({ "allOf": references.collect::<Vec<_>>() });
        Chart {
            metadata: Metadata {
                name: name.to_owned(),
                ..Metadata::default()
            },
            schema: Some(schema.to_string().into()),
            dependencies,
            ..Chart::default()
        }
    }

    #[test]
    fn schemas_by_address_are_bounded_in_number() {
        let values = json!({"inner": {}});
        let checked = |chart: &Chart| {
            let fit = validate(chart, &values, Some(&Anything), &mut Warnings::default());
            fit.map_err(|misfit| misfit.to_string())
        };
        checked(&chart("web", 50, vec![])).expect("as many as there may be");
        let error = checked(&chart("web", 51, vec![])).expect_err("too many");
        assert!(error.contains("more than 50 schemas"), "{error}");
        let inner = chart("inner", 25, vec![]);
        checked(&chart("web", 25, vec![inner.clone()])).expect("as many together");
        let error = checked(&chart("web", 26, vec![inner])).expect_err("too many together");
        assert!(error.contains("more than 50 schemas"), "{error}");
    }

    #[test]
    fn schemas_by_address_have_a_time_together() {
        let fetches = Fetches::new(&Anything);
        fetches.fetch("https://h/1").expect("in time");
        fetches.time_left.set(Duration::ZERO);
        let error = fetches.fetch("https://h/2").expect_err("too late");
        assert_eq!(error, "fetching schemas took more than 30 s");
    }
}
