//! How fast charts are parsed, rendered and loaded, what that allocates, and how it grows; beside it what Go needs for the
//! same, where its program is given in `ENGINE_SPEED` (`make bench` does).
//!
//! Nothing is asserted: the figures are for whoever started it. `parse` makes one set of all templates, `execute` renders
//! every template of such a set, `render` is both with Helm's objects around, from coalesced values to text. `install` is
//! what a deployment costs beyond that: a chart archive in, sorted manifests out.
#![expect(clippy::print_stdout, reason = "the figures are for the person who started it")]

mod corpus;
mod generated;
mod go;
mod measure;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use chart::render::{EngineOptions, render};
use chart::{Capabilities, Chart, ReleaseInfo, values};
use templating::value::CycleGuard;
use templating::{Dialect, Limits, Map, Renderer, SystemHost, TemplateSet, Value};

use generated::Generated;
use measure::{Cost, LONG, SHORT, measure};

fn main() -> Result<()> {
    let charts = [
        generated::small(),
        generated::typical(),
        generated::monitoring("large", 40),
    ];
    println!("Times are of processors, so that a busy machine matters little.\n");
    println!("Parse and render, beside Go's text/template and Helm's engine");
    side_by_side(&charts)?;
    println!("\nGrowth with the templates (monitoring chart)");
    growth([10, 20, 40, 80].map(|groups| generated::monitoring("large", groups)))?;
    println!("\nGrowth with the values (range and toYaml)");
    growth([100, 200, 400, 800].map(|entries| generated::settings("values", entries)))?;
    println!("\nPublished charts in this process: archive to sorted manifests");
    corpus::print()
}

const OPERATIONS: [&str; 3] = ["parse", "execute", "render"];

fn side_by_side(charts: &[Generated]) -> Result<()> {
    let go = go::costs(charts)?;
    println!(
        "chart     KiB  operation         us   KiB alloc   allocs |     Go us   KiB alloc   allocs |  faster  fewer"
    );
    for chart in charts {
        for (operation, ours) in OPERATIONS.into_iter().zip(costs(chart, LONG)?) {
            let kib = chart.template_bytes().div_ceil(1024);
            print!("{:<8}{kib:>5}  {operation:<10} {ours} |", chart.name);
            match go.get(&(chart.name.clone(), operation.to_owned())) {
                Some(go) => println!(
                    "{go} | {:>6.1}x {:>5.1}x",
                    go.seconds / ours.seconds,
                    go.allocations / ours.allocations
                ),
                None => println!(" not measured"),
            }
        }
    }
    Ok(())
}

fn growth(charts: [Generated; 4]) -> Result<()> {
    println!(
        "size  templates    values  operation         us   KiB alloc   allocs |  us per KiB of both"
    );
    for (size, chart) in [1, 2, 4, 8].into_iter().zip(&charts) {
        let (templates, values) = (chart.template_bytes(), chart.values_bytes());
        let kib = (templates + values) as f64 / 1024.0;
        for (operation, cost) in OPERATIONS.into_iter().zip(costs(chart, SHORT)?) {
            println!(
                "{size}x {:>8.0} KiB {:>6.0} KiB  {operation:<10} {cost} | {:>8.2}",
                templates as f64 / 1024.0,
                values as f64 / 1024.0,
                cost.seconds * 1e6 / kib
            );
        }
    }
    Ok(())
}

/// The three operations in order.
fn costs(generated: &Generated, time: Duration) -> Result<[Cost; 3]> {
    let chart = generated.load()?;
    let values = values::coalesce_values(
        &chart,
        &serde_json::json!({}),
        &mut chart::Warnings::default(),
    )?;
    let (release, capabilities) = (ReleaseInfo::install("rel", "ns"), Capabilities::default());
    let options = EngineOptions::new(&release, &capabilities, &SystemHost);

    let parsed = measure(time, || parse(&chart))?;
    let set = Arc::new(parse(&chart)?);
    let _cycles = CycleGuard::new();
    let dot = dot(&chart, &values);
    let executed = measure(time, || execute(&set, &chart, &dot))?;
    let rendered = measure(time, || Ok(render(&chart, &values, &options)?.len()))?;
    Ok([parsed, executed, rendered])
}

fn full_name(chart: &Chart, file: &chart::File) -> String {
    format!("{}/{}", chart.name(), file.name)
}

fn parse(chart: &Chart) -> Result<TemplateSet> {
    let mut set = Dialect::Helm.template_set("gotpl");
    let mut files: Vec<_> = chart.templates.iter().collect();
    files.sort_by(|a, b| b.name.cmp(&a.name));
    for file in files {
        set.parse(&full_name(chart, file), file.data.to_vec())
            .map_err(|error| anyhow::anyhow!("{error}"))?;
    }
    Ok(set)
}

fn dot(chart: &Chart, values: &serde_json::Value) -> Map {
    let metadata = Map::from_iter([
        ("Name", chart.name()),
        ("Version", &chart.metadata.version),
        ("AppVersion", &chart.metadata.app_version),
    ]);
    let release = Map::from_iter([("Name", "rel"), ("Namespace", "ns"), ("Service", "Helm")]);
    Map::from_iter([
        ("Chart", Value::Map(metadata)),
        ("Release", release.into()),
        ("Values", Value::from(values)),
    ])
}

fn execute(set: &Arc<TemplateSet>, chart: &Chart, dot: &Map) -> Result<usize> {
    let mut renderer = Renderer::new(Arc::clone(set), &SystemHost, Limits::default());
    let mut bytes = 0;
    for file in chart.templates.iter() {
        if file.name.contains("/_") {
            continue;
        }
        let output = renderer
            .render(&full_name(chart, file), &Value::Map(dot.clone()))
            .map_err(|error| anyhow::anyhow!("{error}"))?;
        bytes += templating::funcs::without_no_value(output).len();
    }
    Ok(bytes)
}
