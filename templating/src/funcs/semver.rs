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
        Ok(Operand::exact(SemanticVersion::pointer(version)))
    });
}

fn message(error: golib::semver::Error) -> Error {
    Error::message(error.to_string())
}

const TYPE_NAME: &str = "*semver.Version";

/// Go's `*semver.Version`, and the `semver.Version` that some of its methods return.
#[derive(Debug, Clone)]
struct SemanticVersion {
    version: Version,
    is_pointer: bool,
}

impl SemanticVersion {
    fn pointer(version: Version) -> Value {
        Value::object(Self {
            version,
            is_pointer: true,
        })
    }

    fn plain(version: Version) -> Value {
        Value::object(Self {
            version,
            is_pointer: false,
        })
    }
}

impl Object for SemanticVersion {
    fn type_name(&self) -> &'static str {
        match self.is_pointer {
            true => TYPE_NAME,
            false => TYPE_NAME.trim_start_matches('*'),
        }
    }

    fn kind(&self) -> Kind {
        match self.is_pointer {
            true => Kind::Ptr,
            false => Kind::Struct,
        }
    }

    /// The fields, none of them exported; they show when a verb of `printf` does not ask for the text.
    fn fields(&self) -> Vec<(&'static str, Value)> {
        let version = &self.version;
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
        match self.is_pointer {
            true => METHODS,
            false => METHODS.split_at(VALUE_METHODS).0,
        }
    }

    fn text(&self) -> Option<Str> {
        Some(self.version.to_string().into())
    }

    /// Go compares pointers as such, two of which are never one, and structs field by field.
    fn equals(&self, other: &dyn Object) -> bool {
        let fields = |v: &Self| (v.version.to_string(), v.version.original().to_owned());
        let same = |other: &Self| match self.is_pointer {
            true => std::ptr::eq(self, other),
            false => fields(self) == fields(other),
        };
        other.downcast_ref::<Self>().is_some_and(same)
    }

    /// No field is exported.
    fn copied(&self) -> Option<Value> {
        Some(Value::object(Self {
            version: Version::default(),
            is_pointer: self.is_pointer,
        }))
    }

    fn json(&self) -> Result<Option<Value>, Error> {
        Ok(self.text().map(Value::Str))
    }
}

fn version_of(value: &Value) -> Result<Version, Error> {
    match value {
        Value::Object(object) => object.downcast_ref::<SemanticVersion>().cloned(),
        _ => None,
    }
    .map(|version| version.version)
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

/// How many of [`METHODS`] a version has that is no pointer.
const VALUE_METHODS: usize = 14;

/// Go's methods that a template can call; those with a value receiver first.
const METHODS: &[Method] = &[
    Method::new("Major", &[], |_, v, _| exact(version_of(v)?.major())),
    Method::new("Minor", &[], |_, v, _| exact(version_of(v)?.minor())),
    Method::new("Patch", &[], |_, v, _| exact(version_of(v)?.patch())),
    Method::new("Prerelease", &[], |_, v, _| {
        exact(version_of(v)?.prerelease())
    }),
    Method::new("Metadata", &[], |_, v, _| exact(version_of(v)?.metadata())),
    Method::new("String", &[], |_, v, _| exact(version_of(v)?.to_string())),
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
    Method::new("Value", &[], |_, v, _| exact(version_of(v)?.to_string())),
    Method::new("MarshalText", &[], |_, v, _| {
        bytes(version_of(v)?.to_string())
    }),
    Method::new("MarshalJSON", &[], |_, v, _| {
        bytes(format!("\"{}\"", version_of(v)?))
    }),
    Method::new("Original", &[], |_, v, _| exact(version_of(v)?.original())),
    Method::new("Compare", VERSION, |_, v, args| {
        exact(version_of(v)?.cmp(&other_of(args)?) as i64)
    }),
    Method::new("Equal", VERSION, |_, v, args| {
        let is_nil = args.first().is_some_and(|arg| arg.value.is_untyped_nil());
        exact(!is_nil && version_of(v)? == other_of(args)?)
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
];

fn bytes(text: String) -> Result<Operand, Error> {
    exact(Value::Bytes(Some(std::rc::Rc::new(text.into()))))
}

fn changed(version: Result<Version, golib::semver::Error>) -> Result<Operand, Error> {
    let version = version.map_err(message)?;
    Ok(Operand::exact(SemanticVersion::plain(version)))
}

fn next(version: Option<Version>, part: &str) -> Result<Operand, Error> {
    let overflow = || Error::message(format!("{part} version increment would overflow uint64"));
    version
        .map(|version| Operand::exact(SemanticVersion::plain(version)))
        .ok_or_else(overflow)
}
