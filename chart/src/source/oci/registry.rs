//! The distribution API, as far as pulling goes.

use std::sync::Arc;

use bytes::Bytes;
use logging::Name;
use parking_lot::Mutex;
use reqwest::StatusCode;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, LINK};
use serde::Deserialize;
use sha2::{Digest as _, Sha256, Sha512};
use url::Url;

use super::super::access::{Access, LocalAccess};
use super::super::credentials::ShownSecrets;
use super::super::deadline::Deadline;
use super::super::error::{CredentialsUse, FetchError};
use super::super::http::{Answer, Http, Request};
use super::super::safe_url::SafeUrl;
use super::annotations::Annotations;
use super::auth::{self, Authorization, Challenge};
use super::problem::{detail, message, quoted};
use super::reference::{Reference, is_digest, is_version};

const MAX_MANIFEST_BYTES: u64 = 4 << 20;
const MAX_TAG_PAGES: usize = 1_000;
/// Limit on all tags of a repository that may be versions, in bytes.
const MAX_TAG_BYTES: usize = 4 << 20;
const MAX_REFERRER_PAGES: usize = 100;
/// With so many referrers of interest no more pages are listed.
const MAX_REFERRERS: usize = 10_000;
/// Of one manifest; images have some hundred layers at most.
const MAX_LAYERS: usize = 1_000;
/// Of one page.
const MAX_TAGS: usize = 200_000;
const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// A blob as a manifest names it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::source) struct Descriptor {
    pub(in crate::source) media_type: String,
    /// Of an entry of an index.
    pub(in crate::source) artifact_type: String,
    pub(in crate::source) digest: String,
    pub(in crate::source) size: u64,
    pub(in crate::source) annotations: Annotations,
}

/// An image manifest, or an index of them.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::source) struct Manifest {
    pub(in crate::source) media_type: String,
    pub(in crate::source) config: Descriptor,
    #[serde(deserialize_with = "golib::json::at_most::<MAX_LAYERS, _, _>")]
    pub(in crate::source) layers: Vec<Descriptor>,
    #[serde(deserialize_with = "golib::json::at_most::<MAX_REFERRERS, _, _>")]
    pub(in crate::source) manifests: Vec<Descriptor>,
    /// Of the manifest's own bytes.
    #[serde(skip)]
    pub(in crate::source) digest: String,
    #[serde(skip)]
    pub(in crate::source) bytes: Bytes,
}

impl Manifest {
    pub(in crate::source) fn is_index(&self) -> bool {
        self.media_type == OCI_INDEX || (self.media_type.is_empty() && !self.manifests.is_empty())
    }
}

/// Who names an artifact in a registry.
#[derive(Clone, Copy, Debug)]
pub(in crate::source) enum NamedBy<'a> {
    /// Whoever asks for it.
    Bundle,
    /// The index of this repository.
    Index(&'a SafeUrl),
}

/// One repository of one registry, seen with one access.
pub(in crate::source) struct Registry<'a> {
    pub(super) http: &'a Http,
    /// The access for this registry.
    pub(super) access: LocalAccess,
    /// The credentials the registry is shown, if it takes user names and passwords.
    pub(super) shown: CredentialsUse,
    pub(super) base: SafeUrl,
    reference: &'a Reference,
    authorization: Arc<Mutex<Option<Authorization>>>,
    /// One time for all that is asked, but for what is downloaded.
    pub(super) deadline: Deadline,
}

impl<'a> Registry<'a> {
    pub(in crate::source) fn new(
        http: &'a Http,
        access: &Access,
        reference: &'a Reference,
        named_by: NamedBy<'_>,
    ) -> Result<Self, FetchError> {
        // Another host serves the registry that Docker's clients call docker.io.
        let host = match reference.registry.as_str() {
            "docker.io" | "index.docker.io" => "registry-1.docker.io",
            host => host,
        };
        let base = |scheme: &str| {
            SafeUrl::parse(&format!("{scheme}://{host}/v2/{}/", reference.repository)).map_err(
                |error| FetchError::InvalidReference {
                    reference: reference.to_string(),
                    problem: error.to_string(),
                },
            )
        };
        let mut base_url = base("https")?;
        if access.is_plain(&base_url) {
            base_url = base("http")?;
        }
        let base = base_url;
        // How a host is reached may be said by others than the bundle: only what that names itself is shown a login without TLS.
        let origin = match named_by {
            NamedBy::Bundle => &base,
            NamedBy::Index(repo) => repo,
        };
        Ok(Self {
            http,
            access: access.at(&base, origin),
            shown: access.shown(&base, origin),
            base,
            reference,
            authorization: Arc::default(),
            deadline: Deadline::started(),
        })
    }

