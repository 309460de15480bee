//! `.fleetignore`: what Fleet leaves out of a chart it unpacks.
//!
//! Mirrors `ignoreTree` (`internal/bundlereader/loaddirectory.go`): a pattern holds for the names of files and
//! directories at and below its own directory; `name/*` means directories called so. Like there, a directory's
//! patterns also reach siblings whose names begin with its own. Those of a directory that is left out itself are not read.

use golib::path;

/// Patterns by directory; directories end in no slash, the root is empty.
#[derive(Debug)]
pub(super) struct FleetIgnore {
    rules: Vec<(String, Vec<String>)>,
    /// Characters that may still be compared.
    work_left: usize,
}

/// Why a `.fleetignore` cannot be applied.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum IgnoreError {
    /// A pattern that was used is malformed; in Go's words.
    #[error("syntax error in pattern")]
    BadPattern,
    /// Each name is compared with each pattern: many of both would take hours.
    #[error("too many patterns for so many files")]
    TooMuchWork,
    /// A line of two bytes takes many times as much once it is a pattern.
    #[error("more than {MAX_PATTERNS} patterns, or more than {} MiB of them", MAX_BYTES >> 20)]
    TooManyPatterns,
}

/// Of all files of a chart together.
const MAX_PATTERNS: usize = 100_000;
/// Of all files of a chart together.
const MAX_BYTES: usize = 4 << 20;

/// A few seconds at most; a hundred patterns on ten thousand files in four directories each take a third of it.
const MAX_WORK: usize = 1_000_000_000;

const FILE: &str = ".fleetignore";

