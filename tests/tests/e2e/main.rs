//! Tests of the real agent against real servers: one bed for all of them, a file per subject.

mod bed;
