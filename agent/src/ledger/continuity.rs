//! Whether upstream still is the one the bundles came from: what of it is asked, what of the answers is written, and which BundleDeployment is the
//! agent's own, which shows that.

use std::time::Duration;

use super::Ledger;
use super::losses::Losses;
use super::state::LedgerState;
use super::upstream::{Asked, ContinuityBreak, Heartbeat, Listed, Remembered, UpstreamState};
use crate::api::AGENT_BUNDLE_PREFIX;

/// Whether a bundle may be the agent's own by its name: Fleet calls it `fleet-agent-` and the name of the cluster, or what that is cut to, and once
/// called it `fleet-agent`.
fn may_be_own(name: &str) -> bool {
    let rest = name.strip_prefix(AGENT_BUNDLE_PREFIX);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Whether a bundle is the agent's own, which is called `known` where that is known to be there, or to have been. Until then any one counts that is
/// called alike: that it is not recognised would let go what vanishes with it.
pub fn is_own(name: &str, known: Option<&str>) -> bool {
    match known {
        Some(known) => name == known,
        None => may_be_own(name),
    }
}

impl Ledger {
    /// The highest version of upstream seen so far. To be asked before a list is: a list that was answered before a newer event came
    /// is no step back.
    pub fn seen_version(&self) -> u64 {
        let state = self.state.lock();
        state.upstream.as_ref().map_or(0, |seen| seen.version)
    }

    /// Whether upstream is known not to be what it was, and no list has shown which bundles are lost by that. To be asked before a list is.
    pub fn is_broken(&self) -> bool {
        let state = self.state.lock();
        let seen = state.upstream.as_ref();
        seen.is_some_and(|seen| seen.broken.is_some())
    }

    /// The last heartbeat that upstream is known to have taken. To be asked before upstream is.
    pub fn seen_heartbeat(&self) -> Heartbeat {
        let state = self.state.lock();
        let seen = state.upstream.as_ref();
        seen.map_or_else(Heartbeat::default, |seen| seen.heartbeat.clone())
    }

    /// How often upstream turned out not to be the one seen before. A watch that began earlier gets no events any more.
    pub fn breaks(&self) -> u64 {
        self.state.lock().breaks
    }

    /// Compares upstream with the one seen before, whose version was `seen_version` when it was asked: the break that was found and not reported yet,
    /// and whether there is anything to write, by [`Self::write`]. After a break, every bundle that is not `listed` is lost: its absence is no proof
    /// from now on. Bundles that are listed are not, and that one of them is gone is to be proven anew, unless it was seen to go since the list was
    /// requested. That is known in memory at once, whether or not it can be written, and is not found anew by the next list.
    pub fn check_continuity(
        &self,
        now: UpstreamState,
        seen_version: u64,
        listed: Listed<'_>,
    ) -> (Option<ContinuityBreak>, bool) {
        let mut state = self.state.lock();
        state.check_continuity(now, seen_version, listed)
    }

    /// Writes what is pending.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn write(&self) -> kube::Result<()> {
        self.flush(None).await
    }

    /// Upstream is to be asked what it remembers of the last heartbeat, whatever it said before.
    pub fn doubt_upstream(&self) {
        self.asked.send_modify(|asked| asked.doubts += 1);
    }

    /// How often it was. To be asked before upstream is: an answer to an earlier doubt settles no later one.
    pub fn doubts(&self) -> u64 {
        self.asked.borrow().doubts
    }

    /// Upstream has answered what it was asked after [`Self::doubts`] said `doubt`: `remembered` is what it remembers of the last heartbeat, nothing
    /// where it does not say; `sent` is what [`Self::seen_heartbeat`] said before it was asked. A break that this proves is written before the next heartbeat
    /// overwrites the proof.
    ///
    /// # Errors
    /// It cannot be written. Then the break is remembered in memory, and upstream is to be asked again.
    pub async fn asked_upstream(
        &self,
        doubt: u64,
        remembered: Option<Remembered>,
        sent: &Heartbeat,
    ) -> kube::Result<()> {
        let is_told = remembered.is_some();
        let is_broken = {
            match (&mut self.state.lock().upstream, remembered) {
                (Some(upstream), Some(remembered)) => {
                    upstream.remembers(remembered, sent);
                    upstream.broken.is_some()
                }
                _ => false,
            }
        };
        if is_broken {
            self.flush(None).await?;
        }
        self.asked.send_modify(|asked| {
            asked.answered = asked.answered.max(doubt);
            if is_told {
                asked.told = asked.told.max(doubt);
            }
        });
        Ok(())
    }

    /// Waits until it has, `limit` at most: what it remembers is gone with the next heartbeat.
    ///
    /// # Cancellation
    /// Safe.
    pub async fn until_asked(&self, limit: Duration) {
        let mut asked = self.asked.subscribe();
        // A silent upstream takes no heartbeat either.
        let _ = tokio::time::timeout(limit, asked.wait_for(Asked::is_settled)).await;
    }

    /// Takes note that a heartbeat of this time, in seconds since 1970, is about to be sent; but not before upstream has said which one it remembers,
    /// as that would account for whatever this is, unless all that is not listed counts as lost anyhow: the heartbeat may say so, by [`Self::vouches_for`].
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn reporting(&self, at: i64) -> kube::Result<()> {
        let is_told = self.asked.borrow().is_told();
        match &mut self.state.lock().upstream {
            Some(upstream) if is_told || upstream.broken.is_some() => upstream.sends(at),
            _ => return Ok(()),
        }
        self.flush(None).await
    }

    /// What the next heartbeat is to say of the ledger, by [`super::heartbeat_manager`]: the latest one that the ConfigMap is known to account for, in seconds
    /// since 1970; any, where it lacks a break.
    pub fn vouches_for(&self) -> Option<i64> {
        self.state.lock().vouches_for()
    }

    /// Takes note of a heartbeat that upstream took.
    ///
    /// # Errors
    /// It cannot be written; the next write tries again.
    pub async fn reported(&self, heartbeat: Heartbeat) -> kube::Result<()> {
        match &mut self.state.lock().upstream {
            Some(upstream) => upstream.reports(heartbeat),
            None => return Ok(()),
        }
        self.flush(None).await
    }

    /// Takes note of the version of an event or of the answer to a write, which no later list may fall behind.
    pub fn saw_version(&self, version: Option<&str>) {
        let version = version.and_then(|text| text.parse::<u64>().ok());
        if let (Some(upstream), Some(version)) = (&mut self.state.lock().upstream, version) {
            upstream.sees(version);
        }
    }

    /// An object of upstream's is in a state of before: the list that is compared next says which bundles are lost by that.
    pub fn found_restored(&self) {
        if let Some(upstream) = &mut self.state.lock().upstream {
            upstream.broken = Some(ContinuityBreak::Restored);
        }
    }

    /// What is known to be lost, written or not.
    pub fn losses(&self) -> Losses {
        // No later ledger has seen what this one does not have.
        let version = self.version();
        let state = self.state.lock();
        Losses {
            bundles: state.losses(),
            upstream: state.upstream.clone(),
            version: version.filter(|_| !state.has_unwritten_break()),
        }
    }

    /// Takes over what was known to be lost before the ledger was read, until upstream lists it. A later ledger knows better: another agent led meanwhile,
    /// and may have seen it listed. Whether there is anything to write, by [`Self::write`].
    pub fn inherits_losses(&self, losses: Losses) -> bool {
        let is_later = losses.version.is_some() && self.version() > losses.version;
        let mut state = self.state.lock();
        if !is_later {
            state.inherits_losses(losses.bundles);
            if let Some(former) = &losses.upstream {
                state.inherits_upstream(former);
            }
        }
        state.has_unwritten_break()
    }

    /// Whether a heartbeat of this time, in seconds since 1970, may not be sent: it would overwrite what proves a break, and prove it to nobody.
    pub fn hides_break(&self, at: i64) -> bool {
        self.state.lock().hides_break(at)
    }

    /// The ConfigMap's version, where what it holds is what was read and written here.
    fn version(&self) -> Option<u64> {
        let written = self.writing.try_lock().ok()?;
        let is_known = !written.is_unanswered && !*self.replaced.borrow();
        written.version.parse().ok().filter(|_| is_known)
    }

    /// Whether the agent's own bundle was ever listed, or deployed, under this name.
    pub fn knows_own(&self, name: &str) -> bool {
        let state = self.state.lock();
        let seen = state.upstream.as_ref();
        seen.is_some_and(|seen| seen.own.contains_key(name))
            || state.iter().any(|(_, entry)| entry.bundle == name)
    }
}

