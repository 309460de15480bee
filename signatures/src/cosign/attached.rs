//! Signatures attached to an image as layers, each in an annotation of its own layer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sigstore_verify::types::SignatureBytes;

use crate::evidence::Attached;

const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

/// The signature that stands in the annotations.
pub(super) fn signature_of(attached: &Attached) -> Result<SignatureBytes, String> {
    let text = attached.annotations.get(SIGNATURE);
    let text = text.ok_or_else(|| format!("it has no annotation {SIGNATURE}"))?;
    let bytes = STANDARD
        .decode(text)
        .map_err(|_| format!("annotation {SIGNATURE} is not base64"))?;
    Ok(SignatureBytes::new(bytes))
}
