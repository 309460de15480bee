//! Random flags of `helm template`, and the files they name.

use super::chart::{Files, values_file};
use super::dice::Dice;
use super::values;

/// What follows `template`, and standard input.
pub(crate) fn write(dice: &mut Dice, files: &mut Files) -> (Vec<String>, String) {
    let mut flags: Vec<String> = Vec::new();
    let mut input = String::new();
    match dice.below(12) {
        0 => flags.extend(["./chart".to_owned()]),
        1 => flags.extend([
            dice.pick(&["Rel", "a.b", "-x", "", "r_", "rel"]).to_owned(),
            "./chart".to_owned(),
        ]),
        _ => flags.extend(["rel".to_owned(), "./chart".to_owned()]),
    }
    let mut add = |flag: &str, value: &str| flags.extend([flag.to_owned(), value.to_owned()]);
    for at in 0..dice.below(3) {
        if dice.chance(8) {
            input = values_file(dice);
            add("-f", "-");
        } else {
            let name = format!("values-{at}.yaml");
            files.insert(name.clone(), values_file(dice));
            add("-f", &name);
        }
    }
    for _ in 0..dice.below(3) {
        match dice.below(10) {
            0..5 => add("--set", &values::expression(dice)),
            5 => add("--set-string", &values::expression(dice)),
            6 | 7 => add("--set-json", &values::json_expression(dice)),
            8 => {
                files.insert(
                    "set.txt".to_owned(),
                    dice.pick(&["text\n", "", "a: b"]).to_owned(),
                );
                let file = dice.mostly(&["set.txt"], &["missing.txt", ""]);
                add("--set-file", &format!("{}={file}", values::place(dice)));
            }
            _ => add(
                "--set-literal",
                &format!(
                    "{}={}",
                    values::place(dice),
                    dice.pick(&["a,b{c}", "", "\\", "1", "x=y"])
                ),
            ),
        }
    }
    if dice.chance(15) {
        let wanted = dice.mostly(
            &[
                "templates/a.yaml",
                "templates/*.yaml",
                "charts/one/templates/a.yaml",
                "templates/*",
            ],
            &[
                "templates/**",
                "*",
                "templates/[ab].yaml",
                "templates/missing.yaml",
                "templates/NOTES.txt",
                "[",
                "charts/*/templates/a.yaml",
                "",
            ],
        );
        add("-s", wanted);
    }
    if dice.chance(10) {
        add(
            "--kube-version",
            dice.mostly(
                &["1.30.0", "v1.19"],
                &["1.30.2-gke.1", "1.25+k3s1", "x", "1"],
            ),
        );
    }
    if dice.chance(10) {
        add(
            "-a",
            dice.mostly(&["example.com/v1", "a/v1,b/v2"], &["", "\"a,b\"", "x"]),
        );
    }
    if dice.chance(10) {
        add("-n", dice.pick(&["ns", "", "Ns!"]));
    }
    for flag in [
        "--is-upgrade",
        "--no-hooks",
        "--include-crds",
        "--skip-tests",
        "--skip-schema-validation",
        "--debug",
        "--dry-run=client",
        "--skip-crds",
        "--release-name",
        "--enable-dns",
    ] {
        if dice.chance(6) {
            flags.push(flag.to_owned());
        }
    }
    if dice.chance(3) {
        flags.extend([
            "--name-template".to_owned(),
            dice.pick(&["x-{{ upper \"a\" | lower }}", "{{", "y"])
                .to_owned(),
        ]);
    }
    (flags, input)
}
