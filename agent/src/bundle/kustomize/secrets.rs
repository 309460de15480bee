//! Texts in a bundle's files that may be secret: Secrets and patches of them, and the sources of generated secrets. Errors of kustomize, which quote
//! patches, literals and whole objects, are shown without them.

use std::collections::BTreeMap;

use golib::regexp::{Regexp, Steps};
use golib::yaml::decode_all;
use serde_json::Value;

use crate::public::redact::SensitiveData;

/// Bytes of text that are kept back word by word. Beyond it no message is shown at all.
const MAX_CONTENT: usize = 1 << 20;
/// kustomize writes longer base64 in lines of so many characters.
const BASE64_LINE: usize = 70;
/// Limit on the steps of matching an expression against a kind.
const MAX_KIND_STEPS: u64 = 1_000_000;

/// All texts that may be secret in a kustomization. Cannot be printed.
pub(super) struct Secrets<'a> {
    files: BTreeMap<String, &'a [u8]>,
    data: SensitiveData,
    left_bytes: Option<usize>,
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value
        .get(field)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// The bytes of the texts in a value, and eight for whatever is none.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(fields) => fields.iter().map(|(key, one)| key.len() + size(one)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
    }
}

/// Whether a patch's target may be a Secret: its kind is an expression, and may not be given.
fn may_be_secret(target: Option<&Value>) -> bool {
    let kind = target.map_or("", |target| text(target, "kind"));
    let fits = |kind: Regexp| kind.is_match(b"Secret", &mut Steps::new(MAX_KIND_STEPS));
    kind.is_empty()
        || Regexp::compile(format!("^(?:{kind})$")).map_or(true, |kind| fits(kind) != Ok(false))
}

impl<'a> Secrets<'a> {
    /// Of a bundle's files: paths and contents.
    pub(super) fn of_files(files: impl Iterator<Item = (&'a str, &'a [u8])>) -> Self {
        let files = files.map(|(name, content)| (normal(name), content));
        let mut found = Self {
            files: files.collect(),
            data: SensitiveData::default(),
            left_bytes: Some(MAX_CONTENT),
        };
        for (name, content) in found.files.clone() {
            let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
            match decode_all(content) {
                Ok(documents) => documents
                    .iter()
                    .for_each(|document| found.document(document, directory)),
                Err(_) => found.unreadable(content),
            }
        }
        found
    }

    /// Adds text that holds secrets, word by word.
    pub(super) fn add(&mut self, content: &[u8]) {
        if self.has_room(content.len()) {
            self.data.add_content(content);
        }
    }

    /// Whether so many bytes more may be kept as secret texts; counts them.
    fn has_room(&mut self, bytes: usize) -> bool {
        self.left_bytes = self.left_bytes.and_then(|left| left.checked_sub(bytes));
        self.left_bytes.is_some()
    }

    /// Adds a key of a Secret's data.
    fn add_key(&mut self, key: &str) {
        if self.has_room(key.len()) {
            self.data.add_data_key(key);
        }
    }

    /// Adds what a Secret's data is set to.
    fn add_data(&mut self, value: &Value) {
        if !self.has_room(size(value)) {
            return;
        }
        match value {
            Value::String(text) => self.data.add_data_text(text),
            value => self.data.add_data(value),
        }
    }

    /// A message without any of it.
    pub(super) fn redact(&self, message: &str) -> String {
        if self.left_bytes.is_none() {
            return "the kustomization is not built, and too much of it may be secret for the reason to be shown".into();
        }
        self.data.redact(message)
    }

    fn document(&mut self, document: &Value, directory: &str) {
        self.fields(document, directory, |kind| kind == "SecretGenerator");
        for field in ["generators", "transformers", "validators"] {
            for entry in list(document, field).filter_map(Value::as_str) {
                self.external(entry, directory);
            }
        }
    }

    /// Adds the secrets of an entry that is documents in place of a path. One that is no document in the end is quoted as the path.
    fn external(&mut self, entry: &str, directory: &str) {
        match decode_all(entry.as_bytes()).as_deref() {
            Ok([Value::String(_)]) if !entry.trim_end().contains('\n') => {}
            Ok(documents) if documents.iter().all(Value::is_object) => {
                for document in documents {
                    self.fields(document, directory, |kind| kind != "ConfigMapGenerator");
                }
            }
            _ => self.unreadable(entry.as_bytes()),
        }
    }

