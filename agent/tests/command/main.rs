//! The commands, run as people run them: each file beside this is a transcript and the files it needs.
//!
//! A transcript has `$ arguments`, then what came out: standard output as it is, standard error behind `! `, and `? code` unless that
//! is 0. Variables go before the arguments (`NAME=value`), what standard input has behind them (`< text`). `$ show PATH` tells what
//! lies there by then. Files follow below `-- path --`, links as `-- path -> target --`; what goes below a `.tgz` is packed into it,
//! and what is below `served/` is on the web, by host.
//!
//! Cases of `template` are recorded from Helm 4.3.1: `RECORD=path/to/helm cargo test -p agent --test command` writes their answers
//! anew, `AS=path/to/helm` holds helm against what is recorded, `ONLY=text` picks files. What differs by intent is in `differences`.

mod served;
mod shown;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Default)]
struct Case {
    /// Lines before the first command, kept as they are.
    remarks: String,
    /// Arguments, and what should come out.
    commands: Vec<(String, String)>,
    /// Path and content.
    files: Vec<(String, String)>,
}

impl Case {
    fn parse(text: &str) -> Self {
        let mut case = Self::default();
        for line in text.split_inclusive('\n') {
            let bare = line.trim_end();
            if let Some(path) = bare.strip_prefix("-- ").and_then(|l| l.strip_suffix(" --")) {
                case.files.push((path.to_owned(), String::new()));
            } else if let Some((_, content)) = case.files.last_mut() {
                content.push_str(line);
            } else if let Some(arguments) = bare.strip_prefix("$ ") {
                case.commands.push((arguments.to_owned(), String::new()));
            } else if let Some((_, output)) = case.commands.last_mut() {
                output.push_str(line);
            } else {
                case.remarks.push_str(line);
            }
        }
        case
    }

    fn print(&self) -> String {
        let mut text = self.remarks.clone();
        for (arguments, output) in &self.commands {
            let _ = write!(text, "$ {arguments}\n{output}");
        }
        for (path, content) in &self.files {
            let _ = write!(text, "-- {path} --\n{content}");
        }
        text
    }

    /// Runs every command in a fresh folder; gives the answers.
    fn run(&self, program: &Path) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut archives: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        for (path, content) in &self.files {
            if let Some((archive, inside)) = path.split_once(".tgz/") {
                let files = archives.entry(archive).or_default();
                files.push((inside, content));
                continue;
            }
            let path = place(folder.path(), path);
            match link(&path) {
                Some((path, target)) => std::os::unix::fs::symlink(target, path).expect("a link"),
                None => std::fs::write(path, content).expect("a file"),
            }
        }
        for (archive, files) in archives {
            let path = place(folder.path(), &format!("{archive}.tgz"));
            std::fs::write(path, shown::packed(&files)).expect("a file");
        }
        let proxy = served::serve(folder.path().join("served"));
        let commands = self.commands.iter();
        commands
            .map(|(line, _)| match line.strip_prefix("show ") {
                Some(place) => shown::show(folder.path(), place),
                None => answer(program, line, folder.path(), &proxy),
            })
            .collect()
    }
}

/// A path in the folder, whose own folder is there.
fn place(folder: &Path, path: &str) -> PathBuf {
    let path = folder.join(path);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
    path
}

/// A path that reads `link -> target`.
fn link(path: &Path) -> Option<(&str, &str)> {
    path.to_str()?.split_once(" -> ")
}

fn answer(program: &Path, line: &str, folder: &Path, proxy: &str) -> String {
    let (line, input) = line.split_once(" < ").unwrap_or((line, ""));
    let mut arguments = words(line);
    let is_variable = |word: &String| {
        let name = word.split_once('=').map_or("", |(name, _)| name);
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')
    };
    let first = arguments.iter().position(|word| !is_variable(word));
    let variables: Vec<String> = arguments.drain(..first.unwrap_or_default()).collect();
    let variables = variables.iter().filter_map(|word| word.split_once('='));
    let mut process = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .env("HOME", folder.join("home"))
        .env("HTTP_PROXY", proxy)
        .envs(variables)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut stdin = process.stdin.take().expect("its input");
    // It need not read all of it.
    stdin.write_all(input.as_bytes()).ok();
    drop(stdin);
    let output = process.wait_with_output().expect("the program ends");
    // Whoever prints absolute paths prints this folder.
    let real = std::fs::canonicalize(folder).expect("the folder");
    let real = real.display().to_string();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&real, "FOLDER");
    let mut answer = String::new();
    match output.status.code() {
        Some(0) => {}
        Some(code) => {
            let _ = writeln!(answer, "? {code}");
        }
        None => answer.push_str("? killed\n"),
    }
    answer.push_str(&text(&output.stdout));
    if !answer.is_empty() && !answer.ends_with('\n') {
        answer.push_str("\\ no newline\n");
    }
    for line in text(&output.stderr).lines() {
        // Helm tells the time in some of its lines.
        let _ = writeln!(answer, "! {}", without_time(line));
    }
    answer
}

/// Go's `log` begins lines with the date and the time.
fn without_time(line: &str) -> String {
    let stamp = line.get(..20).is_some_and(|stamp| {
        stamp
            .chars()
            .zip("dddd/dd/dd dd:dd:dd ".chars())
            .all(|(c, p)| match p {
                'd' => c.is_ascii_digit(),
                p => c == p,
            })
    });
    match stamp {
        true => format!("TIME {}", &line[20..]),
        false => line.to_owned(),
    }
}

/// Words at blanks; quoted ones may hold blanks.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match (c, quote) {
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, Some(open)) if c == open => quote = None,
            (' ', None) => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

fn cases(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/command")
        .join(folder);
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("the cases")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.to_string_lossy().contains(&only))
        .collect();
    files.sort();
    files
}

fn check(folder: &str, program: &Path) {
    let mut failures = String::new();
    for file in cases(folder) {
        let case = Case::parse(&std::fs::read_to_string(&file).expect("a case"));
        for ((arguments, want), got) in case.commands.iter().zip(case.run(program)) {
            if *want != got {
                let name = file.file_name().expect("a name").to_string_lossy();
                let _ = write!(
                    failures,
                    "{name}: $ {arguments}\nwant:\n{want}got:\n{got}\n"
                );
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

fn ours() -> PathBuf {
    env!("CARGO_BIN_EXE_fleetagent").into()
}

#[test]
fn template_answers_as_helm() {
    if let Some(helm) = std::env::var_os("RECORD") {
        for file in cases("template") {
            let mut case = Case::parse(&std::fs::read_to_string(&file).expect("a case"));
            let answers = case.run(Path::new(&helm));
            for ((_, output), answer) in case.commands.iter_mut().zip(answers) {
                *output = answer;
            }
            std::fs::write(file, case.print()).expect("a case");
        }
        return;
    }
    check(
        "template",
        &std::env::var_os("AS").map_or_else(ours, PathBuf::from),
    );
}

#[test]
fn template_differs_where_it_should() {
    check("differences", &ours());
}

#[test]
fn values_prints_what_a_cluster_gets() {
    check("values", &ours());
}
