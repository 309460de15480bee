//! Schemas that a chart's schema refers to by address.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How many a chart may refer to, with all charts in it.
const MAX_DOCUMENTS: usize = 50;
/// How long fetching them may take together: each has a time of its own, and what waits for them has others waiting.
const MAX_TIME: Duration = Duration::from_secs(30);
/// Bytes that are remembered; what has no room is fetched again, and counted again.
const MAX_REMEMBERED: usize = 4 << 20;

/// Bytes that are read again by other charts with the same address: each reads and compiles them for itself.
const MAX_READ_AGAIN: usize = MAX_DOCUMENTS * MAX_REMEMBERED;

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
    /// By URL: charts of one author often refer to the same definitions.
    known: RefCell<BTreeMap<String, Rc<[u8]>>>,
    room: Cell<usize>,
    read_again_left: Cell<usize>,
}

impl<'r> Fetches<'r> {
    pub(super) fn new(remote: &'r dyn RemoteSchemas) -> Self {
        Self {
            remote,
            documents_left: Cell::new(MAX_DOCUMENTS),
            time_left: Cell::new(MAX_TIME),
            known: RefCell::default(),
            room: Cell::new(MAX_REMEMBERED),
            read_again_left: Cell::new(MAX_READ_AGAIN),
        }
    }

    /// See [`RemoteSchemas::fetch`]. What was fetched is not fetched again.
    pub(super) fn fetch(&self, url: &str) -> Result<Rc<[u8]>, String> {
        if let Some(known) = self.known.borrow().get(url) {
            let Some(left) = self.read_again_left.get().checked_sub(known.len()) else {
                return Err(format!(
                    "schemas that are referred to by address take more than {} MiB in all charts together",
                    MAX_READ_AGAIN >> 20
                ));
            };
            self.read_again_left.set(left);
            return Ok(Rc::clone(known));
        }
        let fetched: Rc<[u8]> = self.fetch_counted(url)?.into();
        if let Some(left) = self.room.get().checked_sub(fetched.len()) {
            self.room.set(left);
            let mut known = self.known.borrow_mut();
            known.insert(url.to_owned(), Rc::clone(&fetched));
        }
        Ok(fetched)
    }

    fn fetch_counted(&self, url: &str) -> Result<Vec<u8>, String> {
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

    /// Has it after more than a millisecond.
    struct Slow;

    impl RemoteSchemas for Slow {
        fn fetch(&self, url: &str) -> Result<Vec<u8>, String> {
            std::thread::sleep(Duration::from_millis(2));
            Anything.fetch(url)
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

    /// Has four mebibytes that take anything.
    struct Long;

    impl RemoteSchemas for Long {
        fn fetch(&self, _: &str) -> Result<Vec<u8>, String> {
            Ok([&b"true"[..], &vec![b' '; MAX_REMEMBERED - 4]].concat())
        }
    }

    /// Each of very many charts with one address reads it.
    #[test]
    fn what_charts_read_of_one_address_is_bounded() {
        let fetches = Fetches::new(&Long);
        for _ in 0..=MAX_DOCUMENTS {
            fetches.fetch("https://h/definitions").unwrap();
        }
        let refused = fetches.fetch("https://h/definitions").unwrap_err();
        assert!(refused.contains("more than 200 MiB"), "{refused}");
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
    fn a_schema_that_many_charts_refer_to_counts_once() {
        let named = |at: usize| Chart {
            metadata: Metadata {
                name: format!("inner{at}"),
                ..Metadata::default()
            },
            ..chart("common", 1, vec![])
        };
        let umbrella = Chart {
            dependencies: (0..51).map(named).collect(),
            ..chart("common", 1, vec![])
        };
        let values = (0..51).map(|at| (format!("inner{at}"), json!({})));
        let values = serde_json::Value::Object(values.collect());
        let mut warnings = Warnings::default();
        validate(&umbrella, &values, Some(&Anything), &mut warnings).expect("they are one");
    }

    #[test]
    fn what_has_no_room_is_not_remembered() {
        let fetches = Fetches {
            room: Cell::new(4),
            ..Fetches::new(&Anything)
        };
        for url in ["https://h/1", "https://h/2", "https://h/1", "https://h/2"] {
            fetches.fetch(url).expect("it is there");
        }
        assert_eq!(fetches.documents_left.get(), MAX_DOCUMENTS - 3);
    }

    #[test]
    fn schemas_by_address_have_a_time_together() {
        let fetches = Fetches {
            time_left: Cell::new(Duration::from_millis(1)),
            ..Fetches::new(&Slow)
        };
        fetches.fetch("https://h/1").expect("in time");
        let error = fetches.fetch("https://h/2").expect_err("too late");
        assert_eq!(error, "fetching schemas took more than 30 s");
    }
}
