//! The namespace of an object, and of what it refers to (`filters/namespace`).

use golib::yaml::node::{Kind, Node, tag};

use crate::config::FieldSpec;
use crate::error::{Context as _, Error, Result};
use crate::filters::fieldspec::{self, Create};
use crate::fns::{self, is_nil_or_empty, is_null};
use crate::loader::Build;

/// The subjects of role bindings whose namespace changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subjects {
    NamedDefault,
    ServiceAccounts,
    None,
}

impl Subjects {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        match text {
            "" | "defaultOnly" => Ok(Self::NamedDefault),
            "allServiceAccounts" => Ok(Self::ServiceAccounts),
            "none" => Ok(Self::None),
            other => Err(Error::new(format!(
                "invalid value {} for setRoleBindingSubjects: must be one of \"defaultOnly\", \"none\" or \
                 \"allServiceAccounts\"",
                golib::strconv::quote(other)
            ))),
        }
    }
}

pub(crate) struct Filter<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) specs: &'a [FieldSpec],
    pub(crate) unset_only: bool,
    pub(crate) subjects: Subjects,
}

const CREATE: Create = Create {
    kind: Kind::Scalar,
    tag: tag::STR,
};

impl Filter<'_> {
    pub(crate) fn apply(&self, object: &mut Node, build: &Build<'_>) -> Result<()> {
        let text = |object: &Node, name| {
            fns::field(object, name).map_or(String::new(), |value| value.value.clone())
        };
        let (api_version, kind) = (text(object, "apiVersion"), text(object, "kind"));
        let is_binding = |kind: &str| matches!(kind, "RoleBinding" | "ClusterRoleBinding");
        build.work(self.specs.len() / 4)?;
        let specs: Vec<FieldSpec> = self
            .specs
            .iter()
            .filter(|spec| {
                spec.path != "metadata/namespace"
                    && (api_version == "v1" || spec.path != "metadata/name")
                    && !(is_binding(&kind)
                        && is_binding(&spec.gvk.kind)
                        && spec.path == "subjects/namespace")
            })
            .cloned()
            .collect();
        if !build.api.is_cluster_scoped(&api_version, &kind) {
            let own = [FieldSpec::of("metadata/namespace", true)];
            let create = Create {
                kind: Kind::Scalar,
                tag: "",
            };
            fieldspec::apply_all(&own, Some(create), object, &mut |node| {
                self.set(node, build)
            })?;
        }
        if is_binding(&kind) {
            self.set_subjects(object, build)?;
        }
        fieldspec::apply_all(&specs, Some(CREATE), object, &mut |node| {
            self.set(node, build)
        })
        .map_err(|error| {
            if error.is_wrong_kind() {
                error.context("namespace field specs must target scalar nodes")
            } else {
                error.context("namespace transformation failed")
            }
        })
    }

    fn set(&self, node: &mut Node, build: &Build<'_>) -> Result<()> {
        if self.unset_only
            && !is_nil_or_empty(node)
            && node.kind == Kind::Scalar
            && !fns::value_of(node).is_empty()
        {
            return Ok(());
        }
        build.grow_by(self.namespace.len())?;
        fns::set_scalar(node, Node::tagged(self.namespace, tag::STR))
    }

    fn set_subjects(&self, object: &mut Node, build: &Build<'_>) -> Result<()> {
        let (field, expected, what) = match self.subjects {
            Subjects::None => return Ok(()),
            Subjects::NamedDefault => ("name", "default", "looking up name"),
            Subjects::ServiceAccounts => ("kind", "ServiceAccount", "looking up kind"),
        };
        let Some(subjects) = fns::lookup_mut(object, &["subjects"])? else {
            return Ok(());
        };
        if is_null(subjects) {
            return Ok(());
        }
        let mut visit = |subject: &mut Node| -> Result<()> {
            let what = format!("{what} on (cluster)role binding subject");
            let found = fns::lookup(subject, &[field]).context(&what)?;
            let Some(found) = found.filter(|found| !is_null(found)) else {
                return Ok(());
            };
            fns::expect_kind(found, Kind::Scalar).context(&what)?;
            if found.value != expected {
                return Ok(());
            }
            match fns::lookup_create(subject, &["namespace"], Kind::Scalar)
                .context("setting namespace field on (cluster)role binding subject")?
            {
                Some(namespace) => self.set(namespace, build),
                None => Ok(()),
            }
        };
        fns::expect_kind(subjects, Kind::Sequence)
            .and_then(|()| subjects.content.iter_mut().try_for_each(&mut visit))
            .context("setting namespace on (cluster)role binding subjects")
    }
}
