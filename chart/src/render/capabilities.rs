//! `.Capabilities` as templates see it: Go structs, one of them with methods.

use std::cell::OnceCell;
use std::sync::Arc;

use templating::Method;
use templating::value::ListType;
use templating::{Error, Kind, List, Object, Operand, State, Str, Type, Value};

use crate::capabilities::{Capabilities, HelmVersion, KubeVersion};

/// `common.VersionSet`
static VERSION_SET: ListType = ListType {
    name: "common.VersionSet",
    element: Type::String,
    named: true,
    methods: &[Method {
        name: "Has",
        params: &[Type::String],
        call: has,
    }],
};

fn has(_: &mut State<'_>, value: &Value, args: &mut [Operand]) -> Result<Operand, Error> {
    let expected = args.first().and_then(|arg| arg.value.as_str());
    let versions = value.as_list().map_or(&[][..], List::as_slice);
    let found = versions.iter().any(|version| version.as_str() == expected);
    Ok(Operand::exact(found.into()))
}

/// The value of `.Capabilities`.
pub(super) fn object(capabilities: &Capabilities) -> Value {
    Value::object(CapabilitiesObject {
        capabilities: capabilities.clone(),
        parts: OnceCell::new(),
    })
}

/// `*common.Capabilities`
struct CapabilitiesObject {
    capabilities: Capabilities,
    /// Made for the first template that asks.
    parts: OnceCell<Parts>,
}

struct Parts {
    kube_version: Value,
    api_versions: List,
    helm_version: Value,
}

impl CapabilitiesObject {
    fn parts(&self) -> &Parts {
        self.parts.get_or_init(|| {
            let capabilities = &self.capabilities;
            let versions = capabilities.api_versions.iter();
            let versions = versions.map(|version| version.as_str().into());
            let helm_version = Arc::new(capabilities.helm_version.clone());
            Parts {
                kube_version: Value::object(KubeVersionObject(capabilities.kube_version.clone())),
                api_versions: List::typed(&VERSION_SET, versions.collect()),
                helm_version: Value::object(HelmVersionObject(helm_version)),
            }
        })
    }
}

impl Object for CapabilitiesObject {
    fn type_name(&self) -> &'static str {
        "*common.Capabilities"
    }

    fn kind(&self) -> Kind {
        Kind::Ptr
    }

    fn field(&self, name: &str) -> Option<Value> {
        let parts = self.parts();
        Some(match name {
            "KubeVersion" => parts.kube_version.clone(),
            "APIVersions" => parts.api_versions.clone().into(),
            "HelmVersion" => parts.helm_version.clone(),
            _ => return None,
        })
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        ["KubeVersion", "APIVersions", "HelmVersion"]
            .into_iter()
            .filter_map(|name| Some((name, self.field(name)?)))
            .collect()
    }

    fn json_fields(&self) -> Option<Vec<(&'static str, Value)>> {
        Some(self.fields())
    }

    fn copied(&self) -> Option<Value> {
        let mut capabilities = self.capabilities.clone();
        capabilities.kube_version.normalized.clear();
        Some(object(&capabilities))
    }

    fn methods(&self) -> &'static [Method] {
        &[Method {
            name: "Copy",
            params: &[],
            call: copy,
        }]
    }

    /// Go compares the pointers; `Copy` gives another one.
    fn equals(&self, other: &dyn Object) -> bool {
        let same = |other: &Self| std::ptr::eq(self, other);
        other.downcast_ref::<Self>().is_some_and(same)
    }
}

fn copy(_: &mut State<'_>, value: &Value, _: &mut [Operand]) -> Result<Operand, Error> {
    let Value::Object(original) = value else {
        return Ok(Operand::exact(value.clone()));
    };
    let original = original.downcast_ref::<CapabilitiesObject>();
    Ok(Operand::exact(match original {
        Some(original) => object(&original.capabilities),
        None => value.clone(),
    }))
}

/// `common.KubeVersion`
#[derive(PartialEq)]
struct KubeVersionObject(KubeVersion);

impl KubeVersionObject {
    fn text(&self) -> &str {
        let KubeVersion {
            version,
            normalized,
            ..
        } = &self.0;
        if normalized.is_empty() {
            version
        } else {
            normalized
        }
    }

    /// What a method of the type gives; nothing for a value of another type.
    fn ask(value: &Value, answer: impl Fn(&Self) -> &str) -> Result<Operand, Error> {
        let Value::Object(object) = value else {
            return Ok(Operand::exact("".into()));
        };
        let version = object.downcast_ref::<Self>();
        Ok(Operand::exact(version.map_or("", answer).into()))
    }
}

impl Object for KubeVersionObject {
    fn type_name(&self) -> &'static str {
        "common.KubeVersion"
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        let KubeVersion {
            version,
            normalized,
            major,
            minor,
        } = &self.0;
        vec![
            ("Version", version.as_str().into()),
            ("normalizedVersion", normalized.as_str().into()),
            ("Major", major.as_str().into()),
            ("Minor", minor.as_str().into()),
        ]
    }

    fn unexported(&self) -> &'static [&'static str] {
        &["normalizedVersion"]
    }

    fn methods(&self) -> &'static [Method] {
        &[
            Method {
                name: "String",
                params: &[],
                call: |_, value, _| Self::ask(value, KubeVersionObject::text),
            },
            Method {
                name: "GitVersion",
                params: &[],
                call: |_, value, _| Self::ask(value, |version| &version.0.version),
            },
        ]
    }

    fn copied(&self) -> Option<Value> {
        let mut version = self.0.clone();
        version.normalized.clear();
        Some(Value::object(Self(version)))
    }

    /// Only a pointer has the method, so the version prints as its text where it stands in `.Capabilities`, and as a
    /// struct once a function has it.
    fn text_by_address(&self) -> Option<Str> {
        Some(self.text().into())
    }

    fn equals(&self, other: &dyn Object) -> bool {
        other.downcast_ref() == Some(self)
    }

    fn json_fields(&self) -> Option<Vec<(&'static str, Value)>> {
        let fields = self.fields().into_iter();
        Some(
            fields
                .filter(|(name, _)| *name != "normalizedVersion")
                .collect(),
        )
    }
}

/// `version.BuildInfo`
#[derive(PartialEq)]
struct HelmVersionObject(Arc<HelmVersion>);

impl Object for HelmVersionObject {
    fn type_name(&self) -> &'static str {
        "version.BuildInfo"
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        let version = &self.0;
        vec![
            ("Version", version.version.as_str().into()),
            ("GitCommit", version.git_commit.as_str().into()),
            ("GitTreeState", version.git_tree_state.as_str().into()),
            ("GoVersion", version.go_version.as_str().into()),
            (
                "KubeClientVersion",
                version.kube_client_version.as_str().into(),
            ),
        ]
    }

    fn equals(&self, other: &dyn Object) -> bool {
        other.downcast_ref() == Some(self)
    }

    fn json_fields(&self) -> Option<Vec<(&'static str, Value)>> {
        let version = &self.0;
        let filled = [
            ("version", &version.version),
            ("git_commit", &version.git_commit),
            ("git_tree_state", &version.git_tree_state),
            ("go_version", &version.go_version),
        ];
        let filled = filled.into_iter().filter(|(_, text)| !text.is_empty());
        let always = ("kube_client_version", &version.kube_client_version);
        let fields = filled
            .chain([always])
            .map(|(name, text)| (name, text.as_str()));
        Some(fields.map(|(name, text)| (name, text.into())).collect())
    }
}
