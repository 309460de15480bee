//! Times, durations, months and weekdays as templates hold them: Go's `time` types with their methods.

use golib::duration::Duration;
use golib::time::{DAYS, MONTHS, Time, Zone};

use super::argument::Argument;
use crate::error::Error;
use crate::state::State;
use crate::value::{Kind, Method, Object, Operand, Str, Type, Value};

const TIME: &str = "time.Time";
pub(crate) const DURATION: &str = "time.Duration";

/// Go's `time.Time`.
#[derive(Debug, Clone)]
pub(super) struct Moment(pub(super) Time);

/// Go's `time.Duration`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span(pub(super) Duration);

/// Go's `time.Month` and `time.Weekday`: numbers with names.
#[derive(Debug, Clone, Copy)]
struct Named {
    type_name: &'static str,
    number: i64,
}

impl Named {
    const MONTH: &'static str = "time.Month";

    fn name(self) -> Str {
        let (names, first): (&[&str], i64) = match self.type_name {
            Self::MONTH => (&MONTHS, 1),
            _ => (&DAYS, 0),
        };
        let at = usize::try_from(self.number - first).ok();
        match at.and_then(|at| names.get(at)) {
            Some(name) => (*name).into(),
            None => {
                let word = self.type_name.trim_start_matches("time.");
                format!("%!{word}({})", self.number).into()
            }
        }
    }
}

impl Object for Moment {
    fn type_name(&self) -> &'static str {
        TIME
    }

    fn methods(&self) -> &'static [Method] {
        TIME_METHODS
    }

    fn text(&self) -> Option<Str> {
        Some(self.0.to_string().into())
    }

    /// Go's `==` on times minds the zone too; templates can only tell by `.Equal`.
    fn equals(&self, other: &dyn Object) -> bool {
        let other = other.downcast_ref::<Self>();
        other.is_some_and(|other| self.0 == other.0 && self.text() == other.text())
    }

    fn json(&self) -> Option<Value> {
        self.0.to_rfc3339().map(Value::from)
    }
}

impl Object for Span {
    fn type_name(&self) -> &'static str {
        DURATION
    }

    fn kind(&self) -> Kind {
        Kind::Int64
    }

    fn methods(&self) -> &'static [Method] {
        DURATION_METHODS
    }

    fn text(&self) -> Option<Str> {
        Some(self.0.to_string().into())
    }

    fn scalar(&self) -> Option<Value> {
        Some(Value::Int64(self.0.0))
    }

    fn counted(&self, number: i64) -> Option<Value> {
        Some(Span(Duration(number)).into())
    }

    fn equals(&self, other: &dyn Object) -> bool {
        other
            .downcast_ref::<Self>()
            .is_some_and(|other| self.0 == other.0)
    }
}

impl Object for Named {
    fn type_name(&self) -> &'static str {
        self.type_name
    }

    fn kind(&self) -> Kind {
        Kind::Int
    }

    fn methods(&self) -> &'static [Method] {
        NAMED_METHODS
    }

    fn text(&self) -> Option<Str> {
        Some(self.name())
    }

    fn scalar(&self) -> Option<Value> {
        Some(Value::Int(self.number))
    }

    fn counted(&self, number: i64) -> Option<Value> {
        Some(Value::object(Self { number, ..*self }))
    }

    fn equals(&self, other: &dyn Object) -> bool {
        other
            .downcast_ref::<Self>()
            .is_some_and(|other| self.number == other.number)
    }
}

impl Argument for Moment {
    const TYPE: Type = Type::Object(TIME);

    fn take(operand: Operand) -> Option<Self> {
        object(&operand.value)
    }
}

/// The host object inside a value.
pub(super) fn object<T: Object + Clone + 'static>(value: &Value) -> Option<T> {
    match value {
        Value::Object(object) => object.downcast_ref::<T>().cloned(),
        _ => None,
    }
}

/// The zone the host shows dates in.
pub(super) fn local_zone(state: &State<'_>) -> Zone {
    Zone::Rules(state.host().time_zone())
}

/// The host's clock.
pub(super) fn now(state: &State<'_>) -> Time {
    let now = state.host().now();
    Time::from_unix(
        now.as_second(),
        i64::from(now.subsec_nanosecond()),
        local_zone(state),
    )
}

fn time_of(value: &Value) -> Result<Time, Error> {
    object::<Moment>(value)
        .map(|m| m.0)
        .ok_or_else(|| Error::message("not a time.Time"))
}

/// What a constant is where a `time.Duration` is expected.
pub(crate) fn duration(nanoseconds: i64) -> Value {
    Span(Duration(nanoseconds)).into()
}

fn span_of(value: &Value) -> Result<Duration, Error> {
    object::<Span>(value)
        .map(|s| s.0)
        .ok_or_else(|| Error::message("not a time.Duration"))
}

fn exact(value: impl Into<Value>) -> Result<Operand, Error> {
    Ok(Operand::exact(value.into()))
}

fn argument(args: &[Operand], index: usize) -> Result<&Value, Error> {
    args.get(index)
        .map(|arg| &arg.value)
        .ok_or_else(|| Error::message("missing argument"))
}

/// An integer argument, counted down by `unit`.
fn int_argument(args: &[Operand], index: usize) -> Result<i64, Error> {
    argument(args, index)?
        .as_signed()
        .ok_or_else(|| Error::message("not an int"))
}

