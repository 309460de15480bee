//! Regular expressions in Go's syntax, or nearly, with texts to search in and replacements.

use super::texts::{CHARS, some, words};
use crate::Choices;

/// A text to search in.
pub fn subject(choices: &mut Choices<'_>) -> String {
    match choices.below(3) {
        0 => words(choices),
        1 => some(
            choices,
            16,
            &[
                "a", "b", "ab", "A", "k", "\u{212a}", "s", "ſ", "1", "_", " ", "\n", "-", "é", "É",
            ],
        ),
        _ => some(choices, 12, &CHARS),
    }
}

/// A pattern in Go's syntax, or nearly.
pub fn pattern(choices: &mut Choices<'_>) -> String {
    let mut out = String::new();
    alternation(choices, 3, &mut out);
    if choices.chance(6) {
        out.push_str(choices.pick(&[
            "\\", "(", ")", "[", "*", "{2", "(?", "\\x", "[^", "(?P<", "(?i",
        ]));
    }
    out
}

fn alternation(choices: &mut Choices<'_>, depth: usize, out: &mut String) {
    sequence(choices, depth, out);
    while choices.chance(18) {
        out.push('|');
        sequence(choices, depth, out);
    }
}

fn sequence(choices: &mut Choices<'_>, depth: usize, out: &mut String) {
    for _ in 0..choices.below(4) {
        atom(choices, depth, out);
        if choices.chance(30) {
            out.push_str(choices.pick(&[
                "*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,}", "{,3}", "{2,1}", "{0}",
                "{3}?", "**", "{1001}", "{a}", "{1", "{00}", "{0,0}",
            ]));
        }
    }
}

fn atom(choices: &mut Choices<'_>, depth: usize, out: &mut String) {
    match choices.below(10) {
        0..=3 => out.push_str(choices.pick(&[
            "a", "b", "k", "S", "é", "-", "1", " ", "_", "/", "世", "\n", "<", "#", "&", "~", ",",
            "]", "}",
        ])),
        4 => out.push_str(choices.pick(&[
            ".", "^", "$", "\\A", "\\z", "\\b", "\\B", "\\Z", "\\C", "\\K",
        ])),
        5 => out.push_str(choices.pick(&[
            "\\d",
            "\\D",
            "\\w",
            "\\W",
            "\\s",
            "\\S",
            "\\pL",
            "\\PL",
            "\\p{Lu}",
            "\\p{^Greek}",
            "\\P{Han}",
            "\\p{Any}",
            "\\p{Nope}",
            "\\pN",
            "\\p{L",
            "\\p{Letter}",
            "\\p{Latin}",
            "\\p{Zs}",
        ])),
        6 => out.push_str(choices.pick(&[
            "\\.",
            "\\n",
            "\\t",
            "\\x41",
            "\\x{1F600}",
            "\\x{110000}",
            "\\101",
            "\\0",
            "\\1",
            "\\a",
            "\\f",
            "\\v",
            "\\_",
            "\\é",
            "\\Qa.b\\E",
            "\\Q",
            "\\E",
            "\\-",
            "\\/",
            "\\<",
            "\\x4",
            "\\8",
            "\\07",
            "\\x{}",
        ])),
        7 => class(choices, out),
        _ if depth == 0 => out.push('a'),
        _ => {
            out.push_str(choices.pick(&[
                "(", "(?:", "(?i)(", "(?i:", "(?s:", "(?m:", "(?U:", "(?P<n>", "(?<m>", "(?-i:",
                "(?is-m:", "(?=", "(?P<n>", "(?^:", "(?i-:", "(?P<1a>", "(?P=n",
            ]));
            alternation(choices, depth - 1, out);
            out.push(')');
        }
    }
}

fn class(choices: &mut Choices<'_>, out: &mut String) {
    out.push_str(choices.pick(&["[", "[^"]));
    for _ in 0..=choices.below(4) {
        out.push_str(choices.pick(&[
            "a",
            "b",
            "a-c",
            "A-Z",
            "0-9",
            "\\d",
            "\\W",
            "\\s",
            "[:alpha:]",
            "[:^digit:]",
            "[:word:]",
            "[:nope:]",
            "-",
            "]",
            "^",
            "\\]",
            "\\-",
            "é-ü",
            "z-a",
            "\\pL",
            "\\PN",
            "\\x41-\\x{5a}",
            "&&",
            "--",
            "~~",
            "[",
            "k",
            "\\b",
            "\\n",
            "\\Q",
            "a-\\d",
            "[:",
            ".",
            "$",
            "\\p{Greek}",
            "\\101",
            "\u{17f}",
        ]));
    }
    out.push(']');
}

/// The template of a replacement.
pub(super) fn replacement(choices: &mut Choices<'_>) -> String {
    some(
        choices,
        5,
        &[
            "x", "$1", "${1}", "${n}", "$n", "$1x", "$$", "$", "${", "$0", "-", "${1}2", "$é",
            "\\1", "${}", "$10",
        ],
    )
}
