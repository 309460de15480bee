//! Kinds that the API server does not list: gone for good, or only not served at this moment.
//!
//! An API server that has just started does not serve what definitions define yet, and one behind an `APIService` may not answer. Both look
//! as if a kind was gone, and its objects are there all the same. Helm fails then, and where a kind was taken away too; here a kind counts as
//! gone once neither a definition nor an API server that does not answer may have it.

use std::collections::BTreeSet;
use std::sync::Arc;

use objects::fields::text;
use objects::manifest::StoredObjects;
use objects::{Discovery, GroupKind, Object, Resource};
use serde_json::Value;

use super::client::Cluster;
use super::discovery::{CachedDiscovery, ProvenGone};
use super::error::ApiError;
use super::transport::{
    ACCEPT_JSON, ACCEPT_METADATA_LIST, Connection, Verb, escape, found, path, send,
};

/// Objects a page: of definitions their metadata, of API services all.
const PAGE: u32 = 500;

impl Cluster {
    /// The objects of an earlier revision, whose manifest `listed` reads. A kind that is gone has none.
    ///
    /// # Errors
    /// A kind is not served at this moment ([`ApiError::NotServed`]), or the API server cannot be asked.
    pub(crate) async fn stored_objects(
        &self,
        listed: impl Fn(&Discovery) -> StoredObjects,
    ) -> Result<Vec<Object>, ApiError> {
        let known = self.discovery().await?;
        let stored = match listed(&known).all() {
            Ok(all) => return Ok(all),
            Err(_) => listed(&*self.fresh_discovery().await?),
        };
        self.all_that_is_left(stored).await
    }

    /// What a manifest has that was read with a fresh answer of the cluster, once it is known that nothing is there of the kinds it does not list.
    ///
    /// # Errors
    /// As [`Self::stored_objects`].
    pub(crate) async fn all_that_is_left(
        &self,
        stored: StoredObjects,
    ) -> Result<Vec<Object>, ApiError> {
        match stored.all() {
            Ok(all) => Ok(all),
            Err(stored) => {
                self.known_kinds().prove_gone(stored.unlisted()).await?;
                Ok(stored.listed())
            }
        }
    }
}

impl Cluster {
    /// Shows that there is nothing of kinds that the cluster does not list, or did not a moment ago.
    ///
    /// # Errors
    /// A kind is not served at this moment ([`ApiError::NotServed`]) or is served again, or the API server cannot be asked.
    pub async fn prove_gone(&self, kinds: &BTreeSet<GroupKind>) -> Result<(), ApiError> {
        self.known_kinds().prove_gone_once(kinds).await
    }

    /// Whether there is nothing of a kind by now, of which an object was asked for that had no such address, though the cluster had listed the kind:
    /// its definition, or who served it, went meanwhile. Kubernetes' own kinds are not taken away, but an API server of another version may
    /// not have one: only who reads the manifest anew decides about those.
    ///
    /// # Errors
    /// The API server cannot be asked.
    pub(super) async fn has_gone(&self, kind: &GroupKind) -> Result<bool, ApiError> {
        if kind.is_kubernetes_own() {
            return Ok(false);
        }
        self.known_kinds().newest().await?;
        match self.prove_gone(&BTreeSet::from([kind.clone()])).await {
            Ok(()) => Ok(true),
            Err(ApiError::NotServed(_)) => Ok(false),
            Err(failed) => Err(failed),
        }
    }
}

impl CachedDiscovery {
    /// The same as [`Self::prove_gone`], once for all who ask as long as what the cluster serves is known from one answer.
    async fn prove_gone_once(&self, kinds: &BTreeSet<GroupKind>) -> Result<(), ApiError> {
        let mut proven = self.proven().lock().await;
        let discovery = self.fresh().await?;
        if !std::ptr::eq(proven.at.as_ptr(), Arc::as_ptr(&discovery)) {
            *proven = ProvenGone {
                at: Arc::downgrade(&discovery),
                ..ProvenGone::default()
            };
        }
        if let Some(kind) = kinds.intersection(&proven.not_served).next() {
            return Err(ApiError::NotServed(kind.clone()));
        }
        let unknown = kinds - &proven.kinds;
        if unknown.is_empty() {
            return Ok(());
        }
        match self.prove_gone(&unknown).await {
            Ok(()) => proven.kinds.extend(unknown),
            Err(ApiError::NotServed(kind)) => {
                proven.not_served.insert(kind.clone());
                return Err(ApiError::NotServed(kind));
            }
            Err(failed) => return Err(failed),
        }
        Ok(())
    }

