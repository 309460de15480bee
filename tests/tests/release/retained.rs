//! Charts that contain, or drop, what their own objects live in: the release's namespace, the definition of a kind.

use std::sync::Arc;

use anyhow::{Context, Result};
use chart::{Chart, File};
use release::{DeployOptions, UninstallSpec};
use testbed::cluster::ADMIN;
use testbed::helm::Helm;

use crate::definitions::{car, definition, group};
use crate::doomed::Doomed;
use crate::forgeries::label;
use crate::proofs::with_digests;
use crate::world::{Template, World, config_map};

fn namespace(name: &str, team: &str) -> String {
    format!(
        "---\n# Source: web/templates/namespace.yaml\napiVersion: v1\nkind: Namespace\n\
         metadata: {{name: {name}, labels: {{team: {team}}}}}\n"
    )
}

impl World {
    /// A field of an object, as text.
    fn field(&self, object: &str, path: &str) -> Result<String> {
        let output = format!("--output=jsonpath={{{path}}}");
        self.kubectl(&["get", object, &output])
    }

    /// When the definition began to go; empty if it did not.
    fn end_of_definition(&self) -> Result<String> {
        let object = format!("crd/cars.{}", group(self));
        self.field(&object, ".metadata.deletionTimestamp")
    }

    fn team(&self) -> Result<String> {
        let object = format!("namespace/{}", self.namespace);
        self.field(&object, ".metadata.labels.team")
    }
}

/// helm creates the namespace first as well, and applies the chart's over it.
#[tokio::test]
async fn a_chart_may_contain_its_own_namespace() -> Result<()> {
    for other in [String::new(), config_map("a", "1")] {
        let world = World::new().await?;
        let with = |team: &str| namespace(&world.namespace, team) + &other;
        assert!(world.deploy(&with("red")).await?.changed);
        assert!(!world.deploy(&with("red")).await?.changed);
        assert_eq!(world.team()?, "red");
        world.deploy(&with("blue")).await?;
        assert_eq!(world.team()?, "blue");
        assert_eq!(world.history().await?, ["1 superseded", "2 deployed"]);
    }
    let world = World::new().await?;
    let home = std::env::temp_dir().join(format!("{}-home", world.namespace));
    let chart = home.join("web");
    std::fs::create_dir_all(chart.join("templates"))?;
    let metadata = "apiVersion: v2\nname: web\nversion: 1.0.0\n";
    std::fs::write(chart.join("Chart.yaml"), metadata)?;
    let manifest = namespace(&world.namespace, "red") + &config_map("a", "1");
    std::fs::write(chart.join("templates/all.yaml"), manifest)?;
    let [_, helm] = Helm::both(&world.plane.kubeconfig(ADMIN)?, &home)?;
    let chart = chart.to_string_lossy();
    let flags = ["--create-namespace", "--namespace", &world.namespace];
    helm.run(&[&["install", "web", &chart][..], &flags].concat())?;
    assert_eq!(world.team()?, "red");
    std::fs::remove_dir_all(&home)?;
    Ok(())
}

/// Cut off after each of its changes, it is finished by the next one.
#[tokio::test]
async fn a_namespace_of_the_chart_is_marked_when_it_is_created() -> Result<()> {
    const MANY: usize = 20;
    for last in 1..MANY {
        let world = World::new().await?;
        let doomed = Doomed::new(&world).await?;
        let manifest = namespace(&world.namespace, "red") + &config_map("a", "1");
        let template = Template::new(&manifest);
        let was_cut_off = doomed
            .deploy(&template, DeployOptions::default(), last)
            .await;
        let deployed = world.deploy(&manifest).await;
        deployed.with_context(|| format!("cut off after {last} changes"))?;
        assert_eq!(world.history().await?, ["1 deployed"], "{last}");
        assert_eq!(
            (world.team()?, world.value("a").await?),
            ("red".into(), "1".into())
        );
        if !was_cut_off {
            assert!(last > 4, "{last}");
            return Ok(());
        }
    }
    anyhow::bail!("it never ends")
}

