//! YAML documents in the making, written in a style that chance decides: in blocks or flow, quoted or plain, lists indented or
//! not, with comments and empty lines.

use std::fmt::Write as _;

use super::dice::Dice;

/// A value.
#[derive(Debug, Clone)]
pub(super) enum Tree {
    /// A scalar as it is to stand in the text.
    Raw(String),
    /// A text, to be quoted or not.
    Text(String),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

/// A scalar as it is to stand in the text.
pub(super) fn raw(text: impl Into<String>) -> Tree {
    Tree::Raw(text.into())
}

/// A text, to be quoted or not.
pub(super) fn text(text: impl Into<String>) -> Tree {
    Tree::Text(text.into())
}

pub(super) fn list(items: impl IntoIterator<Item = Tree>) -> Tree {
    Tree::List(items.into_iter().collect())
}

pub(super) fn map<K: Into<String>>(entries: impl IntoIterator<Item = (K, Tree)>) -> Tree {
    Tree::Map(
        entries
            .into_iter()
            .map(|(key, value)| (key.into(), value))
            .collect(),
    )
}

impl Tree {
    /// Adds an entry to a map.
    pub(super) fn with(mut self, key: &str, value: Tree) -> Self {
        self.set(key, value);
        self
    }

    /// Adds an entry to a map, or replaces it.
    pub(super) fn set(&mut self, key: &str, value: Tree) {
        if let Self::Map(entries) = self {
            match entries.iter_mut().find(|(own, _)| own == key) {
                Some((_, old)) => *old = value,
                None => entries.push((key.to_owned(), value)),
            }
        }
    }

    /// Adds an item to a list.
    pub(super) fn push(&mut self, item: Tree) {
        if let Self::List(items) = self {
            items.push(item);
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(entries) => entries
                .iter()
                .find(|(own, _)| own == key)
                .map(|(_, value)| value),
            _ => None,
        }
    }

    /// The text of a scalar.
    pub(super) fn scalar(&self) -> Option<&str> {
        match self {
            Self::Raw(text) | Self::Text(text) => Some(text),
            Self::List(_) | Self::Map(_) => None,
        }
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::Raw(text) if text.parse::<i64>().is_ok())
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::List(items) => items.is_empty(),
            Self::Map(entries) => entries.is_empty(),
            Self::Raw(_) | Self::Text(_) => false,
        }
    }

    /// A document of it.
    pub(super) fn write(&self, dice: &mut Dice) -> String {
        let mut writer = Writer {
            indents_lists: dice.chance(50),
            flow: if dice.chance(20) { 40 } else { 6 },
            comments: if dice.chance(20) { 10 } else { 0 },
            out: String::new(),
            dice,
        };
        match self {
            Self::Raw(_) | Self::Text(_) => {
                writer.scalar(self, false);
                writer.out.push('\n');
            }
            tree if tree.is_empty() => writer.out.push_str("{}\n"),
            tree => writer.block(tree, 0),
        }
        writer.out
    }
}

struct Writer<'a> {
    dice: &'a mut Dice,
    indents_lists: bool,
    /// Of a hundred collections.
    flow: usize,
    comments: usize,
    out: String,
}

