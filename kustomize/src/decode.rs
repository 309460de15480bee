//! YAML into JSON, and JSON into structs as Go's `encoding/json` fills them: names whatever their case, null leaves what was there, and of all that
//! is wrong the first in order is said.

use std::collections::BTreeMap;

use golib::json::{Mismatch, known_field, scalar_text};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::loader::Build;

/// `YAMLToJSON`, whose problems have no introduction.
pub(crate) fn yaml_to_json(text: &[u8], build: &Build<'_>) -> Result<Value> {
    let decoded = golib::yaml::Decoder::new().decode(text, &mut build.document());
    decoded.map_err(|error| {
        let error = Error::from(error);
        let text = error.to_string();
        match text.strip_prefix("error converting YAML to JSON: ") {
            Some(text) => error.reworded(text),
            None => error,
        }
    })
}

/// What a file says.
pub(crate) fn read(text: &[u8], build: &Build<'_>) -> Result<Value> {
    Ok(golib::yaml::Decoder::new().decode(text, &mut build.document())?)
}

/// `yaml.Unmarshal` of what is read as data already; null is nothing.
pub(crate) fn unmarshal<T: Read>(value: &Value, build: &Build<'_>) -> Result<T> {
    if value.is_null() {
        return Ok(T::default());
    }
    let read = Decoder::new(false, build).converting().read(value, build);
    read.map_err(|error| error.context("error unmarshaling JSON: while decoding JSON"))
}

/// A part of a kustomization file as its generator or transformer gets it: kustomize hands it over as YAML, whose line
/// breaks U+0085, U+2028 and U+2029 are other text when they are read again.
pub(crate) fn handed_over<T: Read + Write>(part: T, build: &Build<'_>) -> Result<T> {
    match part.write().filter(has_odd_breaks) {
        Some(value) => unmarshal(&written_and_read(value)?, build),
        None => Ok(part),
    }
}

/// As [`handed_over`], what a file says of a generator or transformer. That is written as JSON first, where whole numbers have no point.
pub(crate) fn written_and_read(mut value: Value) -> Result<Value> {
    without_points(&mut value);
    if !has_odd_breaks(&value) {
        return Ok(value);
    }
    let text = golib::yaml::encode(&value)?;
    Ok(golib::yaml::decode(text.as_bytes())?)
}

/// Numbers as they are read from Go's JSON: `1e6` and `-0.0` as whole ones.
fn without_points(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let text = golib::json::encode(value);
            let whole = text.parse::<i64>().map(Value::from);
            if let Ok(whole) = whole.or_else(|_| text.parse::<u64>().map(Value::from)) {
                *value = whole;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(without_points),
        Value::Object(entries) => entries.values_mut().for_each(without_points),
        _ => {}
    }
}

