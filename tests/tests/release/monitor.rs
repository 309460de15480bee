//! Monitoring while others write: what is reported is of one moment.

use agent::api::ModifiedStatus;
use agent::controllers::bundle_deployment::observe::{self, FormerObjects, Live, View};
use agent::error;
use agent::summary::{ErrorMapping, IgnoredConditions};
use anyhow::Result;
use objects::Object;
use objects::drift::Rules;
use release::Cluster;
use release::kube::Owner;
use release::model::Release;
use serde_json::Value;
use testbed::fault_proxy::{FaultProxy, refusal};

use crate::world::{World, deployment};

const HASH: &str = "objectset.rio.cattle.io/hash";
const USER: &str = "agent-191";

/// A Deployment that is not visibly what the API server makes of it: `1000m` is stored as `1`.
fn manifest(world: &World) -> String {
    deployment("web", 1, "nginx").replacen(
        "metadata:\n",
        &format!("metadata:\n  labels: {{{HASH}: {}}}\n", world.namespace),
        1,
    ) + "        resources: {limits: {cpu: 1000m}}\n"
}

/// A monitor pass that stops between its list and its dry runs.
struct MonitorPass {
    world: World,
    release: Release,
    wanted: Vec<Object>,
    live: Live,
}

impl MonitorPass {
    async fn begin() -> Result<Self> {
        let world = World::as_user(USER).await?;
        let manifest = manifest(&world);
        Self::at(world, &manifest).await
    }

    async fn at(world: World, manifest: &str) -> Result<Self> {
        let release = world.deploy(manifest).await?.release;
        let wanted = observe::objects(&world.cluster, &release).await?.objects;
        let live = Live::read(&world.cluster, &world.namespace, &wanted, |_| ()).await?;
        Ok(Self {
            world,
            release: release.into_release(),
            wanted,
            live,
        })
    }

    /// What is reported in the end, each finding in a line.
    async fn end(self) -> Result<Vec<String>> {
        let (reported, problem) = self.end_after(&[]).await?;
        anyhow::ensure!(problem.is_none(), "{problem:?}");
        Ok(reported)
    }

    /// From now on dry runs are answered with this.
    async fn refuse(&mut self, refusal: Value) -> Result<()> {
        let proxy = FaultProxy::before(self.world.plane.kubeconfig_value(USER, "default")).await?;
        proxy.refuse(move |parts| {
            let is_dry_run = parts.uri.query().is_some_and(|q| q.contains("dryRun=All"));
            is_dry_run.then(|| refusal.clone())
        });
        let config = kube::Config::new(proxy.url().parse()?);
        self.world.cluster = Cluster::new(kube::Client::try_from(config)?);
        Ok(())
    }

    /// The same where `former` was reported before, and why that is not all.
    async fn end_after(
        mut self,
        former: &[ModifiedStatus],
    ) -> Result<(Vec<String>, Option<String>)> {
        let owner = Owner {
            name: self.release.name.clone(),
            namespace: self.release.namespace.clone(),
        };
        let cluster = &self.world.cluster;
        let (rules, mapping) = (Rules::default(), ErrorMapping::default());
        let differences = self
            .live
            .differences(cluster, &owner, &self.wanted, &rules, former)
            .await;
        let view = View {
            rules: &rules,
            owner: &owner,
            mapping: &mapping,
            ignored_conditions: IgnoredConditions::default(),
            now: k8s_openapi::jiff::Timestamp::now(),
        };
        let found = self.live.compare(
            &self.wanted,
            &[],
            &FormerObjects::new(),
            &differences,
            &view,
        );
        let reported = found.modified.iter().map(ToString::to_string);
        let reported = reported.map(|line| line.replace(&self.world.namespace, "NS"));
        let problem = differences.problem;
        Ok((
            reported.collect(),
            problem.map(|problem| error::chain(&problem)),
        ))
    }
}

/// Applies `change` to the Deployment the way a controller does that owns what it writes.
fn apply(world: &World, change: &str) -> Result<()> {
    let path = std::env::temp_dir().join(format!("{}-change.json", world.namespace));
    std::fs::write(&path, change)?;
    let file = path.to_string_lossy().into_owned();
    world.kubectl(&[
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=controller",
        "-f",
        &file,
    ])?;
    std::fs::remove_file(&path)?;
    Ok(())
}

/// What a controller writes between the list and the question is its own affair.
#[tokio::test]
async fn a_field_added_while_monitoring_is_no_drift() -> Result<()> {
    let sidecar =
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"sidecar","image":"x"}]}}}}"#;
    let writes: [&[&str]; 3] = [
        &[
            "annotate",
            "deployment/web",
            "controller.example.com/seen=1",
        ],
        &[
            "patch",
            "deployment/web",
            "-p",
            r#"{"spec":{"paused":true}}"#,
        ],
        &["patch", "deployment/web", "-p", sidecar],
    ];
    for write in writes {
        let pass = MonitorPass::begin().await?;
        pass.world.kubectl(write)?;
        assert_eq!(pass.end().await?, Vec::<String>::new(), "{write:?}");
    }
    Ok(())
}

