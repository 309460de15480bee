//! What Helm would log while it loads a chart or merges values.
//!
//! Warnings are collected, not printed: the caller decides. Their `Display` leaves values out, so
//! that logging one can never show a secret; [`Warning::in_helms_words`] is the whole text for the
//! person who owns the values. [`Warnings`] bounds how much a chart can make anybody keep.

use std::fmt;

use golib::strconv::quote;

/// Limit on the kept texts of warnings of one chart, in bytes, but for the one that exceeds it.
const KEPT: usize = 1 << 20;

/// Warnings in the order in which they came, as many as fit into a mebibyte of text. A chart decides how many there are and how long.
///
/// ```
/// use chart::{Warning, Warnings};
///
/// let mut warnings = Warnings::default();
/// let key = "x".repeat(600 << 10);
/// for _ in 0..5 {
///     warnings.push_with(|| Warning::GlobalIsTable { key: key.clone() });
/// }
/// assert_eq!((warnings.iter().count(), warnings.left_out()), (2, 3));
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Warnings {
    kept: Vec<Warning>,
    weight: usize,
    left_out: usize,
}

impl Warnings {
    /// Adds a warning.
    pub fn push(&mut self, warning: Warning) {
        self.push_with(|| warning);
    }

    /// Adds a warning that is made only if it is kept.
    pub fn push_with(&mut self, warning: impl FnOnce() -> Warning) {
        if self.weight >= KEPT {
            self.left_out += 1;
            return;
        }
        let warning = warning();
        self.weight += size_of::<Warning>() + warning.in_helms_words().len();
        self.kept.push(warning);
    }

    /// The kept warnings, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Warning> {
        self.kept.iter()
    }

    /// How many more there were.
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}

impl<'w> IntoIterator for &'w Warnings {
    type Item = &'w Warning;
    type IntoIter = std::slice::Iter<'w, Warning>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Something odd that did not stop the operation.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Warning {
    /// A chart has no table where the user gave one.
    SkippedValue {
        /// Path of the key, beginning with the chart's name.
        key: String,
    },
    /// A table meets something else; the higher-priority side wins.
    CannotOverwriteTable {
        /// Path of the key.
        key: String,
        /// The table that lost, as Go prints it.
        value: String,
    },
    /// Something that is no table meets a table; the table stays.
    IgnoredNonTable {
        /// Path of the key.
        key: String,
        /// The value that lost, as Go prints it.
        value: String,
    },
    /// `global` of the subchart (destination) or the parent (source) is no table.
    GlobalsNotTable {
        /// `destination` or `source`.
        side: &'static str,
    },
    /// A global table of the parent meets a plain global of the subchart.
    GlobalConflict {
        /// The key below `global`.
        key: String,
    },
    /// A plain global of the parent meets a table of the subchart.
    GlobalIsTable {
        /// The key below `global`.
        key: String,
    },
    /// A condition or tag is no boolean.
    NotBoolean {
        /// `path` or `tag`.
        what: &'static str,
        /// The path or tag.
        name: String,
        /// The dependency it would have switched.
        chart: String,
    },
    /// `import-values` names a table that is not there.
    MissingImport {
        /// The dependency, when the entry is a table with `child` and `parent`.
        chart: Option<String>,
        /// The path element that is no table.
        key: String,
    },
    /// A `v2` chart has `requirements.yaml` or `requirements.lock`.
    Requirements {
        /// Whether the file was the lock file.
        lock: bool,
    },
    /// A schema refers to a `urn:`; anything goes there.
    UnresolvedUrn {
        /// The reference.
        urn: String,
    },
    /// A file or directory of a chart is a symbolic link, which was followed.
    Link {
        /// The link.
        path: String,
        /// Where the link leads in the end.
        resolved: String,
    },
    /// A document names an unknown hook event and is left out altogether.
    UnknownHook {
        /// The whole annotation.
        events: String,
    },
}

const LINK: &str = "found symbolic link in path. Contents of linked file included and used";

impl Warning {
    /// The text Helm logs, values included. Structured records read `LEVEL message key=value…`.
    pub fn in_helms_words(&self) -> String {
        match self {
            Self::CannotOverwriteTable { value, .. } | Self::IgnoredNonTable { value, .. } => {
                format!("{self} ({value})")
            }
            _ => self.to_string(),
        }
    }

