//! The same random cases to us and to the real Go libraries: what differs is made as small as possible and shown.

mod kinds;
mod ours;
mod reference;
mod shrink;

use std::io;
use std::ops::Range;

use serde_json::{Value as Json, json};

pub use kinds::{KINDS, Kind};
pub use reference::Reference;
pub use shrink::shrink;

use crate::{Choices, seeded};

/// What both sides are asked; the fields that a `what` does not use are empty.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// The `kind` of the reference program: `template`, `chart`, `yaml`, `glob`, …
    pub what: &'static str,
    /// For templates: `text`, `helm` or `fleet`.
    pub dialect: &'static str,
    pub template: String,
    pub others: Vec<(String, String)>,
    pub data: Json,
    pub text: String,
    pub names: Vec<String>,
}

impl Question {
    fn to_json(&self) -> Json {
        json!({
            "kind": self.what,
            "dialect": self.dialect,
            "template": self.template,
            "others": self.others,
            "data": self.data,
            "text": self.text,
            "names": self.names,
        })
    }
}

/// Output or error text.
pub type Answer = Result<Vec<u8>, String>;

/// A case to which we answer otherwise than Go.
#[derive(Debug)]
pub struct Difference {
    pub question: Question,
    pub ours: Answer,
    pub theirs: Answer,
}

/// How a case ended.
#[derive(Debug)]
pub enum Verdict {
    Same,
    /// Go itself answers now this, now that, or panics.
    Unstable,
    /// A difference that COMPATIBILITY.md states, by its reason.
    Explained(&'static str),
    Different(Box<Difference>),
}

/// The bytes of a case.
pub fn case_bytes(kind: &Kind, seed: u64, number: u64) -> Vec<u8> {
    let salt = kind.name.bytes().fold(0, |hash: u64, byte| {
        hash.wrapping_mul(31).wrapping_add(byte.into())
    });
    let length = 8 + (number as usize * 13) % kind.max_bytes;
    seeded(seed.wrapping_add(salt << 32), number, length)
}

/// Asks both sides.
///
/// # Errors
/// When the reference program cannot be talked to.
pub fn judge(kind: &Kind, bytes: &[u8], reference: &mut Reference) -> io::Result<Verdict> {
    let question = (kind.question)(&mut Choices::new(bytes));
    let theirs = reference.ask(&question)?;
    compare(question, theirs, reference)
}

/// Asks both sides about many cases at once, which spares most of the waiting for each other.
///
/// # Errors
/// When the reference program cannot be talked to.
pub fn judge_all(
    kind: &Kind,
    seed: u64,
    numbers: Range<u64>,
    reference: &mut Reference,
) -> io::Result<Vec<Verdict>> {
    let question = |number| (kind.question)(&mut Choices::new(&case_bytes(kind, seed, number)));
    let questions: Vec<Question> = numbers.map(question).collect();
    let theirs = reference.ask_all(&questions)?;
    let both = questions.into_iter().zip(theirs);
    both.map(|(question, theirs)| compare(question, theirs, reference))
        .collect()
}

fn compare(
    question: Question,
    theirs: Option<Answer>,
    reference: &mut Reference,
) -> io::Result<Verdict> {
    let Some(theirs) = theirs else {
        return Ok(Verdict::Unstable);
    };
    let ours = ours::answer(&question);
    if ours == theirs {
        return Ok(Verdict::Same);
    }
    if matches!(&theirs, Err(error) if error.starts_with("panic: ")) {
        return Ok(Verdict::Unstable);
    }
    // A map of few keys often comes out the same way twice.
    for _ in 0..4 {
        match reference.ask(&question)? {
            Some(again) if again == theirs => {}
            _ => return Ok(Verdict::Unstable),
        }
    }
    if let Some(reason) = kinds::explained(&question, &ours, &theirs) {
        return Ok(Verdict::Explained(reason));
    }
    Ok(Verdict::Different(Box::new(Difference {
        question,
        ours,
        theirs,
    })))
}

/// The question that a kind makes of bytes.
pub fn question(kind: &Kind, bytes: &[u8]) -> Question {
    (kind.question)(&mut Choices::new(bytes))
}

/// A question as both sides answer it, whether they differ or not.
///
/// # Errors
/// When the reference program cannot be talked to.
pub fn both(question: Question, reference: &mut Reference) -> io::Result<Difference> {
    let theirs = reference.ask(&question)?;
    Ok(Difference {
        ours: ours::answer(&question),
        theirs: theirs.unwrap_or_else(|| Err("now this, now that".to_owned())),
        question,
    })
}
