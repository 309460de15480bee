//! Reading the values of a bundle: its Secret upstream, the ConfigMaps and Secrets it names on this
//! cluster, and facts about the cluster. What is made of them is decided in [`crate::values`].

use chart::values::merge_maps;
use std::sync::Arc;
use std::time::Duration;

use golib::budget::Budget;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use objects::drift::MASK;
use release::Host;
use release::model::Release;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tokio::task::JoinError;

use super::halt::InputError;
use super::memory_permit::MemoryPermit;
use super::rendering::RenderClock;
use crate::api::{
    ANNOTATION_FACTS, ANNOTATION_VALUES_FROM, BundleDeployment, BundleDeploymentOptions,
    BundleDeploymentSpec, HelmOptions,
};
use crate::client::identity::DeploymentClient;
use crate::config::ClusterValuesMode;
use crate::controllers::facts::Facts;
use crate::controllers::values_watch::{LastRead, ValuesWatches};
use crate::error;
use crate::public;
use crate::public::PublicText;
use crate::public::redact::{self, SensitiveData};
use crate::values::{self, Gathered, Reference, ReferenceKind, TemplateError};

/// The most ConfigMaps and Secrets that one bundle may read: each is watched, and read at each deploy.
pub(super) const MAX_REFERENCES: usize = 100;

/// What these may take together: as much as fits a release record many times over.
const MAX_CONTENT: usize = 16 << 20;

/// How much of a digest stands in a release, in hexadecimal digits.
const DIGEST_LENGTH: usize = 16;

/// Reads values; shared by all reconciles.
pub struct ValuesReader {
    pub upstream: Client,
    pub facts: Arc<Facts>,
    pub watches: Arc<ValuesWatches>,
    /// The agent's mode, where a bundle does not say otherwise.
    pub mode: ClusterValuesMode,
    /// Decides from the read inputs, however long that takes.
    pub host: Host,
    /// How long the `${ }` of a bundle may take.
    pub limit: Duration,
}

/// A bundle with its `${ }` filled in.
pub struct Filled {
    /// With filled-in version, name and namespace.
    pub bundle: Arc<BundleDeployment>,
    /// Filled-in values, where they are the agent's to fill in.
    values: Option<Map<String, Value>>,
    /// Of the facts that were read; `None` when none were.
    pub digest: Option<String>,
    /// The facts that its names are filled in with.
    pub secrets: Arc<SensitiveData>,
}

/// What the key of a reference holds; `None` if there is no such key.
type Content = (Reference, Option<Vec<u8>>);

/// A source of values cannot be read now.
pub struct UnreadValues {
    pub why: InputError,
    /// Whether a watch event comes when that changes: the spec is another one, or an object is there that was not.
    pub is_watched: bool,
    /// Whether the bundle's account may not read it.
    pub is_forbidden: bool,
}

impl UnreadValues {
    /// When a bundle reads them again; none where a watch event comes.
    pub fn read_again_in(&self, watches: &ValuesWatches, bundle: &str) -> Option<Duration> {
        (!self.is_watched).then(|| watches.read_again_in(bundle, self.is_forbidden))
    }

    fn new(failed: kube::Error) -> Self {
        Self {
            is_watched: error::is_not_found(&failed),
            is_forbidden: error::has_code(&failed, 403),
            why: InputError::new(failed),
        }
    }
}

/// What the values of a bundle are made of. Cheap to clone.
#[derive(Clone)]
pub(super) struct Given {
    /// The bundle's own.
    own: Arc<Map<String, Value>>,
    /// Contents of the ConfigMaps and Secrets, merged in this order.
    contents: Arc<[Content]>,
    /// Digest of what ConfigMaps and Secrets hold, where some are named.
    pub(super) digest: Option<String>,
}

