//! The real program: it answers one question after the other, and is started anew where it falls over one or never ends.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Answer, Case};

/// What Go is given to answer; some replacements append for ever.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Reference {
    program: PathBuf,
    running: Option<Running>,
    /// For cases that bring types of their own, after which the program has to read Kubernetes' again, which takes it longest.
    with_types: Option<Running>,
}

struct Running {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Running {
    fn start(program: &Path) -> Self {
        let mut command = Command::new(program);
        command
            .arg("answer")
            // What grows without end is to end soon, and not to take the machine with it.
            .env("GOMEMLIMIT", "1GiB")
            // Most of what it holds are types, which it need not look through so often.
            .env("GOGC", "400")
            .env("GOMAXPROCS", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            input,
            lines,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Reference {
    pub(super) fn new(program: &Path) -> Self {
        Self {
            program: program.to_owned(),
            running: None,
            with_types: None,
        }
    }

    /// What it prints or says is wrong; `PANIC` where it falls over the question or does not end.
    pub(super) fn ask(&mut self, case: &Case) -> Answer {
        let program = &self.program;
        let has_types = case.files.values().any(|text| text.contains("openapi"));
        let place = match has_types {
            true => &mut self.with_types,
            false => &mut self.running,
        };
        let running = place.get_or_insert_with(|| Running::start(program));
        let question = json!({ "dir": ".", "asFleet": case.as_fleet, "files": case.files });
        let is_asked = writeln!(running.input, "{question}").is_ok();
        let Some(line) = running
            .lines
            .recv_timeout(PATIENCE)
            .ok()
            .filter(|_| is_asked)
        else {
            *place = None;
            return Err("PANIC: no answer".to_owned());
        };
        let answer: Value = serde_json::from_str(&line).unwrap();
        match answer["error"].as_str().unwrap_or_default() {
            "" => Ok(answer["output"].as_str().unwrap_or_default().to_owned()),
            error => Err(error.to_owned()),
        }
    }
}
