//! What the agent remembers of upstream, to tell whether it still is the one the bundles came from. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::api::Cluster;

/// An upstream that is this many writes further than when it was last seen was restored from a
/// backup: etcd's documented restore skips a thousand million revisions.
const LEAP: u64 = 500_000_000;

/// Who wrote a heartbeat, for upstream's API server: this agent, whose ledger accounted for it. The Go agent's are `fleetagent`'s, as those of earlier
/// versions.
const HEARTBEAT_MANAGER: &str = "fleetagent-heartbeat";

/// Who writes a heartbeat of this time where those up to `noted` are vouched for, both in seconds since 1970: if not for this one, the name
/// says for which. Upstream so remembers what the ledger knew, whatever becomes of that.
pub fn heartbeat_manager(at: i64, noted: Option<i64>) -> String {
    match noted.unwrap_or(0) {
        noted if noted >= at => HEARTBEAT_MANAGER.to_owned(),
        noted => format!("{HEARTBEAT_MANAGER}-{noted}"),
    }
}

/// Up to which heartbeat the ledger accounted for them, of whoever wrote one of this time.
fn accounted(manager: &str, at: Option<i64>) -> Option<i64> {
    match manager.strip_prefix(HEARTBEAT_MANAGER)? {
        "" => at,
        noted => noted.strip_prefix('-')?.parse().ok(),
    }
}

/// What all agents' names begin with, for upstream's API server.
const AGENTS: &str = "fleetagent";

/// How many BundleDeployments of the agent's own are remembered: there is one, but for bundles of others whose names begin alike.
const MOST_OWN: usize = 8;

/// Why upstream is not the one the bundles came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ContinuityBreak {
    /// Another server, or another namespace of it: the agent was registered elsewhere.
    Elsewhere,
    /// The same cluster in another state than it was left in: restored from a backup.
    Restored,
    /// The agent's own BundleDeployment is another object than before: whatever took the former one may have taken others along, which are made anew
    /// one after the other.
    Recreated,
}

/// A heartbeat of this agent, as upstream has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Heartbeat {
    /// Time of the heartbeat, in seconds since 1970; 0 for never.
    #[serde(rename = "reported", skip_serializing_if = "Option::is_none")]
    pub at: Option<i64>,
    /// The uid of the Cluster that has it; empty where that is gone, or was not noted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The version that this one had; 0 where versions are no numbers.
    #[serde(rename = "clusterVersion", skip_serializing_if = "crate::api::is_default")]
    pub version: u64,
}

/// Upstream's record of the last heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    heartbeat: Heartbeat,
    /// Whether Fleet's controller wrote it, and no agent or restore did.
    is_controllers: bool,
    /// Up to which heartbeat, in seconds since 1970, the ledger of this agent accounted for them as it wrote it; none where somebody else did.
    accounted: Option<i64>,
}

impl Heartbeat {
    /// The last one that this Cluster has.
    pub fn of(cluster: &Cluster) -> Self {
        let last_seen = cluster.status.agent.last_seen.as_ref();
        let version = cluster.metadata.resource_version.as_deref();
        Self {
            at: Some(last_seen.map_or(0, |at| at.0.as_second())),
            cluster: cluster.metadata.uid.clone().unwrap_or_default(),
            version: version.and_then(|text| text.parse().ok()).unwrap_or(0),
        }
    }
}

impl Remembered {
    /// What a Cluster remembers. Fleet's controller writes the whole status, as it was when it began: a report that came meanwhile is set back. With
    /// each import it writes `null`. The server notes who wrote this field last: what anybody else wrote, as who restores a backup does, or nobody, is
    /// no excuse.
    pub fn of(cluster: &Cluster) -> Self {
        let entries = cluster.metadata.managed_fields.iter().flatten();
        let writers = entries.filter(|entry| {
            let fields = entry.fields_v1.as_ref();
            fields.is_some_and(|fields| fields.0.pointer(LAST_SEEN).is_some())
        });
        let writers = writers.map(|entry| entry.manager.as_deref().unwrap_or_default());
        let writers: Vec<&str> = writers.collect();
        let heartbeat = Heartbeat::of(cluster);
        let accounted = match &writers[..] {
            [writer] => accounted(writer, heartbeat.at),
            _ => None,
        };
        Self {
            heartbeat,
            is_controllers: !writers.is_empty() && writers.iter().all(|by| is_fleets(by)),
            accounted,
        }
    }

