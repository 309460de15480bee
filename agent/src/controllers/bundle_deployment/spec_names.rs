//! Names of other objects that a BundleDeployment holds: what cannot be a name is refused before it becomes part of a request's path or of
//! the ledger. No I/O.
//!
//! client-go checks each request so, and these are its words (`rest.Request.Name`, `Namespace`); kube makes paths of whatever it is
//! given.

use crate::api::BundleDeploymentSpec;

/// Longest namespace.
const MAX_LABEL: usize = 63;

/// Checks every name in a spec that ends up in a request or in the ledger.
///
/// # Errors
/// The text of the Deployed condition.
pub fn check(spec: &BundleDeploymentSpec) -> Result<(), String> {
    let options = &spec.options;
    namespace(options.release_namespace())?;
    resource(&options.service_account)?;
    resource(spec.manifest_id())?;
    for copy in &options.downstream_resources {
        resource(&copy.name)?;
    }
    if let Some(chart) = &spec.helm_chart_options {
        resource(&chart.secret_name)?;
    }
    let helm = options.helm.iter();
    for source in helm.flat_map(|helm| &helm.values_from) {
        let references = [&source.config_map_key_ref, &source.secret_key_ref];
        for reference in references.into_iter().flatten() {
            resource(&reference.name)?;
            if !reference.namespace.is_empty() {
                namespace(&reference.namespace)?;
            }
        }
    }
    Ok(())
}

/// An empty name means that there is none, or is an error of whoever needs it.
fn resource(name: &str) -> Result<(), String> {
    match problem(name) {
        Some(problem) => Err(format!("invalid resource name {name:?}: [{problem}]")),
        None => Ok(()),
    }
}

fn namespace(name: &str) -> Result<(), String> {
    if let Some(problem) = problem(name) {
        return Err(format!("invalid namespace {name:?}: [{problem}]"));
    }
    let bytes = name.as_bytes();
    let is_edge = |byte: Option<&u8>| {
        byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    let is_label = is_edge(bytes.first())
        && is_edge(bytes.last())
        && bytes
            .iter()
            .all(|byte| *byte == b'-' || is_edge(Some(byte)));
    if is_label && bytes.len() <= MAX_LABEL {
        return Ok(());
    }
    // The API server's words.
    Err(format!(
        "Namespace {name:?} is invalid: metadata.name: Invalid value: {name:?}: a lowercase RFC 1123 label must consist of lower case \
         alphanumeric characters or '-', and must start and end with an alphanumeric character, and be no longer than {MAX_LABEL}"
    ))
}

/// Why this cannot be one segment of a path; the characters beyond client-go's are those it escapes and kube does not.
fn problem(name: &str) -> Option<String> {
    if matches!(name, "." | "..") {
        return Some(format!("may not be '{name}'"));
    }
    let is_bad = |char: &char| "/%?#".contains(*char) || char.is_whitespace() || char.is_control();
    let bad = name.chars().find(is_bad)?;
    Some(format!("may not contain {bad:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    #[rstest]
    #[case::usual(json!({
        "deploymentID": "s-1234:5678",
        "options": {
            "defaultNamespace": "apps", "serviceAccount": "tenant.a", "downstreamResources": [{"kind": "Secret", "name": "a"}],
            "helm": {"valuesFrom": [{"secretKeyRef": {"name": "a", "key": "b"}}]},
        },
    }), "")]
    #[case::parent_directory(json!({"options": {"namespace": ".."}}), "invalid namespace \"..\": [may not be '..']")]
    #[case::path(json!({"options": {"namespace": "a/b"}}), "invalid namespace \"a/b\": [may not contain '/']")]
    #[case::upper_case(json!({"options": {"defaultNamespace": "Apps"}}), "Namespace \"Apps\" is invalid")]
    #[case::account(json!({"options": {"serviceAccount": "../a"}}), "invalid resource name \"../a\": [may not contain '/']")]
    #[case::query(json!({"options": {"serviceAccount": "a?watch=true"}}), "may not contain '?'")]
    #[case::content(json!({"deploymentID": "../secrets:1"}), "invalid resource name \"../secrets\"")]
    #[case::copy(json!({"options": {"downstreamResources": [{"kind": "Secret", "name": "a\nb"}]}}), "may not contain '\\n'")]
    #[case::values(
        json!({"options": {"helm": {"valuesFrom": [{"configMapKeyRef": {"name": "a", "namespace": "/", "key": "b"}}]}}}),
        "invalid namespace \"/\""
    )]
    #[case::credentials(json!({"helmChartOptions": {"helmOpSecretName": "%2e"}}), "may not contain '%'")]
    fn names_that_lead_elsewhere_are_refused(#[case] spec: Value, #[case] expected: &str) {
        let spec: BundleDeploymentSpec = serde_json::from_value(spec).unwrap();
        match check(&spec) {
            Ok(()) => assert_eq!(expected, ""),
            Err(message) => assert!(
                !expected.is_empty() && message.contains(expected),
                "{message}"
            ),
        }
    }
}
