//! What creates, changes and deletes.

use std::sync::{Arc, PoisonError};

use serde_json::{Map, Value, json};

use super::apply::{self, Managed};
use super::kinds::{CLEANUP, Discovery, Kind, is_established};
use super::object::{Id, Stored, drop_empty, is_leaving, same, string_data, table, table_in};
use super::request::{Actor, Answer, Request, Who};
use super::route::Route;
use super::watch::Change;
use super::{Handled, State, Write, patch};

/// What is said where something is to be made of a kind whose definition is being deleted.
const LEAVING: &str = "create not allowed while custom resource definition is terminating";

pub(super) const STALE: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

impl State {
    pub(super) fn create(&mut self, request: &Request, route: &Route, mut body: Value) -> Handled {
        if route.kind.is_leaving {
            let (plural, group) = (&route.id.plural, &route.id.group);
            let details = json!({"kind": plural, "group": group});
            return Err(Answer::failure(405, "MethodNotAllowed", LEAVING, &details));
        }
        let mut route = route.clone();
        let metadata = table(&mut body, "metadata");
        if route.id.name.is_empty() {
            let name = metadata.get("name").and_then(Value::as_str);
            let prefix = metadata.get("generateName").and_then(Value::as_str);
            route.id.name = match (name, prefix) {
                (Some(name), _) => name.to_owned(),
                (None, Some(prefix)) => format!("{prefix}{:05x}", self.uids + 0x1_0000),
                (None, None) => {
                    let why = "name or generateName is required";
                    return Err(Self::refused(&route, 422, "Invalid", why));
                }
            };
        }
        self.admit(request, &route, &body)?;
        // Whether the name is free is seen last (`Store.create`), by a dry run too.
        if self.objects.contains_key(&route.id) {
            return Err(Self::refused(&route, 409, "AlreadyExists", ""));
        }
        let mut managed = Vec::new();
        let value = self.newborn(&route, body);
        let mut written = value.clone();
        // What the server says of a namespace belongs to nobody, nor do empty names of who reported an event.
        match (route.kind.kind.as_str(), written.as_object_mut()) {
            ("Namespace", Some(map)) => map.retain(|field, _| field != "spec" && field != "status"),
            ("Event", Some(map)) => map.retain(|_, value| value != ""),
            _ => {}
        }
        apply::updated(
            &mut managed,
            &Value::Null,
            &written,
            &self.writer(request, &route, "Update"),
        );
        self.store(request, "create", &route, value, managed)
            .map(|answer| Answer {
                code: 201,
                ..answer
            })
    }

    /// A new object: what clients may not say of one is taken away, and what the server says is added.
    pub(super) fn newborn(&mut self, route: &Route, mut body: Value) -> Value {
        self.uids += 1;
        let uid = format!("00000000-0000-4000-8000-{:012x}", self.uids);
        let now = format!("{:.0}", (self.clock)());
        if route.kind.has_status
            && let Some(map) = body.as_object_mut()
        {
            map.remove("status");
        }
        body["apiVersion"] = route.kind.api_version().into();
        body["kind"] = route.kind.kind.clone().into();
        let metadata = table(&mut body, "metadata");
        for field in [
            "managedFields",
            "resourceVersion",
            "selfLink",
            "deletionTimestamp",
        ] {
            metadata.remove(field);
        }
        metadata.insert("name".to_owned(), route.id.name.clone().into());
        if route.kind.namespaced {
            metadata.insert("namespace".to_owned(), route.id.namespace.clone().into());
        }
        metadata.insert("uid".to_owned(), uid.into());
        metadata.insert("creationTimestamp".to_owned(), now.into());
        metadata.remove("generation");
        if route.kind.has_generation() {
            metadata.insert("generation".to_owned(), 1.into());
        }
        drop_empty(metadata);
        match route.kind.kind.as_str() {
            "Namespace" => {
                let labels = table_in(metadata, "labels");
                labels.insert(
                    "kubernetes.io/metadata.name".to_owned(),
                    route.id.name.clone().into(),
                );
                body["status"] = json!({"phase": "Active"});
                body["spec"] = json!({"finalizers": ["kubernetes"]});
            }
            "Secret" => {
                string_data(&mut body);
                if body.get("type").is_none() {
                    body["type"] = "Opaque".into();
                }
            }
            _ => {}
        }
        body
    }

