//! What is fuzzed. A target panics when something does not hold that has to; it never takes long.

use std::rc::Rc;
use std::sync::Arc;

use golib::regexp::{Regexp, Steps};
use golib::{json, yaml};
use serde_json::Value as Json;
use templating::value::Value;
use templating::{Dialect, Error, Host, Limits, List, Map, Renderer, TemplateSet};

use crate::Choices;
use crate::grammar::{self, Vocabulary};

/// A target by its name.
pub type Target = fn(&[u8]);

pub const TARGETS: [(&str, Target); 5] = [
    ("parse", parse),
    ("execute", execute),
    ("yaml", yaml),
    ("regexp", regexp),
    ("printf", printf),
];

/// Little enough that a case which uses it all up takes a fraction of a second.
const LIMITS: Limits = Limits {
    steps: 300_000,
    bytes: 4 << 20,
    text: 4 << 20,
    output: 4 << 20,
    memory: 32 << 20,
    template_depth: 1_000,
    include_depth: 100,
    stack_bytes: 1 << 20,
};

/// A world that never changes.
struct StillWorld;

impl Host for StillWorld {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }

    fn fill_random(&self, buffer: &mut [u8]) {
        for (number, byte) in buffer.iter_mut().enumerate() {
            *byte = number as u8;
        }
    }
}

fn show(error: &Error) {
    assert!(!error.to_string().is_empty());
    assert!(!error.pretty().is_empty());
}

/// Any bytes are a template or an error.
pub fn parse(data: &[u8]) {
    let Some((&first, text)) = data.split_first() else {
        return;
    };
    let set = match first % 4 {
        0 | 1 => Dialect::Helm.template_set("t"),
        2 => Dialect::Fleet.template_set("t"),
        _ => Dialect::Helm.template_set("t").with_delims("<", ">"),
    };
    let mut set = set;
    if let Err(error) = set.parse("t", text) {
        show(&error);
    }
}

/// A random template either gives the same output whenever it is rendered, within the limits, or an error.
pub fn execute(data: &[u8]) {
    let mut choices = Choices::new(data);
    let (vocabulary, dialect) = match choices.below(4) {
        0 => (Vocabulary::Fleet, Dialect::Fleet),
        1 => (Vocabulary::Helm, Dialect::Helm),
        _ => (Vocabulary::Everything, Dialect::Helm),
    };
    let case = grammar::case(&mut choices, vocabulary);
    let mut set = dialect.template_set("t");
    let others = case.others.iter().map(|(name, text)| (&**name, text));
    for (name, text) in others.chain([("t", &case.template)]) {
        if let Err(error) = set.parse(name, text.as_str()) {
            show(&error);
            return;
        }
    }
    let set = Arc::new(set);
    let first = render(&set, &Value::from(&case.data));
    if let Err(error) = &first {
        show(error);
    }
    let is_repeatable = vocabulary != Vocabulary::Everything;
    if is_repeatable && !first.as_ref().is_err_and(Error::is_limit) {
        let text = |result: Result<Vec<u8>, Error>| result.map_err(|error| error.to_string());
        assert_eq!(text(first), text(render(&set, &Value::from(&case.data))));
    }
}

fn render(set: &Arc<TemplateSet>, dot: &Value) -> Result<Vec<u8>, Error> {
    let output = Renderer::new(Arc::clone(set), &StillWorld, LIMITS).render("t", dot)?;
    assert!(output.len() as u64 <= LIMITS.bytes);
    Ok(output)
}

/// Any bytes are YAML or an error, and what we write reads as what it was.
pub fn yaml(data: &[u8]) {
    let mut choices = Choices::new(data);
    match choices.below(3) {
        0 => read_yaml(choices.rest()),
        1 => read_yaml(grammar::yaml_text(&mut choices).as_bytes()),
        _ => write_yaml(&grammar::value(&mut choices, 5)),
    }
}

fn read_yaml(text: &[u8]) {
    let _ = yaml::decode_strict(text);
    let _ = yaml::decode_into_map(text);
    let _ = yaml::decode_into_list(text);
    let all = yaml::decode_all(text);
    if let Ok(value) = yaml::decode(text) {
        write_yaml(&value);
        if let Ok(all) = all {
            assert!(all.len() < 2 || all.first() == Some(&value));
        }
    }
    if let Ok(value) = yaml::decode_floats(text) {
        write_yaml(&value);
    }
}

/// What yaml.v2 writes so that it reads something else: the line breaks of YAML 1.1 beside the newline, which become
/// spaces, and the key `<<`, which becomes a merge.
const UNFAITHFUL: [&str; 4] = ["\u{85}", "\u{2028}", "\u{2029}", "\"<<\""];

/// What is written reads as the same value. Numbers may come back as integers; they are compared as Go holds them.
fn write_yaml(value: &Json) {
    if let Ok(text) = yaml::encode(value)
        && UNFAITHFUL
            .iter()
            .all(|part| !value.to_string().contains(part))
    {
        let again = yaml::decode(text.as_bytes());
        let again = again.map(json::floats).map_err(|error| error.to_string());
        assert_eq!(
            again,
            Ok(json::floats(value.clone())),
            "written as {text:?}"
        );
    }
    let _ = yaml::decode(yaml::encode_pretty(value).as_bytes());
}

