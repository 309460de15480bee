//! An OCI image layout in a tar file, with the names that `ctr`, `podman`, `skopeo` and `docker load` look for.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, Header};

use crate::arch::Arch;
use crate::build::Sources;
use crate::layer;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// What the program's allocator gives back after a burst: it keeps one heap for all threads, and whatever is large apart from it. Fifty large
/// charts at once take a quarter less.
const ALLOCATOR: [&str; 3] = [
    "MALLOC_ARENA_MAX=1",
    "MALLOC_TRIM_THRESHOLD_=131072",
    "MALLOC_MMAP_THRESHOLD_=131072",
];

/// The image of one architecture.
pub(crate) struct Image {
    pub(crate) arch: Arch,
    layer: Vec<u8>,
    config: Vec<u8>,
    manifest: Vec<u8>,
}

impl Image {
    /// The image that holds this program.
    pub(crate) fn new(arch: Arch, program: &[u8], sources: &Sources) -> Result<Self> {
        let tar = layer::tar(program)?;
        let layer = layer::gzip(&tar)?;
        let mut labels = BTreeMap::from([
            ("org.opencontainers.image.title", "fleetagent".to_owned()),
            (
                "org.opencontainers.image.description",
                "The downstream agent for Rancher Fleet".to_owned(),
            ),
            ("org.opencontainers.image.licenses", "Apache-2.0".to_owned()),
            ("org.opencontainers.image.version", sources.version.clone()),
        ]);
        if let Ok(revision) = std::env::var("REVISION") {
            labels.insert("org.opencontainers.image.revision", revision);
        }
        let created = created()?;
        let config = json!({
            "created": created,
            "architecture": arch.name(),
            "os": "linux",
            "config": {
                // The user and group of Fleet's own agent image.
                "User": "1000:1000",
                "Env": ["PATH=/usr/bin", "HOME=/tmp", ALLOCATOR[0], ALLOCATOR[1], ALLOCATOR[2]],
                "Entrypoint": ["/usr/bin/fleetagent"],
                "WorkingDir": "/",
                "Labels": labels,
            },
            "rootfs": { "type": "layers", "diff_ids": [digest(&tar)] },
            "history": [{ "created": created, "comment": "fleetagent and certificate authorities" }],
        });
        let config = serde_json::to_vec(&config)?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIG, &config),
            "layers": [descriptor(LAYER, &layer)],
            "annotations": labels,
        });
        Ok(Self {
            arch,
            manifest: serde_json::to_vec(&manifest)?,
            config,
            layer,
        })
    }

    /// The digest by which it is named.
    pub(crate) fn digest(&self) -> String {
        digest(&self.manifest)
    }
}

/// A layout with one image, or with an index of several.
pub(crate) struct Archive {
    /// By digest without its algorithm.
    blobs: BTreeMap<String, Vec<u8>>,
    top: String,
    index: Vec<u8>,
    /// Docker's older list of what is in an archive.
    list: Option<Vec<u8>>,
}

impl Archive {
    /// The archive of these images under one name and tag.
    pub(crate) fn new(images: &[Image], name: &str, tag: &str) -> Result<Self> {
        let mut blobs = BTreeMap::new();
        let mut keep = |data: &[u8]| blobs.insert(hex(data), data.to_vec());
        for image in images {
            for blob in [&image.layer, &image.config, &image.manifest] {
                keep(blob);
            }
        }
        let manifests: Vec<Value> = images
            .iter()
            .map(|image| {
                let mut entry = descriptor(MANIFEST, &image.manifest);
                entry["platform"] = json!({ "architecture": image.arch.name(), "os": "linux" });
                entry
            })
            .collect();
        let (mut top, list) = match images {
            [image] => {
                let path = |data: &[u8]| format!("blobs/sha256/{}", hex(data));
                let list = json!([{
                    "Config": path(&image.config),
                    "RepoTags": [format!("{name}:{tag}")],
                    "Layers": [path(&image.layer)],
                }]);
                let top = manifests.into_iter().next().context("an image")?;
                (top, Some(serde_json::to_vec(&list)?))
            }
            _ => {
                let several = json!({
                    "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests,
                });
                let several = serde_json::to_vec(&several)?;
                keep(&several);
                (descriptor(INDEX, &several), None)
            }
        };
        let digest = top["digest"].as_str().unwrap_or_default().to_owned();
        top["annotations"] = json!({
            // containerd takes the full name, all others the tag.
            "io.containerd.image.name": format!("{name}:{tag}"),
            "org.opencontainers.image.ref.name": tag,
        });
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [top] });
        Ok(Self {
            blobs,
            top: digest,
            index: serde_json::to_vec(&index)?,
            list,
        })
    }

    /// The digest by which a registry will name it.
    pub(crate) fn digest(&self) -> &str {
        &self.top
    }

    /// Writes the tar file.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let file = std::fs::File::create(path);
        let file = file.with_context(|| format!("writing {}", path.display()))?;
        let mut tar = Builder::new(file);
        let mut add = |name: &str, data: &[u8]| -> Result<()> {
            let mut header = Header::new_ustar();
            header.set_mode(0o644);
            header.set_mtime(0);
            header.set_size(data.len() as u64);
            Ok(tar.append_data(&mut header, name, data)?)
        };
        add("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        add("index.json", &self.index)?;
        if let Some(list) = &self.list {
            add("manifest.json", list)?;
        }
        for (name, data) in &self.blobs {
            add(&format!("blobs/sha256/{name}"), data)?;
        }
        tar.finish()?;
        Ok(())
    }
}

