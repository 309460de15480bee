//! Keys and values to tables, with the rules of what may be defined twice (the Go library's `parse.go`).

use std::collections::{BTreeMap, HashMap, HashSet};

use super::scan::{Problem, Scanner};
use super::{Error, MAX_DEPTH, Value, path_text};
use crate::budget::{Budget, Part, TooLarge};

/// What a path of keys takes besides its text, where it is remembered.
const PATH_BYTES: usize = 64;
/// What following a path counts for each of its keys: it takes no memory, but time.
const KEY_BYTES: usize = 8;

type Table = BTreeMap<String, Node>;

/// A value being built. Arrays of tables stay open to `[[more]]`, other arrays do not.
enum Node {
    Table(Table),
    Tables(Vec<Table>),
    Value(Value),
}

/// Why a document is not read.
enum Failure {
    Wrong(Problem),
    TooLarge(TooLarge),
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Wrong(problem)
    }
}

impl From<TooLarge> for Failure {
    fn from(error: TooLarge) -> Self {
        Self::TooLarge(error)
    }
}

/// Reads a document. A few bytes of a name (`a.a.a.a`) stand for a table each, and for a path that is remembered of each.
///
/// ```
/// use golib::budget::Budget;
/// use golib::toml::{self, Error, Value};
///
/// let mut budget = Budget::default();
/// let document = toml::decode_within(b"[server]\nport = 8080\n", &mut budget)?;
/// assert!(matches!(&document["server"], Value::Table(server) if matches!(server["port"], Value::Integer(8080))));
/// match toml::decode_within(b"a = 1\nb = \n", &mut budget) {
///     Err(Error::Parse { line, last_key, .. }) => assert_eq!((line, &*last_key), (2, "b")),
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// What the Go library refuses, in its words, nesting beyond 500 levels, and what the budget has not enough left for.
pub fn decode_within(text: &[u8], budget: &mut Budget) -> Result<BTreeMap<String, Value>, Error> {
    let text = [&b"\xff\xfe"[..], b"\xfe\xff", b"\xef\xbb\xbf"]
        .iter()
        .find_map(|mark| text.strip_prefix(*mark))
        .unwrap_or(text);
    if text[..text.len().min(6)].contains(&0) {
        let message =
            "files cannot contain NULL bytes; probably using UTF-16; TOML files must be UTF-8";
        return Err(Error::Parse {
            line: 1,
            last_key: String::new(),
            message: message.into(),
        });
    }
    let mut parser = Parser {
        scanner: Scanner::new(text),
        budget,
        root: Table::new(),
        context: Vec::new(),
        current_key: String::new(),
        key_line: 0,
        arrays: HashMap::new(),
        implicits: HashSet::new(),
        depth: 0,
    };
    match parser.document() {
        Ok(()) => Ok(finish(parser.root)),
        Err(Failure::Wrong(Problem { line, message })) => Err(Error::Parse {
            line,
            last_key: parser.last_key(),
            message,
        }),
        Err(Failure::TooLarge(error)) => Err(error.into()),
    }
}

fn finish(table: Table) -> BTreeMap<String, Value> {
    table
        .into_iter()
        .map(|(key, node)| (key, finish_node(node)))
        .collect()
}

fn finish_node(node: Node) -> Value {
    match node {
        Node::Value(value) => value,
        Node::Table(table) => Value::Table(finish(table)),
        Node::Tables(tables) => Value::Tables(
            tables
                .into_iter()
                .map(|table| Value::Table(finish(table)))
                .collect(),
        ),
    }
}

struct Parser<'a> {
    scanner: Scanner<'a>,
    budget: &'a mut Budget,
    root: Table,
    /// The table being filled.
    context: Vec<String>,
    current_key: String,
    /// The line of the key or table name that was read last.
    key_line: usize,
    /// Whether what a path names was last seen as a plain array.
    arrays: HashMap<String, bool>,
    /// Tables that only came into being on the way to others: these may be defined once more.
    implicits: HashSet<String>,
    depth: usize,
}

