//! Archives by their address.

use std::sync::Arc;

use reqwest::StatusCode;
use reqwest::header::{ACCEPT, HeaderValue};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::access::Access;
use super::archive;
use super::error::{FetchError, Shown};
use super::fetched::FetchedChart;
use super::http::{Request, authorize};
use super::kept::{Answered, Kept, Key};
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
    ) -> Result<Answered, FetchError> {
        let name = match &checksum {
            Some(checksum) => format!("{} {}", checksum.key(), url.as_str()),
            None => url.as_str().to_owned(),
        };
        let here = access.at(url, origin);
        let key = (name, here.fingerprint());
        let answered = |kept: Kept<FetchedChart>| {
            let is_stale = kept.stale.is_some();
            let is_settled = checksum.is_some() || is_stale;
            let asked = kept.asked.filter(|_| !is_settled);
            (
                FetchedChart {
                    is_stale,
                    ..kept.value
                },
                asked,
            )
        };
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
            let kept = self.recall(&key, is_sound).await.map(|mut kept| {
                // On disk it stands without what it may hold of credentials.
                kept.value.url = url.clone();
                kept
            });
            let is_fresh = |kept: &Kept<_>| {
                checksum.is_some() || kept.is_fresh(self.settings.fresh_for, since)
            };
            if let Some(kept) = kept.clone().filter(is_fresh) {
                return Ok(answered(kept));
            }
            let start = || {
                let (shared, key, url) = (Arc::clone(self), key.clone(), url.clone());
                let (here, shown) = (here.clone(), access.shown(&url, origin));
                let checksum = checksum.clone();
                let kept = kept.clone();
                async move {
                    shared
                        .download(key, url, checksum, &here, shown, kept)
                        .await
                }
            };
            let kept = match self.archive_flights.run(key.clone(), start).await {
                Err(error) => Kept::in_place_of(kept, error)?,
                Ok(kept) => kept,
            };
            if checksum.is_some() || kept.answers(since) {
                return Ok(answered(kept));
            }
        }
    }

    async fn download(
        &self,
        key: Key,
        url: SafeUrl,
        checksum: Option<Checksum>,
        access: &Access,
        shown: Shown,
        kept: Option<Kept<FetchedChart>>,
    ) -> Result<Kept<FetchedChart>, FetchError> {
        const ACCEPTED: HeaderValue =
            HeaderValue::from_static("application/gzip,application/octet-stream,*/*;q=0.1");
        let asked = Instant::now();
        let request = Request::get((*url).clone(), self.settings.max_archive_bytes, access)
            .header(ACCEPT, ACCEPTED);
        let mut request = authorize(request, access);
        if let Some(kept) = &kept {
            request.headers.extend(kept.validators.clone());
        }
        let answer = self.http.send(request).await?;
        if let Some(kept) = kept.filter(|_| answer.status == StatusCode::NOT_MODIFIED) {
            let kept = kept.confirmed(asked);
            self.archives.put(key, kept.clone(), kept.value.bytes.len());
            return Ok(kept);
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
        let (bytes, unpacked_bytes) = archive::checked(answer.body, &url).await?;
        let chart = FetchedChart {
            bytes,
            unpacked_bytes,
            version: String::new(),
            digest,
            manifest: None,
            url,
            is_stale: false,
        };
        let kept = Kept::new(chart, &answer.headers, asked);
        self.keep(key, &kept, &[]).await;
        Ok(kept)
    }
}