    fn fields(&mut self, document: &Value, directory: &str, generates: fn(&str) -> bool) {
        self.data.add_object(document);
        // Generators and transformers may stand in files of their own, with the fields of the kustomization file's.
        if generates(text(document, "kind")) {
            self.sources(document, directory);
        }
        self.patch(document, directory);
        for generator in list(document, "secretGenerator") {
            self.sources(generator, directory);
        }
        for patch in list(document, "patchesStrategicMerge") {
            self.patch_text(patch.as_str().unwrap_or_default(), None);
        }
        for field in ["patches", "patchesJson6902"] {
            for patch in list(document, field) {
                self.patch(patch, directory);
            }
        }
    }

    /// What a Secret is generated from.
    fn sources(&mut self, generator: &Value, directory: &str) {
        for literal in list(generator, "literals").filter_map(Value::as_str) {
            let (key, value) = literal.split_once('=').unwrap_or(("", literal));
            self.add_key(key);
            self.generated(value.trim_matches(['"', '\'']).as_bytes());
            self.add(value.as_bytes());
        }
        let env = generator.get("env").into_iter();
        for path in list(generator, "envs").chain(env).filter_map(Value::as_str) {
            let content = self.source(directory, path);
            for line in String::from_utf8_lossy(content).lines() {
                let (key, value) = line.split_once('=').unwrap_or(("", line));
                self.add_key(key.trim());
                self.generated(value.as_bytes());
                self.add(value.as_bytes());
            }
            self.add(content);
        }
        for source in list(generator, "files").filter_map(Value::as_str) {
            let (key, path) = source.split_once('=').unwrap_or(("", source));
            // Without a key of its own it is called as the file.
            let name = path.rsplit('/').next().unwrap_or_default();
            let key = if key.is_empty() { name } else { key };
            self.add_key(key);
            let content = self.source(directory, path);
            self.generated(content);
            self.add(content);
        }
    }

    /// The forms that a value has in a generated Secret: it is as secret as in one that is written out.
    fn generated(&mut self, value: &[u8]) {
        if self.left_bytes.is_some_and(|left| left >= value.len()) {
            self.data.add_data_text(&String::from_utf8_lossy(value));
        }
        let encoded = golib::base64::encode(value);
        for line in encoded.as_bytes().chunks(BASE64_LINE) {
            self.add(line);
        }
    }

    fn patch(&mut self, patch: &Value, directory: &str) {
        let target = patch.get("target");
        for field in ["patch", "patches", "jsonOp"] {
            self.patch_text(text(patch, field), target);
        }
        let content = self.file(directory, text(patch, "path"));
        let content = String::from_utf8_lossy(content);
        self.patch_text(&content, target);
    }

    fn patch_text(&mut self, patch: &str, target: Option<&Value>) {
        let Ok(documents) = decode_all(patch.as_bytes()) else {
            self.unreadable(patch.as_bytes());
            return;
        };
        for document in &documents {
            match document {
                Value::Array(operations) if may_be_secret(target) => {
                    operations.iter().for_each(|one| self.operation(one));
                }
                Value::Object(_) => {
                    self.data.add_object(document);
                    // With a target it counts for that, whatever kind it says itself.
                    if target.is_some() && may_be_secret(target) {
                        let fields = ["data", "stringData"].map(|field| document.get(field));
                        let fields = fields.into_iter().flatten();
                        fields.for_each(|fields| self.add_data(fields));
                    }
                }
                _ => {}
            }
        }
    }

    /// A JSON patch's operation on a Secret.
    fn operation(&mut self, operation: &Value) {
        let mut path = text(operation, "path").split('/').skip(1);
        if let (Some("data" | "stringData"), Some(key)) = (path.next(), path.next()) {
            let key = key.replace("~1", "/").replace("~0", "~");
            self.add_key(&key);
        }
        if let Some(value) = operation.get("value") {
            self.add_data(value);
        }
    }

    /// Text that is no YAML is not looked into: all of it is kept back where a Secret is named.
    fn unreadable(&mut self, content: &[u8]) {
        let is_named = |word: &[u8]| content.windows(word.len()).any(|part| part == word);
        if is_named(b"Secret") || is_named(b"secret") {
            self.add(content);
        }
    }

    /// The file of a source. Where there is none, its name may be the value itself, which is quoted as the path.
    fn source(&mut self, directory: &str, path: &str) -> &'a [u8] {
        if let Some(content) = self.find(directory, path) {
            return content;
        }
        self.add(path.as_bytes());
        if let Some((_, value)) = path.split_once('=') {
            self.add(value.as_bytes());
        }
        b""
    }

    fn file(&self, directory: &str, path: &str) -> &'a [u8] {
        self.find(directory, path).unwrap_or_default()
    }

    fn find(&self, directory: &str, path: &str) -> Option<&'a [u8]> {
        let path = normal(&format!("{directory}/{path}"));
        self.files.get(&path).copied()
    }
}

