//! Values as text, as Go's package `fmt` prints them: `print`, `println`, `printf` with all verbs and flags.
//!
//! ```
//! use std::sync::Arc;
//! use templating::funcs::Rest;
//! use templating::{Functions, Limits, Renderer, State, SystemHost, TemplateSet, Value, fmt};
//!
//! let mut functions = Functions::builtin();
//! functions.add("debug", |state: &mut State<'_>, values: Rest<Value>| fmt::sprintf(state, b"%#v|%6.2f", &values));
//! let mut set = TemplateSet::new("set", Arc::new(functions));
//! set.parse("t", r#"{{ debug "a" 3.14159 }}"#)?;
//! let mut renderer = Renderer::new(Arc::new(set), &SystemHost, Limits::default());
//! assert_eq!(renderer.render("t", &Value::Nil)?, b"\"a\"|  3.14");
//! # Ok::<(), templating::Error>(())
//! ```

mod number;
mod printf;

use golib::utf8::{decode_rune, rune_count};

use crate::error::Error;
use crate::state::State;
use crate::value::{Kind, Object, Str, Type, Value};

/// How deep a printed value may nest. Go would print a map that contains itself until its stack is full.
const MAX_DEPTH: usize = 400;

/// `fmt.Sprint`: the values with a space between two that are not strings.
///
/// ```
/// use std::sync::Arc;
/// use templating::funcs::Rest;
/// use templating::{Functions, Limits, Renderer, State, SystemHost, TemplateSet, Value, fmt};
///
/// let mut functions = Functions::builtin();
/// functions.add("show", |state: &mut State<'_>, values: Rest<Value>| fmt::sprint(state, &values));
/// let mut set = TemplateSet::new("set", Arc::new(functions));
/// set.parse("t", r#"{{ show "a" "b" 1 2 "c" }}"#)?;
/// let mut renderer = Renderer::new(Arc::new(set), &SystemHost, Limits::default());
/// assert_eq!(renderer.render("t", &Value::Nil)?, b"ab1 2c");
/// # Ok::<(), templating::Error>(())
/// ```
///
/// # Errors
/// When the text outgrows the render's limit, or a value contains itself.
pub fn sprint(state: &mut State<'_>, values: &[Value]) -> Result<Vec<u8>, Error> {
    Printer::run(state, |printer| printer.print(values))
}

/// `fmt.Sprintln`: the values with a space between any two, and a newline.
///
/// ```
/// use std::sync::Arc;
/// use templating::funcs::Rest;
/// use templating::{Functions, Limits, Renderer, State, SystemHost, TemplateSet, Value, fmt};
///
/// let mut functions = Functions::builtin();
/// functions.add("line", |state: &mut State<'_>, values: Rest<Value>| fmt::sprintln(state, &values));
/// let mut set = TemplateSet::new("set", Arc::new(functions));
/// set.parse("t", r#"{{ line "a" "b" 1 }}"#)?;
/// let mut renderer = Renderer::new(Arc::new(set), &SystemHost, Limits::default());
/// assert_eq!(renderer.render("t", &Value::Nil)?, b"a b 1\n");
/// # Ok::<(), templating::Error>(())
/// ```
///
/// # Errors
/// As [`sprint`].
pub fn sprintln(state: &mut State<'_>, values: &[Value]) -> Result<Vec<u8>, Error> {
    Printer::run(state, |printer| printer.println(values))
}

/// `fmt.Sprintf`.
///
/// ```
/// use std::sync::Arc;
/// use templating::funcs::Rest;
/// use templating::{Functions, Limits, Renderer, State, SystemHost, TemplateSet, Value, fmt};
///
/// let mut functions = Functions::builtin();
/// functions.add("row", |state: &mut State<'_>, values: Rest<Value>| fmt::sprintf(state, b"%-4s|%03d|%d", &values));
/// let mut set = TemplateSet::new("set", Arc::new(functions));
/// set.parse("t", r#"{{ row "a" 7 "b" }}"#)?;
/// let mut renderer = Renderer::new(Arc::new(set), &SystemHost, Limits::default());
/// assert_eq!(renderer.render("t", &Value::Nil)?, b"a   |007|%!d(string=b)");
/// # Ok::<(), templating::Error>(())
/// ```
///
/// # Errors
/// As [`sprint`]; a wrong verb or argument is no error but part of the text.
pub fn sprintf(state: &mut State<'_>, format: &[u8], values: &[Value]) -> Result<Vec<u8>, Error> {
    Printer::run(state, |printer| printer.printf(format, values))
}

