//! Every recorded answer is ours too, but for the differences that COMPATIBILITY.md argues.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test reports by failing, and says what it left out"
)]

use std::path::Path;

use conformance::{Case, Outcome, SUITES};
use serde_json::Value;

/// Deep values are dropped and printed recursively; cases may nest 10,000 levels and templates 100,000.
const STACK_BYTES: usize = 1 << 30;
/// How many differences are shown.
const SHOWN: usize = 10;

/// Cases in which we differ on purpose. One that passes is an error too: then its line here is stale.
const DIFFERENT: [(&str, &str); 1] = [("release.json", "d-encode-invalid-utf8")];

/// Kinds that cannot be judged: our actions take other steps to the same records.
const NOT_RUN: [(&str, &str); 1] = [("release.json", "flow")];

fn check(file: &'static str) {
    std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || run(file))
        .unwrap()
        .join()
        .unwrap();
}

fn run(file: &str) {
    let (_, suite) = SUITES.iter().find(|(name, _)| *name == file).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures/vectors")
        .join(file);
    let cases = match serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() {
        Value::Array(cases) => cases,
        case => vec![case],
    };
    assert!(!cases.is_empty());
    let (mut passed, mut not_run, mut wrong) = (0, 0, Vec::new());
    for case in cases.into_iter().map(Case::new) {
        if NOT_RUN.contains(&(file, case.kind())) {
            not_run += 1;
            continue;
        }
        let is_different = DIFFERENT.contains(&(file, case.name()));
        match case.run(*suite) {
            Outcome::Passed if is_different => {
                wrong.push(format!("{}: listed as different, but equal", case.name()));
            }
            Outcome::Failed { .. } if is_different => {}
            Outcome::Passed => passed += 1,
            Outcome::Failed { got, want } => {
                wrong.push(format!(
                    "{}:\n  got  {got:.300}\n  want {want:.300}",
                    case.name()
                ));
            }
        }
    }
    eprintln!("{file}: passed {passed} failed {}", wrong.len());
    if not_run > 0 {
        eprintln!("{file}: SKIPPED {not_run} cases whose kind is not run");
    }
    let shown: Vec<_> = wrong.iter().take(SHOWN).map(String::as_str).collect();
    assert!(
        wrong.is_empty(),
        "{} differ\n{}",
        wrong.len(),
        shown.join("\n")
    );
}

macro_rules! suites {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            check(concat!(stringify!($name), ".json"));
        }
    )*

        #[test]
        fn every_suite_is_run() {
            let named = [$(concat!(stringify!($name), ".json")),*];
            assert!(SUITES.iter().all(|(file, _)| named.contains(file)));
        }
    };
}

suites! {
    engine fleet_values functions gofmt label_selectors manifests ready release semver smp sprig values yaml
}
