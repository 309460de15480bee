//! Containers that are retained although the manifest dropped them: the namespaces of desired objects,
//! the definitions of their kinds, and the release's own namespace. Those that other releases are in are known when they are deleted.
//!
//! Deleting one deletes everything in it. A chart that stops writing it (it was moved to `crds/`, or
//! another release writes it now) does not ask for that. Helm deletes it, and with it what the same
//! upgrade has just written, and the release's own records.

use chart::Chart;

use super::install::crd_kinds;
use crate::state::ownership::Operation;
use objects::{Object, Resource};

/// Decides which objects contain desired ones, and must not be deleted.
pub(super) struct Retained<'a> {
    /// The release's namespace.
    namespace: &'a str,
    desired: &'a [Object],
    /// Kinds that the chart's `crds/` define.
    defined: Vec<Resource>,
}

impl<'a> Retained<'a> {
    pub(super) fn new(namespace: &'a str, desired: &'a [Object], chart: Option<&Chart>) -> Self {
        Self {
            namespace,
            desired,
            defined: chart.map(crd_kinds).unwrap_or_default(),
        }
    }

    /// Splits obsolete objects into those to delete and those to retain.
    pub(super) fn split(
        &self,
        objects: Vec<(Object, Operation)>,
    ) -> (Vec<(Object, Operation)>, Vec<Object>) {
        let (obsolete, retained): (Vec<_>, Vec<_>) = objects
            .into_iter()
            .partition(|(object, _)| !self.is_needed(object));
        let retained = retained.into_iter().map(|(object, _)| object);
        (obsolete, retained.collect())
    }

    fn is_needed(&self, object: &Object) -> bool {
        if object.is_namespace() {
            let is_here = |one: &Object| one.namespace.as_deref() == Some(&object.name);
            return object.name == self.namespace || self.desired.iter().any(is_here);
        }
        let is_defined = |kind: &Resource| object.name == kind.definition_name();
        object.is_crd()
            && (self.desired.iter().any(|one| is_defined(&one.resource))
                || self.defined.iter().any(is_defined))
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
    fn containers_of_desired_objects_are_retained(
        #[case] (group, kind): (&str, &str),
        #[case] name: &str,
        #[case] expected: bool,
    ) {
        let desired = [
            object("", "ConfigMap", Some("other"), "a"),
            object("example.com", "Car", Some("apps"), "beetle"),
        ];
        let retained = Retained::new("apps", &desired, None);
        assert_eq!(
            retained.is_needed(&object(group, kind, None, name)),
            expected
        );
    }
}