    /// What keeps an object from being written.
    pub(super) fn admit(
        &self,
        request: &Request,
        route: &Route,
        body: &Value,
    ) -> Result<(), Answer> {
        let id = &route.id;
        // Of a creation it is not known yet whether the name is free.
        let is_creation = request.method == "POST" || !self.objects.contains_key(id);
        if route.kind.namespaced && is_creation {
            let namespace = Id::new("", "namespaces", "", &id.namespace);
            let Some(found) = self.objects.get(&namespace) else {
                let message = format!("namespaces \"{}\" not found", id.namespace);
                let details = json!({"name": id.namespace, "kind": "namespaces"});
                return Err(Answer::failure(404, "NotFound", &message, &details));
            };
            if is_leaving(&found.value) {
                let why = format!(
                    "unable to create new content in namespace {} because it is being terminated",
                    id.namespace
                );
                return Err(Self::refused(route, 403, "Forbidden", &why));
            }
        }
        self.call(request, route)?;
        if request.who.actor != Actor::System && route.subresource.is_empty() {
            let mut refusals = self.refusals.iter();
            let is_refused = refusals.any(|refusal| {
                refusal.plural == id.plural
                    && refusal.namespace == id.namespace
                    && refusal.name == id.name
            });
            if is_refused {
                return Err(denied());
            }
        }
        if let Some(problem) = apply::invalid(&route.kind, body, request) {
            return Err(problem);
        }
        if route.subresource.is_empty() && is_creation {
            self.meter(route)?;
        }
        Ok(())
    }

    /// Whether a quota has room for one object more: it is asked last, and of dry runs too.
    fn meter(&self, route: &Route) -> Result<(), Answer> {
        let id = &route.id;
        let mut quotas = self.quotas.iter().filter(|quota| {
            quota.group == id.group && quota.plural == id.plural && quota.namespace == id.namespace
        });
        let Some(quota) = quotas.next() else {
            return Ok(());
        };
        let used = self.at(&id.place()).count();
        if used < quota.hard {
            return Ok(());
        }
        let counted = format!("count/{}", route.kind.qualified());
        let hard = quota.hard;
        let why = format!(
            "exceeded quota: compute, requested: {counted}=1, used: {counted}={used}, limited: {counted}={hard}"
        );
        Err(Self::refused(route, 403, "Forbidden", &why))
    }

    pub(super) fn writer(
        &self,
        request: &Request,
        route: &Route,
        operation: &'static str,
    ) -> apply::Writer {
        apply::Writer {
            manager: request.manager(),
            operation,
            subresource: route.subresource.clone(),
            api_version: route.kind.api_version(),
            time: format!("{:.0}", (self.clock)()),
            group: route.kind.group.clone(),
            kind: route.kind.kind.clone(),
        }
    }

    pub(super) fn replace(&mut self, request: &Request, route: &Route) -> Handled {
        let Some(stored) = self.objects.get(&route.id) else {
            return Err(Self::missing(route));
        };
        let (before, managed) = (Arc::clone(&stored.value), stored.managed.clone());
        self.update(
            request,
            "update",
            route,
            &before,
            request.body.clone(),
            managed,
        )
    }