fn month(time: &Time) -> Value {
    Value::object(Named {
        type_name: Named::MONTH,
        number: i64::from(time.date().month),
    })
}

fn week_day(time: &Time) -> Value {
    Value::object(Named {
        type_name: "time.Weekday",
        number: i64::from(time.week_day()),
    })
}

macro_rules! methods {
    ($receiver:ident -> $type:ty: $($name:ident($($param:expr),*) = $body:expr;)*) => {
        &[$(Method {
            name: stringify!($name),
            params: &[$($param),*],
            call: |state, value, args| {
                let call: fn(&State<'_>, $type, &[Operand]) -> Result<Operand, Error> = $body;
                call(state, $receiver(value)?, args)
            },
        }),*]
    };
}

fn bytes(text: String) -> Value {
    Value::Bytes(Some(std::rc::Rc::new(text.into())))
}

const TIME_METHODS: &[Method] = methods! { time_of -> Time:
    Year() = |_, t, _| exact(t.date().year);
    Month() = |_, t, _| exact(month(&t));
    Day() = |_, t, _| exact(i64::from(t.date().day));
    Hour() = |_, t, _| exact(i64::from(t.clock().0));
    Minute() = |_, t, _| exact(i64::from(t.clock().1));
    Second() = |_, t, _| exact(i64::from(t.clock().2));
    Nanosecond() = |_, t, _| exact(i64::from(t.nanosecond()));
    Weekday() = |_, t, _| exact(week_day(&t));
    YearDay() = |_, t, _| exact(i64::from(t.year_day()));
    Unix() = |_, t, _| exact(Value::Int64(t.unix()));
    UnixMilli() = |_, t, _| exact(Value::Int64(t.unix_milli()));
    UnixMicro() = |_, t, _| exact(Value::Int64(t.unix_micro()));
    UnixNano() = |_, t, _| exact(Value::Int64(t.unix_nano()));
    IsZero() = |_, t, _| exact(t.is_zero());
    String() = |_, t, _| exact(t.to_string());
    MarshalText() = |_, t, _| exact(bytes(t.to_rfc3339().unwrap_or_default()));
    MarshalJSON() = |_, t, _| exact(bytes(format!("\"{}\"", t.to_rfc3339().unwrap_or_default())));
    UTC() = |_, t, _| exact(Moment(t.in_zone(Zone::Utc)));
    Local() = |state, t, _| exact(Moment(t.in_zone(local_zone(state))));
    Format(Type::String) = |_, t, args| {
        let layout = argument(args, 0)?.as_str().cloned().unwrap_or_default();
        exact(Str::from(t.format(&*layout)))
    };
    Add(Type::Object(DURATION)) = |_, t, args| exact(Moment(t.add(span_of(argument(args, 0)?)?)));
    Sub(Type::Object(TIME)) = |_, t, args| exact(Span(t.since(&time_of(argument(args, 0)?)?)));
    After(Type::Object(TIME)) = |_, t, args| exact(t > time_of(argument(args, 0)?)?);
    Before(Type::Object(TIME)) = |_, t, args| exact(t < time_of(argument(args, 0)?)?);
    Equal(Type::Object(TIME)) = |_, t, args| exact(t == time_of(argument(args, 0)?)?);
    Compare(Type::Object(TIME)) = |_, t, args| exact(t.cmp(&time_of(argument(args, 0)?)?) as i64);
    Truncate(Type::Object(DURATION)) = |_, t, args| {
        exact(Moment(t.truncate(span_of(argument(args, 0)?)?)))
    };
    Round(Type::Object(DURATION)) = |_, t, args| {
        exact(Moment(t.round(span_of(argument(args, 0)?)?)))
    };
    AddDate(Type::Int, Type::Int, Type::Int) = |_, t, args| {
        let [years, months, days] =
            [int_argument(args, 0)?, int_argument(args, 1)?, int_argument(args, 2)?];
        exact(Moment(t.add_date(years, months, days)))
    };
};

const DURATION_METHODS: &[Method] = methods! { span_of -> Duration:
    String() = |_, d, _| exact(d.to_string());
    Hours() = |_, d, _| exact(d.hours());
    Minutes() = |_, d, _| exact(d.minutes());
    Seconds() = |_, d, _| exact(d.seconds());
    Milliseconds() = |_, d, _| exact(Value::Int64(d.0 / 1_000_000));
    Microseconds() = |_, d, _| exact(Value::Int64(d.0 / 1_000));
    Nanoseconds() = |_, d, _| exact(Value::Int64(d.0));
    Abs() = |_, d, _| exact(Span(Duration(d.0.saturating_abs())));
    Round(Type::Object(DURATION)) = |_, d, args| exact(Span(d.round(span_of(argument(args, 0)?)?)));
    Truncate(Type::Object(DURATION)) = |_, d, args| {
        exact(Span(d.truncate(span_of(argument(args, 0)?)?)))
    };
};

fn named_of(value: &Value) -> Result<Named, Error> {
    object::<Named>(value).ok_or_else(|| Error::message("not a time.Month"))
}

const NAMED_METHODS: &[Method] = methods! { named_of -> Named:
    String() = |_, n, _| exact(n.name());
};
