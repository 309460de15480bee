//! Tokens to trees. Mirrors Go's `text/template/parse/parse.go`.

mod pipeline;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::lex::{Lexer, Token, TokenKind};
use super::{Branch, Command, Expr, List, Node, Number, Pos, Source, Tree};
use crate::error::{Error, ErrorKind, ParseError};
use crate::funcs::Functions;
use crate::value::Str;

type Result<T> = std::result::Result<T, Box<ParseError>>;

/// What the allocator adds to the two or three pieces of a part, about.
const ALLOCATIONS: usize = 48;
/// Limit on parsed texts together, in bytes: some thirty times the largest real chart.
pub(crate) const MAX_WEIGHT: usize = 64 << 20;

/// Parses a text into the templates it defines: its own, named like the text, and each `define` and `block`. Their
/// weight is added to `weight`.
pub(crate) fn parse(
    name: &str,
    text: Bytes,
    delims: (&str, &str),
    functions: &Functions,
    max_depth: usize,
    weight: &mut usize,
) -> std::result::Result<Vec<Tree>, Error> {
    let source = Arc::new(Source {
        name: name.into(),
        text,
    });
    let mut lexer = Lexer::new(&source.text, delims.0.as_bytes(), delims.1.as_bytes());
    lexer.break_ok = functions.get("break").is_none();
    lexer.continue_ok = functions.get("continue").is_none();
    let body = Body::new(Arc::clone(&source.name));
    let mut parser = Parser {
        lexer,
        source: &source,
        functions,
        trees: Vec::new(),
        by_name: HashMap::new(),
        body,
        depth: 0,
        max_depth,
        weight: *weight,
        nodes: Vec::new(),
        commands: Vec::new(),
        expressions: Vec::new(),
        numbers: Vec::new(),
    };
    parser
        .file()
        .map_err(|error| Error::from(ErrorKind::Parse(*error)))?;
    *weight = parser.weight;
    Ok(parser.trees)
}

/// State of one template while it is parsed.
struct Body {
    name: Arc<str>,
    /// Lookahead: the last token lexed is the first, tokens put back are the others.
    tokens: [Token; 3],
    peeked: usize,
    vars: Vec<Arc<str>>,
    /// The line of the left delimiter of the current action, 0 outside.
    action_line: usize,
    range_depth: usize,
    paren_depth: usize,
}

impl Body {
    fn new(name: Arc<str>) -> Self {
        let none = Token {
            kind: TokenKind::Eof,
            start: 0,
            end: 0,
            line: 0,
        };
        Self {
            name,
            tokens: [none; 3],
            peeked: 0,
            vars: vec!["$".into()],
            action_line: 0,
            range_depth: 0,
            paren_depth: 0,
        }
    }
}

struct Parser<'s> {
    lexer: Lexer<'s>,
    source: &'s Arc<Source>,
    functions: &'s Functions,
    trees: Vec<Tree>,
    /// Where in `trees` each name is.
    by_name: HashMap<Arc<str>, usize>,
    body: Body,
    /// How many blocks are open.
    depth: usize,
    max_depth: usize,
    /// Bytes of the trees, about.
    weight: usize,
    // The nodes still open, innermost last: a list is cut off the end when it is complete, at its exact length.
    nodes: Vec<Node>,
    commands: Vec<Command>,
    expressions: Vec<Expr>,
    numbers: Vec<Arc<Number>>,
}

/// Cuts a list off the end of what is open.
fn cut<T>(open: &mut Vec<T>, start: usize) -> Box<[T]> {
    open.drain(start..).collect()
}

/// A place in the text; one as large as that is never parsed.
fn pos(at: usize) -> Pos {
    Pos::try_from(at).unwrap_or(Pos::MAX)
}

/// A node, or what ends a list of nodes.
enum Item {
    Node(Node),
    End,
    Else,
}

#[derive(Clone, Copy, PartialEq)]
enum Control {
    If,
    With,
    Range,
}

impl Control {
    fn name(self) -> &'static str {
        match self {
            Control::If => "if",
            Control::With => "with",
            Control::Range => "range",
        }
    }
}

