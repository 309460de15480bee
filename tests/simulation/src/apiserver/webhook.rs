//! Webhooks that are asked of each object of a kind that is written in a namespace: they fail, are silent, or change it.
//!
//! Mirrors `admission/plugin/webhook`: a mutating one is asked once the server has noted who owns which fields, so that nobody owns what it adds;
//! one with `failurePolicy: Fail` that cannot be called fails the write. Of deletions and subresources none is asked.

use std::time::Duration;

use serde_json::{Value, json};

use super::object::{Id, table, table_in};
use super::request::{Actor, Answer, Request};
use super::route::Route;
use super::{Server, State};

/// A webhook for one kind in one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// The kind and the namespace; it has no name.
    pub place: Id,
    pub habit: Habit,
}

/// What a webhook does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// Nothing listens where it is to be.
    Fails,
    /// It takes what it is asked and says nothing for so many seconds, after which it is given up: 10 are the default, 30 the most.
    Hangs(u64),
    /// It adds a label where that is missing.
    Labels,
    /// It sets a field where that is missing.
    Defaults,
}

impl Habit {
    /// All of them, with what a script says.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::Fails, "cannot be called"),
        (Self::Hangs(10), "is silent for 10 s"),
        (Self::Hangs(30), "is silent for 30 s"),
        (Self::Labels, "adds a label"),
        (Self::Defaults, "sets what is missing"),
    ];

    /// Whether it keeps objects from being written.
    pub fn is_fault(self) -> bool {
        matches!(self, Self::Fails | Self::Hangs(_))
    }
}

/// The label that webhooks add.
const LABEL: &str = "site.example.com/owner";
/// What they set where it is missing: by kind, where, which field and to what.
const DEFAULTS: [(&str, &str, &str, &str); 5] = [
    ("ConfigMap", "data", "site", "north"),
    ("Deployment", "spec", "revisionHistoryLimit", "5"),
    ("Service", "spec", "sessionAffinity", "None"),
    ("Job", "spec", "backoffLimit", "4"),
    ("Widget", "spec", "site", "north"),
];

fn default_of(kind: &str) -> Option<(&'static str, &'static str, Value)> {
    let (_, part, field, text) = DEFAULTS.into_iter().find(|(of, ..)| *of == kind)?;
    let number = text.parse::<i64>().ok();
    Some((part, field, number.map_or(text.into(), Value::from)))
}

/// An object without what webhooks add.
pub fn without_additions(object: &Value) -> Value {
    let mut object = object.clone();
    let kind = object["kind"].as_str().unwrap_or_default();
    if let Some((part, field, value)) = default_of(kind)
        && object[part].get(field) == Some(&value)
    {
        table(&mut object, part).remove(field);
    }
    if object["metadata"]["labels"].get(LABEL).is_some() {
        let metadata = table(&mut object, "metadata");
        let labels = table_in(metadata, "labels");
        labels.remove(LABEL);
        if labels.is_empty() {
            metadata.remove("labels");
        }
    }
    object
}

impl State {
    fn webhooks_for(&self, request: &Request, route: &Route) -> impl Iterator<Item = Habit> {
        let asks = request.who.actor != Actor::System && route.subresource.is_empty();
        let asked = self.webhooks.iter().filter(move |_| asks);
        let asked = asked.filter(|webhook| route.id.is_in(&webhook.place));
        asked.map(|webhook| webhook.habit)
    }

    /// Asks the webhooks that only fail.
    pub(super) fn call(&self, request: &Request, route: &Route) -> Result<(), Answer> {
        let mut habits = self.webhooks_for(request, route);
        habits.find_map(failure).map_or(Ok(()), Err)
    }

    /// Adds what webhooks add.
    pub(super) fn mutate(&self, request: &Request, route: &Route, value: &mut Value) {
        for habit in self.webhooks_for(request, route) {
            match habit {
                Habit::Labels => {
                    let labels = table_in(table(value, "metadata"), "labels");
                    labels.entry(LABEL).or_insert("platform".into());
                }
                Habit::Defaults => {
                    if let Some((part, field, default)) = default_of(&route.kind.kind) {
                        table(value, part).entry(field).or_insert(default);
                    }
                }
                Habit::Fails | Habit::Hangs(_) => {}
            }
        }
    }
}

