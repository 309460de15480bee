//! The public functions on hostile and on ordinary text. Conformance is shown by the recorded vectors.

use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn reads_yaml_1_1() {
    let text =
        b"y: 2\noctal: 010\nsexagesimal: 190:20:30\nbig: 18446744073709551615\nf: 1e3\n? [] \n";
    assert!(decode(text).is_err());
    let value =
        decode(b"y: 2\noctal: 010\nbase60: 1:2\nbig: 18446744073709551615\nf: 1e3\n").unwrap();
    assert_eq!(
        value,
        json!({"true": 2, "octal": 8, "base60": "1:2", "big": u64::MAX, "f": 1000.0})
    );
    assert_eq!(decode(b"").unwrap(), Value::Null);
    assert_eq!(
        decode_all(b"a: 1\n---\n- b\n...\n").unwrap(),
        [json!({"a": 1}), json!(["b"])]
    );
}

#[test]
fn byte_order_marks_at_the_beginning_hide_no_line() {
    for marks in ["", "\u{feff}", "\u{feff}\u{feff}"] {
        let text = format!("{marks}a: 1\nb: 2\n");
        assert_eq!(decode(text.as_bytes()).unwrap(), json!({"a": 1, "b": 2}));
    }
    let below = decode("a: 1\n\u{feff}b: 2\n".as_bytes()).unwrap();
    assert_eq!(below, json!({"a": 1, "\u{feff}b": 2}));
}

#[test]
fn a_text_key_wins_over_a_key_that_reads_alike() {
    for text in ["1: number\n\"1\": text\n", "\"1\": text\n1: number\n"] {
        assert_eq!(decode(text.as_bytes()).unwrap(), json!({"1": "text"}));
    }
}

/// `a10` before `a1b` before `a2` before `a10`, by Go's rules.
#[test]
fn keys_in_a_circle_are_written_in_one_order() {
    let written = encode(&json!({"a2": 1, "a1b": 2, "a10": 3})).unwrap();
    assert_eq!(written, "a2: 1\na10: 3\na1b: 2\n");
}

#[test]
fn keys_of_a_map_that_an_error_shows_are_in_order_of_their_types() {
    let error = decode(b"? {b: 1, 1.5: 2, 3: 3, true: 4}\n: v\n").unwrap_err();
    let shown = "map[interface {}]interface {}{true:4, 3:3, 1.5:2, \"b\":1}";
    assert!(error.to_string().ends_with(shown), "{error}");
}

#[test]
fn a_merge_key_overrides_only_what_stands_before_it() {
    let text = b"a: &a {x: 1, y: 2}\nb: {x: 0, <<: *a, y: 3}\n";
    assert_eq!(decode(text).unwrap()["b"], json!({"x": 1, "true": 3}));
}

#[test]
fn nesting_is_bounded_and_needs_no_stack() {
    // On a thread of 2 MiB, as tests have: what is decoded is cloned, compared, printed and dropped by recursion.
    for (opening, closing) in [("[", "]"), ("{a: ", "}")] {
        let levels = crate::budget::MAX_DEPTH - 1;
        let text = format!("{}{}", opening.repeat(levels), closing.repeat(levels));
        let value = decode(text.as_bytes()).unwrap();
        let copy = value.clone();
        assert_eq!(value, copy);
        assert_eq!(decode(encode(&copy).unwrap().as_bytes()), Ok(value));
        for deeper in [2, 9_000] {
            let text = format!("{}{text}{}", opening.repeat(deeper), closing.repeat(deeper));
            let error = decode(text.as_bytes()).unwrap_err().to_string();
            assert!(error.ends_with("exceeded max depth"), "{error}");
        }
    }
    for opening in ["[", "{a: ", "- ", "? "] {
        let error = decode(opening.repeat(100_000).as_bytes()).unwrap_err();
        assert!(
            error.to_string().ends_with("exceeded max depth of 10000"),
            "{error}"
        );
    }
}

