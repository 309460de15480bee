//! What documents may look like that no [`Tree`](super::tree::Tree) is written as: other breaks and marks, anchors, merged keys,
//! tags, numbers of all notations, keys that are there twice.

use super::dice::Dice;
use super::maker::Files;

const VALUES: [&str; 44] = [
    "0o14",
    "014",
    "0x1F",
    "1_000",
    "1e3",
    "1.0",
    "-0.0",
    ".5",
    "+1",
    "12345678901234567890",
    "123456789012345678901",
    "0b101",
    "2020-01-01",
    "2020-01-01T10:00:00Z",
    "12:30:45",
    "~",
    "Null",
    ".inf",
    "-.INF",
    ".nan",
    "y",
    "No",
    "ON",
    "TRUE",
    "=",
    "<<",
    "!!str 5",
    "!!int '5'",
    "!!float 5",
    "!!bool yes",
    "!!null ''",
    "!!binary aGVsbG8=",
    "!!timestamp 2020-01-01",
    "!own text",
    "!",
    "! text",
    "é",
    "\"\\u2028\"",
    "\"\\x85\"",
    "😀",
    "\"a\\tb\"",
    "'  two  '",
    "a long text of many words that is broken where a line has no place for more of them, or is not",
    "\"trailing \"",
];

/// Changes a text or two.
pub(super) fn change(dice: &mut Dice, files: &mut Files) {
    let names: Vec<String> = files.keys().cloned().collect();
    for _ in 0..=dice.below(2) {
        let name = &names[dice.below(names.len())];
        if let Some(text) = files.get_mut(name) {
            *text = changed(dice, text);
        }
    }
}

/// The place of a line's value: behind the colon of its key, or its dash.
fn value_of(line: &str) -> Option<usize> {
    let bare = line.trim_end();
    let at = match bare.find(": ") {
        Some(at) => at + 2,
        None if bare.trim_start().starts_with("- ") => bare.find("- ")? + 2,
        None => return None,
    };
    let is_scalar = !bare[at..].starts_with(['{', '[', '|', '>', '&', '*', '#']);
    is_scalar.then_some(at)
}

fn changed(dice: &mut Dice, text: &str) -> String {
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    let valued: Vec<usize> = (0..lines.len())
        .filter(|&at| value_of(&lines[at]).is_some())
        .collect();
    let (Some(at), true) = (
        valued.get(dice.below(valued.len().max(1))).copied(),
        !lines.is_empty(),
    ) else {
        return text.to_owned();
    };
    let start = value_of(&lines[at]).unwrap_or_default();
    let indent = lines[at].len() - lines[at].trim_start().len();
    match dice.below(20) {
        0 => return text.replace('\n', "\r\n"),
        1 => return format!("\u{feff}{}", text.trim_start_matches('\u{feff}')),
        2 => return format!("%YAML 1.1\n---\n{text}"),
        3 => return format!("{text}...\n"),
        4 => return format!("{text}---\n# nothing\n---\n"),
        5 => return text.trim_end_matches('\n').to_owned(),
        6 | 7 => {
            // A value under a name, and the name elsewhere.
            lines[at].insert_str(start, "&a ");
            let other = valued[dice.below(valued.len())];
            if other > at
                && let Some(place) = value_of(&lines[other])
            {
                lines[other].truncate(place);
                lines[other].push_str("*a\n");
            }
        }
        8 => {
            let merged = [
                "<<: {a: b, name: c}",
                "<<: [{a: b}, {a: c}]",
                "<<: text",
                "<<: *a",
            ];
            lines.insert(at, format!("{:indent$}{}\n", "", dice.pick(&merged)));
        }
        9 => {
            let line = lines[at].clone();
            lines.insert(at, line);
        }
        10 => {
            if let Some(colon) = lines[at].find(':') {
                let key = lines[at][indent..colon].to_owned();
                let written = dice.pick(&["\"", "'"]);
                lines[at].replace_range(indent..colon, &format!("{written}{key}{written}"));
            }
        }
        11 => {
            let end = lines[at].trim_end().len();
            lines[at].insert_str(end, dice.pick(&["  ", "\t", " # \t x"]));
        }
        12 => lines.insert(at, dice.pick(&["\n", "  \n", "\t\n", "# x\n"]).to_owned()),
        13 => {
            let end = lines[at].trim_end().len();
            let value = lines[at][start..end].trim_matches(['"', '\'']).to_owned();
            let style = dice.pick(&["|", "|-", ">", ">-", "|+"]);
            lines[at].truncate(start);
            lines[at] += &format!("{style}\n{:1$}{value}\n", "", indent + 4);
        }
        _ => {
            lines[at].truncate(start);
            lines[at] += dice.pick(&VALUES);
            lines[at].push('\n');
        }
    }
    lines.concat()
}
