//! Sprig's `regex.go`, on [`golib::regexp`].

use std::ops::Range;

use golib::regexp::{Error as SyntaxError, Regexp, must_compile_message, quote_meta};

use super::Functions;
use crate::error::Error;
use crate::exec::State;
use crate::value::{List, STRINGS, Str};

/// Makes an error of a bad pattern.
type Refuse = fn(&[u8], SyntaxError) -> Error;

pub(super) fn add(f: &mut Functions) {
    f.add(
        "regexMatch",
        |state: &mut State<'_>, pattern: Str, s: Str| match compile(state, &pattern, returned) {
            Ok(regexp) => regexp.is_match(&s),
            Err(_) => false,
        },
    );
    f.add(
        "mustRegexMatch",
        |state: &mut State<'_>, pattern: Str, s: Str| {
            compile(state, &pattern, returned).map(|regexp| regexp.is_match(&s))
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
                Ok::<_, Error>(
                    regexp
                        .find(&s)
                        .map(|found| Str::from(&s[found]))
                        .unwrap_or_default(),
                )
            },
        );
        f.add(
            &format!("{prefix}FindAll"),
            move |state: &mut State<'_>, pattern: Str, s: Str, n: i64| {
                let regexp = compile(state, &pattern, refuse)?;
                find_all(state, &regexp, &s, n)
            },
        );
        f.add(
            &format!("{prefix}ReplaceAll"),
            move |state: &mut State<'_>, pattern: Str, s: Str, template: Str| {
                let regexp = compile(state, &pattern, refuse)?;
                spend_replacement(state, &s, &template)?;
                Ok::<_, Error>(regexp.replace_all(&s, &template))
            },
        );
        f.add(
            &format!("{prefix}ReplaceAllLiteral"),
            move |state: &mut State<'_>, pattern: Str, s: Str, literal: Str| {
                let regexp = compile(state, &pattern, refuse)?;
                spend_replacement(state, &s, &literal)?;
                Ok::<_, Error>(regexp.replace_all_literal(&s, &literal))
            },
        );
        f.add(
            &format!("{prefix}Split"),
            move |state: &mut State<'_>, pattern: Str, s: Str, n: i64| {
                let regexp = compile(state, &pattern, refuse)?;
                state.spend_steps(s.len() as u64)?;
                // A split into no parts is nil, as in Go.
                let parts = if n == 0 {
                    None
                } else {
                    Some(regexp.split(&s, n))
                };
                Ok::<_, Error>(parts.map_or(List::nil(&STRINGS), List::strings))
            },
        );
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
    Regexp::compile(pattern).map_err(|error| refuse(pattern, error))
}

fn find_all(state: &mut State<'_>, regexp: &Regexp, s: &[u8], n: i64) -> Result<List, Error> {
    state.spend_steps(s.len() as u64)?;
    let matches: Vec<Range<usize>> = regexp.find_all(s, n);
    Ok(match matches.is_empty() {
        true => List::nil(&STRINGS),
        false => List::strings(matches.into_iter().map(|found| &s[found])),
    })
}

/// There are at most as many matches as bytes, and each may become as long as the template and the whole text: what is
/// counted is the template, the rest is bounded by it within a factor that only a hostile template reaches.
fn spend_replacement(state: &mut State<'_>, s: &[u8], template: &[u8]) -> Result<(), Error> {
    state.spend_steps(s.len() as u64)?;
    state.spend_bytes((s.len() as u64 + 1).saturating_mul(template.len() as u64))
}
