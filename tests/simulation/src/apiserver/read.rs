//! Single objects and lists.

use std::sync::Arc;

use serde_json::json;

use super::object::{Id, Stored};
use super::request::{Answer, Request};
use super::route::Route;
use super::select::Selector;
use super::watch::is_at;
use super::{Handled, State};

impl State {
    /// All objects of a kind, or those of them in one namespace.
    pub(super) fn at<'s>(
        &'s self,
        place: &'s Id,
    ) -> impl Iterator<Item = (&'s Id, &'s Arc<Stored>)> {
        self.objects
            .range(place..)
            .take_while(|(id, _)| is_at(place, id))
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
        let selector = Selector::of(request)?;
        let place = route.id.place();
        // A page goes on after the name that the one before ended with.
        let after = request.parameter("continue");
        let limit: usize = request.parameter("limit").parse().unwrap_or(0);
        let shortest = self
            .page
            .filter(|_| limit != 0 && route.id.plural == "bundledeployments");
        let limit = shortest.unwrap_or(limit);
        let found = self
            .at(&place)
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
                token = last.map_or_else(String::new, |id| format!("{}/{}", id.namespace, id.name));
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
        let mut metadata = json!({"resourceVersion": self.version.to_string()});
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
