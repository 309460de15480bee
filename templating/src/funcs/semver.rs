//! Sprig's `semver.go`, on [`golib::semver`], and the version as a template sees it.

use golib::semver::{Constraint, Version};

use super::argument::Argument;
use super::functions::Functions;
use crate::error::Error;
use crate::value::{Kind, Method, Object, Operand, Str, Type, Value};

pub(super) fn add(f: &mut Functions) {
    f.add(
        "semverCompare",
        |constraint: Str, version: Str| -> Result<bool, Error> {
            let constraint = Constraint::parse(&*constraint).map_err(message)?;
            let version = Version::parse(&*version).map_err(message)?;
            Ok(constraint.check(&version))
        },
    );
    f.add("semver", |version: Str| -> Result<Operand, Error> {
        let version = Version::parse(&*version).map_err(message)?;
        Ok(Operand::exact(Value::object(SemanticVersion(version))))
    });
}

fn message(error: golib::semver::Error) -> Error {
    Error::message(error.to_string())
}

const TYPE_NAME: &str = "*semver.Version";

/// Go's `*semver.Version`.
#[derive(Debug, Clone)]
struct SemanticVersion(Version);

impl Object for SemanticVersion {
    fn type_name(&self) -> &'static str {
        TYPE_NAME
    }

    fn kind(&self) -> Kind {
        Kind::Ptr
    }

    /// None is exported; they show when a verb of `printf` does not ask for the text.
    fn fields(&self) -> Vec<(&'static str, Value)> {
        let version = &self.0;
        vec![
            ("major", version.major().into()),
            ("minor", version.minor().into()),
            ("patch", version.patch().into()),
            ("pre", version.prerelease().into()),
            ("metadata", version.metadata().into()),
            ("original", version.original().into()),
        ]
    }

    fn unexported(&self) -> &'static [&'static str] {
        &["major", "minor", "patch", "pre", "metadata", "original"]
    }

    fn methods(&self) -> &'static [Method] {
        METHODS
    }

    fn text(&self) -> Option<Str> {
        Some(self.0.to_string().into())
    }

    /// Go compares the pointers; two versions are never one.
    fn equals(&self, other: &dyn Object) -> bool {
        let same = |other: &Self| std::ptr::eq(self, other);
        other.downcast_ref::<Self>().is_some_and(same)
    }

    fn json(&self) -> Option<Value> {
        self.text().map(Value::Str)
    }
}

fn version_of(value: &Value) -> Result<Version, Error> {
    match value {
        Value::Object(object) => object.downcast_ref::<SemanticVersion>().cloned(),
        _ => None,
    }
    .map(|version| version.0)
    .ok_or_else(|| Error::message("not a *semver.Version"))
}

fn other_of(args: &mut [Operand]) -> Result<Version, Error> {
    args.first()
        .ok_or_else(super::list::nil_dereference)
        .and_then(|arg| match &arg.value {
            Value::Nil => Err(super::list::nil_dereference()),
            value => version_of(value),
        })
}

fn text_of(args: &mut [Operand]) -> Result<Str, Error> {
    let operand = args.first_mut().map(std::mem::take).unwrap_or_default();
    Str::take(operand).ok_or_else(|| Error::message("not a string"))
}

fn exact(value: impl Into<Value>) -> Result<Operand, Error> {
    Ok(Operand::exact(value.into()))
}

const VERSION: &[Type] = &[Type::Object(TYPE_NAME)];

/// Go's methods that a template can call. Those that return a `Version` return a pointer here, whose methods are the same.
const METHODS: &[Method] = &[
    Method::new("Major", &[], |_, v, _| exact(version_of(v)?.major())),
    Method::new("Minor", &[], |_, v, _| exact(version_of(v)?.minor())),
    Method::new("Patch", &[], |_, v, _| exact(version_of(v)?.patch())),
    Method::new("Prerelease", &[], |_, v, _| {
        exact(version_of(v)?.prerelease())
    }),
    Method::new("Metadata", &[], |_, v, _| exact(version_of(v)?.metadata())),
    Method::new("Original", &[], |_, v, _| exact(version_of(v)?.original())),
    Method::new("String", &[], |_, v, _| exact(version_of(v)?.to_string())),
    Method::new("Compare", VERSION, |_, v, args| {
        exact(version_of(v)?.cmp(&other_of(args)?) as i64)
    }),
    Method::new("Equal", VERSION, |_, v, args| {
        exact(version_of(v)? == other_of(args)?)
    }),
    Method::new("LessThan", VERSION, |_, v, args| {
        exact(version_of(v)? < other_of(args)?)
    }),
    Method::new("LessThanEqual", VERSION, |_, v, args| {
        exact(version_of(v)? <= other_of(args)?)
    }),
    Method::new("GreaterThan", VERSION, |_, v, args| {
        exact(version_of(v)? > other_of(args)?)
    }),
    Method::new("GreaterThanEqual", VERSION, |_, v, args| {
        exact(version_of(v)? >= other_of(args)?)
    }),
    Method::new("IncMajor", &[], |_, v, _| {
        next(version_of(v)?.inc_major(), "major")
    }),
    Method::new("IncMinor", &[], |_, v, _| {
        next(version_of(v)?.inc_minor(), "minor")
    }),
    Method::new("IncPatch", &[], |_, v, _| {
        next(version_of(v)?.inc_patch(), "patch")
    }),
    Method::new("SetPrerelease", &[Type::String], |_, v, args| {
        changed(version_of(v)?.with_prerelease(&text_of(args)?.to_str_lossy()))
    }),
    Method::new("SetMetadata", &[Type::String], |_, v, args| {
        changed(version_of(v)?.with_metadata(&text_of(args)?.to_str_lossy()))
    }),
];

fn changed(version: Result<Version, golib::semver::Error>) -> Result<Operand, Error> {
    let version = version.map_err(message)?;
    Ok(Operand::exact(Value::object(SemanticVersion(version))))
}

fn next(version: Option<Version>, part: &str) -> Result<Operand, Error> {
    let overflow = || Error::message(format!("{part} version increment would overflow uint64"));
    version
        .map(|v| Operand::exact(Value::object(SemanticVersion(v))))
        .ok_or_else(overflow)
}
