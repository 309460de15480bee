//! Prerequisites of a deploy: a step each, in the order of [`Reconciler::reconcile`]; and the handling of a bundle whose account cannot be used.
//! Nothing is written as that account then, nor as any other in its place.

use std::time::Duration;

use golib::validation::{MAX_LABEL_BYTES, is_dns1123_label};

use super::{Current, ReconcileState, Reconciler};
use crate::api::{BundleDeployment, BundleDeploymentSpec, BundleDeploymentStatus};
use crate::client::identity::DeploymentClient;
use crate::controllers::bundle_deployment::halt::{Cause, Halt};
use crate::controllers::bundle_deployment::ownership::{OwnershipConflict, Part};
use crate::controllers::bundle_deployment::plan::{self, DeployFacts, Record};
use crate::controllers::bundle_deployment::values::Filled;
use crate::controllers::bundle_deployment::{namespace, ownership};
use crate::controllers::claims::{self, ReleaseLock};
use crate::controllers::dependencies::{self, Problem};
use crate::controllers::downstream_resources::{self, ChangedCopies, Copies};
use crate::controllers::queue::ReconcileKind;
use crate::ledger::{LedgerEntry, ReleaseKey};
use crate::public;
use crate::public::Name;

/// When copies are compared again that were put back during a deploy: writing them anew leads to the next one.
const COPY_RETRY: Duration = Duration::from_secs(60);

/// How long until a whole reconcile asks again for an account that was gone at first.
const LOOKED_FOR: Duration = Duration::from_secs(5 * 60);

impl Reconciler {
    pub(super) fn check_names(&self, state: &ReconcileState) -> Result<(), Halt> {
        let refused = |message: String| Halt::new(Cause::Name, state.facts.redact_text(&message));
        check_names(&state.bundle.spec).map_err(refused)
    }

    pub(super) async fn check_target_namespace(&self, state: &ReconcileState) -> Result<(), Halt> {
        let agent = self.context.identities.agent();
        let allowed = namespace::check_allowed(&agent, &state.bundle.spec.options).await;
        allowed
            .map_err(|message| Halt::new(Cause::TargetNamespace, state.facts.redact_text(&message)))
    }

    pub(super) fn check_release_is_free(&self, state: &mut ReconcileState) -> Result<(), Halt> {
        let key = claims::desired(&state.bundle);
        match self.conflicting_bundle(state, &key) {
            None => {
                state.report.ownership_conflicts(Part::Release, Vec::new());
                Ok(())
            }
            Some(other) => Err(self.refuse_taken(state, &key, &other)),
        }
    }

    /// When this bundle is to begin, where bundles want each other's releases and it is the first of them: at once, but if facts gave one of them
    /// the name that it wants, which may be wrong by mistake.
    fn begins_circle(&self, state: &ReconcileState, key: &ReleaseKey) -> Option<Duration> {
        let (ledger, store) = (&self.context.ledger, &self.context.store);
        let owned_by = |key: &ReleaseKey| {
            let owner = ledger.get(key).map(claims::Owner::of)?;
            owner.is_proven().then_some(owner.bundle)
        };
        let desired_by = |bundle: &str| {
            let bundle = store.get(bundle)?;
            let is_leaving = bundle.metadata.deletion_timestamp.is_some();
            store.desired(&bundle).filter(|_| !is_leaving)
        };
        let circle = claims::circle(state.bundle.name(), key, owned_by, desired_by)?;
        let grace_left = |(bundle, key): (&String, &ReleaseKey)| {
            let names = match bundle == state.bundle.name() {
                true => state.names.clone(),
                false => store
                    .get(bundle)
                    .and_then(|bundle| claims::template(&bundle)),
            };
            let entry = ledger.get(key)?;
            let is_renamed = entry.names.is_some() && entry.names == names;
            is_renamed.then(|| self.context.collector.grace_left(&entry))
        };
        let graces = circle.iter().filter_map(grace_left);
        Some(graces.max().unwrap_or_default())
    }

