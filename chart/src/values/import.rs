//! `import-values`: lifting tables of a subchart's defaults into its parent's.
//!
//! Mirrors `processDependencyImportValues` of `pkg/chart/v2/util/dependencies.go`.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::coalesce::{CoalesceError, Nulls, chart_tree, merge_tables, to_value};
use super::tree::{Node, Table};
use crate::chart::Chart;
use crate::go_format;
use crate::warning::Warning;

/// Replaces the defaults of the chart, children first, by its own merged with what it imports.
/// Charts without listed dependencies stay as they are.
pub(crate) fn import_values(
    chart: &mut Chart,
    warnings: &mut Vec<Warning>,
) -> Result<(), CoalesceError> {
    for dependency in &mut chart.dependencies {
        import_values(dependency, warnings)?;
    }
    if chart.metadata.dependencies.is_absent() {
        return Ok(());
    }
    let values = chart_tree(chart, &Value::Null, Nulls::Keep, warnings)?;
    let mut imported = Table::default();
    for dependency in chart.metadata.dependencies.iter_mut() {
        let mut entries = Vec::new();
        for entry in &dependency.import_values {
            let (child, parent, named) = match entry {
                Value::Object(paths) => {
                    let path = |key| go_format::value(paths.get(key).unwrap_or(&Value::Null));
                    (path("child"), path("parent"), Some(dependency.name.clone()))
                }
                Value::String(name) => (format!("exports.{name}"), ".".to_owned(), None),
                _ => continue,
            };
            entries.push(Value::Object(Map::from_iter([
                ("child".to_owned(), Value::String(child.clone())),
                ("parent".to_owned(), Value::String(parent.clone())),
            ])));
            match values.table_at(&format!("{}.{child}", dependency.name)) {
                Ok(found) => {
                    let placed = place(&parent, found);
                    merge_tables(&imported, &placed, warnings);
                }
                Err(key) => {
                    let key = key.to_owned();
                    warnings.push(Warning::MissingImport { chart: named, key });
                }
            }
        }
        dependency.import_values = entries;
    }
    // What was imported may share tables with the chart's values, and merging changed them: the copy
    // comes after that, as in Helm.
    let merged = Table::copy_of(&to_value(&values)?);
    merge_tables(&merged, &std::mem::take(&mut imported), warnings);
    chart.values = Arc::new(to_value(&merged)?);
    Ok(())
}

/// The table nested below `path`; `.` is the root.
fn place(path: &str, table: Table) -> Table {
    if path == "." {
        return table;
    }
    path.rsplit('.').fold(table, |inner, key| {
        Table::from_iter([(key.to_owned(), Node::Table(inner))])
    })
}
