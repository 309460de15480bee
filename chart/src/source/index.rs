//! A chart repository's `index.yaml`: reading it and picking a version.
//!
//! Mirrors Helm's `pkg/repo/v1/index.go`. Fleet reads the same file leniently (unknown fields and
//! entries without valid metadata pass), the helm CLI strictly; both are here.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use golib::budget::Budget;
use golib::semver::{Constraint, Version};
use golib::{json as go_json, yaml};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::cache::Weigh;
use super::index_schema::{self, Rules};
use crate::warning;

/// How many versions an error names.
pub(super) const NEWEST_SHOWN: usize = 5;

/// The program whose rules an index is read by: each accepts other files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// Fleet: unknown fields and doubtful entries pass, `apiVersion` may be missing.
    #[default]
    Fleet,
    /// Helm: YAML with an unknown field or duplicate key is refused, doubtful entries are dropped.
    Helm,
}

/// One version of a chart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Entry {
    /// The chart's name as the entry has it.
    pub name: String,
    /// The chart's version, as written.
    pub version: String,
    /// The chart's `apiVersion`; `v1` where there is none.
    pub api_version: String,
    /// Download addresses, relative to the repository or absolute. `None` if the field is missing.
    pub urls: Option<Vec<String>>,
    /// SHA-256 of the archive in hexadecimal; empty if the repository does not say.
    pub digest: String,
}

impl Entry {
    /// The address to download it from, relative to the repository or absolute.
    pub fn first_url(&self) -> Option<&str> {
        let first = self.urls.as_ref()?.first()?;
        Some(first)
    }
}

/// A repository's charts, each with its versions newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// As written.
    pub api_version: String,
    /// Versions by chart name.
    pub entries: BTreeMap<String, Vec<Entry>>,
    /// Entries that were skipped.
    pub warnings: Vec<Skipped>,
    /// The charts the index is about, where it was read for those alone.
    pub(super) only: Option<BTreeSet<String>>,
}

/// An entry that is not valid. Prints as Helm's log record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    chart: String,
    /// The version as written and what is wrong; `None` for no entry at all.
    invalid: Option<(String, String)>,
    source: String,
}

impl Skipped {
    /// The chart.
    pub fn chart(&self) -> &str {
        &self.chart
    }

    fn record(&self) -> (&'static str, Vec<(&'static str, &str)>) {
        let mut fields = vec![("name", self.chart.as_str())];
        let Some((version, problem)) = &self.invalid else {
            fields.push(("source", &self.source));
            return (
                "skipping loading invalid entry for chart: empty entry",
                fields,
            );
        };
        fields.extend([
            ("version", version.as_str()),
            ("source", &self.source),
            ("error", problem),
        ]);
        ("skipping loading invalid entry for chart", fields)
    }

    /// The line Helm's command writes to standard error.
    pub fn log_line(&self) -> String {
        let (message, fields) = self.record();
        warning::record("WARN", message, &fields)
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (message, fields) = self.record();
        f.write_str(message)?;
        fields
            .iter()
            .try_for_each(|(key, value)| write!(f, " {key}={value}"))
    }
}

/// A chart or version that is not in an index or a tag list. Texts begin with Helm's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// No entry of that name.
    #[error("no chart name found: \"{chart}\"")]
    Chart {
        /// The chart's name.
        chart: String,
    },
    /// An entry without versions.
    #[error("no chart version found")]
    Empty,
    /// The version is neither one nor a constraint.
    #[error("{text}")]
    Constraint {
        /// Helm's text: `improper constraint: …`.
        text: String,
    },
    /// Versions, but none that fits.
    #[error("no chart version found for {chart}-{version}{}", newest_seen(.newest))]
    Version {
        /// The chart's name.
        chart: String,
        /// The version or constraint asked for.
        version: String,
        /// The newest versions there are, newest first, a few of them.
        newest: Vec<String>,
    },
    /// A registry without usable tags.
    #[error("unable to locate any tags in provided repository: {repository}")]
    NoTags {
        /// The repository.
        repository: String,
    },
    /// Tags, but none that fits.
    #[error("could not locate a version matching provided version string {version}{}", newest_seen(.newest))]
    Tag {
        /// The constraint asked for.
        version: String,
        /// The newest versions there are, newest first, a few of them.
        newest: Vec<String>,
    },
}

