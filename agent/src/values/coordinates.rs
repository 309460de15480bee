//! `${ }` in what names a release: its chart's version, its own name, its namespace.
//!
//! Not upstream's: Fleet's controller fills in values alone. Cluster API's HelmChartProxy has it. A release name with
//! `${` is refused by the CRD, so it stands in an annotation.

use templating::{Host, Reads};

use super::cluster::ClusterFacts;
use super::template::{OPENING, TemplateError, Templates, text_reads};
use crate::api::{ANNOTATION_RELEASE_NAME, BundleDeployment};

/// Whether any coordinate of the bundle is a template.
pub fn has_templates(bundle: &BundleDeployment) -> bool {
    bundle.switch(ANNOTATION_RELEASE_NAME).is_some()
        || texts(&mut bundle.clone())
            .iter()
            .any(|(_, text)| text.contains(OPENING))
}

/// The bundle with its coordinates filled in, and the facts that they read.
///
/// # Errors
/// [`TemplateError`]; the template is named for the field.
pub fn coordinates(
    bundle: &BundleDeployment,
    facts: &ClusterFacts,
    host: &dyn Host,
) -> Result<BundleDeployment, TemplateError> {
    coordinates_with(&Templates::new(facts, host), bundle)
}

/// [`coordinates`], with templates that share their limits with others of the bundle.
pub(super) fn coordinates_with(
    templates: &Templates<'_>,
    bundle: &BundleDeployment,
) -> Result<BundleDeployment, TemplateError> {
    let mut filled = with_release_name(bundle);
    for (field, text) in texts(&mut filled) {
        if text.contains(OPENING) {
            *text = templates.text(field, text)?.trim().to_owned();
        }
    }
    Ok(filled)
}

/// The facts that [`coordinates`] reads.
pub(super) fn reads(bundle: &BundleDeployment) -> Reads {
    let mut reads = Reads::default();
    for (_, text) in texts(&mut with_release_name(bundle)) {
        reads.extend(text_reads(text));
    }
    reads
}

fn with_release_name(bundle: &BundleDeployment) -> BundleDeployment {
    let mut bundle = bundle.clone();
    if let Some(name) = bundle.switch(ANNOTATION_RELEASE_NAME) {
        let name = name.to_owned();
        let helm = bundle.spec.options.helm.get_or_insert_default();
        helm.release_name = name;
    }
    bundle
}

/// The fields, by their paths in the spec.
fn texts(bundle: &mut BundleDeployment) -> Vec<(&'static str, &mut String)> {
    let spec = &mut bundle.spec;
    let mut fields = vec![
        ("options.namespace", &mut spec.options.target_namespace),
        (
            "options.defaultNamespace",
            &mut spec.options.default_namespace,
        ),
    ];
    if let Some(helm) = &mut spec.options.helm {
        fields.push(("options.helm.version", &mut helm.version));
        fields.push(("options.helm.releaseName", &mut helm.release_name));
    }
    fields
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use templating::SystemHost;

    use super::*;

    fn bundle(value: serde_json::Value) -> BundleDeployment {
        serde_json::from_value(value).unwrap()
    }

    fn facts() -> ClusterFacts {
        ClusterFacts::from_cluster(&json!({
            "metadata": {"name": "c1", "labels": {"calico": "3.32.1"}},
        }))
    }

    #[test]
    fn every_coordinate_is_filled_in() {
        let bundle = bundle(json!({
            "metadata": {"annotations": {ANNOTATION_RELEASE_NAME: "calico-${ .ClusterName }"}},
            "spec": {"options": {
                "namespace": "net-${ .ClusterName }", "defaultNamespace": "plain",
                "helm": {"version": "v${ .ClusterLabels.calico }"},
            }},
        }));
        assert!(has_templates(&bundle));
        let filled = coordinates(&bundle, &facts(), &SystemHost).unwrap();
        let options = &filled.spec.options;
        let helm = options.helm.as_ref().unwrap();
        assert_eq!(options.release_namespace(), "net-c1");
        assert_eq!(options.default_namespace, "plain");
        assert_eq!(
            (&*helm.version, &*helm.release_name),
            ("v3.32.1", "calico-c1")
        );
        let paths = [vec!["ClusterName"], vec!["ClusterLabels", "calico"]]
            .map(|path| path.into_iter().map(str::to_owned).collect());
        assert_eq!(reads(&bundle), Reads::Paths(paths.into()));
    }

    #[test]
    fn errors_name_the_field() {
        let bundle =
            bundle(json!({"spec": {"options": {"helm": {"version": "${ .ClusterLabels.x }"}}}}));
        let failed = coordinates(&bundle, &facts(), &SystemHost).unwrap_err();
        assert!(
            failed.to_string().contains("options.helm.version:1:"),
            "{failed}"
        );
        assert!(!has_templates(&BundleDeployment::default()));
    }
}
