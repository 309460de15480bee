//! What upstream wants of a bundle, in the small world of the simulation: few names, so that bundles meet.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::apiserver::Id;
use crate::controllers::{BEHAVIOUR, GUARD};
use crate::random::Random;

/// Where the agent lives.
pub const SYSTEM: &str = "cattle-fleet-system";
/// Where upstream keeps this cluster's BundleDeployments.
pub const CLUSTER: &str = "cluster-fleet-default-c1";
/// Namespaces that releases go to.
pub const NAMESPACES: [&str; 2] = ["apps", "data"];
/// Bundles there may be.
pub const BUNDLES: usize = 4;
/// The accounts bundles may name; the first is none.
pub const ACCOUNTS: [&str; 3] = ["", "deployer", "other"];
/// Name and version of every bundle's chart.
pub const CHART: &str = "shop";
pub const VERSION: &str = "1.0.0";
/// What every secret value begins with.
pub const CANARY: &str = "canary-";

/// One object of a chart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Manifest {
    pub kind: ObjectKind,
    pub name: u8,
    /// What is written into it.
    pub value: u8,
    pub behaviour: Behaviour,
}

/// Kinds of manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    ConfigMap,
    Secret,
    Deployment,
    Service,
    /// A job that runs before installs and upgrades, or after them.
    PreHook,
    PostHook,
    /// A job that runs before the release goes.
    DeleteHook,
    /// A custom kind, as long as somebody defines it.
    Widget,
}

/// What becomes of a manifest once it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Behaviour {
    Ready,
    /// Its pods never come up, or its job fails.
    Fails,
    /// The API server refuses it.
    Refused,
    /// Its chart gives it a finalizer, which a controller takes off long after it is deleted.
    Guarded,
}

/// Where a bundle's chart comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The bundle's own Content.
    Content,
    /// A chart repository.
    Repository,
    /// A registry.
    Registry,
}

impl ObjectKind {
    pub(crate) const ALL: [Self; 8] = [
        Self::ConfigMap,
        Self::Secret,
        Self::Deployment,
        Self::Service,
        Self::PreHook,
        Self::PostHook,
        Self::DeleteHook,
        Self::Widget,
    ];
    /// Those that every cluster serves.
    pub(crate) const BUILT_IN: [Self; 7] = [
        Self::ConfigMap,
        Self::Secret,
        Self::Deployment,
        Self::Service,
        Self::PreHook,
        Self::PostHook,
        Self::DeleteHook,
    ];
    /// Those of them that are no hooks.
    pub(crate) const PLAIN: [Self; 4] = [
        Self::ConfigMap,
        Self::Secret,
        Self::Deployment,
        Self::Service,
    ];

    /// What the names of its objects begin with.
    pub(crate) fn letter(self) -> char {
        match self {
            Self::ConfigMap => 'c',
            Self::Secret => 's',
            Self::Deployment => 'd',
            Self::Service => 'v',
            Self::PreHook => 'p',
            Self::PostHook => 'q',
            Self::DeleteHook => 'r',
            Self::Widget => 'w',
        }
    }

    pub(crate) fn plural(self) -> (&'static str, &'static str) {
        match self {
            Self::ConfigMap => ("", "configmaps"),
            Self::Secret => ("", "secrets"),
            Self::Service => ("", "services"),
            Self::Deployment => ("apps", "deployments"),
            Self::Widget => ("example.com", "widgets"),
            Self::PreHook | Self::PostHook | Self::DeleteHook => ("batch", "jobs"),
        }
    }

    /// Whether it is a hook.
    pub fn is_hook(self) -> bool {
        matches!(self, Self::PreHook | Self::PostHook | Self::DeleteHook)
    }
}

impl Manifest {
    /// Name of the object.
    pub fn object_name(&self) -> String {
        let letter = self.kind.letter();
        format!("{letter}{}", self.name)
    }

    /// Its place in a namespace.
    pub fn id(&self, namespace: &str) -> Id {
        let (group, plural) = self.kind.plural();
        Id::new(group, plural, namespace, &self.object_name())
    }

