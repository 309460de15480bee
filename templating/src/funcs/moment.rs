//! Times, durations, months and weekdays as templates hold them: Go's `time` types with their methods.

use golib::duration::Duration;
use golib::time::{DAYS, MONTHS, Time, Zone};

use super::argument::Argument;
use crate::error::Error;
use crate::state::State;
use crate::value::{Kind, List, ListType, Method, Object, Operand, Str, Type, Uncallable, Value};

const TIME: &str = "time.Time";
const LOCATION: &str = "*time.Location";
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

    /// The fields, none of them exported; they show when a verb of `printf` does not ask for the text.
    fn fields(&self) -> Vec<(&'static str, Value)> {
        let zone = match self.0.zone() {
            Zone::Utc => Value::object(Pointer(LOCATION, 0)),
            zone => Value::object(Place(zone.clone())),
        };
        vec![
            ("wall", Value::Uint64(self.0.nanosecond().into())),
            ("ext", Value::Int64(self.0.seconds_since_year_1())),
            ("loc", zone),
        ]
    }

    fn unexported(&self) -> &'static [&'static str] {
        &["wall", "ext", "loc"]
    }

    fn text(&self) -> Option<Str> {
        Some(self.0.to_string().into())
    }

    /// Go's `==` on times minds the zone too.
    fn equals(&self, other: &dyn Object) -> bool {
        let is_same = |other: &Self| self.0 == other.0 && is_one(self.0.zone(), other.0.zone());
        other.downcast_ref::<Self>().is_some_and(is_same)
    }

    fn json(&self) -> Result<Option<Value>, Error> {
        let text = self.0.to_rfc3339().map_err(|problem| {
            Error::message(format!(
                "json: error calling MarshalJSON for type {TIME}: Time.MarshalJSON: {problem}"
            ))
        });
        text.map(|text| Some(text.into()))
    }

    fn go_string(&self) -> Option<Str> {
        Some(self.0.go_string().into())
    }

    fn uncallable(&self) -> &'static [Uncallable] {
        &UNCALLABLE
    }
}

#[rustfmt::skip]
static UNCALLABLE: [Uncallable; 5] = [
    uncallable("Clock", "function Clock has 3 return values; should be 1 or 2"),
    uncallable("Date", "function Date has 3 return values; should be 1 or 2"),
    uncallable("ISOWeek", "invalid function signature for ISOWeek: second return value should be error; is int"),
    uncallable("Zone", "invalid function signature for Zone: second return value should be error; is int"),
    uncallable("ZoneBounds", "invalid function signature for ZoneBounds: second return value should be error; is time.Time"),
];

const fn uncallable(name: &'static str, complaint: &'static str) -> Uncallable {
    Uncallable {
        name,
        params: 0,
        complaint,
    }
}

/// Go's `*time.Location`.
#[derive(Debug, Clone)]
struct Place(Zone);

impl Object for Place {
    fn type_name(&self) -> &'static str {
        LOCATION
    }

    fn kind(&self) -> Kind {
        Kind::Ptr
    }

    fn methods(&self) -> &'static [Method] {
        LOCATION_METHODS
    }

    /// The fields, none of them exported. A place's rules are not shown.
    fn fields(&self) -> Vec<(&'static str, Value)> {
        let list = |list_type, record: Option<Record>| match record {
            Some(record) => List::typed(list_type, vec![Value::object(record)]),
            None => List::nil(list_type),
        };
        let (mut zone, mut change, mut cached) = (None, None, (0, 0, 0));
        if let Zone::Fixed { name, offset } = &self.0 {
            zone = Some(Record(
                "time.zone",
                vec![
                    ("name", (&**name).into()),
                    ("offset", (*offset).into()),
                    ("isDST", false.into()),
                ],
            ));
            change = Some(Record(
                "time.zoneTrans",
                vec![
                    ("when", Value::Int64(i64::MIN)),
                    ("index", Value::Uint8(0)),
                    ("isstd", false.into()),
                    ("isutc", false.into()),
                ],
            ));
            cached = (i64::MIN, i64::MAX, SOME_ADDRESS);
        }
        let (start, end, address) = cached;
        vec![
            ("name", self.0.name().into()),
            ("zone", list(&ZONES, zone).into()),
            ("tx", list(&CHANGES, change).into()),
            ("extend", "".into()),
            ("cacheStart", Value::Int64(start)),
            ("cacheEnd", Value::Int64(end)),
            ("cacheZone", Value::object(Pointer("*time.zone", address))),
        ]
    }

    fn unexported(&self) -> &'static [&'static str] {
        &[
            "name",
            "zone",
            "tx",
            "extend",
            "cacheStart",
            "cacheEnd",
            "cacheZone",
        ]
    }

    fn text(&self) -> Option<Str> {
        Some(self.0.name().into())
    }

    /// One for all, so that a template renders the same twice.
    fn address(&self) -> Option<usize> {
        Some(SOME_ADDRESS)
    }

    fn equals(&self, other: &dyn Object) -> bool {
        let is_same = |other: &Self| is_one(&self.0, &other.0);
        other.downcast_ref::<Self>().is_some_and(is_same)
    }

    fn copied(&self) -> Option<Value> {
        let zone = Zone::Fixed {
            name: "".into(),
            offset: 0,
        };
        Some(Value::object(Self(zone)))
    }
}

