//! Tokens to events: the grammar, as yaml.v2's `parserc.go` walks it. A state machine, so depth costs no stack.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::error::Problem;
use super::reader::Input;
use super::scanner::Scanner;
use super::token::{Kind, Mark, ScalarStyle, Token};

#[derive(Debug, PartialEq)]
pub(super) enum Event<'a> {
    StreamEnd,
    DocumentStart,
    DocumentEnd,
    Alias(Cow<'a, str>),
    Scalar {
        anchor: Option<Cow<'a, str>>,
        tag: Cow<'a, str>,
        value: Cow<'a, str>,
        /// Plain without a tag, or tagged `!`: what it is depends on its text.
        implicit: bool,
        style: ScalarStyle,
    },
    SequenceStart {
        anchor: Option<Cow<'a, str>>,
        tag: Cow<'a, str>,
        flow: bool,
    },
    SequenceEnd,
    MappingStart {
        anchor: Option<Cow<'a, str>>,
        tag: Cow<'a, str>,
        flow: bool,
    },
    MappingEnd,
}

#[derive(Clone, Copy)]
enum State {
    ImplicitDocumentStart,
    DocumentStart,
    DocumentContent,
    DocumentEnd,
    BlockNode,
    BlockSequenceEntry { first: bool },
    IndentlessSequenceEntry,
    BlockMappingKey { first: bool },
    BlockMappingValue,
    FlowSequenceEntry { first: bool },
    FlowSequencePairKey,
    FlowSequencePairValue,
    FlowSequencePairEnd,
    FlowMappingKey { first: bool },
    FlowMappingValue { empty: bool },
    End,
}

/// Which nodes may stand at a place.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Block,
    /// A block node, or a sequence at the indentation of its key.
    BlockOrIndentless,
    Flow,
}

/// An anchor, if there is one, and a tag, which may be empty.
type Properties<'a> = (Option<Cow<'a, str>>, Cow<'a, str>);

pub(super) struct Parser<'a> {
    scanner: Scanner<'a>,
    state: State,
    states: Vec<State>,
    /// Where each open collection begins.
    marks: Vec<Mark>,
    /// Prefix by handle. A document may have any number.
    tag_directives: BTreeMap<String, String>,
}

impl<'a> Parser<'a> {
    /// As yaml.v2.
    pub(super) fn new(input: &'a Input<'_>) -> Self {
        Self::over(Scanner::new(input, 0))
    }

    /// As yaml.v3, which looks two tokens further for comments.
    pub(super) fn v3(input: &'a Input<'_>) -> Self {
        Self::over(Scanner::new(input, 2))
    }

    fn over(scanner: Scanner<'a>) -> Self {
        Self {
            scanner,
            state: State::ImplicitDocumentStart,
            states: Vec::new(),
            marks: Vec::new(),
            tag_directives: BTreeMap::new(),
        }
    }

    /// The next event and the place it belongs to.
    pub(super) fn event(&mut self) -> Result<(Event<'a>, Mark), Problem> {
        match self.state {
            State::ImplicitDocumentStart => {
                self.scanner.next()?; // the stream's start
                self.document_start(true)
            }
            State::DocumentStart => self.document_start(false),
            State::DocumentContent => {
                let token = self.scanner.peek()?;
                if matches!(
                    token.kind,
                    Kind::VersionDirective { .. }
                        | Kind::TagDirective { .. }
                        | Kind::DocumentStart
                        | Kind::DocumentEnd
                        | Kind::StreamEnd
                ) {
                    let mark = token.start;
                    self.pop_state();
                    return Ok(empty(mark));
                }
                self.node(Place::Block)
            }
            State::DocumentEnd => {
                let token = self.scanner.peek()?;
                let mark = token.start;
                if token.kind == Kind::DocumentEnd {
                    self.scanner.next()?;
                }
                self.tag_directives.clear();
                self.state = State::DocumentStart;
                Ok((Event::DocumentEnd, mark))
            }
            State::BlockNode => self.node(Place::Block),
            State::BlockSequenceEntry { first } => self.block_sequence_entry(first),
            State::IndentlessSequenceEntry => self.indentless_sequence_entry(),
            State::BlockMappingKey { first } => self.block_mapping_key(first),
            State::BlockMappingValue => self.block_mapping_value(),
            State::FlowSequenceEntry { first } => self.flow_sequence_entry(first),
            State::FlowSequencePairKey => self.flow_sequence_pair_key(),
            State::FlowSequencePairValue => self.flow_sequence_pair_value(),
            State::FlowSequencePairEnd => {
                let mark = self.scanner.peek()?.start;
                self.state = State::FlowSequenceEntry { first: false };
                Ok((Event::MappingEnd, mark))
            }
            State::FlowMappingKey { first } => self.flow_mapping_key(first),
            State::FlowMappingValue { empty } => self.flow_mapping_value(empty),
            State::End => Ok((Event::StreamEnd, self.scanner.mark)),
        }
    }