    /// Another bundle has the release: both statuses say so, and one that had it before has nothing of it any more.
    pub(super) fn refuse_taken(
        &self,
        state: &mut ReconcileState,
        key: &ReleaseKey,
        other: &str,
    ) -> Halt {
        let bundle = state.bundle.name();
        let deployed = self.context.store.get(other);
        let deployed = deployed.and_then(|other| ownership::deployed_since(&other, key));
        let since = deployed.unwrap_or_else(|| format!("{:.0}", state.report.now()));
        let taken = OwnershipConflict::release(key, other, since, bundle);
        let report = &mut state.report;
        report.ownership_conflicts(Part::Release, vec![taken]);
        if let Some(left) = self
            .begins_circle(state, key)
            .filter(|left| !left.is_zero())
        {
            state.report.wake_after(ReconcileKind::Full, left);
        }
        // The owner watches its objects.
        self.context.drift.clear(state.bundle.name());
        self.context.collector.is_desired(key, other);
        let cause = match self.has_lost(state, key, other) {
            true => Cause::ReleaseLost,
            false => Cause::ReleaseTaken,
        };
        let ReleaseKey { namespace, name } = key;
        let text = public!(
            "release {}/{} belongs to bundle {}",
            Name(namespace),
            Name(name),
            Name(other)
        );
        Halt::new(cause, text)
    }

    /// Whether the bundle had the release that is proven to be another's by now.
    pub(super) fn has_lost(&self, state: &ReconcileState, key: &ReleaseKey, other: &str) -> bool {
        let Some(entry) = self.context.ledger.get(key) else {
            return false;
        };
        let (bundle, revision) = (&state.bundle, claims::revision(&state.bundle, key));
        // A release that another agent gave back to the bundle may not have been read yet.
        let may_be_its = entry.may_be_of(bundle.name(), revision) && !self.was_record_read(bundle);
        revision > 0 && !may_be_its && claims::Owner::of(entry).is_proven_for(other)
    }

    /// The other bundle that has the release `key`, which this one wants.
    pub(super) fn conflicting_bundle(
        &self,
        state: &ReconcileState,
        key: &ReleaseKey,
    ) -> Option<String> {
        let (bundle, store) = (&state.bundle, &self.context.store);
        let entry = self.context.ledger.get(key);
        let owner = entry.clone().map(claims::Owner::of);
        // An owner that is not seen may not be gone: on proof that it is, the release is handed over.
        if let Some(owner) = &owner
            && owner.bundle != bundle.name()
            && store.get(&owner.bundle).is_none()
            && (owner.is_proven()
                || claims::revision(bundle, key) == 0
                || store.may_hide(&owner.bundle))
        {
            return Some(owner.bundle.clone());
        }
        let begins = || self.begins_circle(state, key) == Some(Duration::ZERO);
        let has_lost = || {
            let (ledger, id) = (&self.context.ledger, &bundle.spec.deployment_id);
            ledger.had_deployed(bundle.name(), &key.namespace, id)
        };
        if claims::takes(bundle, &self.context.deployed_ids, has_lost) || begins() {
            return None;
        }
        let mut others = store.claimants();
        if owner
            .as_ref()
            .is_some_and(|owner| owner.is_proven_for(bundle.name()))
        {
            // The releases that their statuses name were checked: they are not theirs, or cannot be.
            others.retain(|other| {
                let revision = claims::revision(&other.bundle, key);
                let may_be_its =
                    |entry: &LedgerEntry| entry.may_be_of(other.bundle.name(), revision);
                entry.as_ref().is_some_and(may_be_its) && !self.was_record_read(&other.bundle)
            });
        }
        claims::conflicting_bundle(bundle, key, owner.as_ref(), &others)
    }

    /// Locks a release for what is done with it next. Whose it is, is asked once more: another bundle may have deployed it since it was found free.
    pub(super) fn lock(
        &self,
        state: &mut ReconcileState,
        key: &ReleaseKey,
    ) -> Result<ReleaseLock, Halt> {
        let locked = self.context.release_locks.take(key, state.bundle.name());
        if let Some(other) = self.conflicting_bundle(state, key) {
            return Err(self.refuse_taken(state, key, &other));
        }
        locked.map_err(|other| {
            let ReleaseKey { namespace, name } = key;
            let text = public!(
                "bundle {} is at release {}/{}",
                Name(&other),
                Name(namespace),
                Name(name)
            );
            Halt::new(Cause::ReleaseBusy, text)
        })
    }

