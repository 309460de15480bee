//! Five charts, each with another way to be caught half-done, in two versions and a broken third state.
//!
//! All of them print `.Values.say` into a ConfigMap `NAME-settings`, drop a ConfigMap `NAME-old` with version 2.0.0 and bring
//! `NAME-new`; with `.Values.broken` they hold an object that the API server refuses, last in Helm's order.

use std::fmt::Write as _;

use crate::chart::Chart;

/// The versions of every chart.
pub const VERSIONS: [&str; 2] = ["1.0.0", "2.0.0"];

/// An object as a kill must not lose it: plural with group (`deployments.apps`), kind, API version, name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedObject {
    /// `v1` or `group/version`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Plural, as the audit log has it.
    pub plural: String,
    /// Name.
    pub name: String,
}

/// A chart under a name of its own, so that nothing of it meets another life's.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Which of the five.
    pub sort: &'static str,
    /// Name of the release, its chart and its namespace.
    pub name: String,
    /// PersistentVolumes its pods need, in a storage class called like the release.
    pub volumes: usize,
    /// Jobs that run as hooks: name and events.
    pub hooks: Vec<(String, &'static [&'static str])>,
    common: Vec<ExpectedObject>,
    template: String,
    crds: String,
}

/// The five sorts.
pub const SORTS: [&str; 5] = ["hooks", "definitions", "jobs", "many", "stateful"];

const INSTALL: &[&str] = &["pre-install"];
const BOTH_BEFORE: &[&str] = &["pre-install", "pre-upgrade"];
const EITHER_SIDE: &[&str] = &["pre-install", "post-install", "pre-upgrade", "post-upgrade"];
const BOTH_AFTER: &[&str] = &["post-install", "post-upgrade"];
const BEFORE_ROLLBACK: &[&str] = &["pre-rollback"];
const AFTER_ROLLBACK: &[&str] = &["post-rollback"];
const REMOVAL: &[&str] = &["post-install", "pre-delete"];
const REMOVED: &[&str] = &["post-delete"];

impl Subject {
    /// A chart of a sort.
    ///
    /// # Panics
    /// When there is no such sort.
    pub fn new(sort: &'static str, name: &str) -> Self {
        let mut it = Self {
            sort,
            name: name.to_owned(),
            volumes: 0,
            hooks: Vec::new(),
            common: Vec::new(),
            template: String::new(),
            crds: String::new(),
        };
        it.config_map("settings", "{{ .Values.say | quote }}");
        match sort {
            "hooks" => it.with_hooks(),
            "definitions" => it.with_definitions(),
            "jobs" => it.with_jobs(),
            "many" => it.with_many(),
            "stateful" => it.with_state(),
            other => panic!("no sort {other}"),
        }
        it
    }

    /// The chart in one of [`VERSIONS`].
    pub fn chart(&self, version: &str) -> Chart {
        let name = &self.name;
        let only = if version == VERSIONS[0] { "old" } else { "new" };
        let mut chart = Chart::new(name, version)
            .file("values.yaml", "say: nothing\nbroken: false\n")
            .template("objects.yaml", &self.template)
            .template("only.yaml", &map_text(name, only, version))
            .template(
                "broken.yaml",
                &format!(
                    "{{{{ if .Values.broken }}}}\napiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata:\n  name: \
                     v1.{name}.example.com\nspec:\n  group: {name}.example.com\n  version: v1\n  nonsense: true\n{{{{ end }}}}\n"
                ),
            );
        for (hook, events) in &self.hooks {
            chart = chart.template(&format!("{hook}.yaml"), &hook_text(hook, events));
        }
        if !self.crds.is_empty() {
            chart = chart.file("crds/definitions.yaml", self.crds.as_bytes());
        }
        chart
    }

    /// What a version holds, hooks aside.
    pub fn wanted(&self, version: &str) -> Vec<ExpectedObject> {
        let only = if version == VERSIONS[0] { "old" } else { "new" };
        let mut all = self.common.clone();
        all.push(wanted("v1", "ConfigMap", "configmaps", &self.named(only)));
        all
    }

    fn named(&self, part: &str) -> String {
        format!("{}-{part}", self.name)
    }

