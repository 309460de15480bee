//! `downstreamResources`: Secrets and ConfigMaps copied from upstream into the release namespace.
//!
//! Mirrors `copyResourcesFromUpstream`; written with the bundle's account, unlike upstream. Only what is marked as a copy is written over
//! or deleted. Bundles that share a namespace share its copies: each that needs one is named on it ([`Claims`]), and the last one takes it
//! away. That a copy changed stands on the copy too, for each of these bundles, until its release was deployed after the change.

mod claims;
mod kinds;
mod proven;
mod removal;
mod rolled_out;
mod source_version;
mod unnoted;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

use self::claims::Claims;
use self::kinds::{Copied, Kind, same};
use self::proven::ProvenCopy;
pub use self::removal::remove_all;
pub use self::rolled_out::RolledOutCopies;
use self::rolled_out::{Content, Contents};
use self::source_version::SourceVersion;
use self::unnoted::CopiedVersion;
pub use self::unnoted::UnnotedCopies;
use crate::api::{BundleDeployment, LABEL_BUNDLE_DEPLOYMENT};
use crate::client::identity::DeploymentClient;
use crate::client::listed::Metadata;
use crate::error;
use crate::public::PublicText;
use crate::public::redact::{Redacted, SensitiveData};

/// Helm's marks; a copy is no part of the release that its source is of.
const HELM_MARKS: &str = "meta.helm.sh/";

/// How often a write that met another one is tried.
const TRIES: u32 = 5;

/// A copy that could not be made. Texts are upstream's.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("could not get {what} {namespace}/{name} from upstream namespace for copying")]
    Read {
        what: &'static str,
        namespace: String,
        name: String,
        source: kube::Error,
    },
    /// Upstream copies it.
    #[error(
        "{what} {namespace}/{name} is Fleet's own, with values or credentials: it is not copied"
    )]
    Fleets {
        what: &'static str,
        namespace: String,
        name: String,
    },
    #[error("failed to create or update {what} {namespace}/{name} downstream")]
    Write {
        what: &'static str,
        namespace: String,
        name: String,
        source: Redacted,
    },
    /// Not upstream's: that overwrites it.
    #[error(
        "{what} {namespace}/{name} is there downstream and is no copy of an upstream resource: it is left as it is. Delete it or rename \
         the resource; label {LABEL_BUNDLE_DEPLOYMENT} marks one that may be overwritten, and deleted with its bundle"
    )]
    NotACopy {
        what: &'static str,
        namespace: String,
        name: String,
    },
    #[error("unknown resource type for copy to downstream cluster: {0:?}")]
    Kind(String),
    #[error("failed to create namespace {namespace:?}")]
    Namespace {
        namespace: String,
        source: kube::Error,
    },
}

/// How the copies of upstream resources stand to the release that needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// It was deployed with them.
    Same,
    /// Somebody else changed one since it was deployed, and each is again what it was then.
    PutBack,
    /// One is what its source says by now, and the release was not deployed with it.
    Changed,
}

/// The copies of a bundle that changed since its release was deployed.
#[derive(Debug, Default)]
pub struct ChangedCopies {
    copies: Vec<ChangedCopy>,
    /// All copies, as their sources are.
    contents: Contents,
    /// Bundles that need one of those that were changed just now, beside this one.
    pub others: BTreeSet<String>,
    /// Bundles that need one of those that were put back just now, to what this one's release was deployed with last.
    pub answering: BTreeSet<String>,
}

#[derive(Debug)]
struct ChangedCopy {
    kind: Kind,
    name: String,
    /// Of the source.
    version: String,
    /// Its source says what it did when the release was deployed last: somebody else changed the copy.
    is_put_back: bool,
}

impl ChangedCopies {
    /// How they stand to the release.
    pub fn state(&self) -> Copies {
        match &self.copies[..] {
            [] => Copies::Same,
            copies if copies.iter().all(|copy| copy.is_put_back) => Copies::PutBack,
            _ => Copies::Changed,
        }
    }