    /// The rest of a full reconcile. A deploy that is due fails; what is deployed already is in order without an account, and still monitored.
    pub(super) async fn without_account(
        &self,
        state: &mut ReconcileState,
        filled: &Filled,
        missing: Halt,
    ) -> Result<(), Halt> {
        let stored = match self.deployed_with(state) {
            Some(former) => self.wanted(state, &former).await.ok(),
            None => None,
        };
        let record = stored.as_ref().map(|stored| {
            let status = stored.as_ref().map(|stored| stored.status());
            Record::of(status.as_ref())
        });
        let release = stored.as_ref().and_then(Option::as_ref);
        let facts = DeployFacts {
            // An unreadable record is no reason to deploy.
            record: record.unwrap_or(Record::Deployed),
            ..self.deploy_facts(state, filled, release, Copies::Same)
        };
        if needs_account(&state.bundle, state.report.status(), facts) {
            self.report(state, &missing);
        } else if state.hold.is_none() && state.bundle.metadata.deletion_timestamp.is_none() {
            self.check_dependencies(state)?;
            state.report.confirmed();
        }
        self.monitor(state, None, Current::Unread).await?;
        // What the rest of a full reconcile would have found is not lost, should the account be there by now.
        state.report.wake_after(ReconcileKind::Full, LOOKED_FOR);
        Ok(())
    }

    /// The account that the release was deployed with, by our ledger, if the bundle still names it: it may be gone, and what it may read is up to the API server.
    pub(super) fn deployed_with(&self, state: &ReconcileState) -> Option<DeploymentClient> {
        let (bundle, id) = (&state.bundle, state.named()?);
        let account = &bundle.spec.options.service_account;
        let entry = self.context.ledger.get(&id.key())?;
        let is_its = entry.bundle == bundle.name() && entry.digest(id.revision).is_some();
        if !is_its || account.is_empty() || entry.account != *account {
            return None;
        }
        self.context.identities.account(account).ok()
    }

    /// Copies downstream resources. Gives those that changed since the release was deployed.
    pub(super) async fn copy_resources(
        &self,
        state: &mut ReconcileState,
        impersonated: &DeploymentClient,
    ) -> Result<ChangedCopies, Halt> {
        let (upstream, bundle) = (&self.upstream.client, &state.bundle);
        let (ledger, key) = (&self.context.ledger, claims::desired(bundle));
        if !bundle.spec.options.downstream_resources.is_empty() {
            // Copies go with the bundle, however the deploy ends.
            let known = ledger.get(&key);
            let is_owned_by_other = match &known {
                Some(known) => known.bundle != bundle.name(),
                // The bundle with its lock may be about to note it.
                None => self
                    .context
                    .release_locks
                    .is_locked_by_other(&key, bundle.name()),
            };
            let noted = match known {
                _ if is_owned_by_other => {
                    let claimant = LedgerEntry {
                        bundle: bundle.name().to_owned(),
                        account: impersonated.account().to_owned(),
                        keep_resources: bundle.spec.options.keep_resources,
                        ..LedgerEntry::default()
                    };
                    ledger.note_claims(&key.namespace, &claimant).await
                }
                Some(known) if !known.is_attempt || known.has_revisions() => Ok(()),
                // Revisions that other bundles' attempts left to this bundle were made with their accounts.
                _ => {
                    let entry = self.entry(bundle, impersonated, &key, false);
                    ledger.attempt(key, entry).await
                }
            };
            noted.map_err(Halt::at(Cause::Ledger, &state.facts))?;
        }
        let unnoted = &self.context.unnoted_copies;
        let rolled_out = &self.rolled_out_copies;
        let copied =
            downstream_resources::copy_all(upstream, impersonated, bundle, unnoted, rolled_out);
        let changed = copied.await;
        let changed = changed.map_err(Halt::at(Cause::CopyResources, &state.facts))?;
        let drift = &self.context.drift;
        // The controller wakes the one whose source it copied first.
        for other in &changed.others {
            drift.wake_after(other, ReconcileKind::Full, Duration::ZERO);
        }
        // These find it changed again, and would wake this one.
        for other in &changed.answering {
            let pause = self.pause_of_answer(other, state.report.now());
            drift.wake_after(other, ReconcileKind::Full, pause);
        }
        let generation = bundle.spec.downstream_resources_generation;
        state.report.resources_copied(generation);
        Ok(changed)
    }

