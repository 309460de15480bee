//! Looking for another chart under the same name: how often, when last, and what to do about one. No I/O.
//!
//! What a bundle names may come to mean another chart: a tag is moved, a version that a constraint fits is published or withdrawn. A
//! bundle that asks for it is looked after; it is upgraded, and never taken back to an older version without being told to.

use std::collections::HashMap;
use std::time::Duration;

use chart::Metadata;
use chart::source::FetchedChart;
use golib::semver::Version;
use parking_lot::Mutex;
use release::model::Release;
use tokio::time::Instant;

use crate::api::{ANNOTATION_CHART_DIGEST, ANNOTATION_CHART_SOURCE, BundleDeployment, CHART_POLL};
use crate::public;
use crate::public::{Name, PublicText};
use crate::report::metrics::Entries;

/// The shortest interval: what is less counts as this.
const SHORTEST: Duration = Duration::from_secs(10);

/// How often a bundle's source is asked.
///
/// # Errors
/// What the bundle says is no duration.
pub fn interval(bundle: &BundleDeployment) -> Result<Option<Duration>, PublicText> {
    let Some(text) = bundle.switch(CHART_POLL) else {
        return Ok(None);
    };
    let parsed = golib::duration::Duration::parse(text).ok();
    let nanoseconds = parsed.and_then(|parsed| u64::try_from(parsed.0).ok());
    match nanoseconds.map(Duration::from_nanos) {
        Some(Duration::ZERO) => Ok(None),
        Some(interval) => Ok(Some(interval.max(SHORTEST))),
        None => Err(public!(
            "{} is \"{}\", no duration such as 5m",
            CHART_POLL,
            Name(text)
        )),
    }
}

/// A change of a bundle for which the source of its chart is asked again: once, however often the deploy is tried.
struct Asking {
    /// Deployment ID and forced generation.
    desired: (String, i64),
    since: Instant,
    /// The source did not answer, and what it gave before was deployed.
    is_owed: bool,
}

/// When the sources of bundles' charts were asked, and since when they must have been.
#[derive(Default)]
pub struct AskedSources {
    /// Since when they must have been asked, by bundle.
    asked: Mutex<HashMap<String, Asking>>,
    /// When each source was asked last.
    polled: Mutex<HashMap<String, Instant>>,
}

impl AskedSources {
    /// Since when the source of the bundle's chart must have been asked. What is deployed in place of something else, or by force, is what
    /// is there now; a first deploy and those that only repeat one take what was learnt a moment ago.
    pub fn asked_since(&self, bundle: &BundleDeployment) -> Option<Instant> {
        let (spec, status) = (&bundle.spec, &bundle.status);
        let (id, applied) = (&spec.deployment_id, &status.applied_deployment_id);
        let sync = spec.options.force_sync_generation;
        if !bundle.is_sync_due() && (applied == id || applied.is_empty()) {
            return None;
        }
        let desired = (id.clone(), sync);
        let mut asked = self.asked.lock();
        if let Some(known) = asked.get(bundle.name())
            && known.desired == desired
        {
            return Some(known.since);
        }
        let since = Instant::now();
        let asking = Asking {
            desired,
            since,
            is_owed: false,
        };
        asked.insert(bundle.name().to_owned(), asking);
        Some(since)
    }

    /// Notes whether the source of a changed bundle has yet to be asked.
    pub fn owes_answer(&self, bundle: &str, is_owed: bool) {
        if let Some(asking) = self.asked.lock().get_mut(bundle) {
            asking.is_owed = is_owed;
        }
    }

    /// Whether a changed bundle was deployed from what its source gave before, as that did not answer.
    pub fn is_owed_answer(&self, bundle: &str) -> bool {
        let asked = self.asked.lock();
        asked.get(bundle).is_some_and(|asking| asking.is_owed)
    }

    /// The source of a bundle's chart is asked now.
    pub fn note_polled(&self, bundle: &str) -> Instant {
        let now = Instant::now();
        self.polled.lock().insert(bundle.to_owned(), now);
        now
    }

