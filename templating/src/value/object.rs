//! Values only the host knows: times, versions, certificates, a chart's files.

use std::any::Any;

use super::{Kind, Method, Str, Uncallable, Value};
use crate::error::Error;

/// A Go struct, pointer or named scalar that a template can hold.
///
/// Everything a template can observe of it is asked through this trait; the defaults describe an empty struct.
///
/// ```
/// use std::sync::Arc;
/// use templating::{Dialect, Limits, Map, Method, Object, Operand, Renderer, SystemHost, Type, Value};
///
/// /// A Go struct with a field and a method.
/// struct Release {
///     name: &'static str,
/// }
///
/// static METHODS: [Method; 1] = [Method {
///     name: "Has",
///     params: &[Type::String],
///     call: |_, receiver, args| {
///         let Value::Object(release) = receiver else { return Err("no release".into()) };
///         let name = release.field("Name").and_then(|name| name.as_str().cloned());
///         Ok(Operand::exact(Value::Bool(name.as_ref() == args[0].value.as_str())))
///     },
/// }];
///
/// impl Object for Release {
///     fn type_name(&self) -> &'static str {
///         "chart.Release"
///     }
///
///     fn fields(&self) -> Vec<(&'static str, Value)> {
///         vec![("Name", self.name.into())]
///     }
///
///     fn methods(&self) -> &'static [Method] {
///         &METHODS
///     }
/// }
///
/// let mut set = Dialect::Helm.template_set("chart");
/// set.parse("t", r#"{{ .Release.Name }} {{ .Release.Has "web" }} {{ .Release }}"#)?;
/// let dot = Map::from_iter([("Release", Value::object(Release { name: "web" }))]).into();
/// let mut renderer = Renderer::new(Arc::new(set), &SystemHost, Limits::default());
/// assert_eq!(renderer.render("t", &dot)?, b"web true {web}");
/// # Ok::<(), templating::Error>(())
/// ```
pub trait Object: Any {
    /// Go's name of the type: `time.Time`, `*semver.Version`.
    fn type_name(&self) -> &'static str;

    /// Go's kind of the type.
    fn kind(&self) -> Kind {
        Kind::Struct
    }

    /// An exported field.
    fn field(&self, name: &str) -> Option<Value> {
        self.fields()
            .into_iter()
            .find(|(field, _)| *field == name)
            .map(|(_, value)| value)
    }

    /// The names among [`Object::fields`] that are printed but that a template may not read.
    fn unexported(&self) -> &'static [&'static str] {
        &[]
    }

    /// All fields in order of declaration, for `%v` and `%+v`.
    fn fields(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// The methods a template may call.
    fn methods(&self) -> &'static [Method] {
        &[]
    }

    /// What the `String` or `Error` method of the type gives.
    fn text(&self) -> Option<Str> {
        None
    }

    /// What `String` on a *pointer* to the value gives. Go finds that method only where the value is addressable:
    /// when it is a field printed directly, not when it was passed to a function.
    fn text_by_address(&self) -> Option<Str> {
        None
    }

    /// The address that a pointer prints as, 0 for nil. That of the value itself where there is none.
    fn address(&self) -> Option<usize> {
        None
    }

    /// The value in a deep copy, which Sprig makes of exported fields only. The value itself where there is none.
    fn copied(&self) -> Option<Value> {
        None
    }

    /// The plain value of a named scalar type (`time.Duration`: an `Int64`). Numbers are compared and formatted by it.
    fn scalar(&self) -> Option<Value> {
        None
    }

    /// A number of the same named type, which `range` counts in.
    fn counted(&self, _number: i64) -> Option<Value> {
        None
    }

    /// Go's `==`, asked only for another object of the same type.
    fn equals(&self, _other: &dyn Object) -> bool {
        false
    }

    /// What `encoding/json` makes of it, as a plain value; `None` stands for the object of its [`Object::fields`].
    ///
    /// # Errors
    /// What the type's `MarshalJSON` fails with.
    fn json(&self) -> Result<Option<Value>, Error> {
        Ok(self.scalar())
    }

    /// What the `GoString` method of the type gives, for `%#v`.
    fn go_string(&self) -> Option<Str> {
        None
    }

    /// Methods that Go finds but no template can call, as they give several results.
    fn uncallable(&self) -> &'static [Uncallable] {
        &[]
    }

    /// The fields that `encoding/json` writes for a struct, in their order, under their JSON names. Everything else it
    /// writes is sorted, so only the text of its JSON shows this order.
    fn json_fields(&self) -> Option<Vec<(&'static str, Value)>> {
        None
    }
}

impl dyn Object {
    /// The value as the Rust type it was made of.
    pub fn downcast_ref<T: Object>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}
