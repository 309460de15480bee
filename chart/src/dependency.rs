//! Which vendored charts take part, and under which name.
//!
//! Mirrors `pkg/chart/v2/util/dependencies.go` and `compatible.go`: conditions, tags, aliases and
//! `import-values`.

use golib::semver::{Constraint, Version};
use serde_json::Value;

use crate::chart::Chart;
use crate::list::List;
use crate::metadata::Dependency;
use crate::values::{self, CoalesceError, PathError, Weight};
use crate::warning::Warning;

/// Whether a version satisfies a constraint; what cannot be read does not.
///
/// ```
/// use chart::dependency::is_compatible_range;
///
/// assert!(is_compatible_range(">=1.28.0-0", "v1.33.1-gke.5"));
/// assert!(!is_compatible_range(">=1.28.0", "v1.33.1-gke.5"));
/// ```
pub fn is_compatible_range(constraint: &str, version: &str) -> bool {
    let Ok(version) = Version::parse(version) else {
        return false;
    };
    Constraint::parse(constraint).is_ok_and(|constraint| constraint.check(&version))
}

/// Switches dependencies on and off by `user`'s values and the chart's, renames aliased ones, and
/// imports values from those that stay. Works on the chart in place, as a chart in a release record
/// shows.
///
/// ```
/// use chart::{File, dependency, loader::load_files};
/// use serde_json::json;
///
/// let parent = "apiVersion: v2\nname: web\nversion: 1.0.0\n\
///               dependencies: [{name: db, version: 1.x, condition: db.enabled, alias: store}]\n";
/// let files = vec![
///     File::new("Chart.yaml", parent),
///     File::new("charts/db/Chart.yaml", "apiVersion: v2\nname: db\nversion: 1.2.0\n"),
/// ];
/// let mut chart = load_files(files, &mut Vec::new())?;
/// dependency::process(&mut chart, &json!({"db": {"enabled": true}}), &mut Vec::new())?;
/// assert_eq!(chart.dependencies[0].name(), "store");
/// dependency::process(&mut chart, &json!({"db": {"enabled": false}}), &mut Vec::new())?;
/// assert!(chart.dependencies.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The value at a subchart's key is no table.
pub fn process(
    chart: &mut Chart,
    user: &Value,
    warnings: &mut Vec<Warning>,
) -> Result<(), CoalesceError> {
    enable(chart, user, "", &mut { Weight::MERGED }, warnings)?;
    values::import_values(chart, warnings)
}

fn enable(
    chart: &mut Chart,
    user: &Value,
    path: &str,
    weight: &mut Weight,
    warnings: &mut Vec<Warning>,
) -> Result<(), CoalesceError> {
    if chart.metadata.dependencies.is_absent() {
        return Ok(());
    }
    chart.dependencies = select(&chart.dependencies, &chart.metadata.dependencies, weight)
        .ok_or(CoalesceError::TooLarge)?;
    for entry in chart.metadata.dependencies.iter_mut() {
        if !entry.alias.is_empty() {
            entry.name.clone_from(&entry.alias);
        }
        entry.enabled = true;
    }
    let coalesced = values::coalesce_values(chart, user, warnings)?;
    let entries = &mut chart.metadata.dependencies;
    apply_tags(entries, &coalesced, warnings);
    apply_conditions(entries, &coalesced, path, warnings);

    let off: Vec<String> = entries
        .iter()
        .filter(|entry| !entry.enabled)
        .map(|entry| entry.name.clone())
        .collect();
    chart
        .dependencies
        .retain(|dependency| !off.iter().any(|name| name == dependency.name()));
    for dependency in &mut chart.dependencies {
        let path = format!("{path}{}.", dependency.name());
        enable(dependency, &coalesced, &path, weight, warnings)?;
    }
    entries.retain(|entry| !off.contains(&entry.name));
    if entries.is_empty() {
        *entries = List::absent();
    }
    Ok(())
}

/// Vendored charts no entry matches, then one chart for each entry. `None` if their default values are too large together.
fn select(vendored: &[Chart], entries: &[Dependency], weight: &mut Weight) -> Option<Vec<Chart>> {
    let matches = |chart: &Chart, entry: &Dependency| {
        chart.name() == entry.name && is_compatible_range(&entry.version, &chart.metadata.version)
    };
    let mut selected = Vec::new();
    for chart in vendored {
        if !entries.iter().any(|entry| matches(chart, entry)) {
            fits(chart, weight).then_some(())?;
            selected.push(chart.clone());
        }
    }
    for entry in entries {
        if let Some(chart) = vendored.iter().find(|chart| matches(chart, entry)) {
            fits(chart, weight).then_some(())?;
            let mut chart = chart.clone();
            if !entry.alias.is_empty() {
                chart.metadata.name.clone_from(&entry.alias);
            }
            selected.push(chart);
        }
    }
    Some(selected)
}

fn fits(chart: &Chart, weight: &mut Weight) -> bool {
    weight.value(&chart.values) && chart.dependencies.iter().all(|chart| fits(chart, weight))
}

/// One true tag enables; otherwise one false tag disables.
fn apply_tags(entries: &mut [Dependency], coalesced: &Value, warnings: &mut Vec<Warning>) {
    let Ok(tags) = values::table(coalesced, "tags") else {
        return;
    };
    for entry in entries {
        let (mut on, mut off) = (false, false);
        for tag in &entry.tags {
            match tags.get(tag) {
                Some(Value::Bool(true)) => on = true,
                Some(Value::Bool(false)) => off = true,
                Some(_) => warnings.push(Warning::NotBoolean {
                    what: "tag",
                    name: tag.clone(),
                    chart: entry.name.clone(),
                }),
                None => {}
            }
        }
        entry.enabled = on || !off;
    }
}

/// The first condition that is a boolean decides, whatever the tags say.
fn apply_conditions(
    entries: &mut [Dependency],
    coalesced: &Value,
    path: &str,
    warnings: &mut Vec<Warning>,
) {
    for entry in entries {
        for condition in entry
            .condition
            .trim()
            .split(',')
            .filter(|path| !path.is_empty())
        {
            match values::path_value(coalesced, &format!("{path}{condition}")) {
                Ok(Value::Bool(enabled)) => {
                    entry.enabled = *enabled;
                    break;
                }
                Ok(_) => warnings.push(Warning::NotBoolean {
                    what: "path",
                    name: condition.to_owned(),
                    chart: entry.name.clone(),
                }),
                Err(PathError::NoValue(_) | PathError::NoTable(_) | PathError::Empty) => {}
            }
        }
    }
}