/// Reading only some entries, and by way of nodes, gives what reading everything gives, and fails where that fails.
fn ways_of_reading_agree(text: &[u8]) {
    let selected = ["kind", "metadata"];
    let is_selected = |key: &str| selected.iter().any(|name| name.eq_ignore_ascii_case(key));
    let strip = |value: Value| match value {
        Value::Object(mut entries) => {
            entries.retain(|key, _| is_selected(key));
            Value::Object(entries)
        }
        other => other,
    };
    let shown = String::from_utf8_lossy(text);
    let by_nodes = |strict| {
        let raw = read(&reader::read(text), strict, &mut Budget::default())?;
        raw.into_json(Target::Any)
    };
    let all = decode(text);
    assert_eq!(all, by_nodes(false), "{shown}");
    assert_eq!(decode_strict(text), by_nodes(true), "strictly: {shown}");
    let keep = |path: &[&str]| path.len() > 1 || path.iter().any(|key| is_selected(key));
    let mut budget = Budget::default();
    let some = Decoder::new()
        .strict()
        .filter(&keep)
        .decode(text, &mut budget);
    assert_eq!(some.map(strip), by_nodes(true).map(strip), "{shown}");
    assert_eq!(
        decode_floats(text),
        all.clone().map(json::floats),
        "floats: {shown}"
    );
    let some = decode_entries(text, &selected);
    assert_eq!(some.map(strip), all.map(strip), "{shown}");
    if let Ok(documents) = decode_all(text) {
        let first = documents.into_iter().next().unwrap_or_default();
        assert_eq!(decode(text), Ok(first), "{shown}");
    }
}

/// A repeated key is an error also where its value is skipped.
#[test]
fn a_repeated_key_is_refused_even_where_its_value_is_skipped() {
    for text in [
        "b: 1\nb: 2",
        "b: {}\nkind: a\nb: ~[",
        "metadata: {}\nb: 1\n'b': 2",
    ] {
        ways_of_reading_agree(text.as_bytes());
    }
}

#[test]
fn values_are_handed_out_one_at_a_time() {
    let handed = |text: &str, bytes| {
        let got = std::cell::RefCell::new(Vec::new());
        let selected = |path: &[&str]| matches!(path, ["a", _]);
        let take = |path: &[&str], value| got.borrow_mut().push((path.join("."), value));
        let rest = Decoder::new()
            .strict()
            .extract(&selected, &take)
            .decode(text.as_bytes(), &mut Budget::new(bytes));
        (rest, got.take())
    };
    let item = format!("[{}]", ["1"; 20].join(", "));
    let text = format!("a:\n  p: {item}\n  q: {item}\n  r: {item}\nb: {{p: 1}}\n");
    let enough = (1..)
        .map(|n| n * 100)
        .find(|bytes| handed(&text, *bytes).0.is_ok());
    let enough = enough.expect("some room is enough");
    let whole = Decoder::new().decode(text.as_bytes(), &mut Budget::new(enough));
    assert!(matches!(whole, Err(Error::TooLarge(_))));
    let (rest, got) = handed(&text, enough);
    let list = Value::from(vec![1; 20]);
    assert_eq!(
        rest.expect("one fits"),
        json!({"a": {"p": null, "q": null, "r": null}, "b": {"p": 1}})
    );
    let want = ["a.p", "a.q", "a.r"].map(|path| (path.to_owned(), list.clone()));
    assert_eq!(got, want);
    assert!(matches!(handed(&text, 100).0, Err(Error::TooLarge(_))));
    let twice = handed("a: {p: 1, p: 2}\n", 100_000).0.expect_err("twice");
    assert!(twice.to_string().contains("already set"), "{twice}");
    let (rest, _) = handed("a: {p: &x 1, q: *x}\n", 100_000);
    assert_eq!(rest, Ok(json!({"a": {"p": 1, "q": 1}})));
}

