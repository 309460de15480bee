//! Deploys that are not tried again at once, and when they are: attempts that were undone (`atomic`), hooks that ran and failed, and deploys
//! that only answer what others do to a release. No I/O.
//!
//! An undone upgrade changed the cluster twice, and a hook may be a migration: trying again every few seconds swings an app to and fro. What
//! waits is kept in the ledger: a restart is no reason to try again.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::api::{BundleDeployment, TRY_AGAIN};

/// Bundles remembered; of the others than the one that was tried last those that are due first go. With [`MAX_CONTENTS`] each they fit into an
/// annotation.
const MAX_BUNDLES: usize = 300;

/// Contents of one bundle that are remembered, the one that was tried last among them: what decides them may swing to and fro as well.
const MAX_CONTENTS: usize = 4;

/// So many attempts of a bundle within the first pause, and any other content waits as well.
const MAX_AT_ONCE: usize = 3;

/// Due for so long, it is of a bundle or of content that is gone.
const FORGOTTEN_AFTER_SECONDS: i64 = 24 * 60 * 60;

/// So many seconds the clocks of two nodes may differ.
const CLOCKS_DIFFER: i64 = 60;

/// Prefix of answers to other field managers, in place of a digest of content.
const ANSWER: &str = "answer-";

/// Identifies an attempt: the part of [`Tried::content`] that says what is deployed, and who asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tried(String);

/// Bytes of a digest of content, as text.
const CONTENT_DIGITS: usize = 16;
const ASKED_DIGITS: usize = 8;

impl Tried {
    /// The content of a deploy: the deployment, the facts that are filled in, what is read of ConfigMaps and Secrets, the copies it comes with,
    /// and what asks for another attempt: a forced sync, the label and the annotation.
    pub fn content(bundle: &BundleDeployment, facts: Option<&str>, values: Option<&str>) -> Self {
        let spec = &bundle.spec;
        let content = digest(&[
            spec.deployment_id.as_str(),
            facts.unwrap_or_default(),
            values.unwrap_or_default(),
            &spec.downstream_resources_generation.to_string(),
        ]);
        Self(content[..CONTENT_DIGITS].to_owned() + &asked(bundle))
    }

    /// A deploy of what is deployed already, as somebody else took it away.
    pub fn answer(bundle: &BundleDeployment) -> Self {
        Self(ANSWER.to_owned() + &asked(bundle))
    }

    fn is_answer(&self) -> bool {
        self.0.starts_with(ANSWER)
    }

    /// Whether the same request led to both.
    fn is_asked_as(&self, other: &Self) -> bool {
        let asked = |one: &Self| one.0.get(CONTENT_DIGITS..).map(str::to_owned);
        asked(self) == asked(other)
    }
}

fn asked(bundle: &BundleDeployment) -> String {
    let mut asked = digest(&[
        &bundle.spec.options.force_sync_generation.to_string(),
        bundle.label(TRY_AGAIN).unwrap_or_default(),
        bundle.annotation(TRY_AGAIN).unwrap_or_default(),
    ]);
    asked.truncate(ASKED_DIGITS);
    asked
}

fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    golib::hex::encode(&hash.finalize())
}

/// One deploy that is not tried again at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Attempt {
    content: Tried,
    /// How often, in a row.
    attempts: u32,
    /// Times of the last and the next try, in seconds since 1970.
    at: i64,
    until: i64,
}

/// Attempts of one bundle that are not tried again at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Postponed(Vec<Attempt>);

/// By bundle.
pub(super) type AllPostponed = BTreeMap<String, Postponed>;

/// The pauses after attempts: the first, and the longest.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    pub first: Duration,
    pub longest: Duration,
}

/// How long something still waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// In seconds since 1970.
    pub until: i64,
    pub left: Duration,
}

