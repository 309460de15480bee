//! Records as Secrets of one namespace.
//!
//! Mirrors `pkg/storage/driver/secrets.go`.

use std::collections::BTreeMap;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::{
    Driver, Found, MAX_PAYLOAD_BYTES, RecordError, RecordUid, Stamp, StorageError, StoredRelease,
    StoredRevision, decode, encode_within, key, record_labels,
};
use crate::kube::{ApiError, Cluster, RecordRequest};
use crate::model::{Release, Status};

/// Records of one namespace, written as the identity of `cluster`.
#[derive(Debug, Clone)]
pub struct KubernetesDriver {
    cluster: Cluster,
    reader: Cluster,
    namespace: String,
}

impl KubernetesDriver {
    /// Records of `namespace`.
    pub fn new(cluster: Cluster, namespace: impl Into<String>) -> Self {
        Self {
            reader: cluster.clone(),
            cluster,
            namespace: namespace.into(),
        }
    }

    /// Reads as another identity than the one that writes.
    #[must_use]
    pub fn read_by(self, reader: Cluster) -> Self {
        Self { reader, ..self }
    }

    async fn send(
        &self,
        verb: &'static str,
        request: RecordRequest<'_>,
    ) -> Result<Value, StorageError> {
        let identity = match request {
            RecordRequest::Get(_) => &self.reader,
            _ => &self.cluster,
        };
        let answer = identity.record(request, &self.namespace).await;
        answer.map_err(|source| self.refused(verb, source))
    }

    fn refused(&self, verb: &'static str, source: ApiError) -> StorageError {
        if source.is_not_found() {
            let missing_kind = match &source {
                ApiError::Refused(status) => status
                    .details
                    .as_ref()
                    .map_or("", |details| details.kind.as_str()),
                _ => "",
            };
            return match missing_kind {
                "namespaces" => StorageError::NoNamespace {
                    namespace: self.namespace.clone(),
                },
                _ => StorageError::NotFound,
            };
        }
        if source.is_already_exists() {
            return StorageError::Exists;
        }
        StorageError::Api { verb, source }
    }

    fn pack(&self, release: &Release, stamp: Stamp) -> Result<Value, StorageError> {
        let (payload, is_slim) =
            encode_within(release, MAX_PAYLOAD_BYTES).map_err(|source| StorageError::Encode {
                name: release.name.clone(),
                source,
            })?;
        if is_slim {
            logging::warn!(
                release = release.name,
                revision = release.revision,
                "the record leaves out the chart's files or templates to fit into one object"
            );
        }
        Ok(json!({
            "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
            "metadata": {
                "name": key(&release.name, release.revision),
                "namespace": self.namespace,
                "labels": record_labels(release, stamp),
            },
            // The payload is base64 already; a Secret's data are base64 once more on the wire.
            "data": {"release": golib::base64::encode(payload)},
        }))
    }

    fn unpack(&self, key: &str, object: &Value) -> Result<Release, RecordError> {
        let data = object.pointer("/data/release").and_then(Value::as_str);
        let payload = golib::base64::decode(data.unwrap_or_default()).unwrap_or_default();
        let mut release = decode(&payload)?;
        let labels = object
            .pointer("/metadata/labels")
            .and_then(Value::as_object);
        let labels: BTreeMap<String, String> = labels
            .into_iter()
            .flatten()
            .filter_map(|(label, value)| Some((label.clone(), value.as_str()?.to_owned())))
            .collect();
        check_place(&release, &labels, &self.namespace, key)?;
        release.labels = user_labels(&labels);
        Ok(release)
    }
}

/// Makes sure that a record is of the release and revision that its object is named and labelled for: what is done
/// by one would be done to the other. Labels that were lost say nothing.
fn check_place(
    release: &Release,
    labels: &BTreeMap<String, String>,
    namespace: &str,
    stored_as: &str,
) -> Result<(), RecordError> {
    let Release { name, revision, .. } = release;
    let says = |label: &str, value: &str| labels.get(label).is_none_or(|found| found == value);
    let is_in_place = key(name, *revision) == stored_as
        && release.namespace == namespace
        && says("name", name)
        && says("version", &revision.to_string());
    match is_in_place {
        true => Ok(()),
        false => Err(RecordError::Misplaced {
            found: format!("{}/{name}.v{revision}", release.namespace),
            place: format!("{namespace}/{stored_as}"),
        }),
    }
}

