//! To whom an object belongs: the three marks Helm puts on everything it writes. Pure; [`check_all`]
//! asks the cluster.
//!
//! [`check_all`]: super::check::check_all
//!
//! Mirrors `pkg/action/validate.go`.

use objects::Object;
use serde_json::{Map, Value};

use super::error::ApiError;

const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
const MANAGED_BY_HELM: &str = "Helm";
const RELEASE_NAME_ANNOTATION: &str = "meta.helm.sh/release-name";
const RELEASE_NAMESPACE_ANNOTATION: &str = "meta.helm.sh/release-namespace";
const RESOURCE_POLICY_ANNOTATION: &str = "helm.sh/resource-policy";

/// A release, as the owner of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Name of the release.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

/// An object that is there already belongs to somebody else. The texts are Helm's.
#[derive(Debug, thiserror::Error)]
pub enum OwnershipError {
    /// It does not carry this release's marks.
    #[error(
        "{object} exists and cannot be imported into the current release: invalid ownership \
         metadata; {}", .problems.join("; ")
    )]
    Foreign {
        /// Which object.
        object: String,
        /// The marks that are missing or different.
        problems: Vec<String>,
    },
    /// It could not be looked at.
    #[error("could not get information about the resource {object}")]
    Unknown {
        /// Which object.
        object: String,
        /// Why.
        source: ApiError,
    },
}

impl OwnershipError {
    /// Whether trying again can help without anybody changing anything.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Foreign { .. } => false,
            Self::Unknown { source, .. } => source.is_retryable(),
        }
    }
}

/// How strictly an object that is there already is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnershipRule {
    /// It must carry all three marks: Helm's rule for installs.
    MustBeOurs,
    /// It must not carry the marks of another release. The Go agent takes any object on upgrades;
    /// taking one from another release is where that hurts.
    MustNotBeAnothers,
}

impl Owner {
    /// The release `name` of `namespace`.
    pub fn new(name: impl Into<String>, namespace: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            namespace: namespace.into(),
        }
    }

    /// What keeps `live` from being this release's, in Helm's words; empty if it is.
    pub fn problems(&self, live: &Value) -> Vec<String> {
        let marks = [
            ("label", "labels", MANAGED_BY_LABEL, MANAGED_BY_HELM),
            (
                "annotation",
                "annotations",
                RELEASE_NAME_ANNOTATION,
                self.name.as_str(),
            ),
            (
                "annotation",
                "annotations",
                RELEASE_NAMESPACE_ANNOTATION,
                self.namespace.as_str(),
            ),
        ];
        marks
            .into_iter()
            .filter_map(|(sort, field, key, desired)| match mark(live, field, key) {
                Some(found) if found == desired => None,
                Some(found) => Some(format!(
                    "{sort} validation error: key {key:?} must equal {desired:?}: current value is \
                     {found:?}"
                )),
                None => Some(format!(
                    "{sort} validation error: missing key {key:?}: must be set to {desired:?}"
                )),
            })
            .collect()
    }

    /// Whether `live` carries all of this release's marks.
    pub fn owns(&self, live: &Value) -> bool {
        self.problems(live).is_empty()
    }

    /// The release whose marks `live` carries, if any.
    pub fn of(live: &Value) -> Option<Self> {
        Some(Self {
            name: mark(live, "annotations", RELEASE_NAME_ANNOTATION)?.to_owned(),
            namespace: mark(live, "annotations", RELEASE_NAMESPACE_ANNOTATION)?.to_owned(),
        })
    }

    /// Puts this release's marks on an object, over whatever the chart wrote.
    pub fn mark(&self, body: &mut Value) {
        let Some(body) = body.as_object_mut() else {
            return;
        };
        let metadata = table(body, "metadata");
        table(metadata, "labels").insert(MANAGED_BY_LABEL.to_owned(), MANAGED_BY_HELM.into());
        let annotations = table(metadata, "annotations");
        annotations.insert(RELEASE_NAME_ANNOTATION.to_owned(), self.name.clone().into());
        annotations.insert(
            RELEASE_NAMESPACE_ANNOTATION.to_owned(),
            self.namespace.clone().into(),
        );
    }

    pub(super) fn check(
        &self,
        claim: OwnershipRule,
        object: &Object,
        live: &Value,
    ) -> Result<(), OwnershipError> {
        let is_refused = match claim {
            OwnershipRule::MustBeOurs => !self.owns(live),
            OwnershipRule::MustNotBeAnothers => Self::of(live).is_some_and(|owner| owner != *self),
        };
        if !is_refused {
            return Ok(());
        }
        let object = object.describe_for_people();
        Err(OwnershipError::Foreign {
            object,
            problems: self.problems(live),
        })
    }
}

/// The table under `name`; whatever else stands there is replaced, as nothing else is valid.
fn table<'v>(map: &'v mut Map<String, Value>, name: &str) -> &'v mut Map<String, Value> {
    let entry = map.entry(name).or_insert(Value::Null);
    if !entry.is_object() {
        *entry = Value::Object(Map::new());
    }
    entry.as_object_mut().expect("it was made an object above")
}

fn mark<'v>(live: &'v Value, field: &str, key: &str) -> Option<&'v str> {
    live.get("metadata")?.get(field)?.get(key)?.as_str()
}

/// Whether the live object asks to be kept when its release lets go of it.
pub(crate) fn is_kept(live: &Value) -> bool {
    mark(live, "annotations", RESOURCE_POLICY_ANNOTATION) == Some("keep")
}

/// The object's resource policy as a stored manifest has it, trimmed and in lower case.
pub(crate) fn stored_policy(body: &Value) -> Option<String> {
    mark(body, "annotations", RESOURCE_POLICY_ANNOTATION).map(|policy| policy.trim().to_lowercase())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owner() -> Owner {
        Owner::new("web", "shop")
    }

    #[test]
    fn marks_are_put_over_the_charts() {
        let mut body =
            json!({"metadata": {"labels": {MANAGED_BY_LABEL: "me"}, "annotations": null}});
        owner().mark(&mut body);
        assert!(owner().owns(&body));
        assert_eq!(Owner::of(&body), Some(owner()));
    }

    #[test]
    fn a_foreign_object_is_told_in_helms_words() {
        let live = json!({"metadata": {"annotations": {RELEASE_NAME_ANNOTATION: "other"}}});
        assert_eq!(
            owner().problems(&live).join("; "),
            "label validation error: missing key \"app.kubernetes.io/managed-by\": must be set to \
             \"Helm\"; annotation validation error: key \"meta.helm.sh/release-name\" must equal \
             \"web\": current value is \"other\"; annotation validation error: missing key \
             \"meta.helm.sh/release-namespace\": must be set to \"shop\""
        );
    }
}