impl Postponed {
    /// After one more attempt, and how long that waits from now on: for a while at least, whatever else is remembered. `jitter` in 0..1 takes off
    /// up to a fifth of the pause.
    #[must_use]
    pub fn after(mut self, tried: Tried, now: i64, pauses: Pauses, jitter: f64) -> (Self, Wait) {
        // Nobody has done it again for the longest time that there is between two answers.
        let longest = seconds(pauses.longest);
        let is_over = |one: &Attempt| tried.is_answer() && now.saturating_sub(one.until) > longest;
        let earlier = self.0.iter().find(|one| one.content == tried);
        let attempts = earlier
            .filter(|one| !is_over(one))
            .map_or(0, |one| one.attempts);
        let pause = pauses
            .first
            .saturating_mul(2_u32.saturating_pow(attempts))
            .min(pauses.longest)
            .mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 5.0);
        // An answer counts for all others' changes.
        self.0
            .retain(|one| one.content != tried && !(tried.is_answer() && one.content.is_answer()));
        let room = MAX_CONTENTS - usize::from(!tried.is_answer());
        while self.contents().count() > room {
            let first_due = self.contents().min_by_key(|one| one.until);
            let Some(gone) = first_due.map(|one| one.content.clone()) else {
                break;
            };
            self.0.retain(|one| one.content != gone);
        }
        let left = pause.max(Duration::from_secs(1));
        let until = now.saturating_add(seconds(left));
        self.0.push(Attempt {
            content: tried,
            attempts: attempts.saturating_add(1),
            at: now,
            until,
        });
        (self, Wait { until, left })
    }

    /// The attempts still postponed after a deploy succeeded.
    #[must_use]
    pub fn after_success(mut self) -> Self {
        self.0.retain(|one| one.content.is_answer());
        self
    }

    /// How long this still waits, `pauses` being those of its kind. What was tried in the future was tried before a clock was put right, and
    /// makes nobody wait.
    pub fn wait(&self, tried: &Tried, now: i64, pauses: Pauses) -> Option<Wait> {
        let wait = |until: i64| {
            let left = u64::try_from(until.saturating_sub(now)).ok()?;
            let left = Duration::from_secs(left).min(pauses.longest);
            (!left.is_zero()).then_some(Wait { until, left })
        };
        let is_past = |one: &&Attempt| one.at <= now.saturating_add(CLOCKS_DIFFER);
        let mut noted = self.0.iter().filter(is_past);
        let same = noted.find(|one| one.content == *tried);
        let own = same.and_then(|same| wait(same.until));
        if own.is_some() || tried.is_answer() {
            return own;
        }
        // Any part of the content may be the one that swings.
        let first = seconds(pauses.first);
        let recent = self
            .contents()
            .filter(|one| is_past(one) && one.content.is_asked_as(tried))
            .map(|one| one.at.saturating_add(first))
            .filter(|due| *due > now);
        let recent: Vec<_> = recent.collect();
        match recent.len() >= MAX_AT_ONCE {
            true => recent.into_iter().min().and_then(wait),
            false => None,
        }
    }

    fn contents(&self) -> impl Iterator<Item = &Attempt> {
        self.0.iter().filter(|one| !one.content.is_answer())
    }

    /// When the last of it is due.
    fn until(&self) -> i64 {
        self.0.iter().map(|one| one.until).max().unwrap_or(i64::MIN)
    }
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