impl FleetIgnore {
    /// From all files of a chart.
    ///
    /// # Errors
    /// There are too many patterns, or one that decides of a directory with patterns is malformed.
    pub(super) fn new<'a>(
        files: impl Iterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<Self, IgnoreError> {
        let mut rules = Vec::new();
        let (mut patterns_left, mut bytes_left) = (MAX_PATTERNS, MAX_BYTES);
        let take = |left: &mut usize, count: usize| {
            *left = left
                .checked_sub(count)
                .ok_or(IgnoreError::TooManyPatterns)?;
            Ok(())
        };
        for (name, data) in files {
            let Some(directory) = name.strip_suffix(FILE) else {
                continue;
            };
            let directory = match directory {
                "" => "",
                directory => match directory.strip_suffix('/') {
                    Some(directory) => directory,
                    None => continue,
                },
            };
            take(&mut bytes_left, data.len())?;
            let text = String::from_utf8_lossy(data);
            let lines = text.lines().map(without_trailing_blanks);
            let mut patterns = Vec::new();
            for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
                take(&mut patterns_left, 1)?;
                patterns.push(line.to_owned());
            }
            rules.push((directory.to_owned(), patterns));
        }
        let mut ignore = Self {
            rules: Vec::new(),
            work_left: MAX_WORK,
        };
        // As they are come by on a walk: whether a directory is left out is known before its patterns are read.
        rules.sort_by(|(one, _), (other, _)| one.split('/').cmp(other.split('/')));
        for (directory, patterns) in rules {
            if directory.is_empty() || !ignore.leaves_out(&directory, true)? {
                ignore.rules.push((directory, patterns));
            }
        }
        Ok(ignore)
    }

    /// Whether a file is left out, by its own name or by that of a directory it lies in.
    ///
    /// # Errors
    /// A pattern that was used is malformed, or there was too much to match.
    pub(super) fn ignores(&mut self, name: &str) -> Result<bool, IgnoreError> {
        self.leaves_out(name, false)
    }

    fn leaves_out(&mut self, name: &str, is_directory: bool) -> Result<bool, IgnoreError> {
        if self.rules.is_empty() {
            return Ok(false);
        }
        let ends = name.match_indices('/').map(|(at, _)| (at, true));
        for (end, is_directory) in ends.chain([(name.len(), is_directory)]) {
            if self.matches(&name[..end], is_directory)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn matches(&mut self, name: &str, is_directory: bool) -> Result<bool, IgnoreError> {
        let base = name.rsplit('/').next().unwrap_or(name);
        let work_left = &mut self.work_left;
        let mut work = |compared: usize| {
            let left = work_left.checked_sub(16 + compared);
            *work_left = left.ok_or(IgnoreError::TooMuchWork)?;
            Ok(())
        };
        for (directory, patterns) in &self.rules {
            work(directory.len())?;
            // A directory's own file is read after the directory was judged.
            let reaches = name.starts_with(directory.as_str()) && name != directory;
            if !directory.is_empty() && !reaches {
                continue;
            }
            for pattern in patterns {
                // Each star may be tried at each place.
                work(match pattern.contains('*') {
                    true => pattern.len() * base.len(),
                    false => pattern.len(),
                })?;
                let found = match pattern.find("/*") {
                    Some(1..) => is_directory && pattern.strip_suffix("/*") == Some(base),
                    _ => path::matches_file(pattern, base).map_err(|_| IgnoreError::BadPattern)?,
                };
                if found {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// Blanks at the end go; of those behind a backslash, and of a line of nothing else, the first one stays
/// (`([^\\])\s+$` as `$1`).
fn without_trailing_blanks(line: &str) -> &str {
    let trimmed = line.trim_end_matches([' ', '\t', '\n', '\r', '\x0c']);
    if trimmed.is_empty() || trimmed.ends_with('\\') {
        // All blanks are single bytes.
        return &line[..line.len().min(trimmed.len() + 1)];
    }
    trimmed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ignored<'a>(rules: &[(&str, &str)], names: &[&'a str]) -> Vec<&'a str> {
        let files = rules.iter().map(|(name, text)| (*name, text.as_bytes()));
        let mut ignore = FleetIgnore::new(files).unwrap();
        let is_ignored = |name: &&&str| ignore.ignores(name).unwrap();
        names.iter().filter(is_ignored).copied().collect()
    }

    #[test]
    fn fleetignore_patterns_match_names_and_directories() {
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

    /// `WalkDir` is told to skip such a directory before `addNode` reads its file (`loaddirectory.go:277`).
    #[test]
    fn patterns_of_a_directory_that_is_left_out_do_not_count() {
        let rules = [
            ("a/.fleetignore", "x.yaml\n"),
            (".fleetignore", "a\n"),
            ("b/a/deep/.fleetignore", "y.yaml\n"),
        ];
        let names = ["a/y.yaml", "ab/x.yaml", "b/a/deeper/z.yaml", "b/y.yaml"];
        assert_eq!(ignored(&rules, &names), ["a/y.yaml", "b/a/deeper/z.yaml"]);
    }

    /// As `trailingSpaceRegex` (`loaddirectory.go:148`) leaves them.
    #[test]
    fn blanks_at_the_end_of_a_line_go() {
        for (line, left) in [
            ("foo", "foo"),
            ("foo \t ", "foo"),
            ("foo\\", "foo\\"),
            ("foo\\ ", "foo\\ "),
            ("foo\\  ", "foo\\ "),
            ("foo\\\t  ", "foo\\\t"),
            ("", ""),
            (" ", " "),
            ("   ", " "),
            ("\t  ", "\t"),
            ("foo\u{a0}", "foo\u{a0}"),
            ("foo\x0b", "foo\x0b"),
        ] {
            assert_eq!(without_trailing_blanks(line), left, "{line:?}");
        }
    }

    #[test]
    fn bad_patterns_are_reported() {
        let mut ignore = FleetIgnore::new([(".fleetignore", &b"[a\n"[..])].into_iter()).unwrap();
        assert_eq!(ignore.ignores("x"), Err(IgnoreError::BadPattern));
    }

    #[test]
    fn patterns_are_counted_in_all_files_together() {
        let new = |patterns: &str| {
            let files = [("a/.fleetignore", patterns), (".fleetignore", "x\n")];
            let files = files.iter().map(|(name, text)| (*name, text.as_bytes()));
            FleetIgnore::new(files).map(|_| ())
        };
        assert_eq!(new(&"a\n".repeat(MAX_PATTERNS - 1)), Ok(()));
        let error = new(&"a\n".repeat(MAX_PATTERNS)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "more than 100000 patterns, or more than 4 MiB of them"
        );
        let error = new(&"a".repeat(MAX_BYTES - 1)).unwrap_err();
        assert_eq!(error, IgnoreError::TooManyPatterns);
        // Comments and empty lines are no patterns.
        assert_eq!(new(&"#\n\n".repeat(MAX_PATTERNS)), Ok(()));
    }

    #[test]
    fn work_is_bounded() {
        let ignore = |patterns: &str| {
            FleetIgnore::new([(".fleetignore", patterns.as_bytes())].into_iter()).unwrap()
        };
        let mut ignore_letters = ignore(&"b?\n".repeat(MAX_PATTERNS));
        ignore_letters.work_left = 10_000_000;
        let deep = "d/".repeat(1000);
        assert_eq!(ignore_letters.ignores(&deep), Err(IgnoreError::TooMuchWork));
        // The budget that is left counts for all names together.
        let mut ignore = ignore(&"*a*a*a*a*a*b\n".repeat(1000));
        ignore.work_left = 10_000_000;
        let name = "a".repeat(100);
        let reported = (0..50_000).find_map(|_| ignore.ignores(&name).err());
        assert_eq!(reported, Some(IgnoreError::TooMuchWork));
    }
}
