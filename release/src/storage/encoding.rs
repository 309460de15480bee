//! The payload of a record: JSON, gzip, base64.
//!
//! Mirrors `pkg/storage/driver/util.go`. Records of others are read leniently (uncompressed JSON is
//! fine) and boundedly: a payload that unpacks to more than [`MAX_JSON_BYTES`] is refused.

use std::io::{Read, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use golib::budget::Budget;

use super::decode as fields;
use crate::model::Release;

/// How much a Secret may hold, all its values together.
pub const MAX_PAYLOAD_BYTES: usize = 1024 * 1024;

/// How much JSON a payload may unpack to. An object holds 768 KiB of gzip at most, and what charts are made of packs to a fourth or a
/// tenth, so that the largest real record is some 9 MiB; gzip itself would go to 768 MiB.
const MAX_JSON_BYTES: u64 = 16 * 1024 * 1024;

/// Limit on the bytes read of such JSON: a few of them can stand for a map that takes a hundred times as much.
const MAX_READ_BYTES: usize = 24 << 20;

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
    /// A value does not fit its field.
    #[error(transparent)]
    Field(#[from] golib::json::FieldError),
    /// The release does not fit into one object, even without the chart's files and templates.
    #[error(
        "the record takes {size} bytes, more than the {limit} an object may hold, even without the \
         chart's files and templates"
    )]
    DoesNotFit {
        /// Size of the smallest form.
        size: usize,
        limit: usize,
    },
    /// The record says that it is another one than where it lies says.
    #[error("the record is of {found}, not of {place}")]
    Misplaced {
        /// `namespace/name.vN` in the payload.
        found: String,
        /// `namespace/name.vN` by the object's name and namespace.
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
    pack(&to_json(release)?)
}

fn pack(json: &[u8]) -> Result<String, RecordError> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(json).map_err(RecordError::Compress)?;
    Ok(golib::base64::encode(
        gzip.finish().map_err(RecordError::Compress)?,
    ))
}

/// The payload that stores `release`, leaving out what no action reads if it must: first the
/// chart's files, then its templates. Manifest, hooks, values and metadata always stay, so every
/// `helm` command works on such a record. The second value says whether something was left out.
///
/// # Errors
/// Even the smallest form takes more than `limit` bytes, or unpacks to more than is read.
pub fn encode_within(release: &Release, limit: usize) -> Result<(String, bool), RecordError> {
    let packed = |release: &Release| -> Result<Result<String, RecordError>, RecordError> {
        let json = to_json(release)?;
        if json.len() as u64 > MAX_JSON_BYTES {
            return Ok(Err(RecordError::TooLarge(MAX_JSON_BYTES)));
        }
        if golib::json::weigh(&json) > MAX_READ_BYTES {
            return Ok(Err(RecordError::TooLarge(MAX_READ_BYTES as u64)));
        }
        let payload = pack(&json)?;
        let size = payload.len();
        Ok(match size <= limit {
            true => Ok(payload),
            false => Err(RecordError::DoesNotFit { size, limit }),
        })
    };
    let mut problem = match packed(release)? {
        Ok(whole) => return Ok((whole, false)),
        Err(problem) => problem,
    };
    let mut slim = release.clone();
    let leave_out: [fn(&mut chart::Chart); 2] = [
        |chart| chart.files = Vec::new().into(),
        |chart| chart.templates = Vec::new().into(),
    ];
    for leave_out in leave_out {
        if let Some(chart) = &mut slim.chart {
            leave_out(Arc::make_mut(chart));
        }
        problem = match packed(&slim)? {
            Ok(payload) => return Ok((payload, true)),
            Err(problem) => problem,
        };
    }
    Err(problem)
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
    let value = golib::json::decode_within(&json, &mut Budget::new(MAX_READ_BYTES));
    let value = value.map_err(|error| RecordError::Json(error.to_string()))?;
    drop(json);
    Ok(fields::release(&value)?)
}

fn gunzip(data: &[u8]) -> Result<Vec<u8>, RecordError> {
    // The unpacked size that gzip states at its end, so that nothing is copied into ever larger buffers.
    let stated = data
        .last_chunk()
        .map_or(0, |size| u32::from_le_bytes(*size));
    let room = u64::from(stated).min(MAX_JSON_BYTES).saturating_add(1);
    let mut json = Vec::with_capacity(usize::try_from(room).unwrap_or_default());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_too_large_to_be_read_is_not_written() {
        let limit = usize::try_from(MAX_JSON_BYTES).unwrap();
        let mut release = Release {
            name: "web".to_owned(),
            manifest: "a".repeat(limit / 2),
            ..Release::default()
        };
        let files = vec![chart::File::new("zeros", vec![0; limit / 2])];
        release.chart = Some(Arc::new(chart::Chart {
            files: files.into(),
            ..chart::Chart::default()
        }));
        let (payload, is_slim) = encode_within(&release, MAX_PAYLOAD_BYTES).unwrap();
        assert!(is_slim);
        let read = decode(payload.as_bytes()).unwrap();
        assert_eq!(read.manifest.len(), limit / 2);
        release.manifest = "a".repeat(limit);
        let refused = encode_within(&release, MAX_PAYLOAD_BYTES).unwrap_err();
        assert!(matches!(refused, RecordError::TooLarge(_)), "{refused}");
        // Values of nothing but small maps weigh a hundred times their text.
        release.manifest = String::new();
        release.chart = None;
        let maps = vec![serde_json::json!({"a": 1}); 50_000];
        release.config = [("maps".to_owned(), maps.into())].into_iter().collect();
        let refused = encode_within(&release, MAX_PAYLOAD_BYTES).unwrap_err();
        assert!(matches!(refused, RecordError::TooLarge(_)), "{refused}");
        let dense = encode(&release).unwrap();
        let refused = decode(dense.as_bytes()).unwrap_err().to_string();
        assert!(refused.contains("too large"), "{refused}");
        release.config.clear();
        release.manifest = "a".repeat(limit);
        let bomb = encode(&release).unwrap();
        assert!(bomb.len() < MAX_PAYLOAD_BYTES);
        let refused = decode(bomb.as_bytes()).unwrap_err();
        assert!(matches!(refused, RecordError::TooLarge(_)), "{refused}");
    }

    /// Files that hold next to nothing weigh as maps, beside values that just fit.
    #[test]
    fn a_record_that_is_written_can_be_read() {
        let files = |count: usize| -> chart::Chart {
            let file = |n: usize| chart::File::new(format!("f{n}"), Vec::new());
            chart::Chart {
                files: (0..count).map(file).collect::<Vec<_>>().into(),
                ..chart::Chart::default()
            }
        };
        let mut kinds = [0; 3];
        for maps in [0, 30_000, 40_000] {
            for count in [0, 20_000] {
                let maps = vec![serde_json::json!({"a": 1}); maps];
                let release = Release {
                    name: "web".to_owned(),
                    config: [("maps".to_owned(), maps.into())].into_iter().collect(),
                    chart: Some(Arc::new(files(count))),
                    ..Release::default()
                };
                let kind = match encode_within(&release, MAX_PAYLOAD_BYTES) {
                    Ok((payload, is_slim)) => {
                        decode(payload.as_bytes()).unwrap();
                        usize::from(is_slim)
                    }
                    Err(_) => 2,
                };
                kinds[kind] += 1;
            }
        }
        // Whole, without its files, and not at all.
        assert!(kinds.iter().all(|count| *count > 0), "{kinds:?}");
    }
}
