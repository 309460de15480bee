//! The one chart repository there is.

use chart::source::TransportError;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

/// A repository that has nothing but one chart.
pub(super) struct Repository;

impl chart::source::Transport for Repository {
    fn get(
        &self,
        url: &url::Url,
        _headers: &http::HeaderMap,
    ) -> BoxFuture<'static, Result<http::Response<bytes::Bytes>, TransportError>> {
        let answer = match url.path() {
            "/index.yaml" => (200, INDEX.as_bytes().to_vec()),
            "/other-1.0.0.tgz" => (200, other_chart()),
            _ => (404, Vec::new()),
        };
        async move {
            let response = http::Response::builder().status(answer.0);
            let response = response.body(answer.1.into());
            response.map_err(|error| TransportError::Interrupted {
                problem: error.to_string(),
            })
        }
        .boxed()
    }
}

const INDEX: &str = "apiVersion: v1\nentries:\n  other:\n  - name: other\n    version: 1.0.0\n    urls: [other-1.0.0.tgz]\n";

/// The chart in the repository: one that no bundle means.
fn other_chart() -> Vec<u8> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(
        Vec::new(),
        flate2::Compression::fast(),
    ));
    for (name, text) in [
        (
            "other/Chart.yaml",
            "apiVersion: v2\nname: other\nversion: 1.0.0\n",
        ),
        (
            "other/templates/map.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-repository}\n",
        ),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append_data(&mut header, name, text.as_bytes())
            .expect("a Vec takes everything");
    }
    tar.into_inner()
        .and_then(flate2::write::GzEncoder::finish)
        .expect("a Vec takes everything")
}