    /// Writes what an update, or a patch other than an apply, makes of an object.
    pub(super) fn update(
        &mut self,
        request: &Request,
        verb: &'static str,
        route: &Route,
        before: &Value,
        mut after: Value,
        mut managed: Vec<Managed>,
    ) -> Handled {
        let version = after.pointer("/metadata/resourceVersion");
        if let Some(version) = version.and_then(Value::as_str)
            && !version.is_empty()
            && before
                .pointer("/metadata/resourceVersion")
                .and_then(Value::as_str)
                != Some(version)
        {
            return Err(Self::refused(route, 409, "Conflict", STALE));
        }
        let found = uid(before).unwrap_or_default();
        if let Some(meant) = uid(&after).filter(|meant| *meant != found) {
            let why = format!(
                "Precondition failed: UID in precondition: {meant}, UID in object meta: {found}"
            );
            return Err(Self::refused(route, 409, "Conflict", &why));
        }
        self.admit(request, route, &after)?;
        if route.kind.kind == "Secret" {
            string_data(&mut after);
            if after.get("type").is_none() && before.get("type").is_some() {
                after["type"] = before["type"].clone();
            }
        }
        let after = apply::settled(route.subresource.as_str(), &route.kind, before, after);
        let name = &route.id.name;
        let problem = apply::immutable(&route.kind, before, &after, name)
            .or_else(|| apply::finalized(&route.kind, before, &after, name));
        if let Some(problem) = problem {
            return Err(problem);
        }
        apply::updated(
            &mut managed,
            before,
            &after,
            &self.writer(request, route, "Update"),
        );
        self.store(request, verb, route, after, managed)
    }

    pub(super) fn patch(&mut self, request: &Request, route: &Route) -> Handled {
        let stored = self.objects.get(&route.id).cloned();
        if request.content_type.starts_with("application/apply-patch") {
            return self.apply(request, route, stored);
        }
        let Some(stored) = stored else {
            return Err(Self::missing(route));
        };
        let mut after = stored.value.as_ref().clone();
        // A patch may name managed fields, which are no part of what is stored.
        let names_managed = patch::names_managed(&request.body);
        if names_managed {
            after["metadata"]["managedFields"] = apply::printed(&stored.managed);
        }
        let mut managed = stored.managed.clone();
        match request.content_type.as_str() {
            "application/merge-patch+json" => patch::merge(&mut after, &request.body),
            "application/json-patch+json" => patch::json(&mut after, &request.body)?,
            "application/strategic-merge-patch+json" => {
                patch::strategic(&mut after, &request.body)?;
            }
            other => return Err(Answer::not_modelled(other)),
        }
        let written = table(&mut after, "metadata").remove("managedFields");
        if let Some(written) = written.filter(|_| names_managed)
            && written != apply::printed(&stored.managed)
        {
            managed = apply::read(&written);
        }
        let before = Arc::clone(&stored.value);
        self.update(request, "patch", route, &before, after, managed)
    }

    pub(super) fn apply(
        &mut self,
        request: &Request,
        route: &Route,
        stored: Option<Arc<Stored>>,
    ) -> Handled {
        let mut wanted = request.body.clone();
        let named = wanted.pointer("/metadata/resourceVersion").cloned();
        apply::strip(&mut wanted);
        let writer = self.writer(request, route, "Apply");
        let Some(stored) = stored else {
            if !route.subresource.is_empty() {
                return Err(Self::missing(route));
            }
            if let Some(meant) = uid(&request.body) {
                let why = format!(
                    "uid mismatch: the provided object specified uid {meant}, and no existing object was found"
                );
                return Err(Self::refused(route, 409, "Conflict", &why));
            }
            if route.kind.is_leaving {
                return Err(Self::refused(route, 403, "Forbidden", LEAVING));
            }
            self.admit(request, route, &wanted)?;
            let fields = apply::applied_fields(&writer, &wanted);
            let value = self.newborn(route, wanted);
            let mut managed = vec![Managed::new(&writer, fields)];
            managed.retain(|one| !one.is_empty());
            let answer = self.store(request, "create", route, value, managed)?;
            return Ok(Answer {
                code: 201,
                ..answer
            });
        };
        self.admit(request, route, &wanted)?;
        let mut managed = stored.managed.clone();
        let force = request.parameter("force") == "true";
        let mut merged = apply::applied(&mut managed, &stored.value, &wanted, &writer, force)
            .map_err(|conflicts| conflict(&conflicts))?;
        if route.kind.kind == "Secret" {
            string_data(&mut merged);
        }
        // Who owns the fields is told before the version is looked at.
        if let Some(named) = named.as_ref().and_then(Value::as_str)
            && stored.version.to_string() != named
        {
            return Err(Self::refused(route, 409, "Conflict", STALE));
        }
        let after = apply::settled(
            route.subresource.as_str(),
            &route.kind,
            &stored.value,
            merged,
        );
        let (before, name) = (&stored.value, &route.id.name);
        let problem = apply::immutable(&route.kind, before, &after, name)
            .or_else(|| apply::finalized(&route.kind, before, &after, name));
        if let Some(problem) = problem {
            return Err(problem);
        }
        self.store(request, "apply", route, after, managed)
    }

