//! What is found of live objects beside those that are wanted: which are missing, extra, changed, somebody else's or not ready.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;
use objects::drift::Rules;
use objects::fields::text;
use objects::manifest::Unserved;
use objects::{Object, ObjectKey};
use release::kube::Owner;
use serde_json::Value;

use super::desired::{FormerObjects, KindAndName, by_kind};
use super::differences::Differences;
use super::live::Live;
use super::rules::log_left_out;
use crate::api::{
    BundleDeploymentResource, LABEL_OBJECT_SET_PRUNE, ModifiedStatus, NonReadyStatus,
};
use crate::controllers::bundle_deployment::ownership;
use crate::controllers::bundle_deployment::status::Observation;
use crate::summary::{self, ErrorMapping, IgnoredConditions};

/// What a comparison takes into account beside the objects.
pub struct View<'a> {
    /// `diff.comparePatches`.
    pub rules: &'a Rules,
    /// The release.
    pub owner: &'a Owner,
    /// Which conditions mean an error.
    pub mapping: &'a ErrorMapping,
    /// `ignore.conditions`.
    pub ignored_conditions: IgnoredConditions<'a>,
    pub now: Timestamp,
}

impl View<'_> {
    fn not_ready(&self, live: &Value) -> Option<NonReadyStatus> {
        if self.ignored_conditions.is_empty() {
            return summary::non_ready(live, self.mapping, self.now);
        }
        let mut live = live.clone();
        summary::exclude_ignored_conditions(&mut live, &self.ignored_conditions);
        summary::non_ready(&live, self.mapping, self.now)
    }
}

