//! Tokens to trees. Mirrors Go's `text/template/parse/parse.go`.

use std::collections::HashMap;
use std::sync::Arc;

use super::lex::{Lexer, Token, TokenKind};
use super::number::Number;
use super::{Branch, Command, Expr, ExprKind, List, Node, Pipe, Quoted, Source, Tree};
use crate::error::{Error, ErrorKind, ParseError};
use crate::funcs::Functions;
use crate::value::Str;

type Result<T> = std::result::Result<T, Box<ParseError>>;

/// Parses a text into the templates it defines: its own, named like the text, and each `define` and `block`.
pub(crate) fn parse(
    name: &str,
    text: Vec<u8>,
    delims: (&str, &str),
    functions: &Functions,
    max_depth: usize,
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
    };
    parser
        .file()
        .map_err(|error| Error::from(ErrorKind::Parse(*error)))?;
    Ok(parser.trees)
}

/// What belongs to one template while it is parsed.
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
        String::from_utf8_lossy(self.bytes(token)).into_owned()
    }

    fn fail<T>(&self, message: impl Into<String>) -> Result<T> {
        let line = self.body.tokens[0].line;
        Err(Box::new(ParseError {
            name: Arc::clone(&self.source.name),
            line,
            message: message.into(),
            source_line: self.source.line(line),
        }))
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
                    end += super::decode_rune(&bytes[end..]).map_or(0, |(_, width)| width);
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

    /// The quotation mark and the text of a string that stands in the source as it is.
    fn plain_string(&self, token: Token) -> Option<(char, Str)> {
        let &[mark, ref inside @ .., end] = self.bytes(token) else {
            return None;
        };
        // What an unquoting changes.
        let changes = if mark == b'`' { b'\r' } else { b'\\' };
        let is_plain =
            mark == end && !inside.contains(&changes) && std::str::from_utf8(inside).is_ok();
        is_plain.then(|| (char::from(mark), Str::from(inside)))
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

    fn file(&mut self) -> Result<()> {
        let mut root = List::new();
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
                Item::Node(node) => root.push(node),
                Item::End => return self.fail("unexpected {{end}}"),
                Item::Else => return self.fail("unexpected {{else}}"),
            }
        }
        let name = Arc::clone(&self.body.name);
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
                String::from_utf8_lossy(&name).into()
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
            return self.fail("max block depth exceeded");
        }
        let mut list = List::new();
        while self.peek_non_space().kind != TokenKind::Eof {
            match self.text_or_action()? {
                Item::Node(node) => list.push(node),
                end => {
                    self.depth -= 1;
                    return Ok((list, end));
                }
            }
        }
        self.fail("unexpected EOF")
    }

    fn text_or_action(&mut self) -> Result<Item> {
        let token = self.next_non_space();
        match token.kind {
            TokenKind::Text => Ok(Item::Node(Node::Text {
                start: token.start,
                end: token.end,
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
                Node::Break { pos: token.start }
            }
            TokenKind::Continue => {
                self.loop_control("{{continue}}")?;
                Node::Continue { pos: token.start }
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
                let pos = self.peek().start;
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

    fn control(&mut self, control: Control) -> Result<Branch> {
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
                    return self.fail("max block depth exceeded");
                }
                let branch = self.control(control)?;
                self.depth -= 1;
                vec![if control == Control::If {
                    Node::If(branch)
                } else {
                    Node::With(branch)
                }]
            } else {
                let (list, end) = self.item_list()?;
                if matches!(end, Item::Else) {
                    return self.fail("expected end; found {{else}}");
                }
                list
            });
        }
        self.body.vars.truncate(vars);
        Ok(Branch {
            pos: pipe.pos,
            pipe,
            list,
            else_list,
        })
    }

    fn template_name(&mut self, token: Token, context: &str) -> Result<Arc<str>> {
        match token.kind {
            TokenKind::String | TokenKind::RawString => {
                Ok(String::from_utf8_lossy(&self.unquote(token)?).into())
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
            pos: token.start,
            name,
            pipe: Some(pipe),
        })
    }

    fn template(&mut self) -> Result<Node> {
        const CONTEXT: &str = "template clause";
        let token = self.next_non_space();
        let name = self.template_name(token, CONTEXT)?;
        let mut pipe = None;
        if self.next_non_space().kind != TokenKind::RightDelim {
            self.backup();
            pipe = Some(self.pipeline(CONTEXT, TokenKind::RightDelim)?);
        }
        Ok(Node::Template {
            pos: token.start,
            name,
            pipe,
        })
    }

    fn pipeline(&mut self, context: &str, end: TokenKind) -> Result<Pipe> {
        let pos = self.peek_non_space().start;
        let mut pipe = Pipe {
            pos,
            is_assign: false,
            decl: Vec::new(),
            cmds: Vec::with_capacity(1),
        };
        self.declarations(&mut pipe, context)?;
        loop {
            let token = self.next_non_space();
            match token.kind {
                kind if kind == end => break,
                TokenKind::Bool
                | TokenKind::CharConstant
                | TokenKind::Complex
                | TokenKind::Dot
                | TokenKind::Field
                | TokenKind::Identifier
                | TokenKind::Number
                | TokenKind::Nil
                | TokenKind::RawString
                | TokenKind::String
                | TokenKind::Variable
                | TokenKind::LeftParen => {
                    self.backup();
                    pipe.cmds.push(self.command()?);
                }
                _ => return self.unexpected(token, context),
            }
        }
        if pipe.cmds.is_empty() {
            return self.fail(format!("missing value for {context}"));
        }
        for (i, command) in pipe.cmds.iter().enumerate().skip(1) {
            if let [Expr { kind, .. }, ..] = command.args.as_slice()
                && is_constant(kind)
            {
                let stage = i + 1;
                return self.fail(format!("non executable command in pipeline stage {stage}"));
            }
        }
        Ok(pipe)
    }

    /// `$x :=`, `$x =`, and for `range` `$i, $x :=`.
    fn declarations(&mut self, pipe: &mut Pipe, context: &str) -> Result<()> {
        loop {
            let variable = self.peek_non_space();
            if variable.kind != TokenKind::Variable {
                return Ok(());
            }
            self.next();
            // One space may have been skipped, and then three tokens go back.
            let after = self.peek();
            let next = self.peek_non_space();
            match next.kind {
                TokenKind::Assign | TokenKind::Declare => {
                    pipe.is_assign = next.kind == TokenKind::Assign;
                    self.next_non_space();
                    self.declare(pipe, variable);
                    return Ok(());
                }
                TokenKind::Char if self.bytes(next) == b"," => {
                    self.next_non_space();
                    self.declare(pipe, variable);
                    if context == "range" && pipe.decl.len() < 2 {
                        match self.peek_non_space().kind {
                            TokenKind::Variable | TokenKind::RightDelim | TokenKind::RightParen => {
                                continue;
                            }
                            _ => return self.fail("range can only initialize variables"),
                        }
                    }
                    return self.fail(format!("too many declarations in {context}"));
                }
                _ if after.kind == TokenKind::Space => self.backup3(variable, after),
                _ => self.backup2(variable),
            }
            return Ok(());
        }
    }

    fn declare(&mut self, pipe: &mut Pipe, variable: Token) {
        let name: Arc<str> = self.text(variable).into();
        pipe.decl.push(Arc::clone(&name));
        self.body.vars.push(name);
    }

    fn command(&mut self) -> Result<Command> {
        let mut command = Command {
            pos: self.peek_non_space().start,
            args: Vec::with_capacity(1),
        };
        loop {
            self.peek_non_space(); // skip leading spaces
            if let Some(operand) = self.operand()? {
                command.args.push(operand);
            }
            let token = self.next();
            match token.kind {
                TokenKind::Space => continue,
                TokenKind::RightDelim | TokenKind::RightParen => self.backup(),
                TokenKind::Pipe => {}
                _ => return self.unexpected(token, "operand"),
            }
            break;
        }
        if command.args.is_empty() {
            return self.fail("empty command");
        }
        Ok(command)
    }

    /// A term and the fields after it.
    fn operand(&mut self) -> Result<Option<Expr>> {
        let Some(term) = self.term()? else {
            return Ok(None);
        };
        let pos = self.peek().start;
        if self.peek().kind != TokenKind::Field {
            return Ok(Some(term));
        }
        let kind = match term.kind {
            ExprKind::Field(mut fields) => {
                self.fields(&mut fields);
                ExprKind::Field(fields)
            }
            ExprKind::Variable { name, mut fields } => {
                self.fields(&mut fields);
                ExprKind::Variable { name, fields }
            }
            constant if is_constant(&constant) => {
                let term = Expr {
                    pos: term.pos,
                    kind: constant,
                };
                let text = super::NodeRef::Expr(&term).to_source(self.source);
                let text = golib::strconv::quote(&text);
                return self.fail(format!("unexpected . after term {text}"));
            }
            other => {
                let base = Box::new(Expr {
                    pos: term.pos,
                    kind: other,
                });
                let mut fields = Vec::new();
                self.fields(&mut fields);
                ExprKind::Chain { base, fields }
            }
        };
        Ok(Some(Expr { pos, kind }))
    }

    /// Takes the field tokens that follow.
    fn fields(&mut self, fields: &mut Vec<Str>) {
        while self.peek().kind == TokenKind::Field {
            let token = self.next();
            fields.push(self.field(token));
        }
    }

    /// The name of a field token, without its dot.
    fn field(&self, token: Token) -> Str {
        Str::from(&*String::from_utf8_lossy(&self.bytes(token)[1..]))
    }

    fn term(&mut self) -> Result<Option<Expr>> {
        let token = self.next_non_space();
        let kind = match token.kind {
            TokenKind::Identifier => {
                let name = String::from_utf8_lossy(self.bytes(token));
                match self.functions.resolve(&name) {
                    Some(function) => ExprKind::Identifier(Arc::clone(function)),
                    None => {
                        let name = golib::strconv::quote(&*name);
                        return self.fail(format!("function {name} not defined"));
                    }
                }
            }
            TokenKind::Dot => ExprKind::Dot,
            TokenKind::Nil => ExprKind::Nil,
            TokenKind::Variable => {
                let name = String::from_utf8_lossy(self.bytes(token));
                match self.body.vars.iter().find(|var| ***var == *name) {
                    Some(name) => ExprKind::Variable {
                        name: Arc::clone(name),
                        fields: Vec::new(),
                    },
                    None => {
                        let name = golib::strconv::quote(&*name);
                        return self.fail(format!("undefined variable {name}"));
                    }
                }
            }
            TokenKind::Field => {
                // `.Values.name` and the like.
                let mut fields = Vec::with_capacity(2);
                fields.push(self.field(token));
                ExprKind::Field(fields)
            }
            TokenKind::Bool => ExprKind::Bool(self.bytes(token) == b"true"),
            TokenKind::CharConstant => self.number(Number::character(&self.text(token)))?,
            TokenKind::Complex => self.number(Number::complex(&self.text(token)))?,
            TokenKind::Number => self.number(Number::parse(&self.text(token)))?,
            TokenKind::LeftParen => {
                if self.body.paren_depth >= self.max_depth {
                    return self.fail("max expression depth exceeded");
                }
                self.body.paren_depth += 1;
                let pipe = self.pipeline("parenthesized pipeline", TokenKind::RightParen)?;
                self.body.paren_depth -= 1;
                return Ok(Some(Expr {
                    pos: pipe.pos,
                    kind: ExprKind::Pipe(Box::new(pipe)),
                }));
            }
            TokenKind::String | TokenKind::RawString => match self.plain_string(token) {
                Some((mark, text)) => ExprKind::String {
                    quoted: Quoted::As(mark),
                    text,
                },
                None => ExprKind::String {
                    quoted: Quoted::Source(self.text(token).into()),
                    text: self.unquote(token)?.into(),
                },
            },
            _ => {
                self.backup();
                return Ok(None);
            }
        };
        Ok(Some(Expr {
            pos: token.start,
            kind,
        }))
    }

    fn number(&self, number: std::result::Result<Number, String>) -> Result<ExprKind> {
        match number {
            Ok(number) => Ok(ExprKind::Number(Box::new(number))),
            Err(message) => self.fail(message),
        }
    }
}

fn is_constant(kind: &ExprKind) -> bool {
    matches!(
        kind,
        ExprKind::Bool(_)
            | ExprKind::Dot
            | ExprKind::Nil
            | ExprKind::Number(_)
            | ExprKind::String { .. }
    )
}
