//! Events straight to values, as long as the document is a plain one.
//!
//! What this reader does not know (anchors, tags, merge keys, keys that are no text in JSON, anything wrong) makes it give
//! up; the caller then decodes the document as a whole, so values and errors are the same either way.

use serde_json::{Map, Value};

use super::parser::{Event, Parser};
use super::reader::Input;
use super::resolve;
use super::value::Keep;
use crate::budget::{Budget, TooLarge};

/// Why there is no value.
pub(super) enum Stop {
    /// The decoder has to say.
    NotPlain,
    TooLarge(TooLarge),
}

impl From<TooLarge> for Stop {
    fn from(error: TooLarge) -> Self {
        Self::TooLarge(error)
    }
}

/// Gets values that are wanted apart, with the path of keys to each.
#[derive(Clone, Copy)]
pub(super) struct Apart<'k> {
    pub(super) selected: Keep<'k>,
    pub(super) take: &'k dyn Fn(&[&str], Value),
}

pub(super) struct Builder<'a, 'b> {
    parser: Parser<'a>,
    budget: &'b mut Budget,
    /// Every number is a float.
    floats: bool,
    /// A key given twice is an error.
    strict: bool,
    keep: Option<Keep<'b>>,
    apart: Option<Apart<'b>>,
}

/// A collection that is still open.
enum Frame {
    List(Vec<Value>),
    Map {
        entries: Map<String, Value>,
        key: Option<String>,
        /// Some key was no text, and may turn out to collide with one that is.
        was_converted: bool,
    },
}

impl Frame {
    /// The key whose value comes next.
    fn key(&self) -> Option<&str> {
        match self {
            Self::Map { key, .. } => key.as_deref(),
            Self::List(_) => None,
        }
    }
}

impl<'a, 'b> Builder<'a, 'b> {
    pub(super) fn new(
        input: &'a Input<'_>,
        budget: &'b mut Budget,
        floats: bool,
        strict: bool,
        keep: Option<Keep<'b>>,
    ) -> Self {
        Self {
            parser: Parser::new(input),
            budget,
            floats,
            strict,
            keep,
            apart: None,
        }
    }

    /// The same with values handed out on the way.
    pub(super) fn extract(self, apart: Option<Apart<'b>>) -> Self {
        Self { apart, ..self }
    }

    /// The next document, if there is one.
    pub(super) fn document(&mut self) -> Result<Option<Value>, Stop> {
        if self.event()? == Event::StreamEnd {
            return Ok(None);
        }
        let value = self.value()?;
        match self.event()? {
            Event::DocumentEnd => Ok(Some(value)),
            _ => Err(Stop::NotPlain),
        }
    }