fn has_odd_breaks(value: &Value) -> bool {
    let has = |text: &str| text.contains(['\u{85}', '\u{2028}', '\u{2029}']);
    match value {
        Value::String(text) => has(text),
        Value::Array(items) => items.iter().any(has_odd_breaks),
        Value::Object(entries) => entries
            .iter()
            .any(|(key, value)| has(key) || has_odd_breaks(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// How often what a file says may be in memory: as it was read, as a generator or transformer gets it, and as it is shown in an error.
pub(crate) const COPIES: usize = 4;

/// What a copy of a value takes, about.
fn weight(value: &Value) -> usize {
    const ENTRY: usize = size_of::<String>() + size_of::<Value>() + 16;
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => {
            let inner: usize = items.iter().map(weight).sum();
            inner + items.len() * size_of::<Value>()
        }
        Value::Object(entries) => {
            let inner = entries.iter().map(|(key, value)| key.len() + weight(value));
            inner.sum::<usize>() + entries.len() * ENTRY
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// Reads one document.
pub(crate) struct Decoder {
    /// Fields that are not known are an error.
    strict: bool,
    /// Numbers and booleans become text where text is wanted, as `sigs.k8s.io/yaml` does on the way to a struct.
    converts: bool,
    problem: Option<Error>,
    /// Bytes that structs may still take, and those that they take.
    room: usize,
    made: usize,
    /// The struct that a field belongs to, and the fields that lead to it.
    root: &'static str,
    path: Vec<&'static str>,
}

impl Decoder {
    pub(crate) fn new(strict: bool, build: &Build<'_>) -> Self {
        Self {
            strict,
            converts: false,
            problem: None,
            room: build.room() / COPIES,
            made: 0,
            root: "",
            path: Vec::new(),
        }
    }

    /// As `yaml.Unmarshal` reads.
    pub(crate) fn converting(self) -> Self {
        Self {
            converts: true,
            ..self
        }
    }

    /// Without conversions: they do not reach into embedded structs.
    pub(crate) fn plainly<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        let converts = std::mem::take(&mut self.converts);
        let result = read(self);
        self.converts = converts;
        result
    }

    fn text(&mut self, value: &Value, expected: &str) -> String {
        match value {
            Value::String(text) => match self.make(text.len()) {
                true => text.clone(),
                false => String::new(),
            },
            other => scalar_text(other)
                .filter(|_| self.converts)
                .unwrap_or_else(|| {
                    self.wrong_type(other, expected);
                    String::new()
                }),
        }
    }

    pub(crate) fn read<T: Read>(mut self, value: &Value, build: &Build<'_>) -> Result<T, Error> {
        let read = T::read(&mut self, value);
        if let Some(problem) = self.problem {
            if problem.is_limit() {
                build.note_too_large();
            }
            return Err(problem);
        }
        build.grow_by(self.made.saturating_mul(COPIES))?;
        Ok(read)
    }

    fn fail(&mut self, problem: String) {
        self.problem.get_or_insert_with(|| Error::new(problem));
    }

    /// Counts what is about to be made. `false` when it is too much, which comes before all other problems.
    fn make(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.room;
        if fits {
            self.room -= bytes;
            self.made += bytes;
        } else {
            self.problem = Some(Error::limit(
                "what the kustomization says is more than a build may make of it",
            ));
        }
        fits
    }

    fn wrong_type(&mut self, value: &Value, expected: &str) {
        if !value.is_null() {
            let mismatch = Mismatch::new(value, expected.to_owned());
            self.fail(mismatch.of(self.root, self.path.join(".")).to_string());
        }
    }

    /// The entries of an object for the struct `name`, of the package `types` unless it says so; `read` takes those it knows.
    pub(crate) fn object(
        &mut self,
        value: &Value,
        name: &'static str,
        known: &[&'static str],
        embedding: fn(&str) -> Vec<&'static str>,
        mut read: impl FnMut(&mut Self, &'static str, &Value),
    ) {
        let Value::Object(entries) = value else {
            self.wrong_type(value, &go_type_of(name));
            return;
        };
        let name = name.rsplit('.').next().unwrap_or(name);
        let was_root = std::mem::replace(&mut self.root, name);
        for (key, value) in entries {
            match known_field(known, key) {
                Some(field) => {
                    let before = self.path.len();
                    self.path.extend(embedding(field));
                    self.path.push(field);
                    read(self, field, value);
                    self.path.truncate(before);
                }
                None if self.strict => {
                    self.fail(format!(
                        "json: unknown field {}",
                        golib::strconv::quote(key)
                    ));
                }
                None => {}
            }
        }
        self.root = was_root;
    }

    /// The elements of a list, whose type is `go_type`.
    pub(crate) fn list<T: Read>(&mut self, value: &Value, go_type: &str) -> Vec<T> {
        let Value::Array(items) = value else {
            self.wrong_type(value, go_type);
            return Vec::new();
        };
        if !self.make(items.len().saturating_mul(size_of::<T>())) {
            return Vec::new();
        }
        let items = items.iter().map(|item| match item {
            Value::Null => T::default(),
            item => T::read(self, item),
        });
        items.collect()
    }

    /// The entries of a map, whose type is `go_type`; nothing of one that is larger than what may still be made.
    fn map<'v>(&mut self, value: &'v Value, go_type: &str) -> Option<&'v Map<String, Value>> {
        let Value::Object(entries) = value else {
            self.wrong_type(value, go_type);
            return None;
        };
        self.make(weight(value)).then_some(entries)
    }

    /// One field of a struct.
    pub(crate) fn field<T: Read>(&mut self, into: &mut T, value: &Value) {
        if !value.is_null() {
            *into = T::read(self, value);
        }
    }
}

/// Lists that have a type of their own in Go, which errors name: `Name = "package.Name" of Element`.
macro_rules! go_slices {
    ($($(#[$doc:meta])* $name:ident = $go:literal of $element:ty;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub(crate) struct $name(pub(crate) Vec<$element>);

        impl std::ops::Deref for $name {
            type Target = Vec<$element>;

            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }

        impl std::ops::DerefMut for $name {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.0
            }
        }

        impl $crate::decode::Read for $name {
            fn go_type() -> String {
                $go.into()
            }

            fn read(decoder: &mut $crate::decode::Decoder, value: &serde_json::Value) -> Self {
                Self(decoder.list(value, &Self::go_type()))
            }
        }

        impl $crate::decode::Write for $name {
            fn write(&self) -> Option<serde_json::Value> {
                self.0.write()
            }
        }
    )*};
}

pub(crate) use go_slices;

/// A struct's name with its package.
pub(crate) fn go_type_of(name: &str) -> String {
    if name.contains('.') {
        return name.to_owned();
    }
    format!("types.{name}")
}

/// What a value can be read into.
pub(crate) trait Read: Default {
    /// The type's name in Go.
    fn go_type() -> String;
    fn read(decoder: &mut Decoder, value: &Value) -> Self;
}

impl Read for String {
    fn go_type() -> String {
        "string".into()
    }

    fn read(decoder: &mut Decoder, value: &Value) -> Self {
        decoder.text(value, "string")
    }
}

/// Texts that have a type of their own in Go, which errors name.
macro_rules! go_texts {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub(crate) struct $name(pub(crate) String);

        impl Read for $name {
            fn go_type() -> String {
                go_type_of(stringify!($name))
            }

            fn read(decoder: &mut Decoder, value: &Value) -> Self {
                Self(decoder.text(value, &Self::go_type()))
            }
        }

        impl Write for $name {
            fn write(&self) -> Option<Value> {
                self.0.write()
            }
        }
    )*};
}

go_texts! {
    /// `fifo` or `legacy`.
    SortOrder;
    /// A strategic merge patch in a list of its own: a path, or the patch itself.
    PatchStrategicMerge;
}

impl Read for bool {
    fn go_type() -> String {
        "bool".into()
    }

    fn read(decoder: &mut Decoder, value: &Value) -> Self {
        match value {
            Value::Bool(value) => *value,
            other => {
                decoder.wrong_type(other, "bool");
                false
            }
        }
    }
}

/// A whole number, as it stands in Go's JSON: `5.0` is written without its point.
fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) if number.is_f64() => golib::json::encode(value).parse().ok(),
        value => value.as_i64(),
    }
}