    /// The release was deployed: remembers what with, and takes the changes off the copies. One that cannot be written leads to one more deploy. Gives whether they still had them: a
    /// cluster that was restored meanwhile has the copies of before.
    ///
    /// # Cancellation
    /// Safe: what is left is one more deploy.
    pub async fn rolled_out(
        self,
        downstream: &DeploymentClient,
        bundle: &BundleDeployment,
        unnoted: &UnnotedCopies,
        rolled_out: &RolledOutCopies,
    ) -> bool {
        rolled_out.note(bundle.name(), self.contents);
        let mut had_all = true;
        for copy in self.copies {
            let done = match copy.kind {
                Kind::Secret => clear::<Secret>(downstream, bundle, &copy, unnoted).await,
                Kind::ConfigMap => clear::<ConfigMap>(downstream, bundle, &copy, unnoted).await,
            };
            match done {
                Ok(had_change) => had_all &= had_change,
                Err(failed) => {
                    let error = release::error_unquoted(&failed);
                    logging::warn!(
                        bundle = bundle.name(),
                        name = copy.name,
                        error,
                        "cannot note that a copy was rolled out"
                    );
                }
            }
        }
        had_all
    }
}

/// Copies everything the bundle lists. Gives those copies that changed since its release was deployed.
///
/// # Errors
/// The first copy that fails ends it.
///
/// # Cancellation
/// Safe: the next reconcile continues; copies already made are found equal.
pub async fn copy_all(
    upstream: &Client,
    downstream: &DeploymentClient,
    bundle: &BundleDeployment,
    unnoted: &UnnotedCopies,
    rolled_out: &RolledOutCopies,
) -> Result<ChangedCopies, CopyError> {
    let options = &bundle.spec.options;
    let mut changed = ChangedCopies::default();
    unnoted.retain(bundle.name(), &options.downstream_resources);
    if options.downstream_resources.is_empty() {
        return Ok(changed);
    }
    let target = options.release_namespace();
    create_namespace(downstream.client(), target).await?;
    for desired in &options.downstream_resources {
        let name = &desired.name;
        let kind =
            Kind::parse(&desired.kind).ok_or_else(|| CopyError::Kind(desired.kind.clone()))?;
        let written = match kind {
            Kind::Secret => copy::<Secret>(upstream, downstream, bundle, name, unnoted).await?,
            Kind::ConfigMap => {
                copy::<ConfigMap>(upstream, downstream, bundle, name, unnoted).await?
            }
        };
        let content = written.content;
        let is_known = |content| rolled_out.has(bundle.name(), kind, name, content);
        let is_put_back = content.is_some_and(is_known);
        let key = (kind, name.clone());
        changed
            .contents
            .extend(content.map(|content| (key, content)));
        match is_put_back {
            true => changed.answering.extend(written.woken),
            false => changed.others.extend(written.woken),
        }
        changed
            .copies
            .extend(written.changed_since.map(|version| ChangedCopy {
                kind,
                name: name.clone(),
                version,
                is_put_back,
            }));
    }
    changed.others.remove(bundle.name());
    changed.answering.remove(bundle.name());
    Ok(changed)
}