    /// The object as the chart has it.
    pub fn object(&self) -> Value {
        let name = self.object_name();
        let value = format!("v{}", self.value);
        let behaviour = match self.behaviour {
            Behaviour::Fails => "fails",
            _ => "ready",
        };
        let mut object = match self.kind {
            ObjectKind::ConfigMap => json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                "data": {"value": value, "same": "1"},
            }),
            ObjectKind::Secret => json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
                "stringData": {"password": format!("{CANARY}{name}-{value}")},
            }),
            ObjectKind::Service => json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
                "spec": {"ports": [{"port": 80 + u32::from(self.value)}], "selector": {"app": name}},
            }),
            ObjectKind::Deployment => json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
                "spec": {
                    "replicas": 1, "selector": {"matchLabels": {"app": name}},
                    "template": {
                        "metadata": {"labels": {"app": name}, "annotations": {BEHAVIOUR: behaviour}},
                        "spec": {"containers": [{"name": "main", "image": format!("image:{value}")}]},
                    },
                },
            }),
            ObjectKind::Widget => json!({
                "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name},
                "spec": {"value": value},
            }),
            ObjectKind::PreHook | ObjectKind::PostHook | ObjectKind::DeleteHook => {
                let (events, policy) = match self.kind {
                    ObjectKind::PreHook => ("pre-install,pre-upgrade", "before-hook-creation"),
                    ObjectKind::PostHook => ("post-install,post-upgrade", "hook-succeeded"),
                    _ => ("pre-delete", "before-hook-creation,hook-succeeded"),
                };
                json!({
                    "apiVersion": "batch/v1", "kind": "Job",
                    "metadata": {"name": name, "annotations": {
                        "helm.sh/hook": events, "helm.sh/hook-delete-policy": policy, BEHAVIOUR: behaviour}},
                    "spec": {"template": {"spec": {
                        "restartPolicy": "Never",
                        "containers": [{"name": "main", "image": format!("image:{value}")}]}}},
                })
            }
        };
        if self.behaviour == Behaviour::Refused {
            let field = match self.kind {
                ObjectKind::ConfigMap | ObjectKind::Secret => "data",
                _ => "spec",
            };
            object[field]["refuse"] = "true".into();
        }
        if self.behaviour == Behaviour::Guarded {
            object["metadata"]["finalizers"] = json!([GUARD]);
        }
        object
    }
}

/// What upstream wants of one bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    pub namespace: usize,
    /// Which of the release names; names are shared, so that bundles want the same.
    pub release: u8,
    pub manifests: BTreeSet<Manifest>,
    pub take_ownership: bool,
    pub atomic: bool,
    pub force: bool,
    pub correct_drift: bool,
    pub keep_resources: bool,
    pub account: usize,
    pub namespace_label: Option<u8>,
    /// Secrets that are copied downstream.
    pub copies: BTreeSet<u8>,
    pub max_history: u8,
    /// Counts force syncs.
    pub sync: i64,
    /// The Content is not there, and the options name a chart that is no part of it.
    pub is_missing: bool,
    /// Where its chart comes from, unless it is missing.
    pub origin: Origin,
    /// Whether its chart has the definition of widgets, which is made where it is missing and deleted with nothing.
    pub defines: bool,
}

impl Desired {
    /// A desired as chance has it.
    pub fn draw(random: &mut Random, bundle: usize) -> Self {
        let mut manifests = BTreeSet::new();
        for _ in 0..random.between(1, 3) {
            put(&mut manifests, draw_manifest(random, bundle));
        }
        Self {
            namespace: random.index(NAMESPACES.len()),
            // Mostly a name of its own.
            release: match random.chance(80) {
                true => u8::try_from(bundle).unwrap_or(0),
                false => u8::try_from(random.index(BUNDLES)).unwrap_or(0),
            },
            manifests,
            take_ownership: random.chance(30),
            atomic: random.chance(30),
            force: random.chance(15),
            correct_drift: random.chance(60),
            keep_resources: random.chance(10),
            account: random.index(ACCOUNTS.len()),
            namespace_label: random.chance(25).then(|| u8::try_from(bundle).unwrap_or(0)),
            copies: (0..2).filter(|_| random.chance(30)).collect(),
            max_history: *random.pick(&[0, 2, 3]),
            sync: 0,
            is_missing: false,
            origin: match random.below(10) {
                0 => Origin::Repository,
                1 => Origin::Registry,
                _ => Origin::Content,
            },
            defines: false,
        }
    }