impl Writer<'_> {
    fn block(&mut self, tree: &Tree, indent: usize) {
        match tree {
            Tree::Map(entries) => {
                for (key, value) in entries {
                    self.comment(indent);
                    let _ = write!(self.out, "{:indent$}", "");
                    self.entry(key, value, indent);
                }
            }
            Tree::List(items) => {
                for item in items {
                    self.comment(indent);
                    let _ = write!(self.out, "{:indent$}-", "");
                    match item {
                        Tree::Map(entries) if !entries.is_empty() && !self.is_flow() => {
                            let mut first = true;
                            for (key, value) in entries {
                                if std::mem::take(&mut first) {
                                    self.out.push(' ');
                                } else {
                                    let _ = write!(self.out, "{:1$}", "", indent + 2);
                                }
                                self.entry(key, value, indent + 2);
                            }
                        }
                        Tree::List(inner) if !inner.is_empty() && !self.is_flow() => {
                            self.out.push('\n');
                            self.block(item, indent + 2);
                        }
                        _ => self.inline(item, indent + 2),
                    }
                }
            }
            Tree::Raw(_) | Tree::Text(_) => self.inline(tree, indent),
        }
    }

    fn comment(&mut self, indent: usize) {
        if self.dice.chance(self.comments) {
            let _ = writeln!(self.out, "{:indent$}# a comment", "");
        }
    }

    fn is_flow(&mut self) -> bool {
        self.dice.chance(self.flow)
    }

    fn entry(&mut self, key: &str, value: &Tree, indent: usize) {
        self.out.push_str(key);
        self.out.push(':');
        match value {
            Tree::Map(_) | Tree::List(_) if !value.is_empty() && !self.is_flow() => {
                self.out.push('\n');
                let deeper = match value {
                    Tree::List(_) if !self.indents_lists => indent,
                    _ => indent + 2,
                };
                self.block(value, deeper);
            }
            _ => self.inline(value, indent + 2),
        }
    }

    /// Behind a key or a dash, to the end of the line.
    fn inline(&mut self, tree: &Tree, indent: usize) {
        self.out.push(' ');
        match tree {
            Tree::Text(text) if text.contains('\n') && self.dice.chance(80) => {
                self.literal(text, indent);
                return;
            }
            Tree::Raw(_) | Tree::Text(_) => self.scalar(tree, false),
            _ => self.in_flow(tree),
        }
        if self.dice.chance(self.comments) {
            self.out.push_str(" # behind");
        }
        self.out.push('\n');
    }

    fn literal(&mut self, text: &str, indent: usize) {
        // A document would be folded into one that cannot be read.
        let is_folded = !text.contains(": ") && self.dice.chance(10);
        self.out.push(if is_folded { '>' } else { '|' });
        if text.starts_with([' ', '\n']) {
            self.out.push('2');
        }
        let bare = text.trim_end_matches('\n');
        match text.len() - bare.len() {
            0 => self.out.push('-'),
            1 => {}
            _ => self.out.push('+'),
        }
        self.out.push('\n');
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            match line.is_empty() {
                true => self.out.push('\n'),
                false => {
                    let _ = writeln!(self.out, "{:indent$}{line}", "");
                }
            }
        }
    }

    fn in_flow(&mut self, tree: &Tree) {
        match tree {
            Tree::List(items) => {
                self.out.push('[');
                for (at, item) in items.iter().enumerate() {
                    self.out.push_str(if at > 0 { ", " } else { "" });
                    self.in_flow(item);
                }
                self.out.push(']');
            }
            Tree::Map(entries) => {
                self.out.push('{');
                for (at, (key, value)) in entries.iter().enumerate() {
                    self.out.push_str(if at > 0 { ", " } else { "" });
                    self.out.push_str(key);
                    self.out.push_str(": ");
                    self.in_flow(value);
                }
                self.out.push('}');
            }
            Tree::Raw(_) | Tree::Text(_) => self.scalar(tree, true),
        }
    }

    fn scalar(&mut self, tree: &Tree, in_flow: bool) {
        let text = match tree {
            Tree::Raw(text) if text.is_empty() && in_flow => "null",
            Tree::Raw(text) => text,
            Tree::Text(text) => {
                let written = quoted(self.dice, text, in_flow);
                self.out.push_str(&written);
                return;
            }
            _ => return,
        };
        self.out.push_str(text);
    }
}

fn quoted(dice: &mut Dice, text: &str, in_flow: bool) -> String {
    let is_plain = text
        .starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '.' || c == '$')
        && text.chars().all(|c| {
            c.is_ascii_alphanumeric()
                || "-_./$()+~^".contains(c)
                || !in_flow && "=,[] *|".contains(c)
        })
        && !text.ends_with(' ')
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null" | ".inf" | ".nan"
        );
    let style = dice.below(10);
    if is_plain && style < 7 {
        return text.to_owned();
    }
    if style.is_multiple_of(2) && !text.contains('\n') {
        return format!("'{}'", text.replace('\'', "''"));
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c => out.push(c),
        }
    }
    out + "\""
}
