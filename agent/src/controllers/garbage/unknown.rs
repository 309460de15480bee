//! Release records that look like ours and that the ledger does not know.
//!
//! A tenant can write such a record, so nothing follows from one: it is reported, never removed.
//! Only metadata is listed, and only of Helm's records; the body is read once of those that the
//! ledger does not know and no helm client wrote, and of that only the beginning, whatever it would unpack to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::ListParams;
use parking_lot::Mutex;
use release::storage::StoredRevision;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::report::Unknown;
use crate::api::{ANNOTATION_AGENT_NAMESPACE, ANNOTATION_BUNDLE_ID};
use crate::client::identity::AgentClient;
use crate::client::listed::{self, Metadata, Unread};
use crate::error;
use crate::ledger::{Ledger, ReleaseKey};
use crate::public::PublicText;

/// How much of a record is unpacked: its chart's metadata come before templates, values and manifest.
const MAX_READ: u64 = 4 << 20;

/// Looks for unknown releases.
pub(super) struct Search {
    secrets: Api<Metadata<Secret>>,
    /// System namespace, which our records name.
    namespace: String,
    /// Bundles that records name, by the record's uid; `None` for other people's releases.
    read: Mutex<HashMap<String, Option<String>>>,
}

/// The newest record of each release.
pub(super) type Newest = BTreeMap<ReleaseKey, Record>;

/// What the newest records say.
#[derive(Default)]
pub(super) struct Found {
    /// Those that name this agent and are in no entry of the ledger.
    pub(super) unknown: Vec<Unknown>,
    /// Those of which nobody knows what they name now.
    pub(super) unread: BTreeSet<ReleaseKey>,
}

