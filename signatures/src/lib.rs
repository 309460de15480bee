//! What vouches for a chart, and the policy that asks for it.
//!
//! A [`Policy`] is read from text, a [`Subject`] says which chart was fetched, [`Evidence`] is what was found beside it: a provenance
//! file, signatures in the registry. [`Policy::demands`] says what a chart needs, [`Demands::check`] whether it has it. Pure: nothing is
//! fetched here, and the only thing asked of the machine is the time.
//!
//! - [`openpgp`] and [`provenance`] mirror Helm's `pkg/provenance` over ProtonMail's go-crypto, stricter where that is lax.
//! - [`cosign`] reads what `cosign sign` writes: simple signing (tags `sha256-….sig`) and Sigstore bundles (referrers). Certificates, logs
//!   and timestamps are checked by the `sigstore-verify` crate.
//!
//! All texts of errors may be shown: keys and signatures are public, and nothing else is quoted.

pub mod cosign;
mod evidence;
pub mod openpgp;
pub mod policy;
pub mod provenance;
mod refusal;

pub use evidence::{Attached, Evidence, MAX_SIGNATURES, Subject};
pub use policy::{Demands, Policy, PolicyError, Rule, Verified};
pub use refusal::{Refusal, Unmet};
