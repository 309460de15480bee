//! Keeping secrets out of texts: what an error quotes of values and Secrets is redacted before it
//! becomes a condition, a log line or an Event.
//!
//! Most errors name places and never content. Some texts are not ours, though: a chart's
//! `fail`, the API server's "Invalid value", a YAML parser that quotes what it stumbled over. So
//! everything that may be secret in a deployment is collected, and any of it that stands in the
//! text is replaced. Who quotes it may escape it, in many ways: these are taken off the text, which is read in each way (`readings`, `views`). In what other
//! forms it may stand, as in base64, is made of each value, one by one while a text is redacted, looked up in what the text has, and not kept. That
//! takes as long as all of them are long, whatever they are, and a moment for the text, which is at most 32 KiB: what comes after that is cut first,
//! and of a value that is longer no form is made that is as long.

mod by_records;
mod canonical;
mod details;
mod fragments;
mod keys;
pub(super) mod limits;
mod masks;
mod names;
mod parts;
mod quotes;
#[cfg(test)]
mod quoting;
mod readings;
mod redaction;
mod secret;
mod templates;
mod views;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use chart::Chart;
use objects::manifest::split;
use release::model::Release;
use serde_json::Value;

use crate::api::ANNOTATION_LOOKED_UP;
use crate::error;
use crate::public::PublicText;
pub use details::{MAX_DETAIL_BYTES, RedactedDetail};
pub use limits::{MAX_TEXT_BYTES, SHORTEST};
use masks::{Masks, collect};
pub use quotes::without_quotes;
use redaction::Redaction;
use secret::Secret;
use views::{Found, Views};

/// Where kubectl keeps the whole object that it applied last, which somebody may have changed since.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// An error as it may leave the process: only [`SensitiveData`] makes one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Redacted(String);

impl Redacted {
    /// An error whose secrets are not known: without any words of an API server or a webhook, which may quote them.
    pub fn unquoted(failed: &(dyn std::error::Error + 'static)) -> Self {
        let mut text = release::error_unquoted(failed).to_string();
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        Self(text)
    }
}

impl From<Redacted> for PublicText {
    fn from(failed: Redacted) -> Self {
        Self::of_redacted(failed.0)
    }
}

/// The texts that may be secret in one deployment. Cannot be printed.
#[derive(Default)]
pub struct SensitiveData {
    texts: Vec<Secret>,
    /// Values that users gave a chart, which are no secret as far as the chart says the same itself.
    given: Vec<Given>,
    /// Documents that cannot be read: any of their words may be secret.
    unread: Vec<String>,
    /// There are other secrets that nobody knows any more: all quotes in a text are withheld.
    are_some_unknown: bool,
    /// Names among the data of Secrets that every cluster has.
    names_in_secrets: BTreeSet<&'static str>,
}

struct Given {
    texts: Vec<Secret>,
    /// The values that the chart itself shows.
    shown: Vec<Secret>,
    chart: Arc<Chart>,
}

impl SensitiveData {
    /// The texts in values that a user gave; what the chart's own defaults and templates say is known anyway.
    pub fn of_values(values: &serde_json::Map<String, Value>, chart: &Arc<Chart>) -> Self {
        Self {
            texts: Vec::new(),
            given: vec![Given {
                texts: Self::of_fields(values).texts,
                shown: Vec::new(),
                chart: Arc::clone(chart),
            }],
            ..Self::default()
        }
    }

    /// The texts in a release that a user gave, and those in its Secrets: a correction or a removal may quote them.
    pub fn of_release(release: &Release) -> Self {
        let mut secrets = Self::of_given(release);
        secrets.add_secrets(release);
        secrets
    }

    /// The texts in a release that a user gave.
    pub fn of_given(release: &Release) -> Self {
        match &release.chart {
            Some(chart) => Self::of_values(&release.config, chart),
            None => Self::of_values(&release.config, &Arc::default()),
        }
    }

