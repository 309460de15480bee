//! Label selectors, as Kubernetes' `labels` package reads and words them.

use std::collections::BTreeSet;

use golib::strconv::quote;
use golib::validation::KUSTOMIZE;

use crate::error::{Error, Result};
use crate::fns::Texts;

/// Requirements that all have to hold.
pub(crate) struct Selector {
    requirements: Vec<Requirement>,
}

struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum Operator {
    In,
    NotIn,
    Equals,
    NotEquals,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

#[derive(Clone, PartialEq)]
enum Token {
    Error(String),
    End,
    Symbol(&'static str),
    In,
    NotIn,
    Identifier(String),
}

impl Token {
    fn literal(&self) -> &str {
        match self {
            Self::Error(text) | Self::Identifier(text) => text,
            Self::End => "",
            Self::Symbol(text) => text,
            Self::In => "in",
            Self::NotIn => "notin",
        }
    }

    /// As a value, where words are no operators.
    fn as_value(&self) -> Self {
        match self {
            Self::In | Self::NotIn => Self::Identifier(self.literal().to_owned()),
            other => other.clone(),
        }
    }

    fn is_identifier(&self) -> bool {
        matches!(self, Self::Identifier(_))
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self, Self::Symbol(own) if *own == symbol)
    }
}

const SYMBOLS: [&str; 9] = [")", ",", "!", "==", "=", ">", "<", "!=", "("];

fn is_special(c: u8) -> bool {
    matches!(c, b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<')
}

fn tokens(text: &str) -> Vec<Token> {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut tokens = Vec::new();
    loop {
        while bytes
            .get(at)
            .is_some_and(|c| matches!(c, b' ' | b'\t' | b'\r' | b'\n'))
        {
            at += 1;
        }
        match bytes.get(at) {
            None | Some(0) => {
                tokens.push(Token::End);
                return tokens;
            }
            Some(&c) if is_special(c) => {
                let start = at;
                let mut found = None;
                while bytes.get(at).copied().is_some_and(is_special) {
                    let piece = &text[start..=at];
                    match SYMBOLS.into_iter().find(|symbol| *symbol == piece) {
                        Some(symbol) => found = Some(symbol),
                        None if found.is_some() => break,
                        None => {}
                    }
                    at += 1;
                }
                tokens.push(match found {
                    Some(symbol) => Token::Symbol(symbol),
                    None => Token::Error(format!(
                        "error expected: keyword found '{}'",
                        &text[start..at]
                    )),
                });
            }
            Some(_) => {
                let start = at;
                while bytes.get(at).is_some_and(|&c| {
                    !is_special(c) && !matches!(c, b' ' | b'\t' | b'\r' | b'\n' | 0)
                }) {
                    at += 1;
                }
                tokens.push(match &text[start..at] {
                    "in" => Token::In,
                    "notin" => Token::NotIn,
                    word => Token::Identifier(word.to_owned()),
                });
            }
        }
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Token {
        self.tokens.get(self.at).map_or(Token::End, Token::as_value)
    }

    fn raw(&mut self) -> Token {
        let token = self.tokens.get(self.at).cloned().unwrap_or(Token::End);
        self.at += 1;
        token
    }

    fn take(&mut self) -> Token {
        self.raw().as_value()
    }

    fn parse(&mut self) -> Result<Vec<Requirement>> {
        let mut requirements = Vec::new();
        loop {
            let token = self.peek();
            if token == Token::End {
                return Ok(requirements);
            }
            if !token.is_identifier() && !token.is("!") {
                return Err(found(&token, "!, identifier, or 'end of string'"));
            }
            let requirement = self
                .requirement()
                .map_err(|error| error.context("unable to parse requirement"))?;
            requirements.push(requirement);
            let token = self.take();
            if token == Token::End {
                return Ok(requirements);
            }
            if !token.is(",") {
                return Err(found(&token, "',' or 'end of string'"));
            }
            let next = self.peek();
            if !next.is_identifier() && !next.is("!") {
                return Err(found(&next, "identifier after ','"));
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement> {
        let mut token = self.take();
        let mut operator = None;
        if token.is("!") {
            operator = Some(Operator::DoesNotExist);
            token = self.take();
        }
        if !token.is_identifier() {
            return Err(found(&token, "identifier"));
        }
        let key = token.literal().to_owned();
        validate_key(&key)?;
        let next = self.peek();
        if (next == Token::End || next.is(",")) && operator.is_none() {
            operator = Some(Operator::Exists);
        }
        if let Some(operator) = operator {
            return Ok(Requirement {
                key,
                operator,
                values: Vec::new(),
            });
        }
        let token = self.raw();
        let operator = match token.literal() {
            "in" if token == Token::In => Operator::In,
            "notin" if token == Token::NotIn => Operator::NotIn,
            "=" | "==" => Operator::Equals,
            "!=" => Operator::NotEquals,
            ">" => Operator::GreaterThan,
            "<" => Operator::LessThan,
            _ => return Err(found(&token, "'=', '!=', '==', 'in', notin'")),
        };
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => self.exact_value()?,
        };
        let values: Vec<String> = values.into_iter().collect();
        match operator {
            Operator::GreaterThan | Operator::LessThan
                if golib::strconv::parse_int(values.first().map_or("", |value| value), 10, 64)
                    .is_err() =>
            {
                return Err(Error::new(
                    "for 'Gt', 'Lt' operators, the value must be an integer",
                ));
            }
            _ => {}
        }
        for value in &values {
            validate_value(&key, value)?;
        }
        Ok(Requirement {
            key,
            operator,
            values,
        })
    }

    fn values(&mut self) -> Result<BTreeSet<String>> {
        let token = self.take();
        if !token.is("(") {
            return Err(Error::new(format!(
                "found '{}' expected: '('",
                token.literal()
            )));
        }
        let first = self.peek();
        if first.is(")") {
            self.take();
            return Ok(BTreeSet::from([String::new()]));
        }
        if !first.is_identifier() && !first.is(",") {
            return Err(found(&first, "',', ')' or identifier"));
        }
        let values = self.identifiers()?;
        if !self.take().is(")") {
            return Err(found(&first, "')'"));
        }
        Ok(values)
    }

    fn identifiers(&mut self) -> Result<BTreeSet<String>> {
        let mut values = BTreeSet::new();
        loop {
            let token = self.take();
            if token.is_identifier() {
                values.insert(token.literal().to_owned());
                let next = self.peek();
                if next.is(")") {
                    return Ok(values);
                }
                if !next.is(",") {
                    return Err(found(&next, "',' or ')'"));
                }
            } else if token.is(",") {
                if values.is_empty() {
                    values.insert(String::new());
                }
                let next = self.peek();
                if next.is(")") {
                    values.insert(String::new());
                    return Ok(values);
                }
                if next.is(",") {
                    self.take();
                    values.insert(String::new());
                }
            } else {
                return Err(found(&token, "',', or identifier"));
            }
        }
    }

    fn exact_value(&mut self) -> Result<BTreeSet<String>> {
        let next = self.peek();
        if next == Token::End || next.is(",") {
            return Ok(BTreeSet::from([String::new()]));
        }
        let token = self.take();
        if token.is_identifier() {
            return Ok(BTreeSet::from([token.literal().to_owned()]));
        }
        Err(found(&token, "identifier"))
    }
}

fn found(token: &Token, expected: &str) -> Error {
    Error::new(format!("found '{}', expected: {expected}", token.literal()))
}

fn validate_key(key: &str) -> Result<()> {
    let problem = KUSTOMIZE.invalid_label_key(key);
    problem.map_or(Ok(()), |problem| {
        let key = quote(key);
        Err(Error::new(format!("invalid label key {key}: {problem}")))
    })
}

fn validate_value(key: &str, value: &str) -> Result<()> {
    let problem = KUSTOMIZE.invalid_label_value(value);
    problem.map_or(Ok(()), |problem| {
        let (key, value) = (quote(key), quote(value));
        let text = format!("invalid label value: {value}: at key: {key}: {problem}");
        Err(Error::new(text))
    })
}

impl Selector {
    /// # Errors
    /// Where Kubernetes refuses it, in its words.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut parser = Parser {
            tokens: tokens(text),
            at: 0,
        };
        let requirements = parser.parse()?;
        Ok(Self { requirements })
    }

    /// Cost of matching, in steps of work.
    pub(crate) fn cost(&self) -> usize {
        let values = self.requirements.iter().map(|one| 4 + one.values.len());
        values.sum::<usize>() / 32
    }

    pub(crate) fn matches(&self, labels: &Texts) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = labels.get(&requirement.key);
            let has = || value.is_some_and(|value| requirement.values.contains(value));
            match requirement.operator {
                Operator::In | Operator::Equals => has(),
                Operator::NotIn | Operator::NotEquals => !has(),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
                Operator::GreaterThan | Operator::LessThan => {
                    let number = |text: &str| golib::strconv::parse_int(text, 10, 64).ok();
                    let own = value.and_then(|value| number(value));
                    let expected = requirement.values.first().and_then(|value| number(value));
                    match (own, expected) {
                        (Some(own), Some(expected)) => {
                            if requirement.operator == Operator::GreaterThan {
                                own > expected
                            } else {
                                own < expected
                            }
                        }
                        _ => false,
                    }
                }
            }
        })
    }
}