/// Somebody else's namespace stays somebody else's.
#[tokio::test]
async fn an_existing_namespace_is_not_taken_over() -> Result<()> {
    let world = World::new().await?;
    world.kubectl(&["create", "namespace", &world.namespace])?;
    let manifest = namespace(&world.namespace, "red") + &config_map("a", "1");
    for _ in 0..2 {
        let refused = world.deploy(&manifest).await.unwrap_err();
        assert!(
            release::error_chain(&refused).contains("cannot be imported"),
            "{}",
            release::error_chain(&refused)
        );
    }
    assert_eq!(
        (world.team()?, world.value("a").await?),
        (String::new(), "none".into())
    );
    Ok(())
}

/// An upgrade without the namespace leaves it and everything in it, as does going back to one without it; the next ones too.
#[tokio::test]
async fn a_dropped_namespace_is_retained_while_objects_of_the_release_are_in_it() -> Result<()> {
    let world = World::new().await?;
    let other = format!("{}-other", world.namespace);
    let elsewhere = |value: &str| {
        config_map("b", value).replacen(
            "metadata:\n",
            &format!("metadata:\n  namespace: {other}\n"),
            1,
        )
    };
    let first = namespace(&world.namespace, "red") + &config_map("a", "1");
    world
        .deploy(&(first + &namespace(&other, "red") + &elsewhere("1")))
        .await?;
    let uid = |name: &str| world.field(&format!("namespace/{name}"), ".metadata.uid");
    let before = (uid(&world.namespace)?, uid(&other)?);
    let done = world
        .deploy(&(config_map("a", "2") + &elsewhere("2")))
        .await?;
    let left: Vec<&str> = done.retained.iter().map(|key| key.name.as_str()).collect();
    assert_eq!(left, [&world.namespace, &other]);
    for name in [&world.namespace, &other] {
        let phase = world.field(&format!("namespace/{name}"), ".status.phase")?;
        assert_eq!(phase, "Active");
    }
    assert_eq!((uid(&world.namespace)?, uid(&other)?), before);
    assert_eq!(world.value("a").await?, "2");
    // One that nothing is wanted in goes like any object.
    let empty = format!("{}-empty", world.namespace);
    world
        .deploy(&(config_map("a", "3") + &namespace(&empty, "red")))
        .await?;
    world.deploy(&config_map("a", "4")).await?;
    let get = [
        "get",
        "namespace",
        &empty,
        "--ignore-not-found",
        "--output=jsonpath={.status.phase}",
    ];
    assert_ne!(world.kubectl(&get)?, "Active");
    Ok(())
}

/// The usual way of a definition from `templates/` to `crds/`, or to another chart: the objects of its kind are the same as before.
#[tokio::test]
async fn a_dropped_definition_is_retained_while_its_kind_is_used() -> Result<()> {
    let world = World::new().await?;
    let beetle = format!("cars.{}/beetle", group(&world));
    world
        .deploy(&(definition(&world) + &car(&world, 2)))
        .await?;
    let uid = world.field(&beetle, ".metadata.uid")?;
    let done = world.deploy(&car(&world, 3)).await?;
    assert_eq!(done.retained.len(), 1, "{:?}", done.retained);
    assert_eq!(world.field(&beetle, ".metadata.uid")?, uid);
    assert_eq!(world.field(&beetle, ".spec.doors")?, "3");
    assert_eq!(world.end_of_definition()?, "");

    // Nothing of the kind is in the manifest, but the chart brings the definition: others have such objects.
    let world = World::new().await?;
    let beetle = format!("cars.{}/beetle", group(&world));
    world
        .deploy(&(definition(&world) + &config_map("a", "1")))
        .await?;
    world.create(&car(&world, 4)).await?;
    let mut template = Template::new(&config_map("a", "2"));
    let file = File::new("crds/cars.yaml", definition(&world).into_bytes());
    template.chart = Arc::new(Chart {
        files: vec![file].into(),
        ..(*template.chart).clone()
    });
    world
        .deploy_with(&template, DeployOptions::default())
        .await?;
    assert_eq!(world.field(&beetle, ".spec.doors")?, "4");
    assert_eq!(world.end_of_definition()?, "");
    Ok(())
}