impl Given {
    /// The values a bundle is deployed with, which may take what is left of the budget.
    ///
    /// # Errors
    /// Something is no YAML, or all is too large. No text quotes a value.
    pub(super) fn merged(&self, budget: &mut Budget) -> Result<Map<String, Value>, InputError> {
        budget.add_entries(&self.own).map_err(InputError::new)?;
        let mut merged = Map::clone(&self.own);
        for (reference, content) in &*self.contents {
            let over = values::parse(reference, content.as_deref(), budget);
            let over = over.map_err(|failed| {
                let mut secrets = SensitiveData::default();
                secrets.add_content(content.as_deref().unwrap_or_default());
                InputError::Failed(secrets.redact_error(&failed))
            });
            merge_maps(&mut merged, over?);
        }
        Ok(merged)
    }
}

impl Filled {
    /// Whether a release was filled in with other facts, or by an agent that does not fill in.
    pub fn is_outdated(&self, release: &Release) -> bool {
        self.digest.is_some() && self.digest.as_deref() != release.annotation(ANNOTATION_FACTS)
    }
}

/// The facts that may be secret.
fn secret_in(gathered: &Gathered) -> SensitiveData {
    SensitiveData::of_facts(&gathered.facts.template_values, &gathered.secrets)
}

/// How the names of the cluster's facts begin.
const FACT: &str = ".Cluster";

/// The error of templates that stand in values from a Secret, where a password with `${` in it is one as well: which fact they ask for in vain, and
/// otherwise where the error is, without any quote of the values.
fn without_stored(failed: &str, stored: Option<&Map<String, Value>>) -> String {
    let is_fact = |text: &str| {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || "._".contains(c);
        text.starts_with(FACT) && text.chars().all(is_of_name)
    };
    let shown = match failed.split_once(" at <") {
        Some((place, rest)) => match rest.split_once(">: ") {
            // The values say its name, too, which is no secret.
            Some((asked, _)) if is_fact(asked) => return failed.to_owned(),
            _ => format!("{place} at <{MASK}>"),
        },
        None => redact::without_quotes(failed).to_string(),
    };
    match stored {
        Some(stored) => SensitiveData::of_values(stored, &Arc::default()).redact(&shown),
        None => shown,
    }
}

impl ValuesReader {
    /// Fills in what is the agent's to fill in. A bundle without `${ }` costs nothing.
    ///
    /// # Errors
    /// The mode is unknown, a fact cannot be read, or a template fails; then the sources that were asked are named.
    pub async fn fill(&self, bundle: &Arc<BundleDeployment>) -> Result<Filled, InputError> {
        let mode = self.mode.for_bundle(bundle).map_err(InputError::new)?;
        let fills_values = mode.fills_values(&bundle.spec);
        let fills_coordinates = mode != ClusterValuesMode::Never && values::has_templates(bundle);
        if !fills_values && !fills_coordinates {
            self.facts.reads_nothing(bundle.name());
            return Ok(Filled {
                bundle: Arc::clone(bundle),
                values: None,
                digest: None,
                secrets: Arc::default(),
            });
        }
        let helm = match fills_values {
            true => self.templates(bundle).await?,
            false => None,
        };
        let own = Arc::clone(bundle);
        let read = self
            .host
            .work(move || (values::reads(&own, helm.as_ref()), helm));
        let (reads, helm) = read.await.map_err(aborted)?;
        let (gathered, digest) = if reads.is_empty() {
            self.facts.reads_nothing(bundle.name());
            (Arc::default(), None)
        } else {
            let gathered = self.facts.current().await.map_err(InputError::new)?;
            let digest = gathered.digest(&reads);
            // Before rendering: a bundle that lacks a key waits for that key.
            self.facts.remember(bundle.name(), reads, &digest);
            (gathered, Some(digest))
        };
        let (own, known) = (Arc::clone(bundle), Arc::clone(&gathered));
        let are_stored = !bundle.spec.values_hash.is_empty();
        let clock = RenderClock::new(Duration::ZERO, self.limit);
        let filled = self.host.work(move || {
            let filled = values::fill(&own, helm.as_ref(), &known.facts, &clock);
            filled.map_err(|failed: TemplateError| {
                let secrets = secret_in(&known);
                let mut message = failed.masked();
                if let Some(stored) = helm.as_ref().filter(|_| are_stored) {
                    message = without_stored(&message, stored.values.as_ref());
                }
                let message = secrets.redact_text(&message);
                // Names of sources, and what they answered.
                let asked = secrets.redact_text(&known.summary());
                InputError::Failed(public!("{}; {}", message, asked))
            })
        });
        let (filled, values) = filled.await.map_err(aborted)??;
        let values = fills_values.then(|| values.unwrap_or_default());
        let secrets = match fills_coordinates {
            true => Arc::new(secret_in(&gathered)),
            false => Arc::default(),
        };
        Ok(Filled {
            bundle: Arc::new(filled),
            values,
            digest,
            secrets,
        })
    }

