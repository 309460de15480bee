//! `-f` and `--set…`: the values flags that the commands about charts share.
//!
//! Mirrors `addValueOptionsFlags` (`pkg/cmd/flags.go`) and `pkg/cli/values`.

use chart::values::options::{OptionsError, ValueOptions};
use serde_json::Value;

use crate::csv::{self, checked_list};
use crate::files::read_file;

/// Flags that give values; names and meanings are helm's.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ValueFlags {
    /// Values files, later ones over earlier ones; - is standard input
    #[arg(short = 'f', long = "values", value_name = "FILE,…", value_parser = checked_list)]
    pub files: Vec<String>,

    /// Values: key=value,…
    #[arg(long, value_name = "EXPRESSION")]
    pub set: Vec<String>,

    /// Values that stay text: key=value,…
    #[arg(long, value_name = "EXPRESSION")]
    pub set_string: Vec<String>,

    /// Values from files: key=path,…
    #[arg(long, value_name = "EXPRESSION")]
    pub set_file: Vec<String>,

    /// Values as JSON: key=json,… or one JSON object
    #[arg(long, value_name = "EXPRESSION")]
    pub set_json: Vec<String>,

    /// One value taken as it is: key=value
    #[arg(long, value_name = "EXPRESSION")]
    pub set_literal: Vec<String>,
}

impl ValueFlags {
    /// Everything they say, merged in helm's order.
    ///
    /// # Errors
    /// A file cannot be read or an expression is malformed; the text is helm's.
    pub fn merge(&self) -> Result<Value, OptionsError> {
        let options = ValueOptions {
            value_files: self
                .files
                .iter()
                .flat_map(|text| csv::list(text).unwrap_or_default())
                .collect(),
            json_values: self.set_json.clone(),
            values: self.set.clone(),
            string_values: self.set_string.clone(),
            file_values: self.set_file.clone(),
            literal_values: self.set_literal.clone(),
        };
        options.merge(&mut read_file)
    }
}
