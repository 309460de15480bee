//! Watches: what they are told, when they end.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::kinds::Kind;
use super::object::{Id, Stored};
use super::request::{Answer, Request};
use super::select::Selector;
use super::{Server, State};

/// How many changes a watch may lag behind.
const LOG: usize = 400;

/// A change that a watch tells.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) id: Id,
    /// `ADDED`, `MODIFIED`, `DELETED`.
    pub(super) sort: &'static str,
    /// As it is after the change, or was last.
    pub(super) stored: Arc<Stored>,
    /// As it was before, for selectors that it no longer fits.
    pub(super) before: Option<Arc<Value>>,
}

/// Who is told that a kind has changed.
pub(super) struct Listener {
    place: Id,
    wakeup: Weak<Notify>,
}

/// A watch in progress.
pub(crate) struct Watch {
    kind: Arc<Kind>,
    place: Id,
    selector: Selector,
    wants_metadata: bool,
    bookmarks: bool,
    since: u64,
    epoch: u64,
    /// When it was last told a version.
    reported: u64,
    /// What is told before all else.
    present: Vec<u8>,
    /// Told when there may be something to tell.
    wakeup: Arc<Notify>,
}

/// What a watch has to tell.
pub(crate) enum Next {
    Part(Bytes),
    /// The last words of a watch.
    Last(Bytes),
    Broken,
    /// It ends, as its kind is served no more.
    End,
    Nothing,
}

impl Server {
    /// Begins a watch.
    pub(crate) fn watch(&self, request: &Request) -> Result<Watch, Answer> {
        let mut state = self.lock();
        let begun = state.watch(request);
        if let Err(refused) = &begun {
            state.tell(request, refused);
        }
        begun
    }

    /// The next part of a watch; none when there is nothing to tell yet.
    pub(crate) fn next(&self, watch: &mut Watch) -> Next {
        let state = self.lock();
        if state.epoch != watch.epoch {
            return Next::Broken;
        }
        let is_served = watch.kind.is_built_in() || state.served().any(|kind| kind.is(&watch.kind));
        let ended = match is_served {
            true => Next::Nothing,
            false => Next::End,
        };
        if watch.since == state.version && watch.present.is_empty() {
            return ended;
        }
        let unsent = state.unsent(&watch.place);
        if watch.since < unsent {
            let failure = gone(watch.since, unsent).value();
            let event = json!({"type": "ERROR", "object": failure});
            return Next::Last(line(&event));
        }
        let from = state
            .log
            .partition_point(|change| change.version <= watch.since);
        let mut text = std::mem::take(&mut watch.present);
        for change in state.log.iter().skip(from) {
            watch.since = change.version;
            if !watch.is_at(&change.id) {
                continue;
            }
            let is_in = change.sort != "DELETED" && watch.selector.fits(&change.stored.value);
            let before = match change.sort {
                "DELETED" => Some(&change.stored.value),
                _ => change.before.as_ref(),
            };
            let was_in = before.is_some_and(|before| watch.selector.fits(before));
            let sort = match (was_in, is_in) {
                (false, false) => continue,
                (false, true) => "ADDED",
                (true, true) => "MODIFIED",
                (true, false) => "DELETED",
            };
            match before.filter(|_| sort == "DELETED" && change.sort != sort) {
                Some(before) => {
                    let last = as_it_was(before, change.version);
                    watch.push_event(&mut text, sort, &last);
                }
                None => watch.push_event(&mut text, sort, &change.stored),
            }
            watch.reported = change.version;
        }
        watch.since = state.version;
        if !text.is_empty() {
            return Next::Part(text.into());
        }
        ended
    }

    /// The news that there is nothing new.
    pub(crate) fn bookmark(&self, watch: &mut Watch) -> Option<Bytes> {
        // Whoever hears of all that is told has heard of all there is.
        watch.since = self.lock().version;
        if !watch.bookmarks || watch.reported == watch.since {
            return None;
        }
        watch.reported = watch.since;
        let event = json!({"type": "BOOKMARK", "object": {
            "kind": watch.kind.kind, "apiVersion": watch.kind.api_version(),
            "metadata": {"resourceVersion": watch.since.to_string(), "creationTimestamp": null},
        }});
        Some(line(&event))
    }
}

impl Watch {
    /// Whether it tells of objects of this kind.
    pub(crate) fn is_of(&self, plural: &str) -> bool {
        self.kind.plural == plural
    }

    /// Returns when there may be something to tell.
    pub(crate) fn wakeup(&self) -> Arc<Notify> {
        Arc::clone(&self.wakeup)
    }

    fn push_event(&self, text: &mut Vec<u8>, sort: &str, stored: &Stored) {
        let object = match self.wants_metadata {
            true => stored.metadata(),
            false => stored.text(),
        };
        for part in [
            &b"{\"type\":\""[..],
            sort.as_bytes(),
            b"\",\"object\":",
            object,
            b"}\n",
        ] {
            text.extend_from_slice(part);
        }
    }

    fn is_at(&self, id: &Id) -> bool {
        id.is_in(&self.place)
    }
}

