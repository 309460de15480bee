//! Cases recorded from the real kustomize by `tests/reference/kustomize`: a file each, with its input and what came of it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "generated/pointers.rs"]
mod pointers;

use std::collections::BTreeMap;
use std::path::Path;

use kustomize::{Limits, MemoryFiles, Options};
use pointers::without_pointers;

/// Where we say something else on purpose, and what.
const DIFFERENT: [(&str, Result<&str, &str>); 8] = [
    // What a Secret is to hold is not shown.
    (
        "fields/secret_literal_wrong.txt",
        Err("loading KV pairs: literal sources: invalid literal source, expected key=value"),
    ),
    // We name the field and the chart.
    (
        "plugins/helm.txt",
        Err(
            "helmCharts are not inflated here, and the kustomization has chart \"minecraft\": must specify --enable-helm",
        ),
    ),
    // Go shows the objects in conflict, of a Secret its content too.
    (
        "namespace/conflict_of_secrets.txt",
        Err(
            "namespace transformation produces ID conflict: [Secret.v1.[noGrp]/a.prod Secret.v1.[noGrp]/a.prod]",
        ),
    ),
    // Go compares a condition with the comment behind a value too.
    (
        "replacements/condition_and_comment.txt",
        Ok("    value: first\n  - name: web\n    value: settings\n"),
    ),
    // Go has the second element in the place of the first too, and changes both.
    (
        "replacements/element_twice.txt",
        Ok(
            "      - image: nginx\n        name: \"\"\n      - image: cache\n        name: \"\"\n      serviceAccountName: cache\n",
        ),
    ),
    // Go cannot read the YAML that it has written with its comments.
    (
        "yaml/comments_unreadable.txt",
        Ok("  name: login\n  namespace: dev\nspec: {}\n"),
    ),
    // Go panics.
    ("structure/crds_empty.txt", Ok("  name: a\n")),
    // Go takes the first character of every line away.
    (
        "yaml/two_marks.txt",
        Ok("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n"),
    ),
];

struct Case {
    directory: String,
    is_sorted: bool,
    files: BTreeMap<String, Vec<u8>>,
    expected: Result<String, String>,
}

fn parse(text: &str) -> Case {
    let (input, expected) = match text.split_once("\n== output ==\n") {
        Some((input, output)) => (input, Ok(output.to_owned())),
        None => {
            let (input, error) = text.split_once("\n== error ==\n").expect("a recorded case");
            (
                input,
                Err(error.strip_suffix('\n').unwrap_or(error).to_owned()),
            )
        }
    };
    let mut case = Case {
        directory: ".".to_owned(),
        is_sorted: true,
        files: BTreeMap::new(),
        expected,
    };
    let mut name: Option<String> = None;
    let mut body = String::new();
    let mut flush = |name: Option<String>, body: &mut String| {
        if let Some(name) = name {
            let content = match body.strip_prefix("%bytes ") {
                Some(escaped) => unescape(escaped.trim_end_matches('\n')),
                None => body.clone().into_bytes(),
            };
            case.files.insert(name, content);
        }
        body.clear();
    };
    let input = format!("{input}\n");
    for line in input.split_inclusive('\n') {
        let plain = line.trim_end_matches('\n');
        let header = plain
            .strip_prefix("-- ")
            .and_then(|line| line.strip_suffix(" --"));
        if let Some(header) = header {
            flush(name.take(), &mut body);
            name = Some(header.to_owned());
        } else if name.is_some() {
            body.push_str(line);
        } else if let Some(directory) = plain.strip_prefix("build ") {
            case.directory = directory.to_owned();
        } else if plain == "sort: fifo" {
            case.is_sorted = false;
        }
    }
    flush(name, &mut body);
    case
}

fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'n') => out.push(b'\n'),
            Some(b'x') => {
                let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                let text = std::str::from_utf8(&digits).unwrap();
                out.push(u8::from_str_radix(text, 16).unwrap());
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

fn build(case: &Case) -> Result<String, String> {
    let mut files = MemoryFiles::new();
    for (name, content) in &case.files {
        files.add(name, content).unwrap();
    }
    let options = Options {
        is_sorted: case.is_sorted,
        version: "(devel)".to_owned(),
        ..Options::default()
    };
    kustomize::build(&files, &case.directory, &options)
        .and_then(|built| built.to_yaml())
        .map_err(|error| error.to_string())
}

fn visit(folder: &Path, cases: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            visit(&path, cases);
        } else if path.extension().is_some_and(|extension| extension == "txt") {
            cases.push(path);
        }
    }
}