/// `%v` of one value; a string is itself.
///
/// ```
/// use std::sync::Arc;
/// use templating::{Functions, Limits, Renderer, State, SystemHost, TemplateSet, Value, fmt};
///
/// let mut functions = Functions::builtin();
/// functions.add("text", |state: &mut State<'_>, value: Value| fmt::to_text(state, &value));
/// let mut set = TemplateSet::new("set", Arc::new(functions));
/// set.parse("t", "{{ text . }} {{ text 1e6 }}")?;
/// let data = Value::from(serde_json::json!({"a": [1, null]}));
/// let mut renderer = Renderer::new(Arc::new(set), &SystemHost, Limits::default());
/// assert_eq!(renderer.render("t", &data)?, b"map[a:[1 <nil>]] 1e+06");
/// # Ok::<(), templating::Error>(())
/// ```
///
/// # Errors
/// As [`sprint`].
pub fn to_text(state: &mut State<'_>, value: &Value) -> Result<Str, Error> {
    match value {
        Value::Str(text) => Ok(text.clone()),
        other => sprint(state, std::slice::from_ref(other)).map(Str::from),
    }
}

/// The values as [`sprint`] gives them, but what a pointer points to in its place: Go's templates look there first.
pub(crate) fn sprint_printable(state: &mut State<'_>, values: &[Value]) -> Result<Vec<u8>, Error> {
    Printer::run(state, |printer| {
        printer.behind_pointers = true;
        printer.print(values);
    })
}

/// Prints one value at the end of the output, as an action does.
pub(crate) fn write(state: &mut State<'_>, value: &Value) -> Result<(), Error> {
    match value {
        Value::Str(text) => return state.write(text),
        Value::Bool(b) => return state.write(if *b { b"true" } else { b"false" }),
        Value::Int(n) | Value::Int64(n) => return write_integer(state, *n),
        // `%v` of a float without a fraction is all digits below a million.
        Value::Float(n)
            if n.fract() == 0.0 && n.abs() < 1e6 && (*n != 0.0 || n.is_sign_positive()) =>
        {
            return write_integer(state, *n as i64);
        }
        _ => {}
    }
    let text = sprint_printable(state, std::slice::from_ref(value))?;
    state.out.extend_from_slice(&text);
    Ok(())
}

fn write_integer(state: &mut State<'_>, n: i64) -> Result<(), Error> {
    let start = state.out.len();
    // Writing to a vector cannot fail.
    let _ = std::io::Write::write_fmt(&mut state.out, format_args!("{n}"));
    state.spend_bytes((state.out.len() - start) as u64)
}

#[derive(Clone, Copy, Default)]
struct Flags {
    width: Option<usize>,
    precision: Option<usize>,
    minus: bool,
    plus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    /// `%+v`
    plus_v: bool,
    /// `%#v`
    sharp_v: bool,
}

struct Printer {
    out: Vec<u8>,
    flags: Flags,
    /// Inside a `%!verb(…)`: methods are not called.
    erroring: bool,
    /// Whether an argument that is a pointer prints as what it points to.
    behind_pointers: bool,
    depth: usize,
    max_bytes: usize,
    error: Option<Error>,
}

const LOWER: &[u8; 17] = b"0123456789abcdefx";
const UPPER: &[u8; 17] = b"0123456789ABCDEFX";

impl Printer {
    fn run(state: &mut State<'_>, print: impl FnOnce(&mut Self)) -> Result<Vec<u8>, Error> {
        let max_bytes = usize::try_from(state.bytes_left()).unwrap_or(usize::MAX);
        let mut printer = Self {
            out: Vec::new(),
            flags: Flags::default(),
            erroring: false,
            behind_pointers: false,
            depth: 0,
            max_bytes,
            error: None,
        };
        print(&mut printer);
        state.spend_bytes(printer.out.len() as u64)?;
        match printer.error {
            Some(error) => Err(error),
            None => Ok(printer.out),
        }
    }