fn normal(path: &str) -> String {
    golib::path::clean_text(path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn redacted(kustomization: &str, message: &str) -> String {
        let files = [
            ("k/kustomization.yaml", kustomization),
            ("k/key.pem", "line canary-one\nline canary-two\n"),
            ("k/db.env", "# of the base\nUSER=canary-user\n"),
            (
                "k/patch.yaml",
                "- {op: add, path: /data/a, value: canary-patched}\n",
            ),
            (
                "k/broken.yaml",
                "kind: Secret\nstringData: {a: canary-broken\n",
            ),
            (
                "k/secret.yaml",
                "kind: Secret\nmetadata: {name: own}\nstringData: {a: canary-own}\n",
            ),
        ];
        let files = files.iter().map(|(name, text)| (*name, text.as_bytes()));
        Secrets::of_files(files).redact(message)
    }

    #[rstest]
    #[case::a_literal(
        "secretGenerator: [{name: a, literals: ['p=canary-literal', 'q=\"canary-quoted\"']}]\n",
        "canary-literal canary-quoted Y2FuYXJ5LXF1b3RlZA=="
    )]
    #[case::a_file("secretGenerator: [{name: a, files: [k=./key.pem]}]\n", "line canary-two")]
    #[case::long_data(
        "secretGenerator: [{name: a, literals: ['p=canary-canary-canary-canary-canary-canary-canary-canary']}]\n",
        "Y2FuYXJ5LWNhbmFyeS1jYW5hcnktY2FuYXJ5LWNhbmFyeS1jYW5hcnktY2FuYXJ5LWNhbm\nFyeQ=="
    )]
    #[case::an_env_file(
        "secretGenerator: [{name: a, envs: [db.env]}]\n",
        "canary-user Y2FuYXJ5LXVzZXI="
    )]
    #[case::a_generator_of_its_own(
        "apiVersion: builtin\nkind: SecretGenerator\nliterals: [p=canary-plugin]\n",
        "canary-plugin"
    )]
    #[case::a_secret("resources: [secret.yaml]\n", "canary-own Y2FuYXJ5LW93bg==")]
    #[case::a_patch_by_target(
        "patches: [{target: {kind: Secret}, path: patch.yaml}]\n",
        "canary-patched"
    )]
    #[case::a_patch_of_all("patches: [{path: patch.yaml}]\n", "canary-patched")]
    #[case::a_patch_in_place(
        "patches:\n- patch: |\n    kind: Secret\n    stringData: {a: canary-inline}\n",
        "[patch: \"kind: Secret\\nstringData: {a: canary-inline}\"]"
    )]
    #[case::a_strategic_patch(
        "patchesStrategicMerge:\n- |\n  kind: Secret\n  stringData: {a: canary-merge}\n",
        "canary-merge"
    )]
    #[case::a_patch_that_is_no_yaml(
        "patches:\n- patch: |\n    kind: Secret\n    stringData: {a: canary-torn\n",
        "{a: canary-torn"
    )]
    #[case::an_inline_generator(
        "generators:\n- |\n  apiVersion: builtin\n  kind: SecretGenerator\n  metadata: {name: a}\n  literals: [p=canary-inline]\n",
        "canary-inline Y2FuYXJ5LWlubGluZQ=="
    )]
    #[case::a_torn_inline_generator(
        "generators:\n- |\n  kind: SecretGenerator\n  literals: [p=canary-torn\n",
        "open /k/kind: SecretGenerator\nliterals: [p=canary-torn\n: no such file"
    )]
    #[case::an_inline_generator_of_no_kind(
        "generators:\n- |\n  literals: [p=canary-nameless]\n",
        "[p=canary-nameless]"
    )]
    #[case::a_torn_patch_of_an_inline_transformer(
        "transformers:\n- |\n  kind: PatchTransformer\n  patch: |\n    kind: Secret\n    stringData: {a: canary-torn\n",
        "{a: canary-torn"
    )]
    #[case::an_inline_validator(
        "validators:\n- |\n  kind: Secret\n  stringData: {a: canary-validator}\n",
        "canary-validator"
    )]
    #[case::a_literal_among_files(
        "secretGenerator: [{name: a, files: [p=canary-file]}]\n",
        "open /k/canary-file: no such file"
    )]
    #[case::a_literal_among_env_files(
        "secretGenerator: [{name: a, envs: [P=canary-env]}]\n",
        "open /k/P=canary-env: no such file, canary-env"
    )]
    #[case::a_file_that_is_no_yaml("resources: [broken.yaml]\n", "{a: canary-broken")]
    fn secrets_of_a_kustomization_are_redacted_from_its_errors(
        #[case] kustomization: &str,
        #[case] message: &str,
    ) {
        let found = redacted(kustomization, message);
        assert!(
            !["canary", "Y2FuYXJ5", "YW5hcnk"]
                .iter()
                .any(|part| found.contains(part)),
            "{found}"
        );
    }

    /// As in a Secret that is rendered: a password may be a name that every cluster has, and a key somebody's.
    #[rstest]
    #[case::a_literal("secretGenerator: [{name: a, literals: [sk_live_51H8s9dKf=default]}]\n")]
    #[case::an_env_file("secretGenerator: [{name: a, envs: [odd.env]}]\n")]
    #[case::a_file("secretGenerator: [{name: a, files: [sk_live_51H8s9dKf=odd.txt]}]\n")]
    #[case::a_secret("kind: Secret\nstringData: {sk_live_51H8s9dKf: default}\n")]
    #[case::an_operation(
        "patches:\n- target: {kind: Secret}\n  patch: |\n    - {op: add, path: /stringData/sk_live_51H8s9dKf, value: default}\n"
    )]
    #[case::an_encoded_operation(
        "patches:\n- target: {kind: Secret}\n  patch: |\n    - {op: add, path: /data/sk_live_51H8s9dKf, value: ZGVmYXVsdA==}\n"
    )]
    #[case::an_operation_on_all(
        "patches:\n- target: {kind: Secret}\n  patch: |\n    - {op: add, path: /stringData, value: {sk_live_51H8s9dKf: default}}\n"
    )]
    #[case::a_patch_of_another_kind(
        "patches:\n- target: {kind: Secret}\n  patch: |\n    kind: any\n    stringData: {sk_live_51H8s9dKf: default}\n"
    )]
    fn keys_and_values_a_kustomization_puts_into_a_secret_are_redacted(
        #[case] kustomization: &str,
    ) {
        let files = [
            ("k/kustomization.yaml", kustomization),
            ("k/odd.env", "sk_live_51H8s9dKf=default\n"),
            ("k/odd.txt", "default\n"),
        ];
        let files = files.iter().map(|(name, text)| (*name, text.as_bytes()));
        let secrets = Secrets::of_files(files);
        let text = secrets.redact("no user default, sk_live_51H8s9dKf of kubernetes");
        assert_eq!(text, "no user **REDACTED**, **REDACTED** of kubernetes");
    }

    #[test]
    fn a_kustomize_error_keeps_what_is_no_secret() {
        let file = "configMapGenerator: [{name: a, literals: [p=harmless]}]\n\
                    patches: [{target: {kind: Deployment}, path: patch.yaml}]\n";
        let message = "harmless canary-patched: no matches for Id Deployment.v1.apps/web.[noNs]";
        assert_eq!(redacted(file, message), message);
        let file = "generators: [secret-generator.yaml]\nsecretGenerator: [{name: a, files: [k=./key.pem]}]\n";
        let message = "open /k/secret-generator.yaml, /k/key.pem: not allowed";
        assert_eq!(redacted(file, message), message);
    }

    /// Of what is only set to names, too, each of which is little.
    #[rstest]
    #[case::text_that_is_no_yaml(format!("Secret: {{{}", "a".repeat(MAX_CONTENT)))]
    #[case::operations(format!(
        "patches:\n- target: {{kind: Secret}}\n  patch: '[{{\"op\": \"add\", \"path\": \"/data\", \"value\": {{\"a\": \"{}\"}}}}]'\n",
        "a".repeat(MAX_CONTENT)
    ))]
    #[case::keys(format!(
        "secretGenerator: [{{name: a, literals: [{}=x]}}]\n",
        "a".repeat(MAX_CONTENT)
    ))]
    fn a_message_is_hidden_whole_where_a_kustomization_is_too_large_to_search(
        #[case] file: String,
    ) {
        let secrets = Secrets::of_files([("a.yaml", file.as_bytes())].into_iter());
        assert!(!secrets.redact("canary").contains("canary"));
    }
}