impl Driver for KubernetesDriver {
    fn history<'a>(
        &'a self,
        release: &'a str,
    ) -> BoxFuture<'a, Result<Vec<StoredRevision>, StorageError>> {
        async move {
            let listed = self.reader.list_records(&self.namespace, release).await;
            let listed = listed.map_err(|source| StorageError::Api {
                verb: "list",
                source,
            })?;
            let history = listed.into_iter().filter_map(|record| {
                let mut head = StoredRevision::from_labels(&record.labels)?;
                // Helm reads a record by its name, so one under another name is not ours to count.
                if record.name != key(release, head.revision) {
                    return None;
                }
                head.uid = RecordUid::new(record.uid);
                head.created_at = record.created_at;
                head.written_at = record.written_at;
                head.written_by = record.written_by;
                Some(head)
            });
            Ok(history.collect())
        }
        .boxed()
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Found, StorageError>> {
        async move {
            let object = self.send("get", RecordRequest::Get(key)).await?;
            Ok(Found {
                uid: uid(&object),
                release: self.unpack(key, &object),
            })
        }
        .boxed()
    }

    fn create<'a>(
        &'a self,
        release: &'a Release,
    ) -> BoxFuture<'a, Result<RecordUid, StorageError>> {
        async move {
            let object = self.pack(release, Stamp::Created(self.cluster.host().now()))?;
            let created = self.send("create", RecordRequest::Create(&object)).await?;
            Ok(uid(&created))
        }
        .boxed()
    }

    fn update<'a>(&'a self, stored: &'a StoredRelease) -> BoxFuture<'a, Result<(), StorageError>> {
        async move {
            let mut object = self.pack(stored, Stamp::Modified(self.cluster.host().now()))?;
            let key = key(&stored.name, stored.revision);
            // An update that says which object it means is refused where there is another one; that says nothing, is not.
            let uid = stored.uid().as_str();
            if uid.is_empty() {
                return Err(StorageError::Replaced { key });
            }
            object["metadata"]["uid"] = uid.into();
            self.send("update", RecordRequest::Replace(&key, &object))
                .await
                .map(drop)
        }
        .boxed()
    }

    fn delete<'a>(
        &'a self,
        key: &'a str,
        uid: &'a RecordUid,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        async move {
            self.send("delete", RecordRequest::Delete(key, uid.as_str()))
                .await
                .map(drop)
        }
        .boxed()
    }
}

fn uid(object: &Value) -> RecordUid {
    let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
    RecordUid::new(uid.unwrap_or_default())
}

/// Labels that Helm sets itself. Users may not.
#[rustfmt::skip]
pub const SYSTEM_LABELS: [&str; 6] = [
    "name", "owner", "status", "version", "createdAt", "modifiedAt",
];

/// The labels that every record has, times aside.
pub fn system_labels(name: &str, revision: i64, status: &Status) -> [(String, String); 4] {
    [
        ("name".to_owned(), name.to_owned()),
        ("owner".to_owned(), "helm".to_owned()),
        ("status".to_owned(), status.as_str().to_owned()),
        ("version".to_owned(), revision.to_string()),
    ]
}

/// Whether a label is one that Helm sets itself.
pub fn is_system_label(label: &str) -> bool {
    SYSTEM_LABELS.contains(&label)
}

