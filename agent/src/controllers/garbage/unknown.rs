//! Release records that look like ours and that the ledger does not know.
//!
//! A tenant can write such a record, so nothing follows from one: it is reported, never removed.
//! Only metadata is listed, and only of Helm's records; the body is read once of those that the
//! ledger does not know and no helm client wrote, and of that only the beginning, whatever it would unpack to.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
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
use crate::client::listed::{self, Metadata, RawObject};
use crate::error;
use crate::ledger::{Ledger, ReleaseKey};
use crate::public::PublicText;

/// Releases that the ledger does not know, of which the newest record is read in one search: whoever may write Secrets chooses how many
/// there are.
const MOST_RELEASES: usize = 10_000;

/// Records whose bodies are read in one search; the others are for the next ones.
const MOST_READ: usize = 1_000;

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
#[derive(Default)]
pub(super) struct Newest {
    /// The revisions of those that were asked for.
    revisions: BTreeMap<ReleaseKey, i64>,
    /// Releases that the ledger does not know.
    others: BTreeMap<ReleaseKey, Record>,
    /// How many records there are of further ones.
    left_out: usize,
}

impl Newest {
    /// Whether a release that was asked for has this revision, or a later one.
    pub(super) fn has(&self, key: &ReleaseKey, revision: i64) -> bool {
        let newest = self.revisions.get(key);
        newest.is_some_and(|newest| *newest >= revision)
    }

    fn take(
        &mut self,
        key: ReleaseKey,
        record: Record,
        desired: &BTreeSet<ReleaseKey>,
        ledger: &Ledger,
    ) {
        if desired.contains(&key) {
            let newest = self.revisions.entry(key.clone()).or_default();
            *newest = record.revision.max(*newest);
        }
        if ledger.get(&key).is_some() {
            return;
        }
        match self.others.get(&key) {
            Some(known) if known.revision > record.revision => {}
            None if self.others.len() >= MOST_RELEASES => self.left_out += 1,
            _ => drop(self.others.insert(key, record)),
        }
    }
}

/// What the newest records say.
#[derive(Default)]
pub(super) struct Found {
    /// Releases that name this agent and are in no entry of the ledger.
    pub(super) unknown: Vec<Unknown>,
    /// Releases of which it is unknown whom their records name now.
    pub(super) unread: BTreeSet<ReleaseKey>,
    /// How many records there are that were not read.
    pub(super) left_out: usize,
}

