//! Something fetched earlier: when it was asked for, how to ask whether it is still true, and whether it answers a new request.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{
    ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};
use tokio::time::Instant;

use super::access::Fingerprint;
use super::cache::Weigh;
use super::error::FetchError;
use super::fetched::FetchedChart;
use super::index::Index;
use super::safe_url::SafeUrl;

/// What an archive is remembered under: what it was asked for as, and how its source was reached.
pub(super) type Key = (String, Fingerprint);

/// What an index is remembered under: whose it is, and how that is reached.
pub(super) type IndexKey = (SafeUrl, Fingerprint);

pub(super) type CachedIndex = Cached<Arc<Index>>;

/// A chart, and since when it is known to be what was asked for. `None`: asking again would give the same.
pub(super) type FetchedAt = (FetchedChart, Option<Instant>);

/// Something remembered, and how to ask whether it is still true.
#[derive(Clone)]
pub(super) struct Cached<T> {
    pub(super) value: T,
    /// When the value was asked for; `None` if by an earlier process.
    pub(super) asked: Option<Instant>,
    /// Why the source could not be asked.
    pub(super) stale: Option<FetchError>,
    pub(super) validators: HeaderMap,
}

/// The longest validator that is kept: what a server sends in their place may have hundreds of kilobytes.
const MAX_VALIDATOR_BYTES: usize = 1 << 10;

/// What a map of headers takes besides their texts.
const HEADERS_BYTES: usize = 1 << 10;

/// How to ask whether something is still true. Copied: a header of an answer may keep all that was read with it.
fn validators(etag: Option<&[u8]>, last_modified: Option<&[u8]>) -> HeaderMap {
    let mut validators = HeaderMap::new();
    for (name, text) in [(IF_NONE_MATCH, etag), (IF_MODIFIED_SINCE, last_modified)] {
        let short = text.filter(|text| text.len() <= MAX_VALIDATOR_BYTES);
        if let Some(value) = short.and_then(|text| HeaderValue::from_bytes(text).ok()) {
            validators.insert(name, value);
        }
    }
    validators
}

impl<T: Weigh> Weigh for Cached<T> {
    fn weight(&self) -> usize {
        let headers = match self.validators.is_empty() {
            true => 0,
            false => HEADERS_BYTES,
        };
        let texts = self.validators.values().map(HeaderValue::len);
        headers + texts.sum::<usize>() + self.value.weight()
    }
}

impl Weigh for Key {
    fn weight(&self) -> usize {
        self.0.weight()
    }
}

impl Weigh for IndexKey {
    fn weight(&self) -> usize {
        self.0.weight()
    }
}

impl<T: Clone> Cached<T> {
    pub(super) fn new(value: T, answer: &HeaderMap, asked: Instant) -> Self {
        let given = |name| answer.get(name).map(HeaderValue::as_bytes);
        Self {
            value,
            asked: Some(asked),
            stale: None,
            validators: validators(given(ETAG), given(LAST_MODIFIED)),
        }
    }

    /// From an earlier process.
    pub(super) fn from_disk(value: T, etag: Option<&str>, last_modified: Option<&str>) -> Self {
        let (etag, last_modified) = (etag.map(str::as_bytes), last_modified.map(str::as_bytes));
        Self {
            value,
            asked: None,
            stale: None,
            validators: validators(etag, last_modified),
        }
    }

    pub(super) fn validator(&self, name: HeaderName) -> Option<String> {
        let value = self.validators.get(name)?.to_str().ok()?;
        Some(value.to_owned())
    }

    /// Whether the value answers those who ask since then; nothing newer can be had of a source that does not answer.
    pub(super) fn answers(&self, since: Option<Instant>) -> bool {
        self.stale.is_some() || is_since(self.asked, since)
    }

    /// Whether the value is believed without asking: for a while, and only for those who accept a value from before `since`.
    pub(super) fn is_fresh(&self, fresh_for: Duration, since: Option<Instant>) -> bool {
        self.asked.is_some_and(|asked| asked.elapsed() < fresh_for) && is_since(self.asked, since)
    }

    /// Confirmed by the server, which was asked a moment ago.
    pub(super) fn confirmed(&self, asked: Instant) -> Self {
        Self {
            asked: Some(asked),
            ..self.clone()
        }
    }

    /// Uses the cached value in place of the answer of a source that is out of reach.
    pub(super) fn in_place_of(cached: Option<Self>, error: FetchError) -> Result<Self, FetchError> {
        match cached.filter(|_| error.is_out_of_reach()) {
            Some(cached) => {
                logging::warn!(
                    error,
                    "the source does not answer: what it said before stands in"
                );
                Ok(Self {
                    stale: Some(error),
                    ..cached
                })
            }
            None => Err(error),
        }
    }
}

impl Cached<FetchedChart> {
    /// The chart for those who asked for it. `is_settled`: asking again would give the same, as of a source that does not answer.
    pub(super) fn fetched_at(self, is_settled: bool) -> FetchedAt {
        let is_stale = self.stale.is_some();
        let chart = FetchedChart {
            is_stale,
            ..self.value
        };
        (chart, self.asked.filter(|_| !is_settled && !is_stale))
    }
}

pub(super) fn is_since(asked: Option<Instant>, since: Option<Instant>) -> bool {
    since.is_none_or(|since| asked.is_some_and(|asked| asked >= since))
}
