//! `import-values`: lifting tables of a subchart's defaults into its parent's.
//!
//! Mirrors `processDependencyImportValues` of `pkg/chart/v2/util/dependencies.go`.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::coalesce::{Nulls, chart_tree, merge_tables, to_value};
use super::tree::{CoalesceError, Effort, Node, Table};
use crate::chart::Chart;
use crate::depth::{MAX_DEPTH, TooDeep};
use crate::warning::{Warning, Warnings};

/// What an import costs besides what it merges, in keys that are looked at.
const KEYS_AN_IMPORT: usize = 500;

/// Replaces the defaults of the chart, children first, by its own merged with what it imports.
/// Charts without listed dependencies stay as they are.
pub(crate) fn import_values(
    chart: &mut Chart,
    effort: &mut Effort,
    warnings: &mut Warnings,
) -> Result<(), CoalesceError> {
    for dependency in &mut chart.dependencies {
        import_values(dependency, effort, warnings)?;
    }
    if chart.metadata.dependencies.is_absent() {
        return Ok(());
    }
    let values = chart_tree(chart, &Value::Null, Nulls::Keep, effort, warnings)?;
    let imported = Table::default();
    let merged = import(chart, &values, &imported, effort, warnings);
    // A table that contains itself would never be dropped.
    values.take_apart();
    imported.take_apart();
    chart.values = Arc::new(merged?);
    Ok(())
}

/// The values of the chart, `values` with those of its subcharts, and what it imports from them.
fn import(
    chart: &mut Chart,
    values: &Table,
    imported: &Table,
    effort: &mut Effort,
    warnings: &mut Warnings,
) -> Result<Value, CoalesceError> {
    for dependency in chart.metadata.dependencies.iter_mut() {
        let mut entries = Vec::new();
        for entry in &dependency.import_values {
            let (child, parent, named) = match entry {
                Value::Object(paths) => {
                    let path = |key| golib::json::go_text(paths.get(key).unwrap_or(&Value::Null));
                    (path("child"), path("parent"), Some(dependency.name.clone()))
                }
                Value::String(name) => (format!("exports.{name}"), ".".to_owned(), None),
                _ => continue,
            };
            // As much as its map takes beside the text that it is made of.
            effort.spend(KEYS_AN_IMPORT, 0)?;
            entries.push(Value::Object(Map::from_iter([
                ("child".to_owned(), Value::String(child.clone())),
                ("parent".to_owned(), Value::String(parent.clone())),
            ])));
            match values.table_at(&format!("{}.{child}", dependency.name)) {
                Ok(found) => {
                    // Helm makes a new table of one without entries; all others are the subchart's own.
                    let found = match found.is_empty() {
                        true => Table::default(),
                        false => found,
                    };
                    let placed = place(&parent, found, effort)?;
                    merge_tables(imported, &placed, effort, warnings)?;
                }
                Err(key) => {
                    let key = key.to_owned();
                    warnings.push(Warning::MissingImport { chart: named, key });
                }
            }
        }
        dependency.import_values = entries;
    }
    // Imported values may share tables with the chart's values, and merging changed them: the copy comes after that, as in Helm.
    let merged = Table::copy_of(&to_value(values, effort)?);
    imported.depth(effort)?;
    merge_tables(&merged, imported, effort, warnings)?;
    to_value(&merged, effort)
}

/// The table nested below `path`; `.` is the root. What a chart imports its own parent may import, so the depth of both counts.
fn place(path: &str, table: Table, effort: &mut Effort) -> Result<Table, CoalesceError> {
    if path == "." {
        return Ok(table);
    }
    let keys = path.split('.').count();
    // Before anything is made: a table is dropped by recursion.
    if keys > MAX_DEPTH || keys + table.depth(effort)? > MAX_DEPTH {
        return Err(TooDeep.into());
    }
    Ok(path.rsplit('.').fold(table, |inner, key| {
        Table::from_iter([(key.to_owned(), Node::Table(inner))])
    }))
}

#[cfg(test)]
mod tests {
    use golib::budget::Allowance;

    use super::*;
    use crate::loader::load_files;

    #[test]
    fn imported_values_respect_the_depth_limit() {
        let keys = |count: usize| vec!["a"; count].join(".");
        let imported = |imports: &[(&str, &str)], data: &str| {
            let imports: Vec<String> = imports
                .iter()
                .map(|(child, parent)| format!("{{child: {child}, parent: {parent}}}"))
                .collect();
            let dependency = format!(
                "dependencies: [{{name: sub, version: 1.0.0, import-values: [{}]}}]",
                imports.join(", ")
            );
            let metadata = |name: &str, rest: &str| {
                format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n{rest}")
            };
            let files = [
                ("Chart.yaml", metadata("web", &dependency)),
                ("charts/sub/Chart.yaml", metadata("sub", "")),
                ("charts/sub/values.yaml", format!("data: {data}")),
            ];
            let files = files.map(|(name, text)| crate::File::new(name, text));
            let mut chart = load_files(files.into(), &mut Warnings::default()).unwrap();
            import_values(
                &mut chart,
                &mut Effort::within(&Allowance::default()),
                &mut Warnings::default(),
            )
            .map(|()| chart.values)
        };
        let deep = format!("{}{}", "{a: ".repeat(400), "}".repeat(400));
        let shallow = "{d: {x: 1}}";
        let values = imported(&[("data.d", &keys(2))], shallow).unwrap();
        assert_eq!(values["a"]["a"]["x"], 1.0);
        assert!(imported(&[("data", &keys(90))], &deep).is_ok());
        let refused = [
            imported(&[("data", &keys(300_000))], shallow),
            imported(&[("data", &keys(400))], &deep),
            // Deep only where one is imported into what the other one brought.
            imported(&[("data.d", "x"), ("data", "x.y")], shallow),
            imported(&[("data", "x"), ("data", "x.y")], shallow),
            // A table that comes to contain itself while it is merged.
            imported(
                &[
                    ("data", "x"),
                    ("data.y.z", "x.y.zz.m"),
                    ("data.y", "x.z.k"),
                    ("data.y", "x.zz.m.k"),
                    ("data", "x.y"),
                ],
                "{y: {z: {}, zz: {}}, z: {}, zz: {m: {}}}",
            ),
        ];
        for (at, outcome) in refused.into_iter().enumerate() {
            assert_eq!(outcome.map(drop), Err(TooDeep.into()), "{at}");
        }
    }

