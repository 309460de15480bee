//! Attempts that were undone (`atomic`), and when the same content is tried again. No I/O.
//!
//! An undone upgrade changed the cluster twice, so trying again every few seconds swings an app to and fro. What waits is kept in the
//! ledger: a restart is no reason to try again.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::api::{BundleDeployment, TRY_AGAIN};

/// Bundles remembered; those that are due first go.
const MAX_BUNDLES: usize = 500;

/// An undone attempt that is due for so long is one of a bundle that went, or of content that did.
const FORGOTTEN_AFTER_SECONDS: i64 = 24 * 60 * 60;

/// The undone attempts at one content of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undone {
    /// What was tried; see [`content`].
    content: String,
    /// How often, in a row.
    attempts: u32,
    /// When it is tried again, in seconds since 1970.
    pub until: i64,
}

/// By bundle.
pub(super) type AllUndone = BTreeMap<String, Undone>;

/// The pauses after undone attempts: the first, and the longest.
#[derive(Clone, Copy, Debug)]
pub struct UndoPauses {
    pub first: Duration,
    pub longest: Duration,
}

/// What would be tried, as a digest: the deployment, the facts that are filled in, what is read of ConfigMaps and Secrets, the copies it comes
/// with, and what asks for another attempt: a forced sync, the label and the annotation.
pub fn content(bundle: &BundleDeployment, facts: Option<&str>, values: Option<&str>) -> String {
    let spec = &bundle.spec;
    let parts = [
        spec.deployment_id.as_str(),
        facts.unwrap_or_default(),
        values.unwrap_or_default(),
        &spec.downstream_resources_generation.to_string(),
        &spec.options.force_sync_generation.to_string(),
        bundle.label(TRY_AGAIN).unwrap_or_default(),
        bundle.annotation(TRY_AGAIN).unwrap_or_default(),
    ];
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let mut digest = golib::hex::encode(&hash.finalize());
    digest.truncate(16);
    digest
}

impl Undone {
    /// After one more undone attempt. `jitter` in 0..1 takes off up to a fifth of the pause.
    pub fn after(
        before: Option<&Self>,
        content: String,
        now: i64,
        pauses: UndoPauses,
        jitter: f64,
    ) -> Self {
        let earlier = before.filter(|before| before.content == content);
        let attempts = earlier.map_or(0, |before| before.attempts);
        let pause = pauses
            .first
            .saturating_mul(2_u32.saturating_pow(attempts))
            .min(pauses.longest)
            .mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 5.0);
        let seconds = i64::try_from(pause.as_secs().max(1)).unwrap_or(i64::MAX);
        Self {
            content,
            attempts: attempts.saturating_add(1),
            until: now.saturating_add(seconds),
        }
    }

    /// How long this content still waits. A clock that was put back makes nobody wait longer than the longest pause.
    pub fn pause(&self, content: &str, now: i64, pauses: UndoPauses) -> Option<Duration> {
        let left = u64::try_from(self.until.saturating_sub(now)).ok()?;
        let waits = self.content == content && left > 0;
        waits.then(|| Duration::from_secs(left).min(pauses.longest))
    }
}

/// Takes in what became of a bundle's attempt, and forgets what is of no use any more.
pub(super) fn note(all: &mut AllUndone, bundle: &str, undone: Option<Undone>, now: i64) {
    match undone {
        Some(undone) => drop(all.insert(bundle.to_owned(), undone)),
        None => drop(all.remove(bundle)),
    }
    all.retain(|_, one| now.saturating_sub(one.until) < FORGOTTEN_AFTER_SECONDS);
    while all.len() > MAX_BUNDLES {
        let first_due = all.iter().min_by_key(|(_, one)| one.until);
        let Some(name) = first_due.map(|(name, _)| name.clone()) else {
            return;
        };
        all.remove(&name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PAUSES: UndoPauses = UndoPauses {
        first: Duration::from_secs(120),
        longest: Duration::from_secs(3600),
    };

    #[test]
    fn pauses_grow_from_minutes_to_an_hour() {
        let mut last = None;
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let undone = Undone::after(last.as_ref(), "a".into(), 1_000, PAUSES, 0.0);
            pauses.push(undone.until - 1_000);
            last = Some(undone);
        }
        assert_eq!(pauses, [120, 240, 480, 960, 1920, 3600, 3600, 3600]);
        let jittered = Undone::after(last.as_ref(), "a".into(), 0, PAUSES, 1.0);
        assert_eq!(jittered.until, 2880);
        let other = Undone::after(last.as_ref(), "b".into(), 0, PAUSES, 0.0);
        assert_eq!((other.attempts, other.until), (1, 120));
    }

    #[test]
    fn only_the_same_content_waits_and_no_longer_than_the_longest_pause() {
        let undone = Undone::after(None, "a".into(), 1_000, PAUSES, 0.0);
        let pause = |content, now| {
            undone
                .pause(content, now, PAUSES)
                .map(|left| left.as_secs())
        };
        assert_eq!(pause("a", 1_020), Some(100));
        assert_eq!(pause("b", 1_020), None);
        assert_eq!(pause("a", 1_120), None);
        assert_eq!(pause("a", -900_000), Some(3600));
    }

    #[test]
    fn another_spec_another_fact_and_the_label_are_other_content() {
        let bundle = |spec: serde_json::Value, labels: serde_json::Value| -> BundleDeployment {
            serde_json::from_value(json!({"metadata": {"labels": labels}, "spec": spec})).unwrap()
        };
        let one = bundle(json!({"deploymentID": "x"}), json!({}));
        let same = bundle(json!({"deploymentID": "x"}), json!({"other": "label"}));
        assert_eq!(content(&one, None, None), content(&same, None, None));
        let others = [
            content(&bundle(json!({"deploymentID": "y"}), json!({})), None, None),
            content(
                &bundle(json!({"deploymentID": "x"}), json!({TRY_AGAIN: "1"})),
                None,
                None,
            ),
            content(
                &bundle(
                    json!({"deploymentID": "x", "options": {"forceSyncGeneration": 1}}),
                    json!({}),
                ),
                None,
                None,
            ),
            content(&one, Some("facts"), None),
            content(&one, None, Some("values")),
        ];
        for other in others {
            assert_ne!(content(&one, None, None), other);
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut all = AllUndone::new();
        let undone = |until| Undone {
            content: "a".into(),
            attempts: 1,
            until,
        };
        for n in 0..=MAX_BUNDLES {
            let until = i64::try_from(n).unwrap();
            note(&mut all, &format!("b-{n}"), Some(undone(until)), 0);
        }
        assert_eq!(all.len(), MAX_BUNDLES);
        assert!(!all.contains_key("b-0"));
        note(&mut all, "b-7", None, 0);
        assert!(!all.contains_key("b-7"));
        note(&mut all, "late", Some(undone(1_000_000)), 1_000_000);
        assert_eq!(all.keys().collect::<Vec<_>>(), ["late"]);
    }
}
