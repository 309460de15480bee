//! Where a request leads, and whether it may go there.

use std::sync::Arc;

use serde_json::{Value, json};

use super::kinds::Kind;
use super::object::Id;
use super::request::{Answer, Request};
use super::{Handled, State};

/// Where a request leads.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) kind: Arc<Kind>,
    pub(super) id: Id,
    /// `status`, `scale` or nothing.
    pub(super) subresource: String,
}

impl State {
    pub(super) fn served(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.iter().chain(&self.custom)
    }

    pub(super) fn handle(&mut self, request: &Request) -> Handled {
        self.authenticate(request)?;
        if let Some(what) = request.not_modelled() {
            return Err(Answer::not_modelled(&what));
        }
        let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
        match path.as_slice() {
            ["version"] => {
                return Ok(Answer::json(&json!({
                    "major": "1", "minor": "33", "gitVersion": "v1.33.0", "platform": "linux/amd64",
                })));
            }
            ["api"] | ["apis"] => return Ok(Answer::ok(self.discovery(path == ["api"]))),
            _ => {}
        }
        let route = self.route(request)?;
        self.allow(request, &route)?;
        if route.subresource == "scale" {
            return self.scale(request, &route);
        }
        match (request.method.as_str(), route.id.name.is_empty()) {
            ("GET", false) => self.read(request, &route),
            ("GET", true) => self.list(request, &route),
            ("POST", true) => self.create(request, &route, request.body.clone()),
            ("PUT", false) => self.replace(request, &route),
            ("PATCH", false) => self.patch(request, &route),
            ("DELETE", false) => self.delete(request, &route),
            (method, _) => Err(Answer::not_modelled(&format!("{method} on {}", route.id))),
        }
    }

    pub(super) fn authenticate(&self, request: &Request) -> Result<(), Answer> {
        let is_agent = request.who.agent().is_some();
        if !is_agent || self.tokens.is_empty() || self.tokens.contains(&request.token) {
            return Ok(());
        }
        Err(Answer::failure(
            401,
            "Unauthorized",
            "Unauthorized",
            &Value::Null,
        ))
    }

    pub(super) fn route(&self, request: &Request) -> Result<Route, Answer> {
        let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
        let (group, version, rest) = match path.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Err(Answer::not_modelled(&format!("/{}", path.join("/")))),
        };
        let (namespace, plural, rest) = match rest {
            ["namespaces"] => ("", "namespaces", &rest[1..]),
            ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => {
                ("", "namespaces", &rest[1..])
            }
            ["namespaces", namespace, plural, rest @ ..] => (*namespace, *plural, rest),
            [plural, rest @ ..] => ("", *plural, rest),
            [] => return Err(Answer::not_modelled("discovery group by group")),
        };
        let found = self
            .served()
            .find(|kind| kind.group == group && kind.version == version && kind.plural == plural);
        let Some(kind) = found.map(Arc::clone) else {
            return Err(Answer::unserved());
        };
        let (name, subresource) = match rest {
            [] => ("", ""),
            [name] => (*name, ""),
            [name, "status"] if kind.has_status => (*name, "status"),
            [name, "scale"] if kind.has_scale() => (*name, "scale"),
            _ => return Err(Answer::not_modelled(&format!("/{}", path.join("/")))),
        };
        Ok(Route {
            id: Id::new(group, plural, namespace, name),
            subresource: subresource.to_owned(),
            kind,
        })
    }

    pub(super) fn allow(&self, request: &Request, route: &Route) -> Result<(), Answer> {
        let Some(_) = request.who.agent() else {
            return Ok(());
        };
        if self.denied.is_empty() {
            return Ok(());
        }
        let account = request.who.account.as_str();
        let namespace = &route.id.namespace;
        let rights = [
            account.to_owned(),
            format!("{account}/{namespace}"),
            format!("{account}/*/{}", route.id.plural),
        ];
        if !rights.iter().any(|right| self.denied.contains(right)) {
            return Ok(());
        }
        let verb = match (request.method.as_str(), route.id.name.is_empty()) {
            ("GET", false) => "get",
            ("GET", true) if request.is_watch() => "watch",
            ("GET", true) => "list",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            _ => "delete",
        };
        let user = match account {
            "" => "system:serviceaccount:cattle-fleet-system:fleet-agent".to_owned(),
            account => format!("system:serviceaccount:cattle-fleet-system:{account}"),
        };
        let (resource, group) = (&route.id.plural, &route.id.group);
        let place = match namespace.as_str() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace \"{namespace}\""),
        };
        let name = match route.id.name.as_str() {
            "" => String::new(),
            name => format!(" \"{name}\""),
        };
        let message = format!(
            "{}{name} is forbidden: User \"{user}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" {place}",
            route.kind.qualified()
        );
        let details = json!({"kind": resource, "name": route.id.name, "group": group});
        Err(Answer::failure(403, "Forbidden", &message, &details))
    }

    pub(super) fn missing(route: &Route) -> Answer {
        let mut details = json!({"name": route.id.name, "kind": route.id.plural});
        if !route.id.group.is_empty() {
            details["group"] = route.id.group.clone().into();
        }
        let message = format!("{} \"{}\" not found", route.kind.qualified(), route.id.name);
        Answer::failure(404, "NotFound", &message, &details)
    }

    pub(super) fn refused(route: &Route, code: u16, reason: &str, why: &str) -> Answer {
        let mut details = json!({"name": route.id.name, "kind": route.id.plural});
        if !route.id.group.is_empty() {
            details["group"] = route.id.group.clone().into();
        }
        let subject = format!("{} \"{}\"", route.kind.qualified(), route.id.name);
        let message = match reason {
            "AlreadyExists" => format!("{subject} already exists"),
            "Conflict" => format!("Operation cannot be fulfilled on {subject}: {why}"),
            "Forbidden" => format!("{subject} is forbidden: {why}"),
            _ => why.to_owned(),
        };
        Answer::failure(code, reason, &message, &details)
    }
}