impl LedgerState {
    /// Whether the agent ever had a BundleDeployment of its own.
    pub(super) fn had_own(&self) -> bool {
        self.upstream.as_ref().is_some_and(|seen| seen.has_own)
            || self.iter().any(|(_, entry)| may_be_own(&entry.bundle))
    }

    /// Whether a bundle is one that was noted as the agent's own, or may be where none was.
    pub(super) fn is_noted_as_own(&self, name: &str) -> bool {
        let noted = self.upstream.as_ref().map(|seen| &seen.own);
        match noted.filter(|noted| !noted.is_empty()) {
            Some(noted) => noted.contains_key(name),
            None => may_be_own(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;
    use serde_json::json;

    use super::super::LedgerEntry;
    use super::*;
    use crate::client::scripted;

    /// What upstream remembers is to be compared with what was noted before: an answer that does not tell that, as where the rights to ask are gone, is none.
    #[tokio::test]
    async fn no_heartbeat_is_noted_before_upstream_has_said_which_it_remembers() {
        let ledger = restored_ledger(200).await;
        let sending = || ledger.state.lock().upstream.as_ref().unwrap().sending;
        let sent = ledger.seen_heartbeat();
        ledger.reporting(160).await.unwrap();
        let refused = ledger.asked_upstream(ledger.doubts(), None, &sent);
        refused.await.unwrap();
        ledger.reporting(160).await.unwrap();
        assert_eq!((sending(), ledger.vouches_for()), (None, Some(40)));
        ledger.doubt_upstream();
        let told = ledger.asked_upstream(ledger.doubts(), Some(remembered(100, Some(100))), &sent);
        told.await.unwrap();
        assert!(ledger.is_broken());
        ledger.reporting(160).await.unwrap();
        assert_eq!((sending(), ledger.vouches_for()), (Some(160), Some(160)));
    }

    /// Upstream's record of a heartbeat of this time, which a ledger that accounted for those up to `noted` let go out.
    fn remembered(at: i64, noted: Option<i64>) -> Remembered {
        let manager = super::super::heartbeat_manager(at, noted);
        let at = k8s_openapi::jiff::Timestamp::from_second(at).unwrap();
        let fields = json!({"f:status": {"f:agent": {"f:lastSeen": {}}}});
        let cluster = json!({
            "metadata": {"uid": "one", "managedFields": [
                {"manager": manager, "operation": "Update", "fieldsV1": fields}]},
            "spec": {}, "status": {"agent": {"lastSeen": at}},
        });
        Remembered::of(&serde_json::from_value(cluster).unwrap())
    }

    /// The ledger as it was when upstream had taken a heartbeat at 40. Writes are answered with this code.
    async fn restored_ledger(code: u16) -> Ledger {
        let upstream = json!({"server": "a", "namespace": "n", "version": 7, "reported": 40, "cluster": "one"});
        let annotations = json!({crate::ledger::UPSTREAM_ANNOTATION: upstream.to_string()});
        let map = json!({"metadata": {"resourceVersion": "7", "annotations": annotations}});
        let clients = scripted::clients(move |request| {
            let answer = match request.method() == http::Method::GET || code == 200 {
                true => (200, map.clone()),
                false => (code, json!({"kind": "Status", "code": code})),
            };
            std::future::ready(answer)
        });
        let agent = scripted::identities(&clients).agent();
        Ledger::load(&agent, "system").await.unwrap()
    }

    /// Upstream, or the cluster, was restored, and nothing can be written into the ledger for now: the next heartbeat overwrites what upstream remembers.
    #[rstest]
    #[case::the_cluster(100, true)]
    #[case::upstream(20, true)]
    #[case::none(40, false)]
    #[tokio::test]
    async fn a_heartbeat_takes_over_the_proof_that_could_not_be_written(
        #[case] told: i64,
        #[case] is_broken: bool,
    ) {
        let ledger = restored_ledger(500).await;
        assert_eq!(ledger.vouches_for(), Some(40));
        let sent = ledger.seen_heartbeat();
        let told = Some(remembered(told, Some(told)));
        let asked = ledger.asked_upstream(ledger.doubts(), told, &sent).await;
        assert_eq!(asked.is_err(), is_broken);
        ledger.reporting(160).await.unwrap_err();
        let noted = ledger.vouches_for();
        assert_eq!(noted, if is_broken { Some(i64::MAX) } else { Some(40) });
        // The process dies, or loses its lease, and whoever reads the ledger next does not know.
        let next = restored_ledger(500).await;
        let told = || Some(remembered(160, noted));
        let sent = next.seen_heartbeat();
        let found = next.asked_upstream(next.doubts(), told(), &sent);
        assert_eq!(
            (found.await.is_err(), next.is_broken()),
            (is_broken, is_broken)
        );
        // This one does, also where the answer to that heartbeat was lost.
        let seen = ledger.state.lock().upstream.clone().unwrap();
        ledger.state.lock().upstream.as_mut().unwrap().broken = None;
        ledger.doubt_upstream();
        let again = ledger.asked_upstream(ledger.doubts(), told(), &seen.heartbeat);
        assert!(again.await.is_ok() && !ledger.is_broken());
    }

    /// A break was found and a list has shown what is lost by it, which cannot be written for now.
    #[tokio::test]
    async fn a_heartbeat_proves_losses_that_could_not_be_written() {
        let ledger = restored_ledger(500).await;
        let (known, lost) = (super::super::fixtures::key("a"), "lost");
        let entry = super::super::fixtures::entry(lost);
        ledger.state.lock().entries.insert(known.clone(), entry);
        ledger.found_restored();
        assert_eq!(ledger.vouches_for(), Some(i64::MAX));
        let now = UpstreamState {
            server: "a".to_owned(),
            namespace: "n".to_owned(),
            version: 8,
            ..UpstreamState::default()
        };
        let none = super::super::fixtures::listed(&super::super::fixtures::NONE);
        ledger.check_continuity(now, 7, none);
        ledger.write().await.unwrap_err();
        assert!(ledger.is_lost(lost) && !ledger.is_broken());
        assert_eq!(ledger.vouches_for(), Some(i64::MAX));
        let mut state = ledger.state.lock();
        let pending = state.pending.clone();
        state.wrote(pending);
        drop(state);
        assert_eq!(ledger.vouches_for(), Some(40));
    }

    /// The process lost the lease. What it comes back to was restored from a backup, is what it left, or was written by who led meanwhile.
    #[rstest]
    #[case::restored("6", true)]
    #[case::as_it_was_left("7", true)]
    #[case::written_since("8", false)]
    #[tokio::test]
    async fn losses_are_taken_over_but_by_a_later_ledger(
        #[case] found: &'static str,
        #[case] expected: bool,
    ) {
        let ledger = async |version: &'static str| {
            let entry = json!({"bundle": "lost"}).to_string();
            let map =
                json!({"metadata": {"resourceVersion": version}, "data": {"apps_lost": entry}});
            let clients = scripted::clients(move |_| std::future::ready((200, map.clone())));
            let agent = scripted::identities(&clients).agent();
            Ledger::load(&agent, "system").await.unwrap()
        };
        let former = ledger("7").await;
        let restored = Some(ContinuityBreak::Restored);
        former.state.lock().change("lost", |entry| LedgerEntry {
            lost: restored,
            ..entry
        });
        let written = former.state.lock().pending.clone();
        former.state.lock().wrote(written);
        let ledger = ledger(found).await;
        ledger.inherits_losses(former.losses());
        assert_eq!(ledger.is_lost("lost"), expected);
    }

    /// The version of the ledger is not known, as an answer to a write was lost. Another agent has led since, and upstream, which was restored then, is behind
    /// what the former session saw.
    #[rstest]
    #[case::by_this_one(100, 9000)]
    #[case::by_another_one(900, 6000)]
    #[tokio::test]
    async fn a_version_seen_before_another_agent_led_is_not_taken_over(
        #[case] reported: i64,
        #[case] expected: u64,
    ) {
        let ledger = async |version: u64, reported: i64| {
            let seen = json!({
                "server": "a", "namespace": "n", "version": version, "reported": reported, "cluster": "one",
            });
            let annotations = json!({crate::ledger::UPSTREAM_ANNOTATION: seen.to_string()});
            let map = json!({"metadata": {"resourceVersion": "7", "annotations": annotations}});
            let clients = scripted::clients(move |_| std::future::ready((200, map.clone())));
            let agent = scripted::identities(&clients).agent();
            Ledger::load(&agent, "system").await.unwrap()
        };
        let losses = Losses {
            version: None,
            ..ledger(9000, 100).await.losses()
        };
        let ledger = ledger(6000, reported).await;
        ledger.inherits_losses(losses);
        let seen = ledger.state.lock().upstream.clone().unwrap();
        assert_eq!(seen.version, expected);
    }

    /// A break is found while the note of the next heartbeat is on its way to the ConfigMap, which has that heartbeat and not the break.
    #[tokio::test]
    async fn a_heartbeat_that_is_noted_without_a_break_waits_until_that_is_noted() {
        let ledger = restored_ledger(200).await;
        let sent = ledger.seen_heartbeat();
        let told = Some(remembered(40, Some(40)));
        let asked = ledger.asked_upstream(ledger.doubts(), told, &sent).await;
        assert!(asked.is_ok());
        ledger.reporting(160).await.unwrap();
        assert!(!ledger.hides_break(160));
        ledger.found_restored();
        assert!(ledger.hides_break(160) && !ledger.hides_break(161));
        ledger.write().await.unwrap();
        assert!(!ledger.hides_break(160));
    }

    /// Upstream is silent, so that nothing else is written. What was inherited goes out at once, and counts as unwritten until then, whatever version
    /// the ledger has.
    #[tokio::test]
    async fn losses_that_were_taken_over_are_written_before_upstream_answers() {
        let writes = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let ledger = async |broken: Option<&str>| {
            let seen = json!({"server": "a", "namespace": "n", "version": 7, "broken": broken});
            let annotations = json!({crate::ledger::UPSTREAM_ANNOTATION: seen.to_string()});
            let metadata = json!({"resourceVersion": "7", "annotations": annotations});
            let entry = json!({"bundle": "lost"}).to_string();
            let map = json!({"metadata": metadata, "data": {"apps_lost": entry}});
            let writes = Arc::clone(&writes);
            let clients = scripted::clients(move |request: http::Request<kube::client::Body>| {
                let (writes, map) = (Arc::clone(&writes), map.clone());
                async move {
                    if request.method() != http::Method::GET {
                        let body = request.into_body().collect_bytes().await.unwrap();
                        let body = String::from_utf8_lossy(&body).replace('\\', "");
                        writes.lock().push(body);
                    }
                    (200, map)
                }
            });
            let agent = scripted::identities(&clients).agent();
            Ledger::load(&agent, "system").await.unwrap()
        };
        let former = ledger(None).await;
        assert!(!former.inherits_losses(Losses::default()));
        former.found_restored();
        former.saw_version(Some("9"));
        former.state.lock().change("lost", |entry| LedgerEntry {
            lost: Some(ContinuityBreak::Restored),
            ..entry
        });
        let losses = former.losses();
        assert_eq!(losses.version, None);
        let next = ledger(None).await;
        assert!(next.inherits_losses(losses.clone()));
        assert!(next.is_broken() && next.seen_version() == 9);
        // The lease is lost again before anything is written.
        assert_eq!(next.losses(), losses);
        next.write().await.unwrap();
        let written = writes.lock().concat();
        assert!(written.contains(r#""lost":"restored""#), "{written}");
        assert!(written.contains(r#""broken":"restored""#), "{written}");
        assert_eq!(next.losses().version, Some(7));
        assert!(!next.inherits_losses(losses.clone()));
        // Of another upstream it says nothing.
        let elsewhere = UpstreamState {
            server: "b".to_owned(),
            ..losses.upstream.clone().unwrap()
        };
        let upstream = Some(elsewhere);
        let next = ledger(None).await;
        next.inherits_losses(Losses { upstream, ..losses });
        assert!(!next.is_broken() && next.seen_version() == 7);
    }

    /// An answer to a doubt that was there before another one holds no heartbeat back that the other one is to hold.
    #[tokio::test(start_paused = true)]
    async fn an_answer_about_upstream_does_not_clear_a_doubt_raised_after_it() {
        let clients = scripted::clients(|_| async { (200, json!({"metadata": {}})) });
        let agent = scripted::identities(&clients).agent();
        let ledger = Ledger::load(&agent, "system").await.unwrap();
        let first = ledger.doubts();
        ledger.doubt_upstream();
        let sent = Heartbeat::default();
        ledger.asked_upstream(first, None, &sent).await.unwrap();
        let patience = Duration::from_secs(60);
        let waits = async || {
            let begun = tokio::time::Instant::now();
            ledger.until_asked(patience).await;
            begun.elapsed()
        };
        assert!(waits().await >= patience);
        ledger
            .asked_upstream(ledger.doubts(), None, &sent)
            .await
            .unwrap();
        assert!(waits().await < patience);
    }

    #[rstest]
    #[case::as_fleet_calls_it("fleet-agent-c1", None, true)]
    #[case::as_it_once_did("fleet-agent", None, true)]
    #[case::another_word("fleet-agents", None, false)]
    #[case::another_one("web", None, false)]
    #[case::that_is_there("fleet-agent-c1", Some("fleet-agent-c1"), true)]
    #[case::of_which_another_one_is_there("fleet-agent-else", Some("fleet-agent-c1"), false)]
    fn the_agents_own_bundle_is_told_by_its_name(
        #[case] name: &str,
        #[case] known: Option<&str>,
        #[case] expected: bool,
    ) {
        assert_eq!(is_own(name, known), expected);
    }
}