    /// Values and template values as they are before filling in.
    async fn templates(
        &self,
        bundle: &BundleDeployment,
    ) -> Result<Option<HelmOptions>, InputError> {
        let mut helm = values::options_to_fill(bundle);
        if !bundle.spec.values_hash.is_empty() {
            helm.get_or_insert_default().values = self.stored(bundle).await?;
        }
        Ok(helm)
    }

    /// What the values of a bundle come from.
    ///
    /// # Errors
    /// Something named is missing or unreadable. No text quotes a value.
    pub(super) async fn of(
        &self,
        impersonated: &DeploymentClient,
        filled: &Filled,
        permit: &mut MemoryPermit<'_>,
    ) -> Result<Given, InputError> {
        let spec = &filled.bundle.spec;
        let own = match &filled.values {
            Some(values) => values.clone(),
            None => {
                let helm = spec.options.helm.as_ref();
                let inline = values::inline(helm.and_then(|helm| helm.values.as_ref()));
                match spec.values_hash.is_empty() {
                    true => inline,
                    false => self.stored(&filled.bundle).await?.unwrap_or(inline),
                }
            }
        };
        let mut digest = ValuesDigest::default();
        let (mut contents, mut bytes) = (Vec::new(), 0);
        for reference in references(&spec.options)? {
            let content = self.read(impersonated, &filled.bundle, &reference).await;
            let content = content.map_err(InputError::new)?;
            digest.add(&reference, content.as_deref());
            let length = content.as_ref().map_or(0, Vec::len);
            bytes += length;
            if bytes > MAX_CONTENT {
                return Err(InputError::Failed(public!(
                    "what valuesFrom names takes more than {} MiB",
                    MAX_CONTENT >> 20
                )));
            }
            permit.has_read(length as u64).await;
            contents.push((reference, content));
        }
        Ok(Given {
            own: Arc::new(own),
            contents: contents.into(),
            digest: digest.finish(),
        })
    }

    /// The digest of what a bundle's values come from, read now; `None` where they come from no ConfigMap and no Secret.
    ///
    /// # Errors
    /// One of them is missing or unreadable.
    pub async fn digest_now(
        &self,
        impersonated: &DeploymentClient,
        bundle: &BundleDeployment,
    ) -> Result<Option<String>, UnreadValues> {
        let references = references(&bundle.spec.options).map_err(|why| UnreadValues {
            why,
            is_watched: true,
            is_forbidden: false,
        })?;
        let mut digest = ValuesDigest::default();
        for reference in references {
            let content = self.read(impersonated, bundle, &reference).await;
            let content = content.map_err(UnreadValues::new)?;
            digest.add(&reference, content.as_deref());
        }
        Ok(digest.finish())
    }

    /// The content of a reference's key, read with the bundle's rights; `None` if there is no such key.
    async fn read(
        &self,
        impersonated: &DeploymentClient,
        bundle: &BundleDeployment,
        reference: &Reference,
    ) -> kube::Result<Option<Vec<u8>>> {
        let found = read(impersonated, reference).await;
        let last = match &found {
            Ok((_, version)) => LastRead::At(version.clone().unwrap_or_default()),
            Err(failed) if error::is_not_found(failed) => LastRead::Missing,
            Err(_) => LastRead::Failed,
        };
        self.watches.was_read(bundle.name(), reference, last);
        found.map(|(content, _)| content)
    }

