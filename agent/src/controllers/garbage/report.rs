//! What the agent does not remove, for operators: ConfigMap `fleet-agent-removals` in the system
//! namespace, and the figures of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::verdict::HoldReason;
use crate::error;
use crate::ledger::ReleaseKey;
use crate::public::PublicText;
use crate::report::metrics::Metrics;

/// Name of the ConfigMap. It is made with the first entry.
pub const REPORT_NAME: &str = "fleet-agent-removals";
/// Key with the bundles whose releases are held back, one a line.
const HELD_KEY: &str = "held";

/// The pause after a write that failed, doubled after each further one, and the longest.
const FIRST_RETRY: Duration = Duration::from_secs(5);
const LONGEST_RETRY: Duration = Duration::from_secs(5 * 60);
/// Key with the releases that the ledger does not know, one a line.
const UNKNOWN_KEY: &str = "unknown";

/// A release whose record names this agent and that the ledger does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    pub key: ReleaseKey,
    /// The bundle its record names.
    pub bundle: String,
}

/// Reports held removals and unknown releases; shared by reference.
pub struct Report {
    maps: Api<ConfigMap>,
    metrics: Metrics,
    lines: Mutex<Lines>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Lines {
    held: BTreeMap<String, (HoldReason, Vec<ReleaseKey>)>,
    /// The bundles that their records name.
    unknown: BTreeMap<ReleaseKey, String>,
    /// Records that were not read.
    left_out: usize,
    /// As last written; `None` before the ConfigMap was read.
    written: Option<Texts>,
}

/// The two values of the ConfigMap.
type Texts = [Option<String>; 2];

impl Lines {
    fn texts(&self) -> Texts {
        let held = self.held.iter().map(|(bundle, (reason, releases))| {
            format!("{bundle} ({}): {}\n", names(releases), reason.text())
        });
        let left_out = Some(self.left_out).filter(|count| *count > 0);
        let left_out = left_out.map(|count| format!("not looked at: {count} further records\n"));
        let unknown = self.unknown.iter().map(|(key, bundle)| {
            format!(
                "{}/{}: its record names bundle {bundle}, the ledger does not know it\n",
                key.namespace, key.name
            )
        });
        [bounded(held), bounded(left_out.into_iter().chain(unknown))]
    }

    fn held_releases(&self) -> usize {
        self.held.values().map(|(_, releases)| releases.len()).sum()
    }
}

/// Bytes of each key of the ConfigMap: what does not fit into it is not written at all.
const MAX_TEXT_BYTES: usize = 256 << 10;

/// The lines, as far as they fit, and how many there are besides; none where there is no line.
fn bounded(lines: impl Iterator<Item = String>) -> Option<String> {
    let (mut text, mut more) = (String::new(), 0_usize);
    for line in lines {
        match text.len() + line.len() <= MAX_TEXT_BYTES {
            true => text.push_str(&line),
            false => more += 1,
        }
    }
    if more > 0 {
        text.push_str(&format!("and {more} more\n"));
    }
    Some(text).filter(|text| !text.is_empty())
}

fn names(releases: &[ReleaseKey]) -> String {
    let names: Vec<_> = releases
        .iter()
        .map(|key| format!("{}/{}", key.namespace, key.name))
        .collect();
    names.join(", ")
}

impl Report {
    /// An empty report; [`Report::run`] keeps the ConfigMap like it.
    pub fn new(maps: Api<ConfigMap>, metrics: Metrics) -> Self {
        metrics.held_removals(0);
        Self {
            maps,
            metrics,
            lines: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Adds that a bundle's releases are held back. Whether it was not in the report yet.
    pub fn hold(&self, bundle: &str, reason: HoldReason, releases: Vec<ReleaseKey>) -> bool {
        let mut lines = self.lines.lock();
        let entry = (reason, releases);
        if lines.held.get(bundle) == Some(&entry) {
            return false;
        }
        lines.held.insert(bundle.to_owned(), entry);
        self.metrics.held_removals(lines.held_releases());
        self.changed.notify_one();
        true
    }

    /// Why a bundle is held back, as the report has it.
    pub fn reason(&self, bundle: &str) -> Option<HoldReason> {
        let lines = self.lines.lock();
        lines.held.get(bundle).map(|(reason, _)| *reason)
    }

    /// A bundle is back, or its releases are gone; whether it was held.
    pub fn let_go(&self, bundle: &str) -> bool {
        let mut lines = self.lines.lock();
        let was_held = lines.held.remove(bundle).is_some();
        if was_held {
            self.metrics.held_removals(lines.held_releases());
            self.changed.notify_one();
        }
        was_held
    }

    /// Replaces the releases that the ledger does not know, but for those that are `unread` now; gives those that are new. `left_out` records were
    /// not read.
    pub fn unknown(
        &self,
        found: Vec<Unknown>,
        unread: &BTreeSet<ReleaseKey>,
        left_out: usize,
    ) -> Vec<Unknown> {
        let mut lines = self.lines.lock();
        let is_new = |one: &&Unknown| lines.unknown.get(&one.key) != Some(&one.bundle);
        let added = found.iter().filter(is_new).cloned().collect();
        lines.unknown.retain(|key, _| unread.contains(key));
        let found = found
            .into_iter()
            .map(|Unknown { key, bundle }| (key, bundle));
        lines.unknown.extend(found);
        lines.left_out = left_out;
        self.metrics.unknown_releases(lines.unknown.len());
        self.changed.notify_one();
        added
    }

    /// Keeps the ConfigMap like the report. Never returns.
    ///
    /// # Cancellation
    /// Safe at any point.
    pub async fn run(&self) {
        loop {
            self.changed.notified().await;
            let mut pause = FIRST_RETRY;
            while let Err(failed) = self.write().await {
                logging::warn!(
                    error = PublicText::nothing_secret_in(&failed),
                    "cannot write {}",
                    REPORT_NAME
                );
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_RETRY);
            }
        }
    }

    async fn write(&self) -> kube::Result<()> {
        let (texts, written) = {
            let lines = self.lines.lock();
            (lines.texts(), lines.written.clone())
        };
        let written = match written {
            Some(written) => written,
            // What the agent before this one left is read, so that an unchanged report is no write.
            None => self.read().await?,
        };
        if written == texts {
            self.lines.lock().written = Some(texts);
            return Ok(());
        }
        let keys = [HELD_KEY, UNKNOWN_KEY];
        let data: serde_json::Map<_, _> = keys
            .iter()
            .zip(&texts)
            .map(|(key, text)| {
                (
                    (*key).to_owned(),
                    text.clone().map_or(Value::Null, Into::into),
                )
            })
            .collect();
        let patch = Patch::Merge(json!({ "data": data }));
        match self
            .maps
            .patch(REPORT_NAME, &PatchParams::default(), &patch)
            .await
        {
            Err(failed) if error::has_code(&failed, 404) => self.create(&keys, &texts).await?,
            result => drop(result?),
        }
        self.lines.lock().written = Some(texts);
        Ok(())
    }

    async fn read(&self) -> kube::Result<Texts> {
        let map = error::found(self.maps.get(REPORT_NAME).await)?;
        let mut data = map.and_then(|map| map.data).unwrap_or_default();
        Ok([HELD_KEY, UNKNOWN_KEY].map(|key| data.remove(key)))
    }

    /// Makes the ConfigMap, if there is any entry.
    async fn create(&self, keys: &[&str], texts: &Texts) -> kube::Result<()> {
        let data: BTreeMap<_, _> = keys
            .iter()
            .zip(texts)
            .filter_map(|(key, text)| Some(((*key).to_owned(), text.clone()?)))
            .collect();
        if data.is_empty() {
            return Ok(());
        }
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(REPORT_NAME.into()),
                ..Default::default()
            },
            data: Some(data),
            ..Default::default()
        };
        self.maps
            .create(&PostParams::default(), &map)
            .await
            .map(drop)
    }

