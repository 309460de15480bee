//! A bundle's files as the controller stores them: a JSON list, compressed in a Content or plain in
//! a registry.
//!
//! Mirrors `internal/manifest` and `internal/content`. Every size is bounded: what comes from
//! upstream may be hostile or broken.

use std::borrow::Cow;
use std::io::Read;

use chart::archive::MAX_FILES;
use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::error::BundleError;
use super::names::manifest_id;
use crate::api::Content;

/// The most that the files of a bundle or a chart may take unpacked, in bytes: some seven times the largest published chart.
pub const MAX_UNPACKED_BYTES: u64 = 32 << 20;
/// The longest path of a file, in bytes: Linux has no longer ones.
const MAX_PATH_BYTES: usize = 4096;

/// The ID of a manifest without files: `{}` and a newline, hashed.
pub const EMPTY_MANIFEST_ID: &str =
    "s-ca3d163bab055381827226140568f3bef7eaac187cebd76878e0b63e9e442";

/// One file of a bundle, as stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Resource {
    /// Path in the bundle, of at most 4,096 bytes; may be empty.
    #[serde(deserialize_with = "crate::api::null_as_default")]
    pub name: String,
    /// Text, or what `encoding` says.
    #[serde(deserialize_with = "crate::api::null_as_default")]
    pub content: String,
    /// Empty, `base64` or `base64+gz`; anything else means text.
    #[serde(deserialize_with = "crate::api::null_as_default")]
    pub encoding: String,
}

impl Resource {
    /// The file's bytes, taken off `budget`.
    pub(super) fn decode(&self, budget: &mut Budget) -> Result<Vec<u8>, BundleError> {
        let invalid = |problem: String| {
            BundleError::Content(format!("file {:?} cannot be decoded: {problem}", self.name))
        };
        let (data, is_packed) = self.stored().map_err(invalid)?;
        if is_packed {
            return budget.unpack(&data).map_err(invalid);
        }
        budget.take(data.len() as u64).map_err(invalid)?;
        Ok(data.into_owned())
    }

    /// The content as stored, and whether that is a gzip.
    fn stored(&self) -> Result<(Cow<'_, [u8]>, bool), String> {
        let base64 = match self.encoding.as_str() {
            "base64" => Some(""),
            other => other.strip_prefix("base64+"),
        };
        let data = match base64 {
            Some(_) => golib::base64::decode(&self.content)
                .map_err(|error| error.to_string())?
                .into(),
            None => Cow::Borrowed(self.content.as_bytes()),
        };
        Ok((data, base64.unwrap_or(&self.encoding) == "gz"))
    }

    /// Memory for the file: decoded or as stored, whichever is more, plus what charts packed in it unpack to; at most `limit`. Nothing is kept of
    /// that decoding, and its errors are reported when the file is decoded for use.
    fn unpacked_bytes(&self, limit: u64) -> u64 {
        let is_chart = self.name.ends_with(".tgz");
        let stored = self.content.len() as u64;
        if !is_chart && !self.encoding.ends_with("gz") {
            return stored.min(limit);
        }
        let Ok((data, is_packed)) = self.stored() else {
            return stored.min(limit);
        };
        let bytes = match is_packed {
            true => gunzipped_bytes(&data, limit).max(stored),
            false => stored,
        };
        let rest = limit.saturating_sub(bytes);
        let nested = match (is_chart, is_packed) {
            (false, _) => 0,
            (true, false) => chart::archive::nested_bytes(&self.name, &data[..], rest),
            (true, true) => {
                chart::archive::nested_bytes(&self.name, MultiGzDecoder::new(&data[..]), rest)
            }
        };
        bytes.min(limit) + nested
    }
}

/// How much may still be unpacked.
pub(super) struct Budget {
    left_bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            left_bytes: MAX_UNPACKED_BYTES,
        }
    }
}

impl Budget {
    fn take(&mut self, bytes: u64) -> Result<(), String> {
        self.left_bytes = self
            .left_bytes
            .checked_sub(bytes)
            .ok_or_else(|| format!("the bundle is larger than {MAX_UNPACKED_BYTES} bytes"))?;
        Ok(())
    }

    pub(super) fn left(&self) -> u64 {
        self.left_bytes
    }

    fn unpack(&mut self, data: &[u8]) -> Result<Vec<u8>, String> {
        let size = gunzipped_bytes(data, self.left_bytes + 1);
        self.take(size)?;
        let mut unpacked = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        // One more than comes out, so that what is broken after that is noticed.
        let mut reader = MultiGzDecoder::new(data).take(size + 1);
        reader
            .read_to_end(&mut unpacked)
            .map_err(|error| error.to_string())?;
        Ok(unpacked)
    }
}