    /// How long until the source of a bundle's chart is to be asked, if it is every `interval`.
    pub fn poll_in(&self, bundle: &str, interval: Duration) -> Duration {
        let polled = self.polled.lock();
        let last = polled.get(bundle);
        last.map_or(Duration::ZERO, |last| {
            interval.saturating_sub(last.elapsed())
        })
    }

    /// Forgets a bundle that is gone.
    pub fn forget(&self, bundle: &str) {
        self.asked.lock().remove(bundle);
        self.polled.lock().remove(bundle);
    }

    /// Bundles whose sources were asked.
    pub fn entries(&self) -> Entries {
        vec![
            ("bundles_that_ask_sources", self.asked.lock().len()),
            ("bundles_that_poll_sources", self.polled.lock().len()),
        ]
    }
}

/// What a source has in place of the chart that is deployed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Same,
    /// A later version, or other content.
    Other,
    /// An earlier version; the text says which.
    Older(PublicText),
    /// The source does not answer.
    Unanswered,
}

/// Compares what is deployed with what was fetched.
pub fn compare(deployed: &Release, fetched: &FetchedChart) -> Found {
    if fetched.is_stale {
        return Found::Unanswered;
    }
    let Some(metadata) = metadata(deployed) else {
        return Found::Same;
    };
    let digest = deployed.annotation(ANNOTATION_CHART_DIGEST);
    if digest == Some(fetched.digest.as_str()) {
        return Found::Same;
    }
    let other = match digest {
        Some(_) => Found::Other,
        // Deployed before digests were written down: the version alone decides.
        None => Found::Same,
    };
    if let Some(older) = older(deployed, &fetched.version, &fetched.digest) {
        return older;
    }
    match order(&metadata.version, &fetched.version) {
        Some(std::cmp::Ordering::Less) => Found::Other,
        _ => other,
    }
}

/// The answer to a chart of an earlier version than is deployed.
pub fn older(deployed: &Release, new: &str, digest: &str) -> Option<Found> {
    let metadata = metadata(deployed)?;
    let (name, old) = (&metadata.name, &metadata.version);
    let is_older = order(old, new) == Some(std::cmp::Ordering::Greater);
    is_older.then(|| {
        Found::Older(public!(
            "chart {} {} is deployed, and {} ({}) is what its source has now: it stays, as that is older",
            Name(name),
            Name(old),
            Name(new),
            Name(digest)
        ))
    })
}

/// Event text for a deploy that took a bundle to an older version though it names the same chart as before.
pub fn downgrade(before: Option<&Release>, now: &Release) -> Option<PublicText> {
    let before = before?;
    let source = before.annotation(ANNOTATION_CHART_SOURCE);
    let is_same_source = source.is_some() && source == now.annotation(ANNOTATION_CHART_SOURCE);
    let (before, now) = (metadata(before)?, metadata(now)?);
    let is_older = order(&before.version, &now.version) == Some(std::cmp::Ordering::Greater);
    (is_same_source && is_older).then(|| {
        let (name, old, new) = (&now.name, &before.version, &now.version);
        public!(
            "chart {} {} was deployed in place of {}, which its source has no more",
            Name(name),
            Name(new),
            Name(old)
        )
    })
}

/// What an Event says of the chart a release was made of, if that was fetched.
pub fn event_text(release: &Release) -> PublicText {
    let Some(metadata) = metadata(release) else {
        return PublicText::default();
    };
    match release.annotation(ANNOTATION_CHART_DIGEST) {
        Some(digest) => public!(
            ", chart {} {} ({})",
            Name(&metadata.name),
            Name(&metadata.version),
            Name(digest)
        ),
        None => PublicText::default(),
    }
}

fn metadata(release: &Release) -> Option<&Metadata> {
    Some(&release.chart.as_ref()?.metadata)
}

