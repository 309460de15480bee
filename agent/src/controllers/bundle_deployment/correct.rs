//! Putting drifted objects right: applying those objects of the current revision again.
//!
//! Upstream rolls the whole release back to its own revision, which runs hooks, makes a new
//! revision each time and leaves custom resources as they are. Here only what drifted is applied,
//! by the fields we own; the release stays as it is. A correction that does not help, or not for long, is
//! repeated ever more rarely. What another release has by now is left to it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use objects::conflict::FieldConflict;
use objects::{Object, ObjectKey};
use release::kube::{ApplyError, ApplyOptions, Cluster, ObjectFailure, Owner, OwnershipError};
use release::model::Release;
use release::storage::Storage;
use tokio::time::Instant;

use crate::api::{BundleDeploymentStatus, ModifiedStatus};
use crate::controllers::conditions::CORRECTIONS_POSTPONED;
use crate::public::PublicText;

/// First pause after a correction that did not help, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));

/// How long an object is in order before it counts as corrected, after the pause that it would have had.
const AT_REST: Duration = Duration::from_secs(60);

/// How often objects that are written meanwhile are read again.
const TRIES: u32 = 3;

/// Drifted objects that applying them again can put right: no orphaned ones, and none that is to be `left`.
pub fn correctable(drifted: &[ModifiedStatus], left: &BTreeSet<ObjectKey>) -> Vec<ObjectKey> {
    let keys = drifted
        .iter()
        .filter(|entry| !entry.extra)
        .map(ModifiedStatus::key);
    keys.filter(|key| !left.contains(key)).collect()
}

/// Applies those desired objects again that are `due`. Gives back the fields that other managers held.
///
/// An object with another release's marks by now is left alone, as the next monitor reports.
///
/// # Errors
/// The API server refuses a write or a read.
///
/// # Cancellation
/// Safe: the next reconcile finds what is still wrong.
pub async fn apply(
    cluster: &Cluster,
    release: &Release,
    desired: &[Object],
    due: &[ObjectKey],
    force: bool,
) -> Result<Vec<FieldConflict>, ApplyError> {
    let owner = Owner::new(&release.name, &release.namespace);
    let options = ApplyOptions {
        force,
        ..Default::default()
    };
    let due: HashSet<_> = due.iter().collect();
    let mut tries = 1;
    loop {
        let objects = desired.iter().filter(|object| due.contains(&object.key()));
        let objects = objects.cloned().collect();
        let mut failed = match release::kube::reapply(cluster, &owner, objects, options).await {
            Ok(applied) => return Ok(applied.conflicts),
            Err(failed) => failed,
        };
        failed.failures.retain(|failure| !is_foreign(failure));
        if failed.failures.is_empty() {
            return Ok(failed.applied.conflicts);
        }
        if tries == TRIES || !failed.failures.iter().all(is_outdated) {
            return Err(failed);
        }
        tries += 1;
    }
}

/// Whether the object is another release's.
fn is_foreign(failure: &ObjectFailure) -> bool {
    matches!(
        failure,
        ObjectFailure::NotOwned(OwnershipError::Foreign { .. })
    )
}

/// Whether somebody wrote the object since it was read.
fn is_outdated(failure: &ObjectFailure) -> bool {
    matches!(failure, ObjectFailure::Conflict(..))
}

/// Leaves a trace of a correction that failed in the release's history (`keepFailHistory`): one
/// failed revision, however often it fails and whatever it fails for. A record that cannot be written is only
/// logged.
pub async fn record_failure(
    storage: &Storage,
    release: &Release,
    problem: &str,
    max_history: i64,
    now: Timestamp,
) {
    let recorded =
        release::action::record_failed_rollback(storage, release, problem, max_history, now).await;
    if let Err(failed) = recorded {
        logging::warn!(
            release = release.name,
            error = release::error_unquoted(&failed),
            "cannot record a failed correction"
        );
    }
}

/// Corrections of one bundle that have not helped so far, or not for long: somebody may write the objects back a moment later.
#[derive(Debug, Default)]
pub struct Attempts {
    objects: HashMap<ObjectKey, Attempt>,
    /// Why the last one failed.
    problem: Option<PublicText>,
}

