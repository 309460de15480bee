//! How Rust argument types stand for Go's.

use std::ops::Deref;

use crate::error::Error;
use crate::state::State;
use crate::value::{LIST, List, MAP, Map, Object, Operand, STRING_MAP, Str, Type, Value};

/// The Go signature of a function.
#[derive(Clone, Debug)]
pub struct Signature {
    /// The parameters; when variadic the last is the type of each further argument.
    pub params: Vec<Type>,
    /// Whether the last parameter may be given any number of times.
    pub variadic: bool,
}

/// A Rust type that can be a parameter.
///
/// | Rust | Go |
/// |---|---|
/// | `Value` | `interface {}` |
/// | `Str` | `string` |
/// | `i64`, [`Int64`], `u32`, `f64`, `bool` | `int`, `int64`, `uint32`, `float64`, `bool` |
/// | `List`, `Map` | `[]interface {}`, `map[string]interface {}` |
/// | `Operand` | `reflect.Value` |
/// | `Rest<T>`, last | `...T` |
pub trait Argument: Sized {
    /// The Go type.
    const TYPE: Type;
    /// Takes the argument; the engine has checked it against `TYPE`.
    fn take(operand: Operand) -> Option<Self>;
}

macro_rules! arguments {
    ($($rust:ty = $type:expr, $variant:ident($value:ident) => $made:expr;)*) => {$(
        impl Argument for $rust {
            const TYPE: Type = $type;
            fn take(operand: Operand) -> Option<Self> {
                match operand.value {
                    Value::$variant($value) => Some($made),
                    _ => None,
                }
            }
        }
    )*};
}

arguments! {
    Str = Type::String, Str(value) => value;
    i64 = Type::Int, Int(value) => value;
    Int64 = Type::Int64, Int64(value) => Self(value);
    u32 = Type::Uint32, Uint32(value) => value;
    f64 = Type::Float64, Float(value) => value;
    bool = Type::Bool, Bool(value) => value;
    List = Type::List(&LIST), List(list) => list.with_type(&LIST);
    Map = Type::Map(&MAP), Map(map) => map.with_type(&MAP);
}

/// Go's `int64`, where `i64` stands for `int`; as a result too.
///
/// ```
/// use templating::Functions;
/// use templating::funcs::Int64;
///
/// let mut functions = Functions::builtin();
/// functions.add("double", |n: Int64| Int64(n.0 * 2)); // func(int64) int64
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Int64(pub i64);

impl Argument for Value {
    const TYPE: Type = Type::Any;
    fn take(operand: Operand) -> Option<Self> {
        Some(operand.value)
    }
}

impl Argument for Operand {
    const TYPE: Type = Type::Reflect;
    fn take(operand: Operand) -> Option<Self> {
        Some(operand)
    }
}

/// The remaining arguments of a variadic function.
#[derive(Debug)]
pub struct Rest<T>(pub Vec<T>);

impl<T> Deref for Rest<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T> IntoIterator for Rest<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// A Rust type that can be a result, or a `Result` of one.
pub trait IntoResult {
    /// The result as the engine takes it.
    fn into_result(self) -> Result<Operand, Error>;
}

impl<T: IntoResult> IntoResult for Result<T, Error> {
    fn into_result(self) -> Result<Operand, Error> {
        self.and_then(T::into_result)
    }
}

/// A `Value` is the result of a Go function declared to return `interface {}`; other types are themselves.
impl IntoResult for Value {
    fn into_result(self) -> Result<Operand, Error> {
        Ok(Operand::any(self))
    }
}

impl IntoResult for Operand {
    fn into_result(self) -> Result<Operand, Error> {
        Ok(self)
    }
}

impl<T: Object> IntoResult for T {
    fn into_result(self) -> Result<Operand, Error> {
        Ok(Operand::exact(self.into()))
    }
}

impl IntoResult for Int64 {
    fn into_result(self) -> Result<Operand, Error> {
        Ok(Operand::exact(Value::Int64(self.0)))
    }
}