    /// Adds the texts in the Secrets of a release and its hooks, and notes whether its templates looked up other Secrets when it was deployed.
    pub fn add_secrets(&mut self, release: &Release) {
        let chart = release.chart.as_ref();
        let annotations = chart.and_then(|chart| chart.metadata.annotations.as_ref());
        let looked_up = annotations.is_some_and(|all| all.contains_key(ANNOTATION_LOOKED_UP));
        self.are_some_unknown |= looked_up;
        self.add_manifest(&release.manifest);
        for hook in &release.hooks {
            self.add_manifest(&hook.manifest);
        }
    }

    /// What a user gave where everybody reads it is no secret.
    #[must_use]
    pub fn without(mut self, shown: &serde_json::Map<String, Value>) -> Self {
        for given in &mut self.given {
            given.shown.append(&mut Self::of_fields(shown).texts);
        }
        self
    }

    /// Adds the secrets of another release: errors may quote it where a release takes its place, or gives it back.
    pub fn add_release(&mut self, release: &Release) {
        let Self {
            texts,
            given,
            unread,
            are_some_unknown,
            names_in_secrets,
        } = Self::of_release(release);
        self.texts.extend(texts);
        self.given.extend(given);
        self.unread.extend(unread);
        self.are_some_unknown |= are_some_unknown;
        self.names_in_secrets.extend(names_in_secrets);
    }

    /// Whether there are no secret texts.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
            && self.given.is_empty()
            && self.unread.is_empty()
            && !self.are_some_unknown
    }

