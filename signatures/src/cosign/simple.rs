//! Simple signing: a document that names an image, with the signature beside it.

use golib::glob::Glob;
use serde::Deserialize;

const TYPE: &str = "cosign container image signature";

#[derive(Deserialize)]
struct Document {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    identity: Identity,
    image: Image,
    r#type: String,
}

#[derive(Deserialize)]
struct Identity {
    #[serde(rename = "docker-reference")]
    docker_reference: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    docker_manifest_digest: String,
}

/// Whether a document whose signature is good is about this manifest, in this repository or one of `signed_as`.
pub(super) fn claims(
    payload: &[u8],
    digest: &str,
    repository: &str,
    signed_as: &[Glob],
) -> Result<(), String> {
    let document: Document = serde_json::from_slice(payload)
        .map_err(|error| format!("what is signed is no simple signing document: {error}"))?;
    let critical = document.critical;
    if critical.r#type != TYPE {
        return Err(format!("what is signed is a {:?}", critical.r#type));
    }
    let signed = critical.image.docker_manifest_digest;
    if signed != digest {
        return Err(format!("it is about another digest, {signed:?}"));
    }
    let signed = repository_of(&critical.identity.docker_reference);
    let is_same = match signed_as {
        [] => signed == repository_of(repository),
        patterns => patterns.iter().any(|pattern| pattern.matches(&signed)),
    };
    match is_same {
        true => Ok(()),
        false => Err(format!("it is about another repository, {signed:?}")),
    }
}

/// A reference without tag and digest, with one name for Docker's registry.
fn repository_of(reference: &str) -> String {
    let reference = reference.split('@').next().unwrap_or_default();
    let path_begins = reference.find('/').unwrap_or_default();
    let end = reference[path_begins..]
        .rfind(':')
        .map_or(reference.len(), |at| path_begins + at);
    let reference = &reference[..end];
    let (host, path) = reference.split_once('/').unwrap_or(("", reference));
    let host = match host.to_ascii_lowercase().as_str() {
        "index.docker.io" | "registry-1.docker.io" => "docker.io".to_owned(),
        host => host.to_owned(),
    };
    format!("{host}/{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_repository() {
        for (reference, expected) in [
            ("r.example:5000/a/b", "r.example:5000/a/b"),
            ("R.example/a/b:1.0", "r.example/a/b"),
            ("r.example/a@sha256:00", "r.example/a"),
            ("index.docker.io/a/b", "docker.io/a/b"),
        ] {
            assert_eq!(repository_of(reference), expected);
        }
    }
}