fn descriptor(kind: &str, data: &[u8]) -> Value {
    json!({ "mediaType": kind, "digest": digest(data), "size": data.len() })
}

fn digest(data: &[u8]) -> String {
    format!("sha256:{}", hex(data))
}

fn hex(data: &[u8]) -> String {
    let hash = Sha256::digest(data);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `SOURCE_DATE_EPOCH`, or the beginning of time: the clock of the builder is nobody's business.
pub(crate) fn created() -> Result<String> {
    let seconds = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text
            .trim()
            .parse()
            .context("SOURCE_DATE_EPOCH is no number of seconds")?,
        Err(_) => 0,
    };
    Ok(jiff::Timestamp::from_second(seconds)?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(arch: Arch, program: &[u8]) -> Image {
        let sources = Sources {
            root: "/".into(),
            target: "/".into(),
            version: "1.2.3".into(),
        };
        Image::new(arch, program, &sources).unwrap()
    }

    fn parsed(archive: &Archive, digest: &str) -> Value {
        let name = digest.strip_prefix("sha256:").unwrap();
        serde_json::from_slice(&archive.blobs[name]).unwrap()
    }

    /// Everything that is named is there, in its size, and runs as nobody in particular.
    #[test]
    fn one_image_is_a_layout_of_its_own() {
        let image = image(Arch::Amd64, b"program");
        let archive =
            Archive::new(std::slice::from_ref(&image), "docker.io/library/x", "1").unwrap();
        assert_eq!(archive.digest(), image.digest());
        let manifest = parsed(&archive, archive.digest());
        let config = parsed(&archive, manifest["config"]["digest"].as_str().unwrap());
        assert_eq!(config["config"]["User"], "1000:1000");
        assert_eq!(config["created"], "1970-01-01T00:00:00Z");
        let layer = manifest["layers"][0]["digest"].as_str().unwrap();
        let layer = &archive.blobs[layer.strip_prefix("sha256:").unwrap()];
        assert_eq!(manifest["layers"][0]["size"], layer.len());
        let mut tar = Vec::new();
        std::io::copy(
            &mut flate2::read::GzDecoder::new(layer.as_slice()),
            &mut tar,
        )
        .unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(&tar));
        let index: Value = serde_json::from_slice(&archive.index).unwrap();
        let annotations = &index["manifests"][0]["annotations"];
        assert_eq!(
            annotations["io.containerd.image.name"],
            "docker.io/library/x:1"
        );
    }

    #[test]
    fn several_architectures_are_one_index() {
        let images = [image(Arch::Amd64, b"one"), image(Arch::Arm64, b"two")];
        let archive = Archive::new(&images, "x", "1").unwrap();
        let index = parsed(&archive, archive.digest());
        let platforms: Vec<_> = index["manifests"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["platform"]["architecture"].clone())
            .collect();
        assert_eq!(platforms, ["amd64", "arm64"]);
        assert_eq!(index["manifests"][1]["digest"], images[1].digest().as_str());
    }
}
