//! Reads a large index as it comes, and keeps what it says of a few charts.
//!
//! An index of a large repository has tens of megabytes, of which one chart is a few kilobytes. What is kept is an index again, for
//! [`super::index`] to read. Only the two forms are understood that indexes have: YAML in blocks as helm and its kin write it, and JSON.
//! Anything else is said not to be understood, and is read as a whole.

use std::collections::BTreeSet;

/// The longest line, and the longest name of a field.
const MAX_LINE_BYTES: usize = 1 << 20;
/// Limit on kept fields beside the charts, in bytes.
const MAX_OTHER_BYTES: usize = 64 << 10;
/// Limit on kept charts, in bytes.
const MAX_KEPT_BYTES: usize = 16 << 20;

/// The index is in a form that only reading it as a whole makes sense of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnknownForm;

/// Keeps the entries of some charts.
pub(super) struct IndexFilter {
    requested: BTreeSet<String>,
    form: Form,
    /// The kept text.
    kept: Vec<u8>,
}

enum Form {
    /// Only white space came yet.
    Unknown,
    Yaml(Yaml),
    Json(Json),
}

impl IndexFilter {
    /// Keeps these charts, and what is not of any chart.
    pub(super) fn new(requested: BTreeSet<String>) -> Self {
        Self {
            requested,
            form: Form::Unknown,
            kept: Vec::new(),
        }
    }

    /// Takes what comes next.
    pub(super) fn push(&mut self, chunk: &[u8]) -> Result<(), UnknownForm> {
        if let Form::Unknown = self.form {
            let Some(first) = chunk.iter().find(|byte| !byte.is_ascii_whitespace()) else {
                return Ok(());
            };
            self.form = match first {
                b'{' => Form::Json(Json::default()),
                _ => Form::Yaml(Yaml::default()),
            };
        }
        match &mut self.form {
            Form::Yaml(yaml) => yaml.push(chunk, &self.requested, &mut self.kept)?,
            Form::Json(json) => json.push(chunk, &self.requested, &mut self.kept)?,
            Form::Unknown => {}
        }
        match self.kept.len() > MAX_KEPT_BYTES {
            true => Err(UnknownForm),
            false => Ok(()),
        }
    }

    /// How much it keeps so far, in bytes.
    pub(super) fn kept_bytes(&self) -> u64 {
        self.kept.len() as u64
    }

    /// The kept text: an index of these charts alone.
    pub(super) fn finish(mut self) -> Result<Vec<u8>, UnknownForm> {
        match &mut self.form {
            Form::Yaml(yaml) => yaml.finish(&self.requested, &mut self.kept)?,
            Form::Json(json) => json.finish()?,
            Form::Unknown => {}
        }
        Ok(self.kept)
    }
}

/// YAML in blocks, line by line.
#[derive(Default)]
struct Yaml {
    /// The beginning of a line that is not complete.
    line: Vec<u8>,
    place: Place,
    has_begun: bool,
    other_bytes: usize,
}

/// Where a line is.
#[derive(Clone, Copy, Default)]
enum Place {
    /// In a field that has no charts.
    #[default]
    Other,
    /// Below `entries`, before the first chart.
    Entries,
    /// In a chart; charts are indented by so many spaces.
    Chart { indent: usize, is_requested: bool },
}

