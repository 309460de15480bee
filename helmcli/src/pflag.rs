//! Flags as Go's pflag and cobra take them: booleans with `=value`, values that begin with a dash, and
//! the errors helm's users know.

use std::convert::Infallible;
use std::error::Error as _;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, Command};
use golib::strconv::{self, NumError, quote};

use crate::csv;

/// The whole command with flags of its subcommands as pflag reads them.
pub fn command(command: Command) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|sub| sub.get_name().to_owned())
        .collect();
    names.iter().fold(command, |command, name| {
        command.mut_subcommand(name, |sub| {
            sub.args_override_self(true).mut_args(|arg| {
                if arg.is_positional() {
                    return arg;
                }
                match arg.get_action() {
                    ArgAction::SetTrue => arg
                        .action(ArgAction::Set)
                        .num_args(0..=1)
                        .require_equals(true)
                        .default_value("false")
                        .default_missing_value("true")
                        .hide_default_value(true)
                        .hide_possible_values(true)
                        .value_name("BOOL")
                        .value_parser(boolean),
                    ArgAction::Set | ArgAction::Append => arg.allow_hyphen_values(true),
                    _ => arg,
                }
            })
        })
    })
}

/// What pflag says where clap said `error` about these arguments; `None` for help and the like.
pub fn message(error: &clap::Error, arguments: &[String]) -> Option<String> {
    let last = arguments.last().map(String::as_str).unwrap_or_default();
    let flags = || arguments.iter().take_while(|argument| *argument != "--");
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let shown = context(ContextKind::InvalidArg).unwrap_or_default();
    let flag = shown.split([' ', '=', '[']).next().unwrap_or_default();
    let value = context(ContextKind::InvalidValue).unwrap_or_default();
    match error.kind() {
        ErrorKind::UnknownArgument if flag.starts_with("--") => {
            let is_odd =
                |argument: &&String| ["---", "--="].iter().any(|odd| argument.starts_with(odd));
            match flags().find(is_odd) {
                Some(odd) => Some(format!("bad flag syntax: {odd}")),
                None => Some(format!("unknown flag: {flag}")),
            }
        }
        ErrorKind::UnknownArgument => {
            let letter = shown.chars().nth(1).unwrap_or_default();
            // Clap names the letter alone, pflag what stands behind it too.
            let cluster = flags()
                .filter(|argument| argument.starts_with('-') && !argument.starts_with("--"))
                .find_map(|argument| argument.find(letter).map(|at| &argument[at..]));
            let cluster = cluster.map_or(flag.to_owned(), |rest| format!("-{rest}"));
            Some(format!("unknown shorthand flag: '{letter}' in {cluster}"))
        }
        // Nothing follows the last argument: it is to blame, in the form it has.
        ErrorKind::InvalidValue if value.is_empty() => Some(match last.chars().last() {
            Some(letter) if !last.starts_with("--") => {
                format!("flag needs an argument: {letter:?} in {last}")
            }
            _ => format!("flag needs an argument: {flag}"),
        }),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let cause = error.source().map(ToString::to_string).unwrap_or_default();
            Some(format!(
                "invalid argument {} for {} flag: {cause}",
                quote(value),
                quote(full_name(flag))
            ))
        }
        _ => None,
    }
}

/// The flag with its shorthand, as pflag names it.
fn full_name(flag: &str) -> String {
    const SHORTHANDS: [(&str, &str); 7] = [
        ("--v", "-v"),
        ("--show-only", "-s"),
        ("--values", "-f"),
        ("--namespace", "-n"),
        ("--labels", "-l"),
        ("--api-versions", "-a"),
        ("--generate-name", "-g"),
    ];
    match SHORTHANDS.iter().find(|(long, _)| *long == flag) {
        Some((long, short)) => format!("{short}, {long}"),
        None => flag.to_owned(),
    }
}

/// A boolean as Go's `strconv.ParseBool` takes it.
///
/// # Errors
/// Everything else, in Go's words.
pub fn boolean(text: &str) -> Result<bool, NumError> {
    strconv::parse_bool(text)
}

/// A whole number.
///
/// # Errors
/// It is not one; the text is Go's.
pub fn integer(text: &str) -> Result<i64, NumError> {
    strconv::parse_int(text, 10, 64)
}

/// A number.
///
/// # Errors
/// It is not one; the text is Go's.
pub fn float(text: &str) -> Result<f64, NumError> {
    strconv::parse_float(text, 32)
}

/// A path, which may be empty.
///
/// # Errors
/// None.
pub fn path(text: &str) -> Result<PathBuf, Infallible> {
    Ok(text.into())
}

/// A Go duration.
///
/// # Errors
/// It is not one; the text is Go's.
pub fn duration(text: &str) -> Result<i64, String> {
    let duration = golib::duration::Duration::parse(text);
    duration
        .map(|duration| duration.0)
        .map_err(|error| error.to_string())
}

/// `key=value,…`
///
/// # Errors
/// An item without `=`.
pub fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let items = match text.matches('=').count() {
        // Only where there are several can a comma be between them.
        0 | 1 => vec![text.trim_matches('"').to_owned()],
        _ => csv::list(text)?,
    };
    let pair = |item: &String| match item.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(format!("{item} must be formatted as key=value")),
    };
    items.iter().map(pair).collect()
}
