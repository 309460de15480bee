//! The objects of a release's hooks, each read once: by its rendering, or when it is first asked for.

use std::collections::HashMap;
use std::sync::Arc;

use objects::manifest::{build, documents, read_documents};
use objects::{BuildError, Object};
use serde_json::Value;

use super::error::HookError;
use crate::kube::{Cluster, Created, RunMark, unnote};
use crate::model::{Hook, HookEvent, Release};

/// What the hooks of a release say, by their position in it.
#[derive(Default)]
pub(super) struct HookObjects {
    read: Vec<Option<Value>>,
    built: HashMap<usize, Arc<[Object]>>,
    /// Objects that each hook's last run wrote, as far as it was run here.
    pub(super) written: HashMap<usize, Vec<(Object, Created)>>,
}

impl HookObjects {
    /// Of hooks that rendering has read.
    pub(super) fn read(read: Vec<Option<Value>>) -> Self {
        Self {
            read,
            ..Self::default()
        }
    }

    fn documents(&mut self, index: usize, hook: &Hook) -> Result<Vec<Value>, BuildError> {
        match self.read.get_mut(index).and_then(Option::take) {
            Some(object) => read_documents(vec![object]),
            None => documents(&hook.manifest),
        }
    }

    /// The objects of one hook, with the names that `run` gives them where the chart leaves that to the API server.
    ///
    /// # Errors
    /// The hook is not made of objects that the cluster knows, or that cannot be asked for.
    pub(super) async fn of(
        &mut self,
        cluster: &Cluster,
        release: &Release,
        index: usize,
        event: HookEvent,
        run: &RunMark,
    ) -> Result<Arc<[Object]>, HookError> {
        let built = match self.built.get(&index) {
            Some(built) => Arc::clone(built),
            None => self.build(cluster, release, index, event).await?,
        };
        if !built.iter().any(is_nameless) {
            return Ok(built);
        }
        let named = |(position, object): (usize, &Object)| match is_nameless(object) {
            true => named(object, run, (index, position)),
            false => object.clone(),
        };
        Ok(built.iter().enumerate().map(named).collect())
    }

    /// Of the objects of a hook, which were asked for before, those that the chart leaves it to the API server to name.
    pub(super) fn nameless<'o>(
        &self,
        index: usize,
        objects: &'o [Object],
    ) -> impl Iterator<Item = &'o Object> {
        let built = self.built.get(&index).cloned();
        let built = built.unwrap_or_default();
        let is_it = move |(position, _): &(usize, &Object)| {
            let object = built.get(*position);
            object.is_some_and(is_nameless)
        };
        let all = objects.iter().enumerate();
        all.filter(is_it).map(|(_, object)| object)
    }

    async fn build(
        &mut self,
        cluster: &Cluster,
        release: &Release,
        index: usize,
        event: HookEvent,
    ) -> Result<Arc<[Object]>, HookError> {
        let hook = &release.hooks[index];
        let failed = |source| HookError::Build {
            event: event.as_str(),
            path: hook.path.clone(),
            source,
        };
        let documents = self.documents(index, hook).map_err(failed)?;
        let discovery = cluster
            .discovery_of(&documents, &[])
            .await
            .map_err(HookError::Discovery)?;
        let mut objects = build(documents, &release.namespace, &discovery, &[]).map_err(failed)?;
        for object in &mut objects {
            unnote(&mut object.body);
        }
        let built = Arc::from(objects);
        self.built.insert(index, Arc::clone(&built));
        Ok(built)
    }
}

fn is_nameless(object: &Object) -> bool {
    object.name.is_empty()
}

/// An object with the name that its run gives it.
fn named(object: &Object, run: &RunMark, which: (usize, usize)) -> Object {
    let mut object = object.clone();
    if let Some(Value::Object(metadata)) = object.body.get_mut("metadata")
        && let Some(Value::String(prefix)) = metadata.remove("generateName")
    {
        object.name = run.name(&prefix, which);
        metadata.insert("name".to_owned(), object.name.clone().into());
    }
    object
}

#[cfg(test)]
mod tests {
    use objects::Resource;
    use serde_json::json;

    use super::*;
    use crate::kube::Owner;
    use crate::record::{RecordId, RecordUid};

    #[test]
    fn a_hook_without_a_name_is_named_by_its_run() {
        let record = |revision| RecordId {
            revision,
            uid: RecordUid::new("u"),
        };
        let run = |revision| RunMark::new(Owner::new("web", "shop"), &record(revision), "test");
        let object = Object {
            resource: Arc::new(Resource {
                group: "batch".to_owned(),
                version: "v1".to_owned(),
                kind: "Job".to_owned(),
                plural: "jobs".to_owned(),
                namespaced: true,
            }),
            namespace: Some("shop".to_owned()),
            name: String::new(),
            body: json!({"metadata": {"generateName": "migrate-", "labels": {}}}),
        };
        let first = named(&object, &run(1), (0, 0));
        assert!(first.name.starts_with("migrate-"), "{}", first.name);
        assert_eq!(first.name.len(), 13);
        let body = json!({"metadata": {"name": first.name, "labels": {}}});
        assert_eq!(first.body, body);
        assert_eq!(named(&object, &run(1), (0, 0)).name, first.name);
        for (revision, which) in [(1, (0, 1)), (1, (1, 0)), (2, (0, 0))] {
            assert_ne!(named(&object, &run(revision), which).name, first.name);
        }
        let long = run(1).name(&"a".repeat(70), (0, 0));
        assert_eq!(long.len(), 63);
    }

    #[test]
    fn a_hook_that_rendering_has_read_is_not_read_again() {
        let hook = Hook {
            manifest: "kind: [".to_owned(),
            ..Hook::default()
        };
        let map = json!({"kind": "ConfigMap"});
        let list = json!({"kind": "List", "items": [map, map]});
        let mut hooks = HookObjects::read(vec![None, Some(list)]);
        assert_eq!(hooks.documents(1, &hook), Ok(vec![map.clone(), map]));
        for unread in [0, 2] {
            let failed = hooks.documents(unread, &hook).unwrap_err();
            assert!(matches!(failed, BuildError::Yaml { .. }), "{failed}");
        }
    }
}