fn order(old: &str, new: &str) -> Option<std::cmp::Ordering> {
    let (old, new) = (Version::parse(old).ok()?, Version::parse(new).ok()?);
    Some(old.cmp(&new))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn deployed(version: &str, annotations: &[(&str, &str)]) -> Release {
        let annotations: serde_json::Map<_, _> = annotations
            .iter()
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        let metadata = json!({"name": "web", "version": version, "annotations": annotations});
        let chart = chart::Chart {
            metadata: serde_json::from_value(metadata).unwrap(),
            ..chart::Chart::default()
        };
        Release {
            chart: Some(std::sync::Arc::new(chart)),
            ..Release::default()
        }
    }

    fn fetched(version: &str, digest: &str) -> FetchedChart {
        FetchedChart {
            bytes: Default::default(),
            unpacked_bytes: 0,
            version: version.into(),
            digest: digest.into(),
            manifest: None,
            url: chart::source::SafeUrl::parse("https://charts.example/web.tgz").unwrap(),
            is_stale: false,
        }
    }

    #[rstest]
    #[case::nothing_new("1.0.0", Some("a"), "1.0.0", "a", "same")]
    #[case::a_moved_tag("1.0.0", Some("a"), "1.0.0", "b", "other")]
    #[case::a_newer_version("1.0.0", Some("a"), "1.1.0", "b", "other")]
    #[case::an_older_version("1.1.0", Some("a"), "1.0.0", "b", "older")]
    #[case::the_same_under_another_version("1.1.0", Some("a"), "1.0.0", "a", "same")]
    #[case::a_tag_that_is_no_version("1.0.0", Some("a"), "latest", "b", "other")]
    #[case::by_another_agent("1.0.0", None, "1.0.0", "b", "same")]
    #[case::newer_than_by_another_agent("1.0.0", None, "1.0.1", "b", "other")]
    fn a_fetched_chart_is_compared_with_the_deployed_one(
        #[case] version: &str,
        #[case] digest: Option<&str>,
        #[case] new_version: &str,
        #[case] new_digest: &str,
        #[case] want: &str,
    ) {
        let annotations: Vec<_> = digest
            .map(|digest| (ANNOTATION_CHART_DIGEST, digest))
            .into_iter()
            .collect();
        let found = compare(
            &deployed(version, &annotations),
            &fetched(new_version, new_digest),
        );
        let found = match found {
            Found::Same => "same",
            Found::Other => "other",
            Found::Older(_) => "older",
            Found::Unanswered => "unanswered",
        };
        assert_eq!(found, want);
    }

    #[test]
    fn only_the_same_source_makes_a_downgrade() {
        let at = |version, source| deployed(version, &[(ANNOTATION_CHART_SOURCE, source)]);
        let now = at("1.0.0", "repo web ^1");
        let reported = downgrade(Some(&at("1.1.0", "repo web ^1")), &now).unwrap();
        assert!(
            reported.contains("1.0.0 was deployed in place of 1.1.0"),
            "{reported}"
        );
        for before in [
            at("1.1.0", "repo web 1.1.0"),
            at("0.9.0", "repo web ^1"),
            deployed("2.0.0", &[]),
        ] {
            assert_eq!(downgrade(Some(&before), &now), None);
        }
    }

    #[rstest]
    #[case(None, Ok(None))]
    #[case(Some("5m"), Ok(Some(Duration::from_secs(300))))]
    #[case(Some("1s"), Ok(Some(SHORTEST)))]
    #[case(Some("0"), Ok(None))]
    #[case(Some("often"), Err("fleet.cattle.io/chart-poll is \"often\", no duration such as 5m".into()))]
    #[case(Some("-5m"), Err("fleet.cattle.io/chart-poll is \"-5m\", no duration such as 5m".into()))]
    fn intervals(#[case] label: Option<&str>, #[case] want: Result<Option<Duration>, PublicText>) {
        let labels = label.map(|text| json!({ CHART_POLL: text }));
        let bundle = json!({"metadata": {"labels": labels}});
        assert_eq!(interval(&serde_json::from_value(bundle).unwrap()), want);
    }
}