    fn add(&mut self, api_version: &str, kind: &str, plural: &str, part: &str, rest: &str) {
        let name = self.named(part);
        let _ = write!(
            self.template,
            "---\napiVersion: {api_version}\nkind: {kind}\nmetadata:\n  name: {name}\n{rest}"
        );
        self.common.push(wanted(api_version, kind, plural, &name));
    }

    fn config_map(&mut self, part: &str, value: &str) {
        let rest = format!("data:\n  value: {value}\n");
        self.add("v1", "ConfigMap", "configmaps", part, &rest);
    }

    fn service(&mut self, part: &str, more: &str) {
        let app = self.named("web");
        let rest = format!("spec:\n  selector: {{app: {app}}}\n{more}  ports: [{{port: 80}}]\n");
        self.add("v1", "Service", "services", part, &rest);
    }

    fn deployment(&mut self, part: &str) {
        let app = self.named(part);
        let rest = format!(
            "spec:\n  selector: {{matchLabels: {{app: {app}}}}}\n{}",
            pods(&app)
        );
        self.add("apps/v1", "Deployment", "deployments", part, &rest);
    }

    fn hook(&mut self, part: &str, events: &'static [&'static str]) {
        self.hooks.push((self.named(part), events));
    }

    /// A hook at every event there is, one at several, and objects around them.
    fn with_hooks(&mut self) {
        self.service("web", "");
        self.deployment("web");
        self.hook("first", INSTALL);
        self.hook("migrate", BOTH_BEFORE);
        self.hook("around", EITHER_SIDE);
        self.hook("after", BOTH_AFTER);
        self.hook("back", BEFORE_ROLLBACK);
        self.hook("returned", AFTER_ROLLBACK);
        self.hook("backup", REMOVAL);
        self.hook("last", REMOVED);
    }

    /// Definitions under `crds/` and among the templates, and objects of both.
    fn with_definitions(&mut self) {
        let group = format!("{}.example.com", self.name);
        self.crds = definition(&group, "cars", "Car");
        let _ = write!(
            self.template,
            "---\n{}",
            definition(&group, "boats", "Boat")
        );
        for (kind, plural) in [("Car", "cars"), ("Boat", "boats")] {
            let api_version = format!("{group}/v1");
            for part in ["one", "two"] {
                self.add(&api_version, kind, plural, part, "spec: {doors: 2}\n");
            }
        }
    }

    /// Jobs among the objects, a hook that removes itself, and rights.
    fn with_jobs(&mut self) {
        self.add("v1", "ServiceAccount", "serviceaccounts", "worker", "");
        self.add(
            "rbac.authorization.k8s.io/v1",
            "Role",
            "roles",
            "worker",
            "rules:\n- {apiGroups: [\"\"], resources: [configmaps], verbs: [get]}\n",
        );
        let account = self.named("worker");
        let rest = format!(
            "roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {account}}}\nsubjects:\n- {{kind: \
             ServiceAccount, name: {account}}}\n"
        );
        self.add(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            "rolebindings",
            "worker",
            &rest,
        );
        let spec = format!("spec:\n{}", indented(JOB, 2));
        self.add("batch/v1", "Job", "jobs", "once", &spec);
        let spec = format!(
            "spec:\n  schedule: \"0 0 1 1 *\"\n  jobTemplate:\n    spec:\n{}",
            indented(JOB, 6)
        );
        self.add("batch/v1", "CronJob", "cronjobs", "yearly", &spec);
        self.hook("vanishing", BOTH_BEFORE);
        self.hook("check", BOTH_AFTER);
    }

    /// Many objects of some kinds, so that most kills fall between two of them.
    fn with_many(&mut self) {
        for n in 0..24 {
            self.config_map(&format!("map-{n}"), "{{ .Chart.Version | quote }}");
        }
        for n in 0..4 {
            self.service(&format!("service-{n}"), "");
        }
        for n in 0..2 {
            self.deployment(&format!("web-{n}"));
        }
        self.hook("migrate", BOTH_BEFORE);
    }

    /// A StatefulSet with a claim for each pod, and a claim of its own.
    fn with_state(&mut self) {
        self.volumes = 3;
        let (app, class) = (self.named("web"), self.name.clone());
        let claim = format!(
            "accessModes: [ReadWriteOnce]\nstorageClassName: {class}\nresources: {{requests: {{storage: 1Gi}}}}\n"
        );
        let rest = format!("spec:\n{}", indented(&claim, 2));
        self.add(
            "v1",
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            "shared",
            &rest,
        );
        self.service("web", "  clusterIP: None\n");
        let rest = format!(
            "spec:\n  serviceName: {app}\n  replicas: 2\n  selector: {{matchLabels: {{app: {app}}}}}\n{}  \
             volumeClaimTemplates:\n  - metadata: {{name: data}}\n    spec:\n{}",
            pods(&app),
            indented(&claim, 6)
        );
        self.add("apps/v1", "StatefulSet", "statefulsets", "web", &rest);
        self.hook("migrate", BOTH_BEFORE);
        self.hook("check", BOTH_AFTER);
    }
}

