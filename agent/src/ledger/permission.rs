//! The permission for held removals: an annotation that an operator puts on the ledger.

use std::collections::BTreeSet;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::runtime::watcher::{self, Event};

use super::stored::is_permitted;
use super::{LEDGER_NAME, Ledger, LedgerEntry};
use crate::client::listed::Metadata;
use crate::client::watch::{self, Broken};
use crate::public::PublicText;

impl Ledger {
    /// Reports each time the permission to remove held releases is seen on the ConfigMap, by a watch of its metadata. Ends where that is
    /// forbidden, which it would be told again and again.
    pub fn permissions(&self) -> BoxStream<'static, ()> {
        let config = watcher::Config::default().fields(&format!("metadata.name={LEDGER_NAME}"));
        let events = watch::watch(self.metadata.clone(), config, Broken::Relist);
        let is_allowed = |event: &watcher::Result<Event<Metadata<ConfigMap>>>| {
            let is_forbidden = event.as_ref().is_err_and(watch::is_forbidden);
            std::future::ready(!is_forbidden)
        };
        let is_permission = async |event: watcher::Result<Event<_>>| {
            let map: Metadata<ConfigMap> = match event {
                Ok(Event::InitApply(map) | Event::Apply(map)) => map,
                Ok(_) => return None,
                Err(failed) => {
                    logging::debug!(
                        error = PublicText::nothing_secret_in(&failed),
                        "watching the ledger"
                    );
                    return None;
                }
            };
            is_permitted(map.annotations()).then_some(())
        };
        events
            .take_while(is_allowed)
            .filter_map(is_permission)
            .boxed()
    }

    /// Reads whether somebody let held removals through, and takes that in: it is for those that the ConfigMap says are held where it stands, and
    /// ends with them. [`Self::take_let_go`] gives their bundles.
    ///
    /// # Errors
    /// The ConfigMap cannot be read or written.
    pub async fn take_permission(&self) -> kube::Result<()> {
        let map = crate::error::found(self.metadata.get(LEDGER_NAME).await)?;
        if !map.is_some_and(|map| is_permitted(map.annotations())) {
            return Ok(());
        }
        let mut written = self.writing.lock().await;
        self.catch_up(&mut written).await?;
        drop(written);
        self.flush(None).await
    }

    /// A bundle is there: neither the proof of a removal that has begun nor a permission to remove what it left is for when it goes again. That is
    /// written with whatever is written next, or by [`Self::settle_all`].
    pub fn came_back(&self, bundle: &str) {
        let mut state = self.state.lock();
        // Of many bundles that are listed few were ever held, or about to go.
        if state.has_proven() {
            state.change(bundle, LedgerEntry::unproven);
        }
    }

    /// Bundles that a permission released; reported once.
    pub fn take_let_go(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.state.lock().let_go)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use http::{Method, Request};
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::super::Hold;
    use super::super::fixtures::{self, NONE};
    use super::*;
    use crate::api::RELEASE_HOLD_ANNOTATION;
    use crate::client::scripted;

    /// The permission was given while the hold of another bundle was about to be written.
    #[tokio::test]
    async fn a_permission_does_not_cover_a_hold_that_was_being_written() {
        let entry = |bundle: &str, hold| LedgerEntry {
            bundle: bundle.to_owned(),
            hold,
            ..LedgerEntry::default()
        };
        let text = |entry: LedgerEntry| serde_json::to_string(&entry).unwrap();
        let held = text(entry("before", Some(Hold::Held)));
        let free = text(entry("after", None));
        let data = json!({"apps_before": held, "apps_after": free});
        let given = Arc::new(AtomicBool::new(false));
        let written = Arc::new(Mutex::new(Vec::<Value>::new()));
        let (seen, patches) = (Arc::clone(&given), Arc::clone(&written));
        let clients = scripted::clients(move |request: Request<Body>| {
            let (seen, patches) = (Arc::clone(&seen), Arc::clone(&patches));
            let data = data.clone();
            async move {
                let is_write = request.method() != Method::GET;
                let body = request.into_body().collect_bytes().await.unwrap();
                if is_write && !seen.swap(true, Ordering::Relaxed) {
                    let status = json!({"kind": "Status", "status": "Failure", "code": 409});
                    return (409, status);
                }
                if is_write {
                    patches.lock().push(serde_json::from_slice(&body).unwrap());
                }
                let annotations = match seen.load(Ordering::Relaxed) {
                    true => json!({RELEASE_HOLD_ANNOTATION: "true"}),
                    false => json!({}),
                };
                let metadata = json!({"resourceVersion": "7", "annotations": annotations});
                (200, json!({"metadata": metadata, "data": data}))
            }
        });
        let agent = scripted::identities(&clients).agent();
        let ledger = Ledger::load(&agent, "system").await.unwrap();
        let bundles = |name: &str| BTreeSet::from([name.to_owned()]);
        ledger.hold(&bundles("after")).await.unwrap();
        let holds = ["before", "after"].map(|name| ledger.of_bundle(name)[0].1.hold);
        assert_eq!(holds, [Some(Hold::Released), Some(Hold::Held)]);
        // All changes went out at once, and the released bundles are reported.
        let written = written.lock().clone();
        assert_eq!(written.len(), 1, "{written:?}");
        let annotations = &written[0]["metadata"]["annotations"];
        assert!(
            annotations
                .get(RELEASE_HOLD_ANNOTATION)
                .is_some_and(Value::is_null)
        );
        assert_eq!(written[0]["data"].as_object().unwrap().len(), 2);
        assert_eq!(ledger.take_let_go(), bundles("before"));
        assert!(ledger.take_let_go().is_empty());
    }

    /// It was given while no agent ran; then the bundle came back, and upstream was restored to before that.
    #[tokio::test]
    async fn a_permission_that_nobody_has_read_does_not_cover_what_is_lost_since() {
        let entry = LedgerEntry {
            bundle: "held".to_owned(),
            hold: Some(Hold::Held),
            ..LedgerEntry::default()
        };
        let data = json!({"apps_held": serde_json::to_string(&entry).unwrap()});
        let upstream = json!({"server": "a", "namespace": "", "version": 7}).to_string();
        let annotations =
            json!({RELEASE_HOLD_ANNOTATION: "true", super::super::UPSTREAM_ANNOTATION: upstream});
        let metadata = json!({"resourceVersion": "7", "annotations": annotations});
        let map = json!({"metadata": metadata, "data": data});
        let clients = scripted::clients(move |_| std::future::ready((200, map.clone())));
        for (version, expected) in [(8, Hold::Released), (6, Hold::Held)] {
            let agent = scripted::identities(&clients).agent();
            let ledger = Ledger::load(&agent, "system").await.unwrap();
            ledger.check_continuity(fixtures::upstream(version), 7, fixtures::listed(&NONE));
            ledger.take_permission().await.unwrap();
            assert_eq!(
                ledger.of_bundle("held")[0].1.hold,
                Some(expected),
                "{version}"
            );
        }
    }

    /// A hold whose write failed was never visible to the operator, so no permission covers it.
    #[tokio::test]
    async fn a_permission_does_not_cover_a_hold_that_could_not_be_written() {
        let entry = |bundle: &str, hold| {
            let entry = LedgerEntry {
                bundle: bundle.to_owned(),
                hold,
                ..LedgerEntry::default()
            };
            serde_json::to_string(&entry).unwrap()
        };
        let (shown, unseen) = (entry("shown", Some(Hold::Held)), entry("unseen", None));
        let data = json!({"apps_shown": shown, "apps_unseen": unseen});
        let given = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&given);
        let clients = scripted::clients(move |request: Request<Body>| {
            let is_given = seen.load(Ordering::Relaxed);
            let status = json!({"kind": "Status", "status": "Failure", "code": 500});
            let annotations = match is_given {
                true => json!({RELEASE_HOLD_ANNOTATION: "true"}),
                false => json!({}),
            };
            let metadata = json!({"resourceVersion": "7", "annotations": annotations});
            let map = json!({"metadata": metadata, "data": data});
            let is_refused = request.method() != Method::GET && !is_given;
            let answer = if is_refused {
                (500, status)
            } else {
                (200, map)
            };
            async { answer }
        });
        let agent = scripted::identities(&clients).agent();
        let ledger = Ledger::load(&agent, "system").await.unwrap();
        let bundles = |name: &str| BTreeSet::from([name.to_owned()]);
        ledger.hold(&bundles("unseen")).await.unwrap_err();
        given.store(true, Ordering::Relaxed);
        ledger.take_permission().await.unwrap();
        assert_eq!(ledger.take_let_go(), bundles("shown"));
        let holds = ["shown", "unseen"].map(|name| ledger.of_bundle(name)[0].1.hold);
        assert_eq!(holds, [Some(Hold::Released), Some(Hold::Held)]);
    }

    /// An account without the right to watch ConfigMaps would ask every ten seconds, for as long as anything is held.
    #[tokio::test(start_paused = true)]
    async fn a_permission_that_may_not_be_watched_is_not_asked_for_again_and_again() {
        let lists = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&lists);
        let clients = scripted::clients(move |request: Request<Body>| {
            let is_list = request.uri().query().is_some();
            counted.fetch_add(usize::from(is_list), Ordering::Relaxed);
            let status = json!({"kind": "Status", "status": "Failure", "code": 403});
            let map = (200, json!({"metadata": {}}));
            let answer = if is_list { (403, status) } else { map };
            async { answer }
        });
        let agent = scripted::identities(&clients).agent();
        let ledger = Ledger::load(&agent, "system").await.unwrap();
        let mut permissions = ledger.permissions();
        let hour = Duration::from_secs(3600);
        let ended = tokio::time::timeout(hour, permissions.next()).await;
        assert_eq!(ended, Ok(None));
        assert_eq!(lists.load(Ordering::Relaxed), 1);
    }
}