    /// Shows that there is nothing of kinds that the cluster does not list.
    async fn prove_gone(&self, kinds: &BTreeSet<GroupKind>) -> Result<(), ApiError> {
        let connection = self.connection();
        let discovery = self.fresh().await?;
        let groups: BTreeSet<&str> = kinds.iter().map(|kind| kind.group.as_str()).collect();
        let not_served = |kind: &GroupKind| Err(ApiError::NotServed(kind.clone()));
        // It came to be served since the manifest was read: what is there of it was not seen.
        let has_come = |kind: &&GroupKind| discovery.any_version(&kind.group, &kind.kind).is_some();
        if let Some(kind) = kinds.iter().find(has_come) {
            return not_served(kind);
        }
        let of = (&*discovery, connection);
        let services = all(of, &API_SERVICE.resource(), ACCEPT_JSON).await?;
        for service in services {
            let group = text(&service, "/spec/group");
            // What an API server of its own serves.
            let is_behind = service
                .pointer("/spec/service")
                .is_some_and(Value::is_object);
            if !is_behind || !groups.contains(group) {
                continue;
            }
            let version = text(&service, "/spec/version");
            if !discovery.has_answered(&format!("{group}/{version}"))
                && let Some(kind) = kinds.iter().find(|kind| kind.group == group)
            {
                return not_served(kind);
            }
        }
        let definition = DEFINITION.resource();
        for defined in all(of, &definition, ACCEPT_METADATA_LIST).await? {
            let name = text(&defined, "/metadata/name");
            let Some((plural, group)) = name.split_once('.') else {
                continue;
            };
            // Of one that is being deleted the API server deletes all objects.
            let is_going = defined.pointer("/metadata/deletionTimestamp").is_some();
            if is_going || !groups.contains(group) || discovery.serves(group, plural) {
                continue;
            }
            let at = path(&definition, None, Some(name), "");
            let get = send(connection, Verb::get(ACCEPT_JSON), at, None);
            let Some(defined) = found(&definition, get.await)? else {
                continue;
            };
            let kind = text(&defined, "/spec/names/kind");
            let is_it = |one: &&GroupKind| one.group == group && one.kind == kind;
            if let Some(kind) = kinds.iter().find(is_it) {
                return not_served(kind);
            }
        }
        Ok(())
    }
}

/// A kind that tells of kinds.
struct OfKinds {
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
}

const DEFINITION: OfKinds = OfKinds {
    group: "apiextensions.k8s.io",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
};

const API_SERVICE: OfKinds = OfKinds {
    group: "apiregistration.k8s.io",
    kind: "APIService",
    plural: "apiservices",
};

impl OfKinds {
    fn resource(&self) -> Resource {
        Resource {
            group: self.group.to_owned(),
            version: "v1".to_owned(),
            kind: self.kind.to_owned(),
            plural: self.plural.to_owned(),
            namespaced: false,
        }
    }
}

/// All objects of a kind; none where the API server does not have it at all, and does not list it either.
async fn all(
    (discovery, connection): (&Discovery, &Connection),
    resource: &Resource,
    accept: &str,
) -> Result<Vec<Value>, ApiError> {
    let mut all = Vec::new();
    let mut next = String::new();
    loop {
        let mut query = format!("?limit={PAGE}");
        if !next.is_empty() {
            query = format!("{query}&continue={}", escape(&next));
        }
        let page = send(
            connection,
            Verb::get(accept),
            path(resource, None, None, &query),
            None,
        );
        let is_listed = discovery.serves(&resource.group, &resource.plural);
        let mut page = match page.await {
            Err(error) if error.is_unserved() && !is_listed => return Ok(all),
            page => page?,
        };
        next = text(&page, "/metadata/continue").to_owned();
        if let Some(Value::Array(items)) = page.get_mut("items") {
            all.append(items);
        }
        if next.is_empty() {
            return Ok(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tower::BoxError;

    use super::*;

    /// A kind that appears between two discovery calls is not reported as removed.
    #[tokio::test]
    async fn a_kind_that_is_served_between_two_discoveries_is_not_taken_for_gone() {
        let served = json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": "x.io"}, "versions": [
            {"version": "v1", "resources": [{"resource": "cars", "scope": "Namespaced",
                "responseKind": {"kind": "Car"}}]}]}]});
        let defined = json!({"items": [{"metadata": {"name": "cars.x.io"}}]});
        let answer = move |path: &str| match path {
            "/apis" => served.clone(),
            path if path.contains("customresourcedefinitions") => defined.clone(),
            _ => json!({}),
        };
        let serve = tower::service_fn(move |request: Request<Body>| {
            let body = answer(request.uri().path()).to_string().into_bytes();
            async { Ok::<_, BoxError>(Response::new(Body::from(body))) }
        });
        let cluster = Cluster::new(kube::Client::new(serve, "n"));
        let manifest =
            |kind: &str| format!("apiVersion: x.io/v1\nkind: {kind}\nmetadata: {{name: a}}\n");
        let left = async |kind: &str| {
            let before = Discovery::default();
            let stored = objects::manifest::build_stored(&manifest(kind), "n", &before).unwrap();
            cluster.all_that_is_left(stored).await
        };
        let reported = left("Car").await.unwrap_err();
        assert!(
            matches!(&reported, ApiError::NotServed(kind) if kind.kind == "Car"),
            "{reported:?}"
        );
        assert!(left("Boat").await.unwrap().is_empty());
    }

    /// Hundreds of bundles lose their objects with one definition, and each is monitored as long as they are gone.
    #[tokio::test]
    async fn what_one_answer_of_discovery_shows_gone_is_asked_once() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let serve = tower::service_fn(move |request: Request<Body>| {
            let is_list = request
                .uri()
                .path()
                .contains("apiregistration.k8s.io/v1/apiservices");
            counted.fetch_add(usize::from(is_list), Ordering::Relaxed);
            let service = json!({"spec": {"group": "y.io", "version": "v1", "service": {}}});
            let body = json!({"items": [service]}).to_string().into_bytes();
            async { Ok::<_, BoxError>(Response::new(Body::from(body))) }
        });
        let cluster = Cluster::new(kube::Client::new(serve, "n"));
        let kinds = |group: &str| {
            BTreeSet::from([GroupKind {
                group: group.to_owned(),
                kind: "Boat".to_owned(),
            }])
        };
        for _ in 0..3 {
            cluster.prove_gone(&kinds("x.io")).await.unwrap();
            let refused = cluster.prove_gone(&kinds("y.io")).await.unwrap_err();
            assert!(matches!(refused, ApiError::NotServed(_)), "{refused:?}");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        cluster.forget_discovery();
        cluster.prove_gone(&kinds("x.io")).await.unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }
}