    /// `processImportValues` (helm 4.2.2, `pkg/chart/v2/util/dependencies.go:294`) imports `AsMap`, which is a new map where there is nothing in the table.
    #[test]
    fn what_is_imported_into_an_empty_table_does_not_reach_the_subchart() {
        let dependency = "dependencies: [{name: sub, version: 1.0.0, import-values: [{child: a, parent: x}, {child: b, parent: x}]}]";
        let files = [
            (
                "Chart.yaml",
                format!("apiVersion: v2\nname: web\nversion: 1.0.0\n{dependency}"),
            ),
            (
                "charts/sub/Chart.yaml",
                "apiVersion: v2\nname: sub\nversion: 1.0.0".to_owned(),
            ),
            ("charts/sub/values.yaml", "a: {}\nb: {k: text}".to_owned()),
        ];
        let files = files.map(|(name, text)| crate::File::new(name, text));
        let mut chart = load_files(files.into(), &mut Warnings::default()).unwrap();
        import_values(
            &mut chart,
            &mut Effort::within(&Allowance::default()),
            &mut Warnings::default(),
        )
        .unwrap();
        assert_eq!(chart.values["x"], serde_json::json!({"k": "text"}));
        assert_eq!(chart.values["sub"]["a"], serde_json::json!({}));
    }

    #[test]
    fn imports_that_merge_the_same_again_and_again_end() {
        let imports = vec!["a"; 10_000].join(",");
        let keys: String = (0..1_000).map(|at| format!("k{at}: 1, ")).collect();
        let files = [
            (
                "Chart.yaml",
                format!(
                    "apiVersion: v2\nname: web\nversion: 1.0.0\ndependencies: [{{name: sub, version: 1.0.0, import-values: [{imports}]}}]"
                ),
            ),
            (
                "charts/sub/Chart.yaml",
                "apiVersion: v2\nname: sub\nversion: 1.0.0".to_owned(),
            ),
            (
                "charts/sub/values.yaml",
                format!("exports: {{a: {{{keys}}}}}"),
            ),
        ];
        let files = files.map(|(name, text)| crate::File::new(name, text));
        let mut chart = load_files(files.into(), &mut Warnings::default()).unwrap();
        let outcome = import_values(
            &mut chart,
            &mut Effort::within(&Allowance::default()),
            &mut Warnings::default(),
        );
        assert_eq!(outcome, Err(CoalesceError::TooMuchWork));
    }

    #[test]
    fn a_subchart_that_is_called_global_ends() {
        let named = |name: &str| format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
        let files = [
            (
                "Chart.yaml",
                named("web") + "dependencies: [{name: global, version: 1.0.0}]",
            ),
            ("values.yaml", "global: {z: {w: 1}}".to_owned()),
            ("charts/global/Chart.yaml", named("global")),
            ("charts/global/charts/two/Chart.yaml", named("two")),
        ];
        let files = files.map(|(name, text)| crate::File::new(name, text));
        let mut chart = load_files(files.into(), &mut Warnings::default()).unwrap();
        let mut warnings = Warnings::default();
        let outcome = crate::dependency::process(&mut chart, &Value::Null, &mut warnings);
        let outcome = outcome
            .and_then(|()| crate::values::coalesce_values(&chart, &Value::Null, &mut warnings));
        assert_eq!(outcome, Err(TooDeep.into()));
    }

    /// A value that loses is quoted in a warning, each time that it loses.
    #[test]
    fn a_large_value_that_loses_a_thousand_times_is_quoted_once() {
        let named = |name: &str| format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
        let again = "{child: d, parent: x}, ".repeat(1_000);
        let large = "a".repeat(1 << 20);
        let files = [
            (
                "Chart.yaml",
                named("web")
                    + "dependencies:\n- {name: sub, version: 1.0.0, import-values: [{child: one, parent: .}, "
                    + &again
                    + "]}\n",
            ),
            ("charts/sub/Chart.yaml", named("sub")),
            (
                "charts/sub/values.yaml",
                format!("one: {{x: 1}}\nd: {{l: {large}}}\n"),
            ),
        ];
        let files = files.map(|(name, text)| crate::File::new(name, text));
        let mut chart = load_files(files.into(), &mut Warnings::default()).unwrap();
        let mut warnings = Warnings::default();
        import_values(
            &mut chart,
            &mut Effort::within(&Allowance::default()),
            &mut warnings,
        )
        .unwrap();
        let kept: usize = warnings.iter().map(|one| one.in_helms_words().len()).sum();
        assert!((1 << 20..3 << 20).contains(&kept), "{kept}");
        assert!(warnings.left_out() > 900, "{}", warnings.left_out());
    }
}