    /// Whether printing should go on.
    fn alive(&mut self) -> bool {
        if self.error.is_none() && self.out.len() > self.max_bytes {
            self.error = Some(Error::limit(
                "text of a value is larger than the output may be",
            ));
        }
        self.error.is_none()
    }

    fn push(&mut self, bytes: impl AsRef<[u8]>) {
        self.out.extend_from_slice(bytes.as_ref());
    }

    fn push_char(&mut self, c: char) {
        self.out
            .extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    }

    fn print(&mut self, values: &[Value]) {
        let mut after_string = false;
        for (i, value) in values.iter().enumerate() {
            let is_string = value.kind() == Kind::String;
            if i > 0 && !is_string && !after_string {
                self.out.push(b' ');
            }
            self.argument(value, 'v');
            after_string = is_string;
        }
    }

    fn println(&mut self, values: &[Value]) {
        for (i, value) in values.iter().enumerate() {
            if i > 0 {
                self.out.push(b' ');
            }
            self.argument(value, 'v');
        }
        self.out.push(b'\n');
    }

    /// One argument of a call.
    fn argument(&mut self, value: &Value, verb: char) {
        match (value, verb) {
            (Value::Nil, 'T' | 'v') => self.pad(b"<nil>"),
            (Value::Nil, _) => self.bad_verb(value, verb),
            (_, 'T') => self.string(value.type_name().as_bytes()),
            (_, 'p') => self.pointer(value, verb),
            (Value::Bytes(bytes), _) => self.bytes(bytes.as_deref(), verb, "[]byte"),
            (Value::List(_) | Value::Map(_) | Value::Object(_), 'w') => self.bad_verb(value, verb),
            _ => self.value(value, verb, 0),
        }
    }

    /// A value at any depth.
    fn value(&mut self, value: &Value, verb: char, depth: usize) {
        if !self.alive() {
            return;
        }
        if self.depth >= MAX_DEPTH {
            self.error = Some(Error::limit("value is nested too deeply to be printed"));
            return;
        }
        self.depth += 1;
        match value {
            Value::Nil => self.nil_element(),
            Value::Bool(b) => match verb {
                't' | 'v' => self.pad(if *b { b"true" } else { b"false" }),
                _ => self.bad_verb(value, verb),
            },
            Value::Int(n) | Value::Int64(n) => self.integer_verb(*n as u64, true, value, verb),
            Value::Int32(n) => self.integer_verb(i64::from(*n) as u64, true, value, verb),
            Value::Uint8(n) => self.integer_verb((*n).into(), false, value, verb),
            Value::Uint32(n) => self.integer_verb((*n).into(), false, value, verb),
            Value::Uint64(n) => self.integer_verb(*n, false, value, verb),
            Value::Float(n) => self.float_verb(*n, value, verb),
            Value::Complex(re, im) => self.complex_verb(*re, *im, value, verb),
            Value::Str(text) => self.string_verb(text, value, verb),
            Value::Bytes(bytes) => self.bytes(bytes.as_deref(), verb, "[]uint8"),
            Value::List(list) => self.list(list, verb, depth),
            Value::Map(map) => self.map(map, verb, depth),
            Value::Object(object) => self.object(value, object.as_ref(), verb, depth),
        }
        self.depth -= 1;
    }

    /// A nil inside a list or map; those hold interfaces.
    fn nil_element(&mut self) {
        self.push(if self.flags.sharp_v {
            "interface {}(nil)"
        } else {
            "<nil>"
        });
    }

    fn separator(&mut self) {
        self.push(if self.flags.sharp_v { ", " } else { " " });
    }

    fn list(&mut self, list: &crate::value::List, verb: char, depth: usize) {
        let bytes = list.list_type().element == Type::Uint8;
        if bytes && matches!(verb, 's' | 'q' | 'x' | 'X') {
            let text: Vec<u8> = list
                .iter()
                .filter_map(|v| u8::try_from(v.as_unsigned()?).ok())
                .collect();
            return self.bytes(Some(&text.into()), verb, list.list_type().name);
        }
        if self.flags.sharp_v {
            self.push(list.list_type().name);
            if list.is_nil() {
                return self.push("(nil)");
            }
        }
        self.push(if self.flags.sharp_v { "{" } else { "[" });
        for (i, item) in list.iter().enumerate() {
            if i > 0 {
                self.separator();
            }
            self.value(item, verb, depth + 1);
            if self.error.is_some() {
                return;
            }
        }
        self.push(if self.flags.sharp_v { "}" } else { "]" });
    }