impl Server {
    /// For how long a webhook keeps a write waiting, and what is answered then.
    pub(crate) fn held_up(&self, request: &Request) -> Option<(Duration, Answer)> {
        let state = self.lock();
        if state.webhooks.is_empty()
            || !matches!(request.method.as_str(), "POST" | "PUT" | "PATCH")
            || request.not_modelled().is_some()
        {
            return None;
        }
        state.authenticate(request).ok()?;
        let route = state.route(request).ok()?;
        state.allow(request, &route).ok()?;
        let may_create =
            request.method == "POST" || request.content_type.starts_with("application/apply-patch");
        if !may_create && !state.objects.contains_key(&route.id) {
            return None;
        }
        let mut habits = state.webhooks_for(request, &route);
        let found = habits.find_map(|habit| match habit {
            Habit::Hangs(seconds) => Some((Duration::from_secs(seconds), failure(habit)?)),
            _ => None,
        });
        if let (Some((held, _)), Some(audit)) = (&found, &state.audit) {
            let mut audit = audit
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            audit.held_up(*held);
        }
        found
    }
}

/// What is answered for a webhook that did not answer.
fn failure(habit: Habit) -> Option<Answer> {
    let (seconds, why) = match habit {
        Habit::Fails => (10, "dial tcp 10.43.0.7:443: connect: connection refused"),
        Habit::Hangs(seconds) => (seconds, "context deadline exceeded"),
        Habit::Labels | Habit::Defaults => return None,
    };
    let said = format!(
        "failed calling webhook \"policy.example.com\": failed to call webhook: Post \"https://policy.site.svc:443/admit?timeout={seconds}s\": {why}"
    );
    let message = format!("Internal error occurred: {said}");
    let details = json!({"causes": [{"message": said}]});
    Some(Answer::failure(500, "InternalError", &message, &details))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;

    use super::*;
    use crate::apiserver::Who;

    const MAPS: &str = "/api/v1/namespaces/apps/configmaps";

    fn server(habit: Habit) -> Server {
        let server = Server::new("local", false, Arc::new(|| Timestamp::UNIX_EPOCH));
        let namespace = json!({"metadata": {"name": "apps"}});
        server.act(Actor::System, "POST", "/api/v1/namespaces", namespace);
        let place = Id::new("", "configmaps", "apps", "");
        server.lock().webhooks.push(Webhook { place, habit });
        server
    }

    fn applied(server: &Server) -> Answer {
        let uri = format!("{MAPS}/a?fieldManager=me&force=true");
        let body = json!({"metadata": {"name": "a"}, "data": {"key": "1"}});
        let mut request = Request::new(Who::is(Actor::Agent(1)), "PATCH", &uri, body);
        request.content_type = "application/apply-patch+yaml".to_owned();
        server.ask(&request)
    }

    #[test]
    fn fields_that_a_webhook_adds_have_no_manager_and_stay() {
        let server = server(Habit::Defaults);
        let live = applied(&server).value();
        assert_eq!(live["data"], json!({"key": "1", "site": "north"}));
        let managed = live["metadata"]["managedFields"].as_array();
        let managed = managed.cloned().unwrap_or_default();
        assert_eq!(managed.len(), 1);
        assert_eq!(managed[0]["fieldsV1"], json!({"f:data": {"f:key": {}}}));
        assert_eq!(applied(&server).value(), live, "it is written again");
        let without = without_additions(&live);
        assert_eq!(without["data"], json!({"key": "1"}));
    }

    #[test]
    fn a_webhook_that_cannot_be_called_fails_writes_and_nothing_else() {
        let server = server(Habit::Fails);
        let refused = applied(&server);
        assert_eq!(refused.code, 500);
        let said = refused.value()["message"].to_string();
        assert!(said.contains("failed calling webhook"), "{said}");
        server.lock().webhooks.clear();
        applied(&server);
        server.lock().webhooks = vec![Webhook {
            place: Id::new("", "configmaps", "apps", ""),
            habit: Habit::Hangs(10),
        }];
        let path = format!("{MAPS}/a");
        assert!(server.act(Actor::Person, "GET", &path, Value::Null).is_ok());
        let deleted = server.act(Actor::Person, "DELETE", &path, Value::Null);
        assert!(deleted.is_ok());
    }
}