/// A version without both, or the removal of the release, leaves what asks to be kept, and with it what would take it along: also where only the record
/// asks for that, and where the object was there before the release.
#[tokio::test]
async fn what_contains_a_kept_object_is_retained() -> Result<()> {
    let keep = "  annotations: {helm.sh/resource-policy: keep}\n";
    for goes_by_removal in [false, true] {
        for is_stored_only in [false, true] {
            let world = World::new().await?;
            let data = format!("{}-data", world.namespace);
            let claim = format!(
                "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata:\n  name: disk\n  namespace: {data}\n{keep}\
                 spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Mi}}}}}}\n"
            );
            let beetle = car(&world, 2).replace(
                "metadata: {name: beetle}\n",
                &format!("metadata:\n  name: beetle\n{keep}"),
            );
            let contained = claim + &definition(&world) + &beetle;
            let first = config_map("a", "1") + &namespace(&data, "red") + &contained;
            world.deploy(&first).await?;
            let car = format!("cars.{}/beetle", group(&world));
            if is_stored_only {
                let off = "helm.sh/resource-policy-";
                world.kubectl(&["annotate", &car, off])?;
                let claim = ["annotate", "--namespace", &data, "pvc/disk", off];
                world.kubectl(&claim)?;
            }
            match goes_by_removal {
                true => {
                    let spec = UninstallSpec::new("web", &world.namespace);
                    let done = release::uninstall(&world.cluster, &world.storage, &spec).await?;
                    assert_eq!(done.kept.len(), 4, "{:?}", done.kept);
                }
                false => {
                    let done = world.deploy(&config_map("a", "2")).await?;
                    assert_eq!(done.retained.len(), 4, "{:?}", done.retained);
                }
            }
            let phase = world.field(&format!("namespace/{data}"), ".status.phase")?;
            assert_eq!(phase, "Active", "{goes_by_removal} {is_stored_only}");
            assert_eq!(world.end_of_definition()?, "");
            assert_eq!(world.field(&car, ".spec.doors")?, "2");
            let claim = ["get", "pvc", "disk", "--namespace", &data];
            let deleted = "--output=jsonpath={.metadata.deletionTimestamp}";
            assert_eq!(world.kubectl(&[&claim[..], &[deleted]].concat())?, "");
        }
    }
    Ok(())
}

/// What the API server refuses once other objects of its version are written.
const REFUSED: &str =
    "---\napiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 0}]}\n";

