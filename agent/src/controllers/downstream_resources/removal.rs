//! Takes away the copies that a bundle leaves, and its claims on those that others need.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{ListParams, ObjectMeta};

use super::claims::Claims;
use super::kinds::{Copied, Kind};
use super::proven::ProvenCopy;
use super::{TRIES, UnnotedCopies, change_claims};
use crate::api::LABEL_BUNDLE_DEPLOYMENT;
use crate::client::identity::DeploymentClient;
use crate::client::listed::{self, Metadata};
use crate::controllers::claims::Claimant;
use crate::error;
use crate::public::PublicText;

/// Takes a bundle's claims off the copies in a namespace, with the account that made them. Those that none of the `others` needs are
/// deleted. An account that made none needs no right.
///
/// # Errors
/// They cannot be listed, changed or deleted; but where the account may neither list them nor do that.
///
/// # Cancellation
/// Safe: those that are left are found again.
pub async fn remove_all(
    downstream: &DeploymentClient,
    namespace: &str,
    bundle: &str,
    others: &[Claimant],
    unnoted: &UnnotedCopies,
) -> kube::Result<()> {
    let next = NextClaims {
        namespace,
        bundle,
        others,
    };
    remove::<Secret>(downstream, next, unnoted).await?;
    remove::<ConfigMap>(downstream, next, unnoted).await
}

/// Bundles that may need the copies that another bundle leaves.
#[derive(Clone, Copy)]
struct NextClaims<'a> {
    namespace: &'a str,
    bundle: &'a str,
    others: &'a [Claimant],
}

impl<'a> NextClaims<'a> {
    /// A bundle that needs a copy by its spec: the Go agent has taken the claims of all but one away, and a bundle that waits has made none.
    fn of(self, kind: Kind, name: &str) -> Option<&'a str> {
        let needs = |other: &&Claimant| {
            let mut listed = other.bundle.spec.options.downstream_resources.iter();
            other.bundle.name() != self.bundle
                && other.bundle.metadata.deletion_timestamp.is_none()
                && other.may_be_in(self.namespace)
                && listed.any(|one| one.name == name && Kind::parse(&one.kind) == Some(kind))
        };
        self.others
            .iter()
            .find(needs)
            .map(|other| other.bundle.name())
    }
}

async fn remove<K: Copied>(
    downstream: &DeploymentClient,
    next: NextClaims<'_>,
    unnoted: &UnnotedCopies,
) -> kube::Result<()> {
    let client = downstream.client();
    let copies = Copies {
        whole: Api::<K>::namespaced(client.clone(), next.namespace),
        metadata: Api::namespaced(client, next.namespace),
    };
    let marked = ListParams::default().labels(LABEL_BUNDLE_DEPLOYMENT);
    let bundle = next.bundle;
    // Anybody may label any number of objects.
    let mut found = Vec::new();
    let claimed = |copy: &Metadata<K>| ProvenCopy::of_bundle(&copy.metadata, bundle).is_some();
    let mut take = |page: Vec<_>| found.extend(page.into_iter().filter(claimed));
    let mut listed = listed::list_selected(&copies.metadata, marked.clone(), &mut take)
        .await
        .map(drop);
    let may_list = !is_forbidden(&listed);
    if !may_list {
        // To copy, an account needs no right to list. Whether it made copies shows only here.
        let namespace = next.namespace;
        listed = downstream.list_for::<K>(namespace, marked, take).await;
    }
    match listed {
        Err(failed) if error::has_code(&failed, 403) => {
            let error = PublicText::nothing_secret_in(&failed);
            logging::warn!(
                bundle,
                error,
                "may not look for copies, leaving any there are"
            );
            return Ok(());
        }
        listed => listed?,
    }
    for copy in found {
        let name = copy.metadata.name.clone().unwrap_or_default();
        let next_owner = next.of(K::KIND, &name);
        let removed = remove_one(&copies, &name, copy.metadata, next_owner, bundle, unnoted).await;
        if !may_list && is_forbidden(&removed) {
            // Anybody may have labelled it: an account that may do nothing with it blocks neither its removal nor who gets its release.
            let namespace = next.namespace;
            logging::warn!(
                bundle,
                name,
                namespace,
                "may not delete a copy, leaving it there"
            );
            continue;
        }
        removed?;
    }
    Ok(())
}

fn is_forbidden(answer: &kube::Result<()>) -> bool {
    matches!(answer, Err(failed) if error::has_code(failed, 403))
}

/// The objects of a kind in a namespace.
struct Copies<K> {
    whole: Api<K>,
    metadata: Api<Metadata<K>>,
}

