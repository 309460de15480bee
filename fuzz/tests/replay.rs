//! The fuzz targets on kept cases and on a bounded number of generated ones, on a thread as small as any.

#![expect(
    clippy::print_stderr,
    reason = "after a stack overflow nothing else tells which case it was"
)]

use std::path::Path;

use fuzzing::seeded;
use fuzzing::targets::{TARGETS, Target};

/// What a thread has unless somebody asks for more.
const STACK_BYTES: usize = 2 << 20;
const GENERATED: u64 = 3_000;
const SEED: u64 = 1;

fn check(name: &'static str) {
    let (_, target) = TARGETS
        .iter()
        .find(|(known, _)| *known == name)
        .expect("a target");
    std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || {
            replay(name, *target);
            generate(*target);
        })
        .expect("a thread")
        .join()
        .expect("the message above names the case");
}

/// Every file of the target's directory.
fn replay(name: &str, target: Target) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("cases")
        .join(name);
    let mut count = 0;
    for entry in std::fs::read_dir(&directory).expect("a directory of cases") {
        let path = entry.expect("an entry").path();
        eprintln!("{}", path.display());
        target(&std::fs::read(&path).expect("a readable case"));
        count += 1;
    }
    assert!(count > 0, "no cases for {name}");
}

fn generate(target: Target) {
    for number in 0..GENERATED {
        eprintln!("generated case {number}");
        let length = 16 + (number as usize * 7) % 600;
        target(&seeded(SEED, number, length));
    }
}

macro_rules! targets {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            check(stringify!($name));
        }
    )*

        #[test]
        fn every_target_is_run() {
            let named = [$(stringify!($name)),*];
            assert!(TARGETS.iter().all(|(name, _)| named.contains(name)));
        }
    };
}

targets! { parse execute yaml regexp printf }
