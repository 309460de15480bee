//! What the commands tell while they work, as helm tells it: remarks and logs on standard error, progress on
//! standard output.

use std::io::Write as _;

use chart::{Warnings, log_text};

/// One line on standard error; a closed standard error is no reason to stop.
pub(crate) fn say(text: &str) {
    writeln!(std::io::stderr(), "{text}").ok();
}

/// One line on standard output, where helm tells of its progress.
pub(crate) fn print(line: &str) {
    writeln!(std::io::stdout(), "{line}").ok();
}

/// A log record without fields.
pub(crate) fn log(level: &str, message: &str) {
    say(&format!("level={level} msg={}", log_text(message)));
}

/// Logs what was met while a chart was loaded or rendered, and how much more there was than is kept.
pub(crate) fn log_warnings(warnings: &mut Warnings) {
    let warnings = std::mem::take(warnings);
    let mut lines = String::new();
    for warning in &warnings {
        lines.push_str(&warning.log_line());
        lines.push('\n');
    }
    std::io::stderr().write_all(lines.as_bytes()).ok();
    if warnings.left_out() > 0 {
        log("WARN", &format!("{} more warnings", warnings.left_out()));
    }
}