#[test]
fn entries_alone_read_as_within_the_whole() {
    for text in [
        "kind: A\nspec: [1, {a: b}]\nmetadata: {name: x, n: 1.5, l: [a, ~]}\n",
        "Kind: A\nkind: 1\nKIND: ~\nother: {a: b: c}\n",
        "kind: &a A\nmetadata: *a\n",
        "kind: a\n<<: {metadata: 1}\n",
        "kind: a\nspec: {<<: {a: 1}}\n",
        "kind: a\nspec: {[a]: 1}\n",
        "kind: a\nspec: {~: 1}\n",
        "kind: a\nspec: {b: .inf}\n",
        "kind: a\nspec: !!int x\n",
        "kind: a\nspec: *missing\n",
        "kind: a\nspec: [a\n",
        "kind: a\nkind: b\n---\n[broken",
        "kind: |\n  a\n  b\nspec: >\n  c\n  d\n",
        "- kind\n",
        "kind",
        "",
        "? kind\n: a\n? [x]\n: b\n",
        "18446744073709551615: a\nkind: b\n",
        "y: a\n1: b\n0x10: c\n",
        "1: a\n'1': b\n0x1: c\nmetadata: {true: 1, 'true': 2}\n",
        "a: 1\na: 2\nspec: {b: 1, b: 2}\n",
        "a: &x [1]\n---\nb: *x\n",
        "'<<': {a: 1}\nb: [18446744073709551615, -1, 1_000, 1e3, 2001-01-01]\n",
    ] {
        ways_of_reading_agree(text.as_bytes());
    }
}

#[test]
fn alias_bombs_are_refused() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..30 {
        let below = format!("*a{}, ", level - 1).repeat(10);
        text.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    let error = decode(text.as_bytes()).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("document contains excessive aliasing")
    );

    let large = format!(
        "a: &a {}\nb: [{}]\n",
        "x".repeat(1 << 20),
        "*a, ".repeat(500)
    );
    let error = decode(large.as_bytes()).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("document contains excessive aliasing")
    );
}

#[test]
fn a_document_that_would_fill_the_memory_is_refused() {
    for (most, text) in [
        ("maps", "{a: b}, ".repeat(200_000)),
        ("lists", "a, ".repeat(4_000_000)),
        ("nodes that anchors may name", "&a b, ".repeat(1_000_000)),
        ("text", format!("\"{}\"", "a".repeat(65 << 20))),
    ] {
        for text in [format!("[{text}]"), format!("a: [{text}]")] {
            let error = decode(text.as_bytes()).unwrap_err().to_string();
            assert!(
                error.ends_with(&format!("takes more than 48 MiB, most of it {most}")),
                "{error}"
            );
        }
    }
    // What is not wanted weighs nothing.
    let text = format!("a: [{}]\nb: 1\n", "{a: b}, ".repeat(200_000));
    assert_eq!(
        decode_entries(text.as_bytes(), &["b"]),
        Ok(serde_json::json!({"b": 1}))
    );
    // Megabytes of what charts really hold are fine.
    let rule = "- alert: KubePodCrashLooping\n  annotations:\n    description: Pod {{ $labels.pod }} is in waiting state.\n    \
                summary: Pod is crash looping.\n  expr: 'max_over_time(kube_pod_status{reason=\"x\"}[5m]) >= 1'\n  for: 15m\n";
    let rules = rule.repeat((4 << 20) / rule.len());
    assert!(decode(rules.as_bytes()).is_ok());
    // One budget may serve several documents.
    let mut budget = Budget::new(10 << 20);
    let decoder = Decoder::new();
    let some = &rules.as_bytes()[..rule.len() * 5000];
    assert!(decoder.decode(some, &mut budget).is_ok());
    let spent = budget.spent();
    assert!(spent > 5 << 20, "{spent}");
    assert!(decoder.decode(some, &mut budget).is_err());
}

