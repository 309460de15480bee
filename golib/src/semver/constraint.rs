//! Ranges of versions: `>=1.2 <2 || ~3.1`, wildcards, hyphen ranges.

use std::fmt;
use std::sync::LazyLock;

use regex::bytes::Regex;

use super::version::compare_prerelease;
use super::{Error, MAX_CONSTRAINT_BYTES, MAX_CONSTRAINT_GROUPS, Version};
use crate::strconv;

/// A set of versions: groups joined by `||`, each a list of comparisons that must all hold.
#[derive(Debug, Clone)]
pub struct Constraint {
    groups: Vec<Group>,
    include_prerelease: bool,
}

#[derive(Debug, Clone)]
struct Group {
    comparisons: Vec<Comparison>,
    /// One comparison names a pre-release, so the group accepts them.
    names_prerelease: bool,
}

impl Constraint {
    /// Reads a constraint.
    ///
    /// ```
    /// use golib::semver::{Constraint, Version};
    ///
    /// let constraint = Constraint::parse("^1.2 || ~2.0.3")?;
    /// assert!(constraint.check(&Version::parse("1.9.0")?));
    /// assert!(!constraint.check(&Version::parse("2.1.0")?));
    /// # Ok::<(), golib::semver::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the text does not follow the grammar or exceeds a limit of this module. An empty text
    /// is no constraint; callers for whom it means "any" pass `*`.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Self, Error> {
        let text = text.as_ref();
        if text.len() > MAX_CONSTRAINT_BYTES {
            return Err(Error::ConstraintTooLong);
        }
        let text = rewrite_ranges(text);
        let alternatives = split_alternatives(&text);
        if alternatives.len() > MAX_CONSTRAINT_GROUPS {
            return Err(Error::TooManyGroups);
        }
        let groups = alternatives
            .into_iter()
            .map(Group::parse)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            groups,
            include_prerelease: false,
        })
    }

    /// Lets pre-releases match wherever their numbers do, also where no comparison names one.
    pub fn include_prerelease(mut self, include: bool) -> Self {
        self.include_prerelease = include;
        self
    }

    /// Whether `version` is in the set.
    pub fn check(&self, version: &Version) -> bool {
        self.groups.iter().any(|group| {
            let prerelease = self.include_prerelease || group.names_prerelease;
            group
                .comparisons
                .iter()
                .all(|c| c.check(version, prerelease).is_ok())
        })
    }

    /// Like [`check`](Self::check), with the reasons.
    ///
    /// ```
    /// use golib::semver::{Constraint, Version};
    ///
    /// let reasons = Constraint::parse(">= 1.27")?.validate(&Version::parse("1.26.3")?);
    /// assert_eq!(reasons, Err(vec![r#""1.26.3" is less than "1.27""#.to_owned()]));
    /// # Ok::<(), golib::semver::Error>(())
    /// ```
    ///
    /// # Errors
    /// A message for every comparison that fails, in order; at most one about pre-releases.
    pub fn validate(&self, version: &Version) -> Result<(), Vec<String>> {
        let mut messages = Vec::new();
        let mut has_prerelease = false;
        for group in &self.groups {
            let prerelease = self.include_prerelease || group.names_prerelease;
            let mut holds = true;
            for comparison in &group.comparisons {
                if !prerelease && !version.prerelease().is_empty() {
                    if !has_prerelease {
                        messages.push(Failure::Prerelease.message(version, comparison));
                        has_prerelease = true;
                    }
                    holds = false;
                } else if let Err(failure) = comparison.check(version, prerelease) {
                    messages.push(failure.message(version, comparison));
                    holds = false;
                }
            }
            if holds {
                return Ok(());
            }
        }
        Err(messages)
    }
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, group) in self.groups.iter().enumerate() {
            if index > 0 {
                f.write_str(" || ")?;
            }
            for (index, comparison) in group.comparisons.iter().enumerate() {
                let space = if index > 0 { " " } else { "" };
                write!(f, "{space}{}{}", comparison.symbol, comparison.text)?;
            }
        }
        Ok(())
    }
}

impl std::str::FromStr for Constraint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

