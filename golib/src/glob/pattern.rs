//! Text to a tree of what a pattern consists of: the library's lexer and parser (`syntax/lexer`, `syntax/ast`).

use super::error::Error;

/// Deepest nesting of braces.
const MAX_NESTING: usize = 100;

/// A part of a pattern.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    Nothing,
    /// One after the other.
    Pattern(Vec<Node>),
    /// `{a,b}`
    AnyOf(Vec<Node>),
    /// `[ab]`
    List {
        chars: Vec<char>,
        not: bool,
    },
    /// `[a-z]`
    Range {
        low: char,
        high: char,
        not: bool,
    },
    Text(String),
    /// `*`
    Any,
    /// `**`
    Super,
    /// `?`
    Single,
}

pub(super) fn parse(pattern: &str) -> Result<Vec<Node>, Error> {
    let mut parser = Parser {
        chars: pattern.chars().collect(),
        at: 0,
        open: Vec::new(),
        nodes: Vec::new(),
    };
    while parser.item()? {}
    // Open braces are closed by the end of the pattern.
    while !parser.open.is_empty() {
        parser.close();
    }
    Ok(parser.nodes)
}

/// Braces that are open: what stands before them, and the alternatives that are complete.
struct Open {
    before: Vec<Node>,
    alternatives: Vec<Node>,
}

struct Parser {
    chars: Vec<char>,
    at: usize,
    open: Vec<Open>,
    /// The pattern that is being read.
    nodes: Vec<Node>,
}

impl Parser {
    /// The next character; nothing at the end, for which a NUL is taken too, though what follows it may still be read.
    fn read(&mut self) -> Result<Option<char>, Error> {
        let next = self.peek()?;
        if self.at < self.chars.len() {
            self.at += 1;
        }
        Ok(next)
    }

    fn peek(&self) -> Result<Option<char>, Error> {
        match self.chars.get(self.at) {
            Some(&char::REPLACEMENT_CHARACTER) => Err(Error::Unreadable),
            Some('\0') | None => Ok(None),
            Some(&c) => Ok(Some(c)),
        }
    }

    /// Reads a piece; `false` at the end.
    fn item(&mut self) -> Result<bool, Error> {
        let Some(c) = self.read()? else {
            return Ok(false);
        };
        let node = match c {
            '{' => {
                if self.open.len() == MAX_NESTING {
                    return Err(Error::TooLarge);
                }
                self.open.push(Open {
                    before: std::mem::take(&mut self.nodes),
                    alternatives: Vec::new(),
                });
                return Ok(true);
            }
            ',' if !self.open.is_empty() => {
                self.alternative();
                return Ok(true);
            }
            '}' if !self.open.is_empty() => {
                self.close();
                return Ok(true);
            }
            '[' => self.class()?,
            '?' => Node::Single,
            '*' if self.peek()? == Some('*') => {
                self.at += 1;
                Node::Super
            }
            '*' => Node::Any,
            _ => {
                self.at -= 1;
                let stops: &[char] = match self.open.is_empty() {
                    true => &['?', '*', '[', '{'],
                    false => &['?', '*', '[', '{', '}', ','],
                };
                match self.text(stops)? {
                    text if text.is_empty() => return Ok(true),
                    text => Node::Text(text),
                }
            }
        };
        self.nodes.push(node);
        Ok(true)
    }

    /// Takes the pattern that was being read for an alternative of the innermost braces.
    fn alternative(&mut self) {
        let pattern = Node::Pattern(std::mem::take(&mut self.nodes));
        if let Some(open) = self.open.last_mut() {
            open.alternatives.push(pattern);
        }
    }

    fn close(&mut self) {
        self.alternative();
        if let Some(open) = self.open.pop() {
            self.nodes = open.before;
            self.nodes.push(Node::AnyOf(open.alternatives));
        }
    }

    /// Literal characters up to one that has a meaning; a backslash takes it away, and at the end stands for nothing.
    fn text(&mut self, stops: &[char]) -> Result<String, Error> {
        let mut text = String::new();
        let mut is_escaped = false;
        while let Some(c) = self.read()? {
            if !is_escaped {
                if c == '\\' {
                    is_escaped = true;
                    continue;
                }
                if stops.contains(&c) {
                    self.at -= 1;
                    break;
                }
            }
            is_escaped = false;
            text.push(c);
        }
        Ok(text)
    }

    /// A class after its opening bracket.
    fn class(&mut self) -> Result<Node, Error> {
        let mut not = false;
        let first = loop {
            match self.read()?.ok_or(Error::UnexpectedEnd)? {
                '!' if !not => not = true,
                c => break c,
            }
        };
        let node = if self.peek()? == Some('-') {
            self.at += 1;
            let (low, high) = (first, self.read()?.ok_or(Error::UnexpectedEnd)?);
            self.end_of_class()?;
            if high < low {
                return Err(Error::ReversedRange { low, high });
            }
            Node::Range { low, high, not }
        } else {
            self.at -= 1;
            let chars: Vec<char> = self.text(&[']'])?.chars().collect();
            self.end_of_class()?;
            if chars.is_empty() {
                return Err(Error::EmptyClass);
            }
            Node::List { chars, not }
        };
        Ok(node)
    }

    fn end_of_class(&mut self) -> Result<(), Error> {
        match self.read()? {
            None => Err(Error::UnexpectedEnd),
            Some(']') => Ok(()),
            Some(_) => Err(Error::ExpectedClose),
        }
    }
}