/// Whether this record alone may not be read: an API server that is asked too much, or fails, says nothing of it.
fn is_refusal(failed: &kube::Error) -> bool {
    matches!(failed, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
}

/// A release record, by its metadata.
struct Record {
    revision: i64,
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
fn payload(record: &RawObject<Secret>) -> Option<ByteString> {
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

    /// Reads the newest records that are in no entry of the ledger. One that may not be read keeps none of the others from being reported.
    ///
    /// # Errors
    /// The API server does not answer, fails, or is asked too much.
    pub(super) async fn unknown(
        &self,
        agent: &AgentClient,
        ledger: &Ledger,
        newest: Newest,
    ) -> kube::Result<Found> {
        let uids: HashSet<&str> = newest.others.values().map(|record| &*record.uid).collect();
        self.read.lock().retain(|uid, _| uids.contains(&**uid));
        let mut found = Found {
            left_out: newest.left_out,
            ..Found::default()
        };
        let (mut refused, mut may_read) = (None, MOST_READ);
        for (key, record) in newest.others {
            if record.is_of_helm || ledger.get(&key).is_some() {
                continue;
            }
            if !self.read.lock().contains_key(&record.uid) {
                if may_read == 0 {
                    found.unread.insert(key);
                    continue;
                }
                may_read -= 1;
            }
            match self.bundle_of(agent, &key, &record).await {
                Ok(Some(bundle)) => found.unknown.push(Unknown { key, bundle }),
                Ok(None) => {}
                Err(failed) if is_refusal(&failed) => {
                    found.unread.insert(key);
                    let count = refused.map_or(0, |(_, count)| count);
                    refused = Some((failed, count + 1));
                }
                Err(failed) => return Err(failed),
            }
        }
        if let Some((failed, count)) = refused {
            logging::warn!(
                records = count,
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

    /// The newest record of every release of the cluster that is `wanted`, or that the ledger does not know.
    ///
    /// # Errors
    /// Records cannot be listed.
    pub(super) async fn newest(
        &self,
        desired: &BTreeSet<ReleaseKey>,
        ledger: &Ledger,
    ) -> kube::Result<Newest> {
        let mut newest = Newest::default();
        let selected = ListParams::default()
            .labels("owner=helm")
            .fields("type=helm.sh/release.v1");
        let take = |page: Vec<Metadata<Secret>>| {
            for (key, record) in page.into_iter().filter_map(Record::read) {
                newest.take(key, record, desired, ledger);
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
        let secrets = Api::<RawObject<Secret>>::namespaced(agent.client(), &key.namespace);
        let secret = match secrets.get(&newest.name).await {
            Ok(secret) => secret,
            Err(failed) if error::is_not_found(&failed) => return Ok(None),
            Err(failed) => return Err(failed),
        };
        let read = tokio::task::spawn_blocking(move || {
            payload(&secret).map_or_else(BTreeMap::new, |payload| chart_annotations(&payload.0))
        });
        // A record that was given up names no bundle.
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
    // Annotations found before the limit, or before any damage, count.
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

    fn record(name: &str) -> Record {
        Record {
            revision: 1,
            name: name.to_owned(),
            uid: name.to_owned(),
            is_of_helm: false,
        }
    }

    /// Somebody made so many records that name nobody.
    #[tokio::test(start_paused = true)]
    async fn a_search_reads_a_limited_number_of_records_and_the_next_continues() {
        let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = std::sync::Arc::clone(&asked);
        let clients = scripted::clients(move |request| {
            let is_read = request.uri().path().contains("/secrets/");
            counted.fetch_add(usize::from(is_read), std::sync::atomic::Ordering::Relaxed);
            std::future::ready((200, json!({"metadata": {"resourceVersion": "1"}})))
        });
        let agent = scripted::identities(&clients).agent();
        let ledger = Ledger::load(&agent, "system").await.unwrap();
        let search = Search::new(&agent, "system");
        let newest = || {
            let (mut newest, desired) = (Newest::default(), BTreeSet::new());
            for number in 0..MOST_RELEASES + 5 {
                let (namespace, name) = ("apps".to_owned(), format!("r{number:06}"));
                let record = record(&name);
                newest.take(ReleaseKey { namespace, name }, record, &desired, &ledger);
            }
            newest
        };
        for searches in 1..=3 {
            let found = search.unknown(&agent, &ledger, newest()).await.unwrap();
            let reads = searches * MOST_READ;
            assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), reads);
            assert_eq!(found.unread.len(), MOST_RELEASES - reads);
            assert_eq!(found.left_out, 5);
        }
        assert_eq!(search.len(), 3 * MOST_READ);
        search
            .unknown(&agent, &ledger, Newest::default())
            .await
            .unwrap();
        assert_eq!(search.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_record_of_a_wanted_release_counts() {
        let clients = scripted::clients(|_| std::future::ready((200, json!({"metadata": {}}))));
        let agent = scripted::identities(&clients).agent();
        let ledger = Ledger::load(&agent, "system").await.unwrap();
        let key = |name: &str| ReleaseKey {
            namespace: "apps".to_owned(),
            name: name.to_owned(),
        };
        let (mut newest, desired) = (Newest::default(), BTreeSet::from([key("a")]));
        for (name, revision) in [("a", 2), ("a", 10), ("a", 3), ("b", 7)] {
            let record = Record {
                revision,
                ..record(name)
            };
            newest.take(key(name), record, &desired, &ledger);
        }
        assert!(newest.has(&key("a"), 10) && !newest.has(&key("a"), 11));
        assert!(!newest.has(&key("b"), 7));
        assert_eq!(newest.others[&key("a")].revision, 10);
        assert_eq!(newest.others.len(), 2);
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
        let mut newest = Newest::default();
        for name in ["a", "b"] {
            newest.take(key(name), record(name), &BTreeSet::new(), &ledger);
        }
        let search = Search::new(&agent, "system");
        let found = search.unknown(&agent, &ledger, newest).await;
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
        let ledger = Ledger::load(&agent, "system").await.unwrap();
        limits.lock().clear();
        let search = Search::new(&agent, "system");
        let newest = search.newest(&BTreeSet::new(), &ledger).await.unwrap();
        assert_eq!(*limits.lock(), [64, 16, 4]);
        let record = newest.others.values().next().unwrap();
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
    fn damaged_records_name_no_bundle(#[case] json: &[u8]) {
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