async fn remove_one<K: Copied>(
    copies: &Copies<K>,
    name: &str,
    mut found: ObjectMeta,
    next: Option<&str>,
    bundle: &str,
    unnoted: &UnnotedCopies,
) -> kube::Result<()> {
    let mut tries = 1;
    loop {
        let Some(proven) = ProvenCopy::of_bundle(&found, bundle) else {
            return Ok(());
        };
        let Some(unneeded) = proven.unneeded(bundle, next) else {
            let left = |claims: Claims| claims.without(bundle, next);
            change_claims(&copies.whole, name, bundle, left, unnoted).await?;
            // The other claimant may be gone meanwhile: then this bundle deletes it.
            match error::found(copies.metadata.get(name).await)? {
                Some(now) if tries < TRIES => (found, tries) = (now.metadata, tries + 1),
                _ => return Ok(()),
            }
            continue;
        };
        match unneeded.delete(&copies.whole, name).await {
            Err(failed) if error::is_not_found(&failed) => return Ok(()),
            Err(failed) if error::has_code(&failed, 409) && tries < TRIES => tries += 1,
            result => return result,
        }
        let Some(now) = error::found(copies.metadata.get(name).await)? else {
            return Ok(());
        };
        found = now.metadata;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::api::BundleDeployment;
    use crate::client::scripted;
    use crate::controllers::store::Store;

    /// An account that may copy by name cannot list. What it copied must not stay for ever, and one that copied nothing needs no right.
    #[rstest]
    #[case::nothing_copied(false, 200, 0, None)]
    #[case::a_copy(false, 200, 1, None)]
    #[case::what_anybody_may_have_labelled(false, 403, 1, None)]
    #[case::a_copy_that_is_not_deleted(false, 422, 1, Some(422))]
    #[case::the_agent_may_not_list_either(true, 200, 0, None)]
    #[tokio::test]
    async fn copies_are_found_where_their_account_may_not_list(
        #[case] is_agent_refused: bool,
        #[case] deletion: u16,
        #[case] copies: usize,
        #[case] expected: Option<u16>,
    ) {
        let clients = scripted::clients(move |request| {
            let is_account = request.headers().contains_key("impersonate-user");
            let is_list = request.method() == http::Method::GET;
            let status = |code: u16| {
                (
                    code,
                    json!({"kind": "Status", "code": code, "message": "x"}),
                )
            };
            let answer = match (is_account, is_list) {
                (true, false) => status(deletion),
                (true, true) => status(403),
                (false, true) if is_agent_refused => status(403),
                (false, true) => {
                    let labels = json!({"fleet.cattle.io/bundledeployment": "a"});
                    let copy = json!({"metadata": {"name": "pull", "uid": "u", "resourceVersion": "1", "labels": labels}});
                    let found = if request.uri().path().ends_with("/secrets") {
                        copies
                    } else {
                        0
                    };
                    (200, json!({"metadata": {}, "items": vec![copy; found]}))
                }
                (false, false) => panic!("{} as the agent", request.method()),
            };
            std::future::ready(answer)
        });
        let account = scripted::identities(&clients).account("narrow").unwrap();
        let unnoted = UnnotedCopies::of(&Arc::<Store>::default());
        let removed = remove_all(&account, "ns", "a", &[], &unnoted).await;
        assert_eq!(
            removed.err().and_then(|failed| error::api_code(&failed)),
            expected
        );
    }

    #[rstest]
    #[case::there("ns", None, true)]
    #[case::elsewhere("other", None, false)]
    #[case::not_filled_in("${ .ClusterName }", None, true)]
    #[case::not_filled_in_and_elsewhere("other-${ .ClusterName }", None, false)]
    #[case::filled_in("${ .ClusterName }", Some("ns"), true)]
    #[case::filled_in_and_elsewhere("${ .ClusterName }", Some("other"), false)]
    fn only_bundles_that_deploy_to_the_namespace_of_a_copy_claim_it(
        #[case] namespace: &str,
        #[case] filled: Option<&str>,
        #[case] expected: bool,
    ) {
        let bundle: BundleDeployment = serde_json::from_value(json!({
            "metadata": {"name": "b"},
            "spec": {"options": {"defaultNamespace": namespace, "downstreamResources": [{"kind": "Secret", "name": "s"}]}},
        }))
        .unwrap();
        let desired = match filled {
            Some(namespace) => Some(namespace),
            None => Some(namespace).filter(|namespace| !namespace.contains("${")),
        };
        let other = Claimant {
            desired: desired.map(|namespace| crate::ledger::ReleaseKey {
                namespace: namespace.to_owned(),
                name: "b".to_owned(),
            }),
            bundle: Arc::new(bundle),
        };
        let next = NextClaims {
            namespace: "ns",
            bundle: "a",
            others: &[other],
        };
        assert_eq!(next.of(Kind::Secret, "s"), Some("b").filter(|_| expected));
        assert_eq!(next.of(Kind::ConfigMap, "s"), None);
    }
}