#[test]
fn large_texts_take_linear_time() {
    let keys: String = (0..5_000)
        .map(|n| format!("key{n}: [1, {{a: b}}, \"c\"]\n"))
        .collect();
    let value = decode(keys.as_bytes()).unwrap();
    assert_eq!(value.as_object().unwrap().len(), 5_000);
    let handles = 0..100_000;
    let directives: String = handles
        .clone()
        .map(|n| format!("%TAG !h{n}! x\n"))
        .collect();
    let tagged: String = handles.map(|n| format!("- !h{n}!y {n}\n")).collect();
    let text = format!("{directives}---\n{tagged}");
    let value = decode(text.as_bytes()).unwrap();
    assert_eq!(value.as_array().unwrap().len(), 100_000);
    let scalar = format!("a: |\n{}", "  line of text\n".repeat(10_000));
    assert_eq!(
        decode(scalar.as_bytes()).unwrap()["a"]
            .as_str()
            .unwrap()
            .len(),
        130_000
    );
}

#[test]
fn writes_as_yaml_v2_and_v3() {
    let value =
        json!({"b10": [1, {"c": [], "d": "x\ny\n"}], "b9": "yes", "_": 1e6, "a": "it's: ok"});
    assert_eq!(
        encode(&value).unwrap(),
        "_: 1000000\na: 'it''s: ok'\nb9: \"yes\"\nb10:\n- 1\n- c: []\n  d: |\n    x\n    y\n"
    );
    assert_eq!(
        encode_pretty(&value),
        "_: 1e+06\na: 'it''s: ok'\nb9: \"yes\"\nb10:\n  - 1\n  - c: []\n    d: |\n      x\n      y\n"
    );
    assert_eq!(
        encode(&json!("\u{7f}")).unwrap_err().to_string(),
        "yaml: control characters are not allowed"
    );
}

/// Text made of what means something to YAML.
fn yaml_like() -> impl Strategy<Value = String> {
    let pieces = [
        "a",
        "b: ",
        "- ",
        "? ",
        ": ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "\n",
        "\n  ",
        "\t",
        "'",
        "\"",
        "\\",
        "\\x4",
        "|",
        ">-",
        "|2\n",
        "#",
        " #",
        "&a ",
        "*a",
        "!!int ",
        "!<",
        "!",
        "%TAG ! ",
        "%YAML 1.1\n",
        "---\n",
        "...\n",
        "<<: ",
        "~",
        "0x",
        "1e3",
        ".inf",
        "\r\n",
        "\u{85}",
        "\u{2028}",
        "\u{feff}",
        "\u{1}",
        "é",
        "😀",
        "@",
    ];
    prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..30)
        .prop_map(|pieces| pieces.concat())
}

fn data() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("JSON has no such number", |f| f.is_finite())
            .prop_map(Value::from),
        any::<i32>().prop_map(|n| Value::from(f64::from(n) / 8.0)),
        "[ -~\n\u{a0}-\u{ff}😀]{0,120}".prop_map(Value::from),
    ];
    nested(scalar)
}

/// Data with strings that YAML cannot hold, or reads otherwise than JSON.
fn strange_data() -> impl Strategy<Value = Value> {
    let strange = "[\u{0}-\u{a0}\u{2028}\u{2029}\u{feff}\u{fffe}]{0,12}".prop_map(Value::from);
    nested(prop_oneof![4 => data(), 1 => strange])
}

