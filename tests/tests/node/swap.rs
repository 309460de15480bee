//! From Fleet's agent to ours and back, for all clusters and for one of them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testbed::bed::unique;
use testbed::chart::Chart;
use testbed::fleet::stock::{AGENT_IMAGE, CLUSTERS_NAMESPACE, SYSTEM_NAMESPACE};
use testbed::node::PAUSE;

use crate::installed::downstream_helm;
use testbed::node::bed::{CANARY, CHARTS, NodeBed, OURS, REGISTRY};
use testbed::node::managed_cluster::{Agent, ManagedCluster};

/// Whose uids are held against each other.
const KINDS: [(&str, &str); 6] = [
    ("v1", "ConfigMap"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("apps/v1", "Deployment"),
    ("v1", "Secret"),
    ("batch/v1", "Job"),
];
const OF_EACH_KIND: usize = 5;

/// Names the image of all agents as an administrator does: a value of the chart `fleet`. Each agent then replaces itself.
async fn name_image(bed: &NodeBed, image: &str) -> Result<()> {
    let (repository, tag) = image.split_once(':').context("a tag")?;
    let setting = format!("--set=agentImage.repository={repository},agentImage.tag={tag}");
    let upgrade = [
        "upgrade",
        "fleet",
        "fleet/fleet",
        "--namespace",
        SYSTEM_NAMESPACE,
        "--reuse-values",
        &setting,
    ];
    bed.fleet.helm.run(&upgrade).map(drop)
}

/// Fleet writes the bundles of agents anew when something about the namespace of their clusters changes, as docs/install.md says.
async fn touch(site: &ManagedCluster, word: &str) -> Result<()> {
    let namespaces = testbed::objects::api(&site.upstream, "v1", "Namespace", "");
    let patch = json!({ "metadata": { "annotations": { "agent-image": word } } });
    let patch = kube::api::Patch::Merge(patch);
    let params = kube::api::PatchParams::default();
    namespaces
        .patch(CLUSTERS_NAMESPACE, &params, &patch)
        .await?;
    Ok(())
}

/// Thirty bundles: manifests, charts within the bundle, kustomizations, HelmOps from a repository and from a registry, hooks.
async fn deploy_all_kinds(site: &ManagedCluster, prefix: &str) -> Result<Vec<String>> {
    let bed = site.bed;
    let chart = Chart::small(&format!("{prefix}-chart"), "1.0.0");
    bed.repository.add(&chart)?;
    bed.registry.push(&chart).await?;
    let reference = format!("oci://{REGISTRY}/charts/{}", chart.name());
    site.upstream_object(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "registry-access" },
        "stringData": { "basicHTTP": "true" },
    }))
    .await?;
    let text = |text: String| text.into_bytes();
    let map = |name: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  from: {prefix}\n"
        )
    };
    let mut names = Vec::new();
    for number in 0..OF_EACH_KIND {
        let name = |kind: &str| format!("{prefix}-{kind}-{number}");
        let values = json!({ "image": PAUSE, "replicas": usize::from(number == 0) });

        let manifest = name("manifest");
        let files = [("map.yaml".to_owned(), text(map(&manifest)))];
        site.bundle(&manifest, &files, |_| ()).await?;

        let within = name("chart");
        let files: Vec<(String, Vec<u8>)> = chart
            .files()
            .iter()
            .map(|(path, content)| (format!("chart/{path}"), content.clone()))
            .collect();
        site.bundle(&within, &files, |bundle| {
            bundle["spec"]["helm"] =
                json!({ "chart": "chart", "releaseName": within, "values": values });
            bundle["spec"]["correctDrift"] = json!({ "enabled": true });
        })
        .await?;

        let kustomized = name("kustomized");
        let kustomization = format!("namePrefix: {kustomized}-\nresources: [map.yaml]\n");
        let files = [
            ("kustomization.yaml".to_owned(), text(kustomization)),
            ("map.yaml".to_owned(), text(map("map"))),
        ];
        site.bundle(&kustomized, &files, |bundle| {
            bundle["spec"]["kustomize"] = json!({ "dir": "." });
        })
        .await?;

        let pulled = name("pulled");
        let helm = json!({
            "repo": CHARTS, "chart": chart.name(), "version": "1.0.0", "releaseName": pulled, "values": values,
        });
        site.helm_op(&pulled, helm, |_| ()).await?;

        let oci = name("oci");
        let helm = json!({
            "repo": reference, "version": "1.0.0", "releaseName": oci, "values": values,
        });
        site.helm_op(&oci, helm, |helm_op| {
            helm_op["spec"]["helmSecretName"] = json!("registry-access");
        })
        .await?;

        let hooked = name("hooked");
        let hook = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-hook\n  annotations:\n    helm.sh/hook: pre-install,pre-upgrade\n    helm.sh/hook-delete-policy: before-hook-creation\n";
        let files: Vec<(String, Vec<u8>)> = Chart::new(&hooked, "1.0.0")
            .template("hook.yaml", hook)
            .template(
                "map.yaml",
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n",
            )
            .files()
            .iter()
            .map(|(path, content)| (format!("chart/{path}"), content.clone()))
            .collect();
        site.bundle(&hooked, &files, |bundle| {
            bundle["spec"]["helm"] = json!({ "chart": "chart", "releaseName": hooked });
        })
        .await?;
        names.extend([manifest, within, kustomized, pulled, oci, hooked]);
    }
    Ok(names)
}

