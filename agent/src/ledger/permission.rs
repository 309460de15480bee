//! The permission for held removals: an annotation that an operator puts on the ledger.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::runtime::watcher::{self, Event};

use super::{LEDGER_NAME, Ledger};
use crate::api::RELEASE_HOLD_ANNOTATION;
use crate::client::listed::Metadata;
use crate::client::watch::{self, Broken};
use crate::public::PublicText;

impl Ledger {
    /// Tells each time that the permission to remove what is held is seen on the ConfigMap, by a watch of its metadata. Ends where that is
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

    /// Reads whether somebody let held removals through, and takes that in: it is for those that are held by now, and ends with them.
    /// Gives their bundles.
    ///
    /// # Errors
    /// The ConfigMap cannot be read or written.
    pub async fn take_permission(&self) -> kube::Result<BTreeSet<String>> {
        let map = self.metadata.get_opt(LEDGER_NAME).await?;
        if !map.is_some_and(|map| is_permitted(map.annotations())) {
            return Ok(BTreeSet::new());
        }
        let bundles = self.state.lock().release_held();
        self.flush(None).await?;
        Ok(bundles)
    }
}

/// Whether somebody let through what is held.
fn is_permitted(annotations: &BTreeMap<String, String>) -> bool {
    let value = annotations.get(RELEASE_HOLD_ANNOTATION);
    value.is_some_and(|value| value == "true")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use http::Request;
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::client::scripted;

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
