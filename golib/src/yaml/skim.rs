//! Some entries of a mapping without building the rest, which is still scanned, parsed and checked.
//!
//! What this reader does not know (anchors, tags, merge keys, collections as keys, anything wrong) makes it give up; the
//! caller then decodes the document as a whole, so values and errors are the same either way.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::parser::{Event, Parser};
use super::reader::Input;
use super::resolve;
use super::value::{Key, Raw, Target};

/// Deeper documents are left to the decoder.
const MAX_DEPTH: usize = 100;

/// The entries of the first document whose keys are among `wanted`, whatever their case. `None` when the document is no
/// mapping or not as plain as all that.
pub(super) fn entries(input: &Input<'_>, wanted: &[&str]) -> Option<Value> {
    let mut skimmer = Skimmer {
        parser: Parser::new(input),
    };
    let mut found = BTreeMap::new();
    match (skimmer.event()?, skimmer.event()?) {
        (Event::DocumentStart, Event::MappingStart { anchor: None }) => {}
        _ => return None,
    }
    loop {
        let event = skimmer.event()?;
        if event == Event::MappingEnd {
            break;
        }
        let key = key(event)?;
        let event = skimmer.event()?;
        let is_wanted = matches!(&key, Key::Str(key) if wanted.iter().any(|name| name.eq_ignore_ascii_case(key)));
        if is_wanted {
            found.insert(key, skimmer.value(event, 0)?);
        } else {
            skimmer.skip(event)?;
        }
    }
    match skimmer.event()? {
        Event::DocumentEnd if found.is_empty() => Some(Value::Object(Map::new())),
        Event::DocumentEnd => Raw::Map(found).into_json(Target::Any).ok(),
        _ => None,
    }
}

fn key(event: Event<'_>) -> Option<Key> {
    match event {
        Event::Scalar {
            anchor: None,
            tag,
            value,
            implicit,
        } if tag.is_empty() => {
            if implicit && !is_plain_key(&value) {
                return None;
            }
            resolve::scalar("", &value, implicit).ok()?.into_key().ok()
        }
        _ => None,
    }
}

fn is_plain_key(text: &str) -> bool {
    text != "<<" && resolve::fits_json(text, true)
}

struct Skimmer<'a> {
    parser: Parser<'a>,
}

impl<'a> Skimmer<'a> {
    fn event(&mut self) -> Option<Event<'a>> {
        self.parser.event().ok().map(|(event, _)| event)
    }

    /// The value that an event begins.
    fn value(&mut self, event: Event<'a>, depth: usize) -> Option<Raw> {
        if depth > MAX_DEPTH {
            return None;
        }
        match event {
            Event::Scalar {
                anchor: None,
                tag,
                value,
                implicit,
            } if tag.is_empty() => resolve::scalar("", &value, implicit).ok(),
            Event::SequenceStart { anchor: None } => {
                let mut items = Vec::new();
                loop {
                    match self.event()? {
                        Event::SequenceEnd => return Some(Raw::Seq(items)),
                        event => items.push(self.value(event, depth + 1)?),
                    }
                }
            }
            Event::MappingStart { anchor: None } => {
                let mut entries = BTreeMap::new();
                loop {
                    match self.event()? {
                        Event::MappingEnd => return Some(Raw::Map(entries)),
                        event => {
                            let key = key(event)?;
                            let event = self.event()?;
                            entries.insert(key, self.value(event, depth + 1)?);
                        }
                    }
                }
            }
            _ => None,
        }
    }

    /// Passes over the value that an event begins, having seen that it can be decoded.
    fn skip(&mut self, event: Event<'a>) -> Option<()> {
        /// An open collection.
        enum Open {
            Sequence,
            Mapping { key_is_next: bool },
        }
        let mut open: Vec<Open> = Vec::new();
        let mut event = event;
        loop {
            let is_key = matches!(open.last(), Some(Open::Mapping { key_is_next: true }));
            match event {
                Event::Scalar {
                    anchor: None,
                    tag,
                    value,
                    implicit,
                } if tag.is_empty() => {
                    if implicit
                        && !(resolve::fits_json(&value, is_key) && (!is_key || value != "<<"))
                    {
                        return None;
                    }
                    if let Some(Open::Mapping { key_is_next }) = open.last_mut() {
                        *key_is_next = !*key_is_next;
                    }
                }
                Event::SequenceEnd | Event::MappingEnd => {
                    open.pop();
                    if let Some(Open::Mapping { key_is_next }) = open.last_mut() {
                        *key_is_next = true;
                    }
                }
                Event::SequenceStart { anchor: None } if !is_key => open.push(Open::Sequence),
                Event::MappingStart { anchor: None } if !is_key => {
                    open.push(Open::Mapping { key_is_next: true })
                }
                _ => return None,
            }
            if open.is_empty() {
                return Some(());
            }
            if open.len() > MAX_DEPTH {
                return None;
            }
            event = self.event()?;
        }
    }
}
