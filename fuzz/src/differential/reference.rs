//! The Go program `tests/reference/engine`, over its pipes.

use std::io::{self, BufReader, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value as Json;

use super::{Answer, Question};

/// A running reference program; it ends with this value.
pub struct Reference {
    program: PathBuf,
    child: Child,
    requests: BufWriter<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Reference {
    /// Starts the program, in UTC.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(program: &Path) -> io::Result<Self> {
        let mut child = Command::new(program)
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        Ok(Self {
            program: program.to_owned(),
            child,
            requests: BufWriter::new(requests),
            answers: BufReader::new(answers),
        })
    }

    /// The answer; nothing when Go does not always give the same, none within five seconds, or dies.
    ///
    /// # Errors
    /// When the program cannot be started again, or says something else than answers.
    pub fn ask(&mut self, question: &Question) -> io::Result<Option<Answer>> {
        let answers = self.ask_all(std::slice::from_ref(question))?;
        Ok(answers.into_iter().next().flatten())
    }

    /// The answers to many questions, in their order.
    ///
    /// # Errors
    /// As [`Reference::ask`].
    pub fn ask_all(&mut self, questions: &[Question]) -> io::Result<Vec<Option<Answer>>> {
        let mut answers = Vec::with_capacity(questions.len());
        while answers.len() < questions.len() {
            let pending = &questions[answers.len()..];
            let is_alive = self.exchange(pending, &mut answers)?;
            if !is_alive {
                *self = Self::start(&self.program)?;
            }
        }
        Ok(answers)
    }

    /// Writes all questions while it reads the answers; whether the program lives on.
    fn exchange(
        &mut self,
        questions: &[Question],
        answers: &mut Vec<Option<Answer>>,
    ) -> io::Result<bool> {
        let requests = &mut self.requests;
        std::thread::scope(|scope| {
            // What cannot be written any more shows as an answer that is missing.
            scope.spawn(|| write_all(requests, questions));
            for _ in questions {
                let body = match read(&mut self.answers) {
                    // It died of the question: Go cannot survive a stack that overflows.
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        answers.push(None);
                        return Ok(false);
                    }
                    body => body?,
                };
                let is_endless = body["endless"].as_bool() == Some(true);
                answers.push(match is_endless {
                    true => None,
                    false => answer(&body)?,
                });
                if is_endless {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }
}

fn write_all(requests: &mut BufWriter<ChildStdin>, questions: &[Question]) -> io::Result<()> {
    for question in questions {
        let request = question.to_json().to_string();
        let length = u32::try_from(request.len()).map_err(io::Error::other)?;
        requests.write_all(&length.to_be_bytes())?;
        requests.write_all(request.as_bytes())?;
    }
    requests.flush()
}

fn read(answers: &mut BufReader<ChildStdout>) -> io::Result<Json> {
    let mut length = [0; 4];
    answers.read_exact(&mut length)?;
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    answers.read_exact(&mut body)?;
    Ok(serde_json::from_slice(&body)?)
}

fn answer(body: &Json) -> io::Result<Option<Answer>> {
    if body["unstable"].as_bool() == Some(true) {
        return Ok(None);
    }
    let bytes = |field: &str| decoded(body[field].as_str().unwrap_or_default());
    Ok(Some(match body["failed"].as_bool() {
        Some(true) => Err(String::from_utf8_lossy(&bytes("error")?).into_owned()),
        _ => Ok(bytes("output")?),
    }))
}

impl Drop for Reference {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Standard base64, as Go writes bytes into JSON.
fn decoded(text: &str) -> io::Result<Vec<u8>> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .map_err(io::Error::other)
}
