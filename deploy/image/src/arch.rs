//! The architectures an image is built for.

use anyhow::{Result, bail};

/// A processor architecture, in the words of each who has one for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arch {
    Amd64,
    Arm64,
}

impl Arch {
    /// By the name that images use.
    pub(crate) fn parse(name: &str) -> Result<Self> {
        match name {
            "amd64" | "x86_64" => Ok(Self::Amd64),
            "arm64" | "aarch64" => Ok(Self::Arm64),
            _ => bail!("architecture {name} is not known: amd64 and arm64 are"),
        }
    }

    /// This machine's.
    pub(crate) fn of_this_machine() -> Result<Self> {
        Self::parse(std::env::consts::ARCH)
    }

    /// The name that images use.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// Rust's target with glibc, which is linked in.
    pub(crate) fn target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// The C compiler and linker for it, on a machine of another architecture.
    pub(crate) fn cross_compiler(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-linux-gnu-gcc",
            Self::Arm64 => "aarch64-linux-gnu-gcc",
        }
    }

    /// `e_machine` of its programs.
    pub(crate) fn elf_machine(self) -> u16 {
        match self {
            Self::Amd64 => 62,
            Self::Arm64 => 183,
        }
    }
}
