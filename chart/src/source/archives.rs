//! Archives by their address.

use std::sync::Arc;

use reqwest::StatusCode;
use reqwest::header::{ACCEPT, HeaderValue};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::access::Access;
use super::archive;
use super::cached::{Cached, FetchedAt, Key};
use super::error::{CredentialsUse, FetchError};
use super::fetched::FetchedChart;
use super::http::{Request, authorize};
use super::repository::Checksum;
use super::safe_url::SafeUrl;
use super::shared::Shared;

impl Shared {
    /// An archive by address. With a checksum, what is remembered under it is the thing itself.
    pub(super) async fn archive(
        self: &Arc<Self>,
        url: &SafeUrl,
        origin: &SafeUrl,
        checksum: Option<Checksum>,
        access: &Access,
        since: Option<Instant>,
    ) -> Result<FetchedAt, FetchError> {
        let name = match &checksum {
            Some(checksum) => format!("{} {}", checksum.key(), url.as_str()),
            None => url.as_str().to_owned(),
        };
        let here = access.at(url, origin);
        let key = (name, here.fingerprint());
        loop {
            let (promised, asked_for) = (checksum.clone(), url.to_string());
            let is_sound = move |chart: &FetchedChart, _: &[String]| {
                let is_promised =
                    |checksum: Checksum| checksum.check(&chart.url, &chart.bytes).is_ok();
                chart.url.to_string() == asked_for
                    && chart.is_intact()
                    && chart.manifest.is_none()
                    && promised.is_none_or(is_promised)
            };
            let cached = self.cached_chart(&key, is_sound).await.map(|mut cached| {
                // On disk it stands without what it may hold of credentials.
                cached.value.url = url.clone();
                cached
            });
            let is_fresh = |cached: &Cached<_>| {
                checksum.is_some() || cached.is_fresh(self.settings.fresh_for, since)
            };
            if let Some(cached) = cached.clone().filter(is_fresh) {
                return Ok(cached.fetched_at(checksum.is_some()));
            }
            let start = || {
                let (shared, key, url) = (Arc::clone(self), key.clone(), url.clone());
                let (here, shown) = (here.clone(), access.shown(&url, origin));
                let checksum = checksum.clone();
                let cached = cached.clone();
                async move {
                    shared
                        .download(key, url, checksum, &here, shown, cached)
                        .await
                }
            };
            let cached = match self.archive_flights.run(key.clone(), start).await {
                Err(error) => Cached::in_place_of(cached, error)?,
                Ok(cached) => cached,
            };
            if checksum.is_some() || cached.answers(since) {
                return Ok(cached.fetched_at(checksum.is_some()));
            }
        }
    }

    async fn download(
        &self,
        key: Key,
        url: SafeUrl,
        checksum: Option<Checksum>,
        access: &Access,
        shown: CredentialsUse,
        cached: Option<Cached<FetchedChart>>,
    ) -> Result<Cached<FetchedChart>, FetchError> {
        const ACCEPTED: HeaderValue =
            HeaderValue::from_static("application/gzip,application/octet-stream,*/*;q=0.1");
        let asked = Instant::now();
        let request = Request::get((*url).clone(), self.settings.max_archive_bytes, access)
            .header(ACCEPT, ACCEPTED);
        let mut request = authorize(request, access);
        if let Some(cached) = &cached {
            request.headers.extend(cached.validators.clone());
        }
        let answer = self.http.send(request).await?;
        if let Some(cached) = cached.filter(|_| answer.status == StatusCode::NOT_MODIFIED) {
            let cached = cached.confirmed(asked);
            self.archives.put(key, cached.clone());
            return Ok(cached);
        }
        if answer.status != StatusCode::OK {
            let (status, shown) = (answer.status.as_u16(), answer.shown(shown));
            return Err(FetchError::Status { url, status, shown });
        }
        if let Some(checksum) = &checksum {
            checksum.check(&url, &answer.body)?;
        }
        let digest = format!(
            "sha256:{}",
            golib::hex::encode(&Sha256::digest(&answer.body))
        );
        let (bytes, unpacked_bytes) =
            archive::checked(answer.body, &url, self.settings.max_unpacked_bytes).await?;
        let chart = FetchedChart {
            bytes,
            unpacked_bytes,
            version: String::new(),
            digest,
            manifest: None,
            url,
            is_stale: false,
        };
        let cached = Cached::new(chart, &answer.headers, asked);
        self.keep_chart(key, &cached, &[]).await;
        Ok(cached)
    }
}
