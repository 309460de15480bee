//! Images for a node, without an engine and a registry: what `make image` builds, and programs of others in the same dress.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// The name in the archive of `make image`, without its tag.
pub const OUR_NAME: &str = "docker.io/library/fleetagent";

/// The archive of `make image` that `FLEETAGENT_IMAGE` names.
///
/// # Errors
/// When it names none.
pub fn ours() -> Result<PathBuf> {
    let path = std::env::var_os("FLEETAGENT_IMAGE");
    let path = PathBuf::from(path.context("FLEETAGENT_IMAGE names no archive of `make image`")?);
    ensure!(path.is_file(), "there is no image {}", path.display());
    Ok(path)
}

/// Packs a static program as an image of this full name into an archive; it starts as `fleetagent`.
///
/// # Errors
/// When it is linked dynamically, or `FLEETAGENT_IMAGE_TOOL` (`cargo build --package image`) is missing.
pub fn archive(program: &Path, name: &str, directory: &Path) -> Result<PathBuf> {
    let tool = std::env::var_os("FLEETAGENT_IMAGE_TOOL");
    let tool = tool.context("FLEETAGENT_IMAGE_TOOL names no program that packs images")?;
    let (name, tag) = name.rsplit_once(':').context("an image has a tag")?;
    let output = Command::new(tool)
        .arg("--binary")
        .arg(program)
        .args(["--name", name, "--tag", tag, "--output"])
        .arg(directory)
        .output()
        .context("packing an image")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "packing {name}: {said}");
    let said = String::from_utf8(output.stdout)?;
    let mut lines = said.lines();
    let line = lines.find_map(|line| line.strip_prefix("image: archive "));
    let path = line.and_then(|line| line.rsplit_once(" ("));
    Ok(PathBuf::from(path.context("no archive was named")?.0))
}

/// The digest that an archive's only image is named by.
///
/// # Errors
/// When it is no OCI archive with an image.
pub fn image_digest(archive: &Path) -> Result<String> {
    let mut archive = tar::Archive::new(std::fs::File::open(archive)?);
    for entry in archive.entries()? {
        let entry = entry?;
        if *entry.path()? == *Path::new("index.json") {
            let index: Value = serde_json::from_reader(entry)?;
            let digest = index["manifests"][0]["digest"].as_str();
            return Ok(digest.context("no image in the index")?.to_owned());
        }
    }
    bail!("the archive has no index.json")
}