/// Whether this record alone may not be read: an API server that is asked too much, or fails, says nothing of it.
fn is_refusal(failed: &kube::Error) -> bool {
    matches!(failed, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
}

/// A release record, by its metadata.
pub(super) struct Record {
    pub(super) revision: i64,
    name: String,
    uid: String,
    /// Helm's command or another of its clients wrote it, by its own account: it names nobody.
    is_of_helm: bool,
}

impl Record {
    /// A record, and the release it is of; none where its labels do not say.
    fn read(listed: Metadata<Secret>) -> Option<(ReleaseKey, Self)> {
        let Metadata {
            metadata, managers, ..
        } = listed;
        let mut labels = metadata.labels?;
        let revision = StoredRevision::from_labels(&labels)?.revision;
        let key = ReleaseKey {
            namespace: metadata.namespace.unwrap_or_default(),
            name: labels.remove("name")?,
        };
        let is_helm = |by: &String| by.to_ascii_lowercase().contains("helm");
        let record = Self {
            is_of_helm: managers.iter().any(is_helm),
            revision,
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
        };
        Some((key, record))
    }
}

/// What a record holds; none where it is damaged.
fn payload(record: &Unread<Secret>) -> Option<ByteString> {
    #[derive(Deserialize)]
    struct Outline {
        data: Data,
    }
    #[derive(Deserialize)]
    struct Data {
        release: ByteString,
    }
    let outline = serde_json::from_str::<Outline>(record.text());
    Some(outline.ok()?.data.release)
}

impl Search {
    /// A search as the agent, all over the cluster.
    pub(super) fn new(agent: &AgentClient, namespace: &str) -> Self {
        Self {
            secrets: Api::all(agent.client()),
            namespace: namespace.to_owned(),
            read: Mutex::default(),
        }
    }

    /// Reads the newest records that are in no entry of the ledger. One that may not be read keeps none of the others from being told.
    ///
    /// # Errors
    /// The API server does not answer, fails, or is asked too much.
    pub(super) async fn unknown(
        &self,
        agent: &AgentClient,
        ledger: &Ledger,
        newest: Newest,
    ) -> kube::Result<Found> {
        self.read
            .lock()
            .retain(|uid, _| newest.values().any(|record| record.uid == *uid));
        let mut found = Found::default();
        let mut refused = None;
        for (key, record) in newest {
            if record.is_of_helm || ledger.get(&key).is_some() {
                continue;
            }
            match self.bundle_of(agent, &key, &record).await {
                Ok(Some(bundle)) => found.unknown.push(Unknown { key, bundle }),
                Ok(None) => {}
                Err(failed) if is_refusal(&failed) => {
                    found.unread.insert(key);
                    refused = Some(failed);
                }
                Err(failed) => return Err(failed),
            }
        }
        if let Some(failed) = refused {
            logging::warn!(
                records = found.unread.len(),
                error = PublicText::nothing_secret_in(&failed),
                "cannot read release records, to tell whose they are"
            );
        }
        Ok(found)
    }

    /// How many records are remembered by what they name.
    pub(super) fn len(&self) -> usize {
        self.read.lock().len()
    }

    /// The newest record of every release of the cluster.
    ///
    /// # Errors
    /// Records cannot be listed.
    pub(super) async fn newest(&self) -> kube::Result<Newest> {
        let mut newest = Newest::new();
        let selected = ListParams::default()
            .labels("owner=helm")
            .fields("type=helm.sh/release.v1");
        let take = |page: Vec<Metadata<Secret>>| {
            for (key, record) in page.into_iter().filter_map(Record::read) {
                let known = newest.get(&key);
                if known.is_none_or(|known| known.revision <= record.revision) {
                    newest.insert(key, record);
                }
            }
        };
        listed::list_selected(&self.secrets, selected, take).await?;
        Ok(newest)
    }

    /// The bundle a record names, if it names this agent too. One that is damaged or gone names
    /// nobody.
    async fn bundle_of(
        &self,
        agent: &AgentClient,
        key: &ReleaseKey,
        newest: &Record,
    ) -> kube::Result<Option<String>> {
        let known = |read: &HashMap<_, _>| read.get(&newest.uid).cloned();
        if let Some(bundle) = known(&self.read.lock()) {
            return Ok(bundle);
        }
        let secrets = Api::<Unread<Secret>>::namespaced(agent.client(), &key.namespace);
        let secret = match secrets.get(&newest.name).await {
            Ok(secret) => secret,
            Err(failed) if error::has_code(&failed, 404) => return Ok(None),
            Err(failed) => return Err(failed),
        };
        let read = tokio::task::spawn_blocking(move || {
            payload(&secret).map_or_else(BTreeMap::new, |payload| chart_annotations(&payload.0))
        });
        // One that was given up names nobody.
        let annotations = read.await.unwrap_or_default();
        let is_ours = annotations
            .get(ANNOTATION_AGENT_NAMESPACE)
            .is_some_and(|namespace| *namespace == self.namespace);
        let bundle = annotations
            .get(ANNOTATION_BUNDLE_ID)
            .filter(|bundle| is_ours && is_object_name(bundle))
            .cloned();
        self.read.lock().insert(newest.uid.clone(), bundle.clone());
        Ok(bundle)
    }
}

/// Whether a bundle may be called so. Whoever may write a record may write any text into it.
fn is_object_name(name: &str) -> bool {
    const LONGEST: usize = 253;
    let is_allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    !name.is_empty() && name.len() <= LONGEST && name.bytes().all(is_allowed)
}

/// The annotations of the chart in a record, as far as they are texts and in the first [`MAX_READ`] bytes.
fn chart_annotations(payload: &[u8]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let Ok(data) = golib::base64::decode(payload) else {
        return found;
    };
    let mut data = data.as_slice();
    let json: Box<dyn BufRead> = match data.starts_with(&[0x1f, 0x8b, 0x08]) {
        true => Box::new(BufReader::new(MultiGzDecoder::new(&mut data))),
        false => Box::new(data),
    };
    let mut reader = serde_json::Deserializer::from_reader(json.take(MAX_READ));
    let annotations = At {
        path: &["chart", "metadata", "annotations"],
        found: &mut found,
    };
    // What was found before the limit, or before any damage, is found.
    drop(annotations.deserialize(&mut reader));
    found
}

/// The texts of a JSON object deep in others; nothing else is kept.
struct At<'a> {
    path: &'a [&'static str],
    found: &'a mut BTreeMap<String, String>,
}

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for At<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match self.path.split_first() {
                Some((step, path)) if *step == key => {
                    let found = &mut *self.found;
                    map.next_value_seed(At { path, found })?;
                }
                Some(_) => drop(map.next_value::<IgnoredAny>()?),
                None if [ANNOTATION_BUNDLE_ID, ANNOTATION_AGENT_NAMESPACE].contains(&&*key) => {
                    let value = map.next_value::<serde_json::Value>()?;
                    if let serde_json::Value::String(text) = value {
                        self.found.insert(key, text);
                    }
                }
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::scripted;
    use rstest::rstest;
    use serde_json::json;
    use std::io::Write as _;

    fn payload(json: &[u8]) -> Vec<u8> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(json).unwrap();
        golib::base64::encode(gzip.finish().unwrap()).into_bytes()
    }

    /// A Secret that an authorizer keeps from everybody.
    #[tokio::test(start_paused = true)]
    async fn a_record_that_may_not_be_read_hides_no_other() {
        let chart = json!({"metadata": {"annotations": {ANNOTATION_BUNDLE_ID: "web", ANNOTATION_AGENT_NAMESPACE: "system"}}});
        let text = payload(json!({ "chart": chart }).to_string().as_bytes());
        let data = golib::base64::encode(text);
        let clients = scripted::clients(move |request| {
            let answer = match request.uri().path() {
                "/api/v1/namespaces/apps/secrets/a" => {
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403});
                    (403, status)
                }
                path if path.contains("/secrets/") => {
                    (200, json!({"metadata": {}, "data": {"release": data}}))
                }
                _ => (200, json!({"metadata": {"resourceVersion": "1"}})),
            };
            std::future::ready(answer)
        });
        let agent = scripted::identities(&clients).agent();
        let ledger = Ledger::load(&agent, "system").await.unwrap();
        let key = |name: &str| ReleaseKey {
            namespace: "apps".to_owned(),
            name: name.to_owned(),
        };
        let newest = ["a", "b"].map(|name| {
            let record = Record {
                revision: 1,
                name: name.to_owned(),
                uid: name.to_owned(),
                is_of_helm: false,
            };
            (key(name), record)
        });
        let search = Search::new(&agent, "system");
        let found = search.unknown(&agent, &ledger, newest.into()).await;
        let found = found.unwrap();
        let web = Unknown {
            key: key("b"),
            bundle: "web".to_owned(),
        };
        assert_eq!(found.unknown, [web]);
        assert_eq!(found.unread, BTreeSet::from([key("a")]));
    }

    /// Somebody made records with so many fields that a page of a hundred is more than the agent may take.
    #[tokio::test(start_paused = true)]
    async fn records_that_fill_a_page_are_asked_for_in_smaller_ones() {
        let limits = std::sync::Arc::new(Mutex::new(Vec::new()));
        let asked = std::sync::Arc::clone(&limits);
        let clients = scripted::clients(move |request| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let limit = query.split('&').find_map(|one| one.strip_prefix("limit="));
            let limit = limit.map_or(0, |limit| limit.parse().unwrap());
            asked.lock().push(limit);
            let padding = "x".repeat(limit * (1 << 20));
            let record = json!({"metadata": {
                "namespace": "apps", "name": "sh.helm.release.v1.web.v1", "uid": "u",
                "labels": {"name": "web", "owner": "helm", "status": "deployed", "version": "1"},
                "managedFields": [{"manager": "Helm", "fieldsV1": {"f": padding}}],
            }});
            let list = json!({"metadata": {"resourceVersion": "1"}, "items": [record]});
            std::future::ready((200, list))
        });
        let agent = scripted::identities(&clients).agent();
        let newest = Search::new(&agent, "system").newest().await.unwrap();
        assert_eq!(*limits.lock(), [64, 16, 4]);
        let record = newest.values().next().unwrap();
        assert!(record.is_of_helm && record.revision == 1);
    }

    #[test]
    fn annotations_are_read_from_a_record_as_it_is_stored() {
        let annotations = [(ANNOTATION_BUNDLE_ID, "web"), ("other", "x")];
        let annotations = annotations.map(|(key, text)| (key.to_owned(), text.to_owned()));
        let mut chart = chart::Chart::default();
        chart.metadata.annotations = Some(annotations.into());
        let mut record = release::Release {
            chart: Some(std::sync::Arc::new(chart)),
            manifest: "a".repeat(8 << 20),
            ..release::Release::default()
        };
        let expected = BTreeMap::from([(ANNOTATION_BUNDLE_ID.to_owned(), "web".to_owned())]);
        let stored = release::storage::encode(&record).unwrap();
        assert_eq!(chart_annotations(stored.as_bytes()), expected);
        record.chart = None;
        let stored = release::storage::encode(&record).unwrap();
        assert!(chart_annotations(stored.as_bytes()).is_empty());
    }

    #[rstest]
    #[case::no_object(b"[1, true, null, \"a\"]")]
    #[case::other_types(b"{\"chart\": [{\"metadata\": 1}], \"name\": null}")]
    #[case::damaged(b"{\"chart\": {\"metadata\"")]
    #[case::empty(b"")]
    fn damaged_records_name_nobody(#[case] json: &[u8]) {
        assert!(chart_annotations(&payload(json)).is_empty());
        assert!(chart_annotations(json).is_empty());
    }

    #[rstest]
    #[case("web-1.example", true)]
    #[case("", false)]
    #[case("Web\n", false)]
    #[case(&"a".repeat(254), false)]
    fn a_record_names_a_bundle_by_an_objects_name(#[case] name: &str, #[case] expected: bool) {
        assert_eq!(is_object_name(name), expected);
    }

    #[test]
    fn a_record_is_not_unpacked_beyond_its_beginning() {
        let mut json = b"{\"manifest\": \"".to_vec();
        json.resize(64 << 20, b'a');
        json.extend_from_slice(b"\", \"chart\": {\"metadata\": {\"annotations\": ");
        let annotations = json!({ANNOTATION_BUNDLE_ID: "web"}).to_string();
        json.extend_from_slice(annotations.as_bytes());
        json.extend_from_slice(b"}}}");
        assert!(chart_annotations(&payload(&json)).is_empty());
    }
}