/// `map[string]string`.
impl IntoResult for std::collections::BTreeMap<Str, Str> {
    fn into_result(self) -> Result<Operand, Error> {
        let entries = self
            .into_iter()
            .map(|(key, value)| (key, Value::Str(value)))
            .collect();
        Ok(Operand::exact(Map::typed(&STRING_MAP, entries).into()))
    }
}

/// A string.
impl IntoResult for Vec<u8> {
    fn into_result(self) -> Result<Operand, Error> {
        Ok(Operand::exact(Value::string(self)))
    }
}

macro_rules! into_result {
    ($($rust:ty),*) => {$(
        impl IntoResult for $rust {
            fn into_result(self) -> Result<Operand, Error> {
                Ok(Operand::exact(Value::from(self)))
            }
        }
    )*};
}

into_result!(bool, i64, u32, u64, f64, Str, &str, String, List, Map);

/// A closure that can be put into the table. `Args` only tells the shapes apart.
pub trait Typed<Args>: Send + Sync + 'static {
    /// The Go signature that the argument types give.
    fn signature() -> Signature;
    /// The function as the engine calls it.
    fn into_native(
        self,
    ) -> impl Fn(&mut State<'_>, &mut [Operand]) -> Result<Operand, Error> + Send + Sync + 'static;
}

/// Marks closures that take the [`State`] first.
#[derive(Debug)]
pub struct WithState;

fn mismatch() -> Error {
    Error::message("reflect: argument does not have the type of its parameter")
}

/// The next of the arguments that a function was called with.
pub(crate) fn next_argument<T: Argument>(
    args: &mut std::slice::IterMut<'_, Operand>,
) -> Result<T, Error> {
    args.next()
        .map(std::mem::take)
        .and_then(T::take)
        .ok_or_else(mismatch)
}

fn rest<T: Argument>(args: std::slice::IterMut<'_, Operand>) -> Result<Rest<T>, Error> {
    let rest: Option<Vec<T>> = args.map(std::mem::take).map(T::take).collect();
    rest.map(Rest).ok_or_else(mismatch)
}

macro_rules! typed {
    ($($arg:ident)*) => {
        typed!(@closure [] [] [$($arg)*]);
        typed!(@closure [WithState,] [state: &mut State<'_>,] [$($arg)*]);
    };
    (@closure [$($marker:tt)*] [$($state:ident: $State:ty,)?] [$($arg:ident)*]) => {
        impl<Func, Ret, $($arg),*> Typed<($($marker)* $($arg,)*)> for Func
        where
            Func: Fn($($State,)? $($arg),*) -> Ret + Send + Sync + 'static,
            Ret: IntoResult,
            $($arg: Argument,)*
        {
            typed!(@methods [$($state)?] [$($arg)*] [vec![$($arg::TYPE),*]] false []);
        }

        impl<Func, Ret, More, $($arg),*> Typed<($($marker)* $($arg,)* Rest<More>,)> for Func
        where
            Func: Fn($($State,)? $($arg,)* Rest<More>) -> Ret + Send + Sync + 'static,
            Ret: IntoResult,
            More: Argument,
            $($arg: Argument,)*
        {
            typed!(@methods [$($state)?] [$($arg)*] [vec![$($arg::TYPE,)* More::TYPE]] true [rest]);
        }
    };
    (@methods [$($state:ident)?] [$($arg:ident)*] [$params:expr] $variadic:literal [$($rest:ident)?]) => {
        fn signature() -> Signature {
            Signature { params: $params, variadic: $variadic }
        }

        #[allow(unused_mut, unused_variables, reason = "without arguments there is nothing to take")]
        fn into_native(
            self,
        ) -> impl Fn(&mut State<'_>, &mut [Operand]) -> Result<Operand, Error> + Send + Sync + 'static {
            move |_state, args| {
                let mut args = args.iter_mut();
                $(let $state = _state;)?
                self($($state,)? $(next_argument::<$arg>(&mut args)?,)* $($rest(args)?)?).into_result()
            }
        }
    };
}

typed!();
typed!(A);
typed!(A B);
typed!(A B C);
typed!(A B C D);
typed!(A B C D E);
typed!(A B C D E F);
