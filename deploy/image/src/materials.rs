//! The bill of materials: what is linked into the program, as CycloneDX.
//!
//! Made from `cargo metadata` and the checksums of `Cargo.lock`: every crate that the agent is built of for this target, tests and
//! build scripts left out, the certificate authorities and the C library.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::arch::Arch;
use crate::archive::created;
use crate::build::{Sources, metadata};

/// The crate whose data the image holds as a file.
const AUTHORITIES: &str = "webpki-root-certs";

/// The bill of an image with this digest, as JSON text.
pub(crate) fn of(sources: &Sources, arch: Arch, digest: &str) -> Result<String> {
    let metadata = metadata(&["--filter-platform", arch.target()])?;
    let lock = std::fs::read_to_string(sources.root.join("Cargo.lock"))?;
    let bill = bill(
        &metadata,
        &checksums(&lock),
        &sources.version,
        digest,
        c_library().as_deref(),
    )?;
    Ok(format!("{}\n", serde_json::to_string_pretty(&bill)?))
}

fn bill(
    metadata: &Value,
    checksums: &BTreeMap<(String, String), String>,
    version: &str,
    digest: &str,
    c_library: Option<&str>,
) -> Result<Value> {
    let packages: BTreeMap<&str, &Value> = list(&metadata["packages"])
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let linked: BTreeMap<&str, Vec<&str>> = list(&metadata["resolve"]["nodes"])
        .filter_map(|node| Some((node["id"].as_str()?, linked_by(node))))
        .collect();
    let named = |name: &str| {
        let mut all = packages.values();
        let package = all.find(|package| package["name"] == name);
        package.and_then(|package| package["id"].as_str())
    };
    let agent = named("agent").context("the workspace has no agent")?;
    let mut seen = BTreeSet::from([agent]);
    let mut open = vec![agent];
    open.extend(named(AUTHORITIES).filter(|id| seen.insert(id)));
    while let Some(id) = open.pop() {
        let next = linked.get(id).into_iter().flatten();
        open.extend(next.copied().filter(|id| seen.insert(id)));
    }
    let mut components = Vec::new();
    let mut edges = Vec::new();
    for id in &seen {
        let package = packages.get(id).context("a package of the graph")?;
        if *id != agent {
            components.push(component(package, checksums));
        }
        let used = linked.get(id).into_iter().flatten();
        let used: Vec<_> = used
            .filter_map(|id| packages.get(id))
            .map(|used| purl(used))
            .collect();
        edges.push(json!({ "ref": purl(package), "dependsOn": used }));
    }
    if let Some(version) = c_library {
        components.push(json!({
            "type": "library", "bom-ref": "pkg:generic/glibc", "name": "glibc", "version": version,
            "purl": format!("pkg:generic/glibc@{version}"),
            "licenses": [{ "expression": "LGPL-2.1-or-later" }],
        }));
    }
    let hash = digest.trim_start_matches("sha256:");
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": format!("urn:uuid:{}", uuid(hash)),
        "version": 1,
        "metadata": {
            "timestamp": created()?,
            "component": {
                "type": "container",
                "bom-ref": purl(packages.get(agent).context("the agent")?),
                "name": "fleetagent",
                "version": version,
                "hashes": [{ "alg": "SHA-256", "content": hash }],
                "licenses": [{ "expression": "Apache-2.0" }],
            },
        },
        "components": components,
        "dependencies": edges,
    }))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// What a crate is linked with: neither what its tests nor what its build script needs.
fn linked_by(node: &Value) -> Vec<&str> {
    let is_linked =
        |dependency: &&Value| list(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null());
    list(&node["deps"])
        .filter(is_linked)
        .filter_map(|dependency| dependency["pkg"].as_str())
        .collect()
}

fn component(package: &Value, checksums: &BTreeMap<(String, String), String>) -> Value {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let mut component = json!({
        "type": "library",
        "bom-ref": purl(package),
        "name": text("name"),
        "version": text("version"),
        "purl": purl(package),
    });
    let license = text("license").replace('/', " OR ");
    if !license.is_empty() {
        component["licenses"] = json!([{ "expression": license }]);
    }
    if let Some(checksum) = checksums.get(&(text("name"), text("version"))) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    if text("name") == AUTHORITIES {
        component["description"] = json!("its certificates are /etc/ssl/certs/ca-certificates.crt");
    }
    component
}

fn purl(package: &Value) -> String {
    let text = |key: &str| package[key].as_str().unwrap_or_default();
    format!("pkg:cargo/{}@{}", text("name"), text("version"))
}

/// The checksums of a lock file, which cargo writes one key a line.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let mut sums = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let text = |key: &str| {
            let mut lines = package.lines();
            let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
            value.map(|value| value.trim_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(sum)) =
            (text("name"), text("version"), text("checksum"))
        {
            sums.insert((name, version), sum);
        }
    }
    sums
}

/// A UUID (version 8) that names this image.
fn uuid(hash: &str) -> String {
    let digit = |index: usize| hash.get(index..=index).unwrap_or("0");
    let text: String = (0..32)
        .map(|index| match index {
            12 => "8",
            16 => "a",
            _ => digit(index),
        })
        .collect();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| text[part].to_owned());
    parts.join("-")
}

/// The version of the C library that is linked in; this machine's, or none where it cannot be asked.
fn c_library() -> Option<String> {
    let output = Command::new("getconf")
        .arg("GNU_LIBC_VERSION")
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().strip_prefix("glibc ")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The real workspace: what is linked is there with its checksum and license, what only tests use is not.
    #[test]
    fn the_bill_of_materials_lists_the_linked_crates() {
        let sources = Sources::find().unwrap();
        let text = of(&sources, Arch::Amd64, &format!("sha256:{:064}", 7)).unwrap();
        let bill: Value = serde_json::from_str(&text).unwrap();
        let components: BTreeMap<_, _> = list(&bill["components"])
            .map(|component| (component["name"].as_str().unwrap(), component))
            .collect();
        for name in [
            "kube-client",
            "rustls",
            "aws-lc-sys",
            "templating",
            AUTHORITIES,
        ] {
            assert!(components.contains_key(name), "{name}");
        }
        for name in ["proptest", "cc", "testbed", "agent"] {
            assert!(!components.contains_key(name), "{name}");
        }
        let rustls = components["rustls"];
        assert_eq!(
            rustls["hashes"][0]["content"].as_str().map(str::len),
            Some(64)
        );
        assert!(
            rustls["licenses"][0]["expression"]
                .as_str()
                .unwrap()
                .contains("MIT")
        );
        let names: BTreeSet<_> = list(&bill["dependencies"])
            .map(|edge| &edge["ref"])
            .map(Value::to_string)
            .collect();
        for edge in list(&bill["dependencies"]) {
            assert!(
                list(&edge["dependsOn"]).all(|used| names.contains(&used.to_string())),
                "{edge}"
            );
        }
        assert_eq!(
            bill["serialNumber"],
            "urn:uuid:00000000-0000-8000-a000-000000000000"
        );
    }
}