impl State {
    fn watch(&mut self, request: &Request) -> Result<Watch, Answer> {
        self.authenticate(request)?;
        if let Some(what) = request.not_modelled() {
            return Err(Answer::not_modelled(&what));
        }
        let route = self.route(request)?;
        self.allow(request, &route)?;
        let since = request.parameter("resourceVersion").parse().unwrap_or(0);
        let kind = (route.id.group.clone(), route.id.plural.clone());
        let served_since = self.served_since.get(&kind).copied().unwrap_or(0);
        let oldest = self.forgotten.max(served_since);
        if since != 0 && since < oldest {
            return Err(gone(since, oldest));
        }
        let mut watch = Watch {
            selector: Selector::of(request, &route.id.plural)?,
            wants_metadata: request.wants_metadata(),
            bookmarks: request.parameter("allowWatchBookmarks") == "true",
            since,
            epoch: self.epoch,
            reported: since,
            present: Vec::new(),
            wakeup: Arc::default(),
            place: route.id.place(),
            kind: route.kind,
        };
        self.listeners.push(Listener {
            place: watch.place.clone(),
            wakeup: Arc::downgrade(&watch.wakeup),
        });
        if since == 0 {
            // What is there comes first.
            let mut present = Vec::new();
            for (_, stored) in self.at(&watch.place) {
                if watch.selector.fits(&stored.value) {
                    watch.push_event(&mut present, "ADDED", stored);
                }
            }
            watch.present = present;
            watch.since = self.version;
        }
        Ok(watch)
    }

    pub(super) fn publish(&mut self, change: Change) {
        if self.log.len() == LOG
            && let Some(oldest) = self.log.pop_front()
        {
            self.forget_change(oldest);
        }
        self.listeners.retain(|listener| {
            let Some(wakeup) = listener.wakeup.upgrade() else {
                return false;
            };
            if change.id.is_in(&listener.place) {
                wakeup.notify_one();
            }
            true
        });
        self.log.push_back(change);
    }

    /// The last change of a kind that watches in progress are not told any more.
    fn unsent(&self, place: &Id) -> u64 {
        let mut unsent = self.unsent.iter();
        let found =
            unsent.find(|((group, plural), _)| *group == place.group && *plural == place.plural);
        found.map_or(0, |(_, version)| *version)
    }

    fn forget_change(&mut self, change: Change) {
        self.forgotten = self.forgotten.max(change.version);
        let kind = (change.id.group, change.id.plural);
        self.unsent.insert(kind, change.version);
    }

    /// Forgets all changes, and ends watches that have not been told of them.
    pub(super) fn compact(&mut self) {
        for change in std::mem::take(&mut self.log) {
            self.forget_change(change);
        }
        self.forgotten = self.version;
        self.wake();
    }

    /// Ends all watches without a word.
    pub(super) fn break_watches(&mut self) {
        self.epoch += 1;
        self.wake();
    }

    pub(super) fn wake(&self) {
        let listeners = self.listeners.iter();
        for wakeup in listeners.filter_map(|listener| listener.wakeup.upgrade()) {
            wakeup.notify_one();
        }
    }
}

/// What a watch is told of an object that its selector fits no more: the object as it was when it did, with the version of the change
/// (`convertToWatchEvent` of the API server's watch cache; end-to-end `drift::an_edited_object_without_labels_is_corrected`).
fn as_it_was(before: &Arc<Value>, version: u64) -> Arc<Stored> {
    let mut last = before.as_ref().clone();
    last["metadata"]["resourceVersion"] = version.to_string().into();
    Stored::new(Arc::new(last), Vec::new(), version)
}

fn line(event: &Value) -> Bytes {
    (event.to_string() + "\n").into()
}

pub(super) fn gone(since: u64, oldest: u64) -> Answer {
    let message = format!("too old resource version: {since} ({oldest})");
    Answer::failure(410, "Expired", &message, &Value::Null)
}

#[cfg(test)]
mod tests {
    use super::super::{Actor, Who};
    use super::*;
    use jiff::Timestamp;

    fn events(server: &Server, watch: &mut Watch) -> Vec<Value> {
        let Next::Part(text) = server.next(watch) else {
            return Vec::new();
        };
        let lines = text.split(|byte| *byte == b'\n');
        let filled = lines.filter(|line| !line.is_empty());
        filled
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }

    #[test]
    fn an_object_that_loses_its_labels_is_watched_as_deleted_with_the_labels_it_had() {
        let server = Server::new("local", false, Arc::new(|| Timestamp::UNIX_EPOCH));
        let maps = "/api/v1/namespaces/default/configmaps";
        let body = json!({"metadata": {"name": "a", "labels": {"set": "1"}}});
        server.act(
            Actor::Person,
            "POST",
            "/api/v1/namespaces",
            json!({"metadata": {"name": "default"}}),
        );
        server.act(Actor::Person, "POST", maps, body);
        let who = Who {
            actor: Actor::Person,
            account: String::new(),
        };
        let uri = "/api/v1/configmaps?labelSelector=set&watch=true";
        let request = Request::new(who, "GET", uri, Value::Null);
        let mut watch = server.watch(&request).ok().unwrap();
        assert_eq!(events(&server, &mut watch)[0]["type"], "ADDED");
        let stripped = json!({"metadata": {"labels": null}});
        server.act(Actor::Person, "PATCH", &format!("{maps}/a"), stripped);
        let reported = events(&server, &mut watch);
        assert_eq!(reported[0]["type"], "DELETED");
        assert_eq!(reported[0]["object"]["metadata"]["labels"]["set"], "1");
        let live = server.get(&Id::new("", "configmaps", "default", "a"));
        let version = live.unwrap()["metadata"]["resourceVersion"].clone();
        assert_eq!(
            reported[0]["object"]["metadata"]["resourceVersion"],
            version
        );
        // What happens to it after that is not told.
        server.act(
            Actor::Person,
            "PATCH",
            &format!("{maps}/a"),
            json!({"data": {"a": "b"}}),
        );
        assert!(events(&server, &mut watch).is_empty());
    }
}