    /// Some objects in a release, and no options.
    pub fn of(namespace: usize, release: u8, manifests: BTreeSet<Manifest>) -> Self {
        Self {
            namespace,
            release,
            manifests,
            take_ownership: false,
            atomic: false,
            force: false,
            correct_drift: false,
            keep_resources: false,
            account: 0,
            namespace_label: None,
            copies: BTreeSet::new(),
            max_history: 0,
            sync: 0,
            is_missing: false,
            origin: Origin::Content,
            defines: false,
        }
    }

    /// The same bundle, changed a little.
    pub fn change(&self, random: &mut Random, bundle: usize) -> Self {
        let mut next = self.clone();
        for _ in 0..random.between(1, 2) {
            match random.below(14) {
                0..=3 => {
                    // Another value in one of the objects.
                    let manifests: Vec<_> = next.manifests.iter().cloned().collect();
                    let old = random.pick(&manifests).clone();
                    next.manifests.remove(&old);
                    next.manifests.insert(Manifest {
                        value: u8::try_from(random.below(4)).unwrap_or(0),
                        ..old
                    });
                }
                4 | 12 => {
                    put(&mut next.manifests, draw_manifest(random, bundle));
                }
                5 | 13 => {
                    let manifests: Vec<_> = next.manifests.iter().cloned().collect();
                    if manifests.len() > 1 {
                        next.manifests.remove(random.pick(&manifests));
                    }
                }
                6 | 7 => {
                    let manifests: Vec<_> = next.manifests.iter().cloned().collect();
                    let old = random.pick(&manifests).clone();
                    next.manifests.remove(&old);
                    let behaviour =
                        *random.pick(&[Behaviour::Ready, Behaviour::Fails, Behaviour::Refused]);
                    next.manifests.insert(Manifest { behaviour, ..old });
                }
                8 => next.take_ownership = !next.take_ownership,
                9 => next.sync += 1,
                10 => match random.below(4) {
                    0 => next.release = u8::try_from(random.index(BUNDLES)).unwrap_or(0),
                    1 => next.namespace = random.index(NAMESPACES.len()),
                    2 => next.atomic = !next.atomic,
                    _ => next.correct_drift = !next.correct_drift,
                },
                _ => next.copies = (0..2).filter(|_| random.chance(40)).collect(),
            }
        }
        next
    }

    /// Name of its release.
    pub fn release_name(&self) -> String {
        format!("r{}", self.release)
    }

