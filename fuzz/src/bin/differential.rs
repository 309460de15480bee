//! Random cases to us and to Go: `differential PROGRAM [--seed N] [--count N] [--only KIND] [--case KIND:NUMBER] [--all]`, or
//! templates of one's own, a line each: `differential PROGRAM --ask < FILE`.
//!
//! PROGRAM is `tests/reference/engine`, which `make tools` builds. A run is determined by its seed (default 1) and count
//! (default 20,000): the case `KIND:NUMBER` of a seed is always the same one. Differences are made small and shown, one of
//! each sort unless `--all`. Exits with 1 when there are any.

use std::collections::HashSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use fuzzing::differential::{
    Answer, Difference, KINDS, Kind, Question, Reference, Verdict, both, case_bytes, judge,
    judge_all, question, shrink,
};

/// Enough for every nesting the grammar can write, in an unoptimised build too.
const STACK_BYTES: usize = 256 << 20;
/// Questions asked at once.
const BATCH: u64 = 64;
const SHRINK_ATTEMPTS: usize = 3_000;
const SHOWN_CHARS: usize = 500;

struct Args {
    program: PathBuf,
    seed: u64,
    count: u64,
    only: Option<String>,
    case: Option<u64>,
    all: bool,
    ask: bool,
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<ExitCode, AnyError> {
    let options = options()?;
    std::panic::set_hook(Box::new(|_| {})); // a panic is an answer, shown like any other
    let run = std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || run(&options))?;
    run.join()
        .unwrap_or_else(|_| Err("the run itself panicked".into()))
}

fn options() -> Result<Args, AnyError> {
    let mut options = Args {
        program: PathBuf::new(),
        seed: 1,
        count: 20_000,
        only: None,
        case: None,
        all: false,
        ask: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match &*argument {
            "--seed" => options.seed = value()?.parse()?,
            "--count" => options.count = value()?.parse()?,
            "--only" => options.only = Some(value()?),
            "--case" => {
                let value = value()?;
                let (kind, number) = value.split_once(':').ok_or("--case needs KIND:NUMBER")?;
                options.only = Some(kind.to_owned());
                options.case = Some(number.parse()?);
            }
            "--all" => options.all = true,
            "--ask" => options.ask = true,
            _ => options.program = argument.into(),
        }
    }
    if options.program.as_os_str().is_empty() {
        return Err("usage: differential PROGRAM [--seed N] [--count N] [--only KIND] [--case KIND:NUMBER] [--all]".into());
    }
    Ok(options)
}