/// Whether everything that the bundle lists is there downstream.
///
/// # Errors
/// The object cannot be read.
pub async fn are_there(
    downstream: &DeploymentClient,
    bundle: &BundleDeployment,
) -> kube::Result<bool> {
    let options = &bundle.spec.options;
    let namespace = options.release_namespace();
    for desired in &options.downstream_resources {
        let (client, name) = (downstream.client(), &desired.name);
        let is_there = match Kind::parse(&desired.kind) {
            Some(Kind::Secret) => {
                is_there(
                    &Api::<Metadata<Secret>>::namespaced(client, namespace),
                    name,
                )
                .await?
            }
            Some(Kind::ConfigMap) => {
                is_there(
                    &Api::<Metadata<ConfigMap>>::namespaced(client, namespace),
                    name,
                )
                .await?
            }
            None => true,
        };
        if !is_there {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn is_there<K>(copies: &Api<Metadata<K>>, name: &str) -> kube::Result<bool> {
    Ok(error::found(copies.get(name).await)?.is_some())
}

/// Result of copying one object.
#[derive(Debug, Default)]
struct WrittenCopy {
    /// The version of the source that the bundle's release was not deployed with yet.
    changed_since: Option<String>,
    /// Bundles that need the copy, if it was changed just now.
    woken: BTreeSet<String>,
    /// Of the source.
    content: Option<Content>,
    /// Where the copy needs an annotation with its source's version and keeps none.
    lost_annotation: Option<LostAnnotation>,
}

/// An annotation with the source's version that did not come back.
#[derive(Debug)]
struct LostAnnotation {
    copy: CopiedVersion,
    /// The API server's refusal; `None` where admission dropped the annotation without an error.
    refusal: Option<kube::Error>,
}

/// Why an object was not written.
enum Refusal {
    NotACopy,
    Api(kube::Error),
}

impl From<kube::Error> for Refusal {
    fn from(failed: kube::Error) -> Self {
        Self::Api(failed)
    }
}

/// Copies one object.
async fn copy<K: Copied>(
    upstream: &Client,
    downstream: &DeploymentClient,
    bundle: &BundleDeployment,
    name: &str,
    unnoted: &UnnotedCopies,
) -> Result<WrittenCopy, CopyError> {
    let sources = Api::<K>::namespaced(upstream.clone(), bundle.namespace());
    let source = sources.get(name).await.map_err(|source| CopyError::Read {
        what: K::READ,
        namespace: bundle.namespace().into(),
        name: name.to_owned(),
        source,
    })?;
    if source.is_fleets() {
        return Err(CopyError::Fleets {
            what: K::READ,
            namespace: bundle.namespace().into(),
            name: name.to_owned(),
        });
    }
    let content = Content::of(&source);
    let target = bundle.spec.options.release_namespace();
    let copies = Api::<K>::namespaced(downstream.client(), target);
    let mut replaced = None;
    let written = write(
        &copies,
        name,
        bundle.name(),
        &source,
        &mut replaced,
        unnoted,
    );
    let written = written.await;
    let reported = async |refusal: kube::Error| {
        // A large Secret takes long to look for: others do not wait for that.
        let redaction = move || redacted(&refusal, [Some(&source), replaced.as_ref()]);
        let reported = downstream.cluster().host().work(redaction).await;
        reported.unwrap_or_else(|aborted| Redacted::unquoted(&aborted))
    };
    Err(match written {
        Ok(mut written) => {
            written.content = content;
            let lost = written.lost_annotation.take();
            let is_known = lost.as_ref().is_some_and(|lost| unnoted.has(&lost.copy));
            let copy = lost.as_ref().map(|lost| lost.copy.clone());
            unnoted.set(bundle.name(), K::KIND, name, copy);
            if let Some(lost) = lost.filter(|_| !is_known) {
                let error: PublicText = match lost.refusal {
                    Some(refusal) => reported(refusal).await.into(),
                    None => "admission took it off again".into(),
                };
                report_lost_annotation(bundle.name(), name, error);
            }
            return Ok(written);
        }
        Err(Refusal::NotACopy) => CopyError::NotACopy {
            what: K::WRITTEN,
            namespace: target.to_owned(),
            name: name.to_owned(),
        },
        Err(Refusal::Api(refusal)) => CopyError::Write {
            what: K::WRITTEN,
            // Upstream prints its own.
            namespace: bundle.namespace().into(),
            name: name.to_owned(),
            source: reported(refusal).await,
        },
    })
}

fn report_lost_annotation(bundle: &str, name: &str, error: PublicText) {
    logging::warn!(
        bundle,
        name,
        error,
        "a copy keeps no note of its source's version: once the agent is started again, it is rolled out once more"
    );
}

/// What an API server or a webhook says of a copy, without what the copy says.
fn redacted<K: Copied>(refusal: &kube::Error, copies: [Option<&K>; 2]) -> Redacted {
    let mut secrets = SensitiveData::default();
    for copy in copies.into_iter().flatten() {
        if let Ok(copy) = serde_json::to_value(copy) {
            secrets.add_object(&copy);
        }
    }
    secrets.redacted(refusal)
}

async fn write<K: Copied>(
    copies: &Api<K>,
    name: &str,
    bundle: &str,
    source: &K,
    replaced: &mut Option<K>,
    unnoted: &UnnotedCopies,
) -> Result<WrittenCopy, Refusal> {
    let parameters = PostParams::default();
    let version = SourceVersion::of(source.meta());
    let mut tries = 1;
    loop {
        let outcome = match error::found(copies.get(name).await)? {
            // Where upstream is this cluster, it may be copied to where it is.
            Some(existing) if existing.meta().uid == source.meta().uid => {
                return Ok(WrittenCopy::default());
            }
            Some(existing) => {
                let proven = ProvenCopy::of_source(existing.meta(), source.meta());
                let proven = proven.ok_or(Refusal::NotACopy)?;
                let mut claims = proven.claims().clone();
                claims.add(bundle);
                let is_same = existing.has_content_of(source);
                // Of one that is as its source there is nothing to note.
                let noted = SourceVersion::noted_on(existing.meta()).filter(|_| !is_same);
                let copied = CopiedVersion::of(existing.meta(), version.as_ref());
                let is_noted = noted.is_some() && noted == version
                    || copied.is_some_and(|copied| unnoted.has(&copied));
                let is_changed = !is_same && !is_noted;
                let mut written = WrittenCopy::default();
                if is_changed {
                    claims.change(
                        source
                            .meta()
                            .resource_version
                            .as_deref()
                            .unwrap_or("unknown"),
                    );
                    written.woken = claims.bundles();
                }
                written.changed_since = claims.changed_since(bundle);
                let version = version.as_ref().filter(|_| noted.is_some());
                let metadata = copied_metadata(name, &claims, source.meta(), version);
                if is_same && same_metadata(existing.meta(), &metadata) {
                    return Ok(written);
                }
                let immutable = existing.immutable();
                let metadata = merged_metadata(existing.meta().clone(), metadata);
                let replacement = source.clone().copied(metadata, immutable);
                let outcome = proven.overwrite(copies, name, replacement).await;
                *replaced = Some(existing);
                outcome.map(|made| (made, written))
            }
            None => {
                let claims = Claims::first(bundle);
                let metadata = copied_metadata(name, &claims, source.meta(), None);
                let created = copies
                    .create(&parameters, &source.clone().copied(metadata, None))
                    .await;
                created.map(|made| (made, WrittenCopy::default()))
            }
        };
        let outcome = match outcome {
            Ok((made, written)) => {
                let copied = CopiedVersion::of(made.meta(), version.as_ref());
                let noted = note_made(copies, name, made, source, version.as_ref(), replaced);
                match noted.await {
                    Err(failed) if is_outdated(&failed) && tries < TRIES => Err(failed),
                    Ok(true) => Ok(written),
                    // The copy is written all the same. That it was rolled out for this version is remembered for as long as the session lasts.
                    lost => Ok(WrittenCopy {
                        lost_annotation: copied.map(|copy| LostAnnotation {
                            copy,
                            refusal: lost.err(),
                        }),
                        ..written
                    }),
                }
            }
            Err(failed) => Err(failed),
        };
        match outcome {
            Err(failed) if is_outdated(&failed) && tries < TRIES => tries += 1,
            outcome => return Ok(outcome?),
        }
    }
}

/// Where admission `made` something else of a copy than its source says: notes of which version, so that it counts as a change of the source no more. Whether it
/// has the note then, if it needs one.
async fn note_made<K: Copied>(
    copies: &Api<K>,
    name: &str,
    mut made: K,
    source: &K,
    version: Option<&SourceVersion>,
    replaced: &mut Option<K>,
) -> kube::Result<bool> {
    let Some(version) = version.filter(|_| !made.has_content_of(source)) else {
        return Ok(true);
    };
    let proven = ProvenCopy::of_source(made.meta(), source.meta());
    let is_noted = |copy: &K| SourceVersion::noted_on(copy.meta()).as_ref() == Some(version);
    let Some(proven) = proven.filter(|_| !is_noted(&made)) else {
        return Ok(true);
    };
    *replaced = Some(made.clone());
    version.note(made.meta_mut());
    let answer = proven.replace(copies, name, made).await?;
    Ok(is_noted(&answer))
}

/// Whether the object was written, made or deleted since it was read.
fn is_outdated(failed: &kube::Error) -> bool {
    error::has_code(failed, 409) || error::is_not_found(failed)
}

/// Changes the claims on a copy that a bundle needs. `change` gives none where there is nothing to do. Gives whether there was something. A note that the
/// copy loses with that is remembered.
async fn change_claims<K: Copied>(
    copies: &Api<K>,
    name: &str,
    bundle: &str,
    change: impl Fn(Claims) -> Option<Claims>,
    unnoted: &UnnotedCopies,
) -> kube::Result<bool> {
    let mut tries = 1;
    loop {
        let Some(mut copy) = error::found(copies.get(name).await)? else {
            return Ok(false);
        };
        let Some(proven) = ProvenCopy::of_bundle(copy.meta(), bundle) else {
            return Ok(false);
        };
        let Some(claims) = change(proven.claims().clone()) else {
            return Ok(false);
        };
        let noted = SourceVersion::noted_on(copy.meta());
        claims.write(copy.meta_mut().labels.get_or_insert_default());
        let made = match proven.overwrite(copies, name, copy).await {
            Err(failed) if is_outdated(&failed) && tries < TRIES => {
                tries += 1;
                continue;
            }
            result => result?,
        };
        let lost = noted.filter(|_| SourceVersion::noted_on(made.meta()).is_none());
        if let Some(copy) = CopiedVersion::of(made.meta(), lost.as_ref()) {
            unnoted.lost(claims.bundles(), K::KIND, name, &copy);
            report_lost_annotation(bundle, name, "it is refused or taken off by now".into());
        }
        return Ok(true);
    }
}

async fn clear<K: Copied>(
    downstream: &DeploymentClient,
    bundle: &BundleDeployment,
    copy: &ChangedCopy,
    unnoted: &UnnotedCopies,
) -> kube::Result<bool> {
    let namespace = bundle.spec.options.release_namespace();
    let copies = Api::<K>::namespaced(downstream.client(), namespace);
    let change = |mut claims: Claims| {
        let before = claims.clone();
        claims.rolled_out(bundle.name(), &copy.version);
        (claims != before).then_some(claims)
    };
    change_claims(&copies, &copy.name, bundle.name(), change, unnoted).await
}

/// Other failures than "not there" surface with the copy itself.
async fn create_namespace(client: Client, name: &str) -> Result<(), CopyError> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let metadata = Api::<Metadata<Namespace>>::all(client);
    if !matches!(error::found(metadata.get(name).await), Ok(None)) {
        return Ok(());
    }
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            // Helm's, which a deploy would set on a namespace it creates.
            labels: Some(BTreeMap::from([("name".to_owned(), name.to_owned())])),
            ..Default::default()
        },
        ..Default::default()
    };
    match namespaces.create(&PostParams::default(), &namespace).await {
        Err(failed) if error::has_code(&failed, 409) => Ok(()),
        Err(source) => Err(CopyError::Namespace {
            namespace: name.to_owned(),
            source,
        }),
        Ok(_) => Ok(()),
    }
}

