//! YAML, JSON and TOML, sometimes damaged.

use serde_json::Value as Json;

use super::texts::{CHARS, WORDS};
use super::values;
use crate::Choices;

/// JSON, sometimes damaged.
pub fn json_text(choices: &mut Choices<'_>) -> String {
    let text = match choices.chance(12) {
        true => choices
            .pick(&[
                "1e400",
                "-0",
                "01",
                "1.",
                ".1",
                "\"\\ud800\"",
                "\"\\u0000\"",
                "\"\\x\"",
                "[1,]",
                "{\"a\":1,\"a\":2}",
                "nul",
                "true false",
                "\"\t\"",
                "12345678901234567890",
                "1E+2",
                "{\"a\"}",
                "[",
                "{",
                "",
                " ",
                "\"",
                "-",
                "{\"a\":",
                "[1 2]",
                "\"\\ud83d\\ude00\"",
            ])
            .to_owned(),
        false => values::small_value(choices).to_string(),
    };
    damaged(choices, text)
}

fn damaged(choices: &mut Choices<'_>, text: String) -> String {
    if !choices.chance(20) {
        return text;
    }
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..=choices.below(3) {
        let at = choices.below(chars.len() + 1);
        let c = choices.pick(&CHARS).chars().next().unwrap_or('x');
        match choices.below(3) {
            0 if at < chars.len() => {
                chars.remove(at);
            }
            1 if at < chars.len() => chars[at] = c,
            _ => chars.insert(at, c),
        }
    }
    chars.into_iter().collect()
}

/// YAML: pieces in a random order, or a value as we write it, sometimes damaged.
pub fn yaml_text(choices: &mut Choices<'_>) -> String {
    if choices.chance(25) {
        let value: Json = values::small_value(choices);
        let text = golib::yaml::encode(&value).unwrap_or_default();
        return damaged(choices, text);
    }
    let mut out = String::new();
    let mut indent = 0_usize;
    for _ in 0..=choices.below(8) {
        match choices.below(6) {
            0 => indent += 1 + choices.below(3),
            1 => indent = 0,
            2 => indent = indent.saturating_sub(2),
            _ => {}
        }
        out.extend(std::iter::repeat_n(' ', indent));
        for _ in 0..=choices.below(3) {
            out.push_str(choices.pick(&[
                "a: ",
                "b: ",
                "- ",
                "k: ",
                "\"q\": ",
                "? ",
                ": ",
                "&x ",
                "*x ",
                "!!str ",
                "!!int ",
                "!!float ",
                "!!binary ",
                "!!null ",
                "!t ",
                "<<: ",
                "[",
                "{",
                "- - ",
                "1: ",
                "true: ",
                "~: ",
                "'s': ",
                "!!map ",
                "!!seq ",
                "!!bool ",
                "!!timestamp ",
                "!<x> ",
                "!!set ",
            ]));
        }
        match choices.below(7) {
            0..=2 => out.push_str(choices.pick(&WORDS)),
            3 => out.push_str(
                choices.pick(&["|", ">", "|-", ">+", "|2", ">-1", "|+1 # c", "|0", ">x"]),
            ),
            4 => out.push_str(choices.pick(&[
                "]",
                "}",
                ", ",
                ", b]",
                ": 1}",
                "[a, b]",
                "{a: 1, b: 2}",
                "[]",
                "{}",
                "{a, b: }",
                "[a: b]",
            ])),
            5 => out.push_str(choices.pick(&[
                "\"a\\n b\"",
                "\"\\x41\\u00e9\"",
                "'it''s'",
                "\"un",
                "'un",
                "\"\\q\"",
                "\"a\n  b\"",
                "\"\\/\"",
                "'a\n\n b'",
            ])),
            _ => out.push_str(choices.pick(&[
                "---",
                "...",
                "# c",
                "%YAML 1.1",
                "--- |",
                "%TAG ! x:",
                "--- a",
                "\t",
            ])),
        }
        out.push_str(choices.pick(&["\n", "\n", "\n", "\n\n", "\r\n", " ", " # c\n", ""]));
    }
    out
}

/// TOML, or nearly.
pub fn toml_text(choices: &mut Choices<'_>) -> String {
    let mut out = String::new();
    for _ in 0..=choices.below(6) {
        match choices.below(5) {
            0 => out.push_str(choices.pick(&[
                "[a]",
                "[a.b]",
                "[[a]]",
                "[\"q\".c]",
                "[ b ]",
                "[",
                "[]",
                "[a",
                "[[a.b]]",
                "['l']",
            ])),
            1 => out.push_str(choices.pick(&[
                "# c",
                "",
                "=",
                "a",
                "a =",
                "= 1",
                "a.b.c = 1",
                "a . b = 2",
                "a = {x = 1, y = [2]}",
                "b = {}",
                "c = { x = 1, }",
            ])),
            _ => {
                out.push_str(choices.pick(&[
                    "a", "b", "c", "d", "\"q r\"", "'l'", "a.x", "1", "é", "b-c", "\"\"",
                ]));
                out.push_str(choices.pick(&[" = ", "=", " =", " ", ": "]));
                out.push_str(choices.pick(&[
                    "1",
                    "-1",
                    "+1",
                    "1_000",
                    "0x1F",
                    "0o17",
                    "0b11",
                    "01",
                    "1.5",
                    "1e3",
                    "1.",
                    ".5",
                    "inf",
                    "-nan",
                    "true",
                    "false",
                    "True",
                    "\"s\"",
                    "'l'",
                    "\"\\n\\u00e9\"",
                    "\"\"\"a\nb\"\"\"",
                    "'''\nx'''",
                    "[1, 2]",
                    "[1, \"a\"]",
                    "[[1], []]",
                    "[1,\n2,\n]",
                    "2024-01-02",
                    "2024-01-02T03:04:05Z",
                    "2024-01-02T03:04:05.5+01:00",
                    "03:04:05",
                    "2024-01-02 03:04:05",
                    "{a = 1}",
                    "\"un",
                    "9223372036854775808",
                    "1__0",
                    "\"\\q\"",
                    "[1 2]",
                    "\"\"\"\\\n  x\"\"\"",
                    "'it",
                    "0x",
                    "2024-13-01",
                ]));
            }
        }
        out.push_str(choices.pick(&["\n", "\n", "\n", "\r\n", " # c\n", ""]));
    }
    out
}