impl<'s> Parser<'s> {
    fn next(&mut self) -> Token {
        if self.body.peeked > 0 {
            self.body.peeked -= 1;
        } else {
            self.body.tokens[0] = self.lexer.next_token();
        }
        self.body.tokens[self.body.peeked]
    }

    fn backup(&mut self) {
        self.body.peeked += 1;
    }

    /// Puts two tokens back; the second is the last one read.
    fn backup2(&mut self, first: Token) {
        self.body.tokens[1] = first;
        self.body.peeked = 2;
    }

    fn backup3(&mut self, first: Token, second: Token) {
        self.body.tokens[1] = second;
        self.body.tokens[2] = first;
        self.body.peeked = 3;
    }

    fn peek(&mut self) -> Token {
        if self.body.peeked == 0 {
            self.body.peeked = 1;
            self.body.tokens[0] = self.lexer.next_token();
        }
        self.body.tokens[self.body.peeked - 1]
    }

    fn next_non_space(&mut self) -> Token {
        loop {
            let token = self.next();
            if token.kind != TokenKind::Space {
                return token;
            }
        }
    }

    fn peek_non_space(&mut self) -> Token {
        let token = self.next_non_space();
        self.backup();
        token
    }

    fn bytes(&self, token: Token) -> &'s [u8] {
        &self.source.text[token.start..token.end]
    }

    fn text(&self, token: Token) -> String {
        golib::utf8::to_str(self.bytes(token)).into_owned()
    }

    fn fail<T>(&self, message: impl Into<String>) -> Result<T> {
        let line = self.body.tokens[0].line;
        Err(Box::new(ParseError {
            name: Arc::clone(&self.source.name),
            line,
            message: message.into(),
            is_too_deep: false,
            source_line: self.source.line(line),
        }))
    }

    fn too_deep<T>(&self, what: &str) -> Result<T> {
        self.fail(format!("max {what} depth exceeded"))
            .map_err(|error| {
                Box::new(ParseError {
                    is_too_deep: true,
                    ..*error
                })
            })
    }

    /// A token as messages show it.
    fn describe(&self, token: Token) -> String {
        match token.kind {
            TokenKind::Eof => "EOF".to_owned(),
            TokenKind::Error => self.lexer.error.clone(),
            kind if kind.is_keyword() => format!("<{}>", self.text(token)),
            _ => {
                let bytes = self.bytes(token);
                if bytes.len() <= 10 {
                    return golib::strconv::quote(bytes);
                }
                let mut end = 0;
                for _ in 0..10 {
                    end += golib::utf8::decode_rune(&bytes[end..]).map_or(0, |(_, width)| width);
                }
                format!("{}...", golib::strconv::quote(&bytes[..end]))
            }
        }
    }

    fn unexpected<T>(&self, token: Token, context: &str) -> Result<T> {
        let text = self.describe(token);
        if token.kind != TokenKind::Error {
            return self.fail(format!("unexpected {text} in {context}"));
        }
        let action_line = self.body.action_line;
        if action_line == 0 || action_line == token.line {
            return self.fail(text);
        }
        // Not "action in action".
        let link = if text.ends_with(" action") {
            ""
        } else {
            " in action"
        };
        self.fail(format!(
            "{text}{link} started at {}:{action_line}",
            self.source.name
        ))
    }

    fn expect(&mut self, kind: TokenKind, context: &str) -> Result<Token> {
        let token = self.next_non_space();
        if token.kind == kind {
            Ok(token)
        } else {
            self.unexpected(token, context)
        }
    }

    fn unquote(&self, token: Token) -> Result<Vec<u8>> {
        match golib::strconv::unquote(self.bytes(token)) {
            Some(text) => Ok(text),
            None => self.fail("invalid syntax"),
        }
    }

    /// The text of a string that stands in the source as it is.
    fn plain_string(&self, token: Token) -> Option<Str> {
        let &[mark, ref inside @ .., end] = self.bytes(token) else {
            return None;
        };
        // What an unquoting changes.
        let changes = if mark == b'`' { b'\r' } else { b'\\' };
        let is_plain =
            mark == end && !inside.contains(&changes) && std::str::from_utf8(inside).is_ok();
        is_plain.then(|| Str::from(inside))
    }

    /// Takes a finished template into the set of this text.
    fn add(&mut self, name: Arc<str>, root: List) -> Result<()> {
        let tree = Tree {
            name,
            source: Arc::clone(self.source),
            root,
        };
        let known = self.by_name.get(&tree.name).copied();
        match known.and_then(|at| self.trees.get_mut(at)) {
            None => {
                let at = self.trees.len();
                self.by_name.insert(Arc::clone(&tree.name), at);
                self.trees.push(tree);
            }
            Some(other) if other.is_blank() => *other = tree,
            Some(_) if tree.is_blank() => {}
            Some(_) => {
                let name = golib::strconv::quote(tree.name.as_bytes());
                return self.fail(format!("template: multiple definition of template {name}"));
            }
        }
        Ok(())
    }

    /// Counts parts of the tree.
    fn weigh(&mut self, bytes: usize) -> Result<()> {
        self.weight += bytes;
        if self.weight > MAX_WEIGHT {
            return self.fail("template is too large");
        }
        Ok(())
    }

    fn node(&mut self, node: Node) -> Result<()> {
        self.nodes.push(node);
        self.weigh(size_of::<Node>())
    }

    fn file(&mut self) -> Result<()> {
        if Pos::try_from(self.source.text.len()).is_err() {
            return self.fail("template is too large");
        }
        while self.peek().kind != TokenKind::Eof {
            if self.peek().kind == TokenKind::LeftDelim {
                let delim = self.next();
                if self.next_non_space().kind == TokenKind::Define {
                    self.definition()?;
                    continue;
                }
                self.backup2(delim);
            }
            match self.text_or_action()? {
                Item::Node(node) => self.node(node)?,
                Item::End => return self.fail("unexpected {{end}}"),
                Item::Else => return self.fail("unexpected {{else}}"),
            }
        }
        let name = Arc::clone(&self.body.name);
        let root = cut(&mut self.nodes, 0);
        self.add(name, root)
    }

    /// Parses the body of a `define` or `block`, which knows nothing of the template around it.
    fn nested(&mut self, context: &str, name: Option<Arc<str>>) -> Result<()> {
        let outer = std::mem::replace(&mut self.body, Body::new("definition".into()));
        let is_block = name.is_some();
        let name = match name {
            Some(name) => name,
            None => {
                let token = self.next_non_space();
                if !matches!(token.kind, TokenKind::String | TokenKind::RawString) {
                    return self.unexpected(token, context);
                }
                let name = self.unquote(token)?;
                self.expect(TokenKind::RightDelim, context)?;
                golib::utf8::to_str(&name).into()
            }
        };
        let (list, end) = self.item_list()?;
        if matches!(end, Item::Else) {
            if is_block {
                // Go complains in the name of the template around it, where that had got to.
                self.body = outer;
            }
            return self.fail(format!("unexpected {{{{else}}}} in {context}"));
        }
        self.add(name, list)?;
        self.body = outer;
        Ok(())
    }

    fn definition(&mut self) -> Result<()> {
        self.nested("define clause", None)
    }

    /// Nodes up to `end` or `else`.
    fn item_list(&mut self) -> Result<(List, Item)> {
        self.depth += 1;
        if self.depth > self.max_depth {
            return self.too_deep("block");
        }
        let start = self.nodes.len();
        while self.peek_non_space().kind != TokenKind::Eof {
            match self.text_or_action()? {
                Item::Node(node) => self.node(node)?,
                end => {
                    self.depth -= 1;
                    return Ok((cut(&mut self.nodes, start), end));
                }
            }
        }
        self.fail("unexpected EOF")
    }

    fn text_or_action(&mut self) -> Result<Item> {
        let token = self.next_non_space();
        match token.kind {
            TokenKind::Text => Ok(Item::Node(Node::Text {
                start: pos(token.start),
                end: pos(token.end),
            })),
            TokenKind::LeftDelim => {
                self.body.action_line = token.line;
                let item = self.action();
                self.body.action_line = 0;
                item
            }
            _ => self.unexpected(token, "input"),
        }
    }

    fn action(&mut self) -> Result<Item> {
        let token = self.next_non_space();
        let node = match token.kind {
            TokenKind::Block => self.block()?,
            TokenKind::Break => {
                self.loop_control("{{break}}")?;
                Node::Break {
                    pos: pos(token.start),
                }
            }
            TokenKind::Continue => {
                self.loop_control("{{continue}}")?;
                Node::Continue {
                    pos: pos(token.start),
                }
            }
            TokenKind::Else => {
                let next = self.peek_non_space();
                if !matches!(next.kind, TokenKind::If | TokenKind::With) {
                    self.expect(TokenKind::RightDelim, "else")?;
                }
                return Ok(Item::Else);
            }
            TokenKind::End => {
                self.expect(TokenKind::RightDelim, "end")?;
                return Ok(Item::End);
            }
            TokenKind::If => Node::If(self.control(Control::If)?),
            TokenKind::Range => Node::Range(self.control(Control::Range)?),
            TokenKind::With => Node::With(self.control(Control::With)?),
            TokenKind::Template => self.template()?,
            _ => {
                self.backup();
                // Like Go, not skipping the space that may come first: it is where the action is.
                let pos = pos(self.peek().start);
                Node::Action {
                    pos,
                    pipe: self.pipeline("command", TokenKind::RightDelim)?,
                }
            }
        };
        Ok(Item::Node(node))
    }

    fn loop_control(&mut self, what: &str) -> Result<()> {
        let token = self.next_non_space();
        if token.kind != TokenKind::RightDelim {
            return self.unexpected(token, what);
        }
        if self.body.range_depth == 0 {
            return self.fail(format!("{what} outside {{{{range}}}}"));
        }
        Ok(())
    }

    fn control(&mut self, control: Control) -> Result<Box<Branch>> {
        let vars = self.body.vars.len();
        let pipe = self.pipeline(control.name(), TokenKind::RightDelim)?;
        if control == Control::Range {
            self.body.range_depth += 1;
        }
        let (list, end) = self.item_list()?;
        if control == Control::Range {
            self.body.range_depth -= 1;
        }
        let mut else_list = None;
        if matches!(end, Item::Else) {
            let chained = matches!(
                (control, self.peek().kind),
                (Control::If, TokenKind::If) | (Control::With, TokenKind::With)
            );
            else_list = Some(if chained {
                self.next();
                self.depth += 1;
                if self.depth > self.max_depth {
                    return self.too_deep("block");
                }
                let branch = self.control(control)?;
                self.depth -= 1;
                Box::new([if control == Control::If {
                    Node::If(branch)
                } else {
                    Node::With(branch)
                }])
            } else {
                let (list, end) = self.item_list()?;
                if matches!(end, Item::Else) {
                    return self.fail("expected end; found {{else}}");
                }
                list
            });
        }
        self.body.vars.truncate(vars);
        self.weigh(size_of::<Branch>())?;
        Ok(Box::new(Branch {
            pos: pipe.pos,
            pipe,
            list,
            else_list,
        }))
    }

    fn template_name(&mut self, token: Token, context: &str) -> Result<Arc<str>> {
        match token.kind {
            TokenKind::String | TokenKind::RawString => {
                Ok(golib::utf8::to_str(&self.unquote(token)?).into())
            }
            _ => self.unexpected(token, context),
        }
    }

    fn block(&mut self) -> Result<Node> {
        const CONTEXT: &str = "block clause";
        let token = self.next_non_space();
        let name = self.template_name(token, CONTEXT)?;
        let pipe = self.pipeline(CONTEXT, TokenKind::RightDelim)?;
        self.nested(CONTEXT, Some(Arc::clone(&name)))?;
        Ok(Node::Template {
            pos: pos(token.start),
            name,
            pipe: Some(Box::new(pipe)),
        })
    }

    fn template(&mut self) -> Result<Node> {
        const CONTEXT: &str = "template clause";
        let token = self.next_non_space();
        let name = self.template_name(token, CONTEXT)?;
        let mut pipe = None;
        if self.next_non_space().kind != TokenKind::RightDelim {
            self.backup();
            pipe = Some(Box::new(self.pipeline(CONTEXT, TokenKind::RightDelim)?));
        }
        Ok(Node::Template {
            pos: pos(token.start),
            name,
            pipe,
        })
    }
}