impl Read for i64 {
    fn go_type() -> String {
        "int64".into()
    }

    fn read(decoder: &mut Decoder, value: &Value) -> Self {
        integer(value).unwrap_or_else(|| {
            decoder.wrong_type(value, "int64");
            0
        })
    }
}

/// Go's `int`.
impl Read for isize {
    fn go_type() -> String {
        "int".into()
    }

    fn read(decoder: &mut Decoder, value: &Value) -> Self {
        let integer = integer(value).and_then(|value| Self::try_from(value).ok());
        integer.unwrap_or_else(|| {
            decoder.wrong_type(value, "int");
            0
        })
    }
}

impl<T: Read> Read for Vec<T> {
    fn go_type() -> String {
        format!("[]{}", T::go_type())
    }

    fn read(decoder: &mut Decoder, value: &Value) -> Self {
        decoder.list(value, &Self::go_type())
    }
}

impl Read for BTreeMap<String, String> {
    fn go_type() -> String {
        "map[string]string".into()
    }

    fn read(decoder: &mut Decoder, value: &Value) -> Self {
        let entries = decoder.map(value, &Self::go_type());
        let text = |(key, value): (&String, &Value)| {
            let mut text = String::new();
            decoder.field(&mut text, value);
            (key.clone(), text)
        };
        entries.into_iter().flatten().map(text).collect()
    }
}

/// A pointer.
impl<T: Read> Read for Option<T> {
    fn go_type() -> String {
        format!("*{}", T::go_type())
    }

    fn read(decoder: &mut Decoder, value: &Value) -> Self {
        Some(T::read(decoder, value))
    }
}

/// A map that is kept as it is.
impl Read for Map<String, Value> {
    fn go_type() -> String {
        "map[string]interface {}".into()
    }

    fn read(decoder: &mut Decoder, value: &Value) -> Self {
        decoder
            .map(value, &Self::go_type())
            .cloned()
            .unwrap_or_default()
    }
}

