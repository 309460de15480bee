//! `make image`: the agent as an OCI archive, and its bill of materials, built with cargo alone.
//!
//! No container engine takes part. The image holds one static program, certificate authorities and an empty `/tmp`, and its bytes
//! depend on the sources, `Cargo.lock` and the compiler only: whoever builds it elsewhere gets the same digest.
#![expect(clippy::print_stdout, reason = "it tells who builds what came out")]

mod arch;
mod archive;
mod build;
mod layer;
mod materials;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::arch::Arch;
use crate::archive::{Archive, Image};
use crate::build::Sources;

const USAGE: &str = "\
usage: image [--arch ARCH]... [--name NAME] [--tag TAG] [--output DIRECTORY] [--binary FILE] [--root-only DIRECTORY]

  --arch ARCH           amd64 or arm64, several for one image of them all; default this machine's
  --name NAME           the image's name, default docker.io/library/fleetagent
  --tag TAG             its tag, default the agent's version
  --output DIRECTORY    where the archive and the bill of materials go, default target/image
  --binary FILE         take this static program instead of building one (one architecture only)
  --root-only DIRECTORY write what is in the image there, and no archive: for a Dockerfile

SOURCE_DATE_EPOCH (seconds) and REVISION (a commit) are told in the image where they are set.";

/// What the command line says.
struct Order {
    archs: Vec<Arch>,
    name: String,
    tag: String,
    output: PathBuf,
    binary: Option<PathBuf>,
    root_only: Option<PathBuf>,
}

fn main() -> Result<()> {
    let sources = Sources::find()?;
    let Some(order) = order(std::env::args().skip(1), &sources)? else {
        println!("{USAGE}");
        return Ok(());
    };
    let mut images = Vec::new();
    for arch in &order.archs {
        let program = match &order.binary {
            Some(file) => {
                std::fs::read(file).with_context(|| format!("reading {}", file.display()))?
            }
            None => sources.program(*arch)?,
        };
        build::check_static(&program, *arch)?;
        if let Some(directory) = &order.root_only {
            layer::write_files(&program, directory)?;
            println!("image: its files are in {}", directory.display());
            return Ok(());
        }
        images.push(Image::new(*arch, &program, &sources)?);
    }
    std::fs::create_dir_all(&order.output)?;
    for image in &images {
        let materials = materials::of(&sources, image.arch, &image.digest())?;
        let file = format!("{}-{}.cdx.json", stem(&order), image.arch.name());
        let path = order.output.join(file);
        std::fs::write(&path, materials)?;
        println!("image: bill of materials {}", shown(&path));
    }
    let archive = Archive::new(&images, &order.name, &order.tag)?;
    let names: Vec<_> = images.iter().map(|image| image.arch.name()).collect();
    let path = order
        .output
        .join(format!("{}-{}.tar", stem(&order), names.join("-")));
    archive.write(&path)?;
    let size = std::fs::metadata(&path)?.len();
    println!("image: {}:{} ({})", order.name, order.tag, names.join(", "));
    println!("image: digest {}", archive.digest());
    println!(
        "image: archive {} ({:.1} MiB)",
        shown(&path),
        size as f64 / f64::from(1 << 20)
    );
    println!("image: load it with one of");
    println!(
        "image:   ctr --namespace k8s.io images import {}",
        shown(&path)
    );
    println!(
        "image:   podman load --input {0}   or   docker load --input {0}",
        shown(&path)
    );
    // Without it skopeo takes one image of an index.
    let all = if images.len() > 1 { " --all" } else { "" };
    println!(
        "image:   skopeo copy{all} oci-archive:{} docker://REGISTRY/fleetagent:{}",
        shown(&path),
        order.tag
    );
    Ok(())
}

fn stem(order: &Order) -> String {
    let last = order.name.rsplit('/').next().unwrap_or(&order.name);
    format!("{last}-{}", order.tag)
}

fn shown(path: &Path) -> std::path::Display<'_> {
    path.display()
}

/// None where help was asked for.
fn order(arguments: impl Iterator<Item = String>, sources: &Sources) -> Result<Option<Order>> {
    let mut order = Order {
        archs: Vec::new(),
        name: "docker.io/library/fleetagent".to_owned(),
        tag: sources.version.clone(),
        output: sources.target.join("image"),
        binary: None,
        root_only: None,
    };
    let mut arguments = arguments;
    while let Some(flag) = arguments.next() {
        if flag == "--help" || flag == "-h" {
            return Ok(None);
        }
        let value = arguments
            .next()
            .with_context(|| format!("{flag} needs a value\n{USAGE}"))?;
        match flag.as_str() {
            "--arch" => order.archs.push(Arch::parse(&value)?),
            "--name" => order.name = value,
            "--tag" => order.tag = value,
            "--output" => order.output = value.into(),
            "--binary" => order.binary = Some(value.into()),
            "--root-only" => order.root_only = Some(value.into()),
            _ => bail!("{flag} is not known\n{USAGE}"),
        }
    }
    if order.archs.is_empty() {
        order.archs.push(Arch::of_this_machine()?);
    }
    let is_single = order.binary.is_some() || order.root_only.is_some();
    ensure!(
        !is_single || order.archs.len() == 1,
        "--binary and --root-only are for one architecture"
    );
    Ok(Some(order))
}