impl LookupError {
    /// The text without what we add to it.
    pub fn in_helms_words(&self) -> String {
        match self {
            Self::Chart { .. } => "no chart name found".to_owned(),
            Self::Version { chart, version, .. } => {
                format!("no chart version found for {chart}-{version}")
            }
            Self::Tag { version, .. } => {
                format!("could not locate a version matching provided version string {version}")
            }
            other => other.to_string(),
        }
    }
}

fn newest_seen(versions: &[String]) -> String {
    match versions {
        [] => String::new(),
        versions => format!(" (newest seen: {})", versions.join(", ")),
    }
}

/// Why an index cannot be used. Texts are Helm's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// No bytes at all.
    #[error("empty index.yaml file")]
    Empty,
    /// No `apiVersion` (only Helm minds).
    #[error("no API version specified")]
    NoApiVersion,
    /// Not YAML, or not shaped like an index.
    #[error("{0}")]
    Decode(String),
}

impl Index {
    /// Reads an index and sorts it. `source` names it in warnings.
    ///
    /// ```
    /// use chart::source::{Index, Strictness};
    ///
    /// let text = "apiVersion: v1\nentries:\n  web:\n  - {name: web, version: 1.10.0, urls: [web-1.10.0.tgz]}\n  \
    ///             - {name: web, version: 1.9.0, urls: [web-1.9.0.tgz]}\n";
    /// let index = Index::load(text.as_bytes(), Strictness::Helm, "index.yaml")?;
    /// assert_eq!(index.get("web", "^1.2")?.first_url(), Some("web-1.10.0.tgz"));
    /// assert_eq!(index.get("web", "1.9.0")?.version, "1.9.0");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`IndexError`]; a single bad entry is no error for Helm, it is dropped with a warning.
    pub fn load(bytes: &[u8], strictness: Strictness, source: &str) -> Result<Self, IndexError> {
        Self::load_by(TREE_BYTES, bytes, strictness, source)
    }

    fn load_by(
        tree_bytes: usize,
        bytes: &[u8],
        strictness: Strictness,
        source: &str,
    ) -> Result<Self, IndexError> {
        let strict = strictness == Strictness::Helm;
        if bytes.is_empty() && strict {
            return Err(IndexError::Empty);
        }
        let mut index = Self::default();
        Reader {
            bytes,
            strict,
            tree_bytes,
        }
        .each(&mut |value, rules| index.add(value, rules, strict, source))?;
        if strict && index.api_version.is_empty() {
            return Err(IndexError::NoApiVersion);
        }
        Ok(index)
    }

    /// Takes what a tree has, which may be but a part of the entries.
    fn add(
        &mut self,
        value: &Value,
        rules: Rules,
        strict: bool,
        source: &str,
    ) -> Result<(), IndexError> {
        if let Some(problem) = index_schema::check(value, rules) {
            return Err(IndexError::Decode(match rules.coerce {
                true => format!("error unmarshaling JSON: while decoding JSON: {problem}"),
                false => problem,
            }));
        }
        self.api_version = text(value, "apiVersion");
        if let Some(Value::Object(entries)) = index_schema::field(value, "entries") {
            for (name, versions) in entries {
                let versions = self.versions(name, versions, strict, source);
                self.entries.insert(name.clone(), versions);
            }
        }
        Ok(())
    }

    fn skip(&mut self, chart: &str, invalid: Option<(String, String)>, source: &str) {
        self.warnings.push(Skipped {
            chart: chart.to_owned(),
            invalid,
            source: source.to_owned(),
        });
    }

    fn versions(&mut self, name: &str, list: &Value, strict: bool, source: &str) -> Vec<Entry> {
        let mut kept = Vec::new();
        // Helm walks backwards, which shows in the order of its warnings.
        for value in list.as_array().into_iter().flatten().rev() {
            if value.is_null() {
                if strict {
                    self.skip(name, None, source);
                }
                continue;
            }
            let entry = Entry {
                name: text(value, "name"),
                version: text(value, "version"),
                api_version: Some(text(value, "apiVersion"))
                    .filter(|text| !text.is_empty())
                    .unwrap_or_else(|| "v1".to_owned()),
                urls: index_schema::field(value, "urls")
                    .and_then(Value::as_array)
                    .map(|urls| urls.iter().map(index_schema::text).collect()),
                digest: text(value, "digest"),
            };
            match index_schema::objection(value).filter(|_| strict) {
                Some(problem) => self.skip(name, Some((entry.version, problem)), source),
                None => kept.push(entry),
            }
        }
        kept.reverse();
        sort(&mut kept);
        kept
    }