#[test]
fn recorded_cases_are_built_alike() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut paths = Vec::new();
    visit(&root, &mut paths);
    paths.sort();
    let only = std::env::var("CASE").unwrap_or_default();
    let mut failures = Vec::new();
    let mut count = 0;
    for path in paths
        .iter()
        .filter(|path| path.to_string_lossy().contains(&only))
    {
        count += 1;
        let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
        let case = parse(&text);
        if let Some((name, ours)) = DIFFERENT.iter().find(|(name, _)| path.ends_with(name)) {
            let found = build(&case);
            assert_ne!(found, case.expected, "{name} is built alike");
            let is_it = match (&found, ours) {
                (Ok(found), Ok(end)) => found.ends_with(end),
                (Err(found), Err(text)) => found == text,
                _ => false,
            };
            assert!(is_it, "{name}: {found:?}");
            continue;
        }
        // Where Go panics an error is enough.
        if case
            .expected
            .as_ref()
            .is_err_and(|error| error.starts_with("PANIC"))
        {
            assert!(build(&case).is_err(), "{} is built", path.display());
            continue;
        }
        let expected = match &case.expected {
            Ok(text) => Ok(text.clone()),
            Err(text) => Err(without_pointers(text)),
        };
        let found = build(&case);
        // Go shows what a validator changed.
        let changed = "validator shouldn't modify the resource map: nodes unequal";
        if let (Err(expected), Err(found)) = (&expected, &found)
            && expected.starts_with(changed)
            && found == changed
        {
            continue;
        }
        // Go shows all of an object that cannot be written, we its name.
        if let (Err(expected), Err(found)) = (&expected, &found)
            && expected.starts_with("map[string]interface {}")
            && let Some((_, problem)) = found.split_once(": ")
            && expected.ends_with(problem)
        {
            continue;
        }
        if found != expected {
            let name = path.strip_prefix(&root).unwrap().display();
            failures.push(format!(
                "==== {name}\n-- wanted\n{expected:#?}\n-- found\n{found:#?}\n"
            ));
        }
    }
    assert!(count > 0, "no case fits");
    assert!(
        failures.is_empty(),
        "{} of {count} cases differ:\n{}",
        failures.len(),
        failures.join("\n").replace("\\n", "\n    ")
    );
}

/// Numbers by chance, which a seed repeats (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % limit.max(1) as u64).unwrap()
    }

    /// A part of a text, not a long one.
    fn part<'a>(&mut self, text: &'a [u8]) -> &'a [u8] {
        let from = self.below(text.len());
        let length = self.below(24);
        &text[from..text.len().min(from + length)]
    }
}

/// A file with a part taken out, put in from elsewhere, or changed.
fn mutated(dice: &mut Dice, text: &[u8], other: &[u8]) -> Vec<u8> {
    const WORDS: [&str; 30] = [
        "\n",
        "\r\n",
        "\t",
        "  ",
        ": ",
        "- ",
        "{",
        "}",
        "[",
        "]",
        "&a ",
        "*a",
        "<<: ",
        "!!binary ",
        "|",
        ">",
        "---\n",
        "#",
        "'",
        "\"",
        "\\",
        "~",
        ".inf",
        "/",
        ".",
        "=",
        "$(",
        "*",
        "\u{feff}",
        "\u{85}",
    ];
    let mut text = text.to_vec();
    for _ in 0..=dice.below(3) {
        let at = dice.below(text.len() + 1);
        match dice.below(5) {
            0 => {
                let end = text.len().min(at + dice.below(24));
                text.drain(at..end);
            }
            1 => {
                let part = dice.part(other).to_vec();
                text.splice(at..at, part);
            }
            2 => {
                let word = WORDS[dice.below(WORDS.len())];
                text.splice(at..at, word.bytes());
            }
            3 => {
                let part = dice.part(&text).to_vec();
                text.splice(at..at, part);
            }
            _ => {
                if let Some(byte) = text.get_mut(at) {
                    *byte = u8::try_from(dice.below(256)).unwrap();
                }
            }
        }
    }
    text
}

/// Whatever stands in a kustomization's files, a build ends with objects or an error. `COUNT` and `SEED` make a longer run.
#[test]
fn changed_cases_end() {
    let setting = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let count: u64 = setting("COUNT").unwrap_or(300);
    let seed: u64 = setting("SEED").unwrap_or(1);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut paths = Vec::new();
    visit(&root, &mut paths);
    paths.sort();
    let texts = paths.iter().map(|path| std::fs::read(path).unwrap());
    let cases: Vec<Case> = texts
        .map(|text| parse(&String::from_utf8_lossy(&text)))
        .collect();
    let mut failures = Vec::new();
    for number in 0..count {
        let mut dice = Dice(seed.wrapping_mul(1 << 32).wrapping_add(number));
        let case = &cases[dice.below(cases.len())];
        let other = &cases[dice.below(cases.len())];
        let mut files = case.files.clone();
        let names: Vec<String> = files.keys().cloned().collect();
        for _ in 0..=dice.below(2) {
            let name = &names[dice.below(names.len())];
            let other = other.files.values().nth(dice.below(other.files.len()));
            let text = mutated(&mut dice, &files[name], other.map_or(&[], Vec::as_slice));
            files.insert(name.clone(), text);
        }
        let is_printed = dice.below(2) == 0;
        let build = || {
            let mut memory = MemoryFiles::new();
            for (name, content) in &files {
                memory.add(name, content).unwrap();
            }
            let options = Options {
                is_sorted: case.is_sorted,
                is_printed,
                limits: Limits {
                    work: Limits::default().work / 16,
                    weight: Limits::default().weight / 16,
                    ..Limits::default()
                },
                ..Options::default()
            };
            kustomize::build(&memory, &case.directory, &options).and_then(|built| built.to_yaml())
        };
        if std::panic::catch_unwind(build).is_err() {
            failures.push(format!("{number}: {files:?}"));
        }
    }
    let files = failures.join("\n");
    assert!(failures.is_empty(), "seed {seed}, cases\n{files}");
}