/// Whether Go's pointers to the zones are one. UTC, the machine's zone and those of whole hours without a name are there once,
/// others each time they were made.
fn is_one(a: &Zone, b: &Zone) -> bool {
    match (a, b) {
        (Zone::Utc, Zone::Utc) => true,
        (Zone::Rules(a), Zone::Rules(b)) => a == b,
        (
            Zone::Fixed { name, offset },
            Zone::Fixed {
                name: other_name,
                offset: other_offset,
            },
        ) => {
            let is_common = name.is_empty()
                && other_name.is_empty()
                && offset % 3600 == 0
                && (-12..=14).contains(&(offset / 3600));
            offset == other_offset && (is_common || std::sync::Arc::ptr_eq(name, other_name))
        }
        _ => false,
    }
}

static ZONES: ListType = ListType {
    name: "[]time.zone",
    element: Type::Object("time.zone"),
    named: false,
    methods: &[],
};

static CHANGES: ListType = ListType {
    name: "[]time.zoneTrans",
    element: Type::Object("time.zoneTrans"),
    named: false,
    methods: &[],
};

/// What a pointer is printed as that stands for any.
const SOME_ADDRESS: usize = 0xc0_0000_0000;

/// A pointer of a type, by its address alone.
#[derive(Debug)]
struct Pointer(&'static str, usize);

impl Object for Pointer {
    fn type_name(&self) -> &'static str {
        self.0
    }

    fn kind(&self) -> Kind {
        Kind::Ptr
    }

    fn address(&self) -> Option<usize> {
        Some(self.1)
    }

    fn equals(&self, other: &dyn Object) -> bool {
        let other = other.downcast_ref::<Self>();
        other.is_some_and(|other| self.1 == other.1)
    }
}

/// A struct of a type that only printing gets at.
#[derive(Debug)]
struct Record(&'static str, Vec<(&'static str, Value)>);

impl Object for Record {
    fn type_name(&self) -> &'static str {
        self.0
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        self.1.clone()
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

fn bytes(text: impl Into<Str>) -> Value {
    Value::Bytes(Some(std::rc::Rc::new(text.into())))
}

fn rfc3339(time: &Time, method: &str) -> Result<String, Error> {
    time.to_rfc3339()
        .map_err(|problem| Error::message(format!("Time.{method}: {problem}")))
}

fn binary(time: &Time) -> Result<Vec<u8>, Error> {
    time.to_binary()
        .map_err(|problem| Error::message(format!("Time.MarshalBinary: {problem}")))
}

/// What Go's `Append…` methods give: the bytes of the first argument and the text.
fn appended(args: &[Operand], text: impl AsRef<[u8]>) -> Result<Operand, Error> {
    let before = match argument(args, 0)? {
        Value::Bytes(Some(before)) => before.as_bytes(),
        _ => &[],
    };
    exact(bytes([before, text.as_ref()].concat()))
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
    IsDST() = |_, t, _| exact(t.is_dst());
    Location() = |_, t, _| exact(Value::object(Place(t.zone().clone())));
    GoString() = |_, t, _| exact(t.go_string());
    MarshalText() = |_, t, _| exact(bytes(rfc3339(&t, "MarshalText")?));
    MarshalJSON() = |_, t, _| exact(bytes(format!("\"{}\"", rfc3339(&t, "MarshalJSON")?)));
    MarshalBinary() = |_, t, _| exact(bytes(binary(&t)?));
    GobEncode() = |_, t, _| exact(bytes(binary(&t)?));
    AppendText(Type::Bytes) = |_, t, args| appended(args, rfc3339(&t, "AppendText")?);
    AppendBinary(Type::Bytes) = |_, t, args| appended(args, binary(&t)?);
    AppendFormat(Type::Bytes, Type::String) = |_, t, args| {
        let layout = argument(args, 1)?.as_str().cloned().unwrap_or_default();
        appended(args, t.format(&*layout))
    };
    In(Type::Object(LOCATION)) = |_, t, args| match object::<Place>(argument(args, 0)?) {
        Some(Place(zone)) => exact(Moment(t.in_zone(zone))),
        None => Err(Error::message("time: missing Location in call to Time.In")),
    };
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

fn place_of(value: &Value) -> Result<Place, Error> {
    object::<Place>(value).ok_or_else(|| Error::message("not a *time.Location"))
}

const LOCATION_METHODS: &[Method] = methods! { place_of -> Place:
    String() = |_, p, _| exact(p.0.name());
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