impl Parser<'_> {
    fn last_key(&self) -> String {
        match (self.context.is_empty(), self.current_key.is_empty()) {
            (_, true) => path_text(&self.context),
            (true, _) => self.current_key.clone(),
            _ => format!("{}.{}", path_text(&self.context), self.current_key),
        }
    }

    fn document(&mut self) -> Result<(), Failure> {
        loop {
            match self.next()? {
                Some('[') => {
                    self.table_header()?;
                    self.line_end()?;
                }
                None => return Ok(()),
                c => {
                    self.scanner.back(c);
                    let outer = self.context.len();
                    self.key()?;
                    let value = self.value(false)?;
                    let is_array = matches!(value, Value::Array(_));
                    self.set_value(value)?;
                    self.set_type(is_array)?;
                    self.context.truncate(outer);
                    self.current_key.clear();
                    self.line_end()?;
                }
            }
        }
    }

    /// What comes behind blanks, line breaks and comments.
    fn next(&mut self) -> Result<Option<char>, Failure> {
        loop {
            match self.scanner.next()? {
                Some(' ' | '\t' | '\n' | '\r') => {}
                Some('#') => self.scanner.skip_comment()?,
                found => return Ok(found),
            }
        }
    }

    fn line_end(&mut self) -> Result<(), Failure> {
        loop {
            match self.scanner.next()? {
                None | Some('\n' | '\r') => return Ok(()),
                Some(' ' | '\t') => {}
                Some('#') => return Ok(self.scanner.skip_comment()?),
                Some(c) => {
                    let c = crate::strconv::quote_rune(c.into());
                    let message = format!(
                        "expected a top-level item to end with a newline, comment, or EOF, but got {c} instead"
                    );
                    return Err(self.scanner.problem(message).into());
                }
            }
        }
    }

    fn table_header(&mut self) -> Result<(), Failure> {
        let array = self.scanner.accept('[')?;
        let (path, line) = self.scanner.table_name()?;
        if array && !self.scanner.accept(']')? {
            let c = self.scanner.next()?;
            let c = crate::strconv::quote_rune(c.map_or(0, u32::from));
            let message =
                format!("expected end of table array name delimiter ']', but got {c} instead");
            return Err(self.scanner.problem(message).into());
        }
        self.key_line = line;
        self.add_context(&path, array)?;
        let name = path_name(self.budget, &self.context)?;
        self.arrays.insert(name, false);
        Ok(())
    }

    /// Reads a key and makes the tables it leads through; what is left is the current key, which is also returned.
    fn key(&mut self) -> Result<String, Failure> {
        let (mut path, line) = self.scanner.key()?;
        self.key_line = line;
        self.current_key = path.pop().unwrap_or_default();
        if self.context.len() + path.len() > MAX_DEPTH {
            return Err(self.scanner.problem("key is nested too deeply").into());
        }
        for part in path {
            let mut context = self.context.clone();
            context.push(part);
            self.implicits.insert(path_name(self.budget, &context)?);
            self.add_context(&context, false)?;
        }
        Ok(self.current_key.clone())
    }

    fn value(&mut self, in_array: bool) -> Result<Value, Failure> {
        self.scanner.skip_blanks()?;
        let first = self.scanner.next()?;
        if !matches!(first, Some('[' | '{')) {
            let value = self.scanner.scalar(first)?;
            weigh(self.budget, &value)?;
            return Ok(value);
        }
        if self.depth + self.context.len() >= MAX_DEPTH {
            return Err(self.scanner.problem("value is nested too deeply").into());
        }
        self.depth += 1;
        let value = if first == Some('[') {
            self.array()
        } else {
            self.inline_table(in_array)
        };
        self.depth -= 1;
        value
    }

    fn array(&mut self) -> Result<Value, Failure> {
        self.set_type(true)?;
        let mut items = Vec::new();
        while self.begins_item(']')? {
            self.budget.element::<Value>(items.len())?;
            items.push(self.value(true)?);
            match self.next()? {
                Some(',') => {}
                Some(']') => break,
                c => {
                    let message = format!(
                        "expected a comma (',') or array terminator (']'), but got {}",
                        shown(c)
                    );
                    return Err(self.scanner.problem(message).into());
                }
            }
        }
        Ok(Value::Array(items))
    }

    fn inline_table(&mut self, in_array: bool) -> Result<Value, Failure> {
        let outer_context = self.context.clone();
        let outer_key = std::mem::take(&mut self.current_key);
        self.context.push(outer_key.clone());
        let context = self.context.clone();
        self.implicits.insert(path_name(self.budget, &context)?);
        self.add_context(&context, in_array)?;
        let mut table = BTreeMap::new();
        let mut open = true;
        while open && self.begins_item('}')? {
            let key = self.key()?;
            let path = self.context[context.len()..].to_vec();
            let value = self.value(false)?;
            // Nested ones are copied once a level.
            weigh(self.budget, &value)?;
            self.set_value(value.clone())?;
            self.set_type(matches!(value, Value::Array(_)))?;
            insert(self.budget, &mut table, &path, key, value)?;
            self.context.truncate(context.len());
            open = self.inline_table_continues()?;
        }
        self.context = outer_context;
        self.current_key = outer_key;
        Ok(Value::Table(table))
    }

    /// Goes to the next item of an array or an inline table; false where `close` ends it instead.
    fn begins_item(&mut self, close: char) -> Result<bool, Failure> {
        match self.next()? {
            Some(',') => Err(self.scanner.problem("unexpected comma").into()),
            Some(c) if c == close => Ok(false),
            c => {
                self.scanner.back(c);
                Ok(true)
            }
        }
    }

    fn inline_table_continues(&mut self) -> Result<bool, Failure> {
        loop {
            match self.next()? {
                Some(',') => {
                    self.scanner.skip_blanks()?;
                    if self.scanner.peek()? != Some('}') {
                        return Ok(true);
                    }
                }
                Some('}') => return Ok(false),
                c => {
                    let message = format!(
                        "expected a comma or an inline table terminator '}}', but got {} instead",
                        shown(c)
                    );
                    return Err(self.scanner.problem(message).into());
                }
            }
        }
    }

    // What is defined

    /// Makes the path's table, and those it is in, and goes there.
    fn add_context(&mut self, path: &[String], array: bool) -> Result<(), Failure> {
        let line = self.key_line;
        let Some((last, parents)) = path.split_last() else {
            return Ok(());
        };
        if path.len() > MAX_DEPTH {
            let message = "key is nested too deeply".into();
            return Err(Problem { line, message }.into());
        }
        walk(self.budget, path)?;
        let mut table = &mut self.root;
        for (index, part) in parents.iter().enumerate() {
            if !table.contains_key(part) {
                let name = path_name(self.budget, &parents[..=index])?;
                self.implicits.insert(name);
                new_entry(self.budget, table, part)?;
            }
            let node = table
                .entry(part.clone())
                .or_insert_with(|| Node::Table(Table::new()));
            table = match inner(node) {
                Some(table) => table,
                None => {
                    let path = path_text(&parents[..=index]);
                    let message = format!("Key '{path}' was already created as a hash.");
                    return Err(Problem { line, message }.into());
                }
            };
        }
        self.context = parents.to_vec();
        if array {
            if !table.contains_key(last) {
                new_entry(self.budget, table, last)?;
            }
            match table
                .entry(last.clone())
                .or_insert_with(|| Node::Tables(Vec::new()))
            {
                Node::Tables(tables) => {
                    self.budget.element::<Table>(tables.len())?;
                    tables.push(Table::new());
                }
                _ => {
                    let path = path_text(path);
                    let message =
                        format!("Key '{path}' was already created and cannot be used as an array.");
                    return Err(Problem { line, message }.into());
                }
            }
        } else {
            self.set(last, Node::Table(Table::new()))?;
        }
        self.context.push(last.clone());
        Ok(())
    }

    fn set_value(&mut self, value: Value) -> Result<(), Failure> {
        let key = self.current_key.clone();
        let node = match value {
            Value::Table(entries) => Node::Table(unfinish(entries)),
            value => Node::Value(value),
        };
        self.set(&key, node)
    }

    fn set(&mut self, key: &str, value: Node) -> Result<(), Failure> {
        let line = self.key_line;
        let defined = |path: &[String]| Problem {
            line,
            message: format!("Key '{}' has already been defined.", path_text(path)),
        };
        walk(self.budget, &self.context)?;
        let mut table = &mut self.root;
        for (index, part) in self.context.iter().enumerate() {
            table = table
                .get_mut(part)
                .and_then(inner)
                .ok_or_else(|| defined(&self.context[..=index]))?;
        }
        if table.contains_key(key) {
            let mut path = self.context.clone();
            path.push(key.to_owned());
            let name = path_name(self.budget, &path)?;
            if !self.implicits.remove(&name) {
                return Err(defined(&path).into());
            }
            if !self.arrays.get(&name).copied().unwrap_or(false) {
                return Ok(()); // what is there was filled on the way
            }
        } else {
            new_entry(self.budget, table, key)?;
        }
        table.insert(key.to_owned(), value);
        Ok(())
    }

    /// Notes whether the current key holds a plain array.
    fn set_type(&mut self, array: bool) -> Result<(), TooLarge> {
        let mut path = self.context.clone();
        if !self.current_key.is_empty() {
            path.push(self.current_key.clone());
        }
        let name = path_name(self.budget, &path)?;
        self.arrays.insert(name, array);
        Ok(())
    }
}