/// What Go writes of a value; nothing for an empty one (`omitempty`).
pub(crate) trait Write {
    fn write(&self) -> Option<Value>;
}

impl Write for String {
    fn write(&self) -> Option<Value> {
        (!self.is_empty()).then(|| Value::String(self.clone()))
    }
}

impl Write for bool {
    fn write(&self) -> Option<Value> {
        self.then_some(Value::Bool(true))
    }
}

impl Write for i64 {
    fn write(&self) -> Option<Value> {
        (*self != 0).then(|| (*self).into())
    }
}

impl Write for isize {
    fn write(&self) -> Option<Value> {
        (*self != 0).then(|| (*self).into())
    }
}

impl<T: Write> Write for Vec<T> {
    fn write(&self) -> Option<Value> {
        let items = self.iter().map(|item| item.write().unwrap_or_default());
        (!self.is_empty()).then(|| items.collect())
    }
}

impl<T: Write> Write for Option<T> {
    fn write(&self) -> Option<Value> {
        self.as_ref().map(|value| value.write().unwrap_or_default())
    }
}

impl Write for BTreeMap<String, String> {
    fn write(&self) -> Option<Value> {
        let text = |value: &String| Value::String(value.clone());
        let entries = self.iter().map(|(key, value)| (key.clone(), text(value)));
        (!self.is_empty()).then(|| entries.collect())
    }
}

impl Write for Map<String, Value> {
    fn write(&self) -> Option<Value> {
        (!self.is_empty()).then(|| Value::Object(self.clone()))
    }
}

/// Structs with Go's names of their fields: `struct Name = "GoName" { field: "json" = Type, ... }`. The fields of `inline`
/// structs stand among them.
macro_rules! go_structs {
    ($($(#[$doc:meta])* $name:ident = $go:literal {
        $($(#[$field_doc:meta])* $field:ident: $json:literal = $kind:ty,)*
        $(+ $inline:ident: $inline_kind:ty,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub(crate) struct $name {
            $($(#[$field_doc])* pub(crate) $field: $kind,)*
            $(pub(crate) $inline: $inline_kind,)*
        }

        impl $name {
            pub(crate) const GO: &'static str = $go;

            /// The embedded structs that a field belongs to.
            pub(crate) fn embedding(field: &str) -> Vec<&'static str> {
                $(if <$inline_kind>::known().contains(&field) {
                    let mut structs = vec![<$inline_kind>::GO.rsplit('.').next().unwrap_or_default()];
                    structs.extend(<$inline_kind>::embedding(field));
                    return structs;
                })*
                let _ = field;
                Vec::new()
            }

            pub(crate) fn known() -> Vec<&'static str> {
                #[allow(unused_mut, reason = "not all have inline fields")]
                let mut known = vec![$($json),*];
                $(known.extend(<$inline_kind>::known());)*
                known
            }

            pub(crate) fn take(
                &mut self,
                decoder: &mut $crate::decode::Decoder,
                field: &str,
                value: &serde_json::Value,
            ) -> bool {
                let is_own = match field {
                    $($json => {
                        decoder.field(&mut self.$field, value);
                        true
                    })*
                    _ => false,
                };
                is_own $(|| decoder.plainly(|decoder| self.$inline.take(decoder, field, value)))*
            }
        }

        impl $crate::decode::Write for $name {
            fn write(&self) -> Option<serde_json::Value> {
                let mut entries = serde_json::Map::new();
                $(if let Some(value) = $crate::decode::Write::write(&self.$field) {
                    entries.insert($json.to_owned(), value);
                })*
                $(if let Some(serde_json::Value::Object(inline)) =
                    $crate::decode::Write::write(&self.$inline)
                {
                    entries.extend(inline);
                })*
                Some(serde_json::Value::Object(entries))
            }
        }

        impl $crate::decode::Read for $name {
            fn go_type() -> String {
                $crate::decode::go_type_of($go)
            }

            fn read(decoder: &mut $crate::decode::Decoder, value: &serde_json::Value) -> Self {
                let mut result = Self::default();
                decoder.object(value, Self::GO, &Self::known(), Self::embedding, |decoder, field, value| {
                    result.take(decoder, field, value);
                });
                result
            }
        }
    )*};
}

pub(crate) use go_structs;