    /// The line Helm's command writes to standard error: `level=… msg=… key=value…`, values included.
    ///
    /// ```
    /// let warning = chart::Warning::NotBoolean { what: "path", name: "db.on".to_owned(), chart: "db".to_owned() };
    /// assert_eq!(warning.log_line(), r#"level=WARN msg="returned non-bool value" path=db.on chart=db"#);
    /// ```
    pub fn log_line(&self) -> String {
        let text = self.in_helms_words();
        match self {
            Self::NotBoolean { what, name, chart } => record(
                "WARN",
                "returned non-bool value",
                &[(what, name), ("chart", chart)],
            ),
            Self::MissingImport { chart, key } => {
                let error = format!("{} is not a table", quote(key.as_bytes()));
                match chart {
                    Some(chart) => record(
                        "WARN",
                        "ImportValues missing table from chart",
                        &[("chart", chart), ("error", &error)],
                    ),
                    None => record("WARN", "ImportValues missing table", &[("error", &error)]),
                }
            }
            Self::UnresolvedUrn { urn } => record(
                "WARN",
                "unresolved URN reference ignored; using permissive schema",
                &[("urn", urn)],
            ),
            Self::Link { path, resolved } => {
                record("INFO", LINK, &[("path", path), ("resolved", resolved)])
            }
            Self::UnknownHook { events } => {
                record("INFO", "skipping unknown hooks", &[("hookTypes", events)])
            }
            _ => record("INFO", &text, &[]),
        }
    }
}

/// A line of Go's `slog`.
pub(crate) fn record(level: &str, message: &str, fields: &[(&str, &str)]) -> String {
    let mut line = format!("level={level} msg={}", log_text(message));
    for (key, value) in fields {
        line.push_str(&format!(" {key}={}", log_text(value)));
    }
    line
}

/// A text in a log line of Go's `slog`: quoted where it would be ambiguous.
///
/// ```
/// assert_eq!(chart::log_text("web-1.0.0"), "web-1.0.0");
/// assert_eq!(chart::log_text("two words"), r#""two words""#);
/// ```
pub fn log_text(text: &str) -> String {
    let is_plain = |c: char| match c {
        ' ' | '=' | '"' => false,
        c if c.is_ascii() => !c.is_ascii_control(),
        c => !c.is_whitespace() && !c.is_control() && c != char::REPLACEMENT_CHARACTER,
    };
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        quote(text.as_bytes())
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SkippedValue { key } => {
                write!(f, "warning: skipped value for {key}: Not a table.")
            }
            Self::CannotOverwriteTable { key, .. } => {
                write!(
                    f,
                    "warning: cannot overwrite table with non table for {key}"
                )
            }
            Self::IgnoredNonTable { key, .. } => write!(
                f,
                "warning: destination for {key} is a table. Ignoring non-table value"
            ),
            Self::GlobalsNotTable { side } => {
                write!(
                    f,
                    "warning: skipping globals because {side} global is not a table."
                )
            }
            Self::GlobalConflict { key } => write!(
                f,
                "Conflict: cannot merge map onto non-map for {}. Skipping.",
                quote(key.as_bytes())
            ),
            Self::GlobalIsTable { key } => write!(f, "key {key} is table. Skipping"),
            Self::NotBoolean { what, name, chart } => {
                write!(
                    f,
                    "WARN returned non-bool value {what}={name} chart={chart}"
                )
            }
            Self::MissingImport {
                chart: Some(chart),
                key,
            } => write!(
                f,
                "WARN ImportValues missing table from chart chart={chart} error={} is not a table",
                quote(key.as_bytes())
            ),
            Self::MissingImport { chart: None, key } => write!(
                f,
                "WARN ImportValues missing table error={} is not a table",
                quote(key.as_bytes())
            ),
            Self::Requirements { lock: false } => f.write_str(
                "Warning: Dependencies are handled in Chart.yaml since apiVersion \"v2\". \
                 We recommend migrating dependencies to Chart.yaml.",
            ),
            Self::Requirements { lock: true } => f.write_str(
                "Warning: Dependency locking is handled in Chart.lock since apiVersion \"v2\". \
                 We recommend migrating to Chart.lock.",
            ),
            Self::UnresolvedUrn { urn } => write!(
                f,
                "WARN unresolved URN reference ignored; using permissive schema urn={urn}"
            ),
            Self::Link { path, resolved } => {
                write!(f, "INFO {LINK} path={path} resolved={resolved}")
            }
            Self::UnknownHook { events } => {
                write!(f, "INFO skipping unknown hooks hookTypes={events}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_in_helms_words_alone() {
        let (key, value) = ("web.login".to_owned(), "map[password:canary]".to_owned());
        let table = Warning::CannotOverwriteTable { key, value };
        let (key, value) = ("web.token".to_owned(), "canary".to_owned());
        let plain = Warning::IgnoredNonTable { key, value };
        for warning in [table, plain] {
            assert!(!warning.to_string().contains("canary"), "{warning}");
            assert!(warning.in_helms_words().contains("canary"), "{warning}");
        }
    }
}
