//! Single objects and lists.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::object::{Id, Stored};
use super::request::{Answer, Request};
use super::route::Route;
use super::select::Selector;
use super::watch::gone;
use super::{Handled, State};

impl State {
    /// All objects of a kind, or those of them in one namespace.
    pub(super) fn at<'s>(
        &'s self,
        place: &'s Id,
    ) -> impl Iterator<Item = (&'s Id, &'s Arc<Stored>)> {
        self.objects
            .range(place..)
            .take_while(|(id, _)| id.is_in(place))
    }

    /// The objects at a place as they were at a version that is not forgotten.
    fn at_version(&self, place: &Id, version: u64) -> BTreeMap<Id, Arc<Stored>> {
        let there = self.at(place);
        let mut found: BTreeMap<_, _> = there.map(|(id, it)| (id.clone(), it.clone())).collect();
        let since = self.log.iter().rev();
        let since = since.take_while(|change| change.version > version);
        for change in since.filter(|change| change.id.is_in(place)) {
            let before = match (change.sort, &change.before) {
                ("DELETED", _) => Some(change.stored.clone()),
                (_, before) => before
                    .as_ref()
                    .map(|before| Stored::new(before.clone(), Vec::new(), version)),
            };
            match before {
                Some(before) => found.insert(change.id.clone(), before),
                None => found.remove(&change.id),
            };
        }
        found
    }

    pub(super) fn sent(&self, request: &Request, stored: &Stored) -> Answer {
        Answer::ok(match request.wants_metadata() {
            true => stored.metadata().clone(),
            false => stored.text().clone(),
        })
    }

    pub(super) fn read(&self, request: &Request, route: &Route) -> Handled {
        match self.objects.get(&route.id) {
            Some(stored) => Ok(self.sent(request, stored)),
            None => Err(Self::missing(route)),
        }
    }

    pub(super) fn list(&self, request: &Request, route: &Route) -> Handled {
        if request.is_watch() {
            return Err(Answer::not_modelled("a watch asked for as a list"));
        }
        let selector = Selector::of(request, &route.id.plural)?;
        let place = route.id.place();
        // A page goes on after the name that the one before ended with, at the version of the first: all pages are of one moment.
        let token = request.parameter("continue");
        let (version, after) = match token.split_once('/') {
            Some((version, after)) => (version.parse().unwrap_or(0), after),
            None => (self.version, ""),
        };
        if version > self.version {
            return Err(too_large(version, self.version));
        }
        if version != self.version && version < self.forgotten {
            return Err(gone(version, self.forgotten));
        }
        let limit: usize = request.parameter("limit").parse().unwrap_or(0);
        let shortest = self
            .page
            .filter(|_| limit != 0 && route.id.plural == "bundledeployments");
        let limit = shortest.unwrap_or(limit);
        let earlier = (version != self.version).then(|| self.at_version(&place, version));
        let found: Box<dyn Iterator<Item = (&Id, &Arc<Stored>)>> = match &earlier {
            Some(earlier) => Box::new(earlier.iter()),
            None => Box::new(self.at(&place)),
        };
        let found = found
            .filter(|(_, stored)| selector.fits(&stored.value))
            .filter(|(id, _)| {
                after.is_empty() || *after < *format!("{}/{}", id.namespace, id.name)
            });
        let mut items = Vec::new();
        let mut last: Option<&Id> = None;
        let mut token = String::new();
        let mut remaining = 0_u64;
        for (count, (id, stored)) in found.enumerate() {
            if limit != 0 && count >= limit {
                remaining += 1;
                token = last.map_or_else(String::new, |id| {
                    format!("{version}/{}/{}", id.namespace, id.name)
                });
                continue;
            }
            if count != 0 {
                items.push(b',');
            }
            last = Some(id);
            match request.wants_metadata() {
                true => items.extend_from_slice(stored.metadata()),
                false if route.kind.is_built_in() => stored.push_untyped(&mut items),
                false => items.extend_from_slice(stored.text()),
            }
        }
        let (kind, api_version) = match request.wants_metadata() {
            true => (
                "PartialObjectMetadata".to_owned(),
                "meta.k8s.io/v1".to_owned(),
            ),
            false => (route.kind.kind.clone(), route.kind.api_version()),
        };
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if !token.is_empty() {
            metadata["continue"] = token.into();
            // Real ones leave it out where a selector leaves out any.
            if selector == Selector::default() {
                metadata["remainingItemCount"] = remaining.into();
            }
        }
        let mut text =
            format!("{{\"kind\":\"{kind}List\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[")
                .into_bytes();
        text.extend_from_slice(&items);
        text.extend_from_slice(b"]}");
        Ok(Answer::ok(text.into()))
    }
}