fn run(options: &Args) -> Result<ExitCode, AnyError> {
    let mut reference = Reference::start(&options.program)?;
    let mut out = std::io::stdout().lock();
    let mut different = 0;
    if options.ask {
        for line in std::io::stdin().lines() {
            let question = Question {
                what: "template",
                dialect: "helm",
                template: line?,
                data: serde_json::json!({}),
                ..Question::default()
            };
            let answers = both(question, &mut reference)?;
            let is_same = answers.ours == answers.theirs;
            if !is_same || options.all {
                writeln!(out, "{}", show(&answers))?;
            }
            different += u64::from(!is_same);
        }
        writeln!(out, "different {different}")?;
        return Ok(ExitCode::from(u8::from(different > 0)));
    }
    let shares: u64 = KINDS.iter().map(|kind| kind.share).sum();
    for kind in KINDS {
        let is_only = options.only.as_ref().map(|only| *only == kind.name);
        if is_only == Some(false) {
            continue;
        }
        let count = match is_only {
            Some(true) => options.count,
            _ => options.count * kind.share / shares,
        };
        let numbers = options.case.map_or(0..count, |case| case..case + 1);
        let mut tally = Tally::default();
        let mut sorts = HashSet::new();
        if options.case.is_some() {
            let bytes = case_bytes(kind, options.seed, numbers.start);
            let question = question(kind, &bytes);
            writeln!(out, "{}", show(&both(question, &mut reference)?))?;
        }
        for start in numbers.clone().step_by(BATCH as usize) {
            let batch = start..(start + BATCH).min(numbers.end);
            let verdicts = judge_all(kind, options.seed, batch, &mut reference)?;
            for (number, verdict) in (start..).zip(verdicts) {
                let found = match verdict {
                    Verdict::Different(found) => found,
                    other => {
                        tally.count(&other, number);
                        continue;
                    }
                };
                tally.different += 1;
                if !sorts.insert(sort(&found)) && !options.all {
                    continue;
                }
                let bytes = case_bytes(kind, options.seed, number);
                let small = smallest(kind, bytes, &found, &mut reference);
                if sorts.insert(format!("small {}", sort(&small))) || options.all {
                    writeln!(out, "{}:{number}\n{}", kind.name, show(&small))?;
                    out.flush()?;
                }
            }
        }
        if !tally.unstable.is_empty() {
            let first = &tally.unstable[..tally.unstable.len().min(5)];
            writeln!(out, "{}: no one answer of Go to {first:?}…", kind.name)?;
        }
        different += tally.different;
        writeln!(
            out,
            "{}: same {} different {} explained {} unstable in Go {}",
            kind.name,
            tally.same,
            tally.different,
            tally.explained,
            tally.unstable.len()
        )?;
        out.flush()?;
    }
    Ok(if different == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

#[derive(Default)]
struct Tally {
    same: u64,
    different: u64,
    explained: u64,
    unstable: Vec<u64>,
}

impl Tally {
    fn count(&mut self, verdict: &Verdict, number: u64) {
        match verdict {
            Verdict::Same => self.same += 1,
            Verdict::Explained(_) => self.explained += 1,
            Verdict::Unstable => self.unstable.push(number),
            Verdict::Different(_) => self.different += 1,
        }
    }
}

/// The difference with as little around it as possible.
fn smallest(
    kind: &Kind,
    bytes: Vec<u8>,
    found: &Difference,
    reference: &mut Reference,
) -> Difference {
    let wanted = (found.ours.is_ok(), found.theirs.is_ok());
    let mut small = None;
    shrink(bytes, SHRINK_ATTEMPTS, |bytes| {
        match judge(kind, bytes, reference) {
            Ok(Verdict::Different(difference))
                if (difference.ours.is_ok(), difference.theirs.is_ok()) == wanted =>
            {
                small = Some(*difference);
                true
            }
            _ => false,
        }
    });
    small.unwrap_or(Difference {
        question: found.question.clone(),
        ours: found.ours.clone(),
        theirs: found.theirs.clone(),
    })
}

/// What many cases of one cause have in common: the words of the errors without what they quote.
fn sort(difference: &Difference) -> String {
    let words = |answer: &Answer| match answer {
        Ok(_) => "output".to_owned(),
        Err(error) => {
            let mut words = String::new();
            let mut in_quotes = false;
            for c in error.chars() {
                match c {
                    '"' | '`' => in_quotes = !in_quotes,
                    '0'..='9' => {}
                    _ if !in_quotes => words.push(c),
                    _ => {}
                }
            }
            let last = words.rsplit(">: ").next().unwrap_or_default().to_owned();
            last.chars().take(60).collect()
        }
    };
    format!(
        "{} / {}",
        words(&difference.ours),
        words(&difference.theirs)
    )
}

fn show(difference: &Difference) -> String {
    let cut = |text: String| match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text,
    };
    let answer = |answer: &Answer| {
        cut(match answer {
            Ok(output) => format!("output {:?}", String::from_utf8_lossy(output)),
            Err(error) => format!("error {error:?}"),
        })
    };
    let question = &difference.question;
    let mut lines = Vec::new();
    if !question.text.is_empty() {
        lines.push(format!("  text:   {:?}", question.text));
    }
    if !question.names.is_empty() {
        lines.push(format!("  names:  {:?}", question.names));
    }
    if !question.template.is_empty() {
        lines.push(format!("  source: {}", question.template));
    }
    for (name, text) in &question.others {
        lines.push(format!("  {name}: {text}"));
    }
    if !question.data.is_null() {
        lines.push(format!("  data:   {}", question.data));
    }
    lines.push(format!("  ours:   {}", answer(&difference.ours)));
    lines.push(format!("  go:     {}", answer(&difference.theirs)));
    lines.join("\n")
}