    /// The values Secret the controller writes next to the BundleDeployment, a moment after it.
    async fn stored(
        &self,
        bundle: &BundleDeployment,
    ) -> Result<Option<Map<String, Value>>, InputError> {
        let secrets = Api::<Secret>::namespaced(self.upstream.clone(), bundle.namespace());
        let secret =
            secrets.get(bundle.name()).await.map_err(|failed| {
                match error::is_not_found(&failed) {
                    true => InputError::NotYet(PublicText::nothing_secret_in(&failed)),
                    false => InputError::new(failed),
                }
            })?;
        values::stored(&secret, &bundle.spec.values_hash)
            .map_err(|failed| InputError::NotYet(PublicText::nothing_secret_in(&failed)))
    }
}

/// What a bundle's objects, as they were deployed, may show that is secret: the data of the Secrets among them, and of its values all that
/// does not stand in its spec, where some came from elsewhere: as the release says, which knows what was asked then, or as the spec does,
/// since a release of the Go agent's or of an older one says nothing.
pub fn secrets(spec: &BundleDeploymentSpec, release: &Release) -> SensitiveData {
    // Facts may come from the Secret of the site.
    let mut elsewhere = [ANNOTATION_VALUES_FROM, ANNOTATION_FACTS].into_iter();
    let came_from_elsewhere = elsewhere.any(|key| release.annotation(key).is_some())
        || !values::references(&spec.options).is_empty();
    let mut secrets = match came_from_elsewhere {
        true => {
            let helm = spec.options.helm.as_ref();
            let shown = values::inline(helm.and_then(|helm| helm.values.as_ref()));
            SensitiveData::of_given(release).without(&shown)
        }
        false => SensitiveData::default(),
    };
    secrets.add_secrets(release);
    secrets
}

/// A panic may quote anything.
fn aborted(_: JoinError) -> InputError {
    InputError::Failed("reading the values was aborted".into())
}

/// What the values of a bundle come from besides its spec.
///
/// # Errors
/// There are more than anybody reads.
fn references(options: &BundleDeploymentOptions) -> Result<Vec<Reference>, InputError> {
    let references = values::references(options);
    match references.len() {
        0..=MAX_REFERENCES => Ok(references),
        many => Err(InputError::Failed(public!(
            "valuesFrom names {} ConfigMaps and Secrets, {} are the most",
            many,
            MAX_REFERENCES
        ))),
    }
}

/// A digest of what values come from.
#[derive(Default)]
struct ValuesDigest(Option<Sha256>);