/// What takes a namespace in which an attempt made an object that is to be kept.
#[derive(Clone, Copy, Debug)]
enum Taking {
    /// The removal, once somebody has written this status over that of the attempt, which lies below the deployed version.
    Removal(&'static str),
    /// The next version, once somebody has done so with the attempt, the last one.
    VersionAfter(&'static str),
    /// The version after one that was deployed since the attempt.
    LaterVersion,
}

/// Whatever the label of an attempt says: neither the removal nor a version without the namespace takes along what the attempt asked to keep in it.
#[tokio::test]
async fn a_namespace_outlives_the_label_of_an_attempt() -> Result<()> {
    for taking in [
        Taking::Removal("failed"),
        Taking::Removal("uninstalled"),
        Taking::Removal("superseded"),
        Taking::VersionAfter("uninstalled"),
        Taking::VersionAfter("superseded"),
        Taking::LaterVersion,
    ] {
        let (world, book, _) = with_digests().await?;
        let data = format!("{}-data", world.namespace);
        let with_namespace = config_map("a", "1") + &namespace(&data, "red");
        let kept = config_map("kept", "1").replacen(
            "metadata:\n",
            &format!(
                "metadata:\n  namespace: {data}\n  annotations: {{helm.sh/resource-policy: keep}}\n"
            ),
            1,
        );
        let attempt = [&with_namespace, &kept, REFUSED].concat();
        if let Taking::VersionAfter(_) = taking {
            world.deploy(&with_namespace).await?;
            book.own();
        }
        world.deploy(&attempt).await.unwrap_err();
        if let Taking::Removal(_) | Taking::LaterVersion = taking {
            world.deploy(&with_namespace).await?;
            book.own();
        }
        match taking {
            Taking::Removal(status) => label(&world, 1, status).await?,
            Taking::VersionAfter(status) => label(&world, 2, status).await?,
            Taking::LaterVersion => {}
        }
        let left = match taking {
            Taking::Removal(_) => {
                let spec = UninstallSpec::new("web", &world.namespace);
                release::uninstall(&world.cluster, &world.storage, &spec)
                    .await?
                    .kept
            }
            _ => world.deploy(&config_map("a", "2")).await?.retained,
        };
        let is_left = left.iter().any(|key| key.name == data);
        assert!(is_left, "{taking:?}: {left:?}");
        let phase = world.field(&format!("namespace/{data}"), ".status.phase")?;
        assert_eq!(phase, "Active", "{taking:?}");
        let kept = ["get", "configmap", "kept", "--namespace", &data];
        let value = "--output=jsonpath={.data.value}";
        assert_eq!(world.kubectl(&[&kept[..], &[value]].concat())?, "1");
    }
    Ok(())
}

/// What a version dropped may be there again, made by a controller or a person: nobody asks to keep that, and it goes with its namespace as whatever else is
/// in it.
#[tokio::test]
async fn what_a_former_version_had_holds_no_namespace() -> Result<()> {
    for goes_by_removal in [false, true] {
        let (world, book, _) = with_digests().await?;
        let data = format!("{}-data", world.namespace);
        let dropped = config_map("dropped", "1").replacen(
            "metadata:\n",
            &format!("metadata:\n  namespace: {data}\n"),
            1,
        );
        let with_namespace = config_map("a", "1") + &namespace(&data, "red");
        world.deploy(&(with_namespace.clone() + &dropped)).await?;
        book.own();
        world.deploy(&with_namespace).await?;
        world.kubectl(&["create", "configmap", "dropped", "--namespace", &data])?;
        if goes_by_removal {
            let spec = UninstallSpec::new("web", &world.namespace);
            let done = release::uninstall(&world.cluster, &world.storage, &spec).await?;
            assert!(done.kept.is_empty(), "{done:?}");
        } else {
            let done = world.deploy(&config_map("a", "2")).await?;
            assert!(done.retained.is_empty(), "{:?}", done.retained);
        }
        let phase = ["get", "namespace", &data, "--ignore-not-found"];
        let phase =
            world.kubectl(&[&phase[..], &["--output=jsonpath={.status.phase}"]].concat())?;
        assert!(["", "Terminating"].contains(&phase.as_str()), "{phase}");
    }
    Ok(())
}

/// What was there before the release, which had it for one version, stays with the namespace that it is in.
#[tokio::test]
async fn a_namespace_stays_with_what_a_former_version_found_in_it() -> Result<()> {
    for goes_by_removal in [false, true] {
        let (world, book, _) = with_digests().await?;
        let data = format!("{}-data", world.namespace);
        let found = config_map("found", "1").replacen(
            "metadata:\n",
            &format!("metadata:\n  namespace: {data}\n"),
            1,
        );
        let with_namespace = config_map("a", "1") + &namespace(&data, "red");
        world.deploy(&with_namespace).await?;
        book.own();
        world.kubectl(&["create", "configmap", "found", "--namespace", &data])?;
        world.deploy(&(with_namespace.clone() + &found)).await?;
        world.deploy(&with_namespace).await?;
        let left = if goes_by_removal {
            let spec = UninstallSpec::new("web", &world.namespace);
            release::uninstall(&world.cluster, &world.storage, &spec)
                .await?
                .kept
        } else {
            world.deploy(&config_map("a", "2")).await?.retained
        };
        assert!(left.iter().any(|key| key.name == data), "{left:?}");
        let phase = world.field(&format!("namespace/{data}"), ".status.phase")?;
        assert_eq!(phase, "Active", "{goes_by_removal}");
    }
    Ok(())
}

/// What an attempt found with the release's marks and took over is not the release's: it stays with the namespace that it is in, whoever takes that.
#[tokio::test]
async fn a_namespace_stays_with_what_a_former_attempt_took_over() -> Result<()> {
    for taking in [
        Taking::Removal("failed"),
        Taking::Removal("superseded"),
        Taking::LaterVersion,
    ] {
        let (world, book, _) = with_digests().await?;
        let deploy = async |manifest: &str| {
            let options = DeployOptions {
                max_history: 10,
                ..DeployOptions::default()
            };
            world.deploy_with(&Template::new(manifest), options).await
        };
        let data = format!("{}-data", world.namespace);
        let inside = format!("metadata:\n  namespace: {data}\n");
        let found = config_map("found", "1").replacen("metadata:\n", &inside, 1);
        let with_namespace = config_map("a", "1") + &namespace(&data, "red");
        deploy(&with_namespace).await?;
        book.own();
        let in_data = ["configmap", "found", "--namespace", &data];
        let kubectl =
            |verb: &str, rest: &[&str]| world.kubectl(&[&[verb], &in_data[..], rest].concat());
        kubectl("create", &[])?;
        kubectl("label", &["app.kubernetes.io/managed-by=Helm"])?;
        let home = format!("meta.helm.sh/release-namespace={}", world.namespace);
        kubectl("annotate", &["meta.helm.sh/release-name=web", &home])?;
        let attempt = [&with_namespace, &found, REFUSED].concat();
        deploy(&attempt).await.unwrap_err();
        let note = r"--output=jsonpath={.metadata.annotations.fleetagent\.cattle\.io/adopted}";
        let note = kubectl("get", &[note])?;
        assert_eq!(note, "handed-over");
        deploy(&with_namespace).await?;
        let left = match taking {
            Taking::Removal(status) => {
                label(&world, 2, status).await?;
                let spec = UninstallSpec::new("web", &world.namespace);
                release::uninstall(&world.cluster, &world.storage, &spec)
                    .await?
                    .kept
            }
            _ => deploy(&config_map("a", "2")).await?.retained,
        };
        assert!(
            left.iter().any(|key| key.name == data),
            "{taking:?}: {left:?}"
        );
        let phase = world.field(&format!("namespace/{data}"), ".status.phase")?;
        assert_eq!(phase, "Active", "{taking:?}");
    }
    Ok(())
}

/// With room for two records: a try that fails to drop a namespace keeps the record of what is to stay in it for the next one, of the same content or another.
#[tokio::test]
async fn a_try_that_fails_leaves_the_record_of_what_stays_in_a_namespace() -> Result<()> {
    for is_same in [true, false] {
        let (world, book, _) = with_digests().await?;
        let data = format!("{}-data", world.namespace);
        let missing = format!("{}-missing", world.namespace);
        let deploy = async |manifest: String| {
            let options = DeployOptions {
                max_history: 2,
                ..DeployOptions::default()
            };
            world.deploy_with(&Template::new(&manifest), options).await
        };
        let kept = config_map("kept", "1").replacen(
            "metadata:\n",
            &format!(
                "metadata:\n  namespace: {data}\n  annotations: {{helm.sh/resource-policy: keep}}\n"
            ),
            1,
        );
        let with_namespace = config_map("a", "1") + &namespace(&data, "red");
        deploy(with_namespace.clone() + &kept).await?;
        book.own();
        deploy(with_namespace).await?;
        let elsewhere = format!("metadata:\n  namespace: {missing}\n");
        let without =
            config_map("a", "2") + &config_map("b", "1").replacen("metadata:\n", &elsewhere, 1);
        deploy(without.clone()).await.unwrap_err();
        let left = if is_same {
            world.kubectl(&["create", "namespace", &missing])?;
            deploy(without).await?.retained
        } else {
            deploy(config_map("a", "3")).await?.retained
        };
        assert!(
            left.iter().any(|key| key.name == data),
            "{is_same}: {left:?}"
        );
        let phase = world.field(&format!("namespace/{data}"), ".status.phase")?;
        assert_eq!(phase, "Active", "{is_same}");
        // It goes once that is deployed; with the next one where the attempt's own record was there already.
        if is_same {
            deploy(config_map("a", "4")).await?;
        }
        assert_eq!(world.history().await?.len(), 2, "{is_same}");
    }
    Ok(())
}
