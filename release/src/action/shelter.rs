//! What the wanted objects live in: the namespaces they are in, the definitions of their kinds.
//!
//! A chart that stops writing such an object (it was moved to `crds/`, or is somebody else's affair
//! by now) does not ask for everything in it to go. Helm deletes it, and with it what the same
//! upgrade has just written, and the release's own records.

use chart::Chart;

use super::install::crd_kinds;
use objects::{Object, Resource};

/// What must not be deleted for the sake of what is wanted.
pub(super) struct Shelter<'a> {
    /// The release's namespace.
    namespace: &'a str,
    wanted: &'a [Object],
    /// Kinds that the chart's `crds/` bring.
    brought: Vec<Resource>,
}

impl<'a> Shelter<'a> {
    pub(super) fn new(namespace: &'a str, wanted: &'a [Object], chart: Option<&Chart>) -> Self {
        Self {
            namespace,
            wanted,
            brought: chart.map(crd_kinds).unwrap_or_default(),
        }
    }

    /// Splits objects that are to go into those that may and those that others live in.
    pub(super) fn spare(&self, objects: Vec<Object>) -> (Vec<Object>, Vec<Object>) {
        objects.into_iter().partition(|object| !self.holds(object))
    }

    fn holds(&self, object: &Object) -> bool {
        if object.is_namespace() {
            let is_here = |one: &Object| one.namespace.as_deref() == Some(&object.name);
            return object.name == self.namespace || self.wanted.iter().any(is_here);
        }
        let is_defined = |kind: &Resource| object.name == format!("{}.{}", kind.plural, kind.group);
        object.is_crd()
            && (self.wanted.iter().any(|one| is_defined(&one.resource))
                || self.brought.iter().any(is_defined))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;
    use serde_json::Value;

    use super::*;

    fn object(group: &str, kind: &str, namespace: Option<&str>, name: &str) -> Object {
        let resource = Resource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            plural: kind.to_lowercase() + "s",
            namespaced: namespace.is_some(),
        };
        Object {
            resource: Arc::new(resource),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            body: Value::Null,
        }
    }

    const CRD: (&str, &str) = ("apiextensions.k8s.io", "CustomResourceDefinition");

    #[rstest]
    #[case::the_releases_namespace(("", "Namespace"), "apps", true)]
    #[case::a_namespace_that_is_used(("", "Namespace"), "other", true)]
    #[case::an_empty_namespace(("", "Namespace"), "empty", false)]
    #[case::a_kind_of_that_name(("example.com", "Namespace"), "apps", false)]
    #[case::a_definition_that_is_used(CRD, "cars.example.com", true)]
    #[case::of_another_group(CRD, "cars.example.org", false)]
    #[case::of_another_kind(CRD, "boats.example.com", false)]
    #[case::anything_else(("", "ConfigMap"), "apps", false)]
    fn what_is_lived_in_stays(
        #[case] (group, kind): (&str, &str),
        #[case] name: &str,
        #[case] expected: bool,
    ) {
        let wanted = [
            object("", "ConfigMap", Some("other"), "a"),
            object("example.com", "Car", Some("apps"), "beetle"),
        ];
        let shelter = Shelter::new("apps", &wanted, None);
        assert_eq!(shelter.holds(&object(group, kind, None, name)), expected);
    }
}