    /// The version to take: empty means the newest release; an entry that equals `version` as a
    /// text wins; otherwise the newest that satisfies it as a constraint.
    ///
    /// ```
    /// use chart::source::{Index, Strictness};
    ///
    /// let text = b"entries:\n  web:\n  - {name: web, version: 2.0.0-rc.1}\n  - {name: web, version: 1.10.0}\n";
    /// let index = Index::load(text, Strictness::Fleet, "index.yaml")?;
    /// assert_eq!(index.get("web", "")?.version, "1.10.0"); // the newest that is no pre-release
    /// let missing = index.get("web", "^3").unwrap_err();
    /// assert_eq!(missing.to_string(), "no chart version found for web-^3 (newest seen: 2.0.0-rc.1, 1.10.0)");
    /// assert_eq!(missing.in_helms_words(), "no chart version found for web-^3");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`LookupError`], with the newest versions seen where none fits.
    pub fn get(&self, chart: &str, version: &str) -> Result<&Entry, LookupError> {
        let versions = self.entries.get(chart).ok_or_else(|| LookupError::Chart {
            chart: chart.to_owned(),
        })?;
        if versions.is_empty() {
            return Err(LookupError::Empty);
        }
        let constraint = Constraint::parse(if version.is_empty() { "*" } else { version })
            .map_err(|error| LookupError::Constraint {
                text: error.to_string(),
            })?;
        let exact = versions
            .iter()
            .find(|entry| !version.is_empty() && entry.version == version);
        let fits = |entry: &&Entry| {
            Version::parse(&entry.version).is_ok_and(|version| constraint.check(&version))
        };
        exact
            .or_else(|| versions.iter().find(fits))
            .ok_or_else(|| LookupError::Version {
                chart: chart.to_owned(),
                version: version.to_owned(),
                newest: versions
                    .iter()
                    .take(NEWEST_SHOWN)
                    .map(|e| e.version.clone())
                    .collect(),
            })
    }

    /// With what another reading of the same index says of other charts.
    pub(super) fn with(&self, other: &Self) -> Self {
        let (Some(only), Some(others)) = (&self.only, &other.only) else {
            return match &self.only {
                None => self.clone(),
                Some(_) => other.clone(),
            };
        };
        let mut both = self.clone();
        both.entries.extend(other.entries.clone());
        both.only = Some(only.union(others).cloned().collect());
        both
    }

    /// Whether the index has all entries of a chart, or of all charts.
    pub(super) fn is_about(&self, chart: Option<&str>) -> bool {
        match (&self.only, chart) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(only), Some(chart)) => only.contains(chart),
        }
    }
}

/// What a text, and a piece of memory in general, takes besides its bytes; an entry of a map besides its texts.
const ALLOCATION: usize = 16;
const MAP_ENTRY: usize = 112;

impl Weigh for Arc<Index> {
    fn weight(&self) -> usize {
        let text = |text: &str| text.len() + ALLOCATION;
        let entry = |entry: &Entry| {
            let Entry {
                name,
                version,
                api_version,
                urls,
                digest,
            } = entry;
            let texts = [name, version, api_version, digest].map(|one| text(one));
            let urls = urls
                .iter()
                .flatten()
                .map(|url| size_of::<String>() + text(url));
            size_of::<Entry>() + texts.iter().sum::<usize>() + urls.sum::<usize>()
        };
        let entries = self.entries.iter().map(|(name, list)| {
            MAP_ENTRY + text(name) + ALLOCATION + list.iter().map(entry).sum::<usize>()
        });
        let warnings = self.warnings.iter().map(|skipped| {
            let invalid = skipped.invalid.iter();
            let invalid = invalid.map(|(version, problem)| text(version) + text(problem));
            size_of::<Skipped>()
                + text(&skipped.chart)
                + text(&skipped.source)
                + invalid.sum::<usize>()
        });
        let only = self
            .only
            .iter()
            .flatten()
            .map(|name| MAP_ENTRY + text(name));
        size_of::<Index>()
            + text(&self.api_version)
            + entries.sum::<usize>()
            + warnings.sum::<usize>()
            + only.sum::<usize>()
    }
}

