//! Releases that do not fit into one record.

use std::sync::Arc;

use anyhow::{Context, Result};
use chart::File;
use release::{DeployError, DeployOptions};
use serde_json::Value;
use testbed::cluster::ADMIN;
use testbed::helm::Helm;

use crate::world::{Template, World, config_map};

/// Text that does not get smaller.
fn noise(bytes: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut letter = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'!' + u8::try_from(state % 90).unwrap_or_default())
    };
    (0..bytes).map(|_| letter()).collect()
}

fn file(name: &str, bytes: usize) -> File {
    File::new(name, noise(bytes).into_bytes())
}

impl Template {
    fn with_files(mut self, files: Vec<File>, templates: Vec<File>) -> Self {
        let chart = Arc::make_mut(&mut self.chart);
        chart.files = files.into();
        chart.templates = templates.into();
        self
    }
}

/// Files go first, then templates; what is left is a record like any other.
#[tokio::test]
async fn too_large_a_record_leaves_out_the_charts_files_and_templates() -> Result<()> {
    const LARGE: usize = 900_000;
    let world = World::new().await?;
    let home = std::env::temp_dir().join(&world.namespace);
    let helm = &Helm::both(&world.plane.kubeconfig(ADMIN)?, &home)?[1];
    let template = |value: &str| Template::new(&config_map("a", value));
    let small = || vec![file("templates/small.yaml", 1_000)];
    for (revision, files, templates, kept) in [
        (1, vec![], vec![file("templates/a.yaml", LARGE / 2)], (0, 1)),
        (2, vec![file("files/a", LARGE)], small(), (0, 1)),
        (3, vec![], vec![file("templates/a.yaml", LARGE)], (0, 0)),
    ] {
        let template = template(&revision.to_string()).with_files(files, templates);
        let done = world
            .deploy_with(&template, DeployOptions::default())
            .await?;
        assert_eq!(done.release.revision, revision);
        let stored = world.storage.get("web", revision).await?;
        let chart = stored.chart.clone().context("a chart")?;
        assert_eq!((chart.files.len(), chart.templates.len()), kept);
        // It is what was deployed: there is nothing to do the second time.
        let again = world
            .deploy_with(&template, DeployOptions::default())
            .await?;
        assert!(!again.changed, "revision {revision}");
    }
    let namespace = ["--namespace", &world.namespace];
    let list = helm.json(&[&["list"], &namespace[..]].concat())?;
    assert_eq!(list[0]["chart"], Value::from("web-1.0.0"));
    helm.run(
        &[
            &["rollback", "web", "2", "--force-conflicts"],
            &namespace[..],
        ]
        .concat(),
    )?;
    let map = world.config_map("a").await?.context("the ConfigMap")?;
    assert_eq!(map["data"]["value"], "2");
    drop(std::fs::remove_dir_all(home));
    Ok(())
}

/// A manifest must be in its record: nothing is done without one.
#[tokio::test]
async fn a_manifest_that_fits_into_no_record_is_refused_clearly() -> Result<()> {
    let world = World::new().await?;
    let many: String = (0..3)
        .map(|n| config_map(&format!("m{n}"), &noise(500_000).replace(['"', '\\'], "_")))
        .collect();
    let error = world.deploy(&many).await.unwrap_err();
    assert!(matches!(error, DeployError::Storage(_)), "{error:?}");
    let text = release::error_chain(&error);
    assert!(
        text.contains("more than the 1048576 an object may hold"),
        "{text}"
    );
    assert_eq!(world.history().await?, [""; 0]);
    assert!(world.config_map("m0").await?.is_none());
    // And a smaller one is deployed.
    world.deploy(&config_map("m0", "1")).await?;
    Ok(())
}