    fn url(&self, path: &str) -> Result<Url, FetchError> {
        self.base
            .join(path)
            .map_err(|error| FetchError::InvalidReference {
                reference: self.reference.to_string(),
                problem: error.to_string(),
            })
    }

    /// Sends a request, answering the registry's challenge once if it has one.
    async fn send(
        &self,
        url: Url,
        limit_bytes: u64,
        accept: Option<&'static str>,
        deadline: &Deadline,
    ) -> Result<Answer, FetchError> {
        let request = |authorization: Option<&Authorization>| {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(ACCEPT, HeaderValue::from_static(accept));
            }
            if let Some(authorization) = authorization {
                headers.insert(AUTHORIZATION, authorization.header.clone());
            }
            Request {
                url: url.clone(),
                shown_url: None,
                headers,
                limit_bytes,
                access: &self.access,
                form: None,
                only: None,
                deadline: Some(deadline),
            }
        };
        let known = self.known_authorization();
        let answer = self.http.send(request(known.as_ref())).await?;
        // A challenge of another host, or of an address that they are not for, is not answered with the registry's credentials.
        if answer.status != StatusCode::UNAUTHORIZED || answer.is_elsewhere {
            return Ok(answer);
        }
        let Some(challenge) = Challenge::from_headers(&answer.headers) else {
            return Ok(answer);
        };
        let repository = &self.reference.repository;
        let reply = auth::answer(self, repository, &challenge).await?;
        let Some(authorization) = reply else {
            return Ok(answer);
        };
        let answer = self.http.send(request(Some(&authorization))).await?;
        *self.authorization.lock() = Some(authorization);
        Ok(answer)
    }

    fn known_authorization(&self) -> Option<Authorization> {
        let known = self.authorization.lock();
        known.clone().filter(Authorization::is_fresh)
    }

    /// The access to this registry, for telling apart fetched charts.
    pub(in crate::source) fn access(&self) -> &LocalAccess {
        &self.access
    }

    /// Where the repository lies.
    pub(in crate::source) fn base(&self) -> &SafeUrl {
        &self.base
    }

    fn shown(&self) -> CredentialsUse {
        // Tokens count where a token was asked for.
        match (self.access.credentials(), self.known_authorization()) {
            (Some(_), Some(_)) => CredentialsUse::Sent,
            _ => self.shown,
        }
    }

    /// The secrets that the registry is shown: errors quote none of them.
    pub(in crate::source) fn secrets(&self) -> ShownSecrets {
        let mut secrets = ShownSecrets::of(self.access.credentials());
        if let Some(authorization) = &*self.authorization.lock() {
            secrets.add(authorization.token());
        }
        secrets
    }

    fn refused(&self, url: Url, answer: &Answer) -> FetchError {
        let secrets = self.secrets();
        FetchError::Registry {
            url: SafeUrl::from(url),
            status: answer.status.as_u16(),
            message: message(&answer.body, &secrets),
            detail: detail(&answer.body, &secrets),
            shown: answer.shown(self.shown()),
        }
    }

    /// The error about the registry's artifact, without credentials that the text may repeat.
    pub(in crate::source) fn artifact(&self, problem: &str) -> FetchError {
        FetchError::Artifact {
            reference: self.reference.to_string(),
            problem: quoted(problem, &self.secrets()),
        }
    }

    /// The manifest by tag or digest (`name` as the registry knows it), checked against its digest.
    pub(in crate::source) async fn manifest(&self, name: &str) -> Result<Manifest, FetchError> {
        let url = self.url(&format!("manifests/{name}"))?;
        const ACCEPTED: &str = "application/vnd.oci.image.manifest.v1+json, \
                                application/vnd.oci.image.index.v1+json, \
                                application/vnd.docker.distribution.manifest.v2+json, \
                                application/vnd.docker.distribution.manifest.list.v2+json";
        let answer = self
            .send(
                url.clone(),
                MAX_MANIFEST_BYTES,
                Some(ACCEPTED),
                &self.deadline,
            )
            .await?;
        if answer.status != StatusCode::OK {
            return Err(self.refused(url, &answer));
        }
        let shown = SafeUrl::from(url);
        let expected = if is_digest(name) {
            Some(name.to_owned())
        } else {
            let header = answer.headers.get("docker-content-digest");
            header
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        let digest = match expected.filter(|digest| is_digest(digest)) {
            Some(expected) => {
                check(&shown, &expected, &answer.body)?;
                expected
            }
            None => digest_like("sha256:", &answer.body),
        };
        let mut manifest: Manifest = serde_json::from_slice(&answer.body)
            .map_err(|error| self.artifact(&format!("its manifest cannot be read: {error}")))?;
        if manifest.media_type.is_empty() {
            let header = answer.headers.get(reqwest::header::CONTENT_TYPE);
            let kind = header
                .and_then(|value| value.to_str().ok())
                .unwrap_or(OCI_MANIFEST);
            manifest.media_type = kind.split(';').next().unwrap_or_default().trim().to_owned();
        }
        manifest.digest = digest;
        manifest.bytes = answer.body;
        Ok(manifest)
    }

    /// The manifest, or `None` where there is none.
    pub(in crate::source) async fn manifest_if_any(
        &self,
        name: &str,
    ) -> Result<Option<Manifest>, FetchError> {
        match self.manifest(name).await {
            Ok(manifest) => Ok(Some(manifest)),
            Err(FetchError::Registry { status: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What `pick` takes of that which refers to a manifest, and whether there is more than is listed: from the referrers API, page by
    /// page, or from the tag that stands for it where a registry has no such API.
    pub(in crate::source) async fn referrers<T>(
        &self,
        digest: &str,
        mut pick: impl FnMut(Descriptor) -> Option<T>,
    ) -> Result<(Vec<T>, bool), FetchError> {
        let first = self.url(&format!("referrers/{digest}"))?;
        let mut next = Some(first.clone());
        let mut referrers = Vec::new();
        let mut pages = 0;
        while let Some(url) = next.take() {
            let answer = self.send(
                url.clone(),
                MAX_MANIFEST_BYTES,
                Some(OCI_INDEX),
                &self.deadline,
            );
            let answer = answer.await?;
            match answer.status.as_u16() {
                200 => {}
                // Registries that do not know the address answer whatever they like.
                400 | 404 | 405 | 501 if url == first => {
                    let tag = digest.replace(':', "-");
                    let index = self.manifest_if_any(&tag).await?.unwrap_or_default();
                    referrers.extend(index.manifests.into_iter().filter_map(pick));
                    break;
                }
                _ => return Err(self.refused(url, &answer)),
            }
            let index: Manifest = serde_json::from_slice(&answer.body).map_err(|error| {
                self.artifact(&format!("its referrers cannot be read: {error}"))
            })?;
            referrers.extend(index.manifests.into_iter().filter_map(&mut pick));
            pages += 1;
            next = next_page(&answer.headers, &url).filter(|next| self.base.same_origin(next));
            if pages == MAX_REFERRER_PAGES || referrers.len() > MAX_REFERRERS {
                return Ok((referrers, next.is_some()));
            }
        }
        Ok((referrers, false))
    }

    /// A blob, checked against size and digest. It has a time of its own.
    pub(in crate::source) async fn blob(
        &self,
        descriptor: &Descriptor,
        limit_bytes: u64,
    ) -> Result<Bytes, FetchError> {
        self.blob_within(descriptor, limit_bytes, &Deadline::started())
            .await
    }

    /// One of many small blobs, see [`Self::blob`].
    pub(in crate::source) async fn small_blob(
        &self,
        descriptor: &Descriptor,
        limit_bytes: u64,
    ) -> Result<Bytes, FetchError> {
        self.blob_within(descriptor, limit_bytes, &self.deadline)
            .await
    }

    async fn blob_within(
        &self,
        descriptor: &Descriptor,
        limit_bytes: u64,
        deadline: &Deadline,
    ) -> Result<Bytes, FetchError> {
        if !is_digest(&descriptor.digest) {
            let problem = format!("its manifest has an invalid digest {:?}", descriptor.digest);
            return Err(self.artifact(&problem));
        }
        let url = self.url(&format!("blobs/{}", descriptor.digest))?;
        let shown = SafeUrl::from(url.clone());
        if descriptor.size > limit_bytes {
            return Err(FetchError::TooLarge {
                url: shown,
                limit_bytes,
            });
        }
        let answer = self.send(url.clone(), limit_bytes, None, deadline).await?;
        if answer.status != StatusCode::OK {
            return Err(self.refused(url, &answer));
        }
        check(&shown, &descriptor.digest, &answer.body)?;
        Ok(answer.body)
    }

    /// Every tag that may be a version, following the pages.
    pub(in crate::source) async fn tags(&self) -> Result<Vec<String>, FetchError> {
        #[derive(Deserialize)]
        struct Page {
            #[serde(default, deserialize_with = "golib::json::at_most::<MAX_TAGS, _, _>")]
            tags: Vec<String>,
        }
        let first = self.url("tags/list?n=1000")?;
        let mut next = Some(first.clone());
        let mut tags = Vec::new();
        let (mut pages, mut bytes) = (0, 0);
        while let Some(url) = next.take() {
            let answer = self
                .send(url.clone(), MAX_MANIFEST_BYTES, None, &self.deadline)
                .await?;
            if answer.status != StatusCode::OK {
                return Err(self.refused(url, &answer));
            }
            let page: Page = serde_json::from_slice(&answer.body)
                .map_err(|error| self.artifact(&format!("its tag list cannot be read: {error}")))?;
            let page = page.tags.into_iter();
            for tag in page.filter(|tag| is_version(tag)) {
                bytes += size_of::<String>() + tag.len();
                tags.push(tag);
            }
            pages += 1;
            if pages == MAX_TAG_PAGES || bytes > MAX_TAG_BYTES {
                logging::warn!(
                    reference = Name(&self.reference.to_string()),
                    tags = tags.len(),
                    "tag list cut off"
                );
                break;
            }
            next = next_page(&answer.headers, &url).filter(|next| self.base.same_origin(next));
        }
        Ok(tags)
    }
}

/// The target of `Link: <…>; rel="next"`.
fn next_page(headers: &HeaderMap, url: &Url) -> Option<Url> {
    headers
        .get_all(LINK)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .find_map(|text| {
            let (target, parameters) = text.trim().strip_prefix('<')?.split_once('>')?;
            let is_next = parameters
                .replace([' ', '"'], "")
                .to_ascii_lowercase()
                .contains("rel=next");
            is_next.then(|| url.join(target).ok())?
        })
}

/// `digest` is a valid one.
fn check(url: &SafeUrl, digest: &str, body: &[u8]) -> Result<(), FetchError> {
    let actual = digest_like(digest, body);
    if actual == digest {
        return Ok(());
    }
    Err(FetchError::Checksum {
        url: url.clone(),
        expected: digest.to_owned(),
        actual,
    })
}

/// The digest of a body by the hash that another digest is made with.
fn digest_like(digest: &str, body: &[u8]) -> String {
    match digest.starts_with("sha512:") {
        true => format!("sha512:{}", golib::hex::encode(&Sha512::digest(body))),
        false => format!("sha256:{}", golib::hex::encode(&Sha256::digest(body))),
    }
}

/// Whether a body is what a digest says.
pub(in crate::source) fn is_of(digest: &str, body: &[u8]) -> bool {
    is_digest(digest) && digest_like(digest, body) == digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_are_too_long_are_refused_while_they_are_read() {
        let read = |field: &str, element: &str, count: usize| {
            let list = vec![element; count].join(",");
            let text = format!("{{\"{field}\":[{list}]}}");
            serde_json::from_str::<Manifest>(&text)
        };
        for (field, most) in [("layers", MAX_LAYERS), ("manifests", MAX_REFERRERS)] {
            assert!(read(field, "{}", most).is_ok());
            let error = read(field, "{}", 1_000_000).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("more than {most} elements")),
                "{error}"
            );
        }
        assert!(serde_json::from_str::<Manifest>(r#"{"layers": null}"#).is_ok());
    }

    #[test]
    fn pages_follow_links() {
        let url = Url::parse("https://h/v2/a/tags/list?n=2").unwrap();
        let next = |link: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(LINK, HeaderValue::from_static(link));
            next_page(&headers, &url).map(String::from)
        };
        assert_eq!(
            next("</v2/a/tags/list?last=x&n=2>; rel=\"next\"").as_deref(),
            Some("https://h/v2/a/tags/list?last=x&n=2")
        );
        assert_eq!(next("</x>; rel=\"prev\""), None);
        assert_eq!(next("garbage"), None);
    }
}
