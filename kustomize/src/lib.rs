//! `kustomize build` in process: files in, objects out. No Kubernetes client, no network, no other programs.
//!
//! Mirrors kustomize 5.8.1 (`api` and `kyaml` 0.21.1), which Fleet v0.16 is built with, and keeps its file names where it can:
//! [`target`](self) accumulates resources, generators, components and transformers in kustomize's order, and at the end come
//! the hashes, the references to changed names and the variables. Objects are yaml.v3 nodes ([`golib::yaml::node`]) all the
//! way, since what kustomize prints depends on how its input was written.
//!
//! Left out on purpose: everything remote, plugins that are programs or containers, and `helmCharts`. Each is refused by name.
//! What a build may take is bounded: in files, memory, depth and work.

#![warn(missing_docs)]

/// The example of the README runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

mod config;
mod datamap;
mod decode;
mod error;
mod factory;
mod files;
mod filters;
mod fns;
mod generators;
mod json_patch;
mod kustomization;
mod loader;
mod merge2;
mod openapi;
mod options;
mod origin;
mod resid;
mod resmap;
mod resource;
mod selector;
mod target;
mod transformers;

pub use error::{Error, Result};
pub use files::{DiskFiles, FileSystem, MemoryFiles, Place};
pub use loader::{Limits, Stop};
pub use options::{Options, VERSION};

use serde_json::Value;

/// Result of building a directory.
#[derive(Debug)]
pub struct Built {
    /// The objects, in order.
    pub objects: Vec<Value>,
    /// Warnings about deprecated fields in the files, in kustomize's words.
    pub warnings: Vec<String>,
}

impl Built {
    /// What `kustomize build` prints.
    ///
    /// # Errors
    /// Text that YAML cannot hold.
    pub fn to_yaml(&self) -> Result<String> {
        let mut out = String::new();
        for (at, object) in self.objects.iter().enumerate() {
            if at > 0 {
                out.push_str("---\n");
            }
            out.push_str(&golib::yaml::encode(object)?);
        }
        Ok(out)
    }
}

/// Builds the kustomization in a directory.
///
/// ```
/// use kustomize::{MemoryFiles, Options, build};
///
/// let mut files = MemoryFiles::new();
/// files.add("kustomization.yaml", b"namePrefix: dev-\nresources: [map.yaml]\n")?;
/// files.add("map.yaml", b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n")?;
/// let built = build(&files, ".", &Options::default())?;
/// assert_eq!(built.objects[0]["metadata"]["name"], "dev-web");
/// # Ok::<(), kustomize::Error>(())
/// ```
///
/// # Errors
/// Where kustomize fails, in its words, and where a limit is reached ([`Error::is_limit`]).
pub fn build(files: &dyn FileSystem, directory: &str, options: &Options) -> Result<Built> {
    /// Merging lists of lists recurses some five times a level, of which a document has 512. Pages that are not reached take no memory.
    const STACK_BYTES: usize = 16 << 20;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("kustomize".into())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || build_here(files, directory, options));
        let thread =
            thread.map_err(|error| Error::limit(format!("unable to start a build: {error}")))?;
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn build_here(files: &dyn FileSystem, directory: &str, options: &Options) -> Result<Built> {
    let build = loader::Build::new(files, &options.limits);
    let map = target::build(&build, directory, options)?;
    let objects = map
        .resources()
        .iter()
        .map(|resource| {
            let name = || resource.cur_id().to_string();
            let value = match options.is_printed {
                true => resource.to_value(),
                false => resource.to_data(),
            };
            value.map_err(|error| error.context(name()))
        })
        .collect::<Result<_>>()?;
    Ok(Built {
        objects,
        warnings: build.warnings.take(),
    })
}
