//! Merging a chart's values with its user's, and with those of its subcharts.
//!
//! Mirrors `pkg/chart/common/util/coalesce.go`. *Coalescing* drops nulls the user set to remove a
//! default; *merging* keeps them for a later coalescing.

use std::collections::BTreeSet;

use golib::budget::Allowance;
use serde_json::Value;

use super::tree::{CoalesceError, Effort, Node, Table, Weight};
use crate::chart::Chart;
use crate::warning::{Warning, Warnings};

/// The key below which values reach every subchart.
pub const GLOBAL_KEY: &str = "global";

/// How nulls are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nulls {
    /// A null removes the default it meets, and is gone.
    Drop,
    /// Nulls stay.
    Keep,
}

/// The values templates of `chart` see: `user` over the chart's defaults, recursively into its
/// dependencies.
///
/// ```
/// use chart::{File, loader::load_files, values::coalesce_values};
/// use serde_json::json;
///
/// let files = vec![
///     File::new("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
///     File::new("values.yaml", "image: {name: nginx, tag: latest}\nprobe: {path: /}\n"),
/// ];
/// let chart = load_files(files, &mut chart::Warnings::default())?;
/// let user = json!({"image": {"tag": "1.29"}, "probe": null});
/// let values = coalesce_values(&chart, &user, &mut chart::Warnings::default())?;
/// assert_eq!(values, json!({"image": {"name": "nginx", "tag": "1.29"}}));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The value at a subchart's key is no table.
pub fn coalesce_values(
    chart: &Chart,
    user: &Value,
    warnings: &mut Warnings,
) -> Result<Value, CoalesceError> {
    let effort = &mut Effort::within(&Allowance::default());
    coalesce_within(chart, user, effort, warnings)
}

/// Like [`coalesce_values`], with what is left to several such calls together.
pub(crate) fn coalesce_within(
    chart: &Chart,
    user: &Value,
    effort: &mut Effort,
    warnings: &mut Warnings,
) -> Result<Value, CoalesceError> {
    let merged = chart_tree(chart, user, Nulls::Drop, effort, warnings)?;
    to_value(&merged, effort)
}

/// Like [`coalesce_values`], keeping nulls.
///
/// ```
/// use chart::{Chart, Warnings, values::merge_values};
/// use serde_json::json;
///
/// let user = json!({"probe": null});
/// assert_eq!(merge_values(&Chart::default(), &user, &mut Warnings::default())?, user);
/// # Ok::<(), chart::values::CoalesceError>(())
/// ```
///
/// # Errors
/// The value at a subchart's key is no table.
pub fn merge_values(
    chart: &Chart,
    user: &Value,
    warnings: &mut Warnings,
) -> Result<Value, CoalesceError> {
    let effort = &mut Effort::within(&Allowance::default());
    let merged = chart_tree(chart, user, Nulls::Keep, effort, warnings)?;
    to_value(&merged, effort)
}

pub(super) fn to_value(table: &Table, effort: &mut Effort) -> Result<Value, CoalesceError> {
    if let Err(error) = table.depth(effort) {
        table.take_apart();
        return Err(error);
    }
    match effort.weight().table(table) {
        true => Ok(table.to_value()),
        false => Err(effort.too_large()),
    }
}

pub(super) fn chart_tree(
    chart: &Chart,
    user: &Value,
    nulls: Nulls,
    effort: &mut Effort,
    warnings: &mut Warnings,
) -> Result<Table, CoalesceError> {
    effort.copy(user)?;
    let values = Table::copy_of(user);
    let mut merging = Merging {
        nulls,
        weight: effort.weight(),
        effort,
        warnings,
    };
    match merging.coalesce(chart, &values, "") {
        Ok(()) => Ok(values),
        Err(error) => {
            values.take_apart();
            Err(error)
        }
    }
}

/// Merges `src` into `dst`, which has priority, keeping nulls.
pub(super) fn merge_tables(
    dst: &Table,
    src: &Table,
    effort: &mut Effort,
    warnings: &mut Warnings,
) -> Result<(), CoalesceError> {
    let mut merging = Merging {
        nulls: Nulls::Keep,
        weight: effort.weight(),
        effort,
        warnings,
    };
    merging.tables((dst, src), "", Nulls::Keep, 0)
}

fn join(prefix: &str, key: &str) -> String {
    if prefix.is_empty() {
        key.to_owned()
    } else {
        format!("{prefix}.{key}")
    }
}

struct Merging<'w> {
    nulls: Nulls,
    weight: Weight,
    effort: &'w mut Effort,
    warnings: &'w mut Warnings,
}

