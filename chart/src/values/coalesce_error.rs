//! Why values cannot be merged.

use serde_json::Value;

use crate::depth::TooDeep;

/// Values that cannot be merged. The text is Helm's.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CoalesceError {
    /// Something that is no table stands where a subchart's values belong.
    #[error("type mismatch on {chart}: {}", golib::json::go_text_as(.value, 't'))]
    SubchartNotTable {
        /// The subchart's name or alias.
        chart: String,
        /// What stands there.
        value: Value,
    },
    /// Aliases and global values multiply what there is.
    #[error("values are too large: merged they take more than 48 MiB")]
    TooLarge,
    /// Merged they nest too deep: `import-values`, or a subchart that is called `global`, may even put a table into itself.
    #[error(transparent)]
    TooDeep(#[from] TooDeep),
    /// Imports and aliases merge the same tables again and again.
    #[error("values are too large: merging them looks at more than ten million keys")]
    TooMuchWork,
}
