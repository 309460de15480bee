//! Kustomizations that would take too much, or lead out of their directory, end in an error that says so. None asserts how long
//! it takes: what bounds time and memory is what a build counts.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use kustomize::{DiskFiles, Error, MemoryFiles, Options};

fn failure(files: &[(&str, &str)]) -> Error {
    let mut memory = MemoryFiles::new();
    for (name, content) in files {
        memory.add(name, content.as_bytes()).unwrap();
    }
    match kustomize::build(&memory, "app", &Options::default()) {
        Ok(_) => panic!("it is built"),
        Err(error) => error,
    }
}

const OBJECT: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";

#[test]
fn bases_that_lead_back_are_a_cycle() {
    let error = failure(&[
        ("app/kustomization.yaml", "resources: [../other]\n"),
        ("other/kustomization.yaml", "resources: [../app]\n"),
    ]);
    assert!(error.to_string().contains("cycle detected"), "{error}");
}

#[test]
fn files_outside_of_the_directory_are_not_read() {
    for path in ["../secret.yaml", "/secret.yaml", "./../secret.yaml"] {
        let kustomization = format!("resources: ['{path}']\n");
        let error = failure(&[
            ("app/kustomization.yaml", &kustomization),
            ("secret.yaml", OBJECT),
        ]);
        assert!(error.to_string().contains("security; file"), "{error}");
    }
}

#[test]
fn links_lead_nowhere_unseen() {
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

#[test]
fn documents_that_grow_or_nest_without_end_are_refused() {
    let bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned()
        + &["ab", "bc", "cd", "de", "ef", "fg", "gh", "hi"]
            .map(|pair| {
                let (from, to) = pair.split_at(1);
                let aliases = vec![format!("*{from}"); 9].join(", ");
                format!("{to}: &{to} [{aliases}]\n")
            })
            .concat();
    let deep = format!("a: {}{}\n", "[".repeat(20_000), "]".repeat(20_000));
    for content in [bomb, deep] {
        let text = format!("{OBJECT}{content}");
        let error = failure(&[
            ("app/kustomization.yaml", "resources: [a.yaml]\n"),
            ("app/a.yaml", &text),
        ]);
        let told = error.to_string();
        assert!(
            told.contains("too large") || told.contains("nested deeper"),
            "{told}"
        );
    }
}

#[test]
fn generators_read_no_more_than_a_build_may() {
    let large = "x".repeat(4 << 20);
    let sources: Vec<String> = (0..40).map(|at| format!("k{at}=large.txt")).collect();
    let kustomization = format!(
        "configMapGenerator: [{{name: a, files: [{}]}}]\n",
        sources.join(", ")
    );
    let error = failure(&[
        ("app/kustomization.yaml", &kustomization),
        ("app/large.txt", &large),
    ]);
    assert!(error.is_limit(), "{error}");
}

/// Replacements that each put a text behind itself.
#[test]
fn texts_that_double_are_refused() {
    let one = "- source: {kind: ConfigMap, fieldPath: data.a}\n  \
               targets: [{select: {kind: ConfigMap}, fieldPaths: [data.a], options: {delimiter: ':', index: 9999999}}]\n";
    let error = failure(&[
        (
            "app/kustomization.yaml",
            &format!("resources: [a.yaml]\nreplacements:\n{}", one.repeat(60)),
        ),
        ("app/a.yaml", &format!("{OBJECT}data: {{a: xx}}\n")),
    ]);
    assert!(error.is_limit(), "{error}");
}

/// Sources are looked for among all objects, also for replacements that have nowhere to put them.
#[test]
fn sources_times_objects_are_work() {
    let objects: String = (0..4_000)
        .map(|at| format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a{at}}}\n"))
        .collect();
    let one = "- {source: {kind: ConfigMap, name: a1}, targets: []}\n";
    let error = failure(&[
        (
            "app/kustomization.yaml",
            &format!("resources: [a.yaml]\nreplacements:\n{}", one.repeat(4_000)),
        ),
        ("app/a.yaml", &objects),
    ]);
    assert!(error.is_limit(), "{error}");
}
