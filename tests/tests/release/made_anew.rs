//! What somebody makes anew while a release is deployed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use release::DeployOptions;

use crate::world::{Template, World, config_map};

/// What a deploy has taken over is noted as its own once all is done: another object of that name is not, and fails nothing.
#[tokio::test]
async fn recreating_a_taken_over_object_during_a_deploy_does_not_fail_it() -> Result<()> {
    let world = World::new().await?;
    world.kubectl(&["create", "namespace", &world.namespace])?;
    let theirs = [
        "create",
        "configmap",
        "theirs",
        "--from-literal=value=theirs",
    ];
    world.kubectl(&theirs)?;
    let template = Template::new(&config_map("theirs", "1"));
    let template = template.hook("last", "post-install", &config_map("last", "1"));
    let options = DeployOptions {
        take_ownership: true,
        atomic: true,
        timeout: Some(Duration::from_secs(60)),
        ..DeployOptions::default()
    };
    let mut spec = world.spec(&template, options);
    let somebody = world.beside("somebody").await?;
    spec.on_hooks = Some(Arc::new(move || {
        let delete = ["delete", "configmap", "theirs"];
        for arguments in [&delete[..], &theirs[..]] {
            somebody.kubectl(arguments).expect("he may do that");
        }
    }));
    release::deploy(&world.cluster, &world.storage, &spec).await?;
    assert_eq!(world.history().await?, ["1 deployed"]);
    assert_eq!(world.value("theirs").await?, "theirs");
    let annotations = "--output=jsonpath={.metadata.annotations}";
    let noted = world.kubectl(&["get", "configmap", "theirs", annotations])?;
    assert_eq!(noted, "");
    Ok(())
}