/// The text of a path, which is remembered.
fn path_name(budget: &mut Budget, path: &[String]) -> Result<String, TooLarge> {
    walk(budget, path)?;
    let name = path_text(path);
    budget.spend(Part::Text, name.len() + PATH_BYTES)?;
    Ok(name)
}

/// Counts going along a path.
fn walk(budget: &mut Budget, path: &[String]) -> Result<(), TooLarge> {
    budget.spend(Part::Maps, path.len() * KEY_BYTES)
}

/// Counts an entry that a table is about to get.
fn new_entry<T>(
    budget: &mut Budget,
    table: &BTreeMap<String, T>,
    key: &str,
) -> Result<(), TooLarge> {
    budget.entry::<String, T>(table.len())?;
    budget.text(key.len())
}

/// Counts what a value takes beyond its place.
fn weigh(budget: &mut Budget, value: &Value) -> Result<(), TooLarge> {
    match value {
        Value::String(text) => budget.text(text.len()),
        Value::Array(items) => items.iter().enumerate().try_for_each(|(length, item)| {
            budget.element::<Value>(length)?;
            weigh(budget, item)
        }),
        Value::Table(entries) => entries.iter().enumerate().try_for_each(|(length, entry)| {
            budget.entry::<String, Value>(length)?;
            budget.text(entry.0.len())?;
            weigh(budget, entry.1)
        }),
        _ => Ok(()),
    }
}

