//! Checking values against `values.schema.json`.

use serde_json::Value;

use crate::{Chart, Warning};

/// Values that do not fit their schemas. The text is Helm's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SchemaErrors(String);

/// Checks the coalesced values of a chart and its dependencies.
///
/// # Errors
/// Values do not fit, or a schema is broken.
pub fn validate(
    chart: &Chart,
    _values: &Value,
    _warnings: &mut Vec<Warning>,
) -> Result<(), SchemaErrors> {
    if chart.schema.is_some() {
        return Err(SchemaErrors(format!(
            "{}:\nschemas cannot be checked yet\n",
            chart.name()
        )));
    }
    Ok(())
}
