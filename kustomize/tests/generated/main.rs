//! Kustomizations made up by chance, built by us and by the real kustomize: what is printed, or said to be wrong, must be the same.
//!
//! `COUNT=20000 SEED=7 cargo test -p kustomize --test generated` makes a longer run than `make test`, `CASE=N` one of its cases. A
//! difference is made as small as it gets and shown. The real program is `tests/reference/kustomize`, which `make tools` builds.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

#[path = "../../../tests/src/bin/random_charts/dice.rs"]
mod dice;
mod directory;
mod excuses;
mod generators;
mod maker;
mod objects;
mod patches;
mod places;
mod plugins;
mod pointers;
mod reference;
mod replacements;
mod texts;
mod tree;
mod types;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use dice::Dice;
use excuses::{is_meant, is_of_comments, is_of_element_twice};
use kustomize::{MemoryFiles, Options};
use maker::{Files, Maker};
use pointers::without_pointers;
use reference::Reference;

/// How many cases `make test` looks at.
const COUNT: u64 = 600;
/// Cases out of a hundred with texts that no tree is written as.
const ODD_TEXTS: usize = 12;
/// How often Go is asked before an answer of ours counts as none of its: it walks some maps in any order.
const ASKED: usize = 24;
const SHOWN_CHARS: usize = 2_000;
/// Differences that are shown.
const SHOWN: usize = 14;

#[derive(Clone)]
struct Case {
    files: Files,
    /// As Fleet takes it: unsorted, and objects without their text.
    as_fleet: bool,
}

type Answer = Result<String, String>;

/// Where `make tools` has put it.
fn program() -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/tools/build.sh");
    let list = Command::new(script).arg("--list").output().ok()?;
    let list = String::from_utf8(list.stdout).ok()?;
    let mut programs = list
        .lines()
        .map(|folder| Path::new(folder).join("kustomize-reference"));
    programs.find(|program| program.is_file())
}

fn make(seed: u64, number: u64) -> Case {
    let mut dice = Dice::new(seed, number);
    let mut maker = Maker::new(&mut dice);
    directory::write(&mut maker, ".", 2);
    let mut files = maker.files;
    let as_fleet = dice.chance(30);
    if dice.chance(ODD_TEXTS) {
        texts::change(&mut dice, &mut files);
    }
    Case { files, as_fleet }
}

fn ours(case: &Case) -> Answer {
    let mut files = MemoryFiles::new();
    for (name, content) in &case.files {
        files
            .add(name, content.as_bytes())
            .map_err(|error| error.to_string())?;
    }
    let options = Options {
        is_sorted: !case.as_fleet,
        version: "(devel)".to_owned(),
        is_printed: !case.as_fleet,
        ..Options::default()
    };
    let built = kustomize::build(&files, ".", &options).and_then(|built| built.to_yaml());
    built.map_err(|error| error.to_string())
}

/// The two answers, if they differ.
fn look(case: &Case, reference: &mut Reference) -> Option<(Answer, Answer)> {
    select_often(case, reference, ASKED)
}

fn select_often(case: &Case, reference: &mut Reference, asked: usize) -> Option<(Answer, Answer)> {
    let got = ours(case);
    let mut want = reference
        .ask(case)
        .map_err(|error| without_pointers(&error));
    for _ in 0..asked {
        if got == want
            || is_meant(&want, &got)
            || is_of_comments(case, &want, &got, reference)
            || is_of_element_twice(case, &want, &got, reference)
        {
            return None;
        }
        want = reference
            .ask(case)
            .map_err(|error| without_pointers(&error));
    }
    Some((want, got))
}

/// Leaves out what the difference does not need.
fn shrink(mut case: Case, reference: &mut Reference) -> Case {
    let is_error = |answers: &(Answer, Answer)| (answers.0.is_err(), answers.1.is_err());
    let Some(sort) = look(&case, reference).as_ref().map(is_error) else {
        return case;
    };
    loop {
        let smaller = smaller(&case).into_iter().find(|smaller| {
            let is_same =
                |answers: Option<(Answer, Answer)>| answers.as_ref().map(is_error) == Some(sort);
            is_same(select_often(smaller, reference, 1)) && is_same(look(smaller, reference))
        });
        match smaller {
            Some(smaller) => case = smaller,
            None => return case,
        }
    }
}

