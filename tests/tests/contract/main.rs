//! Fleet's contract: the integration cases of the Go agent, its recorded bundles, and the table of requirements.
//!
//! The cases are those of `integrationtests/agent`, section 14 of our list of requirements; each test names its number. They
//! share one agent on one bed.

mod adoption;
mod capabilities;
mod crates;
mod diffs;
mod documents;
mod drift;
mod imports;
mod namespaces;
mod options;
mod planning;
mod process;
mod requirements;
mod shared;
mod sources;
mod specimens;
mod status;
mod steps;
mod ways;