impl Yaml {
    fn push(
        &mut self,
        chunk: &[u8],
        requested: &BTreeSet<String>,
        kept: &mut Vec<u8>,
    ) -> Result<(), UnknownForm> {
        let mut rest = chunk;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end + 1);
            rest = after;
            if self.line.is_empty() {
                self.line(line, requested, kept)?;
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.line(&whole, requested, kept)?;
            }
        }
        self.line.extend_from_slice(rest);
        match self.line.len() > MAX_LINE_BYTES {
            true => Err(UnknownForm),
            false => Ok(()),
        }
    }

    fn finish(
        &mut self,
        requested: &BTreeSet<String>,
        kept: &mut Vec<u8>,
    ) -> Result<(), UnknownForm> {
        let last = std::mem::take(&mut self.line);
        match last.is_empty() {
            true => Ok(()),
            false => self.line(&last, requested, kept),
        }
    }

    fn line(
        &mut self,
        line: &[u8],
        requested: &BTreeSet<String>,
        kept: &mut Vec<u8>,
    ) -> Result<(), UnknownForm> {
        let indent = line.iter().take_while(|byte| **byte == b' ').count();
        let text = line.get(indent..).unwrap_or_default().trim_ascii_end();
        let is_blank = text.is_empty() || text.starts_with(b"#");
        if !is_blank {
            self.place = self.place_of(indent, text, requested)?;
        }
        match self.place {
            Place::Chart {
                is_requested: false,
                ..
            } => return Ok(()),
            Place::Chart { .. } | Place::Entries => {}
            Place::Other => {
                self.other_bytes += line.len();
                if self.other_bytes > MAX_OTHER_BYTES {
                    return Err(UnknownForm);
                }
            }
        }
        kept.extend_from_slice(line);
        Ok(())
    }

    fn place_of(
        &mut self,
        indent: usize,
        text: &[u8],
        requested: &BTreeSet<String>,
    ) -> Result<Place, UnknownForm> {
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        if indent == 0 {
            return match text {
                b"---" if !has_begun => Ok(Place::Other),
                b"entries:" => Ok(Place::Entries),
                _ => match field(text) {
                    Some((name, _)) if !name.eq_ignore_ascii_case("entries") => Ok(Place::Other),
                    _ => Err(UnknownForm),
                },
            };
        }
        let charts = match self.place {
            Place::Other => return Ok(Place::Other),
            Place::Entries => indent,
            Place::Chart { indent, .. } => indent,
        };
        let is_item = text.starts_with(b"-");
        // Deeper, it is part of a text in several lines.
        if text.starts_with(b"\t") && indent <= charts {
            return Err(UnknownForm);
        }
        match (self.place, indent.cmp(&charts)) {
            (_, std::cmp::Ordering::Less) => Err(UnknownForm),
            (Place::Entries, _) if is_item => Err(UnknownForm),
            (place, std::cmp::Ordering::Greater) => Ok(place),
            (place, std::cmp::Ordering::Equal) if is_item => Ok(place),
            _ => {
                let (name, value) = field(text).ok_or(UnknownForm)?;
                // A list in one line may go on in the next, wherever that begins.
                if !matches!(value, b"" | b"[]" | b"null" | b"~") {
                    return Err(UnknownForm);
                }
                Ok(Place::Chart {
                    indent: charts,
                    is_requested: requested.contains(name),
                })
            }
        }
    }
}

/// The name and the value of `name: value`, where the name is plain or simply quoted.
fn field(text: &[u8]) -> Option<(&str, &[u8])> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-/+@".contains(byte);
    let (name, rest) = match text.first()? {
        quote @ (b'"' | b'\'') => {
            let inner = text.get(1..)?;
            let end = inner.iter().position(|byte| byte == quote)?;
            let (name, rest) = inner.split_at(end);
            let is_simple = !name.contains(&b'\\');
            (name, rest.get(1..).filter(|_| is_simple)?)
        }
        first if first.is_ascii_alphanumeric() => {
            let end = text.iter().position(|byte| !is_plain(byte))?;
            text.split_at(end)
        }
        _ => return None,
    };
    let value = rest.strip_prefix(b":")?;
    let is_separate = value.is_empty() || value.starts_with(b" ");
    let name = std::str::from_utf8(name).ok()?;
    is_separate.then_some((name, value.trim_ascii()))
}

/// JSON, byte by byte.
#[derive(Default)]
struct Json {
    depth: usize,
    in_text: bool,
    is_escaped: bool,
    /// The text that is being read, where it may be a name.
    text: Vec<u8>,
    /// The names of the field of the document and of that field's that the reading is in.
    names: [Vec<u8>; 2],
    /// Whether the next text is a name, by depth.
    expects_name: bool,
    /// A name was read, and its colon is to come.
    has_name: bool,
    /// Whether the coming text is kept.
    keeps: bool,
    /// Fields were written at these depths already.
    has_fields: [bool; 2],
    /// A field that is not kept was ended by the next byte.
    is_over: bool,
}