const JOB: &str = "template:\n  spec:\n    restartPolicy: Never\n    containers: [{name: main, image: registry.example/job}]\n";

fn wanted(api_version: &str, kind: &str, plural: &str, name: &str) -> ExpectedObject {
    let text = str::to_owned;
    ExpectedObject {
        api_version: text(api_version),
        kind: text(kind),
        plural: text(plural),
        name: text(name),
    }
}

fn map_text(name: &str, part: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}-{part}\ndata:\n  value: {value:?}\n"
    )
}

fn pods(app: &str) -> String {
    format!(
        "  template:\n    metadata: {{labels: {{app: {app}}}, annotations: {{version: {{{{ .Chart.Version | quote }}}}}}}}\n    \
         spec:\n      terminationGracePeriodSeconds: 0\n      containers: [{{name: main, image: registry.example/web}}]\n"
    )
}

/// A Job that runs as a hook. One of them removes itself, and all but the first go once they have succeeded, with one or
/// the other policy beside it.
fn hook_text(name: &str, events: &[&str]) -> String {
    let ttl = if name.ends_with("-vanishing") {
        "  ttlSecondsAfterFinished: 0\n"
    } else {
        ""
    };
    let policy = match policies(name) {
        "" => String::new(),
        policies => format!("    helm.sh/hook-delete-policy: {policies}\n"),
    };
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}\n  annotations:\n    helm.sh/hook: {}\n{policy}spec:\n{ttl}{}",
        events.join(","),
        indented(JOB, 2)
    )
}

/// Its `helm.sh/hook-delete-policy`; nothing for Helm's own.
fn policies(hook: &str) -> &'static str {
    match hook.rsplit('-').next() {
        Some("first" | "vanishing") => "",
        Some("migrate" | "returned") => "before-hook-creation,hook-succeeded",
        Some("after" | "last") => "hook-succeeded,hook-failed",
        _ => "hook-succeeded",
    }
}

fn definition(group: &str, plural: &str, kind: &str) -> String {
    let singular = kind.to_lowercase();
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: {plural}.{group}}}\nspec:\n  \
         group: {group}\n  scope: Namespaced\n  names: {{kind: {kind}, plural: {plural}, singular: {singular}}}\n  versions:\n  - \
         {{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object, \
         x-kubernetes-preserve-unknown-fields: true}}}}}}\n"
    )
}

fn indented(text: &str, columns: usize) -> String {
    let pad = " ".repeat(columns);
    text.lines().map(|line| format!("{pad}{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hook that goes once it has succeeded can be run twice by who only looks whether it is there.
    #[test]
    fn at_every_event_a_hook_is_deleted_once_it_has_succeeded() {
        let subject = Subject::new("hooks", "a");
        let events = [
            "pre-install",
            "post-install",
            "pre-upgrade",
            "post-upgrade",
            "pre-rollback",
            "post-rollback",
            "pre-delete",
            "post-delete",
        ];
        for event in events {
            let mut hooks = subject.hooks.iter();
            let is_one = |(hook, events): &(String, &[&str])| {
                events.contains(&event) && policies(hook).contains("hook-succeeded")
            };
            assert!(hooks.any(is_one), "{event}");
        }
    }

    #[test]
    fn versions_differ_by_one_object() {
        for sort in SORTS {
            let subject = Subject::new(sort, "a");
            let [old, new] = VERSIONS.map(|version| subject.wanted(version));
            assert_eq!(old.len(), new.len());
            assert_eq!(old.iter().filter(|one| !new.contains(one)).count(), 1);
        }
    }
}