    fn pop_state(&mut self) {
        self.state = self.states.pop().unwrap_or(State::End);
    }

    fn is_next(&mut self, test: impl Fn(&Kind<'_>) -> bool) -> Result<bool, Problem> {
        Ok(test(&self.scanner.peek()?.kind))
    }

    fn document_start(&mut self, implicit: bool) -> Result<(Event<'a>, Mark), Problem> {
        if !implicit {
            while self.scanner.peek()?.kind == Kind::DocumentEnd {
                self.scanner.next()?;
            }
        }
        let token = self.scanner.peek()?;
        let start = token.start;
        match token.kind {
            Kind::StreamEnd => {
                self.state = State::End;
                Ok((Event::StreamEnd, start))
            }
            Kind::VersionDirective { .. } | Kind::TagDirective { .. } | Kind::DocumentStart => {
                self.explicit_document(start)
            }
            _ if implicit => {
                self.directives()?;
                self.states.push(State::DocumentEnd);
                self.state = State::BlockNode;
                Ok((Event::DocumentStart, start))
            }
            _ => self.explicit_document(start),
        }
    }

    fn explicit_document(&mut self, start: Mark) -> Result<(Event<'a>, Mark), Problem> {
        self.directives()?;
        let token = self.scanner.peek()?;
        if token.kind != Kind::DocumentStart {
            let mark = token.start;
            return Err(Problem::parser(
                "did not find expected <document start>",
                None,
                mark,
            ));
        }
        self.scanner.next()?;
        self.states.push(State::DocumentEnd);
        self.state = State::DocumentContent;
        Ok((Event::DocumentStart, start))
    }

    fn directives(&mut self) -> Result<(), Problem> {
        let mut versioned = false;
        loop {
            let mark = self.scanner.peek()?.start;
            match &self.scanner.peek()?.kind {
                Kind::VersionDirective { .. } if versioned => {
                    return Err(Problem::parser(
                        "found duplicate %YAML directive",
                        None,
                        mark,
                    ));
                }
                Kind::VersionDirective { major: 1, minor: 1 } => versioned = true,
                Kind::VersionDirective { .. } => {
                    return Err(Problem::parser(
                        "found incompatible YAML document",
                        None,
                        mark,
                    ));
                }
                Kind::TagDirective { handle, prefix } => {
                    if self.tag_directives.contains_key(handle.as_ref() as &str) {
                        return Err(Problem::parser(
                            "found duplicate %TAG directive",
                            None,
                            mark,
                        ));
                    }
                    self.tag_directives.insert(handle.clone(), prefix.clone());
                }
                _ => break,
            }
            self.scanner.next()?;
        }
        for (handle, prefix) in [("!", "!"), ("!!", "tag:yaml.org,2002:")] {
            let directive = self.tag_directives.entry(handle.into());
            directive.or_insert_with(|| prefix.into());
        }
        Ok(())
    }

    fn node(&mut self, place: Place) -> Result<(Event<'a>, Mark), Problem> {
        let start = self.scanner.peek()?.start;
        if let Kind::Alias(_) = self.scanner.peek()?.kind {
            let Token {
                kind: Kind::Alias(name),
                start,
            } = self.scanner.next()?
            else {
                unreachable!("the token was seen to be an alias");
            };
            self.pop_state();
            return Ok((Event::Alias(name), start));
        }
        let (anchor, tag) = self.properties(start)?;
        let implicit = tag.is_empty();
        let token = self.scanner.peek()?;
        let token_start = token.start;
        match &token.kind {
            Kind::BlockEntry if place == Place::BlockOrIndentless => {
                self.state = State::IndentlessSequenceEntry;
                let flow = false;
                Ok((Event::SequenceStart { anchor, tag, flow }, start))
            }
            Kind::Scalar { style, .. } => {
                let style = *style;
                let implicit = implicit && style == ScalarStyle::Plain || tag == "!";
                let Kind::Scalar { value, .. } = self.scanner.next()?.kind else {
                    unreachable!("the token was seen to be a scalar");
                };
                self.pop_state();
                Ok((
                    Event::Scalar {
                        anchor,
                        tag,
                        value,
                        implicit,
                        style,
                    },
                    start,
                ))
            }
            Kind::FlowSequenceStart => {
                self.state = State::FlowSequenceEntry { first: true };
                let flow = true;
                Ok((Event::SequenceStart { anchor, tag, flow }, start))
            }
            Kind::FlowMappingStart => {
                self.state = State::FlowMappingKey { first: true };
                let flow = true;
                Ok((Event::MappingStart { anchor, tag, flow }, start))
            }
            Kind::BlockSequenceStart if place != Place::Flow => {
                self.state = State::BlockSequenceEntry { first: true };
                let flow = false;
                Ok((Event::SequenceStart { anchor, tag, flow }, start))
            }
            Kind::BlockMappingStart if place != Place::Flow => {
                self.state = State::BlockMappingKey { first: true };
                let flow = false;
                Ok((Event::MappingStart { anchor, tag, flow }, start))
            }
            _ if anchor.is_some() || !implicit => {
                self.pop_state();
                Ok((
                    Event::Scalar {
                        anchor,
                        tag,
                        value: Cow::Borrowed(""),
                        implicit,
                        style: ScalarStyle::Plain,
                    },
                    start,
                ))
            }
            _ => {
                let text = "did not find expected node content";
                Err(Problem::parser(text, Some(start), token_start))
            }
        }
    }

    /// An anchor and a tag, in either order.
    fn properties(&mut self, start: Mark) -> Result<Properties<'a>, Problem> {
        let mut anchor = None;
        let mut tag = None;
        loop {
            match &self.scanner.peek()?.kind {
                Kind::Anchor(_) if anchor.is_none() => {
                    if let Kind::Anchor(name) = self.scanner.next()?.kind {
                        anchor = Some(name);
                    }
                }
                Kind::Tag { .. } if tag.is_none() => {
                    let token = self.scanner.next()?;
                    if let Kind::Tag { handle, suffix } = token.kind {
                        tag = Some((handle, suffix, token.start));
                    }
                }
                _ => break,
            }
        }
        let tag = match tag {
            None => String::new(),
            Some((handle, suffix, _)) if handle.is_empty() => suffix,
            Some((handle, suffix, mark)) => {
                let directive = self.tag_directives.get(&*handle);
                let tag = directive.map(|prefix| format!("{prefix}{suffix}"));
                tag.filter(|tag| !tag.is_empty()).ok_or_else(|| {
                    Problem::parser("found undefined tag handle", Some(start), mark)
                })?
            }
        };
        Ok((anchor, tag.into()))
    }

