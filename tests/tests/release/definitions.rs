//! Charts whose definitions come and go, with and without the objects they define.

use anyhow::Result;
use release::UninstallSpec;
use testbed::wait::wait_until;

use crate::world::{World, config_map};

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(300);

/// A group that no other test has.
pub(crate) fn group(world: &World) -> String {
    format!("{}.example.com", world.namespace)
}

pub(crate) fn definition(world: &World) -> String {
    let group = group(world);
    format!(
        "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
         metadata: {{name: cars.{group}}}\nspec:\n  group: {group}\n  scope: Namespaced\n  \
         names: {{kind: Car, plural: cars, singular: car}}\n  versions:\n  - name: v1\n    \
         served: true\n    storage: true\n    schema: {{openAPIV3Schema: {{type: object, \
         x-kubernetes-preserve-unknown-fields: true}}}}\n"
    )
}

pub(crate) fn car(world: &World, doors: u32) -> String {
    let group = group(world);
    format!(
        "---\napiVersion: {group}/v1\nkind: Car\nmetadata: {{name: beetle}}\nspec: {{doors: {doors}}}\n"
    )
}

impl World {
    fn doors(&self) -> Result<String> {
        let cars = format!("cars.{}", group(self));
        self.kubectl(&["get", &cars, "beetle", "--output=jsonpath={.spec.doors}"])
    }

    async fn until_undefined(&self) -> Result<()> {
        let name = format!("cars.{}", group(self));
        let get = ["get", "crd", &name, "--ignore-not-found", "--output=name"];
        wait_until("the definition to go", PATIENCE, async || {
            match self.kubectl(&get) {
                Ok(left) if left.is_empty() => Ok(()),
                Ok(left) => Err(left),
                Err(error) => Err(error.to_string()),
            }
        })
        .await
    }
}

/// An upgrade drops the definition with its objects, the next one has both again.
#[tokio::test]
async fn a_dropped_definition_is_deleted_and_can_be_installed_again() -> Result<()> {
    let world = World::new().await?;
    let with = |doors| config_map("a", "1") + &definition(&world) + &car(&world, doors);
    world.deploy(&with(2)).await?;
    world.deploy(&config_map("a", "2")).await?;
    world.until_undefined().await?;
    world.deploy(&with(4)).await?;
    assert_eq!(world.doors()?, "4");
    let spec = UninstallSpec::new("web", &world.namespace);
    release::uninstall(&world.cluster, &world.storage, &spec).await?;
    world.until_undefined().await?;
    assert_eq!(world.history().await?, [""; 0]);
    Ok(())
}

/// Somebody deletes a definition of another release: what used it is told, upgraded without it, and
/// goes like anything else.
#[tokio::test]
async fn a_deleted_definition_blocks_no_later_deployment() -> Result<()> {
    let [brings, uses] = [World::new().await?, World::new().await?];
    brings.deploy(&definition(&brings)).await?;
    let with = |value: &str, doors| config_map("a", value) + &car(&brings, doors);
    uses.deploy(&with("1", 2)).await?;
    let name = format!("cars.{}", group(&brings));
    brings.kubectl(&["delete", "crd", &name])?;
    brings.until_undefined().await?;
    // The first attempt learns it from the API server, a later one tells it before it does anything: as soon as discovery knows.
    uses.deploy(&with("2", 3)).await.unwrap_err();
    wait_until("the kind to be missed", PATIENCE, async || {
        let reported = uses.deploy(&with("2", 3)).await.unwrap_err();
        let reported = release::error_chain(&reported);
        let is_missed = reported.contains("no matches for kind");
        is_missed.then_some(()).ok_or(reported)
    })
    .await?;
    assert!(uses.has_good_revision().await?);
    // Without it, and with it once it is back.
    uses.deploy(&config_map("a", "3")).await?;
    assert_eq!(uses.value("a").await?, "3");
    brings
        .deploy(&(definition(&brings) + &config_map("b", "1")))
        .await?;
    wait_until("it to be deployed", PATIENCE, async || {
        let done = uses.deploy(&with("4", 5)).await;
        done.map(drop).map_err(|error| release::error_chain(&error))
    })
    .await?;
    assert_eq!(
        uses.kubectl(&["get", &name, "beetle", "--output=jsonpath={.spec.doors}"])?,
        "5"
    );
    // And a removal does not need it either.
    brings.kubectl(&["delete", "crd", &name])?;
    brings.until_undefined().await?;
    for world in [&uses, &brings] {
        let spec = UninstallSpec::new("web", &world.namespace);
        release::uninstall(&world.cluster, &world.storage, &spec).await?;
        assert_eq!(world.history().await?, [""; 0]);
        assert_eq!(world.value("a").await?, "none");
    }
    Ok(())
}
