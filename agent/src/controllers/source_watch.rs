//! A watch on one object by its name that facts or values come from.

use futures_util::StreamExt as _;
use kube::api::ObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Resource};

use crate::client::listed::Metadata;
use crate::client::watch::{self, Broken};
use crate::public::PublicText;

/// The last state seen of an object.
#[derive(Clone, Copy)]
pub enum Seen<'o> {
    There(&'o ObjectMeta),
    Gone,
    Forbidden,
}

impl<'o> Seen<'o> {
    pub fn metadata(self) -> Option<&'o ObjectMeta> {
        match self {
            Self::There(metadata) => Some(metadata),
            Self::Gone | Self::Forbidden => None,
        }
    }
}

/// Calls `changed` with what is seen of an object whenever that changes, until watching it is forbidden.
pub async fn follow<K>(api: Api<Metadata<K>>, name: &str, mut changed: impl FnMut(Seen<'_>))
where
    K: Resource<DynamicType = ()> + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = watch::watch(api, config, Broken::Relist);
    let mut is_listed = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => is_listed = false,
            Ok(watcher::Event::InitApply(found) | watcher::Event::Apply(found)) => {
                is_listed = true;
                changed(Seen::There(&found.metadata));
            }
            Ok(watcher::Event::InitDone) if is_listed => {}
            Ok(watcher::Event::InitDone | watcher::Event::Delete(_)) => changed(Seen::Gone),
            Err(failed) => {
                let error = PublicText::nothing_secret_in(&failed);
                logging::debug!(name, error, "a source of facts or of values");
                if watch::is_forbidden(&failed) {
                    return changed(Seen::Forbidden);
                }
            }
        }
    }
}
