//! Where charts are kept: a repository and a registry, which have what upstream names, and may fail.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use chart::source::TransportError;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::time::sleep;

use crate::desired::{CHART, Desired, VERSION, packed};

/// What is wrong with the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It answers with 503.
    Unavailable,
    /// It has nothing any more.
    Empty,
    /// Its answers end in the middle.
    Torn,
    /// Nothing is said for half a minute, and then the connection breaks.
    Silent,
}

impl Trouble {
    pub(crate) const ALL: [(Self, &'static str); 4] = [
        (Self::Unavailable, "is unavailable"),
        (Self::Empty, "has nothing any more"),
        (Self::Torn, "ends its answers in the middle"),
        (Self::Silent, "falls silent"),
    ];
}

/// The repository; clones share it.
#[derive(Clone, Default)]
pub(super) struct Repository(Arc<Mutex<Shelf>>);

#[derive(Default)]
struct Shelf {
    /// What is answered, by address.
    files: BTreeMap<String, Bytes>,
    trouble: Option<Trouble>,
}

impl Repository {
    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is wrong from now on, or nothing is.
    pub(super) fn fail(&self, trouble: Option<Trouble>) {
        self.lock().trouble = trouble;
    }

    /// Has the chart of a bundle, and one that no bundle means.
    pub(super) fn stock(&self, desired: &Desired) {
        let (name, chart) = desired.archive();
        let mut shelf = self.lock();
        let mut put = |path: String, text: Vec<u8>| shelf.files.insert(path, text.into());
        let file = format!("{CHART}-{VERSION}.tgz");
        put(format!("charts/{name}/index.yaml"), index(CHART));
        put(format!("charts/{name}/{file}"), chart.clone());
        let digest = |bytes: &[u8]| {
            let hash = Sha256::digest(bytes);
            let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("sha256:{hash}")
        };
        let config = json!({"name": CHART, "version": VERSION}).to_string();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "application/vnd.cncf.helm.config.v1+json",
                       "digest": digest(config.as_bytes()), "size": config.len()},
            "layers": [{"mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
                        "digest": digest(&chart), "size": chart.len()}],
        });
        let root = format!("registry/v2/{name}/{CHART}");
        put(
            format!("{root}/manifests/{VERSION}"),
            manifest.to_string().into(),
        );
        put(
            format!("{root}/blobs/{}", digest(config.as_bytes())),
            config.into(),
        );
        put(format!("{root}/blobs/{}", digest(&chart)), chart);
        put("charts/index.yaml".to_owned(), index("other"));
        put("charts/other-1.0.0.tgz".to_owned(), other_chart());
    }
}

impl chart::source::Transport for Repository {
    fn get(
        &self,
        url: &url::Url,
        _headers: &http::HeaderMap,
    ) -> BoxFuture<'static, Result<http::Response<Bytes>, TransportError>> {
        let host = url.host_str().unwrap_or_default();
        let place = format!("{host}{}", url.path());
        let shelf = self.lock();
        let trouble = shelf.trouble;
        let found = shelf.files.get(&place).cloned();
        drop(shelf);
        async move {
            let interrupted = |problem: &str| TransportError::Interrupted {
                problem: problem.to_owned(),
            };
            sleep(Duration::from_millis(20)).await;
            let (code, body) = match (trouble, found) {
                (Some(Trouble::Unavailable), _) => (503, Bytes::new()),
                (Some(Trouble::Silent), _) => {
                    sleep(Duration::from_secs(30)).await;
                    return Err(interrupted("nothing was said for 30 s"));
                }
                (Some(Trouble::Torn), Some(body)) => (200, body.slice(..body.len() / 2)),
                (None, Some(body)) => (200, body),
                (_, _) => (404, Bytes::new()),
            };
            let response = http::Response::builder().status(code).body(body);
            response.map_err(|error| interrupted(&error.to_string()))
        }
        .boxed()
    }
}

fn index(name: &str) -> Vec<u8> {
    format!(
        "apiVersion: v1\nentries:\n  {name}:\n  - name: {name}\n    version: {VERSION}\n    urls: [{name}-{VERSION}.tgz]\n"
    )
    .into()
}

/// The chart in the repository that no bundle means.
fn other_chart() -> Vec<u8> {
    packed(&[
        (
            "other/Chart.yaml".to_owned(),
            "apiVersion: v2\nname: other\nversion: 1.0.0\n".to_owned(),
        ),
        (
            "other/templates/map.yaml".to_owned(),
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-repository}\n".to_owned(),
        ),
    ])
}
