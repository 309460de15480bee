//! `.fleetignore`: what Fleet leaves out of a chart it unpacks.
//!
//! Mirrors `ignoreTree` (`internal/bundlereader/loaddirectory.go`): a pattern holds for the names of files and
//! directories at and below its own directory; `name/*` means directories called so. Like there, a directory's
//! patterns also reach siblings whose names begin with its own.

use golib::path;

/// Patterns by directory; directories end in no slash, the root is empty.
#[derive(Debug, Default)]
pub(super) struct FleetIgnore {
    rules: Vec<(String, Vec<String>)>,
}

/// A pattern that cannot be read, in Go's words.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("syntax error in pattern")]
pub(super) struct BadPattern;

const FILE: &str = ".fleetignore";

impl FleetIgnore {
    /// From all files of a chart.
    pub(super) fn new<'a>(files: impl Iterator<Item = (&'a str, &'a [u8])>) -> Self {
        let rules = files.filter_map(|(name, data)| {
            let directory = match name.strip_suffix(FILE)? {
                "" => "",
                directory => directory.strip_suffix('/')?,
            };
            let text = String::from_utf8_lossy(data);
            let patterns = text.lines().map(without_trailing_blanks);
            let patterns = patterns.filter(|line| !line.is_empty() && !line.starts_with('#'));
            Some((directory.to_owned(), patterns.map(str::to_owned).collect()))
        });
        Self {
            rules: rules.collect(),
        }
    }

    /// Whether a file is left out, by its own name or by that of a directory it lies in.
    ///
    /// # Errors
    /// A pattern that was looked at is malformed.
    pub(super) fn ignores(&self, name: &str) -> Result<bool, BadPattern> {
        if self.rules.is_empty() {
            return Ok(false);
        }
        let ends = name.match_indices('/').map(|(at, _)| (at, true));
        for (end, is_directory) in ends.chain([(name.len(), false)]) {
            if self.matches(&name[..end], is_directory)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn matches(&self, name: &str, is_directory: bool) -> Result<bool, BadPattern> {
        let base = name.rsplit('/').next().unwrap_or(name);
        // A directory's own file is read after the directory was judged.
        let reaching = self.rules.iter().filter(|(directory, _)| {
            directory.is_empty() || (name.starts_with(directory.as_str()) && name != directory)
        });
        for pattern in reaching.flat_map(|(_, patterns)| patterns) {
            let found = match pattern.find("/*") {
                Some(1..) => is_directory && pattern.strip_suffix("/*") == Some(base),
                _ => path::matches(pattern, base).map_err(|_| BadPattern)?,
            };
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Blanks at the end go, unless a backslash stands before them.
fn without_trailing_blanks(line: &str) -> &str {
    let trimmed = line.trim_end();
    match trimmed {
        "" => line,
        escaped if escaped.ends_with('\\') => line,
        trimmed => trimmed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ignored<'a>(rules: &[(&str, &str)], names: &[&'a str]) -> Vec<&'a str> {
        let files = rules.iter().map(|(name, text)| (*name, text.as_bytes()));
        let ignore = FleetIgnore::new(files);
        let is_ignored = |name: &&&str| ignore.ignores(name).unwrap();
        names.iter().filter(is_ignored).copied().collect()
    }

    #[test]
    fn names_and_directories() {
        let rules = [
            (".fleetignore", "# not this\n*.md  \nci/*\ndocs\n"),
            ("a/.fleetignore", "x\n"),
        ];
        let names = [
            "README.md",
            "a/README.md",
            "ci/v.yaml",
            "ci",
            "b/ci/v.yaml",
            "docs/x",
            "x",
            "a/x",
            "a/b/x",
            "ab/x",
            "values.yaml",
        ];
        let wanted = [
            "README.md",
            "a/README.md",
            "ci/v.yaml",
            "b/ci/v.yaml",
            "docs/x",
            "a/x",
            "a/b/x",
            "ab/x",
        ];
        assert_eq!(ignored(&rules, &names), wanted);
    }

    #[test]
    fn bad_patterns_are_told() {
        let ignore = FleetIgnore::new([(".fleetignore", &b"[a\n"[..])].into_iter());
        assert_eq!(ignore.ignores("x"), Err(BadPattern));
    }
}
