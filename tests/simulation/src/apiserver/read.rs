//! Single objects and lists.

use serde_json::json;

use super::object::Stored;
use super::request::{Answer, Request};
use super::route::Route;
use super::select::Selector;
use super::watch::is_at;
use super::{Handled, State};

impl State {
    pub(super) fn sent(&self, request: &Request, stored: &Stored) -> Answer {
        Answer::ok(match request.wants_metadata() {
            true => stored.metadata.clone(),
            false => stored.text.clone(),
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
        let selector = Selector::of(request)?;
        let place = route.id.place();
        // A page goes on after the name that the one before ended with.
        let after = request.parameter("continue");
        let limit: usize = request.parameter("limit").parse().unwrap_or(0);
        let mut found = self
            .objects
            .iter()
            .filter(|(id, stored)| is_at(&place, id) && selector.fits(&stored.value))
            .filter(|(id, _)| {
                after.is_empty() || *after < *format!("{}/{}", id.namespace, id.name)
            });
        let mut items: Vec<Vec<u8>> = Vec::new();
        let mut last = String::new();
        let mut token = String::new();
        for (id, stored) in found.by_ref() {
            if limit != 0 && items.len() == limit {
                token.clone_from(&last);
                break;
            }
            last = format!("{}/{}", id.namespace, id.name);
            items.push(match request.wants_metadata() {
                true => stored.metadata.to_vec(),
                false if route.kind.is_built_in() => [b"{", &stored.text[stored.typed..]].concat(),
                false => stored.text.to_vec(),
            });
        }
        let (kind, api_version) = match request.wants_metadata() {
            true => (
                "PartialObjectMetadata".to_owned(),
                "meta.k8s.io/v1".to_owned(),
            ),
            false => (route.kind.kind.clone(), route.kind.api_version()),
        };
        let mut metadata = json!({"resourceVersion": self.version.to_string()});
        if !token.is_empty() {
            metadata["continue"] = token.into();
        }
        let mut text =
            format!("{{\"kind\":\"{kind}List\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[")
                .into_bytes();
        text.extend_from_slice(&items.join(&b","[..]));
        text.extend_from_slice(b"]}");
        Ok(Answer::ok(text.into()))
    }
}