#[derive(Debug)]
struct Attempt {
    count: u32,
    /// Time of the next correction, as the status shows it.
    again: Timestamp,
    again_at: Instant,
    /// When the object was last found drifted.
    found_at: Instant,
}

/// Drifted objects, by when they are due to be corrected.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// The objects to correct now.
    pub now: Vec<ObjectKey>,
    /// The next of the others after so long.
    pub again: Option<Duration>,
    /// Why the last correction failed, while nothing is due.
    pub problem: Option<PublicText>,
}

impl Attempts {
    /// What an earlier process has left in a bundle's status.
    pub fn read(status: &BundleDeploymentStatus, at: Timestamp) -> Self {
        let conditions = status.conditions.iter();
        let reported = conditions.filter(|condition| condition.type_ == CORRECTIONS_POSTPONED);
        let lines = reported.flat_map(|condition| condition.message.split("; "));
        let now = Instant::now();
        let attempt = |line: &str| {
            let (key, count, again) = parse(line)?;
            // Anybody who may write the status may have written this line.
            if again.checked_add(AT_REST).map_or(true, |end| end <= at) {
                return None;
            }
            let wait = Duration::try_from(again.duration_since(at)).unwrap_or_default();
            let again_at = now + wait.min(PAUSE.1);
            let found_at = now;
            let attempt = Attempt {
                count,
                again,
                again_at,
                found_at,
            };
            Some((key, attempt))
        };
        Self {
            objects: lines.filter_map(attempt).collect(),
            problem: None,
        }
    }

    /// Corrections that must be known after a restart: a status line for each object that was corrected more than once.
    pub fn lines(&self) -> Vec<String> {
        let fought = self.objects.iter().filter(|(_, attempt)| attempt.count > 1);
        let mut lines: Vec<_> = fought
            .map(|(key, attempt)| {
                let ObjectKey {
                    group,
                    kind,
                    namespace,
                    name,
                } = key;
                let dot = if group.is_empty() { "" } else { "." };
                let Attempt { count, again, .. } = attempt;
                format!("{kind}{dot}{group} {namespace}/{name}: corrected {count} times, the next time after {again:.0}")
            })
            .collect();
        lines.sort();
        lines
    }

    /// After how long all that was corrected more than once counts as in order, if it stays so.
    pub fn rests_after(&self) -> Option<Duration> {
        let fought = self.objects.values().filter(|attempt| attempt.count > 1);
        let rests = |attempt: &Attempt| attempt.found_at.max(attempt.again_at) + AT_REST;
        fought.map(rests).max().map(|at| at - Instant::now())
    }

    /// Selects which drifted objects to correct now; `at` is the time of day. An object found drifted for the first time is corrected at
    /// once.
    pub fn due(&mut self, found: &[ObjectKey], at: Timestamp) -> Due {
        self.forget_resting();
        let now = Instant::now();
        let (min, max) = PAUSE;
        let mut due = Due::default();
        for key in found {
            let attempt = self.objects.entry(key.clone()).or_insert(Attempt {
                count: 0,
                again: at,
                again_at: now,
                found_at: now,
            });
            attempt.found_at = now;
            if attempt.again_at > now {
                let pause = attempt.again_at - now;
                due.again = Some(due.again.map_or(pause, |other| other.min(pause)));
                continue;
            }
            let factor = 2_u32.saturating_pow(attempt.count);
            let pause = min.saturating_mul(factor).min(max);
            (attempt.again, attempt.again_at) = (at + pause, now + pause);
            attempt.count = attempt.count.saturating_add(1);
            due.now.push(key.clone());
        }
        match due.now.is_empty() && !found.is_empty() {
            true => due.problem.clone_from(&self.problem),
            false => self.problem = None,
        }
        due
    }

    /// The correction that was due failed.
    pub fn failed(&mut self, problem: &PublicText) {
        self.problem = Some(problem.clone());
    }

    /// Forgets what has been in order for a while. Whether nothing is left.
    pub fn forget_resting(&mut self) -> bool {
        let now = Instant::now();
        self.objects
            .retain(|_, attempt| now < attempt.found_at.max(attempt.again_at) + AT_REST);
        self.objects.is_empty()
    }
}