    /// Namespace of its release.
    pub fn release_namespace(&self) -> &'static str {
        NAMESPACES[self.namespace]
    }

    /// The places of its objects, hooks left out.
    pub fn ids(&self) -> impl Iterator<Item = Id> + '_ {
        let plain = self
            .manifests
            .iter()
            .filter(|manifest| !manifest.kind.is_hook());
        plain.map(|manifest| manifest.id(self.release_namespace()))
    }

    /// Whether a hook of its has the finalizer that goes late.
    pub fn has_guarded_hook(&self) -> bool {
        let mut hooks = self.manifests.iter().filter(|one| one.kind.is_hook());
        hooks.any(|one| one.behaviour == Behaviour::Guarded)
    }

    /// The Content: its name and object.
    pub fn content(&self) -> (String, Value) {
        content_of(self.files())
    }

    /// The files of its chart.
    fn files(&self) -> impl Iterator<Item = (String, String)> {
        let templates = self.manifests.iter().map(|manifest| {
            let name = format!("templates/{}.yaml", manifest.object_name());
            (name, manifest.object().to_string())
        });
        let chart = format!("apiVersion: v2\nname: {CHART}\nversion: {VERSION}\n");
        let defined = self.defines.then(|| {
            let name = "crds/widgets.yaml".to_owned();
            (name, definition().to_string())
        });
        templates
            .chain([("Chart.yaml".to_owned(), chart)])
            .chain(defined)
    }

    /// The chart as a repository has it: under which name, and the archive.
    pub fn archive(&self) -> (String, Vec<u8>) {
        let files: Vec<_> = self
            .files()
            .map(|(name, text)| (format!("{CHART}/{name}"), text))
            .collect();
        let name = hash(&format!("{files:?}"))[..16].to_owned();
        (name, packed(&files))
    }

    /// The BundleDeployment's spec.
    pub fn spec(&self, generation: i64) -> Value {
        let is_fetched = self.origin != Origin::Content && !self.is_missing;
        let content = match is_fetched {
            true => String::new(),
            false => self.content().0,
        };
        let mut helm = Map::new();
        helm.insert("releaseName".to_owned(), self.release_name().into());
        helm.insert("timeoutSeconds".to_owned(), 5.into());
        for (name, is_set) in [
            ("takeOwnership", self.take_ownership),
            ("atomic", self.atomic),
            ("force", self.force),
        ] {
            if is_set {
                helm.insert(name.to_owned(), true.into());
            }
        }
        if self.max_history != 0 {
            helm.insert("maxHistory".to_owned(), self.max_history.into());
        }
        if self.is_missing {
            helm.insert("repo".to_owned(), "https://charts".into());
            helm.insert("chart".to_owned(), "other".into());
        }
        if is_fetched {
            let (name, _) = self.archive();
            helm.insert("version".to_owned(), VERSION.into());
            if self.origin == Origin::Repository {
                helm.insert("repo".to_owned(), format!("https://charts/{name}").into());
                helm.insert("chart".to_owned(), CHART.into());
            } else {
                let address = format!("oci://registry/{name}/{CHART}");
                helm.insert("repo".to_owned(), address.into());
            }
        }
        let mut options = json!({
            "defaultNamespace": self.release_namespace(), "helm": helm,
        });
        if self.account != 0 {
            options["serviceAccount"] = ACCOUNTS[self.account].into();
        }
        if self.keep_resources {
            options["keepResources"] = true.into();
        }
        if self.sync != 0 {
            options["forceSyncGeneration"] = self.sync.into();
        }
        if let Some(label) = self.namespace_label {
            options["namespaceLabels"] = json!({format!("team{label}"): "yes"});
        }
        if !self.copies.is_empty() {
            let copies = self.copies.iter();
            let copies =
                copies.map(|copy| json!({"kind": "Secret", "name": format!("pull{copy}")}));
            options["downstreamResources"] = copies.collect();
        }
        if self.correct_drift {
            options["correctDrift"] = json!({"enabled": true});
        }
        let hash = hash(&options.to_string());
        let id = format!("{content}:{}", &hash[..16]);
        let mut spec = json!({
            "deploymentID": id, "stagedDeploymentID": id,
            "options": options, "stagedOptions": options,
        });
        if self.correct_drift {
            spec["correctDrift"] = json!({"enabled": true});
        }
        if is_fetched {
            spec["helmChartOptions"] = json!({});
        }
        if !self.copies.is_empty() {
            spec["downstreamResourcesGeneration"] = generation.into();
        }
        spec
    }

    /// In a line, for people.
    pub fn describe(&self) -> String {
        let manifests: Vec<String> = self
            .manifests
            .iter()
            .map(|manifest| {
                let behaviour = match manifest.behaviour {
                    Behaviour::Ready => "",
                    Behaviour::Fails => "!fails",
                    Behaviour::Refused => "!refused",
                    Behaviour::Guarded => "!guarded",
                };
                format!("{}=v{}{behaviour}", manifest.object_name(), manifest.value)
            })
            .collect();
        let switches = [
            ("takeOwnership", self.take_ownership),
            ("atomic", self.atomic),
            ("force", self.force),
            ("correctDrift", self.correct_drift),
            ("keepResources", self.keep_resources),
            ("contentMissing", self.is_missing),
            ("repository", self.origin == Origin::Repository),
            ("registry", self.origin == Origin::Registry),
            ("defines", self.defines),
        ];
        let switches: Vec<&str> = switches
            .into_iter()
            .filter_map(|(name, is_set)| is_set.then_some(name))
            .collect();
        let mut more = String::new();
        if self.account != 0 {
            more += &format!(" as {}", ACCOUNTS[self.account]);
        }
        if !self.copies.is_empty() {
            more += &format!(" copies {:?}", self.copies);
        }
        if let Some(label) = self.namespace_label {
            more += &format!(" label team{label}");
        }
        if self.sync != 0 {
            more += &format!(" sync {}", self.sync);
        }
        if self.max_history != 0 {
            more += &format!(" history {}", self.max_history);
        }
        format!(
            "{}/{} [{}] {}{more}",
            self.release_namespace(),
            self.release_name(),
            manifests.join(" "),
            switches.join(" "),
        )
    }
}

