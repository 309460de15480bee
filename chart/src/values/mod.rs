//! Values: reading, merging, checking.
//!
//! A set of values is a [`serde_json::Value`] that is an object (or null for "none"). Numbers from
//! YAML and JSON are floats, integers from `--set` are integers, as templates can tell them apart.
//!
//! Mirrors `pkg/chart/common`, `pkg/chart/common/util`, `pkg/strvals` and `pkg/cli/values`.

mod coalesce;
mod import;
mod json_stream;
mod load;
mod path;
mod tree;

pub mod options;
pub mod schema;
pub mod strvals;

pub(crate) use coalesce::coalesce_within;
pub use coalesce::{GLOBAL_KEY, coalesce_values, merge_values};
pub(crate) use import::import_values;
pub use load::MAX_VALUES;
pub(crate) use load::load_values_within;
pub use load::{LoadValuesError, load_values, merge_maps};
pub use path::{PathError, path_value, table};
pub use tree::CoalesceError;
pub(crate) use tree::{Effort, Weight};