/// The revisions that helm knows, by release.
fn revisions(site: &ManagedCluster) -> Result<BTreeMap<String, Vec<u64>>> {
    let helm = downstream_helm(site.bed)?;
    let namespace = site.target();
    let into = ["--namespace", namespace.as_str()];
    let releases = helm.json(&[&["list", "--max", "1000"], &into[..]].concat())?;
    let mut revisions = BTreeMap::new();
    for release in releases.as_array().context("no list")? {
        let name = release["name"].as_str().context("no name")?;
        let history = helm.json(&[&["history", name], &into[..]].concat())?;
        let numbers = history.as_array().context("no history")?.iter();
        let numbers = numbers.filter_map(|one| one["revision"].as_u64()).collect();
        revisions.insert(name.to_owned(), numbers);
    }
    Ok(revisions)
}

/// What must not change: objects of the bundles keep their uids, and releases their revisions.
struct Kept {
    uids: BTreeMap<String, String>,
    revisions: BTreeMap<String, Vec<u64>>,
}

impl Kept {
    async fn of(site: &ManagedCluster) -> Result<Self> {
        let mut uids = site.uids(&KINDS).await?;
        // A revision's record is counted below; a hook's object is meant to be made anew.
        uids.retain(|name, _| !name.contains("sh.helm.release") && !name.ends_with("-hook"));
        Ok(Self {
            uids,
            revisions: revisions(site)?,
        })
    }

    async fn holds(&self, site: &ManagedCluster, when: &str) -> Result<()> {
        let now = Self::of(site).await?;
        ensure!(
            now.uids == self.uids,
            "{when}: {:?}\nwas {:?}",
            now.uids,
            self.uids
        );
        for (release, known) in &self.revisions {
            let now = now.revisions.get(release).cloned().unwrap_or_default();
            let has_all = known.iter().all(|revision| now.contains(revision));
            ensure!(has_all, "{when}: {release} had {known:?}, has {now:?}");
        }
        Ok(())
    }
}

/// Waits until the agent that runs now has said so, and has put right what somebody did to one of its objects.
async fn works(
    site: &ManagedCluster,
    seen: &str,
    prefix: &str,
    names: &[String],
) -> Result<String> {
    let seen = site.seen_after(seen).await?;
    for name in names {
        site.ready(name).await?;
    }
    let victim = format!("{prefix}-chart-1");
    let maps = testbed::objects::api(&site.downstream, "v1", "ConfigMap", &site.target());
    let edit = kube::api::Patch::Merge(json!({ "data": { "greeting": "somebody was here" } }));
    maps.patch(&victim, &kube::api::PatchParams::default(), &edit)
        .await?;
    site.wait("the edit to be put right", async || {
        let map = maps.get(&victim).await?;
        ensure!(map.data["data"]["greeting"] == "hello", "{}", map.data);
        Ok(())
    })
    .await?;
    Ok(seen)
}