impl Group {
    fn parse(text: &[u8]) -> Result<Self, Error> {
        if !GRAMMAR.group.is_match(text) {
            return Err(Error::ImproperConstraint(strconv::quote(text)));
        }
        let comparisons = GRAMMAR
            .find
            .find_iter(text)
            .map(|found| Comparison::parse(found.as_bytes()))
            .collect::<Result<Vec<_>, _>>()?;
        let names_prerelease = comparisons.iter().any(|c| !c.bound.prerelease().is_empty());
        Ok(Self {
            comparisons,
            names_prerelease,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    /// None or `=`: equal, or `~` where parts are missing.
    TildeOrEqual,
    NotEqual,
    Greater,
    Less,
    GreaterOrEqual,
    LessOrEqual,
    Tilde,
    Caret,
}

/// Which parts of the bound were left open (missing or a wildcard).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Nothing,
    Patch,
    Minor,
    All,
}

#[derive(Debug, Clone)]
struct Comparison {
    symbol: String,
    operator: Operator,
    /// The version as written.
    text: String,
    /// The version with open parts as zero.
    bound: Version,
    open: Open,
}

/// Why a version is outside of a comparison; see [`Failure::message`].
#[derive(Debug, Clone, Copy)]
enum Failure {
    Prerelease,
    Equal,
    NotEqual,
    LessOrEqual,
    GreaterOrEqual,
    Less,
    Greater,
    OtherMajor,
    OtherMajorOrMinor,
    OtherMinor,
    OtherMinorBelowOne,
    OtherPatch,
}

impl Failure {
    fn message(self, version: &Version, comparison: &Comparison) -> String {
        // Neither text has a character that Go's %q would escape.
        let bound = &comparison.text;
        match self {
            Self::Prerelease => format!(
                "\"{version}\" is a prerelease version and the constraint is only looking for release versions"
            ),
            Self::Equal => format!("\"{version}\" is equal to \"{bound}\""),
            Self::NotEqual => format!("\"{version}\" is not equal to \"{bound}\""),
            Self::LessOrEqual => format!("\"{version}\" is less than or equal to \"{bound}\""),
            Self::GreaterOrEqual => {
                format!("\"{version}\" is greater than or equal to \"{bound}\"")
            }
            Self::Less => format!("\"{version}\" is less than \"{bound}\""),
            Self::Greater => format!("\"{version}\" is greater than \"{bound}\""),
            Self::OtherMajor => {
                format!("\"{version}\" does not have same major version as \"{bound}\"")
            }
            Self::OtherMajorOrMinor => {
                format!("\"{version}\" does not have same major and minor version as \"{bound}\"")
            }
            Self::OtherMinor => {
                format!("\"{version}\" does not have same minor version as \"{bound}\"")
            }
            Self::OtherMinorBelowOne => format!(
                "\"{version}\" does not have same minor version as \"{bound}\". \
                 Expected minor versions to match when constraint major version is 0"
            ),
            Self::OtherPatch => format!(
                "\"{version}\" does not equal \"{bound}\". \
                 Expect version and constraint to equal when major and minor versions are 0"
            ),
        }
    }
}

impl Comparison {
    fn parse(text: &[u8]) -> Result<Self, Error> {
        let improper = || Error::ImproperConstraint(strconv::quote(text));
        let captures = GRAMMAR.comparison.captures(text).ok_or_else(improper)?;
        let group = |index: usize| {
            let bytes = captures.get(index).map_or(&b""[..], |m| m.as_bytes());
            // The grammar matches ASCII only.
            String::from_utf8_lossy(bytes).into_owned()
        };
        let (major, minor, patch, suffix) = (group(3), group(4), group(5), group(6));
        let (open, version) = if is_open(&major) {
            (Open::All, format!("0.0.0{suffix}"))
        } else if is_open(&minor) {
            (Open::Minor, format!("{major}.0.0{suffix}"))
        } else if is_open(&patch) {
            (Open::Patch, format!("{major}{minor}.0{suffix}"))
        } else {
            (Open::Nothing, group(2))
        };
        let bound = Version::parse(&version).map_err(|_| Error::ConstraintVersion)?;
        let symbol = group(1);
        let operator = match symbol.as_str() {
            "" | "=" => Operator::TildeOrEqual,
            "!=" => Operator::NotEqual,
            ">" => Operator::Greater,
            "<" => Operator::Less,
            ">=" | "=>" => Operator::GreaterOrEqual,
            "<=" | "=<" => Operator::LessOrEqual,
            "~" | "~>" => Operator::Tilde,
            _ => Operator::Caret,
        };
        Ok(Self {
            symbol,
            operator,
            text: group(2),
            bound,
            open,
        })
    }

    fn check(&self, version: &Version, prerelease: bool) -> Result<(), Failure> {
        if !version.prerelease().is_empty() && !prerelease {
            return Err(Failure::Prerelease);
        }
        match self.operator {
            Operator::TildeOrEqual if self.open == Open::Nothing => {
                ensure(*version == self.bound, Failure::NotEqual)
            }
            Operator::TildeOrEqual | Operator::Tilde => self.tilde(version),
            Operator::NotEqual => self.not_equal(version),
            Operator::Greater => self.greater(version),
            Operator::Less => ensure(*version < self.bound, Failure::GreaterOrEqual),
            Operator::GreaterOrEqual => ensure(*version >= self.bound, Failure::Less),
            Operator::LessOrEqual => self.less_or_equal(version),
            Operator::Caret => self.caret(version),
        }
    }

    fn not_equal(&self, version: &Version) -> Result<(), Failure> {
        let bound = &self.bound;
        if self.open == Open::Nothing {
            return ensure(version != bound, Failure::Equal);
        }
        if bound.major() != version.major() {
            return Ok(());
        }
        if self.open == Open::Minor {
            return Err(Failure::Equal);
        }
        if bound.minor() != version.minor() {
            return Ok(());
        }
        if self.open == Open::Patch {
            let other = compare_prerelease(version.prerelease(), bound.prerelease()).is_ne();
            return ensure(other, Failure::Equal);
        }
        if bound.patch() != version.patch() {
            return Ok(());
        }
        ensure(version != bound, Failure::Equal)
    }

    fn greater(&self, version: &Version) -> Result<(), Failure> {
        let bound = &self.bound;
        let greater = match self.open {
            Open::Nothing => version > bound,
            _ if version.major() != bound.major() => version.major() > bound.major(),
            Open::Minor => false,
            Open::Patch => version.minor() > bound.minor(),
            Open::All => version > bound,
        };
        ensure(greater, Failure::LessOrEqual)
    }

    fn less_or_equal(&self, version: &Version) -> Result<(), Failure> {
        let bound = &self.bound;
        let within = match self.open {
            Open::Nothing => version <= bound,
            _ if version.major() != bound.major() => version.major() < bound.major(),
            Open::Minor => true,
            Open::Patch | Open::All => version.minor() <= bound.minor(),
        };
        ensure(within, Failure::Greater)
    }

    fn tilde(&self, version: &Version) -> Result<(), Failure> {
        let bound = &self.bound;
        ensure(version >= bound, Failure::Less)?;
        // ~0.0.0 is a special case of the Go library: it accepts everything, as does `*`.
        let is_zero = (bound.major(), bound.minor(), bound.patch()) == (0, 0, 0);
        if is_zero && matches!(self.open, Open::Nothing | Open::All) {
            return Ok(());
        }
        ensure(version.major() == bound.major(), Failure::OtherMajor)?;
        let same = version.minor() == bound.minor() || self.open == Open::Minor;
        ensure(same, Failure::OtherMajorOrMinor)
    }

    fn caret(&self, version: &Version) -> Result<(), Failure> {
        let bound = &self.bound;
        ensure(version >= bound, Failure::Less)?;
        ensure(version.major() == bound.major(), Failure::OtherMajor)?;
        if bound.major() > 0 || self.open == Open::Minor {
            return Ok(());
        }
        if bound.minor() > 0 || self.open == Open::Patch {
            return ensure(
                version.minor() == bound.minor(),
                Failure::OtherMinorBelowOne,
            );
        }
        ensure(version.minor() == 0, Failure::OtherMinor)?;
        ensure(version.patch() == bound.patch(), Failure::OtherPatch)
    }
}

fn ensure(holds: bool, failure: Failure) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(failure) }
}