fn nested(scalar: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Value> {
    scalar.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("[ -~\n]{0,20}|[a-c1-9]{0,3}|a{120,260}", inner, 0..6)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// Whether an object has the key that merges, which Go writes as it is and reads as that.
fn has_merge_key(value: &Value) -> bool {
    match value {
        Value::Object(entries) => entries.contains_key("<<") || entries.values().any(has_merge_key),
        Value::Array(values) => values.iter().any(has_merge_key),
        _ => false,
    }
}

/// As `sigs.k8s.io/yaml` does.
#[test]
fn a_key_that_merges_is_written_plain_and_read_as_a_merge() {
    let nothing = encode(&json!({ "<<": null })).unwrap();
    assert_eq!(nothing, "<<: null\n");
    let refused = decode(nothing.as_bytes()).unwrap_err().to_string();
    let expected = "map merge requires map or sequence of maps as the value";
    assert!(refused.contains(expected), "{refused}");
    assert_eq!(encode(&json!(["<<"])).unwrap(), "- <<\n");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(text in yaml_like(), bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        for input in [text.as_bytes(), &bytes] {
            if let Ok(value) = decode(input) {
                let _ = encode(&value);
                encode_pretty(&value);
            }
            let _ = decode_all(input);
            let _ = decode_strict(input);
            ways_of_reading_agree(input);
            ways_of_reading_agree(&[b"kind: a\nspec:\n", input].concat());
        }
    }

    #[test]
    fn writing_directly_agrees_with_writing_json_read_as_yaml(value in strange_data()) {
        assert_eq!(encode(&value), json_to_yaml(json::encode(&value).as_bytes()));
    }

    #[test]
    fn written_yaml_reads_back(value in data()) {
        prop_assume!(!has_merge_key(&value));
        let floats = json::floats(value.clone());
        prop_assert_eq!(&decode_floats(encode(&value).unwrap().as_bytes()).unwrap(), &floats);
        prop_assert_eq!(&decode_floats(encode_pretty(&value).as_bytes()).unwrap(), &floats);
    }
}

#[test]
fn a_tag_weighs_what_its_prefix_takes() {
    let prefix = "x".repeat(100_000);
    let text = format!("%TAG !h! {prefix}\n---\n{}", "- !h!y 1\n".repeat(1000));
    let error = node::parse(text.as_bytes(), &mut Budget::default()).unwrap_err();
    assert!(matches!(error, node::Error::TooLarge(_)), "{error}");
    assert!(matches!(decode(text.as_bytes()), Err(Error::TooLarge(_))));
}

/// What `json.Marshal` makes of `yaml.Unmarshal` into an `any`, recorded from go.yaml.in/yaml/v3 3.0.3.
#[test]
fn data_is_read_as_yaml_v3_reads_it() {
    const KEYS: &str = "json: unsupported type: map[interface {}]interface {}";
    const MERGE: &str = "yaml: map merge requires map or sequence of maps as the value";
    let cases = [
        (
            "x: yes\ny: on\nt: True",
            Ok(r#"{"t":true,"x":"yes","y":"on"}"#),
        ),
        ("d: 2026-01-02", Ok(r#"{"d":"2026-01-02T00:00:00Z"}"#)),
        ("[1, 2.0, 0o14, 014, 1e3]", Ok("[1,2,12,12,1000]")),
        ("---\n", Ok("null")),
        ("a", Ok(r#""a""#)),
        ("a: 1\n---\nb: [", Ok(r#"{"a":1}"#)),
        ("%YAML 1.1\n---\na: 1", Ok(r#"{"a":1}"#)),
        (
            "a: !!str 5\nb: !!int '5'\nc: !foo x",
            Ok(r#"{"a":"5","b":5,"c":"x"}"#),
        ),
        ("80: x", Err(KEYS)),
        ("~: x", Err(KEYS)),
        ("true: x", Err(KEYS)),
        ("a: {80: x}", Err(KEYS)),
        (
            "a: 1\na: 2",
            Err("yaml: unmarshal errors:\n  line 2: mapping key \"a\" already defined at line 1"),
        ),
        ("b: .inf", Err("json: unsupported value: +Inf")),
        (
            "b: &b {k: 1, l: 1}\nc: {l: 2, <<: *b}",
            Ok(r#"{"b":{"k":1,"l":1},"c":{"k":1,"l":2}}"#),
        ),
        (
            "b: &b {k: 1}\nd: &d {k: 2, m: 3}\nc: {<<: [*b, *d], n: 4}",
            Ok(r#"{"b":{"k":1},"c":{"k":1,"m":3,"n":4},"d":{"k":2,"m":3}}"#),
        ),
        (
            "b: &b {<<: {a: 1}, c: 2}\nd: {<<: *b, c: 3}",
            Ok(r#"{"b":{"a":1,"c":2},"d":{"a":1,"c":3}}"#),
        ),
        ("c: {<<: {80: x, ~: y}}", Ok(r#"{"c":{"80":"x"}}"#)),
        ("c: {\"<<\": 1}", Ok(r#"{"c":{"<<":1}}"#)),
        ("b: &b {80: x}\nc: {<<: *b}", Err(KEYS)),
        ("b: &b {x: {80: y}}\nc: {<<: *b, z: 1}", Err(KEYS)),
        ("b: &b [1]\nc: {<<: *b}", Err(MERGE)),
        ("c: {<<: 1}", Err(MERGE)),
        (
            "c: {<<: {a: 1, a: 2}, a: 3}",
            Err("yaml: unmarshal errors:\n  line 1: mapping key \"a\" already defined at line 1"),
        ),
    ];
    for (text, expected) in cases {
        let read = node::unmarshal(text.as_bytes(), &mut Budget::default());
        let read = read.map(|value| crate::json::encode(&value.unwrap()).replace("\\u003c", "<"));
        let read = read.map_err(|error| error.to_string());
        assert_eq!(read.as_deref().map_err(String::as_str), expected, "{text}");
    }
    for nothing in ["", "# c\n"] {
        let read = node::unmarshal(nothing.as_bytes(), &mut Budget::default());
        assert_eq!(read, Ok(None), "{nothing}");
    }
}

/// Each pair of equal keys quotes the key, and there are as many pairs as keys squared.
#[test]
fn of_repeated_keys_no_more_is_noted_than_is_read() {
    let repeated = |key: &str, times: usize| {
        let text = format!("? {key}\n: 1\n").repeat(times);
        let read = node::unmarshal(text.as_bytes(), &mut Budget::default());
        read.unwrap_err().to_string()
    };
    let noted = repeated(&"x".repeat(250_000), 91);
    assert!(noted.len() < 80_000, "{}", noted.len());
    let noted = repeated(&"x".repeat(5_000), 91);
    assert!((60_000..80_000).contains(&noted.len()), "{}", noted.len());
    assert_eq!(
        repeated("a", 3),
        "yaml: unmarshal errors:\n  line 3: mapping key \"a\" already defined at line 1\n  \
         line 5: mapping key \"a\" already defined at line 1\n  line 5: mapping key \"a\" already defined at line 3"
    );
}

/// Few nodes may stand for values that take many times as much: a map of one entry takes as much as one of eleven.
#[test]
fn values_count_beside_the_nodes_they_are_made_of() {
    let text = format!("l: [{}]", vec!["{a}"; 20_000].join(","));
    let mut nodes = Budget::default();
    node::parse(text.as_bytes(), &mut nodes).unwrap();
    let mut both = Budget::default();
    let value = node::unmarshal(text.as_bytes(), &mut both)
        .unwrap()
        .unwrap();
    let value = crate::budget::weigh(&value);
    assert!(value > nodes.spent());
    assert_eq!(both.spent(), value, "the nodes are gone");
    let weighed = node::unmarshal_weighed(text.as_bytes(), &mut both);
    let taken = weighed.map(|(_, taken)| taken);
    assert_eq!(taken, Ok(nodes.spent() + value));
    for limit in [value, nodes.spent() + value - 1] {
        let read = node::unmarshal(text.as_bytes(), &mut Budget::new(limit));
        assert!(matches!(read, Err(node::Error::TooLarge(_))), "{read:?}");
    }
    let mut enough = Budget::new(nodes.spent() + value);
    assert!(node::unmarshal(text.as_bytes(), &mut enough).is_ok());
    // What follows finds what was there before, and the values.
    let text = text.as_bytes();
    let read = node::unmarshal(text, &mut enough);
    assert!(matches!(read, Err(node::Error::TooLarge(_))));
}
