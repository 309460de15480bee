//! Random values, written as YAML and as what follows `--set`.

use super::dice::Dice;

/// Few keys, so that parents, subcharts and flags meet; the names of subcharts are among them.
pub(crate) const KEYS: [&str; 14] = [
    "a", "b", "c", "x", "y", "one", "two", "three", "global", "global", "tags", "enabled",
    "exports", "data",
];

const SCALARS: [&str; 34] = [
    "1",
    "0",
    "-7",
    "1.5",
    "1e3",
    "010",
    "0x1F",
    "12345678901234567890",
    "1_000",
    "true",
    "false",
    "yes",
    "off",
    "null",
    "~",
    "",
    "text",
    "two words",
    "\"quoted\"",
    "'single'",
    "'it''s'",
    "\"\\n\"",
    "!!str 5",
    "2020-01-01",
    ".5",
    ".inf",
    "0o7",
    "1:30",
    "'#'",
    "äöü",
    "\"null\"",
    "'0'",
    "9007199254740993",
    "1e400",
];

/// A YAML mapping in block style, its lines indented by `indent`.
pub(crate) fn mapping(dice: &mut Dice, indent: usize, depth: usize) -> String {
    let mut text = String::new();
    let mut used = Vec::new();
    for _ in 0..1 + dice.below(5) {
        let key = dice.pick(&KEYS);
        if used.contains(&key) && !dice.chance(2) {
            continue;
        }
        used.push(key);
        text.push_str(&" ".repeat(indent));
        text.push_str(key);
        text.push(':');
        text.push_str(&value(dice, indent, depth, key));
    }
    text
}

/// What follows `key:`, with the end of the line.
fn value(dice: &mut Dice, indent: usize, depth: usize, key: &str) -> String {
    if key == "tags" && dice.chance(80) {
        return tags(dice, indent + 2);
    }
    let is_table = matches!(key, "global" | "one" | "two" | "three" | "exports" | "data");
    match dice.below(if is_table { 20 } else { 10 }) {
        0 => " {}\n".to_owned(),
        1 => " null\n".to_owned(),
        2 => format!(" {}\n", flow(dice, 2)),
        3 => format!(" |\n{0}one\n\n{0}two\n", " ".repeat(indent + 2)),
        4..7 => format!(" {}\n", dice.pick(&SCALARS)),
        7 if depth > 0 => {
            let mut text = "\n".to_owned();
            for _ in 0..1 + dice.below(3) {
                text.push_str(&format!("{}- {}\n", " ".repeat(indent), flow(dice, 1)));
            }
            text
        }
        _ if depth > 0 => format!("\n{}", mapping(dice, indent + 2, depth - 1)),
        _ => format!(" {}\n", dice.pick(&SCALARS)),
    }
}

fn tags(dice: &mut Dice, indent: usize) -> String {
    let mut text = "\n".to_owned();
    for tag in ["front", "back"] {
        let state = dice.mostly(&["true", "false"], &["\"true\"", "null", "1"]);
        text.push_str(&format!("{}{tag}: {state}\n", " ".repeat(indent)));
    }
    text
}

fn flow(dice: &mut Dice, depth: usize) -> String {
    let plain = ["1", "true", "text", "null", "1.5", "\"q\"", "'s'", "-3"];
    match dice.below(if depth > 0 { 4 } else { 2 }) {
        2 => {
            let items: Vec<String> = (0..dice.below(4)).map(|_| flow(dice, depth - 1)).collect();
            format!("[{}]", items.join(", "))
        }
        3 => {
            let mut items = Vec::new();
            for key in &KEYS[..dice.below(4)] {
                items.push(format!("{key}: {}", flow(dice, depth - 1)));
            }
            format!("{{{}}}", items.join(", "))
        }
        _ => dice.pick(&plain).to_owned(),
    }
}

/// What follows `--set`.
pub(crate) fn expression(dice: &mut Dice) -> String {
    let mut parts = Vec::new();
    for _ in 0..1 + dice.below(3) {
        let value = dice.mostly(
            &[
                "1",
                "true",
                "null",
                "text",
                "",
                "{1,b,null}",
                "{}",
                "a b",
                "1.5",
                "007",
                "0",
                "-1",
                "[1]",
                "{\"a\":1}",
            ],
            &[
                "{1,{2,3}}",
                "{",
                "a\\,b",
                "a=b",
                "\\",
                "TRUE",
                "Null",
                "1e3",
                "99999999999999999999",
                "\"q\"",
                "ä",
                "{a\\,b}",
                "{1,2}x",
                " 1",
            ],
        );
        let assign = dice.mostly(&["="], &["", " = ", "=="]);
        parts.push(format!("{}{assign}{value}", place(dice)));
    }
    let join = dice.mostly(&[","], &[",,", ", ", ";"]);
    parts.join(join)
}

/// A path such as `a.b[1].c`.
pub(crate) fn place(dice: &mut Dice) -> String {
    let mut path = String::new();
    for at in 0..1 + dice.below(3) {
        if at > 0 {
            path.push('.');
        }
        path.push_str(dice.pick(&KEYS));
        if dice.chance(15) {
            let index = dice.mostly(
                &["0", "1", "2"],
                &["-1", "5", "x", "", "65537", "01", " 1", "1e1"],
            );
            path.push_str(&format!("[{index}]"));
            if dice.chance(20) {
                path.push_str("[0]");
            }
        }
    }
    match dice.below(60) {
        0 => path.push('.'),
        1 => path.insert(0, '.'),
        2 => path.push_str("\\.z"),
        3 => path.push(']'),
        4 => path.push_str("[1"),
        5 => path.clear(),
        _ => {}
    }
    path
}

/// What follows `--set-json`.
pub(crate) fn json_expression(dice: &mut Dice) -> String {
    let json = [
        "1",
        "null",
        "\"x\"",
        "[1,{\"a\":null}]",
        "{\"a\":{\"b\":[]}}",
        "true",
        "1.0",
        "1e2",
        "12345678901234567890",
        "{",
        "",
        "nul",
        "[1,]",
        "\"\\u00e4\"",
        "{\"a\":1,\"a\":2}",
        " {\"b\": 2} ",
    ];
    if dice.chance(20) {
        let whole = [
            "{\"a\":{\"b\":1}}",
            "{\"global\":{\"x\":null}}",
            "{\"one\":{\"a\":[1,2]}}",
            "{\"a\":1",
            "{}",
            "{\"a\":1}{\"b\":2}",
        ];
        return dice.pick(&whole).to_owned();
    }
    let first = format!("{}={}", place(dice), dice.pick(&json));
    if dice.chance(20) {
        return format!("{first},{}={}", place(dice), dice.pick(&json));
    }
    first
}