    pub(super) fn delete(&mut self, request: &Request, route: &Route) -> Handled {
        let Some(stored) = self.objects.get(&route.id).cloned() else {
            return Err(Self::missing(route));
        };
        let text = |pointer: &str| request.body.pointer(pointer).and_then(Value::as_str);
        let of = |field: &str| stored.value["metadata"][field].as_str().unwrap_or_default();
        for (pointer, field, name) in [
            ("/preconditions/uid", "uid", "UID"),
            (
                "/preconditions/resourceVersion",
                "resourceVersion",
                "ResourceVersion",
            ),
        ] {
            if let Some(wanted) = text(pointer)
                && wanted != of(field)
            {
                let why = format!(
                    "Precondition failed: {name} in precondition: {wanted}, {name} in object meta: {}",
                    of(field)
                );
                return Err(Self::refused(route, 409, "Conflict", &why));
            }
        }
        if request.is_dry_run() {
            return Ok(self.sent(request, &stored));
        }
        let mut value = stored.value.as_ref().clone();
        let is_namespace = route.kind.kind == "Namespace";
        let is_definition = route.kind.kind == "CustomResourceDefinition";
        let foreground = text("/propagationPolicy") == Some("Foreground");
        let has_finalizers = value
            .pointer("/metadata/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|finalizers| !finalizers.is_empty());
        if is_namespace || is_definition || foreground || has_finalizers {
            if is_leaving(&value) {
                return Ok(self.sent(request, &stored));
            }
            let now = format!("{:.0}", (self.clock)());
            let metadata = table(&mut value, "metadata");
            metadata.insert("deletionTimestamp".to_owned(), now.into());
            metadata.insert("deletionGracePeriodSeconds".to_owned(), 0.into());

            if foreground {
                let finalizers = metadata
                    .entry("finalizers")
                    .or_insert_with(|| json!([]))
                    .as_array_mut();
                if let Some(finalizers) = finalizers {
                    finalizers.push("foregroundDeletion".into());
                }
            }
            if is_namespace {
                value["status"]["phase"] = "Terminating".into();
            }
            if is_definition {
                terminate(&mut value);
            }
            return self.store(request, "delete", route, value, stored.managed.clone());
        }
        self.remove(request, route, &stored);
        if route.kind.kind == "Service" {
            return Ok(self.sent(request, &stored));
        }
        let mut details = json!({
            "name": route.id.name, "kind": route.id.plural, "uid": of("uid"),
        });
        if !route.id.group.is_empty() {
            details["group"] = route.id.group.clone().into();
        }
        Ok(Answer::json(&json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": details,
        })))
    }

    pub(super) fn put(&mut self, object: &Value) -> Result<(), String> {
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or("")
        };
        let found = self
            .served()
            .find(|kind| kind.api_version() == text("/apiVersion") && kind.kind == text("/kind"));
        let kind = found.map(Arc::clone).ok_or("its kind is not served")?;
        let id = Id::new(
            &kind.group,
            &kind.plural,
            text("/metadata/namespace"),
            text("/metadata/name"),
        );
        if id.name.is_empty() {
            return Err("it has no name".to_owned());
        }
        let version = text("/metadata/resourceVersion")
            .parse()
            .unwrap_or(self.version);
        self.version = self.version.max(version);
        let mut value = object.clone();
        let managed = table(&mut value, "metadata").remove("managedFields");
        let managed = apply::read(&managed.unwrap_or_default());
        self.objects
            .insert(id, Stored::new(Arc::new(value), managed, version));
        self.define();
        Ok(())
    }

    pub(super) fn forget(&mut self, path: &str) -> Result<(), String> {
        let request = Request::new(Who::is(Actor::System), "DELETE", path, Value::Null);
        let route = self
            .route(&request)
            .map_err(|refused| refused.value()["message"].to_string())?;
        let is_there = |id: &Id| match route.id.name.is_empty() {
            true => id.place() == route.id,
            false => *id == route.id,
        };
        self.objects.retain(|id, _| !is_there(id));
        self.define();
        Ok(())
    }

    pub(super) fn remove(&mut self, request: &Request, route: &Route, stored: &Stored) {
        self.objects.remove(&route.id);
        self.version += 1;
        let mut last = stored.value.as_ref().clone();
        last["metadata"]["resourceVersion"] = self.version.to_string().into();
        let last = Stored::new(Arc::new(last), stored.managed.clone(), self.version);
        let id = route.id.clone();
        self.publish(Change {
            version: self.version,
            id,
            sort: "DELETED",
            stored: last,
            before: Some(Arc::clone(&stored.value)),
        });
        if route.kind.kind == "CustomResourceDefinition" {
            self.undefine(request, &stored.value);
        }
        self.audited(request, "delete", route, Some(&stored.value), None);
    }

    /// The objects of a kind go with its definition.
    pub(super) fn undefine(&mut self, request: &Request, definition: &Value) {
        let kinds = Kind::of_definition(definition);
        let is_of = |id: &Id| {
            kinds
                .iter()
                .any(|kind| kind.group == id.group && kind.plural == id.plural)
        };
        let orphans: Vec<Id> = self
            .objects
            .keys()
            .filter(|id| is_of(id))
            .cloned()
            .collect();
        for id in orphans {
            let kind = kinds.iter().find(|kind| kind.plural == id.plural);
            let stored = self.objects.get(&id).cloned();
            if let (Some(kind), Some(stored)) = (kind.map(Arc::clone), stored) {
                let route = Route {
                    kind,
                    id,
                    subresource: String::new(),
                };
                self.remove(request, &route, &stored);
            }
        }
        self.define();
    }

    /// Reads which kinds the definitions bring. Of one that comes, a watch is told nothing of what was before; of one that goes, watches end.
    pub(super) fn define(&mut self) {
        let place = Id::new("apiextensions.k8s.io", "customresourcedefinitions", "", "");
        let definitions = self.at(&place);
        let established = definitions.filter(|(_, stored)| is_established(&stored.value));
        let custom: Vec<Arc<Kind>> = established
            .flat_map(|(_, stored)| Kind::of_definition(&stored.value))
            .collect();
        let former = std::mem::replace(&mut self.custom, custom);
        for kind in &self.custom {
            if !former.iter().any(|known| known.is(kind)) {
                let place = (kind.group.clone(), kind.plural.clone());
                self.served_since.insert(place, self.version);
            }
        }
        if former != self.custom {
            self.discovery = Discovery::default();
            self.wake();
        }
    }

    /// Stores an object if it changed, and answers with it.
    pub(super) fn store(
        &mut self,
        request: &Request,
        verb: &'static str,
        route: &Route,
        mut value: Value,
        mut managed: Vec<Managed>,
    ) -> Handled {
        if verb != "delete" {
            self.mutate(request, route, &mut value);
        }
        // What is empty of these is not stored, and nobody's.
        for field in ["data", "binaryData", "stringData"] {
            if value
                .get(field)
                .and_then(Value::as_object)
                .is_some_and(Map::is_empty)
            {
                value.as_object_mut().map(|map| map.remove(field));
                apply::disown(&mut managed, field);
            }
        }
        let before = self.objects.get(&route.id).cloned();
        if let Some(before) = &before
            && same(&before.value, &value)
            && apply::same(&before.managed, &managed)
        {
            return Ok(self.sent(request, before));
        }
        if let (Some(before), true) = (&before, route.kind.has_generation()) {
            let is_changed = apply::spec_changed(&before.value, &value);
            let generation = before.value.pointer("/metadata/generation");
            if let Some(generation) = generation.and_then(Value::as_i64) {
                let is_deleted = is_leaving(&value) && !is_leaving(&before.value);
                let generation = generation + i64::from(is_changed || is_deleted);
                value["metadata"]["generation"] = generation.into();
            }
        }
        if request.is_dry_run() {
            let version = before.as_ref().map_or(0, |before| before.version);
            if version != 0 {
                value["metadata"]["resourceVersion"] = version.to_string().into();
            }
            return Ok(self.sent(request, &Stored::new(Arc::new(value), managed, version)));
        }
        self.version += 1;
        value["metadata"]["resourceVersion"] = self.version.to_string().into();
        let stored = Stored::new(Arc::new(value), managed, self.version);
        let is_leaving = is_leaving(&stored.value);
        let is_held = stored
            .value
            .pointer("/metadata/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|finalizers| !finalizers.is_empty())
            || stored
                .value
                .pointer("/spec/finalizers")
                .and_then(Value::as_array)
                .is_some_and(|finalizers| !finalizers.is_empty());
        if is_leaving && !is_held {
            let answer = self.sent(request, &stored);
            self.remove(request, route, &stored);
            return Ok(answer);
        }
        self.objects.insert(route.id.clone(), Arc::clone(&stored));
        let old = before.map(|before| Arc::clone(&before.value));
        self.publish(Change {
            version: self.version,
            id: route.id.clone(),
            sort: if old.is_some() { "MODIFIED" } else { "ADDED" },
            stored: Arc::clone(&stored),
            before: old.clone(),
        });
        if route.kind.kind == "CustomResourceDefinition" {
            self.define();
        }
        self.audited(request, verb, route, old.as_ref(), Some(&stored.value));
        Ok(self.sent(request, &stored))
    }

    fn audited(
        &self,
        request: &Request,
        verb: &'static str,
        route: &Route,
        before: Option<&Arc<Value>>,
        after: Option<&Arc<Value>>,
    ) {
        let Some(audit) = &self.audit else { return };
        let write = Write {
            side: self.side,
            who: request.who.clone(),
            verb,
            id: route.id.clone(),
            before: before.cloned(),
            after: after.cloned(),
        };
        let mut audit = audit.lock().unwrap_or_else(PoisonError::into_inner);
        audit.wrote(&write);
    }
}

