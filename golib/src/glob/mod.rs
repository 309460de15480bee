//! The glob language of `.Files.Glob`: gobwas/glob 0.2.3.
//!
//! `*` and `?` stop at separators, `**` does not; `[abc]`, `[!abc]`, `[a-z]`, `{one,two*}` and a
//! backslash for literal characters. The library joins and simplifies what a pattern consists of, and what it then
//! matches is not always what the pattern says: `[!a]` matches the empty name, `?é` does not match `aé`. Charts are
//! written against what it does, so it is done the same way here. What would take too long is read as documented, by way
//! of a regular expression.

mod compile;
mod documented;
mod error;
mod matcher;
mod pattern;

use std::sync::OnceLock;

use regex::Regex;

pub use error::Error;
use matcher::{Failure, Fuel, Matcher};

/// More pieces than this are not joined: that takes the fourth power of their number.
const MAX_PIECES: usize = 32;
/// Work for one name, in characters looked at, about.
const MAX_WORK: usize = 1_000_000;

/// A compiled glob.
#[derive(Debug, Clone)]
pub struct Glob {
    pattern: String,
    separator: char,
    matcher: Option<Matcher>,
    /// Made when it is needed.
    documented: OnceLock<Option<Regex>>,
}

impl Glob {
    /// Compiles a pattern; `separator` is what `*` and `?` do not match.
    ///
    /// ```
    /// use golib::glob::Glob;
    ///
    /// let glob = Glob::compile("conf/**.{yaml,yml}", '/')?;
    /// assert!(glob.matches("conf/db/one.yaml"));
    /// assert!(!glob.matches("conf/one.txt"));
    /// # Ok::<(), golib::glob::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the pattern is malformed or unreasonably large.
    pub fn compile(pattern: &str, separator: char) -> Result<Self, Error> {
        let nodes = pattern::parse(pattern)?;
        let mut glob = Self {
            pattern: pattern.to_owned(),
            separator,
            matcher: None,
            documented: OnceLock::new(),
        };
        if pieces(&nodes) <= MAX_PIECES {
            glob.matcher = Some(compile::compile(nodes, &[separator]));
        } else {
            let regex = documented::compile(pattern, separator)?;
            glob.documented = Some(regex).into();
        }
        Ok(glob)
    }

    /// Compiles a pattern to match what the language says, and not what the Go library makes of it: for what is ours, where no chart
    /// relies on the difference.
    ///
    /// ```
    /// use golib::glob::Glob;
    ///
    /// assert!(!Glob::compile("?é", '/')?.matches("aé"));
    /// assert!(Glob::as_documented("?é", '/')?.matches("aé"));
    /// # Ok::<(), golib::glob::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Glob::compile`].
    pub fn as_documented(pattern: &str, separator: char) -> Result<Self, Error> {
        Ok(Self {
            pattern: pattern.to_owned(),
            separator,
            matcher: None,
            documented: Some(documented::compile(pattern, separator)?).into(),
        })
    }

    /// Whether the whole name matches. Where the library panics, which a template's call of `Glob` survives with an error,
    /// nothing matches.
    pub fn matches(&self, name: &str) -> bool {
        self.matches_within(name, &mut { MAX_WORK })
            .unwrap_or_else(|| {
                let compiled = self
                    .documented
                    .get_or_init(|| documented::compile(&self.pattern, self.separator).ok());
                compiled.as_ref().is_some_and(|regex| regex.is_match(name))
            })
    }

    /// The same in no more than so many steps, of which those that it took are taken; `None` where they do not suffice.
    pub fn matches_within(&self, name: &str, steps: &mut usize) -> Option<bool> {
        let Some(matcher) = &self.matcher else {
            let cost = (name.len() + 1).saturating_mul(self.pattern.len()) / 16;
            *steps = steps.checked_sub(cost)?;
            let regex = self.documented.get()?.as_ref();
            return Some(regex.is_some_and(|regex| regex.is_match(name)));
        };
        let mut fuel = Fuel(MAX_WORK.min(*steps));
        let before = fuel.0;
        let found = matcher.matches(name.as_bytes(), &mut fuel);
        *steps -= before - fuel.0;
        match found {
            Ok(found) => Some(found),
            Err(Failure::Panic) => Some(false),
            Err(Failure::Endless) => None,
        }
    }
}

/// How many parts a pattern has at any depth.
fn pieces(nodes: &[pattern::Node]) -> usize {
    let inside = |node: &pattern::Node| match node {
        pattern::Node::Pattern(nodes) | pattern::Node::AnyOf(nodes) => 1 + pieces(nodes),
        _ => 1,
    };
    nodes.iter().map(inside).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stop_at_separators_and_double_stars_do_not() {
        for (pattern, name, want) in [
            ("*.txt", "a.txt", true),
            ("*.txt", "d/a.txt", false),
            ("**.txt", "d/a.txt", true),
            ("config/**", "config/a/b", true),
            ("config/*", "config/a/b", false),
            ("a?c", "a/c", false),
            ("{a,b*}/c", "bxx/c", true),
            ("{a,{b,c}d", "cd", true),
            ("[!a]", "b", true),
            ("[a-c]x", "bx", true),
            ("[ab-]", "-", true),
            (r"\*", "*", true),
            ("a}b,c", "a}b,c", true),
            ("", "", true),
            ("[!a]", "", true),
            ("?é", "aé", false),
            ("[!ab][!ab]", "ba", true),
            ("a{", "a", false),
        ] {
            let glob = Glob::compile(pattern, '/').expect(pattern);
            assert_eq!(glob.matches(name), want, "{pattern} {name}");
        }
    }

    #[test]
    fn malformed_classes_are_refused() {
        let refused = |pattern| Glob::compile(pattern, '/').expect_err(pattern).to_string();
        assert_eq!(refused("[a"), "unexpected end of input");
        assert_eq!(refused("[a-z0-9]"), "expected close range character");
        assert_eq!(refused("[]"), "could not parse range");
        assert_eq!(
            refused("[z-a]"),
            "hi character 'a' should be greater than lo 'z'"
        );
        assert_eq!(refused(&"{".repeat(1000)), "pattern too large");
    }
}
