//! Enables vendored charts, by conditions and tags, and names them.
//!
//! Mirrors `pkg/chart/v2/util/dependencies.go` and `compatible.go`: conditions, tags, aliases and
//! `import-values`.

use std::collections::{HashMap, HashSet};

use golib::budget::Allowance;
use golib::semver::{Constraint, Version};
use serde_json::Value;

use crate::chart::Chart;
use crate::list::List;
use crate::metadata::Dependency;
use crate::values::{self, CoalesceError, Effort, PathError, Weight};
use crate::warning::{Warning, Warnings};

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
/// let mut chart = load_files(files, &mut chart::Warnings::default())?;
/// dependency::process(&mut chart, &json!({"db": {"enabled": true}}), &mut chart::Warnings::default())?;
/// assert_eq!(chart.dependencies[0].name(), "store");
/// dependency::process(&mut chart, &json!({"db": {"enabled": false}}), &mut chart::Warnings::default())?;
/// assert!(chart.dependencies.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The value at a subchart's key is no table.
pub fn process(
    chart: &mut Chart,
    user: &Value,
    warnings: &mut Warnings,
) -> Result<(), CoalesceError> {
    process_within(chart, user, &Allowance::default(), warnings)
}

/// Like `process`, with a limit on what merged values may take.
pub(crate) fn process_within(
    chart: &mut Chart,
    user: &Value,
    allowance: &Allowance,
    warnings: &mut Warnings,
) -> Result<(), CoalesceError> {
    let mut effort = Effort::within(allowance);
    let mut budget = Budget {
        weight: effort.weight(),
        effort: &mut effort,
    };
    enable(chart, user, "", &mut budget, warnings)?;
    values::import_values(chart, &mut effort, warnings)
}

/// The budget that the charts of a tree share.
struct Budget<'e> {
    weight: Weight,
    effort: &'e mut Effort,
}

impl Budget<'_> {
    /// Whether a chart of the right name has a version that an entry takes.
    fn is_match(&mut self, entry: &Dependency, chart: &Chart) -> Result<bool, CoalesceError> {
        let version = &chart.metadata.version;
        let read = 16 + entry.version.len() + version.len();
        self.effort.spend(read, 0)?;
        Ok(is_compatible_range(&entry.version, version))
    }

    fn copy(&mut self, chart: &Chart) -> Result<Chart, CoalesceError> {
        match self.weight.chart(chart) {
            true => Ok(chart.clone()),
            false => Err(self.effort.too_large()),
        }
    }
}

fn enable(
    chart: &mut Chart,
    user: &Value,
    path: &str,
    budget: &mut Budget<'_>,
    warnings: &mut Warnings,
) -> Result<(), CoalesceError> {
    if chart.metadata.dependencies.is_absent() {
        return Ok(());
    }
    chart.dependencies = select(&chart.dependencies, &chart.metadata.dependencies, budget)?;
    for entry in chart.metadata.dependencies.iter_mut() {
        if !entry.alias.is_empty() {
            entry.name.clone_from(&entry.alias);
        }
        entry.enabled = true;
    }
    let coalesced = values::coalesce_within(chart, user, budget.effort, warnings)?;
    let entries = &mut chart.metadata.dependencies;
    apply_tags(entries, &coalesced, warnings);
    apply_conditions(entries, &coalesced, path, warnings);

    let off: HashSet<String> = entries
        .iter()
        .filter(|entry| !entry.enabled)
        .map(|entry| entry.name.clone())
        .collect();
    chart
        .dependencies
        .retain(|dependency| !off.contains(dependency.name()));
    for dependency in &mut chart.dependencies {
        let path = format!("{path}{}.", dependency.name());
        enable(dependency, &coalesced, &path, budget, warnings)?;
    }
    entries.retain(|entry| !off.contains(&entry.name));
    if entries.is_empty() {
        *entries = List::absent();
    }
    Ok(())
}

