//! What the sources of a bundle's copies said when its release was deployed last. A copy that is changed to that again was changed by somebody else: to put
//! it back is an answer to him, and whoever answers at once each time deploys for ever.

use std::collections::{BTreeMap, HashMap};

use kube::api::ObjectMeta;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use super::kinds::{Copied, Kind};

/// The content of a source, as a digest. It does not leave the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content([u8; 32]);

impl Content {
    /// Whatever its metadata are. `None` where it cannot be told.
    pub(super) fn of<K: Copied>(source: &K) -> Option<Self> {
        let content = source.clone().copied(ObjectMeta::default(), None);
        let text = serde_json::to_vec(&content).ok()?;
        Some(Self(Sha256::digest(text).into()))
    }
}

/// By what the bundle calls its copies.
pub(super) type Contents = BTreeMap<(Kind, String), Content>;

/// What the sources of copies said at the last deploys, by the bundles that list them, for as long as a session lasts. A new session answers once at once.
#[derive(Debug, Default)]
pub struct RolledOutCopies(Mutex<HashMap<String, Contents>>);

impl RolledOutCopies {
    /// Whether a bundle's release was deployed last with this content of a copy.
    pub(super) fn has(&self, bundle: &str, kind: Kind, name: &str, content: Content) -> bool {
        let known = self.0.lock();
        let of_bundle = known.get(bundle);
        let last = of_bundle.and_then(|copies| copies.get(&(kind, name.to_owned())));
        last == Some(&content)
    }

    /// A bundle's release was deployed with these copies, and no others.
    pub(super) fn note(&self, bundle: &str, copies: Contents) {
        let mut known = self.0.lock();
        match copies.is_empty() {
            true => known.remove(bundle),
            false => known.insert(bundle.to_owned(), copies),
        };
    }

    /// The bundle is gone for good.
    pub fn forget(&self, bundle: &str) {
        self.0.lock().remove(bundle);
    }

