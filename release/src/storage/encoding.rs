//! The payload of a record: JSON, gzip, base64.
//!
//! Mirrors `pkg/storage/driver/util.go`. Records of others are read leniently (uncompressed JSON is
//! fine) and boundedly: a payload that unpacks to more than [`MAX_JSON_BYTES`] is refused.

use std::io::{Read, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::decode as fields;
use crate::model::Release;

/// How much a Secret may hold, all its values together.
pub const MAX_PAYLOAD_BYTES: usize = 1024 * 1024;

/// How much JSON a payload may unpack to.
const MAX_JSON_BYTES: u64 = 256 * 1024 * 1024;

const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b, 0x08];

/// A record cannot be read or written. The texts are Go's.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The payload is no base64.
    #[error(transparent)]
    Base64(#[from] golib::base64::CorruptInputError),
    /// The compressed data ends too early.
    #[error("unexpected EOF")]
    Truncated,
    /// The compressed data does not match its checksum.
    #[error("gzip: invalid checksum")]
    Checksum,
    /// The compressed data is damaged.
    #[error("gzip: invalid header")]
    Gzip,
    /// The payload unpacks to more than is sane.
    #[error("release record is larger than {0} bytes")]
    TooLarge(u64),
    /// The JSON cannot be parsed.
    #[error("{0}")]
    Json(String),
    /// A value has the wrong type.
    #[error("json: cannot unmarshal {found} into Go {place} of type {desired}")]
    Misfit {
        /// JSON type of what was found.
        found: String,
        /// Where it was found.
        place: String,
        /// Go type that was desired.
        desired: &'static str,
    },
    /// The chart inside the record has a value of the wrong type.
    #[error(transparent)]
    Chart(#[from] chart::DecodeError),
    /// A time is none.
    #[error(
        "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {rest:?} as {element:?}"
    )]
    Time {
        /// The whole text.
        text: String,
        /// Where it goes wrong.
        rest: String,
        /// The element of the layout that was due.
        element: &'static str,
    },
    /// A time has a field out of range.
    #[error("parsing time {text:?}: out of range")]
    TimeRange {
        /// The text.
        text: String,
    },
    /// A time is not even a text.
    #[error("Time.UnmarshalJSON: input is not a JSON string")]
    TimeNotText,
    /// The release does not fit into one object, even without the chart's files and templates.
    #[error(
        "the record takes {size} bytes, more than the {limit} an object may hold, even without the \
         chart's files and templates"
    )]
    DoesNotFit {
        /// Size of the smallest form.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// The record says that it is another one than where it lies says.
    #[error("the record is of {found}, not of {place}")]
    Misplaced {
        /// `namespace/name.vN` in the payload.
        found: String,
        /// The same by the object's name and place.
        place: String,
    },
    /// The release cannot be serialised.
    #[error("cannot encode the release")]
    Encode(#[source] serde_json::Error),
    /// The release cannot be compressed.
    #[error("cannot compress the release")]
    Compress(#[source] std::io::Error),
}

/// The JSON Helm 4 would store for `release`.
///
/// # Errors
/// Never for releases that were built or decoded by this crate.
pub fn to_json(release: &Release) -> Result<Vec<u8>, RecordError> {
    golib::json::to_vec(release).map_err(RecordError::Encode)
}

/// The payload that stores `release`.
///
/// # Errors
/// Never for releases that were built or decoded by this crate.
pub fn encode(release: &Release) -> Result<String, RecordError> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(&to_json(release)?)
        .map_err(RecordError::Compress)?;
    Ok(golib::base64::encode(
        gzip.finish().map_err(RecordError::Compress)?,
    ))
}

/// The payload that stores `release`, leaving out what no action reads if it must: first the
/// chart's files, then its templates. Manifest, hooks, values and metadata always stay, so every
/// `helm` command works on such a record. The second value says whether something was left out.
///
/// # Errors
/// Even the smallest form takes more than `limit` bytes.
pub fn encode_within(release: &Release, limit: usize) -> Result<(String, bool), RecordError> {
    let whole = encode(release)?;
    if whole.len() <= limit {
        return Ok((whole, false));
    }
    let mut slim = release.clone();
    let mut size = whole.len();
    let leave_out: [fn(&mut chart::Chart); 2] = [
        |chart| chart.files = Vec::new().into(),
        |chart| chart.templates = Vec::new().into(),
    ];
    for leave_out in leave_out {
        if let Some(chart) = &mut slim.chart {
            leave_out(Arc::make_mut(chart));
        }
        let payload = encode(&slim)?;
        size = payload.len();
        if size <= limit {
            return Ok((payload, true));
        }
    }
    Err(RecordError::DoesNotFit { size, limit })
}

/// Reads a payload. Labels are not in it; the caller adds them.
///
/// # Errors
/// The payload is damaged, too large, or holds no release.
pub fn decode(payload: &[u8]) -> Result<Release, RecordError> {
    let data = golib::base64::decode(payload)?;
    let json = if data.starts_with(GZIP_MAGIC) && data.len() > GZIP_MAGIC.len() {
        gunzip(&data)?
    } else {
        data
    };
    let value = golib::json::decode(&json).map_err(|error| RecordError::Json(error.to_string()))?;
    fields::release(&value)
}

fn gunzip(data: &[u8]) -> Result<Vec<u8>, RecordError> {
    let mut json = Vec::new();
    // One byte more than allowed tells "exactly full" from "too much".
    let read = MultiGzDecoder::new(data)
        .take(MAX_JSON_BYTES + 1)
        .read_to_end(&mut json);
    match read {
        Ok(_) if json.len() as u64 > MAX_JSON_BYTES => Err(RecordError::TooLarge(MAX_JSON_BYTES)),
        Ok(_) => Ok(json),
        Err(error) => Err(match error.kind() {
            std::io::ErrorKind::UnexpectedEof => RecordError::Truncated,
            std::io::ErrorKind::InvalidInput => RecordError::Checksum,
            _ => RecordError::Gzip,
        }),
    }
}