/// Bytes of tree at a time. Nearly all indexes fit at once.
pub(super) const TREE_BYTES: usize = 32 << 20;

/// The field that has the charts.
const ENTRIES: &str = "entries";

/// An index on its way from text to trees, large ones one chart at a time.
struct Reader<'b> {
    bytes: &'b [u8],
    strict: bool,
    tree_bytes: usize,
}

impl Reader<'_> {
    /// Hands out the tree, or one tree after another, of a chart each and then of all else. For Helm, valid JSON is JSON and never
    /// strict.
    fn each(
        &self,
        take: &mut dyn FnMut(&Value, Rules) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let as_json = Rules {
            unknown_allowed: true,
            coerce: false,
        };
        let as_yaml = Rules {
            unknown_allowed: !self.strict,
            coerce: true,
        };
        if self.strict {
            match go_json::decode_within(self.bytes, &mut Budget::new(self.tree_bytes)) {
                Ok(value) => return take(&value, as_json),
                // JSON is YAML too, of which a part can be read.
                Err(go_json::Error::TooLarge(_)) => {
                    return self.parts(yaml::Decoder::new(), as_json, take);
                }
                Err(_) => {}
            }
        }
        let decoder = match self.strict {
            true => yaml::Decoder::new().strict(),
            false => yaml::Decoder::new(),
        };
        match decoder.decode(self.bytes, &mut Budget::new(self.tree_bytes)) {
            Ok(value) => take(&value, as_yaml),
            Err(yaml::Error::TooLarge(_)) => self.parts(decoder, as_yaml, take),
            Err(error) => Err(IndexError::Decode(error.to_string())),
        }
    }

    fn parts(
        &self,
        decoder: yaml::Decoder<'_>,
        rules: Rules,
        take: &mut dyn FnMut(&Value, Rules) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let taken = RefCell::new((take, Ok(())));
        let is_chart =
            |path: &[&str]| matches!(path, [field, _] if field.eq_ignore_ascii_case(ENTRIES));
        let hand = |path: &[&str], versions: Value| {
            let (take, outcome) = &mut *taken.borrow_mut();
            if let ([field, name], Ok(())) = (path, &outcome) {
                *outcome = take(&json!({*field: {*name: versions}}), rules);
            }
        };
        let rest = decoder
            .extract(&is_chart, &hand)
            .decode(self.bytes, &mut Budget::new(self.tree_bytes));
        let mut rest = rest.map_err(|error| IndexError::Decode(error.to_string()))?;
        let (take, outcome) = taken.into_inner();
        outcome?;
        // The charts are still there where the document was read as a whole after all.
        let were_taken = |charts: &Value| {
            let charts = charts.as_object();
            charts.is_some_and(|charts| charts.values().all(Value::is_null))
        };
        if let Value::Object(fields) = &mut rest {
            fields
                .retain(|field, value| !(field.eq_ignore_ascii_case(ENTRIES) && were_taken(value)));
        }
        take(&rest, rules)
    }
}

fn text(value: &Value, name: &str) -> String {
    index_schema::field(value, name)
        .map(index_schema::text)
        .unwrap_or_default()
}

/// Newest first, as Go's `sort.Sort(sort.Reverse(…))` leaves them: what does not parse is last where `ChartVersions.Less` is an order, and
/// which of two builds of a version is first is that algorithm's word.
fn sort(entries: &mut Vec<Entry>) {
    let mut keyed: Vec<(Option<Version>, Entry)> = std::mem::take(entries)
        .into_iter()
        .map(|entry| (Version::parse(&entry.version).ok(), entry))
        .collect();
    let is_less = |a: &Option<Version>, b: &Option<Version>| match (a, b) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(a), Some(b)) => a < b,
    };
    golib::sort::sort(&mut keyed, |(a, _), (b, _)| is_less(b, a));
    entries.extend(keyed.into_iter().map(|(_, entry)| entry));
}