    fn map(&mut self, map: &crate::value::Map, verb: char, depth: usize) {
        if self.flags.sharp_v {
            self.push(map.map_type().name);
            if map.is_nil() {
                return self.push("(nil)");
            }
            self.push("{");
        } else {
            self.push("map[");
        }
        map.with(|entries| {
            for (i, (key, item)) in entries.iter().enumerate() {
                if i > 0 {
                    self.separator();
                }
                self.value(&Value::Str(key.clone()), verb, depth + 1);
                self.push(":");
                self.value(item, verb, depth + 1);
                if self.error.is_some() {
                    return;
                }
            }
        });
        self.push(if self.flags.sharp_v { "}" } else { "]" });
    }

    fn object(&mut self, value: &Value, object: &dyn Object, verb: char, depth: usize) {
        if !self.erroring
            && !self.flags.sharp_v
            && matches!(verb, 'v' | 's' | 'x' | 'X' | 'q')
            && let Some(text) = object.text()
        {
            return self.string_verb(&text, value, verb);
        }
        if !self.erroring
            && self.flags.sharp_v
            && let Some(text) = object.go_string()
        {
            return self.string(&text);
        }
        if let Some(scalar) = object.scalar() {
            return self.scalar_of(value, &scalar, verb, depth);
        }
        match object.kind() {
            Kind::Ptr if depth > 0 || object.address() == Some(0) => self.pointer(value, verb),
            Kind::Ptr => {
                if !self.behind_pointers {
                    self.push("&");
                }
                let name = object.type_name().trim_start_matches('*');
                self.fields(name, object, verb, depth + 1);
            }
            _ => self.fields(object.type_name(), object, verb, depth),
        }
    }

    /// A named scalar: its plain value, but messages name the type.
    fn scalar_of(&mut self, value: &Value, scalar: &Value, verb: char, depth: usize) {
        match scalar {
            Value::Int(n) | Value::Int64(n) => self.integer_verb(*n as u64, true, value, verb),
            Value::Uint64(n) => self.integer_verb(*n, false, value, verb),
            Value::Float(n) => self.float_verb(*n, value, verb),
            Value::Str(text) => self.string_verb(text, value, verb),
            other => self.value(other, verb, depth),
        }
    }

    fn fields(&mut self, type_name: &str, object: &dyn Object, verb: char, depth: usize) {
        if self.flags.sharp_v {
            self.push(type_name);
        }
        self.push("{");
        for (i, (name, field)) in object.fields().into_iter().enumerate() {
            if i > 0 {
                self.separator();
            }
            if self.flags.plus_v || self.flags.sharp_v {
                self.push(name);
                self.push(":");
            }
            self.value(&field, verb, depth + 1);
        }
        self.push("}");
    }

    /// Go prints addresses, which nobody can rely on.
    fn pointer(&mut self, value: &Value, verb: char) {
        let address = match value {
            Value::Map(map) => map.address(),
            Value::List(list) if list.is_nil() => 0,
            Value::List(list) => list.as_ptr().addr(),
            Value::Object(object) if object.kind() == Kind::Ptr => object
                .address()
                .unwrap_or_else(|| std::rc::Rc::as_ptr(object).addr()),
            _ => return self.bad_verb(value, verb),
        };
        match verb {
            'v' if self.flags.sharp_v => {
                self.push(format!("({})(", value.type_name()));
                match address {
                    0 => self.push("nil"),
                    _ => self.hex_integer(address as u64, true),
                }
                self.push(")");
            }
            'v' if address == 0 => self.pad(b"<nil>"),
            'v' | 'p' => self.hex_integer(address as u64, !self.flags.sharp),
            'b' | 'o' | 'd' | 'x' | 'X' => self.integer_verb(address as u64, false, value, verb),
            _ => self.bad_verb(value, verb),
        }
    }

    fn bad_verb(&mut self, value: &Value, verb: char) {
        self.erroring = true;
        self.push("%!");
        self.push_char(verb);
        self.push("(");
        self.typed(value);
        self.push(")");
        self.erroring = false;
    }