fn smaller(case: &Case) -> Vec<Case> {
    let mut found = Vec::new();
    for (name, text) in &case.files {
        let mut less = case.clone();
        less.files.remove(name);
        found.push(less);
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        for size in [8, 4, 2, 1] {
            for at in 0..lines.len().saturating_sub(size - 1) {
                let mut less = case.clone();
                let mut lines = lines.clone();
                lines.drain(at..at + size);
                less.files.insert(name.clone(), lines.concat());
                found.push(less);
            }
        }
    }
    found
}

fn show(number: u64, case: &Case, (want, got): &(Answer, Answer)) -> String {
    let mut text = format!(
        "==== case {number}{}\n",
        if case.as_fleet { " as Fleet" } else { "" }
    );
    for (name, content) in &case.files {
        text += &format!("-- {name} --\n{content}");
    }
    let cut = |text: &str| text.chars().take(SHOWN_CHARS).collect::<String>();
    let shown = |answer: &Answer| match answer
        .as_ref()
        .map(|text| cut(text))
        .map_err(|text| cut(text))
    {
        Ok(text) => format!("output\n{text}"),
        Err(text) => format!("error\n{text}\n"),
    };
    text + &format!("== want {}== got {}", shown(want), shown(got))
}

/// Where the answers part.
fn brief(number: u64, (want, got): &(Answer, Answer)) -> String {
    let lines = |answer: &Answer| -> Vec<String> {
        let (Ok(text) | Err(text)) = answer;
        text.lines().map(str::to_owned).collect()
    };
    let kind = |answer: &Answer| if answer.is_ok() { "output" } else { "error" };
    let (expected, found) = (lines(want), lines(got));
    let at = expected
        .iter()
        .zip(&found)
        .take_while(|(one, other)| one == other)
        .count();
    let line = |lines: &[String]| {
        lines
            .get(at)
            .map_or_else(String::new, |line| line.chars().take(400).collect())
    };
    format!(
        "case {number}: want {} {:?}, got {} {:?}\n",
        kind(want),
        line(&expected),
        kind(got),
        line(&found)
    )
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn generated_kustomizations_are_built_alike() {
    let Some(program) = program() else {
        // Past the harness, which keeps back what a test that passes prints.
        let reported =
            "SKIPPED: the real kustomize is not built (`make tools`), nothing was compared with it";
        writeln!(std::io::stderr(), "{reported}").ok();
        return;
    };
    let seed = setting("SEED").unwrap_or(1);
    let (first, count) = match setting("CASE") {
        Some(case) => (case, 1),
        None => (0, setting("COUNT").unwrap_or(COUNT)),
    };
    let next = AtomicU64::new(first);
    let (built, found) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let errors = Mutex::new(Vec::new());
    let shown = setting("SHOWN").map_or(SHOWN, |shown| usize::try_from(shown).unwrap());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = setting("WORKERS").map_or(workers, |workers| usize::try_from(workers).unwrap());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let mut reference = Reference::new(&program);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= first + count {
                        return;
                    }
                    let case = make(seed, number);
                    let got = ours(&case);
                    built.fetch_add(u64::from(got.is_ok()), Ordering::Relaxed);
                    if let Err(error) = got {
                        errors.lock().unwrap().push(error);
                    }
                    let Some(answers) = look(&case, &mut reference) else {
                        continue;
                    };
                    let is_shown = found.lock().unwrap().len() < shown;
                    let text = match is_shown {
                        true => {
                            eprintln!("case {number} differs");
                            let small = shrink(case, &mut reference);
                            let answers = look(&small, &mut reference).unwrap_or(answers);
                            show(number, &small, &answers)
                        }
                        false => brief(number, &answers),
                    };
                    found.lock().unwrap().push((number, text));
                }
            });
        }
    });
    let errors: Vec<String> = errors.into_inner().unwrap();
    if setting("ERRORS").is_some() {
        errors
            .iter()
            .for_each(|error| eprintln!("error: {}", error.replace('\n', "\\n")));
    }
    let found = found.into_inner().unwrap();
    let built = built.into_inner();
    eprintln!(
        "seed {seed}: {count} kustomizations, {built} of them built, {} different",
        found.len()
    );
    assert!(
        count < 100 || built >= count / 4,
        "{built} of {count} were built: the others compare nothing but errors"
    );
    assert!(
        found.is_empty(),
        "{}\n{:?}",
        found
            .iter()
            .map(|(_, text)| text.as_str())
            .collect::<String>(),
        found.iter().map(|(number, _)| number).collect::<Vec<_>>()
    );
}
