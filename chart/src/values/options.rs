//! Merging everything a command line says about values, in Helm's order: `-f` files, then
//! `--set-json`, `--set`, `--set-string`, `--set-file` and `--set-literal`.
//!
//! Mirrors `pkg/cli/values/options.go`. Where files come from is the caller's matter.

use golib::budget::Budget;
use golib::json;
use serde_json::{Map, Value};

use super::load::{MAX_VALUES, load_values_within};
use super::strvals::{Mode, StrvalsError, set};
use super::{LoadValuesError, merge_maps};
use crate::depth::bounded;

/// What the user gave, each group in its order.
#[derive(Debug, Clone, Default)]
pub struct ValueOptions {
    /// `-f`, `--values`.
    pub value_files: Vec<String>,
    /// `--set-json`.
    pub json_values: Vec<String>,
    /// `--set`.
    pub values: Vec<String>,
    /// `--set-string`.
    pub string_values: Vec<String>,
    /// `--set-file`.
    pub file_values: Vec<String>,
    /// `--set-literal`.
    pub literal_values: Vec<String>,
}

/// Values on the command line that cannot be read. The text is Helm's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// A values file cannot be read; the text is the reader's.
    #[error("{0}")]
    File(String),
    /// A values file is no YAML table.
    #[error("failed to parse {file}: {source}")]
    Parse {
        /// The file as given.
        file: String,
        /// The error in the file.
        source: LoadValuesError,
    },
    /// `--set-json` with a JSON object that cannot be parsed.
    #[error("failed parsing --set-json data JSON: {0}")]
    JsonObject(String),
    /// `--set-json` with a malformed expression.
    #[error("failed parsing --set-json data {0}")]
    Json(String),
    /// One of the other flags.
    #[error("failed parsing --{flag} data: {source}")]
    Set {
        /// The flag's name.
        flag: &'static str,
        /// The error in the flag's argument.
        source: StrvalsError,
    },
}

fn merge(base: &mut Value, over: Value) {
    if let Value::Object(over) = over {
        merge_maps(table(base), over);
    }
}

impl ValueOptions {
    /// Merges everything into one table. `read` returns a file's content, or the error to show.
    ///
    /// ```
    /// use chart::values::options::ValueOptions;
    /// use serde_json::json;
    ///
    /// let options = ValueOptions {
    ///     value_files: vec!["prod.yaml".to_owned()],
    ///     values: vec!["image.tag=1.29,ports={80,443}".to_owned()],
    ///     ..ValueOptions::default()
    /// };
    /// let mut read = |file: &str| match file {
    ///     "prod.yaml" => Ok(b"replicas: 3\n".to_vec()),
    ///     other => Err(format!("open {other}: no such file or directory")),
    /// };
    /// let values = options.merge(&mut read)?;
    /// assert_eq!(values, json!({"replicas": 3.0, "image": {"tag": "1.29"}, "ports": [80, 443]}));
    /// # Ok::<(), chart::values::options::OptionsError>(())
    /// ```
    ///
    /// # Errors
    /// A file cannot be read or an argument is malformed.
    pub fn merge(
        &self,
        read: &mut dyn FnMut(&str) -> Result<Vec<u8>, String>,
    ) -> Result<Value, OptionsError> {
        let mut base = Value::Object(Map::new());
        let mut budget = Budget::new(MAX_VALUES);
        for file in &self.value_files {
            let data = read(file).map_err(OptionsError::File)?;
            let values =
                load_values_within(&data, &mut budget).map_err(|source| OptionsError::Parse {
                    file: file.clone(),
                    source,
                })?;
            merge(&mut base, values);
        }
        for text in &self.json_values {
            let trimmed = text.trim();
            if trimmed.starts_with('{') {
                let object = json::decode(trimmed.as_bytes())
                    .ok()
                    .and_then(|object| bounded(object).ok())
                    .ok_or_else(|| OptionsError::JsonObject(text.clone()))?;
                merge(&mut base, json::floats(object));
            } else {
                set(text, &mut Mode::Json, table(&mut base))
                    .map_err(|_| OptionsError::Json(text.clone()))?;
            }
        }
        let mut read_text =
            |name: &str| read(name).map(|data| String::from_utf8_lossy(&data).into_owned());
        let groups = [
            ("set", &self.values, Mode::Typed),
            ("set-string", &self.string_values, Mode::Text),
            ("set-file", &self.file_values, Mode::File(&mut read_text)),
            ("set-literal", &self.literal_values, Mode::Literal),
        ];
        for (flag, texts, mut mode) in groups {
            for text in texts {
                set(text, &mut mode, table(&mut base))
                    .map_err(|source| OptionsError::Set { flag, source })?;
            }
        }
        Ok(base)
    }
}

fn table(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it was just made an object")
}