    /// Whether one of these objects has data that none of the Secrets known here has.
    pub fn lacks<'o>(&self, objects: impl Iterator<Item = &'o Value>) -> bool {
        let mut known = HashSet::new();
        for secret in &self.texts {
            if let Secret::Text(text) = secret {
                known.extend([golib::base64::encode(text), text.clone()]);
            }
        }
        let mut data = objects.flat_map(|object| {
            let fields = ["data", "stringData"].map(|field| object.get(field));
            let fields = fields.into_iter().flatten().filter_map(Value::as_object);
            fields.flat_map(|fields| fields.values())
        });
        data.any(|value| value.as_str().is_some_and(|text| !known.contains(text)))
    }

    /// An error and its causes, without any secret, to be published.
    pub fn redact_error(&self, failed: &(dyn std::error::Error + 'static)) -> PublicText {
        PublicText::of_redacted(self.redacted_chain(failed))
    }

    /// A text without any secret, to be published.
    pub fn redact_text(&self, text: &str) -> PublicText {
        PublicText::of_redacted(self.redact(text))
    }

    /// An error and its causes, without any of it.
    pub fn redacted(&self, failed: &(dyn std::error::Error + 'static)) -> Redacted {
        Redacted(self.redacted_chain(failed))
    }

    /// Each cause is a text of its own: what one of them quotes puts no word of the others in doubt.
    fn redacted_chain(&self, failed: &(dyn std::error::Error + 'static)) -> String {
        match self.is_empty() {
            true => self.redact(&error::chain(failed)),
            false => self.redact_all(&error::causes(failed)).join(error::BETWEEN),
        }
    }

    /// Facts of the cluster that may come from a Secret of its site: all ClusterValues, and other texts that do.
    pub fn of_facts(values: &serde_json::Map<String, Value>, texts: &[String]) -> Self {
        let mut secrets = Self::default();
        values.values().for_each(|value| secrets.add_value(value));
        texts.iter().for_each(|text| secrets.add_text(text));
        secrets
    }

    /// Text that could not be read as values: its lines, and their words.
    pub fn add_content(&mut self, content: &[u8]) {
        let text = String::from_utf8_lossy(content);
        self.add_text(&text);
        for word in text.split_whitespace() {
            self.add_text(word);
        }
    }

    /// Adds the texts in the Secrets of a manifest, and the words of a document that cannot be read: nobody knows what it is.
    pub fn add_manifest(&mut self, manifest: &str) {
        for document in split(manifest) {
            match golib::yaml::decode(document.as_bytes()) {
                Ok(object) => self.add_object(&object),
                Err(_) => self.unread.push(document.to_owned()),
            }
        }
    }

    /// The data of an object, if it is a Secret or a list of them.
    pub fn add_object(&mut self, object: &Value) {
        if let Some(items) = object.get("items").and_then(Value::as_array) {
            items.iter().for_each(|item| self.add_object(item));
        }
        if object.get("kind").and_then(Value::as_str) != Some("Secret") {
            return;
        }
        // The object's former content, in kubectl's annotation.
        let applied = object
            .get("metadata")
            .and_then(|all| all.get("annotations"));
        let applied = applied.and_then(|all| all.get(LAST_APPLIED)?.as_str());
        if let Some(applied) = applied.and_then(|text| serde_json::from_str(text).ok()) {
            self.add_object(&applied);
        }
        for field in ["data", "stringData"] {
            if let Some(fields) = object.get(field) {
                self.add_data(fields);
            }
        }
    }

    /// The data of a Secret, encoded or not, and what becomes of it, whatever says so: its values, and those of its keys that may be secret.
    pub fn add_data(&mut self, fields: &Value) {
        let Some(fields) = fields.as_object() else {
            return self.add_value(fields);
        };
        for (key, value) in fields {
            self.add_data_key(key);
            match value {
                Value::String(text) => self.add_data_text(text),
                other => self.add_value(other),
            }
        }
    }

    /// A key of it, as of values: what is a name stands in any message.
    pub fn add_data_key(&mut self, key: &str) {
        if keys::may_be_secret(key) {
            self.add_text(key);
            let in_pointer = keys::in_pointer(key);
            in_pointer.iter().for_each(|key| self.add_text(key));
        }
    }

    /// A text of it, encoded or not, also where all that a line of it says is a name that every cluster has.
    pub fn add_data_text(&mut self, text: &str) {
        let bytes = golib::base64::decode(text).ok();
        let decoded = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        for text in [Some(text), decoded.as_deref()].into_iter().flatten() {
            self.names_in_secrets.extend(names::all_in(text));
            self.add_text(text);
            self.add_settings(text);
        }
    }

    /// What the fields and the lines of a file are set to: it may stand elsewhere by itself. A plain word may stand in any message.
    fn add_settings(&mut self, file: &str) {
        if let Ok(file @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(file) {
            return self.add_value(&file);
        }
        let settings = file.lines().filter_map(|line| line.split_once(['=', ':']));
        for (_, setting) in settings {
            let setting = setting.trim_matches(|c: char| c.is_whitespace() || "\"',;".contains(c));
            if !setting.chars().all(char::is_alphabetic) {
                self.add_text(setting);
            }
        }
    }

    /// Adds all texts in a value.
    pub fn add_value(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.add_text(text),
            Value::Number(number) => self.texts.push(Secret::Number(number.clone())),
            Value::Array(items) => items.iter().for_each(|item| self.add_value(item)),
            Value::Object(fields) => fields.values().for_each(|field| self.add_value(field)),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// The texts in values, and those of their keys that may be secret: they may come from a Secret as the rest does.
    fn of_fields(values: &serde_json::Map<String, Value>) -> Self {
        let mut all = Self::default();
        values.values().for_each(|value| all.add_value(value));
        all.add_keys_of(values);
        all
    }

    fn add_keys_of(&mut self, fields: &serde_json::Map<String, Value>) {
        for (key, field) in fields {
            self.add_data_key(key);
            self.add_keys(field);
        }
    }

    /// The keys in a value that may be secret.
    fn add_keys(&mut self, value: &Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.add_keys(item)),
            Value::Object(fields) => self.add_keys_of(fields),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// A text and its lines.
    fn add_text(&mut self, text: &str) {
        self.texts.push(Secret::Text(text.to_owned()));
    }

    /// As much of a text as may be published, without any secret, nor the beginning of one where the text is cut.
    pub fn redact(&self, whole: &str) -> String {
        match self.is_empty() {
            true => whole[..whole.floor_char_boundary(MAX_TEXT_BYTES)].to_owned(),
            false => Redaction::of(whole).without(self).finish(),
        }
    }

    /// As much of several texts as may be published together.
    fn redact_all(&self, texts: &[String]) -> Vec<String> {
        Redaction::of_all(texts).without(self).finish_all()
    }

    /// How much stands at the end of a text of anything that is secret, and may go on where the text was cut.
    fn begun_at_end(&self, views: &Views) -> usize {
        let mut most = 0;
        let given = self.given.iter().flat_map(|given| &given.texts);
        for secret in self.texts.iter().chain(given) {
            secret.each_form(|form| most = most.max(views.begun_at_end(form)));
        }
        most
    }

    /// Redacts each text in a value, keys and numbers included. The value is no larger than may be published.
    fn redact_value(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        let mut texts = String::new();
        collect(value, &mut texts);
        let views = Views::of(&texts);
        let mut masks = Masks::at(views.places(&self.found_in(&views)));
        if !masks.is_empty() {
            masks.redact_value(value);
        }
    }

    /// The secrets that stand in a text.
    fn found_in(&self, views: &Views) -> Found {
        let standing = |secrets: &[Secret]| {
            let mut found = Found::default();
            for secret in secrets {
                secret.each_form(|form| views.find(form, &mut found));
                if let Secret::Text(text) = secret {
                    views.find_fragments_of(text, &mut found);
                }
            }
            found
        };
        let mut all = standing(&self.texts);
        for given in &self.given {
            let mut found = standing(&given.texts);
            if !found.is_empty() {
                take_away(&given.shown, views, &mut found);
                unknown_to(&given.chart, views, &mut found);
            }
            all.extend(found);
        }
        let documents = self.unread.iter();
        let unread = documents.flat_map(|one| words(one).chain(one.split_whitespace()));
        let unread = unread.filter(|word| word.len() >= SHORTEST);
        unread.for_each(|word| views.find(word, &mut all));
        let names = names::OF_EVERY_CLUSTER.iter();
        let shown = names.filter(|name| !self.names_in_secrets.contains(*name));
        shown.for_each(|name| views.forget(name, &mut all));
        all
    }
}

/// The words of a text that may be secrets, without the signs around them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| c.is_whitespace() || "\"'`,;:()[]{}=".contains(c));
    words.filter(|word| word.chars().count() >= SHORTEST)
}

/// Takes away all forms of what is no secret.
fn take_away(known: &[Secret], views: &Views, found: &mut Found) {
    for known in known {
        known.each_form(|form| views.forget(form, found));
    }
}

/// Leaves those that neither the chart's own values nor its templates say.
fn unknown_to(chart: &Chart, views: &Views, found: &mut Found) {
    if found.is_empty() {
        return;
    }
    let mut known = SensitiveData::default();
    known.add_value(&chart.values);
    known.add_keys(&chart.values);
    take_away(&known.texts, views, found);
    let templates = chart.templates.iter().map(|template| &*template.data);
    views.forget_those_in(&templates.collect::<Vec<_>>(), found);
    for chart in &chart.dependencies {
        unknown_to(chart, views, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chart::File;
    use objects::drift::MASK;
    use rstest::rstest;
    use serde_json::json;

    fn secrets() -> SensitiveData {
        let values = json!({
            "password": "hunter2-canary",
            "pin": 424_242_424_242_u64,
            "half": -42_424_242.5,
            "huge": 4.242_424_2e22,
            "anchor": "*canary-anchor",
            "lines": "first canary line\nsecond canary line\n",
            "quoted": "canary \"with\" quotes",
            "image": "registry.example/web:1",
            "short": "web",
            "html": "canary<word>&",
            "settings": "listenPort: 80\n",
        });
        let template = "port: {{ .Values.settings.listenPort }}";
        let chart = Chart {
            values: json!({ "image": "registry.example/web:1" }).into(),
            templates: vec![File::new("templates/t.yaml", template)].into(),
            ..Chart::default()
        };
        let values = crate::values::inline(values.as_object());
        SensitiveData::of_values(&values, &chart.into())
    }

    /// Numbers as templates print them: by `int64`, `toJson`, `toYaml` and the API server, by `%v` and `quote`, by `printf "%.0f"`.
    #[rstest]
    #[case::in_the_words_of_fail("bad password hunter2-canary!")]
    #[case::encoded("data.x: aHVudGVyMi1jYW5hcnk=")]
    #[case::a_number("got Value:424242424242}")]
    #[case::url_encoded("postgres://u:canary%3Cword%3E%26@db")]
    #[case::url_encoded_in_a_login("postgres://u:canary%3Cword%3E&@db")]
    #[case::an_anchor("unknown anchor 'canary-anchor' referenced")]
    #[case::a_line("cannot parse: second canary line")]
    #[case::cut_off_by_go("cannot unmarshal !!str `hunter2...` into int")]
    #[case::in_json(r#"{"a":"canary\u003cword\u003e\u0026"}"#)]
    #[case::a_large_number("got 4.24242424242e+11")]
    #[case::a_number_in_json(r#"{"pin":424242424242}"#)]
    #[case::a_number_with_decimals("got 424242424242.000")]
    #[case::a_number_in_base64("data.x: NDI0MjQyNDI0MjQy")]
    #[case::a_number_of_a_login("http://4.24242424242e%2B11@x")]
    #[case::a_fraction("got -42424242.5")]
    #[case::a_fraction_as_it_is_printed("got -4.24242425e+07")]
    #[case::a_fraction_as_an_integer("got 42424242")]
    #[case::a_fraction_with_decimals("got -42424242.50")]
    #[case::more_than_an_integer_holds("got 4.2424242e+22")]
    #[case::more_than_an_integer_holds_plainly("got 42424242000000000000000")]
    #[case::more_than_an_integer_holds_exactly("got 42424241999999999672320")]
    #[case::in_gos_quotes(r#"Invalid value: "canary \"with\" quotes""#)]
    fn a_secret_is_redacted_in_each_form_that_messages_print_it_in(#[case] text: &str) {
        let redacted = secrets().redact(text);
        assert!(redacted.contains(MASK), "{redacted}");
        assert!(
            !["canary", "hunter2", "4242", "4.24", "aHVu", "NDI0"]
                .iter()
                .any(|part| redacted.contains(part)),
            "{redacted}"
        );
    }

    #[test]
    fn redaction_leaves_messages_without_secrets_unchanged() {
        let text = "web: no such image registry.example/web:1, no field listenPort";
        assert_eq!(secrets().redact(text), text);
    }

    #[test]
    fn the_secrets_of_its_release_are_redacted_from_a_corrections_error() {
        let release = Release {
            config: [("password".to_owned(), json!("canary-value"))]
                .into_iter()
                .collect(),
            manifest: "kind: Secret\nstringData: {a: canary-secret}\n".to_owned(),
            ..Release::default()
        };
        let quoted = std::io::Error::other("Invalid value: canary-value, canary-secret, web");
        let redacted = SensitiveData::of_release(&release).redacted(&quoted);
        let expected = format!("Invalid value: {MASK}, {MASK}, web");
        assert_eq!(redacted.to_string(), expected);
    }

    #[test]
    fn a_document_that_cannot_be_read_hides_no_other() {
        let mut secrets = SensitiveData::default();
        secrets.add_manifest("a: [canary-open\n---\nkind: Secret\nstringData: {b: canary-b}\n");
        let text = "canary-b, and 'canary-open', anchor canary-open. \\\"canary-open\\\"!";
        let redacted = format!("{MASK}, and '{MASK}', anchor {MASK}. \\\"{MASK}\\\"!");
        assert_eq!(secrets.redact(text), redacted);
    }

    #[test]
    fn secrets_of_a_former_release_are_redacted_too() {
        let manifest = "kind: Secret\nstringData: {a: canary-former}\n".to_owned();
        let config = [("password".to_owned(), json!("canary-config"))];
        let former = Release {
            config: config.into_iter().collect(),
            manifest,
            ..Release::default()
        };
        let mut secrets = secrets();
        secrets.add_release(&former);
        let text = "hunter2-canary canary-former canary-config web";
        assert_eq!(secrets.redact(text), format!("{MASK} {MASK} {MASK} web"));
    }

    #[test]
    fn values_quoted_by_a_decoder_are_masked() {
        let text =
            r#"spec: invalid type: string "canary \"b\" c", expected a map at line 1 column 9"#;
        let redacted =
            format!("spec: invalid type: string {MASK}, expected a map at line 1 column 9");
        assert_eq!(&*without_quotes(text), redacted);
        assert_eq!(&*without_quotes("a \"canary"), format!("a {MASK}"));
    }

    /// A chart may fail with all that fits into memory, and have as many values.
    #[test]
    fn a_text_is_cut_before_it_is_redacted() {
        let many: Vec<_> = (0..20_000).map(|n| format!("{n:07}")).collect();
        let mut secrets = SensitiveData::default();
        secrets.add_value(&json!(many));
        assert_eq!(secrets.texts.len(), 20_000);
        let endless = "a".repeat(8 << 20);
        assert_eq!(secrets.redact_text(&endless).len(), MAX_TEXT_BYTES);
        let redacted = secrets.redact_text(&("0000042 ".repeat(3) + &endless));
        assert!(redacted.starts_with(&format!("{MASK} {MASK} {MASK} aaa")));
        // Cut in the middle of a secret, none of that is told.
        let secret = "a canary line that is long";
        let mut secrets = SensitiveData::default();
        secrets.add_value(&json!(secret));
        for begun in SHORTEST..secret.len() {
            let cut = "x".repeat(MAX_TEXT_BYTES - begun) + secret;
            let redacted = secrets.redact_text(&(cut + "y"));
            assert_eq!(redacted.trim_matches('x'), "", "{begun}");
        }
    }

    #[test]
    fn rendered_secrets_count() {
        let mut secrets = SensitiveData::default();
        secrets.add_manifest(
            "kind: ConfigMap\ndata: {a: harmless}\n---\nkind: Secret\ndata: {a: Y2FuYXJ5LWE=}\nstringData: {b: canary-b}\n",
        );
        let text = "harmless Y2FuYXJ5LWE= canary-a canary-b";
        assert_eq!(
            secrets.redact(text),
            format!("harmless {MASK} {MASK} {MASK}")
        );
    }

    /// Looked for one by one, these would take minutes; so would the beginnings that they have in common.
    #[test]
    fn as_many_secrets_as_there_may_be_are_found_at_once() {
        let same = "a".repeat(2_000);
        let many = (0..6_000).map(|n| format!("{n:06} {}", &same[..60]));
        let long = (0..60).map(|n| format!("{same}{n:02}"));
        let many: Vec<_> = many.chain(long).collect();
        let chart = Chart {
            templates: vec![File::new("templates/t.yaml", many[6_020..6_040].join("\n"))].into(),
            ..Chart::default()
        };
        let values = json!({ "many": many });
        let mut secrets = SensitiveData::of_values(values.as_object().unwrap(), &chart.into());
        secrets.add_value(&json!(many[6_030]));
        let end = |secret: usize| {
            let redacted = secrets.redact(&format!("{} {}", "b ".repeat(10_000), many[secret]));
            redacted
                .split(' ')
                .next_back()
                .unwrap_or_default()
                .to_owned()
        };
        assert_eq!(end(7), MASK);
        assert_eq!(end(6_010), MASK);
        assert!(end(6_020).ends_with("a20"));
        assert_eq!(end(6_030), MASK);
    }

    #[rstest]
    #[case::properties("db.user=web\ndb.password = 'canary-1'\n")]
    #[case::yaml("db:\n  password: \"canary-1\"\n")]
    #[case::json(r#"{"auths":{"registry":{"password":"canary-1"}}}"#)]
    fn values_inside_a_file_in_a_secret_are_redacted_on_their_own(#[case] file: &str) {
        let encoded = golib::base64::encode(file);
        for object in [
            json!({ "kind": "Secret", "stringData": { "file": file } }),
            json!({ "kind": "Secret", "data": { "file": encoded } }),
        ] {
            let mut secrets = SensitiveData::default();
            secrets.add_object(&object);
            assert_eq!(secrets.redact("no: canary-1"), format!("no: {MASK}"));
        }
    }

    #[test]
    fn plain_words_of_a_file_in_a_secret_are_no_secrets() {
        let file = "apiVersion: v1\nkind: Config\ncurrent-context: default\n";
        let mut secrets = SensitiveData::default();
        secrets.add_object(&json!({ "kind": "Secret", "stringData": { "file": file } }));
        let text = "ConfigMap default/web is not there";
        assert_eq!(secrets.redact(text), text);
    }

    #[test]
    fn secrets_that_overlap_are_both_hidden() {
        let mut secrets = SensitiveData::default();
        secrets.add_value(&json!(["canary-one-two", "two-three-canary"]));
        let redacted = secrets.redact("a canary-one-two-three-canary b");
        assert_eq!(redacted, format!("a {MASK} b"));
    }

    /// Of a release whose templates looked up what nobody knows any more.
    fn some_unknown() -> SensitiveData {
        SensitiveData {
            are_some_unknown: true,
            ..SensitiveData::default()
        }
    }

    #[rstest]
    #[case::paired(r#"got "canary": 5 s"#, "got **REDACTED**: 5 s")]
    #[case::two_of_them(r#"field "url": bad value "canary", only"#, "field **REDACTED**, only")]
    #[case::in_single_ones("no user 'canary' there", "no user **REDACTED** there")]
    #[case::an_apostrophe_is_none("can't do that", "can't do that")]
    #[case::cut_by_its_writer(r#"field "url": bad value "canary-abc"#, "**REDACTED**")]
    #[case::cut_behind_an_escaped_one(r#"bad value "abc \" canary"#, "**REDACTED**")]
    #[case::escaped_on_both_sides(r#"canary\" and \"canary"#, "**REDACTED**")]
    #[case::cut_behind_one_of_another_kind(r#"bad value "Xk'#canary"#, "**REDACTED**")]
    #[case::a_tail_before_one_of_another_kind(r#"canary ' x" is invalid"#, "**REDACTED**")]
    #[case::a_tail_with_others_behind(r#"canary, "user": "x"}" is invalid"#, "**REDACTED**")]
    #[case::one_alone(r#"bad value "canary"#, "**REDACTED**")]
    #[case::a_tail_that_begins_within_one(r#"canary" is refused"#, "**REDACTED**")]
    #[case::a_tail_that_begins_and_ends_within_one(r#"canary" and "canary"#, "**REDACTED**")]
    #[case::begins_and_ends_within_single_ones("canary' and 'canary", "**REDACTED**")]
    #[case::of_two_kinds(
        r#"StatefulSet.apps "canary" is invalid: fields other than 'a', 'b' are forbidden"#,
        "StatefulSet.apps **REDACTED**"
    )]
    #[case::of_two_kinds_cut_on_both_sides(r#"canary 'x' is" bad, "canary"#, "**REDACTED**")]
    #[case::a_tail_that_quotes_in_another_kind(r#"canary 'x" is bad: 'y' and "z""#, "**REDACTED**")]
    #[case::a_tail_that_ends_in_padding(r#"canary==" must be one of "-a, 'b'"#, "**REDACTED**")]
    #[case::a_tail_that_ends_in_padding_and_a_sign(r#"canary==" is not "+b 'x'"#, "**REDACTED**")]
    #[case::a_tail_with_another_kind_alone(r#"canary" is not "canary 'x'"#, "**REDACTED**")]
    #[case::a_zero_within("a \"b\" and \"ca\0canary\0nary\"", "a **REDACTED**")]
    fn where_secrets_are_unknown_all_quoted_text_is_redacted(
        #[case] text: &str,
        #[case] redacted: &str,
    ) {
        assert_eq!(&*some_unknown().redact_text(text), redacted);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("server-side apply failed for object apps/web")]
    struct Refused(#[source] std::io::Error);

    #[test]
    fn redacting_the_cause_leaves_the_error_above_it_readable() {
        let failed = Refused(std::io::Error::other("bad value \"canary"));
        let redacted = some_unknown().redact_error(&failed);
        assert_eq!(
            &*redacted,
            "server-side apply failed for object apps/web: **REDACTED**"
        );
    }

    #[test]
    fn quoted_text_is_redacted_though_its_closing_quote_is_cut_off() {
        let canary = "canary ".repeat(MAX_TEXT_BYTES / 7 + 1);
        let redacted =
            some_unknown().redact_text(&format!("spec.x: Invalid value: \"{canary}\": too long"));
        assert_eq!(&*redacted, "spec.x: Invalid value: **REDACTED**");
        let redacted = some_unknown().redact_text(&format!("\"a\" is not \"{canary}"));
        assert_eq!(&*redacted, MASK);
    }
}