/// Vendored charts no entry matches, then one chart for each entry: the first one that matches.
///
/// # Errors
/// Together they are too large, or to be compared with each other too often.
fn select(
    vendored: &[Chart],
    entries: &[Dependency],
    budget: &mut Budget<'_>,
) -> Result<Vec<Chart>, CoalesceError> {
    let mut entries_named: HashMap<&str, Vec<&Dependency>> = HashMap::new();
    for entry in entries {
        entries_named.entry(&entry.name).or_default().push(entry);
    }
    let mut charts_named: HashMap<&str, Vec<&Chart>> = HashMap::new();
    for chart in vendored {
        charts_named.entry(chart.name()).or_default().push(chart);
    }
    let mut selected = Vec::new();
    for chart in vendored {
        let named = entries_named.get(chart.name());
        let mut is_asked_for = false;
        for entry in named.into_iter().flatten() {
            is_asked_for = is_asked_for || budget.is_match(entry, chart)?;
        }
        if !is_asked_for {
            selected.push(budget.copy(chart)?);
        }
    }
    for entry in entries {
        for chart in charts_named.get(&*entry.name).into_iter().flatten() {
            if budget.is_match(entry, chart)? {
                let mut chart = budget.copy(chart)?;
                if !entry.alias.is_empty() {
                    chart.metadata.name.clone_from(&entry.alias);
                }
                selected.push(chart);
                break;
            }
        }
    }
    Ok(selected)
}

/// One true tag enables; otherwise one false tag disables.
fn apply_tags(entries: &mut [Dependency], coalesced: &Value, warnings: &mut Warnings) {
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
    warnings: &mut Warnings,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::File;
    use crate::loader::load_files;

    fn metadata(name: &str, rest: &str) -> String {
        format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n{rest}")
    }

    /// A list of `dependencies` with so many aliases of a chart.
    fn aliases(name: &str, count: usize) -> String {
        let entries =
            (0..count).map(|at| format!("{{name: {name}, version: 1.x, alias: {name}-{at}}}"));
        format!(
            "dependencies: [{}]\n",
            entries.collect::<Vec<_>>().join(", ")
        )
    }

    fn processed(files: Vec<(String, String)>) -> Result<Chart, CoalesceError> {
        let files = files.into_iter().map(|(name, text)| File::new(name, text));
        let mut chart = load_files(files.collect(), &mut Warnings::default()).unwrap();
        process(&mut chart, &Value::Null, &mut Warnings::default()).map(|()| chart)
    }

    #[test]
    fn aliases_of_aliases_end() {
        let (mut files, mut folder) = (Vec::new(), String::new());
        for level in 0..6 {
            let next = aliases(&format!("n{}", level + 1), 12);
            let text = metadata(&format!("n{level}"), if level < 5 { &next } else { "" });
            files.push((format!("{folder}Chart.yaml"), text));
            folder.push_str(&format!("charts/n{}/", level + 1));
        }
        let outcome = processed(files).map(drop);
        assert_eq!(outcome, Err(CoalesceError::TooLarge));
    }

    #[test]
    fn aliases_copy_what_chart_yaml_says_as_well() {
        let parts = |count, description: &str| {
            let text = format!("description: {description}\n");
            vec![
                (
                    "Chart.yaml".to_owned(),
                    metadata("web", &aliases("sub", count)),
                ),
                ("charts/sub/Chart.yaml".to_owned(), metadata("sub", &text)),
            ]
        };
        assert_eq!(
            processed(parts(100, "small")).unwrap().dependencies.len(),
            100
        );
        let large = "a".repeat(1 << 20);
        let outcome = processed(parts(3_000, &large)).map(drop);
        assert_eq!(outcome, Err(CoalesceError::TooLarge));
    }

    #[test]
    fn charts_that_match_no_entry_of_their_name_are_not_compared_for_ever() {
        let asked = aliases("sub", 10_000).replace("1.x", "2.x");
        let mut files = vec![("Chart.yaml".to_owned(), metadata("web", &asked))];
        for at in 0..1_000 {
            files.push((format!("charts/c{at}/Chart.yaml"), metadata("sub", "")));
        }
        let outcome = processed(files).map(drop);
        assert_eq!(outcome, Err(CoalesceError::TooMuchWork));
    }
}
