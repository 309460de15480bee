//! Kustomizations that would take too much, or lead out of their directory, end in an error that says so. None asserts how long
//! it takes: what bounds time and memory is what a build counts. `cargo run --release -p kustomize --example hostile` measures.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod inputs;

use kustomize::{DiskFiles, Limits, MemoryFiles, Options, Stop};

#[test]
fn hostile_kustomizations_are_refused() {
    let mut failures = Vec::new();
    for input in inputs::all() {
        let mut files = MemoryFiles::new();
        for (path, text) in &input.files {
            files.add(path, text.as_bytes()).unwrap();
        }
        // A sixteenth of what a build may take, of which unoptimised code soon has enough.
        let all = Limits::default();
        let options = Options {
            limits: Limits {
                work: all.work / 16,
                weight: all.weight / 16,
                ..all
            },
            ..Options::default()
        };
        let built = kustomize::build(&files, "app", &options);
        let Err(error) = built else {
            failures.push(format!("{}: is built", input.name));
            continue;
        };
        let text = error.to_string();
        // Which limit is reached first is another matter.
        let is_expected = error.is_limit() && input.is_limit() || text.contains(input.expected);
        if !is_expected {
            let text: String = text.chars().take(2_000).collect();
            failures.push(format!("{}: {text}", input.name));
        }
        assert!(text.len() < 70_000, "{}: {} bytes", input.name, text.len());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Whoever removes the first element of a list moves all others.
#[test]
fn elements_that_a_json_patch_moves_are_counted() {
    let values = vec!["0"; 50_000].join(",");
    let object = format!("{OBJECT}data: [{values}]\n");
    let removals = "- {op: remove, path: /data/0}\n".repeat(5_000);
    let mut files = MemoryFiles::new();
    let kustomization =
        "resources: [a.yaml]\npatches: [{target: {kind: ConfigMap}, path: p.yaml}]\n";
    for (path, text) in [
        ("kustomization.yaml", kustomization),
        ("a.yaml", &*object),
        ("p.yaml", &*removals),
    ] {
        files.add(path, text.as_bytes()).unwrap();
    }
    let built = |work: u64| {
        let limits = Limits {
            work,
            ..Limits::default()
        };
        let options = Options {
            limits,
            ..Options::default()
        };
        kustomize::build(&files, ".", &options).map(|built| built.objects.len())
    };
    assert_eq!(built(1_000_000), Ok(1));
    let error = built(300_000).unwrap_err().to_string();
    assert!(error.contains("takes too much work"), "{error}");
}

/// A path takes no more than its own length, however many directories it leads through.
#[test]
fn files_below_many_directories_are_held_once() {
    let name = format!("{}x.yaml", "a/".repeat(20_000));
    let mut files = MemoryFiles::new();
    files
        .add("kustomization.yaml", b"resources: [b.yaml]\n")
        .unwrap();
    files.add("b.yaml", OBJECT.as_bytes()).unwrap();
    files.add(&name, OBJECT.as_bytes()).unwrap();
    assert!(format!("{files:?}").len() < 2 * name.len());
    assert!(kustomize::build(&files, ".", &Options::default()).is_ok());
    let below = format!("{name}/b.yaml");
    let error = files.add(&below, b"").unwrap_err().to_string();
    assert!(
        error.contains("a file of that name already exists"),
        "{error}"
    );
    let above = "a/".repeat(10_000);
    let error = files.add(&above, b"").unwrap_err().to_string();
    assert!(error.contains("in file creation"), "{error}");
}

/// A bundle may change while it is built, and a deploy has its time.
#[test]
fn a_build_that_nobody_waits_for_ends() {
    let images = "- {name: web, newTag: x}\n".repeat(1_000);
    let values = vec!["0"; 20_000].join(",");
    let mut files = MemoryFiles::new();
    let kustomization = format!("resources: [a.yaml]\nimages:\n{images}");
    files
        .add("kustomization.yaml", kustomization.as_bytes())
        .unwrap();
    let object = format!("{OBJECT}data: [{values}]\n");
    files.add("a.yaml", object.as_bytes()).unwrap();
    let built = |questions: usize| {
        let asked = std::sync::atomic::AtomicUsize::new(0);
        let stop = Stop::new(move || {
            let asked = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            (asked >= questions).then(|| "the bundle has changed meanwhile".to_owned())
        });
        let options = Options {
            limits: Limits {
                stop: Some(stop),
                ..Limits::default()
            },
            ..Options::default()
        };
        kustomize::build(&files, ".", &options).map(|built| built.objects.len())
    };
    for questions in [0, 10] {
        let error = built(questions).unwrap_err();
        assert!(error.is_limit(), "{error}");
        assert!(
            error
                .to_string()
                .ends_with("the bundle has changed meanwhile")
        );
    }
    assert_eq!(built(1_000), Ok(1));
}

const OBJECT: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";

#[test]
fn symbolic_links_out_of_the_root_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let app = folder.path().join("app");
    std::fs::create_dir(&app).unwrap();
    std::fs::write(folder.path().join("secret.yaml"), OBJECT).unwrap();
    std::fs::write(app.join("kustomization.yaml"), "resources: [a.yaml]\n").unwrap();
    std::os::unix::fs::symlink("../secret.yaml", app.join("a.yaml")).unwrap();
    let error = kustomize::build(&DiskFiles, &app.to_string_lossy(), &Options::default());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("security; file"), "{error}");
}