    fn open_collection(&mut self, first: bool) -> Result<(), Problem> {
        if first {
            let start = self.scanner.next()?.start;
            self.marks.push(start);
        }
        Ok(())
    }

    fn close_collection(&mut self, event: Event<'a>) -> Result<(Event<'a>, Mark), Problem> {
        let start = self.scanner.next()?.start;
        self.marks.pop();
        self.pop_state();
        Ok((event, start))
    }

    fn expected<T>(&mut self, text: &'static str) -> Result<T, Problem> {
        let mark = self.scanner.peek()?.start;
        Err(Problem::parser(text, self.marks.pop(), mark))
    }

    fn block_sequence_entry(&mut self, first: bool) -> Result<(Event<'a>, Mark), Problem> {
        self.open_collection(first)?;
        match self.scanner.peek()?.kind {
            Kind::BlockEntry => {
                let mark = self.scanner.next()?.start;
                let next = State::BlockSequenceEntry { first: false };
                if self.is_next(|kind| matches!(kind, Kind::BlockEntry | Kind::BlockEnd))? {
                    self.state = next;
                    return Ok(empty(mark));
                }
                self.states.push(next);
                self.node(Place::Block)
            }
            Kind::BlockEnd => self.close_collection(Event::SequenceEnd),
            _ => self.expected("did not find expected '-' indicator"),
        }
    }

    fn indentless_sequence_entry(&mut self) -> Result<(Event<'a>, Mark), Problem> {
        let token = self.scanner.peek()?;
        let mark = token.start;
        if token.kind != Kind::BlockEntry {
            self.pop_state();
            return Ok((Event::SequenceEnd, mark));
        }
        self.scanner.next()?;
        if self.is_next(|kind| {
            matches!(
                kind,
                Kind::BlockEntry | Kind::Key | Kind::Value | Kind::BlockEnd
            )
        })? {
            return Ok(empty(mark));
        }
        self.states.push(State::IndentlessSequenceEntry);
        self.node(Place::Block)
    }

    fn block_mapping_key(&mut self, first: bool) -> Result<(Event<'a>, Mark), Problem> {
        self.open_collection(first)?;
        match self.scanner.peek()?.kind {
            Kind::Key => {
                let mark = self.scanner.next()?.start;
                self.block_mapping_node(mark, State::BlockMappingValue)
            }
            Kind::BlockEnd => self.close_collection(Event::MappingEnd),
            _ => self.expected("did not find expected key"),
        }
    }

    fn block_mapping_value(&mut self) -> Result<(Event<'a>, Mark), Problem> {
        let next = State::BlockMappingKey { first: false };
        let token = self.scanner.peek()?;
        let mark = token.start;
        if token.kind == Kind::Value {
            self.scanner.next()?;
            return self.block_mapping_node(mark, next);
        }
        self.state = next;
        Ok(empty(mark))
    }