    /// How many bundles are held.
    pub fn count(&self) -> usize {
        self.lines.lock().held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::scripted;

    #[test]
    fn a_line_names_the_bundle_its_releases_and_the_reason() {
        let key = |name: &str| ReleaseKey {
            namespace: "apps".into(),
            name: name.into(),
        };
        let mut lines = Lines::default();
        assert_eq!(lines.texts(), [None, None]);
        let releases = vec![key("a"), key("b")];
        lines
            .held
            .insert("web".into(), (HoldReason::OwnGone, releases));
        lines.unknown.insert(key("x"), "other".into());
        lines.left_out = 3;
        let [held, unknown] = lines.texts();
        assert_eq!(
            held.unwrap(),
            "web (apps/a, apps/b): the agent's own bundledeployment is gone from upstream as well\n"
        );
        assert_eq!(
            unknown.unwrap(),
            "not looked at: 3 further records\n\
             apps/x: its record names bundle other, the ledger does not know it\n"
        );
        assert_eq!(lines.held_releases(), 2);
    }

    /// By comparing each with each it took minutes, in which the lease was lost.
    #[tokio::test]
    async fn a_hundred_thousand_unknown_releases_are_reported_at_once() {
        let clients = scripted::clients(|_| std::future::ready((200, serde_json::json!({}))));
        let agent = scripted::identities(&clients).agent();
        let maps = Api::<ConfigMap>::namespaced(agent.client(), "system");
        let report = Report::new(maps, Metrics::default());
        let key = |number: usize| ReleaseKey {
            namespace: "apps".into(),
            name: format!("release-{number}"),
        };
        let found = |bundle: &str| -> Vec<_> {
            let numbers = (0..100_000).rev();
            let bundle = bundle.to_owned();
            let unknown = move |number| (key(number), bundle.clone());
            let unknown = numbers.map(unknown);
            unknown
                .map(|(key, bundle)| Unknown { key, bundle })
                .collect()
        };
        let begun = std::time::Instant::now();
        let none = BTreeSet::new();
        assert_eq!(report.unknown(found("a"), &none, 0).len(), 100_000);
        assert_eq!(report.unknown(found("a"), &none, 0).len(), 0);
        assert_eq!(report.unknown(found("b"), &none, 0).len(), 100_000);
        let unread = BTreeSet::from([key(7)]);
        assert_eq!(report.unknown(Vec::new(), &unread, 0).len(), 0);
        assert_eq!(report.lines.lock().unknown.len(), 1);
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{:?}",
            begun.elapsed()
        );
    }

    #[test]
    fn a_report_stays_within_its_size_limit() {
        let lines = (0..10_000).map(|n| format!("apps/{n}: {}\n", "x".repeat(100)));
        let text = bounded(lines).unwrap();
        assert!(text.len() < MAX_TEXT_BYTES + 100, "{}", text.len());
        assert!(text.ends_with(" more\n"), "{}", &text[text.len() - 50..]);
        assert_eq!(bounded(std::iter::empty()), None);
    }
}
