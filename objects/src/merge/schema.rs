//! Kubernetes' built-in types, as far as merging has to know them.
//!
//! The table in `builtin_types.txt` is printed by `tests/reference/patch-schema` from client-go's
//! types (v0.37.1) and explained there.

use std::collections::HashMap;
use std::sync::OnceLock;

use serde_json::Value;

use super::MergeError;
use super::json::is_equal;

static TABLE: &str = include_str!("builtin_types.txt");

struct Types {
    kinds: HashMap<(&'static str, &'static str), usize>,
    structs: Vec<Struct>,
}

struct Struct {
    name: &'static str,
    fields: Vec<Field>,
}

struct Field {
    name: &'static str,
    shape: Shape,
    strategies: &'static str,
    merge_key: &'static str,
}

/// The shape of a Go type in the table's notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape(&'static str);

/// How a field is merged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Strategy {
    /// Keys that the new state lacks are dropped from the live one.
    pub(super) retain_keys: bool,
    /// `merge`, `replace` or empty.
    pub(crate) kind: &'static str,
    /// The key by which elements of a list of maps are told apart; may be empty.
    pub(crate) merge_key: &'static str,
}

/// A built-in kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Builtin(usize);

fn types() -> &'static Types {
    static TYPES: OnceLock<Types> = OnceLock::new();
    TYPES.get_or_init(|| {
        let mut types = Types {
            kinds: HashMap::new(),
            structs: Vec::new(),
        };
        for line in TABLE.lines() {
            let mut words = line.split(' ');
            let (mark, first, second) = (words.next(), words.next(), words.next());
            match (mark, first, second) {
                (Some("K"), Some(api_version), Some(kind)) => {
                    let number = words.next().and_then(|n| n.parse().ok());
                    let number = number.expect("the generator numbers every kind");
                    types.kinds.insert((api_version, kind), number);
                }
                (Some("T"), Some(_), Some(name)) => {
                    types.structs.push(Struct {
                        name,
                        fields: words.map(field).collect(),
                    });
                }
                _ => unreachable!("the generator writes K and T lines"),
            }
        }
        types
    })
}

fn field(word: &'static str) -> Field {
    let (name, rest) = word.split_once('=').unwrap_or((word, "a"));
    let mut parts = rest.split(',');
    let mut part = || parts.next().unwrap_or_default();
    Field {
        name,
        shape: Shape(part()),
        strategies: part(),
        merge_key: part(),
    }
}

/// The built-in type of an object, by its own apiVersion and kind.
pub fn builtin(object: &Value) -> Option<Builtin> {
    let text = |field: &str| object.get(field)?.as_str();
    types()
        .kinds
        .get(&(text("apiVersion")?, text("kind")?))
        .copied()
        .map(Builtin)
}

impl Builtin {
    pub(crate) fn root(self) -> Shape {
        Shape(types().structs_shape(self.0))
    }

    /// Whether an object converts to its Go type; unknown fields do not matter.
    pub fn fits(self, object: &Value) -> bool {
        fits_struct(&types().structs[self.0], object)
    }
}

impl Types {
    /// `#n` for struct `n`, without allocating: every number occurs in the table but for the kinds'.
    fn structs_shape(&self, number: usize) -> &'static str {
        static ROOTS: OnceLock<Vec<String>> = OnceLock::new();
        let roots = ROOTS.get_or_init(|| {
            (0..self.structs.len())
                .map(|number| format!("#{number}"))
                .collect()
        });
        &roots[number]
    }
}

impl Shape {
    /// The shape without the pointer around it.
    fn pointee(self) -> Self {
        Self(self.0.strip_prefix('*').unwrap_or(self.0))
    }

