//! Which chart was fetched, and what was found beside it.

use std::collections::BTreeMap;

use crate::address::Address;

/// Signatures of one chart that are looked at, of each kind.
pub const MAX_SIGNATURES: usize = 200;

/// A fetched chart. What is vouched for is its digest alone, so that what was checked is what is deployed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The names it goes by: what the bundle asked for, and where it was fetched from.
    pub addresses: Vec<Address>,
    /// How people are told where it was fetched from. Empty where that is the last of the addresses.
    pub shown: String,
    /// SHA-256 of the archive, `sha256:…`.
    pub archive: String,
    /// Digest of the manifest that names it, where it came from a registry.
    pub manifest: Option<String>,
    /// `registry/repository`, where it came from a registry.
    pub repository: Option<String>,
    /// What a provenance file calls it: `name-version.tgz`.
    pub file_name: String,
}

impl Subject {
    /// The digest that signatures in a registry are about.
    pub(crate) fn signed_digest(&self) -> Option<&str> {
        self.manifest.as_deref()
    }
}

/// A signature as `cosign` attaches it: a layer of the image under the tag `sha256-….sig`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// What is signed, a simple signing document.
    pub payload: Vec<u8>,
    /// The layer's annotations, which hold the signature, and certificate and log entry where there are any.
    pub annotations: BTreeMap<String, String>,
}

/// What was found beside a chart. Nothing in it is believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The provenance file: the address with `.prov`, or the layer of that type.
    pub provenance: Option<Vec<u8>>,
    /// Attached signatures.
    pub attached: Vec<Attached>,
    /// Sigstore bundles that refer to the manifest, as JSON.
    pub bundles: Vec<Vec<u8>>,
    /// How many signatures there are besides, at least: more than are looked at, or larger ones.
    pub left_out: usize,
}

impl Evidence {
    /// For errors: what there is, in words.
    pub(crate) fn cosign_in_words(&self) -> String {
        let found = [
            (self.attached.len(), "attached signature"),
            (self.bundles.len(), "signature bundle"),
        ];
        let found = found.into_iter().filter(|(number, _)| *number > 0);
        let found: Vec<String> = found.map(|(number, what)| count(number, what)).collect();
        let found = match found.is_empty() {
            true => "no signature".to_owned(),
            false => found.join(" and "),
        };
        match self.left_out {
            0 => found,
            more => format!(
                "{found}, and at least {more} more than are looked at ({MAX_SIGNATURES} of a kind, a mebibyte each, eight together)"
            ),
        }
    }
}

fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}
