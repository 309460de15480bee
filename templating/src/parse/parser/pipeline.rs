//! Pipelines, and what they consist of: declarations, commands, operands.

use std::sync::Arc;

use super::{ALLOCATIONS, Parser, Result, cut, pos};
use crate::parse::lex::{Token, TokenKind};
use crate::parse::number::Number;
use crate::parse::{Command, Declaration, Expr, ExprKind, Fields, NodeRef, Pipe, Pos};

/// Numbers of a text that are kept to be shared.
const SHARED_NUMBERS: usize = 32;

impl Parser<'_> {
    pub(super) fn pipeline(&mut self, context: &str, end: TokenKind) -> Result<Pipe> {
        let pos = pos(self.peek_non_space().start);
        let decl = self.declarations(context)?;
        let start = self.commands.len();
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
                    let command = self.command()?;
                    self.commands.push(command);
                }
                _ => return self.unexpected(token, context),
            }
        }
        let cmds = cut(&mut self.commands, start);
        if cmds.is_empty() {
            return self.fail(format!("missing value for {context}"));
        }
        for (i, command) in cmds.iter().enumerate().skip(1) {
            if let [Expr { kind, .. }, ..] = &*command.args
                && is_constant(kind)
            {
                let stage = i + 1;
                return self.fail(format!("non executable command in pipeline stage {stage}"));
            }
        }
        Ok(Pipe { pos, decl, cmds })
    }

    /// `$x :=`, `$x =`, and for `range` `$i, $x :=`.
    fn declarations(&mut self, context: &str) -> Result<Option<Box<Declaration>>> {
        let mut declared = Vec::new();
        loop {
            let variable = self.peek_non_space();
            if variable.kind != TokenKind::Variable {
                return Ok(declaration(declared, false));
            }
            self.next();
            // One space may have been skipped, and then three tokens go back.
            let after = self.peek();
            let next = self.peek_non_space();
            match next.kind {
                TokenKind::Assign | TokenKind::Declare => {
                    let is_assign = next.kind == TokenKind::Assign;
                    self.next_non_space();
                    declared.push(self.declare(variable));
                    return Ok(declaration(declared, is_assign));
                }
                TokenKind::Char if self.bytes(next) == b"," => {
                    self.next_non_space();
                    declared.push(self.declare(variable));
                    if context == "range" && declared.len() < 2 {
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
            return Ok(declaration(declared, false));
        }
    }

    fn declare(&mut self, variable: Token) -> Arc<str> {
        let name: Arc<str> = golib::utf8::to_str(self.bytes(variable)).into();
        self.body.vars.push(Arc::clone(&name));
        name
    }

    fn command(&mut self) -> Result<Command> {
        let pos = pos(self.peek_non_space().start);
        let start = self.expressions.len();
        loop {
            self.peek_non_space(); // skip leading spaces
            if let Some(operand) = self.operand()? {
                self.expressions.push(operand);
                self.weigh(size_of::<Expr>())?;
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
        let args = cut(&mut self.expressions, start);
        if args.is_empty() {
            return self.fail("empty command");
        }
        self.weigh(size_of::<Command>() + ALLOCATIONS)?;
        Ok(Command { pos, args })
    }

    /// A term and the fields after it.
    fn operand(&mut self) -> Result<Option<Expr>> {
        let Some(term) = self.term()? else {
            return Ok(None);
        };
        if self.peek().kind != TokenKind::Field {
            return Ok(Some(term));
        }
        if is_constant(&term.kind) {
            let text = NodeRef::Expr(&term).to_source(self.source);
            let text = golib::strconv::quote(&text);
            return self.fail(format!("unexpected . after term {text}"));
        }
        let (pos, fields) = self.fields(term.pos, None);
        let base = Box::new(term);
        Ok(Some(Expr {
            pos,
            kind: ExprKind::Chain { base, fields },
        }))
    }

    /// The fields of a term that begins at `start`, from its own on if it is one. As in Go, a term that has fields behind it
    /// stands where the first of these does.
    fn fields(&mut self, start: Pos, own: Option<Token>) -> (Pos, Fields) {
        let mut at = start;
        let mut fields = own.map_or(Fields::default(), |token| Fields {
            start: pos(token.start),
            end: pos(token.end),
        });
        while self.peek().kind == TokenKind::Field {
            let token = self.next();
            if at == start {
                at = pos(token.start);
            }
            if fields.is_empty() {
                fields.start = pos(token.start);
            }
            // Each follows the one before without a gap.
            fields.end = pos(token.end);
        }
        (at, fields)
    }

    fn term(&mut self) -> Result<Option<Expr>> {
        let token = self.next_non_space();
        let kind = match token.kind {
            TokenKind::Identifier => {
                let name = golib::utf8::to_str(self.bytes(token));
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
                let name = golib::utf8::to_str(self.bytes(token));
                match self.body.vars.iter().find(|var| ***var == *name) {
                    Some(name) => {
                        let name = Arc::clone(name);
                        let (at, fields) = self.fields(pos(token.start), None);
                        let end = if fields.is_empty() { at } else { fields.end };
                        let kind = ExprKind::Variable { name, end };
                        return Ok(Some(Expr { pos: at, kind }));
                    }
                    None => {
                        let name = golib::strconv::quote(&*name);
                        return self.fail(format!("undefined variable {name}"));
                    }
                }
            }
            TokenKind::Field => {
                let (pos, fields) = self.fields(pos(token.start), Some(token));
                let kind = ExprKind::Field(fields);
                return Ok(Some(Expr { pos, kind }));
            }
            TokenKind::Bool => ExprKind::Bool(self.bytes(token) == b"true"),
            TokenKind::CharConstant => self.number(token, Number::character)?,
            TokenKind::Complex => self.number(token, Number::complex)?,
            TokenKind::Number => self.number(token, Number::parse)?,
            TokenKind::LeftParen => {
                if self.body.paren_depth >= self.max_depth {
                    return self.too_deep("expression");
                }
                self.body.paren_depth += 1;
                let pipe = self.pipeline("parenthesized pipeline", TokenKind::RightParen)?;
                self.body.paren_depth -= 1;
                return Ok(Some(Expr {
                    pos: pipe.pos,
                    kind: ExprKind::Pipe(Box::new(pipe)),
                }));
            }
            TokenKind::String | TokenKind::RawString => {
                let text = match self.plain_string(token) {
                    Some(text) => text,
                    None => self.unquote(token)?.into(),
                };
                self.weigh(token.end - token.start)?;
                ExprKind::String(text)
            }
            _ => {
                self.backup();
                return Ok(None);
            }
        };
        Ok(Some(Expr {
            pos: pos(token.start),
            kind,
        }))
    }

    fn number(
        &mut self,
        token: Token,
        read: fn(&str) -> std::result::Result<Number, String>,
    ) -> Result<ExprKind> {
        let text = self.bytes(token);
        // A text is full of the same few numbers.
        if let Some(known) = self.numbers.iter().find(|known| *known.text == *text) {
            return Ok(ExprKind::Number(Arc::clone(known)));
        }
        match read(&golib::utf8::to_str(text)) {
            Ok(number) => {
                self.weigh(size_of::<Number>() + ALLOCATIONS)?;
                let number = Arc::new(number);
                if self.numbers.len() < SHARED_NUMBERS {
                    self.numbers.push(Arc::clone(&number));
                }
                Ok(ExprKind::Number(number))
            }
            Err(message) => self.fail(message),
        }
    }
}

fn declaration(names: Vec<Arc<str>>, is_assign: bool) -> Option<Box<Declaration>> {
    (!names.is_empty()).then(|| {
        Box::new(Declaration {
            is_assign,
            names: names.into(),
        })
    })
}

fn is_constant(kind: &ExprKind) -> bool {
    matches!(
        kind,
        ExprKind::Bool(_)
            | ExprKind::Dot
            | ExprKind::Nil
            | ExprKind::Number(_)
            | ExprKind::String(_)
    )
}