    fn as_struct(self) -> Option<&'static Struct> {
        let number = self.0.strip_prefix(['#', '!'])?.parse::<usize>().ok()?;
        types().structs.get(number)
    }

    /// Go's name of the kind.
    pub(super) fn go_kind(self) -> &'static str {
        match self.0.as_bytes().first() {
            Some(b's') => "string",
            Some(b'b') => "bool",
            Some(b'i') => "int32",
            Some(b'f') => "float64",
            Some(b'y' | b'[' | b'c') => "slice",
            Some(b'{') => "map",
            Some(b'a') => "interface",
            Some(b'*') => "ptr",
            _ => "struct",
        }
    }

    /// The shape and strategy of a map's field.
    pub(super) fn field(self, name: &str) -> Result<(Self, Strategy), MergeError> {
        let Some(own) = self.pointee().as_struct() else {
            // Time and its like are structs without fields of their own.
            return Err(match self.pointee().go_kind() {
                "struct" => MergeError::UnknownField {
                    type_name: "Time",
                    field: name.to_owned(),
                },
                kind => MergeError::NotAStruct(kind),
            });
        };
        let field = own
            .fields
            .iter()
            .find(|field| field.name == name)
            .or_else(|| {
                own.fields
                    .iter()
                    .find(|f| f.name.eq_ignore_ascii_case(name))
            })
            .ok_or_else(|| MergeError::UnknownField {
                type_name: own.name,
                field: name.to_owned(),
            })?;
        let mut strategies = field.strategies.split('+');
        let (first, second) = (
            strategies.next().unwrap_or(""),
            strategies.next().unwrap_or(""),
        );
        let retain_keys = first == "retainKeys" || second == "retainKeys";
        let kind = if first == "retainKeys" { second } else { first };
        Ok((
            field.shape,
            Strategy {
                retain_keys,
                kind,
                merge_key: field.merge_key,
            },
        ))
    }

    /// The shape of a list's elements and the list's strategy.
    pub(super) fn list_field(self, name: &str) -> Result<(Self, Strategy), MergeError> {
        let (shape, strategy) = self.field(name)?;
        match shape.0.as_bytes().first() {
            Some(b'[') => Ok((Self(&shape.0[1..]), strategy)),
            Some(b'y') => Ok((Self("i"), strategy)),
            Some(b'*') => {
                let pointee = shape.pointee();
                Ok((
                    Self(pointee.0.strip_prefix('[').unwrap_or(pointee.0)),
                    strategy,
                ))
            }
            _ => Err(MergeError::NotAList),
        }
    }

    /// The shape of what has this name, with its strategy where it is a field; nothing where there is no such field, and within where the type
    /// does not say.
    pub(crate) fn child(self, name: &str) -> Option<Option<(Self, Option<Strategy>)>> {
        if let Some(value) = self.pointee().0.strip_prefix('{') {
            return Some(Some((Self(value), None)));
        }
        match self.field(name) {
            Ok((shape, strategy)) => Some(Some((shape, Some(strategy)))),
            Err(MergeError::UnknownField { .. }) => None,
            Err(_) => Some(None),
        }
    }

    /// The shape of a list's elements.
    pub(crate) fn element(self) -> Option<Self> {
        self.pointee().0.strip_prefix('[').map(Self)
    }

    /// Whether a field that is zero is one that is not there, for which the API server may have a default.
    pub(crate) fn is_none(self, desired: &Value) -> bool {
        let is_zero = match desired {
            Value::Null => return true,
            Value::Bool(yes) => !yes,
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
        };
        is_zero && !self.0.starts_with('*')
    }

    /// Whether `live` is `desired` in the API server's form, which has its own of quantities, times and bytes.
    pub(crate) fn is_same(self, live: &Value, desired: &Value) -> bool {
        fn both<T>(values: [&Value; 2], read: impl Fn(&Value) -> Option<T>) -> Option<[T; 2]> {
            let [live, desired] = values.map(read);
            Some([live?, desired?])
        }
        let values = [live, desired];
        let same = match self.pointee().0.as_bytes().first() {
            Some(b'q') => both(values, quantity)
                .map(|[live, desired]| (live - desired).abs() <= live.abs() * 1e-9),
            Some(b'y') => both(values, |text| golib::base64::decode(text.as_str()?).ok())
                .map(|[live, desired]| live == desired),
            Some(b't' | b'm') => both(values, |text| {
                text.as_str()?.parse::<jiff::Timestamp>().ok()
            })
            .map(|[live, desired]| live == desired),
            _ => None,
        };
        same.unwrap_or_else(|| is_equal(live, desired))
    }

    /// Whether a value converts to this shape, as `FromUnstructured` does it.
    fn fits(self, value: &Value) -> bool {
        if value.is_null() {
            return true;
        }
        match self.0.as_bytes().first() {
            Some(b's') => value.is_string(),
            Some(b'b') => value.is_boolean(),
            Some(b'i') => value.is_i64() || value.is_u64(),
            Some(b'f') => value.is_number(),
            Some(b'y') => value.as_str().is_some_and(is_base64),
            Some(b't' | b'm') => value.as_str().is_some_and(is_time),
            Some(b'd') => value.is_string(),
            Some(b'q') => quantity(value).is_some(),
            Some(b'x') => value.is_i64() || value.is_u64() || value.is_string(),
            Some(b'*') => self.pointee().fits(value),
            Some(b'[') => value
                .as_array()
                .is_some_and(|list| list.iter().all(|item| Self(&self.0[1..]).fits(item))),
            Some(b'{') => value
                .as_object()
                .is_some_and(|map| map.values().all(|item| Self(&self.0[1..]).fits(item))),
            Some(b'#') => self.as_struct().is_some_and(|own| fits_struct(own, value)),
            // Any value, and types that read JSON themselves and take what we cannot judge.
            _ => true,
        }
    }
}