    /// After a deploy: whoever deleted the namespace meanwhile took the copies, which were made before, and somebody may have made it anew. A restore of the
    /// cluster puts back those that were changed.
    pub(super) async fn check_downstream_resources(
        &self,
        state: &mut ReconcileState,
        impersonated: &DeploymentClient,
        changed: ChangedCopies,
    ) {
        let unnoted = &self.context.unnoted_copies;
        let known = &self.rolled_out_copies;
        let rolled_out = changed.rolled_out(impersonated, &state.bundle, unnoted, known);
        if !rolled_out.await {
            state.report.wake_after(ReconcileKind::Full, COPY_RETRY);
        }
        let found = downstream_resources::are_there(impersonated, &state.bundle).await;
        if !matches!(found, Ok(true)) {
            state.report.wake_after(ReconcileKind::Full, Duration::ZERO);
        }
    }

    pub(super) fn check_dependencies(&self, state: &ReconcileState) -> Result<(), Halt> {
        if state.bundle.spec.depends_on.is_empty() {
            return Ok(());
        }
        let others = self.context.store.all();
        let others = others.iter().map(AsRef::as_ref);
        dependencies::check(&state.bundle, others).map_err(|problem| {
            let cause = match problem {
                Problem::NotReady(_) => Cause::DependencyNotReady,
                Problem::Unknown(_) => Cause::DependencyUnknown,
            };
            Halt::new(cause, state.facts.redact_text(&problem.message()))
        })
    }
}

/// Whether a full reconcile has anything to do that takes the bundle's account, besides looking.
fn needs_account(
    bundle: &BundleDeployment,
    status: &BundleDeploymentStatus,
    facts: DeployFacts,
) -> bool {
    let (spec, options) = (&bundle.spec, &bundle.spec.options);
    spec.deployment_id != status.applied_deployment_id
        || !options.downstream_resources.is_empty()
        || options.namespace_labels.is_some()
        || options.namespace_annotations.is_some()
        || plan::deploy_reason(bundle, facts).is_some()
}

/// Checks every name in a spec that ends up in a request or in the ledger: what cannot be one is refused before it becomes part of a path.
/// client-go checks each request so, and these are its words (`rest.Request.Name`, `Namespace`); kube makes paths of whatever it is given.
///
/// # Errors
/// The text of the Deployed condition.
fn check_names(spec: &BundleDeploymentSpec) -> Result<(), String> {
    let options = &spec.options;
    check_namespace(options.release_namespace())?;
    check_resource_name(&options.service_account)?;
    check_resource_name(spec.manifest_id())?;
    for copy in &options.downstream_resources {
        check_resource_name(&copy.name)?;
    }
    if let Some(chart) = &spec.helm_chart_options {
        check_resource_name(&chart.secret_name)?;
    }
    let helm = options.helm.iter();
    for source in helm.flat_map(|helm| &helm.values_from) {
        let references = [&source.config_map_key_ref, &source.secret_key_ref];
        for reference in references.into_iter().flatten() {
            check_resource_name(&reference.name)?;
            if !reference.namespace.is_empty() {
                check_namespace(&reference.namespace)?;
            }
        }
    }
    Ok(())
}

/// An empty name means that there is none, or is an error of whoever needs it.
fn check_resource_name(name: &str) -> Result<(), String> {
    match problem(name) {
        Some(problem) => Err(format!("invalid resource name {name:?}: [{problem}]")),
        None => Ok(()),
    }
}

fn check_namespace(name: &str) -> Result<(), String> {
    if let Some(problem) = problem(name) {
        return Err(format!("invalid namespace {name:?}: [{problem}]"));
    }
    if is_dns1123_label(name) && name.len() <= MAX_LABEL_BYTES {
        return Ok(());
    }
    // The API server's words.
    Err(format!(
        "Namespace {name:?} is invalid: metadata.name: Invalid value: {name:?}: a lowercase RFC 1123 label must consist of lower case \
         alphanumeric characters or '-', and must start and end with an alphanumeric character, and be no longer than {MAX_LABEL_BYTES}"
    ))
}