/// The labels that are the user's.
pub fn user_labels(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    labels
        .iter()
        .filter(|(label, _)| !is_system_label(label))
        .map(|(label, value)| (label.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::{Method, Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;
    use rstest::rstest;
    use tower::BoxError;

    use super::*;
    use crate::deletable::Deletable;
    use crate::kube::{AnswerLimit, AnswerTooLarge};
    use crate::storage::Storage;

    const OURS: &str = "ours";

    /// An API server that has an object in the place of each record, or none, and answers as those do that say of a missing one that it is
    /// another. What it was asked for.
    fn server(there: Option<&'static str>) -> (Storage, Arc<Mutex<Vec<Value>>>) {
        let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
        let log = Arc::clone(&asked);
        let refusal = |code: u16, reason: &str| {
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                "reason": reason, "message": "refused", "details": {"kind": "secrets", "name": "r"}})
        };
        let serve = tower::service_fn(move |request: Request<Body>| {
            let log = Arc::clone(&log);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await?;
                let body: Value = serde_json::from_slice(&body).unwrap_or_default();
                let wanted = match parts.method {
                    Method::PUT => body.pointer("/metadata/uid").cloned(),
                    Method::DELETE => body.pointer("/preconditions/uid").cloned(),
                    _ => None,
                };
                let wanted = wanted.unwrap_or_default();
                let (code, answered) = match there {
                    None if parts.method == Method::GET => (404, refusal(404, "NotFound")),
                    Some(uid) if parts.method == Method::GET || wanted == uid => {
                        (200, json!({"metadata": {"uid": uid}}))
                    }
                    _ => (409, refusal(409, "Conflict")),
                };
                log.lock().push(wanted);
                let answer = Response::builder().status(code);
                Ok::<_, BoxError>(answer.body(Body::from(answered.to_string().into_bytes()))?)
            }
        });
        let cluster = Cluster::new(kube::Client::new(serve, "n"));
        (Storage::secrets(&cluster, "n"), asked)
    }

    /// Somebody made so many records, or such large ones, that they are too much for one answer.
    #[tokio::test]
    async fn records_are_listed_page_by_page_and_fewer_at_a_time_where_they_are_large() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let serve = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let value = |name: &str| {
                let mut all = query.split('&').map(str::to_owned);
                all.find_map(|one| Some(one.strip_prefix(name)?.to_owned()))
            };
            let limit: usize = value("limit=").unwrap().parse().unwrap();
            let (next, most) = (
                value("continue="),
                request.extensions().get::<AnswerLimit>(),
            );
            let most = most.map_or(u64::MAX, |most| most.0);
            log.lock().push((limit, next.clone()));
            let (revision, next) = match next {
                None => (1, "more"),
                Some(_) => (2, ""),
            };
            let labels = json!({"name": "web", "owner": "helm", "status": "deployed", "version": revision.to_string()});
            let metadata = json!({"name": key("web", revision), "uid": "u", "labels": labels});
            let page = json!({"metadata": {"continue": next}, "items": [{"metadata": metadata}]});
            async move {
                if limit > 200 {
                    return Err::<Response<Body>, BoxError>(AnswerTooLarge(most).into());
                }
                Ok(Response::new(Body::from(page.to_string().into_bytes())))
            }
        });
        let cluster = Cluster::new(kube::Client::new(serve, "n"));
        let history = Storage::secrets(&cluster, "n")
            .history("web")
            .await
            .unwrap();
        let revisions: Vec<_> = history.iter().map(|record| record.revision).collect();
        assert_eq!(revisions, [1, 2]);
        let (small, more) = (125, Some("more".to_owned()));
        assert_eq!(*asked.lock(), [(500, None), (small, None), (small, more)]);
    }

    /// Somebody deleted the record that is meant, and somebody has made another one.
    #[rstest]
    #[case::it_is_there(Some(OURS), "")]
    #[case::gone(None, "release: not found")]
    #[case::replaced(
        Some("theirs"),
        "release: already exists: somebody has replaced the record \"sh.helm.release.v1.web.v2\""
    )]
    #[tokio::test]
    async fn a_record_in_the_place_of_another_is_left(
        #[case] there: Option<&'static str>,
        #[case] expected: &str,
    ) {
        let (storage, asked) = server(there);
        let release = Release {
            name: "web".to_owned(),
            namespace: "n".to_owned(),
            revision: 2,
            ..Release::default()
        };
        let record = StoredRelease::new(release, RecordUid::new(OURS));
        let reported = |done: Result<(), StorageError>| match done {
            Ok(()) => String::new(),
            Err(failed) => failed.to_string(),
        };
        assert_eq!(reported(storage.update(&record).await), expected);
        assert_eq!(asked.lock()[0], OURS);
        if there.is_some() {
            asked.lock().clear();
            let record = Deletable::created(&record);
            assert_eq!(reported(storage.delete("web", &record).await), expected);
            assert_eq!(*asked.lock(), [OURS]);
        }
    }
}
