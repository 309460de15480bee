//! Our releases in helm's hands, and helm's in ours.

use anyhow::Result;
use release::UninstallSpec;
use release::model::{ApplyMethod, Status};
use testbed::cluster::ADMIN;
use testbed::helm::Helm;

use crate::world::{World, config_map};

fn helms(world: &World) -> Result<[Helm; 2]> {
    let home = std::env::temp_dir().join(&world.namespace);
    std::fs::create_dir_all(&home)?;
    Helm::both(&world.plane.kubeconfig(ADMIN)?, &home)
}

#[tokio::test]
async fn helm_reads_rolls_back_and_removes_our_releases() -> Result<()> {
    let world = World::new().await?;
    // Helm 4 applies under another name than ours, and asks before it takes fields from a manager.
    let takes: [&[&str]; 2] = [&[], &["--force-conflicts"]];
    for (helm, takes) in helms(&world)?.into_iter().zip(takes) {
        let namespace = ["--namespace", world.namespace.as_str()];
        let ask = |arguments: &[&str]| helm.run(&[arguments, &namespace].concat());
        let (one, two) = (config_map("a", "1"), config_map("a", "2"));
        world.deploy(&one).await?;
        world.deploy(&two).await?;
        let list = helm.json(&[&["list"][..], &namespace].concat())?;
        assert_eq!(list[0]["name"], "web");
        assert_eq!(list[0]["revision"], "2");
        assert_eq!(list[0]["chart"], "web-1.0.0");
        assert_eq!(ask(&["get", "manifest", "web"])?.trim_end(), two.trim_end());
        let history = helm.json(&[&["history", "web"][..], &namespace].concat())?;
        assert_eq!(history[0]["status"], "superseded");
        assert_eq!(history[1]["description"], "Upgrade complete");
        ask(&[&["rollback", "web", "1"], takes].concat())?;
        assert_eq!(world.config_map("a").await?.unwrap()["data"]["value"], "1");
        // And what helm left is ours to go on from.
        let done = world.deploy(&two).await?;
        assert_eq!(done.release.revision, 4);
        assert_eq!(world.config_map("a").await?.unwrap()["data"]["value"], "2");
        ask(&["uninstall", "web"])?;
        assert!(world.config_map("a").await?.is_none());
    }
    Ok(())
}

#[tokio::test]
async fn we_upgrade_and_remove_helms_releases() -> Result<()> {
    for (index, applied) in [(0, ApplyMethod::Unset), (1, ApplyMethod::ServerSide)] {
        let world = World::new().await?;
        let helm = &helms(&world)?[index];
        let chart = std::env::temp_dir().join(format!("{}-chart", world.namespace));
        std::fs::create_dir_all(chart.join("templates"))?;
        std::fs::write(
            chart.join("Chart.yaml"),
            "apiVersion: v2\nname: web\nversion: 1.0.0\n",
        )?;
        let template = config_map("a", "1") + "  dropped: \"yes\"\n" + &config_map("b", "1");
        std::fs::write(chart.join("templates/all.yaml"), template)?;
        let path = chart.to_string_lossy();
        let namespace = ["--namespace", &world.namespace, "--create-namespace"];
        helm.run(&[&["install", "web", &path][..], &namespace].concat())?;
        std::fs::remove_dir_all(&chart)?;

        let theirs = release::get(&world.storage, "web", None).await?;
        assert_eq!(theirs.status(), Status::Deployed);
        assert_eq!(theirs.apply_method, applied);
        let done = world.deploy(&config_map("a", "2")).await?;
        assert_eq!(done.release.revision, 2);
        let live = world.config_map("a").await?.unwrap();
        assert_eq!(
            live["data"],
            serde_json::json!({"value": "2"}),
            "dropped fields go"
        );
        assert!(world.config_map("b").await?.is_none());
        let spec = UninstallSpec::new("web", &world.namespace);
        release::uninstall(&world.cluster, &world.storage, &spec).await?;
        assert!(world.config_map("a").await?.is_none());
    }
    Ok(())
}
