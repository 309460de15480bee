//! `.helmignore`: which files of a chart directory are left out.
//!
//! Mirrors `pkg/ignore/rules.go`, including what a negated line really does there: it ignores
//! everything that does *not* match.

use golib::path;

/// Name of the file with the rules.
pub const HELM_IGNORE: &str = ".helmignore";
/// The rule Helm always adds.
const DEFAULT_RULE: &str = "templates/.?*";

/// Rules that cannot be used. The text is Helm's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IgnoreError {
    /// `**` is not known.
    #[error("double-star (**) syntax is not supported")]
    DoubleStar,
    /// A pattern is malformed.
    #[error("{0}")]
    Pattern(#[source] path::BadPattern),
}

/// A set of rules; the first that matches decides.
///
/// ```
/// let rules = chart::ignore::Rules::parse(b"*.bak\n/docs/\n")?;
/// assert!(rules.ignores("values.yaml.bak", false));
/// assert!(rules.ignores("docs", true));
/// assert!(!rules.ignores("templates/docs.yaml", false));
/// # Ok::<(), chart::ignore::IgnoreError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Rules {
    patterns: Vec<Pattern>,
}

#[derive(Debug, Clone)]
struct Pattern {
    /// The glob, without leading or trailing slash where those have a meaning.
    glob: String,
    scope: PatternScope,
    negate: bool,
    must_dir: bool,
}

#[derive(Debug, Clone, Copy)]
enum PatternScope {
    /// The rule began with `/`: the whole path.
    Anchored,
    /// The rule holds a `/`: the whole path.
    Path,
    /// The last element of the path.
    Base,
}

impl Rules {
    /// Reads the lines of a `.helmignore`, without the default rule.
    ///
    /// ```
    /// let rules = chart::ignore::Rules::parse(b"*.md\n/docs/\n")?;
    /// assert!(rules.ignores("README.md", false) && rules.ignores("docs", true));
    /// assert!(chart::ignore::Rules::parse(b"**/x").is_err());
    /// # Ok::<(), chart::ignore::IgnoreError>(())
    /// ```
    ///
    /// # Errors
    /// A line holds `**` or is no valid pattern.
    pub fn parse(data: &[u8]) -> Result<Self, IgnoreError> {
        let mut rules = Self::default();
        for (index, line) in data.split(|&byte| byte == b'\n').enumerate() {
            let line = match line.strip_prefix(b"\xEF\xBB\xBF") {
                Some(rest) if index == 0 => rest,
                _ => line,
            };
            rules.add(&String::from_utf8_lossy(line))?;
        }
        Ok(rules)
    }

    /// Adds the rule Helm always adds: hidden files in `templates/`.
    ///
    /// ```
    /// let mut rules = chart::ignore::Rules::parse(b"")?;
    /// rules.add_defaults();
    /// assert!(rules.ignores("templates/.app.yaml.swp", false) && !rules.ignores("templates/app.yaml", false));
    /// # Ok::<(), chart::ignore::IgnoreError>(())
    /// ```
    pub fn add_defaults(&mut self) {
        self.add(DEFAULT_RULE).expect("the default rule is valid");
    }

    fn add(&mut self, line: &str) -> Result<(), IgnoreError> {
        let mut rule = line.trim();
        if rule.is_empty() || rule.starts_with('#') {
            return Ok(());
        }
        if rule.contains("**") {
            return Err(IgnoreError::DoubleStar);
        }
        path::matches_file(rule, "abc").map_err(IgnoreError::Pattern)?;
        let negate = rule.starts_with('!');
        rule = rule.strip_prefix('!').unwrap_or(rule);
        let must_dir = rule.ends_with('/');
        rule = rule.strip_suffix('/').unwrap_or(rule);
        let (glob, scope) = match rule.strip_prefix('/') {
            Some(rest) => (rest, PatternScope::Anchored),
            None if rule.contains('/') => (rule, PatternScope::Path),
            None => (rule, PatternScope::Base),
        };
        self.patterns.push(Pattern {
            glob: glob.to_owned(),
            scope,
            negate,
            must_dir,
        });
        Ok(())
    }

    /// Whether a path (relative, with `/`) is left out.
    ///
    /// ```
    /// let mut rules = chart::ignore::Rules::parse(b"")?;
    /// rules.add_defaults();
    /// assert!(rules.ignores("templates/.hidden", false));
    /// assert!(!rules.ignores("templates/app.yaml", false));
    /// # Ok::<(), chart::ignore::IgnoreError>(())
    /// ```
    pub fn ignores(&self, name: &str, is_dir: bool) -> bool {
        // The chart's root itself is never left out.
        if matches!(name, "" | "." | "./") {
            return false;
        }
        for pattern in &self.patterns {
            if pattern.negate {
                if (pattern.must_dir && !is_dir) || !pattern.matches(name) {
                    return true;
                }
                continue;
            }
            if pattern.must_dir && !is_dir {
                continue;
            }
            if pattern.matches(name) {
                return true;
            }
        }
        false
    }
}

impl Pattern {
    fn matches(&self, name: &str) -> bool {
        let subject = match self.scope {
            PatternScope::Anchored | PatternScope::Path => name.as_bytes(),
            PatternScope::Base => path::base(name.as_bytes()),
        };
        path::matches_file(&self.glob, subject).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Helm 4.3.1 reads them: a rule is tried with `abc`, and looked at as far as that takes.
    #[test]
    fn a_malformed_rule_counts_where_it_is_looked_at() {
        for rule in ["dir/*!a\\", "\u{e9}*dir/.txt*[/*"] {
            let rules = Rules::parse(rule.as_bytes()).unwrap();
            assert!(!rules.ignores("dir/a.txt", false), "{rule}");
        }
        assert!(Rules::parse(b"a*[").is_err());
    }
}