    /// `type=value`, as complaints quote a value.
    fn typed(&mut self, value: &Value) {
        if value.is_untyped_nil() {
            self.push("<nil>");
        } else {
            self.push(value.type_name());
            self.push("=");
            self.argument(value, 'v');
        }
    }

    fn pad(&mut self, text: &[u8]) {
        let Some(width) = self.flags.width.filter(|&width| width > 0) else {
            return self.push(text);
        };
        let padding = width.saturating_sub(rune_count(text));
        if self.flags.minus {
            self.push(text);
            self.padding(padding);
        } else {
            self.padding(padding);
            self.push(text);
        }
    }

    fn padding(&mut self, count: usize) {
        if !self.alive() {
            return;
        }
        let fill = if self.flags.zero && !self.flags.minus {
            b'0'
        } else {
            b' '
        };
        self.out.resize(self.out.len() + count, fill);
    }

    /// Cut to the precision, which counts characters.
    fn truncate<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        let Some(precision) = self.flags.precision else {
            return text;
        };
        let mut end = 0;
        for _ in 0..precision {
            match decode_rune(&text[end..]) {
                Some((_, width)) => end += width,
                None => return text,
            }
        }
        &text[..end]
    }

    fn string(&mut self, text: &[u8]) {
        let text = self.truncate(text);
        self.pad(text);
    }

    fn string_verb(&mut self, text: &[u8], value: &Value, verb: char) {
        match verb {
            'v' if self.flags.sharp_v => self.quoted(text),
            'v' | 's' => self.string(text),
            'x' => self.hex_string(text, LOWER),
            'X' => self.hex_string(text, UPPER),
            'q' => self.quoted(text),
            _ => self.bad_verb(value, verb),
        }
    }

    fn quoted(&mut self, text: &[u8]) {
        let text = self.truncate(text);
        let quoted = if self.flags.sharp && golib::strconv::can_backquote(text) {
            let mut quoted = vec![b'`'];
            quoted.extend_from_slice(text);
            quoted.push(b'`');
            quoted
        } else if self.flags.plus {
            golib::strconv::quote_to_ascii(text).into_bytes()
        } else {
            golib::strconv::quote(text).into_bytes()
        };
        self.pad(&quoted);
    }

    fn hex_string(&mut self, text: &[u8], digits: &[u8; 17]) {
        let Flags {
            width,
            precision,
            sharp,
            space,
            minus,
            ..
        } = self.flags;
        let length = precision.map_or(text.len(), |precision| precision.min(text.len()));
        if length == 0 {
            if let Some(width) = width {
                self.padding(width);
            }
            return;
        }
        let mut needed = 2 * length;
        if space {
            if sharp {
                needed *= 2;
            }
            needed += length - 1;
        } else if sharp {
            needed += 2;
        }
        let padding = width.unwrap_or(0).saturating_sub(needed);
        if !minus {
            self.padding(padding);
        }
        for (i, byte) in text[..length].iter().enumerate() {
            if space && i > 0 {
                self.out.push(b' ');
            }
            if sharp && (space || i == 0) {
                self.push([b'0', digits[16]]);
            }
            self.push([
                digits[usize::from(byte >> 4)],
                digits[usize::from(byte & 15)],
            ]);
        }
        if minus {
            self.padding(padding);
        }
    }

    fn bytes(&mut self, bytes: Option<&Str>, verb: char, type_name: &str) {
        let text = bytes.map_or(&[][..], |bytes| bytes);
        match verb {
            'v' | 'd' if self.flags.sharp_v => {
                self.push(type_name);
                if bytes.is_none() {
                    return self.push("(nil)");
                }
                self.push("{");
                for (i, &byte) in text.iter().enumerate() {
                    if i > 0 {
                        self.push(", ");
                    }
                    self.hex_integer(byte.into(), true);
                }
                self.push("}");
            }
            's' => self.string(text),
            'x' => self.hex_string(text, LOWER),
            'X' => self.hex_string(text, UPPER),
            'q' => self.quoted(text),
            _ => {
                self.push("[");
                for (i, &byte) in text.iter().enumerate() {
                    if i > 0 {
                        self.push(" ");
                    }
                    self.integer_verb(byte.into(), false, &Value::Uint8(byte), verb);
                }
                self.push("]");
            }
        }
    }
}
