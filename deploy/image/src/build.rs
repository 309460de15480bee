//! The static program: cargo with the flags that make its bytes the same wherever it is built.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::arch::Arch;

/// What comes between flags in `CARGO_ENCODED_RUSTFLAGS`.
const SEPARATOR: &str = "\u{1f}";

/// This checkout, as cargo sees it.
pub(crate) struct Sources {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    /// The agent's version.
    pub(crate) version: String,
}

impl Sources {
    /// Asks cargo.
    pub(crate) fn find() -> Result<Self> {
        let metadata = metadata(&["--no-deps"])?;
        let path = |key: &str| -> Result<PathBuf> {
            let path = metadata[key].as_str();
            Ok(path
                .with_context(|| format!("cargo metadata has no {key}"))?
                .into())
        };
        let mut packages = metadata["packages"].as_array().into_iter().flatten();
        let agent = packages.find(|package| package["name"] == "agent");
        let version = agent.and_then(|agent| agent["version"].as_str());
        Ok(Self {
            root: path("workspace_root")?,
            target: path("target_directory")?,
            version: version.context("the workspace has no agent")?.to_owned(),
        })
    }

    /// Builds the agent for an architecture and reads it.
    pub(crate) fn program(&self, arch: Arch) -> Result<Vec<u8>> {
        self.check_tools(arch)?;
        let target = arch.target();
        println!(
            "image: building the static agent for {target} with full optimisation, some five minutes the first time"
        );
        let mut command = cargo();
        command
            .args([
                "build",
                "--locked",
                "--release",
                "--package",
                "agent",
                "--bin",
                "fleetagent",
                "--target",
                target,
            ])
            .current_dir(&self.root)
            .env("CARGO_ENCODED_RUSTFLAGS", self.flags()?.join(SEPARATOR))
            // The C code of the crypto library names its files in messages.
            .env(
                "TARGET_CFLAGS",
                self.prefixes()?
                    .iter()
                    .map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display()))
                    .collect::<Vec<_>>()
                    .join(" "),
            );
        if arch != Arch::of_this_machine()? {
            let compiler = arch.cross_compiler();
            let variable = target.to_uppercase().replace('-', "_");
            command
                .env(format!("CARGO_TARGET_{variable}_LINKER"), compiler)
                .env(format!("CC_{}", target.replace('-', "_")), compiler);
        }
        ensure!(
            command.status().context("running cargo")?.success(),
            "the agent does not compile"
        );
        let program = self.target.join(target).join("release/fleetagent");
        std::fs::read(&program).with_context(|| format!("reading {}", program.display()))
    }

    fn flags(&self) -> Result<Vec<String>> {
        let mut flags = vec!["-Ctarget-feature=+crt-static".to_owned()];
        for (from, to) in self.prefixes()? {
            flags.push(format!("--remap-path-prefix={}={to}", from.display()));
        }
        Ok(flags)
    }

    /// Where the sources are, and what the program is to say instead.
    fn prefixes(&self) -> Result<Vec<(PathBuf, &'static str)>> {
        let home = match std::env::var_os("CARGO_HOME") {
            Some(home) => PathBuf::from(home),
            None => {
                PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cargo")
            }
        };
        // The last that fits counts.
        Ok(vec![
            (home, "/cargo"),
            (self.root.clone(), "/src"),
            (self.target.clone(), "/target"),
        ])
    }

    /// Says what is missing before minutes are spent.
    fn check_tools(&self, arch: Arch) -> Result<()> {
        let target = arch.target();
        let output = Command::new("rustc")
            .args(["--print", "target-libdir", "--target", target])
            .current_dir(&self.root)
            .output()
            .context("running rustc")?;
        let directory = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() || !Path::new(&directory).is_dir() {
            bail!(
                "Rust's standard library for {target} is not installed: rustup target add {target}"
            );
        }
        let compiler = match arch == Arch::of_this_machine()? {
            true => "cc",
            false => arch.cross_compiler(),
        };
        let output = Command::new(compiler)
            .arg("-print-file-name=libc.a")
            .output();
        let Ok(output) = output else {
            bail!(
                "there is no {compiler}: install a C compiler for {target} (Debian: {})",
                packages(arch)?
            );
        };
        let library = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        ensure!(
            Path::new(&library).is_absolute(),
            "{compiler} has no static C library for {target} (Debian: {})",
            packages(arch)?
        );
        Ok(())
    }
}

fn packages(arch: Arch) -> Result<&'static str> {
    Ok(match (arch == Arch::of_this_machine()?, arch) {
        (true, _) => "gcc libc6-dev",
        (false, Arch::Arm64) => "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
        (false, Arch::Amd64) => "gcc-x86-64-linux-gnu libc6-dev-amd64-cross",
    })
}

/// Refuses a program that would not start in an image that holds nothing else.
pub(crate) fn check_static(program: &[u8], arch: Arch) -> Result<()> {
    /// `PT_INTERP`: another program loads this one.
    const INTERPRETER: u32 = 3;
    let at = |offset: usize, size: usize| program.get(offset..offset + size);
    let number = |offset: usize, size: usize| -> Option<u64> {
        let bytes = at(offset, size)?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |number, byte| number << 8 | u64::from(*byte)),
        )
    };
    ensure!(
        at(0, 6) == Some(b"\x7fELF\x02\x01"),
        "the program is none for 64-bit Linux"
    );
    ensure!(
        number(18, 2) == Some(u64::from(arch.elf_machine())),
        "the program is none for {}",
        arch.name()
    );
    let header =
        |field: Option<u64>| usize::try_from(field.unwrap_or_default()).unwrap_or_default();
    let (table, size, count) = (
        header(number(32, 8)),
        header(number(54, 2)),
        header(number(56, 2)),
    );
    let is_dynamic = (0..count)
        .any(|index| number(table.saturating_add(index * size), 4) == Some(u64::from(INTERPRETER)));
    ensure!(
        !is_dynamic,
        "the program is linked dynamically: it needs files that the image has not"
    );
    Ok(())
}

/// `cargo metadata` of this workspace.
pub(crate) fn metadata(arguments: &[&str]) -> Result<Value> {
    let output = cargo()
        .args(["metadata", "--locked", "--format-version", "1"])
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .context("running cargo metadata")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_need_a_loader_are_refused() {
        // The test itself is linked dynamically.
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let here = Arch::of_this_machine().unwrap();
        let failed = check_static(&program, here).unwrap_err();
        assert!(failed.to_string().contains("dynamically"), "{failed}");
        let other = [Arch::Amd64, Arch::Arm64]
            .into_iter()
            .find(|arch| *arch != here);
        let failed = check_static(&program, other.unwrap()).unwrap_err();
        assert!(failed.to_string().contains("none for a"), "{failed}");
        let failed = check_static(b"#!/bin/sh", here).unwrap_err();
        assert!(failed.to_string().contains("64-bit"), "{failed}");
    }
}
