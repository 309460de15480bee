//! Holes that histories have found and nobody has closed yet, by the invariant they break. A hole that is closed leaves this list, so that
//! whatever brings it back fails.

/// Invariants that are known to be broken. `make test` reports them and goes on; anything else fails it.
pub const HOLES: &[&str] = &[
    // A hook writes over a Job of its name that somebody else made, and deletes it.
    "deletes what others made",
    // A permission that is given while nothing is held lets the next loss through.
    "deletes what upstream lost",
    "no good revision",
    // Somebody's helm deploys a release while an atomic attempt at it fails: the undo takes all of it.
    "deletes what is wanted",
    // Who claims a release in vain prunes what others wrote.
    "history of others purged",
    // Of two bundles that take one release from each other the loser says that it is ready; one that fails takes again at each try.
    "ready and not so",
    "writes at rest",
    // Two first installs at once: the one whose create comes second takes the object.
    "takes what another release has",
];

/// Whether an invariant is known to be broken.
pub fn is_known(rule: &str) -> bool {
    HOLES.contains(&rule)
}
