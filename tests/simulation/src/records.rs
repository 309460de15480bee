//! What is in records of releases.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use release::model::Release;
use release::storage;
use serde_json::Value;

/// How many releases are kept: the rules ask several times of each record, and of few at a time.
const MOST: usize = 32;

/// The highest revision that is believed.
pub const HIGHEST: i64 = i64::MAX / 2;

thread_local! {
    static READ: RefCell<VecDeque<(String, Option<Arc<Release>>)>> = const { RefCell::new(VecDeque::new()) };
}

/// The release of a record; none where it cannot be read.
pub fn decoded(record: &Value) -> Option<Arc<Release>> {
    let data = record.pointer("/data/release")?.as_str()?;
    READ.with_borrow_mut(|read| {
        if let Some((_, release)) = read.iter().find(|(of, _)| of == data) {
            return release.clone();
        }
        let payload = STANDARD.decode(data).ok();
        let release = payload.and_then(|payload| storage::decode(&payload).ok());
        let release = release.map(Arc::new);
        if read.len() == MOST {
            read.pop_front();
        }
        read.push_back((data.to_owned(), release.clone()));
        release
    })
}