/// Reads a sentence of [`Attempts::lines`].
fn parse(line: &str) -> Option<(ObjectKey, u32, Timestamp)> {
    let (object, rest) = line.split_once(": corrected ")?;
    let (count, again) = rest.split_once(" times, the next time after ")?;
    let (kind, name) = object.split_once(' ')?;
    let (namespace, name) = name.split_once('/')?;
    let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
    let key = ObjectKey {
        group: group.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    Some((key, count.parse().ok()?, again.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> ObjectKey {
        ObjectKey::new("v1", "ConfigMap", "ns", name)
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn second(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn at_once(names: &[&str]) -> Due {
        Due {
            now: names.iter().map(|name| object(name)).collect(),
            ..Due::default()
        }
    }

    fn after(pause: Duration) -> Due {
        Due {
            again: Some(pause),
            ..Due::default()
        }
    }

    #[test]
    fn extra_objects_and_those_of_other_releases_are_not_corrected() {
        let entry = |name: &str, extra| ModifiedStatus {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            namespace: "ns".into(),
            name: name.into(),
            extra,
            ..Default::default()
        };
        let drifted = [entry("a", false), entry("kept", true), entry("lost", false)];
        let taken = BTreeSet::from([object("lost")]);
        assert_eq!(correctable(&drifted, &taken), [object("a")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_correction_that_does_not_help_becomes_rare() {
        let mut attempts = Attempts::default();
        assert_eq!(attempts.due(&[object("a")], at(0)), at_once(&["a"]));
        assert_eq!(attempts.due(&[object("a")], at(0)), after(second(5)));
        tokio::time::advance(second(5)).await;
        assert_eq!(attempts.due(&[object("a")], at(0)), at_once(&["a"]));
        attempts.failed(&"refused".into());
        let waits = Due {
            problem: Some("refused".into()),
            ..after(second(10))
        };
        assert_eq!(attempts.due(&[object("a")], at(0)), waits);
        assert_eq!(attempts.due(&[], at(0)), Due::default());
    }

    #[tokio::test(start_paused = true)]
    async fn a_correction_without_effect_is_known_after_a_restart() {
        let web = ObjectKey::new("apps/v1", "Deployment", "ns", "web");
        let both = [object("a"), web];
        let mut attempts = Attempts::default();
        assert_eq!(attempts.due(&both, at(0)).now, both);
        assert_eq!(attempts.lines(), [""; 0]);
        tokio::time::advance(second(5)).await;
        assert_eq!(attempts.due(&both, at(5)).now, both);
        let lines = attempts.lines();
        let sentence = ": corrected 2 times, the next time after 1970-01-01T00:00:15Z";
        let reported =
            ["ConfigMap ns/a", "Deployment.apps ns/web"].map(|one| format!("{one}{sentence}"));
        assert_eq!(lines, reported);
        let mut status = BundleDeploymentStatus::default();
        status.set_postponed_corrections(lines.clone(), at(5));

        tokio::time::advance(second(100)).await;
        let mut next = Attempts::read(&status, at(8));
        assert_eq!(next.lines(), lines);
        assert_eq!(next.due(&both, at(8)), after(second(7)));
        assert_eq!(next.rests_after(), Some(second(67)));
        tokio::time::advance(second(7)).await;
        assert_eq!(next.due(&both, at(15)).now, both);
        assert_eq!(next.due(&both, at(15)), after(second(20)));
        // The object was in order for a while, or was not monitored.
        assert_eq!(Attempts::read(&status, at(75)).lines(), [""; 0]);
        status.set_postponed_corrections(Vec::new(), at(15));
        assert!(status.conditions.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn somebody_who_reverts_each_correction_is_not_fought() {
        let mut attempts = Attempts::default();
        let mut corrections = 0;
        // Ten minutes in which every correction holds for a second.
        for _ in 0..600 {
            let found = attempts.due(&[object("a")], at(0));
            corrections += found.now.len();
            tokio::time::advance(second(1)).await;
            assert_eq!(attempts.due(&[], at(0)).now, []);
        }
        assert_eq!(corrections, 7);
        // Another object is another matter, and so is this one when it has been left in peace.
        let both = attempts.due(&[object("a"), object("b")], at(0));
        assert_eq!(both.now, [object("b")]);
        tokio::time::advance(second(361)).await;
        assert_eq!(attempts.due(&[object("a")], at(0)), at_once(&["a"]));
    }
}