fn fits_struct(own: &Struct, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => own.fields.iter().all(|field| {
            map.get(field.name)
                .is_none_or(|value| field.shape.fits(value))
        }),
        _ => false,
    }
}

fn is_base64(text: &str) -> bool {
    golib::base64::decode(text).is_ok()
}

fn is_time(text: &str) -> bool {
    text.parse::<jiff::Timestamp>().is_ok()
}

/// A resource quantity: a number, or text of one with an SI, binary or exponent suffix.
fn quantity(value: &Value) -> Option<f64> {
    const SUFFIXES: [(&str, f64); 16] = [
        ("", 1.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("E", 1e18),
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("Ei", 1_152_921_504_606_846_976.0),
    ];
    let Value::String(text) = value else {
        return value.as_f64();
    };
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.');
    let end = text.find(|c| !is_number(c)).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    match SUFFIXES.iter().find(|(known, _)| *known == suffix) {
        Some((_, scale)) => Some(number.parse::<f64>().ok()? * scale),
        None if suffix.starts_with(['e', 'E']) => text.parse().ok(),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[test]
    fn container_ports_merge_by_port_and_volumes_retain_keys() {
        let pod = builtin(&json!({"apiVersion": "v1", "kind": "Pod"}))
            .unwrap()
            .root();
        let (spec, _) = pod.field("spec").unwrap();
        let (_, volumes) = spec.list_field("volumes").unwrap();
        assert_eq!(
            (volumes.retain_keys, volumes.kind, volumes.merge_key),
            (true, "merge", "name")
        );
        let (container, _) = spec.list_field("containers").unwrap();
        let (_, ports) = container.list_field("ports").unwrap();
        assert_eq!((ports.kind, ports.merge_key), ("merge", "containerPort"));
    }

    #[test]
    fn every_line_of_the_table_is_understood() {
        let types = types();
        assert!(types.kinds.len() > 100 && types.structs.len() > 800);
        assert!(
            types
                .kinds
                .values()
                .all(|number| *number < types.structs.len())
        );
    }

    #[rstest]
    #[case::text_for_a_number(json!({"spec": {"replicas": "5"}}), false)]
    #[case::unknown_field(json!({"spec": {"zzz": "5"}}), true)]
    #[case::int_or_string(json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": "25%"}}}}), true)]
    fn an_object_fits_its_type_or_not(#[case] part: Value, #[case] expected: bool) {
        let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        object["spec"] = part["spec"].clone();
        assert_eq!(builtin(&object).unwrap().fits(&object), expected);
    }

    #[rstest]
    #[case("1", true)]
    #[case("100m", true)]
    #[case("1.5Gi", true)]
    #[case("-2", true)]
    #[case("1e3", true)]
    #[case("12E", true)]
    #[case("1E2", true)]
    #[case("", false)]
    #[case("x", false)]
    #[case("1KB", false)]
    #[case("1.2.3", false)]
    fn quantities(#[case] text: &str, #[case] expected: bool) {
        assert_eq!(quantity(&text.into()).is_some(), expected);
    }
}