impl Merging<'_> {
    fn coalesce(
        &mut self,
        chart: &Chart,
        values: &Table,
        prefix: &str,
    ) -> Result<(), CoalesceError> {
        let path = join(prefix, chart.name());
        if !self.weight.value(&chart.values) {
            return Err(self.effort.too_large());
        }
        self.defaults(chart, values, &path)?;
        for subchart in &chart.dependencies {
            let name = subchart.name();
            let table = match values.get(name) {
                None => {
                    let table = Table::default();
                    values.insert(name, Node::Table(table.clone()));
                    table
                }
                Some(Node::Table(table)) => table,
                Some(Node::Leaf(value)) => {
                    return Err(CoalesceError::SubchartNotTable {
                        chart: name.to_owned(),
                        value: (*value).clone(),
                    });
                }
            };
            self.globals(&table, values, &path)?;
            self.coalesce(subchart, &table, &path)?;
        }
        Ok(())
    }

    /// Hands the parent's globals down; the parent's win, recursively.
    fn globals(&mut self, dst: &Table, src: &Table, prefix: &str) -> Result<(), CoalesceError> {
        let mut globals_of = |table: &Table, side| match table.get(GLOBAL_KEY) {
            None => Some(Table::default()),
            Some(Node::Table(globals)) => Some(globals),
            Some(Node::Leaf(_)) => {
                self.warnings.push(Warning::GlobalsNotTable { side });
                None
            }
        };
        let Some(ours) = globals_of(dst, "destination") else {
            return Ok(());
        };
        let Some(theirs) = globals_of(src, "source") else {
            return Ok(());
        };
        let theirs = theirs.entries();
        self.effort.spend(theirs.len(), 0)?;
        for (key, node) in theirs {
            if !self.weight.entry(&key, &node) {
                return Err(self.effort.too_large());
            }
            let present = ours.get(&key);
            match (&node, &present) {
                (Node::Table(table), None) => ours.insert(key, Node::Table(table.shallow_copy())),
                (Node::Table(table), Some(Node::Table(defaults))) => {
                    let merged = table.shallow_copy();
                    // Nulls are dropped when the subchart itself is coalesced.
                    let path = join(prefix, &key);
                    self.tables((&merged, defaults), &path, Nulls::Keep, 0)?;
                    ours.insert(key, Node::Table(merged));
                }
                (Node::Table(_), Some(Node::Leaf(_))) => {
                    self.warnings.push(Warning::GlobalConflict { key });
                }
                (Node::Leaf(_), Some(Node::Table(_))) => {
                    self.warnings.push(Warning::GlobalIsTable { key });
                }
                (Node::Leaf(_), _) => ours.insert(key, node),
            }
        }
        dst.insert(GLOBAL_KEY, Node::Table(ours));
        Ok(())
    }

    /// Puts the chart's own defaults under `values`.
    fn defaults(&mut self, chart: &Chart, values: &Table, path: &str) -> Result<(), CoalesceError> {
        let nulls = self.nulls;
        self.effort.copy(&chart.values)?;
        for (key, default) in Table::copy_of(&chart.values).entries() {
            match (values.get(&key), default) {
                (Some(given), _) if given.is_null() && nulls == Nulls::Drop => values.remove(&key),
                (Some(Node::Table(given)), Node::Table(default)) => {
                    let is_subchart = chart.dependencies.iter().any(|sub| sub.name() == key);
                    let nulls = if is_subchart { Nulls::Keep } else { nulls };
                    if nulls == Nulls::Drop {
                        default.remove_nulls();
                    }
                    self.tables((&given, &default), &join(path, &key), nulls, 0)?;
                }
                (Some(Node::Table(_)), default) => {
                    if !default.is_null() {
                        self.warnings.push(Warning::SkippedValue {
                            key: join(path, &key),
                        });
                    }
                }
                (Some(Node::Leaf(_)), _) => {}
                (None, default) => {
                    if nulls == Nulls::Drop {
                        match &default {
                            node if node.is_null() => continue,
                            Node::Table(table) => table.remove_nulls(),
                            Node::Leaf(_) => {}
                        }
                    }
                    values.insert(key, default);
                }
            }
        }
        Ok(())
    }

    /// Merges the second table into the first one, which has priority; both lie in so many others.
    fn tables(
        &mut self,
        (dst, src): (&Table, &Table),
        prefix: &str,
        nulls: Nulls,
        level: usize,
    ) -> Result<(), CoalesceError> {
        // A null the user set removes a default only where there is one.
        let (given, defaults) = (dst.entries(), src.entries());
        self.effort.spend(given.len() + defaults.len(), level)?;
        for (key, node) in given {
            if node.is_null() {
                src.insert(key, node);
            }
        }
        let defaults = defaults.into_iter().filter(|(_, node)| !node.is_null());
        let had_default: BTreeSet<String> = defaults.map(|(key, _)| key).collect();
        for (key, node) in src.entries() {
            let path = join(prefix, &key);
            match (dst.get(&key), &node) {
                (Some(given), _)
                    if given.is_null() && nulls == Nulls::Drop && had_default.contains(&key) =>
                {
                    dst.remove(&key);
                }
                (None, _) => dst.insert(key, node),
                (Some(Node::Table(given)), Node::Table(default)) => {
                    self.tables((&given, default), &path, nulls, level + 1)?;
                }
                (Some(Node::Leaf(_)), Node::Table(default)) => {
                    self.warnings.push_with(|| Warning::CannotOverwriteTable {
                        key: path,
                        value: golib::json::go_text(&default.to_value()),
                    });
                }
                (Some(Node::Table(_)), Node::Leaf(value)) if !value.is_null() => {
                    self.warnings.push_with(|| Warning::IgnoredNonTable {
                        key: path,
                        value: golib::json::go_text(value),
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }
}