    /// The Cluster is gone.
    pub fn gone() -> Self {
        Self {
            heartbeat: Heartbeat {
                at: Some(0),
                ..Heartbeat::default()
            },
            is_controllers: false,
            accounted: None,
        }
    }

    /// Whether upstream had `sent` and lost it, and did not take one of this agent's after that whose time is among `earlier`.
    fn lacks(&self, sent: &Heartbeat, earlier: &[i64]) -> bool {
        let now = &self.heartbeat;
        let is_known = !sent.cluster.is_empty();
        let is_noted = now.at.is_some_and(|at| earlier.contains(&at));
        let is_own = self.accounted.is_some() && is_noted;
        let is_another = is_known && now.cluster != sent.cluster;
        let is_older = now.version != 0 && now.version < sent.version;
        let is_set_back = now.at < sent.at && !(is_known && self.is_controllers);
        is_another || is_older || is_set_back && !is_own
    }
}

/// The time of the last heartbeat, as `managedFields` have it.
const LAST_SEEN: &str = "/f:status/f:agent/f:lastSeen";

/// Whether Fleet's controller is who wrote: what client-go calls it is the name of its program.
fn is_fleets(manager: &str) -> bool {
    manager.starts_with("fleet") && !manager.starts_with(AGENTS)
}

/// How many heartbeats of a clock that was set back are noted, the last ones. A range of times would excuse a backup too.
const MOST_EARLIER: usize = 4;

/// The upstream that was seen last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamState {
    /// Address of its API server.
    pub server: String,
    /// Namespace of the BundleDeployments.
    pub namespace: String,
    /// Highest resourceVersion seen; 0 where versions are no numbers.
    #[serde(default)]
    pub version: u64,
    /// Whether the agent's own BundleDeployment was ever listed.
    #[serde(default)]
    pub has_own: bool,
    /// Last uids, by name, of the agent's own BundleDeployments that were listed and not being deleted. Empty where none was noted yet.
    #[serde(rename = "ownUids", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub own: BTreeMap<String, String>,
    /// The last heartbeat taken. A backup has an older one, whatever was written after it was restored.
    #[serde(flatten)]
    pub heartbeat: Heartbeat,
    /// The latest time of a heartbeat that was about to be sent, in seconds since 1970: upstream may have it though no answer was noted.
    #[serde(rename = "reporting", default, skip_serializing_if = "Option::is_none")]
    pub sending: Option<i64>,
    /// The times of those that were about to be sent since and are earlier than the last one taken, as where a clock was set back: they show no restore should
    /// upstream have one of them though no answer was noted.
    #[serde(rename = "reportingBefore", default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<i64>,
    /// A break that was found before a list could show which bundles are lost by it. The next heartbeat and the next event overwrite what
    /// proved it, so it is kept, across restarts too, until there is such a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<ContinuityBreak>,
}

impl UpstreamState {
    /// Whether `now`, seen later, is a continuation; why not otherwise.
    pub fn continues(&self, now: &Self) -> Result<(), ContinuityBreak> {
        if self.server != now.server || self.namespace != now.namespace {
            return Err(ContinuityBreak::Elsewhere);
        }
        let (before, after) = (self.version, now.version);
        let is_older = before != 0 && after != 0 && after < before;
        if is_older || is_leap(before, after) {
            return Err(ContinuityBreak::Restored);
        }
        if let Some(found) = self.broken {
            return Err(found);
        }
        let is_listed = |name: &String| now.own.contains_key(name);
        let is_another = |(name, uid): (&String, &String)| {
            let now = now.own.get(name);
            now.is_some_and(|now| now != uid)
        };
        let are_others = self.own.iter().any(is_another) || !self.own.keys().any(is_listed);
        match are_others && !self.own.is_empty() && !now.own.is_empty() {
            true => Err(ContinuityBreak::Recreated),
            false => Ok(()),
        }
    }

