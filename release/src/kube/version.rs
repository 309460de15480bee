//! The identity and version of an object as it was read: a write or deletion holds for that, and for nothing else.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// An object that was read, by its uid, and the version of it. An API server refuses with a conflict what names them and meets another object,
/// another version, or nothing any more. Neither is empty; there are APIs that give no versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    uid: Option<String>,
    resource_version: Option<String>,
}

impl Version {
    /// A version that no object has: etcd gives the first one to nothing. An apply with it creates an object, or fails.
    pub(super) const OF_NOTHING: &str = "1";

    /// Of `live`, an object or its metadata.
    pub(super) fn of(live: &Value) -> Self {
        let text = |field| {
            let text = live.pointer(field).and_then(Value::as_str);
            text.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        Self {
            uid: text("/metadata/uid"),
            resource_version: text("/metadata/resourceVersion"),
        }
    }

    /// The version alone; one that is unknown is written over by nobody.
    pub(super) fn resource_version(&self) -> &str {
        self.resource_version.as_deref().unwrap_or(Self::OF_NOTHING)
    }

    /// Has `body` written over this object in this version, or not at all.
    pub(super) fn demand(&self, body: &mut Value) {
        self.demand_known(body);
        body["metadata"]["resourceVersion"] = self.resource_version().into();
    }

    /// Like [`Self::demand`], with the known fields only: an object of an API without versions is written over in any.
    pub(super) fn demand_known(&self, body: &mut Value) {
        for (field, value) in self.known() {
            body["metadata"][field] = value;
        }
    }

    /// What a deletion makes sure of. An API that gives its objects no versions tells them apart by their uids alone.
    pub(super) fn preconditions(&self) -> Map<String, Value> {
        let mut known = self.known();
        if known.is_empty() {
            known.insert("resourceVersion".to_owned(), Self::OF_NOTHING.into());
        }
        known
    }

    fn known(&self) -> Map<String, Value> {
        let fields = [
            ("uid", &self.uid),
            ("resourceVersion", &self.resource_version),
        ];
        let known = fields
            .into_iter()
            .filter_map(|(field, value)| Some((field.to_owned(), value.as_deref()?.into())));
        known.collect()
    }

    /// Whether the object has this uid, in whichever version.
    pub(super) fn is_of(&self, uid: &str) -> bool {
        self.uid.as_deref() == Some(uid)
    }

    /// The object's uid, if it has one.
    pub(super) fn uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }

    /// Whether `other` is the same object, in whichever version.
    pub(super) fn is_same_object(&self, other: &Self) -> bool {
        self.uid == other.uid
    }
}

/// The objects that an attempt has written, by their uids: one object may be served under several groups and kinds, as OpenShift serves a RoleBinding
/// and a Namespace, so that what has another name in an earlier revision may be what was written just now.
#[derive(Debug, Default)]
pub(crate) struct WrittenObjects {
    uids: BTreeSet<String>,
}

impl WrittenObjects {
    /// Takes note of what was written by the answer to it.
    pub(super) fn add(&mut self, written: Version) {
        self.uids.extend(written.uid);
    }

    /// Whether an object is one of these.
    pub(super) fn has(&self, object: &Version) -> bool {
        object.uid().is_some_and(|uid| self.uids.contains(uid))
    }
}