/// Any pattern compiles or is refused; matches lie in the text, in order and between characters.
pub fn regexp(data: &[u8]) {
    let mut choices = Choices::new(data);
    let (pattern, text);
    if choices.chance(30) {
        let cut = choices.below(64);
        let rest = choices.rest();
        let (head, tail) = rest.split_at(cut.min(rest.len()));
        (pattern, text) = (head.to_vec(), tail.to_vec());
    } else {
        pattern = grammar::pattern(&mut choices).into_bytes();
        text = grammar::subject(&mut choices).into_bytes();
    }
    let regexp = match Regexp::compile(&pattern) {
        Ok(regexp) => regexp,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let steps = &mut Steps::new(u64::MAX);
    let found = regexp.find_all(&text, -1, steps).expect("unlimited");
    let mut end = 0;
    for range in &found {
        assert!(end <= range.start && range.start <= range.end && range.end <= text.len());
        end = range.end;
    }
    assert_eq!(regexp.find(&text, steps), Ok(found.first().cloned()));
    assert_eq!(regexp.is_match(&text, steps), Ok(!found.is_empty()));
    let first = regexp.find_all(&text, 1, steps).expect("unlimited");
    assert_eq!(first.len(), found.len().min(1));
    let same = regexp.replace_all(&text, b"$0", usize::MAX, steps);
    let same = same.expect("unlimited");
    assert!(std::str::from_utf8(&text).is_err() || same.as_ref() == Some(&text));
    let _ = regexp.replace_all(&text, b"${1}x$n", usize::MAX, steps);
    let kept = regexp.replace_all_literal(&text, b"", usize::MAX, steps);
    let kept = kept.expect("unlimited").unwrap_or_default();
    assert!(kept.len() <= text.len() || std::str::from_utf8(&text).is_err());
    let parts = regexp.split(&text, -1, steps).expect("unlimited");
    assert!(parts.iter().map(|part| part.len()).sum::<usize>() <= text.len());
}

/// Any format with any values gives a text.
pub fn printf(data: &[u8]) {
    let mut choices = Choices::new(data);
    let format = match choices.chance(30) {
        true => {
            let cut = choices.below(32);
            let rest = choices.rest();
            let head = rest[..cut.min(rest.len())].to_vec();
            choices = Choices::new(&rest[head.len()..]);
            Value::string(&head[..])
        }
        false => Value::string(grammar::printf_format(&mut choices, true)),
    };
    let args: Vec<Value> = (0..choices.below(4))
        .map(|_| any_kind(&mut choices, 2))
        .collect();
    let mut text = "{{ printf .f".to_owned();
    let dot = Map::new();
    let set = |key: String, value| assert!(dot.insert(key, value).is_ok());
    for (number, arg) in args.into_iter().enumerate() {
        text.push_str(&format!(" .a{number}"));
        set(format!("a{number}"), arg);
    }
    text.push_str(" }}");
    set("f".to_owned(), format);
    let mut templates = Dialect::Helm.template_set("t");
    assert!(templates.parse("t", text).is_ok());
    match render(&Arc::new(templates), &dot.clone().into()) {
        Ok(_) => {}
        Err(error) => assert!(
            error
                .chain()
                .any(|e| e.to_string().contains("limit") || e.is_limit()),
            "{error}"
        ),
    }
}

/// A value of any of Go's kinds.
fn any_kind(choices: &mut Choices<'_>, depth: usize) -> Value {
    let bits = |choices: &mut Choices<'_>| {
        (0..8).fold(0_u64, |bits, _| bits << 8 | u64::from(choices.byte()))
    };
    match choices.below(if depth == 0 { 13 } else { 15 }) {
        0 => Value::Nil,
        1 => Value::Bool(choices.below(2) == 1),
        2 => Value::Int(bits(choices) as i64),
        3 => Value::Int(choices.below(100) as i64 - 50),
        4 => Value::Int32(bits(choices) as i32),
        5 => Value::Int64(bits(choices) as i64),
        6 => Value::Uint8(choices.byte()),
        7 => Value::Uint64(bits(choices)),
        8 => Value::Float(f64::from_bits(bits(choices))),
        9 => Value::Complex(f64::from_bits(bits(choices)), 1.5),
        10 => Value::string(grammar::words(choices)),
        11 => Value::string(&bits(choices).to_be_bytes()[..]),
        12 => Value::Bytes((choices.below(4) > 0).then(|| Rc::new(grammar::words(choices).into()))),
        13 => List::new(
            (0..choices.below(4))
                .map(|_| any_kind(choices, depth - 1))
                .collect(),
        )
        .into(),
        _ => Map::from_iter([
            ("a", any_kind(choices, depth - 1)),
            ("b", any_kind(choices, depth - 1)),
        ])
        .into(),
    }
}