    fn block_mapping_node(
        &mut self,
        mark: Mark,
        next: State,
    ) -> Result<(Event<'a>, Mark), Problem> {
        if self.is_next(|kind| matches!(kind, Kind::Key | Kind::Value | Kind::BlockEnd))? {
            self.state = next;
            return Ok(empty(mark));
        }
        self.states.push(next);
        self.node(Place::BlockOrIndentless)
    }

    /// Goes over what opens a collection in flow style, or over the comma before each entry but the first.
    fn open_flow_entry(
        &mut self,
        first: bool,
        end: &Kind<'_>,
        otherwise: &'static str,
    ) -> Result<(), Problem> {
        self.open_collection(first)?;
        if !first && self.scanner.peek()?.kind != *end {
            if !self.is_next(|kind| matches!(kind, Kind::FlowEntry))? {
                return self.expected(otherwise);
            }
            self.scanner.next()?;
        }
        Ok(())
    }

    fn flow_sequence_entry(&mut self, first: bool) -> Result<(Event<'a>, Mark), Problem> {
        self.open_flow_entry(
            first,
            &Kind::FlowSequenceEnd,
            "did not find expected ',' or ']'",
        )?;
        match self.scanner.peek()?.kind {
            Kind::FlowSequenceEnd => self.close_collection(Event::SequenceEnd),
            Kind::Key => {
                let mark = self.scanner.next()?.start;
                self.state = State::FlowSequencePairKey;
                let event = Event::MappingStart {
                    anchor: None,
                    tag: Cow::Borrowed(""),
                    flow: true,
                };
                Ok((event, mark))
            }
            _ => {
                self.states.push(State::FlowSequenceEntry { first: false });
                self.node(Place::Flow)
            }
        }
    }

    fn flow_sequence_pair_key(&mut self) -> Result<(Event<'a>, Mark), Problem> {
        if self
            .is_next(|kind| matches!(kind, Kind::Value | Kind::FlowEntry | Kind::FlowSequenceEnd))?
        {
            // As libyaml does, the token is dropped: `[? : x]` and `[?]` fail at what follows.
            let mark = self.scanner.next()?.start;
            self.state = State::FlowSequencePairValue;
            return Ok(empty(mark));
        }
        self.states.push(State::FlowSequencePairValue);
        self.node(Place::Flow)
    }

    fn flow_sequence_pair_value(&mut self) -> Result<(Event<'a>, Mark), Problem> {
        if self.is_next(|kind| matches!(kind, Kind::Value))? {
            self.scanner.next()?;
            if !self.is_next(|kind| matches!(kind, Kind::FlowEntry | Kind::FlowSequenceEnd))? {
                self.states.push(State::FlowSequencePairEnd);
                return self.node(Place::Flow);
            }
        }
        self.state = State::FlowSequencePairEnd;
        Ok(empty(self.scanner.peek()?.start))
    }

    fn flow_mapping_key(&mut self, first: bool) -> Result<(Event<'a>, Mark), Problem> {
        self.open_flow_entry(
            first,
            &Kind::FlowMappingEnd,
            "did not find expected ',' or '}'",
        )?;
        match self.scanner.peek()?.kind {
            Kind::FlowMappingEnd => self.close_collection(Event::MappingEnd),
            Kind::Key => {
                self.scanner.next()?;
                if self.is_next(|kind| {
                    matches!(kind, Kind::Value | Kind::FlowEntry | Kind::FlowMappingEnd)
                })? {
                    self.state = State::FlowMappingValue { empty: false };
                    return Ok(empty(self.scanner.peek()?.start));
                }
                self.states.push(State::FlowMappingValue { empty: false });
                self.node(Place::Flow)
            }
            _ => {
                self.states.push(State::FlowMappingValue { empty: true });
                self.node(Place::Flow)
            }
        }
    }

    fn flow_mapping_value(&mut self, no_value: bool) -> Result<(Event<'a>, Mark), Problem> {
        let next = State::FlowMappingKey { first: false };
        if !no_value && self.is_next(|kind| matches!(kind, Kind::Value))? {
            self.scanner.next()?;
            if !self.is_next(|kind| matches!(kind, Kind::FlowEntry | Kind::FlowMappingEnd))? {
                self.states.push(next);
                return self.node(Place::Flow);
            }
        }
        self.state = next;
        Ok(empty(self.scanner.peek()?.start))
    }
}

fn empty(mark: Mark) -> (Event<'static>, Mark) {
    let event = Event::Scalar {
        anchor: None,
        tag: Cow::Borrowed(""),
        value: Cow::Borrowed(""),
        implicit: true,
        style: ScalarStyle::Plain,
    };
    (event, mark)
}
