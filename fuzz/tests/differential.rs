//! A short differential run against the real Go libraries; `differential` (see CONTRIBUTING.md) makes long ones.

use std::path::{Path, PathBuf};
use std::process::Command;

use fuzzing::differential::{KINDS, Reference, Verdict, judge_all};

const CASES: u64 = 4_000;
const SEED: u64 = 1;
const STACK_BYTES: usize = 64 << 20;

/// The reference program, if `make tools` has built it.
fn program() -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/tools/build.sh");
    let list = Command::new(script).arg("--list").output().ok()?;
    let list = String::from_utf8(list.stdout).ok()?;
    let directories = list.lines().map(Path::new);
    let mut programs = directories.map(|directory| directory.join("engine"));
    programs.find(|program| program.is_file())
}

#[test]
fn random_cases_have_gos_answers() {
    let Some(program) = program() else {
        eprintln!(
            "SKIPPED: the reference program is not built (run `make tools`), nothing was compared with Go"
        );
        return;
    };
    let run = move || {
        let mut reference = Reference::start(&program).expect("the reference program starts");
        let shares: u64 = KINDS.iter().map(|kind| kind.share).sum();
        for kind in KINDS {
            let count = CASES * kind.share / shares;
            let verdicts = judge_all(kind, SEED, 0..count, &mut reference).expect("answers");
            for (number, verdict) in verdicts.into_iter().enumerate() {
                assert!(
                    !matches!(verdict, Verdict::Different(_)),
                    "{}:{number}: {verdict:#?}",
                    kind.name
                );
            }
        }
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    thread
        .spawn(run)
        .expect("a thread")
        .join()
        .expect("the message above says what differs");
}
