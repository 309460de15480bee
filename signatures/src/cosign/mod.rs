//! What `cosign sign` leaves in a registry beside a chart's manifest, and whether it counts.
//!
//! Mirrors `VerifyImageSignatures` of cosign's `pkg/cosign/verify.go`. Stricter: a simple signing document must name the repository
//! that the chart was pulled from (or one that the policy allows), and of the bundles only those that say "signed" count, not any other
//! statement about the chart.

mod attached;
mod bundle;
mod field_problem;
mod key;
mod keyless;
mod simple;

use std::fmt;

use golib::glob::Glob;

pub use key::PublicKey;
pub use keyless::Keyless;

use crate::evidence::{Attached, Evidence, MAX_SIGNATURES};

/// Problems that an error tells; the rest are counted.
const MAX_TOLD: usize = 3;

/// Whose signature counts.
#[derive(Clone, Debug)]
pub struct Signer {
    kind: Kind,
    /// Names of repositories under which charts are signed, where that is not the one they are pulled from.
    signed_as: Vec<Glob>,
}

#[derive(Clone, Debug)]
enum Kind {
    Key(PublicKey),
    Keyless(Box<Keyless>),
}

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Key(key) => key.fmt(f),
            Kind::Keyless(keyless) => keyless.fmt(f),
        }
    }
}

impl Signer {
    pub(crate) fn key(key: PublicKey, signed_as: Vec<Glob>) -> Self {
        Self {
            kind: Kind::Key(key),
            signed_as,
        }
    }

    pub(crate) fn keyless(keyless: Keyless, signed_as: Vec<Glob>) -> Self {
        Self {
            kind: Kind::Keyless(Box::new(keyless)),
            signed_as,
        }
    }

    /// Whether one of the signatures is this signer's over the manifest `digest`, pulled from `repository`; how it was signed.
    ///
    /// # Errors
    /// Why each one does not count.
    pub(crate) fn check(
        &self,
        digest: &str,
        repository: &str,
        evidence: &Evidence,
    ) -> Result<String, Vec<String>> {
        let mut problems = Vec::new();
        let bundles = evidence.bundles.iter().take(MAX_SIGNATURES);
        for bundle in bundles {
            match self.check_bundle(bundle, digest) {
                Ok(how) => return Ok(how),
                Err(problem) => problems.push(format!("bundle: {problem}")),
            }
        }
        let attached = evidence.attached.iter().take(MAX_SIGNATURES);
        for attached in attached {
            match self.check_attached(attached, digest, repository) {
                Ok(how) => return Ok(how),
                Err(problem) => problems.push(format!("attached signature: {problem}")),
            }
        }
        problems.dedup();
        if problems.len() > MAX_TOLD {
            let more = problems.len() - MAX_TOLD;
            problems.truncate(MAX_TOLD);
            problems.push(format!("and {more} more that do not count"));
        }
        Err(problems)
    }

    fn check_attached(
        &self,
        attached: &Attached,
        digest: &str,
        repository: &str,
    ) -> Result<String, String> {
        let by = match &self.kind {
            Kind::Key(key) => key.check_attached(attached)?,
            Kind::Keyless(keyless) => keyless.check_attached(attached)?,
        };
        simple::claims(&attached.payload, digest, repository, &self.signed_as)?;
        Ok(format!("{by}, attached"))
    }

    fn check_bundle(&self, json: &[u8], digest: &str) -> Result<String, String> {
        let signed = bundle::Signed::parse(json)?;
        let by = match &self.kind {
            Kind::Key(key) => key.check_bundle(&signed, digest)?,
            Kind::Keyless(keyless) => keyless.check_bundle(&signed, digest)?,
        };
        signed.claims(digest)?;
        Ok(format!("{by}, as a bundle"))
    }
}
