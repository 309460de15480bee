//! What the Go agent stored for real bundles, held against what we would store.
//!
//! The recordings lie beside the repository; without them the test says so and passes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::path::Path;

use agent::api::{BundleDeployment, Content};
use agent::bundle::{Bundle, FleetPostRenderer, Manifest, SetId, release_name};
use agent::values;
use chart::rendered::{Request, render_release};
use chart::{Capabilities, ReleaseInfo};
use golib::budget::Budget;
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;
use templating::SystemHost;

/// Bundles with a Content and a release.
const RECORDED: [&str; 5] = [
    "raw-yaml",
    "chart-in-bundle",
    "drifting",
    "unready",
    "kustomized",
];

#[test]
fn bundles_become_the_recorded_releases() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/recorded");
    for name in RECORDED {
        let text = std::fs::read_to_string(directory.join(format!("{name}.json"))).unwrap();
        let recorded: Value = serde_json::from_str(&text).unwrap();
        check(name, &recorded);
    }
}

fn check(name: &str, recorded: &Value) {
    let deployment: BundleDeployment =
        serde_json::from_value(recorded["bundledeployment"].clone()).unwrap();
    let content: Content = serde_json::from_value(recorded["content"].clone()).unwrap();
    let release = &recorded["releases"][0]["decoded"];

    let manifest = Manifest::from_content(&content).unwrap();
    assert_eq!(
        manifest.id,
        deployment.spec.manifest_id(),
        "{name}: manifest ID"
    );
    let package = Bundle::Files(manifest)
        .package(&deployment, "cattle-fleet-system", &mut Budget::default())
        .unwrap();

    let options = &deployment.spec.options;
    let mut config = values::inline(options.helm.as_ref().and_then(|helm| helm.values.as_ref()));
    if !deployment.spec.values_hash.is_empty() {
        let secret: Secret = serde_json::from_value(recorded["valuesSecret"].clone()).unwrap();
        let stored = values::stored(&secret, &deployment.spec.values_hash).unwrap();
        config = stored.unwrap_or(config);
    }
    let release_name = release_name(deployment.name(), options);
    assert_eq!(release["name"], release_name, "{name}: release name");
    assert_eq!(
        release["namespace"],
        options.release_namespace(),
        "{name}: release namespace"
    );
    let set = SetId::new(deployment.name(), "");
    let post_renderer = FleetPostRenderer::new(&package.chart, &set, options, None)
        .kustomized(package.kustomization.as_ref());
    let info = ReleaseInfo::install(release_name, options.release_namespace());
    let (values, capabilities) = (Value::Object(config), Capabilities::default());
    let chart = package.chart.clone();
    let rendered = render_release(Request {
        post_renderer: Some(&post_renderer),
        ..Request::new(chart, &values, &info, &capabilities, &SystemHost)
    })
    .unwrap();
    assert_eq!(
        rendered.manifest,
        release["manifest"].as_str().unwrap(),
        "{name}: manifest"
    );
    assert_eq!(
        serde_json::to_value(&rendered.chart).unwrap(),
        release["chart"],
        "{name}: chart of the record"
    );
}