    fn event(&mut self) -> Result<Event<'a>, Stop> {
        match self.parser.event() {
            Ok((event, _)) => Ok(event),
            Err(_) => Err(Stop::NotPlain),
        }
    }

    fn value(&mut self) -> Result<Value, Stop> {
        let mut frames: Vec<Frame> = Vec::new();
        loop {
            let event = self.event()?;
            let value = match event {
                Event::Scalar {
                    anchor: None,
                    tag,
                    value,
                    implicit,
                    ..
                } if tag.is_empty() => {
                    if let Some(Frame::Map {
                        key: key @ None,
                        was_converted,
                        ..
                    }) = frames.last_mut()
                    {
                        let text = resolve::plain_key(value, implicit).ok_or(Stop::NotPlain)?;
                        self.budget.text(text.text.len())?;
                        *was_converted |= text.is_converted;
                        *key = Some(text.text);
                        if !self.hand_over(&mut frames)? {
                            self.pass_over(&mut frames)?;
                        }
                        continue;
                    }
                    let value = if implicit {
                        resolve::plain_value(value, self.floats).ok_or(Stop::NotPlain)?
                    } else {
                        Value::String(value.into_owned())
                    };
                    if let Value::String(text) = &value {
                        self.budget.text(text.len())?;
                    }
                    value
                }
                Event::SequenceStart { anchor: None, .. } if self.may_open(&frames) => {
                    frames.push(Frame::List(Vec::new()));
                    continue;
                }
                Event::MappingStart { anchor: None, .. } if self.may_open(&frames) => {
                    frames.push(Frame::Map {
                        entries: Map::new(),
                        key: None,
                        was_converted: false,
                    });
                    continue;
                }
                Event::SequenceEnd | Event::MappingEnd => match frames.pop() {
                    Some(Frame::List(items)) => Value::Array(items),
                    Some(Frame::Map { entries, .. }) => Value::Object(entries),
                    None => return Err(Stop::NotPlain),
                },
                _ => return Err(Stop::NotPlain),
            };
            match frames.last_mut() {
                None => return Ok(value),
                Some(frame) => self.add(frame, value)?,
            }
        }
    }

    fn add(&mut self, frame: &mut Frame, value: Value) -> Result<(), Stop> {
        match frame {
            Frame::List(items) => {
                self.budget.value(items.len())?;
                items.push(value);
            }
            Frame::Map {
                entries,
                key,
                was_converted,
            } => {
                self.budget.value_entry(entries.len())?;
                let key = key.take().ok_or(Stop::NotPlain)?;
                let old = entries.insert(key, value);
                if old.is_some() && (*was_converted || self.strict) {
                    return Err(Stop::NotPlain);
                }
            }
        }
        Ok(())
    }

    /// A collection is no key, and what nests too deep is not read here.
    fn may_open(&self, frames: &[Frame]) -> bool {
        frames.len() < self.budget.depth()
            && !matches!(frames.last(), Some(Frame::Map { key: None, .. }))
    }

    /// Hands out the value behind a key that was just read when it is wanted apart; null stays in its place.
    fn hand_over(&mut self, frames: &mut [Frame]) -> Result<bool, Stop> {
        let Some(apart) = self.apart else {
            return Ok(false);
        };
        let Some(path) = path(frames).filter(|path| (apart.selected)(path)) else {
            return Ok(false);
        };
        let before = self.budget.clone();
        self.apart = None;
        let value = self.value()?;
        self.apart = Some(apart);
        *self.budget = before;
        (apart.take)(&path, value);
        if let Some(frame) = frames.last_mut() {
            self.add(frame, Value::Null)?;
        }
        Ok(true)
    }

    /// Leaves out the value behind a key that was just read when it is not wanted.
    fn pass_over(&mut self, frames: &mut [Frame]) -> Result<(), Stop> {
        let Some(keep) = self.keep else {
            return Ok(());
        };
        if path(frames).is_none_or(|path| keep(&path)) {
            return Ok(());
        }
        if !self.strict {
            if let Some(Frame::Map { key, .. }) = frames.last_mut() {
                *key = None;
            }
            return self.skip();
        }
        // Only building it shows whether a key is given twice; its own one may be as well, so null stays in its place.
        let (before, keep) = (self.budget.clone(), self.keep.take());
        self.value()?;
        (*self.budget, self.keep) = (before, keep);
        match frames.last_mut() {
            Some(frame) => self.add(frame, Value::Null),
            None => Ok(()),
        }
    }

    /// Passes over the next value, having seen that it can be decoded.
    fn skip(&mut self) -> Result<(), Stop> {
        /// An open collection.
        enum Open {
            Sequence,
            Mapping { key_is_next: bool },
        }
        let mut open: Vec<Open> = Vec::new();
        loop {
            let is_key = matches!(open.last(), Some(Open::Mapping { key_is_next: true }));
            match self.event()? {
                Event::Scalar {
                    anchor: None,
                    tag,
                    value,
                    implicit,
                    ..
                } if tag.is_empty() => {
                    if implicit
                        && !(resolve::fits_json(&value, is_key) && (!is_key || value != "<<"))
                    {
                        return Err(Stop::NotPlain);
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
                Event::SequenceStart { anchor: None, .. } if !is_key => open.push(Open::Sequence),
                Event::MappingStart { anchor: None, .. } if !is_key => {
                    open.push(Open::Mapping { key_is_next: true });
                }
                _ => return Err(Stop::NotPlain),
            }
            if open.is_empty() {
                return Ok(());
            }
            if open.len() > self.budget.depth() {
                return Err(Stop::NotPlain);
            }
        }
    }
}

/// The keys that lead to the next value; none inside a list.
fn path(frames: &[Frame]) -> Option<Vec<&str>> {
    frames.iter().map(Frame::key).collect()
}