    /// How many bundles have such copies.
    pub fn count(&self) -> usize {
        self.0.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Method;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::super::{Copies, UnnotedCopies, copy_all};
    use super::*;
    use crate::api::BundleDeployment;
    use crate::client::scripted;
    use crate::controllers::store::Store;

    fn secret(metadata: Value, text: &str) -> Secret {
        serde_json::from_value(json!({"metadata": metadata, "data": {"key": text}})).unwrap()
    }

    #[test]
    fn what_was_rolled_out_is_known_by_its_content_and_its_bundle() {
        let content = |metadata: Value, text: &str| Content::of(&secret(metadata, text)).unwrap();
        let before = content(json!({"resourceVersion": "7"}), "b25l");
        assert_eq!(
            before,
            content(
                json!({"resourceVersion": "8", "labels": {"a": "b"}}),
                "b25l"
            )
        );
        let other = content(json!({"resourceVersion": "7"}), "dHdv");
        let map: ConfigMap = serde_json::from_value(json!({"data": {"key": "b25l"}})).unwrap();
        assert!(before != other && Some(before) != Content::of(&map));
        let known = RolledOutCopies::default();
        known.note("web", [((Kind::Secret, "pull".to_owned()), before)].into());
        assert!(known.has("web", Kind::Secret, "pull", before));
        for (bundle, kind, name, content) in [
            ("web", Kind::Secret, "pull", other),
            ("web", Kind::ConfigMap, "pull", before),
            ("web", Kind::Secret, "push", before),
            ("shop", Kind::Secret, "pull", before),
        ] {
            assert!(!known.has(bundle, kind, name, content));
        }
        known.note("web", Contents::new());
        assert_eq!(known.count(), 0);
    }

    fn bundle(name: &str) -> BundleDeployment {
        serde_json::from_value(json!({
            "metadata": {"namespace": "up", "name": name},
            "spec": {"options": {
                "defaultNamespace": "shop", "downstreamResources": [{"kind": "Secret", "name": "pull"}],
            }},
        }))
        .unwrap()
    }

    /// A Secret of upstream and its copy, without and with what somebody makes of it.
    #[derive(Default)]
    struct Secrets {
        source: &'static str,
        copy: Option<Value>,
        version: u64,
    }

    impl Secrets {
        fn serve(&mut self, method: &Method, path: &str, sent: Option<Value>) -> (u16, Value) {
            if !path.contains("/secrets/") && *method == Method::GET {
                return (200, json!({"metadata": {"name": "shop"}, "items": []}));
            }
            if path.contains("/namespaces/up/") {
                let metadata = json!({"namespace": "up", "name": "pull", "uid": "source", "resourceVersion": "1"});
                return (
                    200,
                    json!({"metadata": metadata, "data": {"key": self.source}}),
                );
            }
            if let Some(mut sent) = sent.filter(|_| *method != Method::GET) {
                self.version += 1;
                sent["metadata"]["uid"] = json!("copy");
                sent["metadata"]["resourceVersion"] = json!(self.version.to_string());
                self.copy = Some(sent);
            }
            match self.copy.clone() {
                Some(copy) => (200, copy),
                None => (
                    404,
                    json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"}),
                ),
            }
        }

        fn is_changed_by_somebody(&mut self) {
            if let Some(copy) = &mut self.copy {
                copy["data"]["key"] = json!("aGlz");
            }
        }
    }

    /// Otherwise the two bundles that share the copy woke each other without a pause, and deployed by force each time.
    #[tokio::test]
    async fn an_edited_copy_delays_the_redeploy_and_a_changed_source_does_not() {
        let secrets = Arc::new(Mutex::new(Secrets {
            source: "b25l",
            ..Secrets::default()
        }));
        let served = Arc::clone(&secrets);
        let clients = scripted::clients(move |request: http::Request<Body>| {
            let secrets = Arc::clone(&served);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let sent = serde_json::from_slice(&body).ok();
                secrets.lock().serve(&parts.method, parts.uri.path(), sent)
            }
        });
        let identities = scripted::identities(&clients);
        let store = Arc::<Store>::default();
        for name in ["left", "right"] {
            store.applied(bundle(name));
        }
        let unnoted = UnnotedCopies::of(&store);
        let mut known = RolledOutCopies::default();
        let (upstream, downstream) = (identities.agent().client(), identities.account("").unwrap());
        let copied = async |name: &str, known: &RolledOutCopies| {
            let bundle = bundle(name);
            let copied = copy_all(&upstream, &downstream, &bundle, &unnoted, known);
            copied.await.unwrap()
        };
        // What is deployed, and whether the other one is woken at once, and with a pause.
        let looked = async |name: &str, known: &RolledOutCopies| {
            let changed = copied(name, known).await;
            let (others, answering) = (!changed.others.is_empty(), !changed.answering.is_empty());
            let looked = (changed.state(), others, answering);
            let bundle = bundle(name);
            changed
                .rolled_out(&downstream, &bundle, &unnoted, known)
                .await;
            looked
        };
        for name in ["left", "right", "left"] {
            assert_eq!(
                looked(name, &known).await,
                (Copies::Same, false, false),
                "{name}"
            );
        }
        for name in ["left", "right", "left"] {
            secrets.lock().is_changed_by_somebody();
            let expected = (Copies::PutBack, false, true);
            assert_eq!(looked(name, &known).await, expected, "{name}");
        }
        // The last change was put back before it looks.
        assert_eq!(
            looked("right", &known).await,
            (Copies::PutBack, false, false)
        );
        secrets.lock().source = "dHdv";
        assert_eq!(looked("left", &known).await, (Copies::Changed, true, false));
        assert_eq!(
            looked("right", &known).await,
            (Copies::Changed, false, false)
        );
        // A new session does not know.
        known = RolledOutCopies::default();
        secrets.lock().is_changed_by_somebody();
        assert_eq!(looked("left", &known).await, (Copies::Changed, true, false));
        secrets.lock().is_changed_by_somebody();
        assert_eq!(looked("left", &known).await, (Copies::PutBack, false, true));
    }
}