/// The table behind a node: itself, or the last of several.
fn inner(node: &mut Node) -> Option<&mut Table> {
    match node {
        Node::Table(table) => Some(table),
        Node::Tables(tables) => tables.last_mut(),
        Node::Value(_) => None,
    }
}

fn unfinish(entries: BTreeMap<String, Value>) -> Table {
    entries
        .into_iter()
        .map(|(key, value)| match value {
            Value::Table(entries) => (key, Node::Table(unfinish(entries))),
            value => (key, Node::Value(value)),
        })
        .collect()
}

/// Puts a value at the end of a path of tables, which are made where they are missing.
fn insert(
    budget: &mut Budget,
    table: &mut BTreeMap<String, Value>,
    path: &[String],
    key: String,
    value: Value,
) -> Result<(), TooLarge> {
    let mut table = table;
    for part in path {
        if !table.contains_key(part) {
            new_entry(budget, table, part)?;
        }
        let node = table
            .entry(part.clone())
            .or_insert_with(|| Value::Table(BTreeMap::new()));
        let Value::Table(inner) = node else {
            return Ok(());
        };
        table = inner;
    }
    new_entry(budget, table, &key)?;
    table.insert(key, value);
    Ok(())
}

fn shown(c: Option<char>) -> String {
    c.map_or_else(|| "end of file".into(), |c| format!("'{c}'"))
}