/// How many bytes come out of a gzip, without keeping them: no more than `limit`, and those before it is broken.
fn gunzipped_bytes(data: &[u8], limit: u64) -> u64 {
    let mut reader = MultiGzDecoder::new(data).take(limit);
    let _ = std::io::copy(&mut reader, &mut std::io::sink());
    limit - reader.limit()
}

/// A bundle's files in stored order, and the ID of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The files.
    pub resources: Vec<Resource>,
    /// As the controller would name it; recomputed from the bytes that were read.
    pub id: String,
    /// What the files take once they are decoded, and the charts in them unpacked: no more than one byte above what is taken.
    pub unpacked_bytes: u64,
}

impl Manifest {
    /// Reads the JSON list. Bytes after the first JSON value count for the ID only, as in Go.
    ///
    /// # Errors
    /// [`BundleError::Content`] when it is no such list.
    pub fn from_json(json: &[u8]) -> Result<Self, BundleError> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Stored {
            #[serde(deserialize_with = "golib::json::at_most::<MAX_FILES, _, _>")]
            resources: Vec<Resource>,
        }
        // serde would take a list for a struct.
        if json.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
            return Err(BundleError::Content("not a list of files".to_owned()));
        }
        let mut values = serde_json::Deserializer::from_slice(json).into_iter::<Stored>();
        let stored = values.next().transpose().map_err(|error| {
            // serde's texts quote wrong scalars, and a file's content may be secret.
            let (line, column) = (error.line(), error.column());
            BundleError::Content(format!(
                "not a list of at most {MAX_FILES} files (line {line}, column {column})"
            ))
        })?;
        let stored = stored.ok_or_else(|| BundleError::Content("it is empty".into()))?;
        let is_long = |resource: &Resource| resource.name.len() > MAX_PATH_BYTES;
        if let Some(at) = stored.resources.iter().position(is_long) {
            return Err(BundleError::Content(format!(
                "path of file {at} is longer than {MAX_PATH_BYTES} bytes"
            )));
        }
        let unpacked_bytes = stored.resources.iter().fold(0, |bytes: u64, resource| {
            let limit = (MAX_UNPACKED_BYTES + 1).saturating_sub(bytes);
            bytes + resource.unpacked_bytes(limit)
        });
        Ok(Self {
            unpacked_bytes,
            resources: stored.resources,
            id: manifest_id(json),
        })
    }

    /// How many bytes a Content unpacks to, one more than may be at most. Keeps none of them.
    pub fn packed_in(content: &Content) -> u64 {
        gunzipped_bytes(&content.content.0, MAX_UNPACKED_BYTES + 1)
    }

    /// Unpacks a Content and checks it against its hash.
    ///
    /// # Errors
    /// [`BundleError::Content`] when it is damaged, too large, or another content than promised.
    pub fn from_content(content: &Content) -> Result<Self, BundleError> {
        let json = Budget::default()
            .unpack(&content.content.0)
            .map_err(|problem| {
                BundleError::Content(format!(
                    "Content {:?}: {problem}",
                    content.metadata.name.as_deref().unwrap_or_default()
                ))
            })?;
        let expected = &content.sha256_sum;
        if !expected.is_empty() {
            let got = golib::hex::encode(&Sha256::digest(&json));
            if got != *expected {
                return Err(BundleError::Content(format!(
                    "content does not match hash got {got}, expected {expected}"
                )));
            }
        }
        Self::from_json(&json)
    }

    /// From registry storage, where the ID is the only proof.
    ///
    /// # Errors
    /// [`BundleError::Content`] when the bytes are not those of `expected_id`.
    pub fn from_registry(json: &[u8], expected_id: &str) -> Result<Self, BundleError> {
        let manifest = Self::from_json(json)?;
        if manifest.id != expected_id {
            return Err(BundleError::Content(format!(
                "invalid or corrupt manifest. Expecting id: {expected_id:?}, got {:?}",
                manifest.id
            )));
        }
        Ok(manifest)
    }

    /// The ID that `resources` would get: hashed as Go's encoder writes them.
    pub(super) fn id_of(resources: &[Resource]) -> String {
        let quoted = |text: &str| golib::json::encode(&Value::String(text.to_owned()));
        let object = |resource: &Resource| {
            let fields = [
                ("name", &resource.name),
                ("content", &resource.content),
                ("encoding", &resource.encoding),
            ];
            let fields: Vec<String> = fields
                .into_iter()
                .filter(|(_, text)| !text.is_empty())
                .map(|(key, text)| format!("\"{key}\":{}", quoted(text)))
                .collect();
            format!("{{{}}}", fields.join(","))
        };
        if resources.is_empty() {
            return EMPTY_MANIFEST_ID.to_owned();
        }
        let objects: Vec<String> = resources.iter().map(object).collect();
        manifest_id(format!("{{\"resources\":[{}]}}\n", objects.join(",")).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use k8s_openapi::ByteString;

    use super::*;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        writer.write_all(data).unwrap();
        writer.finish().unwrap()
    }

    fn content(json: &[u8], sum: &str) -> Content {
        Content {
            content: ByteString(gzip(json)),
            sha256_sum: sum.to_owned(),
            ..Content::default()
        }
    }

    const JSON: &[u8] = b"{\"resources\":[{\"name\":\"a.yaml\",\"content\":\"x: \\u003c\"}]}\n";

    #[test]
    fn content_is_held_to_its_hash() {
        let sum = golib::hex::encode(&Sha256::digest(JSON));
        let manifest = Manifest::from_content(&content(JSON, &sum)).unwrap();
        assert_eq!(manifest.resources[0].content, "x: <");
        assert_eq!(manifest.id, Manifest::id_of(&manifest.resources));
        assert_eq!(
            Manifest::from_content(&content(JSON, "")).unwrap(),
            manifest
        );
        let error = Manifest::from_content(&content(JSON, "0")).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("content does not match hash got {sum}, expected 0")
        );
        assert_eq!(
            Manifest::from_registry(JSON, &manifest.id).unwrap(),
            manifest
        );
        let error = Manifest::from_registry(JSON, "s-1")
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("invalid or corrupt manifest. Expecting id: \"s-1\", got \"s-"));
    }

    #[test]
    fn damaged_content_is_reported_without_quoting_it() {
        for json in [
            &b""[..],
            b"[]",
            b"{\"resources\":[\"password\"]}",
            b"{\"resources\":5",
        ] {
            let error = Manifest::from_content(&content(json, ""))
                .unwrap_err()
                .to_string();
            assert!(!error.contains("password"), "{error}");
        }
        let truncated = Content {
            content: ByteString(gzip(JSON)[..20].to_vec()),
            ..Content::default()
        };
        assert!(Manifest::from_content(&truncated).is_err());
    }

    #[test]
    fn encodings() {
        let decode = |content: &str, encoding: &str| {
            Resource {
                content: content.into(),
                encoding: encoding.into(),
                ..Resource::default()
            }
            .decode(&mut Budget::default())
            .map_err(|error| error.to_string())
        };
        assert_eq!(decode("eA==", "").unwrap(), b"eA==");
        assert_eq!(decode("e\nA==", "base64").unwrap(), b"x");
        assert_eq!(
            decode(&golib::base64::encode(gzip(b"x")), "base64+gz").unwrap(),
            b"x"
        );
        assert_eq!(decode("eA==", "base64+zip").unwrap(), b"x");
        assert_eq!(decode("x", "zip").unwrap(), b"x");
        assert!(decode("%", "base64").is_err());
    }

    #[test]
    fn bombs_are_refused() {
        let mut budget = Budget { left_bytes: 1000 };
        let error = budget.unpack(&gzip(&[0; 5000])).unwrap_err();
        assert!(error.contains("larger than"), "{error}");
    }

    #[test]
    fn more_files_than_a_chart_may_have_are_refused_while_they_are_read() {
        for (files, is_read) in [
            (MAX_FILES, true),
            (MAX_FILES + 1, false),
            (2_000_000, false),
        ] {
            let list = vec!["{}"; files].join(",");
            let json = format!("{{\"resources\":[{list}]}}");
            let manifest = Manifest::from_content(&content(json.as_bytes(), ""));
            assert_eq!(manifest.is_ok(), is_read, "{files}");
            let reported = manifest.err().map(|error| error.to_string());
            assert!(
                reported.is_none_or(
                    |reported| reported.starts_with("not a list of at most 50000 files")
                )
            );
        }
    }

    #[test]
    fn a_path_longer_than_a_system_allows_is_refused() {
        let json = |name: &str| format!("{{\"resources\":[{{}},{{\"name\":\"{name}\"}}]}}");
        let longest = "a/".repeat(2048);
        assert!(Manifest::from_json(json(&longest).as_bytes()).is_ok());
        let error = Manifest::from_json(json(&format!("{longest}b")).as_bytes()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "path of file 1 is longer than 4096 bytes"
        );
    }

    #[test]
    fn the_empty_manifest() {
        assert_eq!(Manifest::from_json(b"{}\n").unwrap().id, EMPTY_MANIFEST_ID);
        assert_eq!(Manifest::id_of(&[]), EMPTY_MANIFEST_ID);
    }
}