/// A definition waits for its objects to go (`Delete` of `registry/customresourcedefinition/etcd.go`).
fn terminate(definition: &mut Value) {
    let condition = json!({
        "type": "Terminating", "status": "True", "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    });
    let mut add = |part: &str, field: &str, item: Value| {
        let items = table(definition, part).entry(field).or_insert(json!([]));
        if let Some(items) = items.as_array_mut().filter(|items| !items.contains(&item)) {
            items.push(item);
        }
    };
    add("metadata", "finalizers", CLEANUP.into());
    add("status", "conditions", condition);
}

/// What a webhook says that refuses.
fn denied() -> Answer {
    let message = "admission webhook \"policy.example.com\" denied the request: it is not allowed";
    Answer::failure(403, "Forbidden", message, &Value::Null)
}

/// The uid that an object says, if any.
fn uid(object: &Value) -> Option<&str> {
    let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
    uid.filter(|uid| !uid.is_empty())
}

/// Other managers own what an apply would change.
fn conflict(conflicts: &[(String, String)]) -> Answer {
    let said: Vec<String> = conflicts
        .iter()
        .map(|(manager, field)| format!("conflict with {manager}: {field}"))
        .collect();
    let causes: Vec<Value> = conflicts
        .iter()
        .map(|(manager, field)| {
            json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {manager}"),
                "field": field,
            })
        })
        .collect();
    let plural = if conflicts.len() == 1 { "" } else { "s" };
    let message = match said.as_slice() {
        [one] => format!("Apply failed with 1 conflict: {one}"),
        all => format!(
            "Apply failed with {} conflict{plural}: {}",
            all.len(),
            all.join("\n")
        ),
    };
    Answer::failure(409, "Conflict", &message, &json!({"causes": causes}))
}