/// What a server answers, after it has waited for three seconds, to whoever goes on at a version that it has not come to: v1.36.3 does, as when it was
/// restored since the first page.
fn too_large(version: u64, current: u64) -> Answer {
    let message = format!("Timeout: Too large resource version: {version}, current: {current}");
    let cause =
        json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
    let details = json!({"causes": [cause], "retryAfterSeconds": 1});
    Answer::failure(504, "Timeout", &message, &details)
}

#[cfg(test)]
mod tests {
    use super::super::{Actor, Server, Who};
    use super::*;
    use jiff::Timestamp;
    use serde_json::Value;

    const MAPS: &str = "/api/v1/namespaces/default/configmaps";

    /// A page of one object.
    fn page(server: &Server, token: &str) -> Answer {
        let who = Who {
            actor: Actor::Person,
            account: String::new(),
        };
        let uri = format!("{MAPS}?limit=1&continue={token}");
        server.ask(&Request::new(who, "GET", &uri, Value::Null))
    }

    /// As real ones have it: what is written between two pages is in none of them, and a watch from their version tells of it.
    #[test]
    fn all_pages_of_a_list_show_one_resource_version() {
        let server = Server::new("local", false, Arc::new(|| Timestamp::UNIX_EPOCH));
        let act = |method: &str, path: &str, body: Value| {
            server.act(Actor::Person, method, path, body);
        };
        let map = |name: &str| json!({"metadata": {"name": name}, "data": {"a": "1"}});
        let namespace = json!({"metadata": {"name": "default"}});
        act("POST", "/api/v1/namespaces", namespace);
        for name in ["a", "b", "c"] {
            act("POST", MAPS, map(name));
        }
        let mut got = page(&server, "").value();
        let version = got["metadata"]["resourceVersion"].clone();
        act("POST", MAPS, map("aa"));
        let edited = json!({"data": {"a": "2"}});
        act("PATCH", &format!("{MAPS}/b"), edited);
        act("DELETE", &format!("{MAPS}/c"), Value::Null);
        let mut names = Vec::new();
        loop {
            assert_eq!(got["metadata"]["resourceVersion"], version);
            let item = &got["items"][0];
            names.push(item["metadata"]["name"].as_str().unwrap().to_owned());
            assert_eq!(item["data"]["a"], "1");
            let Some(token) = got["metadata"]["continue"].as_str().map(str::to_owned) else {
                break;
            };
            got = page(&server, &token).value();
        }
        assert_eq!(names, ["a", "b", "c"]);
        let token = page(&server, "").value()["metadata"]["continue"].clone();
        let token = token.as_str().unwrap();
        let backup = server.backup();
        act("POST", MAPS, map("d"));
        server.compact();
        assert_eq!(page(&server, token).code, 410);
        let token = page(&server, "").value()["metadata"]["continue"].clone();
        let token = token.as_str().unwrap();
        server.restore(&backup, true);
        assert_eq!(page(&server, token).code, 504);
        // It goes by versions, which are those of another past by now.
        act("POST", MAPS, map("d"));
        assert!(page(&server, token).is_ok());
    }
}