/// Why this cannot be one segment of a path; the characters beyond client-go's are those it escapes and kube does not.
fn problem(name: &str) -> Option<String> {
    if matches!(name, "." | "..") {
        return Some(format!("may not be '{name}'"));
    }
    let is_bad = |char: &char| "/%?#".contains(*char) || char.is_whitespace() || char.is_control();
    let bad = name.chars().find(is_bad)?;
    Some(format!("may not contain {bad:?}"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const DEPLOYED: DeployFacts = DeployFacts {
        record: Record::Deployed,
        is_known: true,
        copies: Copies::Same,
        overwritten: false,
        facts_changed: false,
        status_is_outdated: false,
    };

    #[rstest]
    #[case::deployed(json!({}), DEPLOYED, false)]
    #[case::another_version(json!({ "deploymentID": "b" }), DEPLOYED, true)]
    #[case::labels(json!({ "options": { "namespaceLabels": { "a": "b" } } }), DEPLOYED, true)]
    #[case::annotations(json!({ "options": { "namespaceAnnotations": { "a": "b" } } }), DEPLOYED, true)]
    #[case::copies(
        json!({ "options": { "downstreamResources": [{ "kind": "Secret", "name": "a" }] } }),
        DEPLOYED,
        true
    )]
    #[case::a_record_that_is_gone(json!({}), DeployFacts { record: Record::Missing, ..DEPLOYED }, true)]
    fn an_account_is_needed_only_where_something_is_to_be_written(
        #[case] spec: Value,
        #[case] facts: DeployFacts,
        #[case] expected: bool,
    ) {
        let mut bundle = json!({
            "metadata": { "name": "web" }, "spec": { "deploymentID": "a" },
            "status": { "appliedDeploymentID": "a", "release": "shop/web:1" },
        });
        for (key, value) in spec.as_object().into_iter().flatten() {
            bundle["spec"][key] = value.clone();
        }
        let bundle: BundleDeployment = serde_json::from_value(bundle).unwrap();
        assert_eq!(needs_account(&bundle, &bundle.status, facts), expected);
    }

    #[rstest]
    #[case::usual(json!({
        "deploymentID": "s-1234:5678",
        "options": {
            "defaultNamespace": "apps", "serviceAccount": "tenant.a", "downstreamResources": [{"kind": "Secret", "name": "a"}],
            "helm": {"valuesFrom": [{"secretKeyRef": {"name": "a", "key": "b"}}]},
        },
    }), "")]
    #[case::parent_directory(json!({"options": {"namespace": ".."}}), "invalid namespace \"..\": [may not be '..']")]
    #[case::path(json!({"options": {"namespace": "a/b"}}), "invalid namespace \"a/b\": [may not contain '/']")]
    #[case::upper_case(json!({"options": {"defaultNamespace": "Apps"}}), "Namespace \"Apps\" is invalid")]
    #[case::account(json!({"options": {"serviceAccount": "../a"}}), "invalid resource name \"../a\": [may not contain '/']")]
    #[case::query(json!({"options": {"serviceAccount": "a?watch=true"}}), "may not contain '?'")]
    #[case::content(json!({"deploymentID": "../secrets:1"}), "invalid resource name \"../secrets\"")]
    #[case::copy(json!({"options": {"downstreamResources": [{"kind": "Secret", "name": "a\nb"}]}}), "may not contain '\\n'")]
    #[case::values(
        json!({"options": {"helm": {"valuesFrom": [{"configMapKeyRef": {"name": "a", "namespace": "/", "key": "b"}}]}}}),
        "invalid namespace \"/\""
    )]
    #[case::credentials(json!({"helmChartOptions": {"helmOpSecretName": "%2e"}}), "may not contain '%'")]
    fn names_that_would_change_a_request_path_are_refused(
        #[case] spec: Value,
        #[case] expected: &str,
    ) {
        let spec: BundleDeploymentSpec = serde_json::from_value(spec).unwrap();
        match check_names(&spec) {
            Ok(()) => assert_eq!(expected, ""),
            Err(message) => assert!(
                !expected.is_empty() && message.contains(expected),
                "{message}"
            ),
        }
    }
}
