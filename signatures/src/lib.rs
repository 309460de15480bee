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
//! ```
//! use signatures::{Address, Evidence, Policy, Subject};
//!
//! let digest = format!("sha256:{}", "0".repeat(64));
//! let policy = Policy::parse(&format!(
//!     "rules: [{{name: frozen, sources: ['https://charts.example/**'], digests: ['{digest}']}}]"
//! ))?;
//! let mut chart = Subject {
//!     addresses: vec![Address::from(&"https://charts.example/web".parse()?)],
//!     archive: digest,
//!     ..Subject::default()
//! };
//! let demands = policy.demands(&chart, [])?;
//! assert!(demands.check(&chart, &Evidence::default()).is_ok());
//! chart.archive = format!("sha256:{}", "1".repeat(64));
//! let refused = demands.check(&chart, &Evidence::default()).unwrap_err();
//! assert!(refused.to_string().contains("frozen"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! All texts of errors may be shown: keys and signatures are public, and nothing else is quoted.

mod address;
pub mod cosign;
mod evidence;
pub mod openpgp;
mod pattern;
pub mod policy;
pub mod provenance;
mod refusal;

pub use address::Address;
pub use evidence::{Attached, Evidence, MAX_SIGNATURES, Subject};
pub use policy::{Demands, Policy, PolicyError, Rule, Verified};
pub use refusal::{Refusal, Unmet};