/// The definition of widgets.
pub fn definition() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                          "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// The Content of these files, by path and text: its name and object.
pub fn content_of(files: impl Iterator<Item = (String, String)>) -> (String, Value) {
    let resources: Vec<Value> = files
        .map(|(name, content)| json!({"name": name, "content": content}))
        .collect();
    let manifest = json!({"resources": resources}).to_string();
    let hash = hash(&manifest);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed
        .write_all(manifest.as_bytes())
        .expect("a Vec takes everything");
    let packed = packed.finish().expect("a Vec takes everything");
    let name = format!("s-{}", &hash[..32]);
    let object = json!({
        "apiVersion": "fleet.cattle.io/v1alpha1", "kind": "Content",
        "metadata": {"name": name}, "content": STANDARD.encode(packed), "sha256sum": hash,
    });
    (name, object)
}

fn hash(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An archive of these files.
pub(crate) fn packed(files: &[(String, String)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append_data(&mut header, name, text.as_bytes())
            .expect("a Vec takes everything");
    }
    tar.into_inner()
        .and_then(GzEncoder::finish)
        .expect("a Vec takes everything")
}

/// A chart has one object of a name.
pub(crate) fn put(manifests: &mut BTreeSet<Manifest>, manifest: Manifest) {
    manifests.retain(|other| (other.kind, other.name) != (manifest.kind, manifest.name));
    manifests.insert(manifest);
}

/// An object as chance has it.
pub(crate) fn draw_manifest(random: &mut Random, bundle: usize) -> Manifest {
    let kind = *random.pick(&[
        ObjectKind::ConfigMap,
        ObjectKind::ConfigMap,
        ObjectKind::Secret,
        ObjectKind::Deployment,
        ObjectKind::Deployment,
        ObjectKind::Service,
        ObjectKind::PreHook,
        ObjectKind::PostHook,
        ObjectKind::DeleteHook,
    ]);
    // Mostly names of its own; some that others have too.
    let name = match random.chance(75) {
        true => bundle * 2 + random.index(2),
        false => random.index(3),
    };
    let behaviour = match random.below(20) {
        0 | 1 => Behaviour::Fails,
        2 | 3 => Behaviour::Refused,
        4 => Behaviour::Guarded,
        _ => Behaviour::Ready,
    };
    Manifest {
        kind,
        name: u8::try_from(name).unwrap_or(0),
        value: u8::try_from(random.below(4)).unwrap_or(0),
        behaviour,
    }
}

/// Name of a bundle.
pub fn bundle_name(bundle: usize) -> String {
    format!("b{bundle}")
}

/// What is wanted of all bundles, and what was once.
#[derive(Clone, Debug, Default)]
pub struct DesiredState {
    /// As somebody wants it now, whatever upstream's state has become.
    pub now: BTreeMap<usize, Desired>,
    /// Everything that was ever wanted of a bundle.
    pub ever: BTreeMap<usize, Vec<Desired>>,
}

impl DesiredState {
    /// Somebody wants this of a bundle.
    pub fn want(&mut self, bundle: usize, desired: &Desired) {
        self.now.insert(bundle, desired.clone());
        self.ever.entry(bundle).or_default().push(desired.clone());
    }

    /// The bundles whose release this is or was.
    pub fn of_release(&self, namespace: &str, name: &str) -> Vec<usize> {
        let is_it = |desired: &Desired| {
            desired.release_namespace() == namespace && desired.release_name() == name
        };
        let found = self
            .ever
            .iter()
            .filter(|(_, desired_state)| desired_state.iter().any(is_it));
        found.map(|(bundle, _)| *bundle).collect()
    }
}
