//! What is left of what nobody wants any more, once everything is at rest.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::{Checker, ReleaseKey, adoption, release_of};
use crate::apiserver::{Actor, Id, is_leaving};
use crate::desired::{Desired, NAMESPACES, bundle_name};

/// How it stands with the bundles at rest.
pub struct Rest<'w> {
    /// An object of the local cluster.
    pub live: &'w dyn Fn(&Id) -> Option<Arc<Value>>,
    /// Whether upstream is told that a bundle is ready.
    pub is_ready: &'w dyn Fn(usize) -> bool,
    /// Whether the removal of a bundle that upstream has not is held or under way.
    pub is_held: &'w dyn Fn(usize) -> bool,
    /// Releases that the agent remembers, and in their places what bundles left beside those of others.
    pub remembered: &'w BTreeSet<ReleaseKey>,
}

impl Checker {
    /// An object that the agent created and that nothing wants any more: no version of a bundle that is ready, no bundle at all, no
    /// removal that is under way or held, no record.
    pub fn leftover(&self, rest: &Rest<'_>) -> Option<String> {
        let objects = self.made.iter().filter(|(id, release)| {
            (rest.live)(id).is_some_and(|live| !is_leaving(&live) && self.is_own(&live, release))
        });
        let mut left = objects.filter_map(|(id, release)| {
            let why = self.left_of(id, release, rest)?;
            Some(format!("{id} of {release:?} is there: {why}"))
        });
        left.next().or_else(|| self.copy_left(rest))
    }

    /// Whether an object is one that the agent made, has the marks of its release, was neither kept nor there before, and is not of attempts that went with
    /// their records alone.
    fn is_own(&self, live: &Value, release: &ReleaseKey) -> bool {
        let origin = self.origins.get(&Self::uid(live));
        let is_made = origin.is_some_and(|origin| matches!(origin.actor, Actor::Agent(_)));
        let is_marked = Self::owner(live).as_ref() == Some(release);
        let uid = Self::uid(live);
        let is_given_up = self.given_up.contains(&uid) || self.made_again.contains_key(&uid);
        !is_given_up && is_made && is_marked && adoption(live).is_none() && !Self::is_hook(live)
    }

    fn left_of(&self, id: &Id, release: &ReleaseKey, rest: &Rest<'_>) -> Option<String> {
        if self.forgotten.contains(release) {
            return None;
        }
        let is_its = |desired: &Desired| release_of(desired) == *release;
        let bundles = self.desired_state.of_release(&release.0, &release.1);
        let mut ever = bundles
            .iter()
            .flat_map(|bundle| &self.desired_state.ever[bundle]);
        // What was left on purpose is nobody's to take away, whoever has the release next. The spec last seen counts, also where it has moved.
        if ever.any(|desired| desired.keep_resources) {
            return None;
        }
        // What a bundle left at a release of others goes with it, or once it has another one.
        let had = |bundle: &&usize| {
            let desired = self.desired_state.ever[bundle].iter();
            let mut desired = desired.filter(|desired| is_its(desired));
            desired.any(|desired| desired.ids().any(|wanted| wanted == *id))
        };
        let mut having = bundles.iter().filter(had);
        if having.any(|bundle| self.is_noted(*bundle, &release.0, rest)) {
            return None;
        }
        if self.is_below_forged(id, release, rest) {
            return None;
        }
        let mut wanting = self.desired_state.now.iter();
        let wanting = wanting.by_ref().filter(|(_, desired)| is_its(desired));
        match wanting.collect::<Vec<_>>().as_slice() {
            [] => {
                let has_records = self.records.get(release).is_some_and(|all| !all.is_empty());
                (!has_records && !rest.remembered.contains(release))
                    .then(|| "no bundle wants the release, and nothing remembers it".to_owned())
            }
            [(bundle, desired)] => {
                let wants = desired.is_missing || desired.ids().any(|wanted| wanted == *id);
                let is_known = self.is_beside_helms(id, release, **bundle, rest);
                (!wants && !is_known && (rest.is_ready)(**bundle))
                    .then(|| format!("{} is ready and does not want it", bundle_name(**bundle)))
            }
            _ => None,
        }
    }