impl Live {
    /// Compares with what is wanted; `unserved` is of kinds that are gone. `former` is of the revision before: only what was
    /// in it can be left over.
    pub fn compare(
        &self,
        desired: &[Object],
        unserved: &[Unserved],
        former: &FormerObjects,
        differences: &Differences,
        view: &View<'_>,
    ) -> Observation {
        let mut found = Observation {
            is_partial: differences.problem.is_some(),
            ..Observation::default()
        };
        let mut desired_keys = BTreeSet::new();
        for (resource, objects) in by_kind(desired) {
            for object in objects {
                let key = object.key();
                let entry = ModifiedStatus {
                    kind: resource.kind.clone(),
                    api_version: resource.api_version(),
                    namespace: key.namespace.clone(),
                    name: key.name.clone(),
                    ..Default::default()
                };
                match self.objects.get(&key) {
                    Some(live) => {
                        let marked = Owner::of(live).filter(|marked| marked != view.owner);
                        if let Some(marked) = marked {
                            found.unowned.push((key.clone(), Some(marked)));
                            let holder = ownership::holder(live);
                            let taken = holder.map(|(owner, since)| (key.clone(), owner, since));
                            found.taken.extend(taken);
                        }
                        found.resources.push(BundleDeploymentResource {
                            kind: entry.kind.clone(),
                            api_version: entry.api_version.clone(),
                            namespace: entry.namespace.clone(),
                            name: entry.name.clone(),
                            created_at: live
                                .pointer("/metadata/creationTimestamp")
                                .and_then(|time| serde_json::from_value(time.clone()).ok()),
                        });
                        let patch = differences.patches.get(&key).cloned();
                        found
                            .modified
                            .extend(patch.map(|patch| ModifiedStatus { patch, ..entry }));
                        found.non_ready.extend(view.not_ready(live));
                    }
                    None if self.in_sync.contains_key(&key) => {
                        found.resources.extend(self.in_sync.get(&key).cloned());
                    }
                    None => {
                        let holder = self.foreign.get(&key);
                        let exist = holder.is_some();
                        if !self.unreadable.contains(&key) {
                            let owner = holder.cloned().flatten().map(|(owner, _)| owner);
                            found.unowned.push((key.clone(), owner));
                        }
                        if !view.rules.ignores_missing(&entry.api_version, &key) {
                            let taken = holder.cloned().flatten();
                            let taken = taken.map(|(owner, since)| (key.clone(), owner, since));
                            found.taken.extend(taken);
                            found.modified.push(ModifiedStatus {
                                missing: true,
                                exist,
                                ..entry
                            });
                        }
                    }
                }
                desired_keys.insert(key);
            }
        }
        for object in unserved {
            let entry = ModifiedStatus {
                kind: object.kind.clone(),
                api_version: object.api_version.clone(),
                namespace: object.namespace.clone(),
                name: object.name.clone(),
                missing: true,
                ..Default::default()
            };
            let key = entry.key();
            let global = ObjectKey {
                namespace: String::new(),
                ..key.clone()
            };
            let ignores = |key| view.rules.ignores_missing(&entry.api_version, key);
            if !ignores(&key) && !ignores(&global) {
                found.modified.push(entry);
            }
        }
        let mut extras: BTreeMap<&ObjectKey, &Value> = BTreeMap::new();
        extras.extend(
            self.objects
                .iter()
                .filter(|(key, _)| !desired_keys.contains(*key)),
        );
        for (key, object) in extras {
            let prune = object
                .get("metadata")
                .and_then(|metadata| metadata.get("labels")?.get(LABEL_OBJECT_SET_PRUNE))
                .and_then(Value::as_str);
            if prune != Some("false") && former.contains_key(&KindAndName::of(key)) {
                found.modified.push(ModifiedStatus {
                    kind: key.kind.clone(),
                    api_version: text(object, "/apiVersion").to_owned(),
                    namespace: key.namespace.clone(),
                    name: key.name.clone(),
                    extra: true,
                    ..Default::default()
                });
            }
        }
        log_left_out(&view.rules.exhausted());
        found
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use objects::drift::{Operation, Rule};
    use serde_json::json;

    use super::super::desired::{Kept, told_as_left_over};
    use super::super::fixtures::{desired, live};
    use super::*;
    use crate::controllers::bundle_deployment::observation_cache::{in_sync, unchanged};

    #[test]
    fn findings_come_in_upstreams_order() {
        let mut found = Live::default();
        for (resource, object) in [
            live("Service", "svc", json!({"x": "1"})),
            live("ConfigMap", "edited", json!({"x": "2"})),
            live("ConfigMap", "copied-label", json!({})),
            live("ConfigMap", "left-over", json!({})),
        ] {
            found.add(&resource, vec![object]);
        }
        let manifest = [
            desired("Service", "svc"),
            desired("ConfigMap", "gone"),
            desired("ConfigMap", "edited"),
            desired("ConfigMap", "ignored"),
            desired("ConfigMap", "taken"),
            desired("ConfigMap", "stripped"),
            desired("ConfigMap", "unreadable"),
        ];
        if let Some(service) = found.objects.get_mut(&manifest[0].key()) {
            Owner::new("helms", "ns").mark(service);
        }
        found.foreign.insert(manifest[6].key(), None);
        found.unreadable.insert(manifest[6].key());
        found.foreign.insert(manifest[5].key(), None);
        let holder = (Owner::new("other", "ns"), "2026-01-01T00:00:00Z".to_owned());
        found
            .foreign
            .insert(manifest[4].key(), Some(holder.clone()));
        let patch = (manifest[2].key(), "{}".to_owned());
        let (rules, _) = Rules::compile(&[Rule {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            namespace: "ns".into(),
            name: "ignored".into(),
            json_pointers: Vec::new(),
            operations: vec![Operation {
                op: "ignore".into(),
                path: String::new(),
                value: String::new(),
            }],
        }]);
        let view = View {
            rules: &rules,
            owner: &Owner::new("web", "ns"),
            mapping: &ErrorMapping::default(),
            ignored_conditions: IgnoredConditions::default(),
            now: Timestamp::UNIX_EPOCH,
        };
        let left_over = KindAndName::of(&desired("ConfigMap", "left-over").key());
        let former = FormerObjects::from([(left_over, Kept::No)]);
        let unserved = Unserved {
            name: "lost".into(),
            namespace: String::new(),
            kind: "Widget".into(),
            api_version: "example.com/v1".into(),
        };
        let observed = found.compare(
            &manifest,
            &[unserved],
            &former,
            &Differences {
                patches: HashMap::from([patch]),
                ..Differences::default()
            },
            &view,
        );
        // Where the revision before cannot be read now, what was told as left over stays so, and nothing is deleted for it.
        let told = told_as_left_over(&observed.modified);
        let names: Vec<_> = told.iter().map(|(one, kept)| (&*one.name, *kept)).collect();
        assert_eq!(names, [("left-over", Kept::Yes)]);
        let resources: Vec<_> = observed.resources.iter().map(|r| &*r.name).collect();
        assert_eq!(resources, ["svc", "edited"]);
        let modified: Vec<_> = observed.modified.iter().map(ToString::to_string).collect();
        assert_eq!(
            modified,
            [
                "configmap.v1 ns/edited modified {}",
                "configmap.v1 ns/gone missing",
                "configmap.v1 ns/stripped is not owned by us",
                "configmap.v1 ns/taken is not owned by us",
                "configmap.v1 ns/unreadable is not owned by us",
                "widget.example.com lost missing",
                "configmap.v1 ns/left-over extra",
            ]
        );
        let (owner, since) = holder;
        let helms = (manifest[0].key(), Owner::new("helms", "ns"), since.clone());
        assert_eq!(observed.taken, [helms, (manifest[4].key(), owner, since)]);
        let unowned = [
            (0, Some(Owner::new("helms", "ns"))),
            (1, None),
            (3, None),
            (5, None),
            (4, Some(Owner::new("other", "ns"))),
        ];
        let unowned = unowned.map(|(index, owner): (usize, _)| (manifest[index].key(), owner));
        assert_eq!(observed.unowned, unowned);
        assert_eq!(found.seen().len(), 4);
        assert!(
            found
                .objects
                .values()
                .all(|o| o["metadata"].get("managedFields").is_none())
        );
    }

    #[test]
    fn objects_in_sync_are_read_again_only_when_they_change() {
        let manifest = [desired("ConfigMap", "a"), desired("ConfigMap", "b")];
        let mut first = Live::default();
        for name in ["a", "b"] {
            let (resource, object) = live("ConfigMap", name, json!({"x": "1"}));
            first.add(&resource, vec![object]);
        }
        let (rules, _) = Rules::compile(&[]);
        let view = View {
            rules: &rules,
            owner: &Owner::new("web", "ns"),
            mapping: &ErrorMapping::default(),
            ignored_conditions: IgnoredConditions::default(),
            now: Timestamp::UNIX_EPOCH,
        };
        let found = first.compare(
            &manifest,
            &[],
            &FormerObjects::new(),
            &Differences::default(),
            &view,
        );
        let known = in_sync(&found);
        assert_eq!(known.len(), 2);
        let changed = |name: &str| ObjectKey::new("v1", "ConfigMap", "ns", name);
        let rest = unchanged(&known, &manifest, &[changed("b")]).unwrap();
        assert_eq!(rest.len(), 1);
        assert!(unchanged(&known, &manifest, &[changed("other")]).is_none());
        // The other one is read again, and both are in the result.
        let mut second = Live::default();
        second.in_sync.extend(rest);
        let (resource, object) = live("ConfigMap", "b", json!({"x": "1"}));
        second.add(&resource, vec![object]);
        let again = second.compare(
            &manifest,
            &[],
            &FormerObjects::new(),
            &Differences::default(),
            &view,
        );
        assert_eq!(again, found);
    }
}