fn is_open(part: &str) -> bool {
    matches!(part.strip_prefix('.').unwrap_or(part), "" | "x" | "X" | "*")
}

/// `1.2 - 2.3` becomes `>= 1.2, <= 2.3`.
fn rewrite_ranges(text: &[u8]) -> Vec<u8> {
    let mut out = text.to_vec();
    for captures in GRAMMAR.range.captures_iter(text) {
        let group = |index: usize| captures.get(index).map_or(&b""[..], |m| m.as_bytes());
        let (whole, low, high) = (group(0), group(1), group(11));
        let replacement = [b">= ", low, b", <= ", high, b" "].concat();
        // Like Go, replace the first place with this text, wherever the match was.
        if let Some(at) = out.windows(whole.len()).position(|window| window == whole) {
            out.splice(at..at + whole.len(), replacement);
        }
    }
    out
}

fn split_alternatives(text: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.windows(2).position(|window| window == b"||") {
        parts.push(&rest[..at]);
        rest = &rest[at + 2..];
    }
    parts.push(rest);
    parts
}

struct Grammar {
    comparison: Regex,
    range: Regex,
    find: Regex,
    group: Regex,
}

/// The grammar of the Go library; what its patterns happen to accept (a `|` among the digits) is
/// part of it. `[ ]` classes stand for Go's `\s`, which has no vertical tab.
static GRAMMAR: LazyLock<Grammar> = LazyLock::new(|| {
    let version = r"v?([0-9|xX*]+)(\.[0-9|xX*]+)?(\.[0-9|xX*]+)?(-([0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*))?(\+([0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*))?";
    let operators = r"=||!=|>|<|>=|=>|<=|=<|~|~>|\^";
    let space = r"[\t\n\f\r ]";
    let compile = |pattern: String| {
        Regex::new(&format!("(?-u){pattern}")).expect("a constant pattern, covered by tests")
    };
    Grammar {
        comparison: compile(format!(
            "^{space}*({operators}){space}*({version}){space}*$"
        )),
        range: compile(format!(
            "{space}*({version}){space}+-{space}+({version}){space}*"
        )),
        find: compile(format!("({operators}){space}*({version})")),
        group: compile(format!(
            "^({space}*({operators}){space}*({version}){space}*)\
             ((?:{space}+|,{space}*)({operators}){space}*({version}){space}*)*$"
        )),
    }
});

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(constraint: &str, version: &str) -> bool {
        Constraint::parse(constraint)
            .expect(constraint)
            .check(&Version::parse(version).expect(version))
    }

    #[test]
    fn prereleases_match_only_where_one_is_named() {
        assert!(!accepts("^1.2", "1.30.0-gke.1"));
        assert!(accepts(">=1.19-0", "1.30.0-gke.1"));
        assert!(accepts(">=1.19", "1.30.0+k3s1"));
        assert!(accepts(">=1.0.0-0 <2", "1.1.0-rc.1"));
        assert!(!accepts(">=2.0.0-0 || ^1", "1.1.0-rc.1"));
    }

    #[test]
    fn partial_versions_are_ranges() {
        assert!(accepts("1.2", "1.2.9") && !accepts("1.2", "1.3.0"));
        assert!(accepts(">1", "2.0.0") && !accepts(">1", "1.9.9"));
        assert!(accepts("1.2 - 2", "2.9.9") && accepts("<=1.2", "1.2.9"));
        assert!(accepts("^0.2.3", "0.2.9") && !accepts("^0.2.3", "0.3.0"));
    }

    #[test]
    fn messages_and_errors_are_those_of_the_library() {
        for bad in ["", "latest", "1.2.3.4", "main"] {
            let error = Constraint::parse(bad).expect_err(bad);
            assert_eq!(error.to_string(), format!("improper constraint: \"{bad}\""));
        }
        let constraint = Constraint::parse("=1.2.3 || > 3").expect("valid");
        assert_eq!(constraint.to_string(), "=1.2.3 || >3");
        let messages = constraint.validate(&Version::parse("2.0").expect("valid"));
        let want = [
            "\"2.0.0\" is not equal to \"1.2.3\"",
            "\"2.0.0\" is less than or equal to \"3\"",
        ];
        assert_eq!(messages.expect_err("outside"), want);
        assert!(Constraint::parse("1 ||".repeat(32)).is_err());
        assert!(Constraint::parse("1".repeat(600)).is_err());
    }
}