/// Takes in what became of a bundle's attempt, and forgets what is of no use any more, or has no room beside it.
pub(super) fn note(all: &mut AllPostponed, bundle: &str, postponed: Postponed, now: i64) {
    all.insert(bundle.to_owned(), postponed);
    all.retain(|_, one| now.saturating_sub(one.until()) < FORGOTTEN_AFTER_SECONDS);
    while all.len() > MAX_BUNDLES {
        let others = all.iter().filter(|(name, _)| *name != bundle);
        let first_due = others.min_by_key(|(_, one)| one.until());
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

    const PAUSES: Pauses = Pauses {
        first: Duration::from_secs(120),
        longest: Duration::from_secs(3600),
    };

    /// Asked for by the same request.
    fn tried(content: &str) -> Tried {
        Tried(format!("{content:0>CONTENT_DIGITS$}asked"))
    }

    fn left(postponed: &Postponed, content: &Tried, now: i64) -> Option<u64> {
        let wait = postponed.wait(content, now, PAUSES)?;
        Some(wait.left.as_secs())
    }

    #[test]
    fn pauses_grow_from_minutes_to_an_hour() {
        let mut postponed = Postponed::default();
        let mut pauses = Vec::new();
        for _ in 0..8 {
            postponed = postponed.after(tried("a"), 1_000, PAUSES, 0.0).0;
            pauses.push(postponed.until() - 1_000);
        }
        assert_eq!(pauses, [120, 240, 480, 960, 1920, 3600, 3600, 3600]);
        let jittered = postponed.after(tried("a"), 0, PAUSES, 1.0).0;
        assert_eq!(jittered.until(), 2880);
        let other = jittered.after(tried("b"), 0, PAUSES, 0.0).0;
        assert_eq!(left(&other, &tried("b"), 0), Some(120));
    }

    #[test]
    fn only_the_same_content_waits_and_a_wrong_clock_does_not_prolong_it() {
        let undone = Postponed::default().after(tried("a"), 1_000, PAUSES, 0.0).0;
        let left = |content, now| left(&undone, &tried(content), now);
        assert_eq!(left("a", 1_020), Some(100));
        assert_eq!(left("b", 1_020), None);
        assert_eq!(left("a", 1_120), None);
        assert_eq!(left("a", 990), Some(130));
        assert_eq!(left("a", -900_000), None);
    }

    /// The content tried last waits, whatever else is remembered, and however much longer that waits: what is not remembered is never tried again.
    #[test]
    fn the_content_tried_last_always_waits_however_much_else_is_remembered() {
        let mut postponed = Postponed::default();
        for bad in 0..3 * MAX_CONTENTS {
            let bad = tried(&bad.to_string());
            for _ in 0..6 {
                let wait;
                (postponed, wait) = postponed.after(bad.clone(), 1_000, PAUSES, 0.0);
                assert_eq!(postponed.wait(&bad, 1_000, PAUSES), Some(wait));
                assert!(!wait.left.is_zero());
            }
            assert!(postponed.0.len() <= MAX_CONTENTS);
        }
        // Not even where nothing is to wait at all.
        let none = Pauses {
            first: Duration::ZERO,
            longest: Duration::ZERO,
        };
        let (_, wait) = postponed.after(tried("at once"), 1_000, none, 1.0);
        assert_eq!((wait.until, wait.left.as_secs()), (1_001, 1));
    }

    /// A fact that two controllers write in turns, or a repository that swings between two commits.
    #[test]
    fn alternating_contents_have_a_back_off_each() {
        let mut postponed = Postponed::default();
        let mut attempts = 0;
        for now in 0..3600 {
            let content = tried(if now / 5 % 2 == 0 { "a" } else { "b" });
            if left(&postponed, &content, now).is_none() {
                postponed = postponed.after(content, now, PAUSES, 0.0).0;
                attempts += 1;
            }
        }
        assert_eq!(attempts, 10);
    }

    #[test]
    fn ever_changing_content_is_tried_after_the_first_pause() {
        let mut postponed = Postponed::default();
        let mut attempts = 0;
        for now in 0..1_200 {
            let content = tried(&now.to_string());
            if left(&postponed, &content, now).is_none() {
                postponed = postponed.after(content, now, PAUSES, 0.0).0;
                attempts += 1;
            }
            assert!(postponed.0.len() <= MAX_CONTENTS);
        }
        assert_eq!(attempts, 30);
        // A forced sync does not wait.
        let asked = Tried(format!("{:0>CONTENT_DIGITS$}once more", "a"));
        assert_eq!(left(&postponed, &asked, 1_200), None);
    }

    /// Somebody deletes the record, or deploys another revision, whenever there is one.
    #[test]
    fn deploys_that_answer_anothers_changes_back_off_until_the_changes_end() {
        let answer = Tried(format!("{ANSWER}asked"));
        let pauses = Pauses {
            first: Duration::from_secs(5),
            longest: Duration::from_secs(300),
        };
        let (mut postponed, mut answers) = (Postponed::default(), 0);
        for now in 0..3600 {
            if postponed.wait(&answer, now, pauses).is_none() {
                postponed = postponed
                    .after_success()
                    .after(answer.clone(), now, pauses, 0.0)
                    .0;
                answers += 1;
            }
        }
        assert_eq!(answers, 17);
        assert_eq!(postponed.0.len(), 1);
        // Content of its own is another matter, and so is what happens long after.
        assert_eq!(postponed.wait(&tried("a"), 3600, pauses), None);
        let later = postponed.until() + 301;
        let (again, wait) = postponed.after(answer, later, pauses, 0.0);
        assert_eq!(again.until() - later, 5);
        assert_eq!(wait.until, again.until());
    }

    #[test]
    fn spec_facts_and_sync_label_make_another_content() {
        let bundle = |spec: serde_json::Value, labels: serde_json::Value| -> BundleDeployment {
            serde_json::from_value(json!({"metadata": {"labels": labels}, "spec": spec})).unwrap()
        };
        let content = |bundle| Tried::content(bundle, None, None);
        let one = bundle(json!({"deploymentID": "x"}), json!({}));
        let same = bundle(json!({"deploymentID": "x"}), json!({"other": "label"}));
        assert_eq!(content(&one), content(&same));
        let labelled = bundle(json!({"deploymentID": "x"}), json!({TRY_AGAIN: "1"}));
        let forced = bundle(
            json!({"deploymentID": "x", "options": {"forceSyncGeneration": 1}}),
            json!({}),
        );
        let other = bundle(json!({"deploymentID": "y"}), json!({}));
        let others = [
            content(&other),
            content(&labelled),
            content(&forced),
            Tried::content(&one, Some("facts"), None),
            Tried::content(&one, None, Some("values")),
        ];
        for unlike in others {
            assert_ne!(content(&one), unlike);
        }
        assert_eq!(Tried::answer(&one), Tried::answer(&same));
        assert_ne!(Tried::answer(&one), Tried::answer(&labelled));
        assert!(!content(&one).is_asked_as(&content(&labelled)));
        assert!(content(&one).is_asked_as(&content(&other)));
    }

    #[test]
    fn postponed_attempts_are_bounded() {
        let mut all = AllPostponed::new();
        let undone = |until: i64| {
            let postponed = Postponed::default();
            postponed.after(tried("a"), until, PAUSES, 0.0).0
        };
        for n in 0..=MAX_BUNDLES {
            let until = i64::try_from(n).unwrap();
            note(&mut all, &format!("b-{n}"), undone(until), 0);
        }
        assert_eq!(all.len(), MAX_BUNDLES);
        assert!(!all.contains_key("b-0"));
        // A new attempt is due before all of them.
        note(&mut all, "late", undone(-1), 0);
        assert_eq!(all.len(), MAX_BUNDLES);
        assert!(all.contains_key("late") && !all.contains_key("b-1"));
        note(&mut all, "b-7", Postponed::default(), 0);
        assert!(!all.contains_key("b-7"));
        note(&mut all, "late", undone(1_000_000), 1_000_000);
        assert_eq!(all.keys().collect::<Vec<_>>(), ["late"]);
    }

    /// All annotations of an object take 256 KiB at most.
    #[test]
    fn postponed_attempts_fit_into_an_annotation() {
        let mut all = AllPostponed::new();
        for n in 0..MAX_BUNDLES {
            let mut postponed = Postponed::default();
            for content in 0..MAX_CONTENTS {
                let content = Tried(format!("{content:024}"));
                postponed = postponed.after(content, 1_700_000_000, PAUSES, 0.0).0;
            }
            let answer = Tried(format!("{ANSWER}01234567"));
            postponed = postponed.after(answer, 1_700_000_000, PAUSES, 0.0).0;
            note(&mut all, &format!("{n:0>253}"), postponed, 1_700_000_000);
        }
        assert_eq!(all.len(), MAX_BUNDLES);
        let text = serde_json::to_string(&all).unwrap();
        assert!(text.len() < 250 << 10, "{} bytes", text.len());
    }
}