    /// Takes over what is still so of what was remembered before.
    pub(super) fn inherits(&mut self, before: &Self) {
        // A backup may be older than the agent's own BundleDeployment.
        self.has_own |= before.has_own;
        // A bundle that is not listed keeps its uid here, to be known again when it comes back.
        let mut known = before.own.clone();
        let mut new = Vec::new();
        for (name, uid) in std::mem::take(&mut self.own) {
            match known.get_mut(&name) {
                Some(known) => *known = uid,
                None => new.push((name, uid)),
            }
        }
        self.own = known.into_iter().chain(new).take(MOST_OWN).collect();
    }

    /// Takes in the version of an event, or of the answer to a write.
    pub fn sees(&mut self, version: u64) {
        if is_leap(self.version, version) {
            self.broken = Some(ContinuityBreak::Restored);
        }
        self.version = self.version.max(version);
    }

    /// Takes in a heartbeat that upstream took: one that another Cluster of that name took is no answer to the last one.
    pub fn reports(&mut self, heartbeat: Heartbeat) {
        let (before, now) = (&self.heartbeat.cluster, &heartbeat.cluster);
        if !before.is_empty() && !now.is_empty() && before != now {
            self.broken = Some(ContinuityBreak::Restored);
        }
        self.sending = heartbeat.at;
        self.earlier.clear();
        self.heartbeat = heartbeat;
    }

    /// A heartbeat of this time is about to be sent.
    pub fn sends(&mut self, at: i64) {
        if Some(at) < self.heartbeat.at {
            // Whichever of them upstream takes, the next follow that one.
            self.earlier.push(at);
            let most = self.earlier.len().saturating_sub(MOST_EARLIER);
            self.earlier.drain(..most);
        }
        self.sending = self.sending.max(Some(at));
    }

    /// Takes in what upstream itself says of the last heartbeat. `sent` is what [`Self::heartbeat`] was before upstream was asked: one that it took
    /// after its answer was not forgotten.
    pub fn remembers(&mut self, now: Remembered, sent: &Heartbeat) {
        if now.lacks(sent, &self.earlier) || self.forgot(&now) {
            self.broken = Some(ContinuityBreak::Restored);
        }
        if self.heartbeat == *sent {
            self.heartbeat = now.heartbeat;
        }
    }

    /// The latest heartbeat that this accounts for, in seconds since 1970.
    pub(super) fn accounts_for(&self) -> Option<i64> {
        self.sending.max(self.heartbeat.at)
    }

    /// Whether this agent accounted for a heartbeat of which nothing is noted here: the local cluster was restored from a backup, and with it what was
    /// noted of losses since.
    fn forgot(&self, now: &Remembered) -> bool {
        let is_same =
            !now.heartbeat.cluster.is_empty() && now.heartbeat.cluster == self.heartbeat.cluster;
        is_same && now.accounted > self.accounts_for()
    }
}

/// The names that a list of upstream has.
#[derive(Clone, Copy)]
pub struct Listed<'a> {
    /// All listed names.
    pub all: &'a BTreeSet<String>,
    /// The listed names that are being deleted.
    pub leaving: &'a BTreeSet<String>,
    /// The listed names that nobody has seen go since the list was requested.
    pub there: &'a BTreeSet<String>,
    /// The names of bundles that the watch has told of, or that are being reconciled: an entry of theirs may come.
    pub known: &'a BTreeSet<String>,
    /// What the agent's own BundleDeployment is called, where that is known.
    pub own_name: Option<&'a str>,
    /// Whether a break of upstream was known when the list was requested. A break found while the list comes may be newer than it.
    pub was_broken: bool,
    /// State of the agent's own BundleDeployment in the list, should it be another one than is noted.
    pub renewal: Renewal,
}