#[cfg(test)]
mod tests {
    use super::{Entry, Index, Strictness, sort};
    use crate::source::oci;

    /// Recorded from Go, see `tests/reference/version-order`.
    const ORDERS: &str = include_str!("../../tests/source/order.txt");

    #[test]
    fn builds_of_a_version_are_in_helms_order() {
        let mut lines = ORDERS.lines();
        assert_eq!(lines.clone().count(), 90);
        while let (Some(listed), Some(sorted)) = (lines.next(), lines.next()) {
            let (kind, listed) = listed.split_once(' ').expect("a kind and versions");
            let found = match kind {
                "tags" => {
                    let tags: Vec<String> = listed.split(' ').map(str::to_owned).collect();
                    oci::versions(&tags)
                }
                _ => {
                    let entry = |version: &str| Entry {
                        version: version.to_owned(),
                        ..Entry::default()
                    };
                    let mut entries: Vec<Entry> = listed.split(' ').map(entry).collect();
                    sort(&mut entries);
                    entries.into_iter().map(|entry| entry.version).collect()
                }
            };
            assert_eq!(found.join(" "), sorted, "{kind}: {listed}");
        }
    }

    #[test]
    fn large_indexes_are_read_in_parts() {
        let version = |chart, version| {
            format!(
                "  - {{name: web{chart}, version: 1.0.{version}, urls: [web.tgz], annotations: {{a: b}}}}\n"
            )
        };
        let charts = (0..20).map(|chart| {
            let versions: String = (0..20).map(|at| version(chart, at)).collect();
            format!("  web{chart}:\n{versions}")
        });
        let text = format!(
            "apiVersion: v1\nentries:\n{}generated: \"2020-01-01T00:00:00Z\"\n",
            charts.collect::<String>()
        );
        let whole = Index::load(text.as_bytes(), Strictness::Helm, "").expect("it is an index");
        assert_eq!(whole.entries.len(), 20);
        let json = golib::json::encode(&golib::yaml::decode(text.as_bytes()).expect("it is YAML"));
        for strictness in [Strictness::Fleet, Strictness::Helm] {
            for text in [&text, &json] {
                // Room for two charts.
                let index = Index::load_by(80 << 10, text.as_bytes(), strictness, "");
                assert_eq!(index.expect("it is an index"), whole);
            }
        }
        let anchored = format!("{text}x: &anchor 1\n");
        let error = Index::load_by(80 << 10, anchored.as_bytes(), Strictness::Fleet, "");
        let error = error.expect_err("anchors need the whole").to_string();
        assert!(error.contains("too large"), "{error}");
        let too_small = Index::load_by(8 << 10, text.as_bytes(), Strictness::Fleet, "");
        let error = too_small.expect_err("not even one chart fits").to_string();
        assert!(error.contains("too large"), "{error}");
        let wrong = text.replace("web9, version: 1.0.7,", "web9, version: 1.0.7, odd: field,");
        let error = Index::load_by(80 << 10, wrong.as_bytes(), Strictness::Helm, "");
        let error = error.expect_err("it is odd").to_string();
        assert!(error.contains("unknown field \"odd\""), "{error}");
    }

    /// Go's decoder ends at a time that it cannot read and goes on after other misfits, of which it tells the first at last.
    #[test]
    fn a_time_that_cannot_be_read_is_told_before_other_misfits() {
        let refused = |text: &str| {
            let error = Index::load(text.as_bytes(), Strictness::Helm, "").expect_err(text);
            let error = error.to_string();
            let reported = error.strip_prefix("error unmarshaling JSON: while decoding JSON: ");
            reported.map(str::to_owned).unwrap_or(error)
        };
        let odd = "entries: {a: [{name: a, version: 1.0.0, urls: b, tags: [c], odd: d}]}\n";
        assert_eq!(refused(odd), "json: unknown field \"odd\"");
        assert_eq!(
            refused(&format!("{odd}generated: x\n")),
            "parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\""
        );
        assert_eq!(
            refused("entries: {a: 1, b: [{created: 5}]}\n"),
            "Time.UnmarshalJSON: input is not a JSON string"
        );
    }
}
