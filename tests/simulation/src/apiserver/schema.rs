//! What the merge has to know of the kinds: which lists have keys, and which maps are one value.
//!
//! A small table of those kinds that bundles in the simulation have, from the API's `x-kubernetes-list-type` and
//! `x-kubernetes-map-type`. Lists of other kinds are one value.

/// How a list merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    /// As one value.
    Atomic,
    /// By its items.
    Set,
    /// By these keys of its items, with what stands for one that is missing.
    Keyed(&'static [(&'static str, Option<&'static str>)]),
}

/// A place in an object of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schema<'a> {
    kind: Kind,
    /// The field and the one around it.
    field: &'a str,
    parent: &'a str,
    depth: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Service,
    BuiltIn,
    Custom,
}

/// Fields of metadata that no manager owns.
pub(crate) const SERVERS: [&str; 10] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];

const NAME: List = List::Keyed(&[("name", None)]);

impl<'a> Schema<'a> {
    /// The top of an object.
    pub(crate) fn of(group: &str, kind: &str) -> Self {
        let kind = match (group, kind) {
            ("", "Service") => Kind::Service,
            (group, _)
                if group.is_empty() || !group.contains('.') || group.ends_with(".k8s.io") =>
            {
                Kind::BuiltIn
            }
            _ => Kind::Custom,
        };
        Self {
            kind,
            field: "",
            parent: "",
            depth: 0,
        }
    }

    pub(crate) fn below(self, field: &'a str) -> Self {
        Self {
            field,
            parent: self.field,
            depth: self.depth + 1,
            ..self
        }
    }

    /// The items of the list at this place.
    pub(crate) fn item(self) -> Self {
        Self {
            field: "",
            parent: self.field,
            depth: self.depth + 1,
            ..self
        }
    }

    /// Whether a field here may have owners: identity, and what the server alone writes, have none.
    pub(crate) fn has_owners(self, field: &str) -> bool {
        match (self.depth, self.field) {
            (0, _) => !matches!(field, "apiVersion" | "kind"),
            (1, "metadata") => !SERVERS.contains(&field),
            _ => true,
        }
    }

    fn is_metadata(self) -> bool {
        self.parent == "metadata" && self.depth == 2
    }

    pub(crate) fn list(self) -> List {
        if self.is_metadata() {
            return match self.field {
                "ownerReferences" => List::Keyed(&[("uid", None)]),
                "finalizers" => List::Set,
                _ => List::Atomic,
            };
        }
        match (self.kind, self.field) {
            (Kind::Custom, _) => List::Atomic,
            (Kind::Service, "ports") => List::Keyed(&[("port", None), ("protocol", Some("TCP"))]),
            (_, "ports") => List::Keyed(&[("containerPort", None), ("protocol", Some("TCP"))]),
            (_, "volumeMounts") => List::Keyed(&[("mountPath", None)]),
            (_, "conditions") => List::Keyed(&[("type", None)]),
            (
                _,
                "containers" | "initContainers" | "env" | "volumes" | "imagePullSecrets"
                | "secrets",
            ) => NAME,
            _ => List::Atomic,
        }
    }

    pub(crate) fn is_atomic(self) -> bool {
        match self.kind {
            Kind::Custom => false,
            _ => matches!(
                self.field,
                "selector" | "nodeSelector" | "roleRef" | "fieldsV1" | "involvedObject"
            ),
        }
    }
}