impl ValuesDigest {
    fn add(&mut self, reference: &Reference, content: Option<&[u8]>) {
        let hash = self.0.get_or_insert_with(Sha256::new);
        let name = format!("{reference:?}");
        for part in [name.as_bytes(), content.unwrap_or_default()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }

    fn finish(self) -> Option<String> {
        let mut digest = golib::hex::encode(&self.0?.finalize());
        digest.truncate(DIGEST_LENGTH);
        Some(digest)
    }
}

/// The content of a reference's key and the version of the object.
async fn read(
    impersonated: &DeploymentClient,
    reference: &Reference,
) -> kube::Result<(Option<Vec<u8>>, Option<String>)> {
    let Reference {
        kind,
        namespace,
        name,
        key,
    } = reference;
    Ok(match kind {
        ReferenceKind::ConfigMap => {
            let maps = Api::<ConfigMap>::namespaced(impersonated.client(), namespace);
            let map = maps.get(name).await?;
            let content = map.data.unwrap_or_default().remove(key);
            (
                content.map(String::into_bytes),
                map.metadata.resource_version,
            )
        }
        ReferenceKind::Secret => {
            let secrets = Api::<Secret>::namespaced(impersonated.client(), namespace);
            let secret = secrets.get(name).await?;
            let content = secret.data.unwrap_or_default().remove(key);
            (
                content.map(|content| content.0),
                secret.metadata.resource_version,
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ANNOTATION_LOOKED_UP, ModifiedStatus};
    use crate::client::scripted;
    use crate::controllers::queue::{Backoff, Queue};
    use crate::report::metrics::Metrics;
    use chart::Chart;
    use rstest::rstest;
    use serde_json::json;

    #[test]
    fn a_bundle_with_more_than_100_values_sources_is_refused() {
        let options = |count: usize| -> BundleDeploymentOptions {
            let one = |n| json!({"configMapKeyRef": {"name": format!("m-{n}")}});
            let values_from: Vec<_> = (0..count).map(one).collect();
            serde_json::from_value(json!({"helm": {"valuesFrom": values_from}})).unwrap()
        };
        assert_eq!(references(&options(100)).unwrap().len(), 100);
        let InputError::Failed(refused) = references(&options(101)).unwrap_err() else {
            panic!("waited for")
        };
        assert_eq!(
            refused,
            "valuesFrom names 101 ConfigMaps and Secrets, 100 are the most"
        );
    }

    /// No event comes of an API server that answers again, nor of rights that are there again.
    #[rstest]
    #[case::overloaded(429, "TooManyRequests", false)]
    #[case::forbidden(403, "Forbidden", false)]
    #[case::out_of_order(500, "InternalError", false)]
    #[case::a_page_of_a_proxy(404, "Failed to parse error data", false)]
    #[case::not_there(404, "NotFound", true)]
    fn only_a_missing_values_source_is_left_to_its_watch(
        #[case] code: u16,
        #[case] reason: &str,
        #[case] expected: bool,
    ) {
        let status = kube::core::Status::failure("", reason).with_code(code);
        let unread = UnreadValues::new(kube::Error::Api(status.boxed()));
        assert_eq!(unread.is_watched, expected);
        assert_eq!(unread.is_forbidden, code == 403);
    }

    /// Whether an API server that is out of order answers again shows soon; rights may never come.
    #[rstest]
    #[case::forbidden(403, "Forbidden", [Some(60), Some(120)])]
    #[case::out_of_order(500, "InternalError", [Some(60), Some(60)])]
    #[case::not_there(404, "NotFound", [None, None])]
    #[tokio::test(start_paused = true)]
    async fn only_forbidden_values_are_read_with_growing_pauses(
        #[case] code: u16,
        #[case] reason: &str,
        #[case] expected: [Option<u64>; 2],
    ) {
        let clients = scripted::clients(|_| async { (403, json!({"code": 403})) });
        let account = scripted::identities(&clients).account("").unwrap();
        let backoff = Backoff {
            min: Duration::ZERO,
            max: Duration::ZERO,
        };
        let queue = Arc::new(Queue::new(backoff, Metrics::default()));
        let watches = ValuesWatches::new(queue, Duration::from_secs(300));
        let reference = Reference {
            kind: ReferenceKind::Secret,
            namespace: "ns".to_owned(),
            name: "s".to_owned(),
            key: "values.yaml".to_owned(),
        };
        watches.refresh("web", &account, &[reference]);
        for expected in expected {
            let status = kube::core::Status::failure("", reason).with_code(code);
            let unread = UnreadValues::new(kube::Error::Api(status.boxed()));
            let pause = unread.read_again_in(&watches, "web");
            assert_eq!(pause.map(|pause| pause.as_secs()), expected);
            tokio::time::advance(pause.unwrap_or_default()).await;
        }
    }

    /// Deployed with a password that the Secret has no more, whether or not the spec names it still, and with an image that the spec says.
    #[rstest]
    #[case::of_a_secret(Some(ANNOTATION_VALUES_FROM), json!([]), "db://**REDACTED**@db")]
    #[case::of_the_site(Some(ANNOTATION_FACTS), json!([]), "db://**REDACTED**@db")]
    #[case::of_a_secret_by_another_agent(
        None,
        json!([{"secretKeyRef": {"name": "s", "namespace": "ns"}}]),
        "db://**REDACTED**@db"
    )]
    #[case::of_the_spec(None, json!([]), "db://hunter2-then@db")]
    fn values_that_were_secret_at_the_deploy_stay_secret(
        #[case] from: Option<&str>,
        #[case] named: Value,
        #[case] url: &str,
    ) {
        let helm = json!({"values": {"image": "web:canary"}, "valuesFrom": named});
        let spec = json!({"options": {"helm": helm}});
        let spec: BundleDeploymentSpec = serde_json::from_value(spec).unwrap();
        let mut chart = Chart::default();
        if let Some(from) = from {
            let annotations = chart.metadata.annotations.get_or_insert_default();
            annotations.insert(from.to_owned(), "digest".to_owned());
        }
        let hook = release::model::Hook {
            manifest: "kind: Secret\nstringData: {a: of-a-hook}\n".to_owned(),
            ..release::model::Hook::default()
        };
        let config = json!({"image": "web:canary", "password": "hunter2-then", "pin": 84_712_345});
        let release = Release {
            config: values::inline(config.as_object()),
            chart: Some(chart.into()),
            hooks: vec![hook],
            ..Release::default()
        };
        let patch = json!({
            "a": ["db://hunter2-then@db", "web:canary"],
            "of-a-hook": 84_712_345,
            "replicas": 3,
        });
        let entry = ModifiedStatus {
            patch: patch.to_string(),
            ..ModifiedStatus::default()
        };
        let reported = secrets(&spec, &release).redact_modified(entry).into_inner();
        let patch: Value = serde_json::from_str(&reported.patch).unwrap();
        assert_eq!(patch["a"], json!([url, "web:canary"]));
        assert_eq!(patch["replicas"], 3);
        let hidden = url.contains("REDACTED");
        assert_eq!(patch["**REDACTED**"].is_string(), hidden, "{patch}");
    }

    /// A password is a template too where it has `${` in it, and what is wrong with it quotes it.
    #[rstest]
    #[case::no_function("ab${Zx9q}cd", "Zx9q")]
    #[case::no_fact("ab${.Zx9q}cd", "Zx9q")]
    #[case::no_variable("ab${$Zx9q}cd", "Zx9q")]
    #[case::no_number("ab${12Zx9q}cd", "Zx9q")]
    #[case::no_operand("ab${ \"Zx9q\".b }cd", "Zx9q")]
    #[case::no_end("ab${Zx9q", "Zx9q")]
    fn a_password_that_is_a_template_is_not_quoted(#[case] password: &str, #[case] part: &str) {
        let shown = shown_of(json!({"db": {"password": password}}));
        assert!(!shown.contains(part), "{shown}");
        assert!(
            shown.contains("helm values template: template: values:"),
            "{shown}"
        );
    }

    #[test]
    fn a_missing_cluster_label_that_secret_values_ask_for_is_named() {
        let shown = shown_of(json!({"region": "${ .ClusterLabels.region }"}));
        assert!(
            shown.ends_with(r#"at <.ClusterLabels.region>: map has no entry for key "region""#),
            "{shown}"
        );
    }

    /// The error shown for values in a Secret that cannot be filled in.
    fn shown_of(stored: Value) -> String {
        let bundle = BundleDeployment::default();
        let helm = HelmOptions {
            values: stored.as_object().cloned(),
            ..HelmOptions::default()
        };
        let facts = values::ClusterFacts::default();
        let filled = values::fill(&bundle, Some(&helm), &facts, &templating::SystemHost);
        let failed = filled.map(drop).unwrap_err();
        without_stored(&failed.masked(), helm.values.as_ref())
    }

    /// The chart put it into a ConfigMap, and it stands in no Secret of the release.
    #[test]
    fn values_looked_up_in_secrets_stay_redacted_after_the_deploy() {
        let spec: BundleDeploymentSpec = serde_json::from_value(json!({})).unwrap();
        let mut chart = Chart::default();
        let annotations = chart.metadata.annotations.get_or_insert_default();
        annotations.insert(ANNOTATION_LOOKED_UP.to_owned(), "true".to_owned());
        let release = Release {
            chart: Some(chart.into()),
            ..Release::default()
        };
        let patch = json!({"data": {"password": "canary"}}).to_string();
        let entry = ModifiedStatus {
            patch,
            ..ModifiedStatus::default()
        };
        let secrets = secrets(&spec, &release);
        assert!(!secrets.is_empty());
        let reported = secrets.redact_modified(entry).into_inner();
        assert_eq!(reported.patch, r#"{"data":{"...":"1 fields"}}"#);
        let quoted = r#"Invalid value: "canary": not found"#;
        let reported = SensitiveData::of_release(&release).redact_text(quoted);
        assert_eq!(&*reported, "Invalid value: **REDACTED**: not found");
        let mut deploy = SensitiveData::default();
        deploy.add_release(&release);
        assert!(!deploy.redact_text(quoted).contains("canary"));
    }
}
