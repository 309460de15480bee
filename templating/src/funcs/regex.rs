//! Sprig's `regex.go`, on [`golib::regexp`].

use std::ops::Range;

use golib::regexp::{
    Error as SyntaxError, ErrorCode, Meter, Regexp, must_compile_message, quote_meta,
};

use super::functions::Functions;
use crate::error::Error;
use crate::state::State;
use crate::value::{List, STRINGS, Str, size};

/// Makes an error of a bad pattern.
type Refuse = fn(&[u8], SyntaxError) -> Error;

/// Cost of finding out that a pattern is too large, in steps.
const LARGE_STEPS: u64 = 500_000;

pub(super) fn add(f: &mut Functions) {
    f.add(
        "regexMatch",
        |state: &mut State<'_>, pattern: Str, s: Str| match compile(state, &pattern, returned) {
            Ok(regexp) => regexp.is_match(&s, state),
            Err(error) if error.is_limit() => Err(error),
            Err(_) => Ok(false),
        },
    );
    f.add(
        "mustRegexMatch",
        |state: &mut State<'_>, pattern: Str, s: Str| {
            compile(state, &pattern, returned)?.is_match(&s, state)
        },
    );
    f.add("regexQuoteMeta", |s: Str| quote_meta(&s));
    // Sprig has each of these twice: with Go's panic, and with an error.
    for (prefix, refuse) in [
        ("regex", panicked as Refuse),
        ("mustRegex", returned as Refuse),
    ] {
        f.add(
            &format!("{prefix}Find"),
            move |state: &mut State<'_>, pattern: Str, s: Str| {
                let regexp = compile(state, &pattern, refuse)?;
                let found = regexp.find(&s, state)?;
                Ok::<_, Error>(found.map(|found| Str::from(&s[found])).unwrap_or_default())
            },
        );
        f.add(
            &format!("{prefix}FindAll"),
            move |state: &mut State<'_>, pattern: Str, s: Str, n: i64| {
                let regexp = compile(state, &pattern, refuse)?;
                find_all(state, &regexp, &s, n)
            },
        );
        for (name, is_literal) in [("ReplaceAll", false), ("ReplaceAllLiteral", true)] {
            f.add(
                &format!("{prefix}{name}"),
                move |state: &mut State<'_>, pattern: Str, s: Str, by: Str| {
                    let regexp = compile(state, &pattern, refuse)?;
                    state.spend_steps(s.len() as u64)?;
                    let most = bytes_left(state);
                    let replaced = match is_literal {
                        true => regexp.replace_all_literal(&s, &by, most, state)?,
                        false => regexp.replace_all(&s, &by, most, state)?,
                    };
                    replaced.ok_or_else(too_large)
                },
            );
        }
        f.add(
            &format!("{prefix}Split"),
            move |state: &mut State<'_>, pattern: Str, s: Str, n: i64| {
                let regexp = compile(state, &pattern, refuse)?;
                spend_parts(state, &s)?;
                // A split into no parts is nil, as in Go.
                let parts = if n == 0 {
                    None
                } else {
                    Some(regexp.split(&s, n, state)?)
                };
                Ok::<_, Error>(parts.map_or(List::nil(&STRINGS), List::strings))
            },
        );
    }
}

impl Meter for State<'_> {
    type Error = Error;

    fn spend(&mut self, steps: u64) -> Result<(), Error> {
        self.spend_steps(steps)
    }
}

fn panicked(pattern: &[u8], error: SyntaxError) -> Error {
    Error::message(must_compile_message(pattern, &error))
}

fn returned(_: &[u8], error: SyntaxError) -> Error {
    Error::message(error.to_string())
}

fn compile(state: &mut State<'_>, pattern: &[u8], refuse: Refuse) -> Result<Regexp, Error> {
    state.spend_steps(pattern.len() as u64)?;
    match Regexp::compile(pattern) {
        Ok(regexp) => {
            state.spend_steps(regexp.effort())?;
            Ok(regexp)
        }
        Err(error) => {
            if error.code == ErrorCode::Large {
                state.spend_steps(LARGE_STEPS)?;
            }
            Err(refuse(pattern, error))
        }
    }
}

fn find_all(state: &mut State<'_>, regexp: &Regexp, s: &[u8], n: i64) -> Result<List, Error> {
    spend_parts(state, s)?;
    let matches: Vec<Range<usize>> = regexp.find_all(s, n, state)?;
    Ok(match matches.is_empty() {
        true => List::nil(&STRINGS),
        false => List::strings(matches.into_iter().map(|found| &s[found])),
    })
}

/// A text may be cut into as many parts as it has bytes, each a string of its own.
fn spend_parts(state: &mut State<'_>, s: &[u8]) -> Result<(), Error> {
    const LARGE: usize = 256 << 10;
    state.spend_steps(s.len() as u64)?;
    state.check_memory(s.len().saturating_sub(LARGE) as u64 * size::ENTRY)
}

fn bytes_left(state: &State<'_>) -> usize {
    usize::try_from(state.bytes_left()).unwrap_or(usize::MAX)
}

fn too_large() -> Error {
    Error::limit("the text would become larger than the output may be")
}