    /// Whether an object is only of other bundles' attempts at a release of which a helm client wrote a record that is there: as docs/security.md has it,
    /// that stays until the bundle which has the release is deployed the next time.
    fn is_beside_helms(
        &self,
        id: &Id,
        release: &ReleaseKey,
        bundle: usize,
        rest: &Rest<'_>,
    ) -> bool {
        let records = self.records.get(release);
        let helms = self.helms.get(release).map(|(revision, _)| revision);
        let is_helms =
            helms.is_some_and(|helms| records.is_some_and(|all| all.contains_key(helms)));
        let born = (rest.live)(id).and_then(|live| Some(self.origins.get(&Self::uid(&live))?.born));
        let mut ever = self.desired_state.ever.get(&bundle).into_iter().flatten();
        let had = ever.any(|desired| desired.ids().any(|wanted| wanted == *id));
        is_helms && born.as_ref() == self.deployed.get(release) && !had
    }

    /// Whether an object is of a release as it was before another bundle took it over above a forged record, or the Go agent deployed there, and no
    /// version since has it: as docs/security.md has it, that stays, also when the bundle goes.
    fn is_below_forged(&self, id: &Id, release: &ReleaseKey, rest: &Rest<'_>) -> bool {
        let Some(uid) = (rest.live)(id).map(|live| Self::uid(&live)) else {
            return false;
        };
        let (origin, taken) = (self.origins.get(&uid), self.taken_above_forged.get(release));
        let both = origin.zip(taken);
        both.is_some_and(|(origin, taken)| {
            origin.born < taken.good && !taken.written.contains(&uid)
        })
    }

    /// Whether the agent remembers that a bundle left something in a namespace beside releases of its own, and it is not to go yet: the bundle has
    /// no release, or stays for now.
    fn is_noted(&self, bundle: usize, namespace: &str, rest: &Rest<'_>) -> bool {
        let name = format!("Claims.{}", bundle_name(bundle));
        let stays = match self.desired_state.now.contains_key(&bundle) {
            true => !(rest.is_ready)(bundle),
            false => (rest.is_held)(bundle),
        };
        stays && rest.remembered.contains(&(namespace.to_owned(), name))
    }

    /// A copy in a namespace where no bundle needed one that is still wanted: what a bundle needs no more goes with it.
    fn copy_left(&self, rest: &Rest<'_>) -> Option<String> {
        let places = NAMESPACES
            .iter()
            .flat_map(|namespace| (0..2_u8).map(move |number| (number, *namespace)));
        let mut left = places.filter(|(number, namespace)| {
            let id = Id::new("", "secrets", namespace, &format!("pull{number}"));
            let live = (rest.live)(&id).filter(|live| !is_leaving(live));
            let uid = live.as_deref().map(Self::uid).unwrap_or_default();
            let origin = self.origins.get(&uid);
            // As docs/security.md has it, what is made before a restore is noticed goes with no bundle that is deleted at that moment.
            let is_made = origin.is_some_and(|origin| origin.actor.deploys_bundles())
                && !self.unnoticed.contains_key(&uid);
            let needed = |desired: &Desired| {
                desired.copies.contains(number) && desired.release_namespace() == *namespace
            };
            let ever = self.desired_state.ever.iter();
            let mut needing = ever.filter(|(_, desired)| desired.iter().any(needed));
            // Kept on purpose, or with a release whose removal is not over.
            let stays = |(bundle, desired): (&usize, &Vec<Desired>)| {
                let mut releases = desired.iter().map(release_of);
                self.is_noted(*bundle, namespace, rest)
                    || self.desired_state.now.contains_key(bundle)
                    || desired.iter().any(|desired| desired.keep_resources)
                    || releases.any(|release| {
                        rest.remembered.contains(&release) || self.forgotten.contains(&release)
                    })
            };
            is_made && !needing.any(stays)
        });
        let (number, namespace) = left.next()?;
        Some(format!(
            "the copy pull{number} is in {namespace}, and no bundle needs it"
        ))
    }
}