fn copied_metadata(
    name: &str,
    claims: &Claims,
    source: &ObjectMeta,
    version: Option<&SourceVersion>,
) -> ObjectMeta {
    let mut labels = source.labels.clone().unwrap_or_default();
    claims.write(&mut labels);
    let mut annotations = source.annotations.clone();
    if let Some(annotations) = &mut annotations {
        annotations.retain(|key, _| !key.starts_with(HELM_MARKS));
        SourceVersion::remove_from(annotations);
    }
    let mut metadata = ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(labels),
        annotations,
        ..Default::default()
    };
    if let Some(version) = version {
        version.note(&mut metadata);
    }
    metadata
}

fn same_metadata(existing: &ObjectMeta, desired: &ObjectMeta) -> bool {
    existing.labels == desired.labels && same(&existing.annotations, &desired.annotations)
}

/// Labels and annotations are replaced; what else the copy has (owners, finalizers) stays.
fn merged_metadata(existing: ObjectMeta, desired: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        labels: desired.labels,
        annotations: desired.annotations,
        managed_fields: None,
        ..existing
    }
}

#[cfg(test)]
mod fixtures;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FIRST: &str = "fleet.cattle.io/bundledeployment";

    #[test]
    fn copies_carry_their_bundle_and_nothing_of_the_sources_identity() {
        let source: ObjectMeta = serde_json::from_value(json!({
            "name": "s", "namespace": "up", "uid": "u", "resourceVersion": "7",
            "labels": {"a": "1", FIRST: "upstreams", "bundledeployment.fleet.cattle.io/c": ""},
            "annotations": {
                "x": "y", "meta.helm.sh/release-name": "r", "meta.helm.sh/release-namespace": "up",
                "fleetagent.cattle.io/copied-version": "its.1",
            },
        }))
        .unwrap();
        let copied = copied_metadata("s", &Claims::first("b"), &source, None);
        assert_eq!(
            serde_json::to_value(copied).unwrap(),
            json!({"name": "s", "annotations": {"x": "y"}, "labels": {"a": "1", FIRST: "b"}})
        );
    }

    /// Fleet's controller makes the BundleDeployment first and fails to copy afterwards (`bundle_controller.go`): what is there under the name that a
    /// tenant wrote is another bundle's then.
    #[rstest::rstest]
    #[case::values("fleet.cattle.io/bundle-deployment/v1alpha1", None, false)]
    #[case::of_a_storage("fleet.cattle.io/bundle-oci-storage/v1alpha1", Some("true"), false)]
    // Fleet makes one copy of a Secret for all bundles that name it, with what the first one names it as.
    #[case::of_a_chart("fleet.cattle.io/bundle-helmops-access/v1alpha1", Some("true"), true)]
    #[case::of_a_storage_unmarked("fleet.cattle.io/bundle-oci-storage/v1alpha1", None, false)]
    #[case::values_in_the_workspace("fleet.cattle.io/bundle-values/v1alpha1", None, false)]
    #[case::a_registration("fleet.cattle.io/cluster-registration-values", None, false)]
    #[case::of_its_author("Opaque", None, true)]
    #[tokio::test]
    async fn fleets_own_secrets_are_not_copied_to_whoever_names_them(
        #[case] kind: &'static str,
        #[case] internal: Option<&'static str>,
        #[case] is_copied: bool,
    ) {
        use std::sync::Arc;

        use parking_lot::Mutex;

        use crate::client::scripted;
        use crate::controllers::store::Store;

        let written = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&written);
        let clients = scripted::clients(move |request: http::Request<kube::client::Body>| {
            let seen = Arc::clone(&seen);
            async move {
                let (parts, body) = request.into_parts();
                let path = parts.uri.path().to_owned();
                if parts.method == http::Method::POST {
                    let body = body.collect_bytes().await.unwrap();
                    let mut sent: serde_json::Value = serde_json::from_slice(&body).unwrap();
                    seen.lock().push(sent.clone());
                    sent["metadata"]["uid"] = json!("copy");
                    sent["metadata"]["resourceVersion"] = json!("1");
                    return (201, sent);
                }
                if path.ends_with("/namespaces/cluster-ns/secrets/other-bundle") {
                    return (
                        200,
                        json!({
                            "metadata": {
                                "namespace": "cluster-ns", "name": "other-bundle", "uid": "u", "resourceVersion": "7",
                                "labels": internal.map(|is| json!({"fleet.cattle.io/bundle-internal-secret": is})).unwrap_or(json!({})),
                            },
                            "type": kind, "data": {"values": "eyJwYXNzd29yZCI6Imh1bnRlcjIifQ=="},
                        }),
                    );
                }
                if path.ends_with("/namespaces/tenant") {
                    return (200, json!({"metadata": {"name": "tenant"}}));
                }
                (
                    404,
                    json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"}),
                )
            }
        });
        let identities = scripted::identities(&clients);
        let bundle: BundleDeployment = serde_json::from_value(json!({
            "metadata": {"namespace": "cluster-ns", "name": "tenants-bundle"},
            "spec": {"options": {
                "defaultNamespace": "tenant", "serviceAccount": "tenant",
                "downstreamResources": [{"kind": "Secret", "name": "other-bundle"}],
            }},
        }))
        .unwrap();
        let (upstream, account) = (
            identities.agent().client(),
            identities.account("tenant").unwrap(),
        );
        let unnoted = UnnotedCopies::of(&Arc::<Store>::default());
        let rolled_out = RolledOutCopies::default();
        let copied = copy_all(&upstream, &account, &bundle, &unnoted, &rolled_out).await;
        let written = written.lock();
        assert_eq!(
            (copied.is_ok(), !written.is_empty()),
            (is_copied, is_copied),
            "{copied:?} {written:?}"
        );
    }
}