/// How far another BundleDeployment of the agent's own is known. What takes one after the other may take more when the agent's own was made anew
/// already: until that is over, the former one stays noted, by the next process too, and whatever is missing meanwhile is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// Found for the first time, to be reported.
    New,
    /// Reported; others may vanish yet.
    Reported,
    /// Few others have vanished for a while: it is to be noted, and who is missing only now was deleted.
    Confirmed,
}

/// How often upstream was not known to be what it was before, up to which of these it has answered, and up to which it told what it remembers:
/// where the rights to ask are gone it answers, and tells nothing.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) doubts: u64,
    pub(super) answered: u64,
    pub(super) told: u64,
}

impl Asked {
    /// Whether it has answered since the last doubt.
    pub(super) fn is_settled(&self) -> bool {
        self.answered == self.doubts
    }

    /// Whether it has told since the last doubt what it remembers.
    pub(super) fn is_told(&self) -> bool {
        self.told == self.doubts
    }
}

fn is_leap(before: u64, after: u64) -> bool {
    before != 0 && after.saturating_sub(before) > LEAP
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use objects::managed_fields::FIELD_MANAGER;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn upstream(server: &str, version: u64) -> UpstreamState {
        UpstreamState {
            server: server.into(),
            namespace: "cluster-a".into(),
            version,
            heartbeat: sent(),
            ..UpstreamState::default()
        }
    }

    /// What the Cluster had when it took the last heartbeat.
    fn sent() -> Heartbeat {
        Heartbeat {
            at: Some(100),
            cluster: "one".into(),
            version: 5,
        }
    }

    /// A Cluster as the agent left it, or somebody with this name.
    fn cluster(uid: &str, version: u64, last_seen: Option<i64>, by: &str) -> Cluster {
        let at = last_seen.map(|at| Timestamp::from_second(at).unwrap());
        let fields = json!({"f:status": {"f:agent": {"f:lastSeen": {}}}});
        let entry = json!({"manager": by, "operation": "Update", "fieldsV1": fields});
        let entries = (!by.is_empty()).then_some(entry);
        let metadata = json!({
            "uid": uid, "resourceVersion": version.to_string(),
            "managedFields": entries.as_slice(),
        });
        let status = json!({"agent": {"lastSeen": at, "namespace": "system"}});
        serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
    }

    /// The cluster after Fleet's controller wrote another field of the status.
    fn then_displayed(mut cluster: Cluster) -> Cluster {
        let entry = json!({
            "manager": "fleetcontroller", "operation": "Update", "time": "2030-01-01T00:00:00Z",
            "fieldsV1": {"f:status": {"f:display": {"f:readyBundles": {}}}},
        });
        let entries = cluster.metadata.managed_fields.get_or_insert_default();
        entries.push(serde_json::from_value(entry).unwrap());
        cluster
    }

    fn remembered(at: i64) -> Remembered {
        Remembered::of(&cluster("one", 6, Some(at), FIELD_MANAGER))
    }

    /// As this agent wrote it.
    fn own(at: i64) -> Remembered {
        unnoted(at, at)
    }

    /// As this agent wrote it where its ledger accounted for another one.
    fn unnoted(at: i64, noted: i64) -> Remembered {
        let manager = heartbeat_manager(at, Some(noted));
        Remembered::of(&cluster("one", 6, Some(at), &manager))
    }

    const BUMPED: u64 = 1_000_000_007;

    #[rstest]
    #[case::same_moment(upstream("a", 7), Ok(()))]
    #[case::later(upstream("a", 8), Ok(()))]
    #[case::versions_that_are_no_numbers(upstream("a", 0), Ok(()))]
    #[case::another_server(upstream("b", 8), Err(ContinuityBreak::Elsewhere))]
    #[case::another_namespace(UpstreamState { namespace: "cluster-b".into(), ..upstream("a", 8) }, Err(ContinuityBreak::Elsewhere))]
    #[case::an_old_backup(upstream("a", 6), Err(ContinuityBreak::Restored))]
    #[case::a_backup_whose_revisions_were_bumped(
        upstream("a", BUMPED),
        Err(ContinuityBreak::Restored)
    )]
    fn an_upstream_continues_unless_it_is_older_bumped_or_elsewhere(
        #[case] now: UpstreamState,
        #[case] expected: Result<(), ContinuityBreak>,
    ) {
        assert_eq!(upstream("a", 7).continues(&now), expected);
    }

    /// The proof of a break is gone with the next report or event; that there was a break is not.
    #[rstest]
    #[case::an_older_report(|seen: &mut UpstreamState| seen.remembers(remembered(99), &sent()), true)]
    #[case::the_cluster_is_gone(|seen: &mut UpstreamState| seen.remembers(Remembered::gone(), &sent()), true)]
    #[case::the_same_report(|seen: &mut UpstreamState| seen.remembers(remembered(100), &sent()), false)]
    #[case::a_report_whose_answer_was_lost(|seen: &mut UpstreamState| seen.remembers(remembered(101), &sent()), false)]
    #[case::a_report_that_went_out_unnoted_after_one_that_is_not_noted(|seen: &mut UpstreamState| seen.remembers(unnoted(160, 101), &sent()), true)]
    #[case::a_report_that_went_out_unnoted(|seen: &mut UpstreamState| seen.remembers(unnoted(160, 100), &sent()), false)]
    #[case::a_report_that_is_not_noted(|seen: &mut UpstreamState| seen.remembers(own(101), &sent()), true)]
    #[case::a_report_that_was_about_to_be_sent(|seen: &mut UpstreamState| { seen.sends(101); seen.remembers(own(101), &sent()); }, false)]
    #[case::a_report_by_a_clock_that_was_set_back(|seen: &mut UpstreamState| { seen.sends(60); seen.sends(75); seen.remembers(own(60), &sent()); }, false)]
    #[case::a_backup_after_a_clock_was_set_back(|seen: &mut UpstreamState| { seen.sends(60); seen.remembers(own(50), &sent()); }, true)]
    #[case::an_older_report_by_another_after_a_clock_was_set_back(|seen: &mut UpstreamState| { seen.sends(60); seen.remembers(remembered(60), &sent()); }, true)]
    #[case::a_later_report_by_a_clock_that_was_set_back(|seen: &mut UpstreamState| { seen.sends(60); seen.sends(75); seen.remembers(own(75), &sent()); }, false)]
    #[case::a_backup_after_the_clock_was_put_right(|seen: &mut UpstreamState| { seen.sends(60); seen.sends(160); seen.reports(Heartbeat { at: Some(160), ..sent() }); let sent = seen.heartbeat.clone(); seen.remembers(own(60), &sent); }, true)]
    #[case::a_report_sent_while_it_was_asked(|seen: &mut UpstreamState| { seen.sends(160); seen.reports(Heartbeat { at: Some(160), ..sent() }); seen.remembers(own(160), &sent()); }, false)]
    #[case::a_report_that_another_cluster_of_this_agent_took(|seen: &mut UpstreamState| { seen.heartbeat = Heartbeat::default(); seen.remembers(own(101), &Heartbeat::default()); }, false)]
    #[case::a_report_that_was_under_way(|seen: &mut UpstreamState| { seen.heartbeat.at = Some(160); seen.remembers(remembered(100), &sent()); }, false)]
    #[case::the_first_question(|seen: &mut UpstreamState| seen.remembers(remembered(50), &Heartbeat::default()), false)]
    #[case::a_report_that_the_same_cluster_took(|seen: &mut UpstreamState| seen.reports(sent()), false)]
    #[case::a_report_that_another_cluster_took(|seen: &mut UpstreamState| seen.reports(Heartbeat { cluster: "two".into(), ..sent() }), true)]
    #[case::bumped_revisions_in_an_event(|seen: &mut UpstreamState| seen.sees(BUMPED), true)]
    #[case::the_next_event(|seen: &mut UpstreamState| seen.sees(8), false)]
    #[case::the_first_event(|seen: &mut UpstreamState| { seen.version = 0; seen.sees(BUMPED); }, false)]
    fn a_restore_that_was_noticed_is_known_after_later_reports_and_events(
        #[case] happens: fn(&mut UpstreamState),
        #[case] is_found: bool,
    ) {
        let mut seen = upstream("a", 7);
        happens(&mut seen);
        // Upstream goes on, and takes the next report.
        let version = seen.version + 1;
        seen.sees(version);
        let sent = seen.heartbeat.clone();
        seen.remembers(remembered(sent.at.unwrap_or_default() + 60), &sent);
        let expected = if is_found {
            Err(ContinuityBreak::Restored)
        } else {
            Ok(())
        };
        assert_eq!(seen.continues(&upstream("a", version + 1)), expected);
        assert_eq!(
            seen.continues(&upstream("b", version + 1)),
            Err(ContinuityBreak::Elsewhere)
        );
    }

    /// Fleet's controller writes the status of a Cluster too: what it sets back is no backup.
    #[rstest]
    #[case::set_back_by_the_controller(cluster("one", 7, Some(40), "fleetcontroller"), false)]
    #[case::installed_anew(cluster("one", 7, None, "fleetcontroller"), false)]
    #[case::set_back_as_a_backup_does(cluster("one", 7, Some(40), FIELD_MANAGER), true)]
    #[case::set_back_by_who_restores_a_backup(
        cluster("one", 7, Some(40), "backup-restore-operator"),
        true
    )]
    #[case::restored_from_before_any_report(
        cluster("one", 7, None, "backup-restore-operator"),
        true
    )]
    #[case::restored_from_before_any_report_and_displayed_since(
        then_displayed(cluster("one", 7, None, "backup-restore-operator")),
        true
    )]
    #[case::never_reported_as_only_the_controller_wrote(
        then_displayed(cluster("one", 7, None, "")),
        true
    )]
    #[case::never_reported_as_nobody_knows_who_says(cluster("one", 7, None, ""), true)]
    #[case::set_back_by_nobody_knows_whom(cluster("one", 7, Some(40), ""), true)]
    #[case::an_older_cluster(cluster("one", 4, Some(40), "fleetcontroller"), true)]
    #[case::an_older_cluster_before_any_report(cluster("one", 4, None, ""), true)]
    #[case::a_cluster_that_was_made_anew(cluster("two", 7, None, ""), true)]
    #[case::a_later_one_of_another(cluster("one", 7, Some(160), "kubectl"), false)]
    fn a_heartbeat_set_back_by_a_known_writer_is_no_restore(
        #[case] found: Cluster,
        #[case] is_restored: bool,
    ) {
        let mut seen = upstream("a", 7);
        seen.remembers(Remembered::of(&found), &sent());
        assert_eq!(seen.broken.is_some(), is_restored);
        // The next heartbeat is written over the status as it is now.
        assert_eq!(seen.heartbeat, Heartbeat::of(&found));
        // Of a Cluster that was not noted nothing says that it is the same one.
        let unknown = Heartbeat {
            at: Some(100),
            ..Heartbeat::default()
        };
        let mut seen = upstream("a", 7);
        seen.remembers(Remembered::of(&found), &unknown);
        let is_older = Heartbeat::of(&found).at < unknown.at;
        assert_eq!(seen.broken.is_some(), is_older);
    }

    #[test]
    fn a_report_taken_during_a_comparison_is_not_overwritten() {
        let mut seen = upstream("a", 7);
        let later = Heartbeat {
            at: Some(160),
            ..sent()
        };
        seen.heartbeat = later.clone();
        seen.remembers(remembered(100), &sent());
        assert_eq!(seen.heartbeat, later);
        seen.remembers(remembered(100), &later);
        assert_eq!(seen.broken, Some(ContinuityBreak::Restored));
        assert_eq!(seen.heartbeat.at, Some(100));
    }
}