impl Json {
    fn push(
        &mut self,
        chunk: &[u8],
        requested: &BTreeSet<String>,
        kept: &mut Vec<u8>,
    ) -> Result<(), UnknownForm> {
        for byte in chunk {
            self.byte(*byte, requested, kept)?;
        }
        Ok(())
    }

    fn in_entries(&self) -> bool {
        self.names[0].eq_ignore_ascii_case(b"entries")
    }

    fn byte(
        &mut self,
        byte: u8,
        requested: &BTreeSet<String>,
        kept: &mut Vec<u8>,
    ) -> Result<(), UnknownForm> {
        if self.in_text {
            if self.keeps {
                kept.push(byte);
            }
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => {
                    self.is_escaped = true;
                    // An escaped name cannot be compared here.
                    if self.expects_name && self.depth <= 2 {
                        return Err(UnknownForm);
                    }
                }
                b'"' => {
                    self.in_text = false;
                    self.has_name = self.expects_name && self.depth <= 2;
                    return Ok(());
                }
                _ => {}
            }
            if self.expects_name && self.depth <= 2 {
                self.text.push(byte);
                if self.text.len() > MAX_LINE_BYTES {
                    return Err(UnknownForm);
                }
            }
            return Ok(());
        }
        if self.expects_name && (1..=2).contains(&self.depth) {
            // YAML in one line may have names without quotes.
            let is_understood = match byte {
                b':' => self.has_name,
                b'"' => !self.has_name,
                b'}' | b',' => !self.has_name,
                byte => byte.is_ascii_whitespace(),
            };
            if !is_understood {
                return Err(UnknownForm);
            }
        }
        match byte {
            b'"' => {
                self.in_text = true;
                self.text.clear();
                if self.keeps {
                    kept.push(byte);
                }
            }
            b':' if self.expects_name && self.depth <= 2 => {
                self.expects_name = false;
                self.has_name = false;
                self.begin_field(requested, kept)?;
            }
            b'{' | b'[' => {
                self.depth += 1;
                let is_entries = self.depth == 2 && self.in_entries() && byte == b'{';
                if self.depth == 1 || is_entries {
                    self.expects_name = true;
                    self.has_fields[self.depth - 1] = false;
                    kept.push(byte);
                } else if self.depth == 2 && self.in_entries() {
                    return Err(UnknownForm);
                } else if self.keeps {
                    kept.push(byte);
                }
            }
            b'}' | b']' => {
                let ends_entries = self.depth == 2 && self.in_entries();
                if self.depth == 1 || ends_entries {
                    self.keeps = false;
                    kept.push(byte);
                } else if self.keeps {
                    kept.push(byte);
                }
                self.depth = self.depth.checked_sub(1).ok_or(UnknownForm)?;
                self.is_over = self.depth == 0;
            }
            b',' if self.depth == 1 || self.depth == 2 && self.in_entries() => {
                self.expects_name = true;
                self.keeps = false;
            }
            byte if byte.is_ascii_whitespace() => {}
            _ if self.is_over => return Err(UnknownForm),
            byte if self.keeps => kept.push(byte),
            _ => {}
        }
        Ok(())
    }

    /// Begins a field whose name was read.
    fn begin_field(
        &mut self,
        requested: &BTreeSet<String>,
        kept: &mut Vec<u8>,
    ) -> Result<(), UnknownForm> {
        let at = self.depth.checked_sub(1).ok_or(UnknownForm)?;
        self.names[at] = self.text.clone();
        let is_kept = match at {
            0 => true,
            _ => std::str::from_utf8(&self.text).is_ok_and(|name| requested.contains(name)),
        };
        self.keeps = is_kept && !(at == 0 && self.in_entries());
        if is_kept {
            if std::mem::replace(&mut self.has_fields[at], true) {
                kept.push(b',');
            }
            kept.push(b'"');
            kept.extend_from_slice(&self.text);
            kept.extend_from_slice(b"\":");
        }
        Ok(())
    }

    fn finish(&self) -> Result<(), UnknownForm> {
        match self.is_over && !self.in_text {
            true => Ok(()),
            false => Err(UnknownForm),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::{Index, Strictness};
    use super::*;

    fn filtered(text: &str, requested: &[&str], piece: usize) -> Result<String, UnknownForm> {
        let mut filter = IndexFilter::new(requested.iter().map(ToString::to_string).collect());
        for chunk in text.as_bytes().chunks(piece) {
            filter.push(chunk)?;
        }
        filter.finish().map(|kept| String::from_utf8(kept).unwrap())
    }

    fn index() -> Value {
        let entry = |name: &str, version: &str| {
            let description = format!(
                "a: {name}\n# not a comment\n  \"quoted\" - {version}\n\nentries:\n  web:\n"
            );
            json!({
                "name": name, "version": version, "urls": [format!("{name}-{version}.tgz")], "digest": "",
                "description": description, "annotations": { "x": "[{,}]\\\"", "entries": "{}" }, "maintainers": [{ "name": "é" }],
            })
        };
        json!({
            "apiVersion": "v1", "generated": "2026-01-01T00:00:00Z", "serverInfo": { "entries": [1, { "web": 2 }] },
            "entries": {
                "api": [entry("api", "1.0.0")], "web": [entry("web", "1.0.0"), entry("web", "2.0.0")], "empty": [],
                "web2": [entry("web2", "1.0.0")], "0": [entry("0", "1.0.0")],
            },
        })
    }

    fn check(text: &str, requested: &[&str]) {
        let load = |text: &str| Index::load(text.as_bytes(), Strictness::Fleet, "test").unwrap();
        let mut whole = load(text);
        whole
            .entries
            .retain(|name, _| requested.contains(&name.as_str()));
        for piece in [1, 7, 100_000] {
            let kept = filtered(text, requested, piece).unwrap();
            assert_eq!(load(&kept), whole, "{kept}");
        }
    }

    #[rstest]
    #[case(&["web"])]
    #[case(&["0", "empty"])]
    #[case(&["none"])]
    #[case(&["api", "web", "web2"])]
    fn filtered_entries_equal_those_of_the_whole_index(#[case] requested: &[&str]) {
        let index = index();
        check(&golib::yaml::encode(&index).unwrap(), requested);
        check(&index.to_string(), requested);
        check(&serde_json::to_string_pretty(&index).unwrap(), requested);
    }

    #[test]
    fn lists_may_be_indented_or_not_and_lines_end_as_they_like() {
        let text = "# made by hand\n---\napiVersion: v1\nentries:\n    \"web\":\n        - name: web\n          version: 1.0.0\n          urls: [a,\n            b]\n\n    'api':\n    - {name: api, version: 1.0.0}\n    none: []\ngenerated: 2026-01-01T00:00:00Z";
        check(text, &["web"]);
        check(text, &["api", "none"]);
        check(&text.replace('\n', "\r\n"), &["web", "none"]);
    }

    #[rstest]
    #[case::one_line("entries: {web: []}\n")]
    #[case::a_list_in_a_line("entries:\n  web: [{name: web,\nversion: 1}]\n")]
    #[case::an_anchor("entries:\n  web: &web\n  - name: web\n")]
    #[case::a_tab("entries:\n\tweb:\n")]
    #[case::two_documents("entries:\n  web:\n---\nentries:\n")]
    #[case::an_escaped_name("entries:\n  \"w\\x65b\":\n")]
    #[case::a_quoted_field("\"entries\":\n  web:\n")]
    #[case::less_indented("entries:\n    web:\n  api:\n")]
    #[case::an_escaped_name_in_json("{\"entries\": {\"w\\u0065b\": []}}")]
    #[case::a_list_of_charts("{\"entries\": []}")]
    #[case::names_without_quotes("{\"apiVersion\":\"v1\",\"entries\":{web: [{\"name\":\"web\"}]}}")]
    #[case::names_in_single_quotes("{'apiVersion':'v1','entries':{'web':[{'name':'web'}]}}")]
    #[case::cut_off("{\"entries\": {\"web\": [")]
    #[case::more_than_one_value("{} 1")]
    fn other_forms_are_refused(#[case] text: &str) {
        assert_eq!(filtered(text, &["web"], 5), Err(UnknownForm));
    }
}
