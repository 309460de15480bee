//! Writes of the ledger of which nobody knows whether they were carried out. No I/O.
//!
//! An answer can be lost, a caller can be dropped while it waits for one, and an API server can answer with a 500 or 504 to what it has
//! made all the same. Whatever was sent may be there then, and is the agent's own.

use std::collections::BTreeMap;

use super::entry::LedgerEntry;
use super::key::ReleaseKey;
use super::state::Pending;

/// How many different values of one release are remembered. One more, and the oldest is taken for somebody else's: the ledger is read anew.
const MOST_OF_A_RELEASE: usize = 8;

/// Values sent of each release since the ConfigMap's content was last known, each once, the oldest first.
#[derive(Debug, Default)]
pub(super) struct UnconfirmedWrites(BTreeMap<ReleaseKey, Vec<Option<LedgerEntry>>>);

impl UnconfirmedWrites {
    /// Takes note of what is about to be sent.
    pub(super) fn send(&mut self, changes: &Pending) {
        for (key, value) in changes {
            let sent = self.0.entry(key.clone()).or_default();
            if sent.contains(value) {
                continue;
            }
            if sent.len() == MOST_OF_A_RELEASE {
                sent.remove(0);
            }
            sent.push(value.clone());
        }
    }

    /// Where `found` is the content that was last known, `entries`, but for what was sent since: what of that was carried out.
    /// `None`: somebody else wrote.
    pub(super) fn carried_out(
        &self,
        entries: &BTreeMap<ReleaseKey, LedgerEntry>,
        found: &BTreeMap<ReleaseKey, LedgerEntry>,
    ) -> Option<Pending> {
        let mut carried_out = Pending::new();
        for key in entries.keys().chain(found.keys()) {
            let now = found.get(key);
            if now == entries.get(key) {
                continue;
            }
            let value = self.0.get(key)?.iter().find(|sent| sent.as_ref() == now)?;
            carried_out.insert(key.clone(), value.clone());
        }
        Some(carried_out)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use http::{Method, Request};
    use kube::client::Body;
    use parking_lot::Mutex;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::client::requests::Clients;
    use crate::client::scripted;
    use crate::ledger::Ledger;
    use crate::ledger::fixtures::{entry, key};

    fn entries(of: &[(&str, &str)]) -> BTreeMap<ReleaseKey, LedgerEntry> {
        let of = of.iter().map(|(name, bundle)| (key(name), entry(bundle)));
        of.collect()
    }

    fn sent(of: &[(&str, Option<&str>)]) -> Pending {
        let of = of
            .iter()
            .map(|(name, bundle)| (key(name), bundle.map(entry)));
        of.collect()
    }

    #[test]
    fn a_ledger_with_entries_this_agent_never_sent_was_written_by_somebody_else() {
        let before = entries(&[("a", "one"), ("b", "one"), ("c", "one")]);
        let mut unconfirmed = UnconfirmedWrites::default();
        unconfirmed.send(&sent(&[("a", Some("two")), ("b", None)]));
        unconfirmed.send(&sent(&[("a", Some("three")), ("d", Some("new"))]));
        type Found<'a> = &'a [(&'a str, &'a str)];
        let table: [(Found<'_>, Option<Pending>); 6] = [
            // No value was carried out.
            (&[("a", "one"), ("b", "one"), ("c", "one")], Some(sent(&[]))),
            (
                &[("a", "two"), ("c", "one")],
                Some(sent(&[("a", Some("two")), ("b", None)])),
            ),
            (
                &[("a", "three"), ("b", "one"), ("c", "one"), ("d", "new")],
                Some(sent(&[("a", Some("three")), ("d", Some("new"))])),
            ),
            // Somebody else's value, entry, deletion.
            (&[("a", "four"), ("b", "one"), ("c", "one")], None),
            (
                &[("a", "one"), ("b", "one"), ("c", "one"), ("e", "x")],
                None,
            ),
            (&[("a", "two")], None),
        ];
        for (found, carried_out) in table {
            let reported = unconfirmed.carried_out(&before, &entries(found));
            assert_eq!(reported, carried_out, "{found:?}");
        }
    }

    #[test]
    fn of_one_release_only_the_last_values_are_remembered() {
        let mut unconfirmed = UnconfirmedWrites::default();
        for n in 0..=MOST_OF_A_RELEASE {
            unconfirmed.send(&sent(&[("a", Some(&n.to_string()))]));
        }
        let reported =
            |value: &str| unconfirmed.carried_out(&entries(&[]), &entries(&[("a", value)]));
        assert!(reported("0").is_none());
        assert!(reported("1").is_some());
    }

    /// How the API server answers a write that it carries out.
    #[derive(Clone, Copy, Debug)]
    enum Answers {
        Well,
        /// An answer with 500, as the API server passes on errors of etcd.
        With500,
        Never,
    }

    /// The ledger's ConfigMap at an API server: merge patches, and no write over another version than the present one.
    struct Stored {
        map: Option<Value>,
        version: u64,
        answers: Answers,
        reads: usize,
    }

    impl Stored {
        fn serve(&mut self, method: &Method, body: Option<Value>) -> Option<(u16, Value)> {
            let status = |code: u16, reason: &str| {
                let status = json!({"status": "Failure", "code": code, "reason": reason});
                Some((code, status))
            };
            let version = |map: &Value| map.pointer("/metadata/resourceVersion").cloned();
            self.reads += usize::from(method == Method::GET);
            match (method.as_str(), &mut self.map, body) {
                ("GET", Some(map), _) => return Some((200, map.clone())),
                ("GET" | "PATCH", None, _) => return status(404, "NotFound"),
                ("POST", Some(_), _) => return status(409, "Conflict"),
                ("PATCH", Some(map), Some(patch)) if version(map) != version(&patch) => {
                    return status(409, "Conflict");
                }
                ("PATCH", Some(map), Some(patch)) => json_patch::merge(map, &patch),
                ("POST", map, Some(new)) => *map = Some(new),
                other => unreachable!("{other:?}"),
            }
            self.version += 1;
            let map = self.map.as_mut()?;
            map["metadata"]["resourceVersion"] = json!(self.version.to_string());
            match self.answers {
                Answers::Well => Some((200, map.clone())),
                Answers::With500 => status(500, ""),
                Answers::Never => None,
            }
        }
    }

    /// Clients of it.
    fn api_server(stored: &Arc<Mutex<Stored>>) -> Clients {
        let stored = Arc::clone(stored);
        scripted::clients(move |request: Request<Body>| {
            let stored = Arc::clone(&stored);
            async move {
                let method = request.method().clone();
                let body = request.into_body().collect_bytes().await.unwrap();
                let body = serde_json::from_slice(&body).ok();
                let answer = stored.lock().serve(&method, body);
                match answer {
                    Some(answer) => answer,
                    None => std::future::pending().await,
                }
            }
        })
    }

    /// Otherwise the agent took its own write for another agent's: it would read the whole ledger anew, and begin anew what it waits for.
    #[tokio::test(start_paused = true)]
    async fn a_write_that_was_carried_out_without_an_answer_is_recognised() {
        for map in [None, Some(json!({"metadata": {"resourceVersion": "1"}}))] {
            for answers in [Answers::With500, Answers::Never] {
                let stored = Arc::new(Mutex::new(Stored {
                    map: map.clone(),
                    version: 1,
                    answers,
                    reads: 0,
                }));
                let agent = scripted::identities(&api_server(&stored)).agent();
                let ledger = Ledger::load(&agent, "system").await.unwrap();
                let patience = Duration::from_secs(600);
                let write = ledger.attempt(key("a"), entry("one"));
                let lost = tokio::time::timeout(patience, write).await;
                assert!(!matches!(lost, Ok(Ok(()))), "{answers:?}");
                stored.lock().answers = Answers::Well;
                ledger.attempt(key("a"), entry("two")).await.unwrap();
                let replaced = ledger.until_replaced();
                assert!(tokio::time::timeout(patience, replaced).await.is_err());
                let written = stored.lock().map.clone().unwrap();
                let written = written["data"]["apps_a"].as_str().unwrap();
                assert!(written.contains("two"), "{written}");
            }
        }
    }

    /// Records go for another one only while the ledger is the one that is known; annotations are people's.
    #[rstest]
    #[case::as_it_was(None, true)]
    #[case::annotated(Some(json!({"metadata": {"annotations": {"a": "b"}}})), true)]
    #[case::of_another_time(Some(json!({"data": {"apps_a": null}})), false)]
    #[tokio::test(start_paused = true)]
    async fn a_restored_ledger_is_noticed_without_a_write(
        #[case] change: Option<Value>,
        #[case] is_confirmed: bool,
    ) {
        let stored = Arc::new(Mutex::new(Stored {
            map: None,
            version: 1,
            answers: Answers::Well,
            reads: 0,
        }));
        let agent = scripted::identities(&api_server(&stored)).agent();
        let ledger = Ledger::load(&agent, "system").await.unwrap();
        ledger.confirm_unreplaced().await.unwrap();
        ledger.attempt(key("a"), entry("one")).await.unwrap();
        let written = stored.lock().version;
        let is_changed = change.is_some();
        if let Some(mut change) = change {
            change["metadata"]["resourceVersion"] = json!(written.to_string());
            stored.lock().serve(&Method::PATCH, Some(change)).unwrap();
        }
        let before = stored.lock().version;
        // It is read whole only where its version is another one.
        for reads in [1 + usize::from(is_changed), 1] {
            stored.lock().reads = 0;
            let confirmed = ledger.confirm_unreplaced().await;
            assert_eq!(confirmed.is_ok(), is_confirmed, "{confirmed:?}");
            assert_eq!(stored.lock().reads, reads);
        }
        let replaced = tokio::time::timeout(Duration::from_secs(1), ledger.until_replaced());
        assert_eq!(replaced.await.is_err(), is_confirmed);
        assert_eq!(stored.lock().version, before);
    }

    #[tokio::test(start_paused = true)]
    async fn a_concurrent_ledger_write_is_not_overwritten() {
        let stored = Arc::new(Mutex::new(Stored {
            map: Some(json!({"metadata": {"resourceVersion": "1"}})),
            version: 1,
            answers: Answers::With500,
            reads: 0,
        }));
        let agent = scripted::identities(&api_server(&stored)).agent();
        let ledger = Ledger::load(&agent, "system").await.unwrap();
        ledger.attempt(key("a"), entry("one")).await.unwrap_err();
        {
            let mut stored = stored.lock();
            stored.answers = Answers::Well;
            let other = json!({"metadata": {"resourceVersion": "2"},
                "data": {"apps_a": r#"{"bundle":"other"}"#}});
            stored.serve(&Method::PATCH, Some(other)).unwrap();
        }
        ledger.attempt(key("b"), entry("two")).await.unwrap_err();
        ledger.until_replaced().await;
        let data = stored.lock().map.clone().unwrap()["data"].clone();
        assert_eq!(data, json!({"apps_a": r#"{"bundle":"other"}"#}));
    }
}