/// A field that we want is drift all the same, in whatever order it was written, and what the controller added beside it is not.
#[tokio::test]
async fn an_edit_while_monitoring_is_the_only_drift_reported() -> Result<()> {
    let pass = MonitorPass::begin().await?;
    apply(
        &pass.world,
        r#"{"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "annotations": {"controller.example.com/seen": "1"}},
            "spec": {"template": {"spec": {"containers": [{"name": "main", "image": "other"}]}}}}"#,
    )?;
    let reported = pass.end().await?;
    let [line] = reported.as_slice() else {
        anyhow::bail!("{reported:?}");
    };
    assert!(
        line.starts_with("deployment.apps NS/web modified"),
        "{line}"
    );
    assert!(line.contains(r#""image":"nginx""#), "{line}");
    assert!(!line.contains("example.com"), "{line}");
    Ok(())
}

#[tokio::test]
async fn an_object_deleted_while_monitoring_is_missing() -> Result<()> {
    let taken = format!("{HASH}=other");
    let writes: [(&[&str], &str); 2] = [
        (&["delete", "deployment/web"], "missing"),
        (
            &["label", "deployment/web", "--overwrite", &taken],
            "is not owned by us",
        ),
    ];
    for (write, expected) in writes {
        let pass = MonitorPass::begin().await?;
        pass.world.kubectl(write)?;
        let expected = format!("deployment.apps NS/web {expected}");
        assert_eq!(pass.end().await?, [expected], "{write:?}");
    }
    Ok(())
}

/// An object of the same name that is not the one we saw.
#[tokio::test]
async fn an_object_replaced_while_monitoring_is_compared_as_it_is_now() -> Result<()> {
    let pass = MonitorPass::begin().await?;
    let world = &pass.world;
    let found = world.kubectl(&["get", "deployment/web", "-o", "json"])?;
    let mut found: Value = serde_json::from_str(&found)?;
    world.kubectl(&["delete", "deployment/web"])?;
    found["metadata"] = serde_json::json!({
        "name": "web", "labels": found["metadata"]["labels"],
        "annotations": {"controller.example.com/seen": "1"},
    });
    apply(world, &found.to_string())?;
    // It lacks what ties it to the release, nothing else.
    let reported = pass.end().await?;
    assert!(
        reported.len() == 1
            && reported[0].contains("meta.helm.sh/release-name")
            && !reported[0].contains("seen"),
        "{reported:?}"
    );
    Ok(())
}

/// A pass over an unchanged object is one dry run and no further read.
#[tokio::test]
async fn monitoring_an_unchanged_object_is_one_dry_run() -> Result<()> {
    let world = World::as_user(USER).await?;
    // Of a kind that no controller writes to.
    let manifest = format!(
        "apiVersion: v1\nkind: LimitRange\nmetadata: {{name: web, labels: {{{HASH}: {}}}}}\n\
         spec: {{limits: [{{type: Container, max: {{cpu: 1000m}}}}]}}\n",
        world.namespace
    );
    let pass = MonitorPass::at(world, &manifest).await?;
    let plane = pass.world.plane;
    let namespace = pass.world.namespace.clone();
    let mark = plane.audit().mark();
    assert_eq!(pass.end().await?, Vec::<String>::new());
    let mut requests = plane.audit().by_user(USER, mark)?;
    requests.retain(|request| request.namespace == namespace);
    let verbs: Vec<_> = requests.iter().map(|request| &*request.verb).collect();
    assert_eq!(verbs, ["patch"], "{requests:#?}");
    Ok(())
}

const EDIT: [&str; 4] = ["set", "image", "deployment/web", "main=edited"];

/// An API server that gives no verdict for now gives none: what was told before stays, and why it may be outdated is told too.
#[tokio::test]
async fn a_dry_run_that_fails_is_no_verdict() -> Result<()> {
    // What is asked again for a minute before that is told apart beside `ApiError::is_lasting`.
    let refusals = [(401, "Unauthorized"), (500, "InternalError")];
    for (code, reason) in refusals {
        let mut pass = MonitorPass::begin().await?;
        pass.refuse(refusal(code, reason, "not now")).await?;
        let (reported, problem) = pass.end_after(&[]).await?;
        assert_eq!(reported, Vec::<String>::new(), "{code}");
        let problem = problem.unwrap_or_default();
        assert!(
            problem.starts_with("failed to compare Deployment") && problem.ends_with("not now"),
            "{code}: {problem}"
        );
    }
    let mut pass = MonitorPass::begin().await?;
    pass.refuse(refusal(500, "InternalError", "not now"))
        .await?;
    let former = ModifiedStatus {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: pass.world.namespace.clone(),
        name: "web".to_owned(),
        patch: "{}".to_owned(),
        ..ModifiedStatus::default()
    };
    let (reported, _) = pass.end_after(&[former]).await?;
    assert_eq!(reported, ["deployment.apps NS/web modified {}"]);
    Ok(())
}

/// An API server that never says what it would make of an object leaves the fields that the chart names.
#[tokio::test]
async fn a_dry_run_that_is_refused_invents_no_drift() -> Result<()> {
    let refusals = [
        (
            400,
            "BadRequest",
            "admission webhook \"x\" denied the request",
        ),
        (403, "Forbidden", "cannot patch resource"),
        (422, "Invalid", "field is immutable"),
        (500, "", "failed to create typed patch object"),
    ];
    for (code, reason, message) in refusals {
        let mut pass = MonitorPass::begin().await?;
        pass.refuse(refusal(code, reason, message)).await?;
        assert_eq!(pass.end().await?, Vec::<String>::new(), "{code}");
    }
    let mut pass = MonitorPass::begin().await?;
    pass.world.kubectl(&EDIT)?;
    pass.live = Live::read(
        &pass.world.cluster,
        &pass.world.namespace,
        &pass.wanted,
        |_| (),
    )
    .await?;
    pass.refuse(refusal(422, "Invalid", "field is immutable"))
        .await?;
    let reported = pass.end().await?;
    assert!(
        reported.len() == 1 && reported[0].contains(r#""image":"nginx""#),
        "{reported:?}"
    );
    Ok(())
}