#[tokio::test]
#[ignore = "needs a real node: make test-node"]
async fn thirty_bundles_survive_the_swap_and_the_way_back() -> Result<()> {
    let site = ManagedCluster::managed(Agent::Stock, |_, _| ()).await?;
    site.runs(AGENT_IMAGE).await?;
    let prefix = unique("kind");
    let names = deploy_all_kinds(&site, &prefix).await?;
    for name in &names {
        site.ready(name).await?;
    }
    ensure!(names.len() == 30);
    let kept = Kept::of(&site).await?;
    ensure!(kept.revisions.len() == names.len(), "{:?}", kept.revisions);
    let seen = site.seen_after("").await?;

    name_image(site.bed, OURS).await?;
    touch(&site, "ours").await?;
    site.runs(OURS).await?;
    let seen = works(&site, &seen, &prefix, &names).await?;
    kept.holds(&site, "with our agent").await?;
    // A change that only our agent sees makes a revision that the other one has to read.
    change(&site, &format!("{prefix}-pulled-1"), 2).await?;

    name_image(site.bed, AGENT_IMAGE).await?;
    touch(&site, "stock").await?;
    site.runs(AGENT_IMAGE).await?;
    works(&site, &seen, &prefix, &names).await?;
    kept.holds(&site, "with Fleet's agent again").await?;
    change(&site, &format!("{prefix}-pulled-1"), 0).await?;
    let all = revisions(&site)?;
    // Either agent goes on where the other one ended, and both keep two revisions.
    ensure!(all[&format!("{prefix}-pulled-1")] == [2, 3], "{all:?}");
    site.end().await
}

/// Changes a value of a HelmOp and waits until it is deployed.
async fn change(site: &ManagedCluster, name: &str, replicas: u64) -> Result<()> {
    let helm_ops = testbed::objects::api(
        &site.upstream,
        "fleet.cattle.io/v1alpha1",
        "HelmOp",
        CLUSTERS_NAMESPACE,
    );
    let patch = json!({ "spec": { "helm": { "values": { "replicas": replicas } } } });
    let patch = kube::api::Patch::Merge(patch);
    helm_ops
        .patch(name, &kube::api::PatchParams::default(), &patch)
        .await?;
    site.wait("the change to be deployed", async || {
        let deployment = site
            .deployed("apps/v1", "Deployment", name)
            .await?
            .context("no Deployment")?;
        ensure!(
            deployment["spec"]["replicas"] == replicas,
            "{}",
            deployment["spec"]
        );
        Ok(())
    })
    .await?;
    site.ready(name).await.map(drop)
}

/// One of three: the others keep their agent and their pods, and one bundle for all of them is deployed by either.
#[tokio::test]
#[ignore = "needs a real node: make test-node"]
async fn one_cluster_of_three_tries_our_image() -> Result<()> {
    let group = unique("ring");
    let mut sites = Vec::new();
    for _ in 0..3 {
        let site = ManagedCluster::managed(Agent::Stock, |_, _| ()).await?;
        sites.push(site);
    }
    let uids = async |site: &ManagedCluster| -> Result<Vec<Option<String>>> {
        let pods = site.pods().await?;
        Ok(pods.into_iter().map(|pod| pod.metadata.uid).collect())
    };
    let mut before = Vec::new();
    for site in &sites {
        site.runs(AGENT_IMAGE).await?;
        before.push(uids(site).await?);
    }
    let bundle = async |greeting: &str| -> Result<()> {
        let map = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {group}\ndata:\n  greeting: {greeting}\n"
        );
        let files = [("map.yaml".to_owned(), map.into_bytes())];
        sites[0]
            .bundle(&group, &files, |bundle| {
                let spec = &mut bundle["spec"];
                // One cluster plays all three: each agent has a namespace of its own for the object.
                spec["defaultNamespace"] = Value::Null;
                spec["targets"] = sites
                    .iter()
                    .map(|site| json!({ "clusterName": site.name, "defaultNamespace": site.target() }))
                    .collect();
            })
            .await?;
        for site in &sites {
            site.wait("the greeting", async || {
                let map = site.deployed("v1", "ConfigMap", &group).await?;
                let map = map.context("no ConfigMap")?;
                ensure!(map["data"]["greeting"] == greeting, "{map}");
                Ok(())
            })
            .await?;
            site.ready(&group).await?;
        }
        Ok(())
    };
    bundle("first").await?;
    sites[1]
        .patch_cluster(json!({ "spec": { "privateRepoURL": CANARY } }))
        .await?;
    sites[1].runs(&format!("{CANARY}/{AGENT_IMAGE}")).await?;
    bundle("second").await?;
    for number in [0, 2] {
        sites[number].runs(AGENT_IMAGE).await?;
        ensure!(
            uids(&sites[number]).await? == before[number],
            "the pods of {number} were replaced"
        );
    }
    // Going back is to name no registry.
    sites[1]
        .patch_cluster(json!({ "spec": { "privateRepoURL": "" } }))
        .await?;
    sites[1].runs(AGENT_IMAGE).await?;
    bundle("third").await?;
    for site in sites {
        site.end().await?;
    }
    Ok(())
}
