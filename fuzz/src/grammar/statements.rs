//! Random templates: statements and expressions.

use std::fmt::Write as _;

use golib::strconv;

use super::functions::{self, Row};
use super::{Vocabulary, documents, patterns, texts, values};
use crate::Choices;

/// How deep expressions nest in each other, and statements.
const EXPRESSION_DEPTH: usize = 3;
const BLOCK_DEPTH: usize = 3;

/// A template and the named ones it may call. A template calls only those after it, so that none calls itself.
pub(super) fn templates(
    choices: &mut Choices<'_>,
    vocabulary: Vocabulary,
) -> (String, Vec<(String, String)>) {
    let count = choices.below(3);
    let names: Vec<String> = (0..count).map(|number| format!("t{number}")).collect();
    let source = |choices: &mut Choices<'_>, names: &[String]| {
        let mut writer = Writer::new(choices, vocabulary, names);
        writer.block(BLOCK_DEPTH);
        writer.out
    };
    let template = source(choices, &names);
    let others = names.iter().enumerate();
    let others = others.map(|(at, name)| (name.clone(), source(choices, &names[at + 1..])));
    let others = others.collect();
    (template, others)
}

struct Writer<'c, 'b, 'n> {
    choices: &'c mut Choices<'b>,
    vocabulary: Vocabulary,
    delims: (&'static str, &'static str),
    /// Templates that may be called.
    names: &'n [String],
    /// Variables in scope.
    vars: Vec<String>,
    in_range: bool,
    /// Whether numbers must stay small: nobody waits for a range over the largest of them.
    is_small: bool,
    out: String,
}

impl<'c, 'b, 'n> Writer<'c, 'b, 'n> {
    fn new(choices: &'c mut Choices<'b>, vocabulary: Vocabulary, names: &'n [String]) -> Self {
        let delims = match vocabulary {
            Vocabulary::Fleet => ("${", "}"),
            _ => ("{{", "}}"),
        };
        Self {
            choices,
            vocabulary,
            delims,
            names,
            vars: Vec::new(),
            in_range: false,
            is_small: false,
            out: String::new(),
        }
    }

    /// Some statements; their variables end with them.
    fn block(&mut self, depth: usize) {
        let mark = self.vars.len();
        for _ in 0..=self.choices.below(if depth == BLOCK_DEPTH { 4 } else { 2 }) {
            self.statement(depth);
        }
        self.vars.truncate(mark);
    }

    fn action(&mut self, inside: &str) {
        let (left, right) = self.delims;
        self.out.push_str(left);
        self.out
            .push_str(if self.choices.chance(8) { "- " } else { " " });
        self.out.push_str(inside);
        self.out
            .push_str(if self.choices.chance(8) { " -" } else { " " });
        self.out.push_str(right);
    }

    fn statement(&mut self, depth: usize) {
        match self.choices.below(if depth == 0 { 8 } else { 16 }) {
            0..=4 => {
                let pipeline = self.pipeline();
                self.action(&pipeline);
            }
            5 => {
                let text = texts::words(self.choices)
                    .replace("{{", "{")
                    .replace("${", "$");
                self.out.push_str(&text);
            }
            6 => self.declare(),
            7 => self.small(),
            8..=10 => self.condition(depth, "if"),
            11 => self.condition(depth, "with"),
            12 | 13 => self.range(depth),
            14 => self.call_template(),
            _ => self.define(depth),
        }
    }

    fn small(&mut self) {
        match self.choices.below(5) {
            0 => {
                let (left, right) = self.delims;
                let comment =
                    self.choices
                        .pick(&["/* c */", "- /* c */ -", "/**/", "/* c", "/* c */ x"]);
                let _ = write!(self.out, "{left}{comment}{right}");
            }
            1 if self.in_range => self.action("break"),
            2 if self.in_range => self.action("continue"),
            3 => {
                let odd = self.choices.pick(&[
                    ".",
                    "$",
                    "nil",
                    "true",
                    "1",
                    "'a'",
                    "`r`",
                    ".a.b.c",
                    "$.s",
                    "(.)",
                    "((1))",
                    "1_0",
                    "0x1p4",
                    "1i",
                    "'\\''",
                    ".s.t",
                    "nil | len",
                    ". | .s",
                    "$x",
                    "nope",
                    "(",
                    "1 2",
                    "\"a",
                    "| len",
                    "len |",
                    ".5",
                    "-1",
                    "+1",
                    "1+2i",
                    "break",
                    "else",
                    "end",
                    "template",
                    ".l.x",
                    "(.d).a",
                    "(index .l 0).a",
                    "$.d.a.b",
                    "1.e3",
                    "0b2",
                    "'ab'",
                    "5 | 6",
                ]);
                self.action(odd);
            }
            _ => {
                let noise = self
                    .choices
                    .pick(&["{", "}}", "{ {", "$", "}", "-", "\n", "$ {", "{{{{"]);
                self.out.push_str(noise);
            }
        }
    }

    fn declare(&mut self) {
        let pipeline = self.pipeline();
        if self.choices.chance(35)
            && let Some(name) = self.any_var()
        {
            self.action(&format!("{name} = {pipeline}"));
            return;
        }
        let name = format!("$v{}", self.vars.len());
        self.action(&format!("{name} := {pipeline}"));
        self.vars.push(name);
    }

    fn any_var(&mut self) -> Option<String> {
        let at = self.choices.below(self.vars.len());
        self.vars.get(at).cloned()
    }

    fn condition(&mut self, depth: usize, keyword: &str) {
        let mark = self.vars.len();
        let pipeline = self.pipeline();
        if self.choices.chance(15) {
            let name = format!("$v{}", self.vars.len());
            self.action(&format!("{keyword} {name} := {pipeline}"));
            self.vars.push(name);
        } else {
            self.action(&format!("{keyword} {pipeline}"));
        }
        self.block(depth - 1);
        while self.choices.chance(20) {
            let pipeline = self.pipeline();
            self.action(&format!("else {keyword} {pipeline}"));
            self.block(depth - 1);
        }
        if self.choices.chance(40) {
            self.action("else");
            self.block(depth - 1);
        }
        self.action("end");
        self.vars.truncate(mark);
    }

    fn range(&mut self, depth: usize) {
        let mark = self.vars.len();
        let kind = self.choices.pick(&["l", "d", "i", "a", "l"]);
        self.is_small = true;
        let over = self.expression(kind.chars().next().unwrap_or('l'), EXPRESSION_DEPTH - 1);
        self.is_small = false;
        let next = self.vars.len();
        match self.choices.below(4) {
            0 => self.action(&format!("range {over}")),
            1 => {
                self.action(&format!("range $v{next} := {over}"));
                self.vars.push(format!("$v{next}"));
            }
            2 => {
                self.action(&format!("range $v{next}, $v{} := {over}", next + 1));
                self.vars.push(format!("$v{next}"));
                self.vars.push(format!("$v{}", next + 1));
            }
            _ => match self.any_var() {
                Some(name) => self.action(&format!("range {name} = {over}")),
                None => self.action(&format!("range {over}")),
            },
        }
        let outer = std::mem::replace(&mut self.in_range, true);
        self.block(depth - 1);
        if self.choices.chance(20) {
            self.action(self.choices.clone().pick(&["break", "continue"]));
        }
        self.in_range = outer;
        if self.choices.chance(25) {
            self.action("else");
            self.block(depth - 1);
        }
        self.action("end");
        self.vars.truncate(mark);
    }

    fn call_template(&mut self) {
        let name = strconv::quote(self.template_name());
        if self.choices.chance(70) {
            let pipeline = self.pipeline();
            self.action(&format!("template {name} {pipeline}"));
        } else {
            self.action(&format!("template {name}"));
        }
    }

    fn template_name(&mut self) -> String {
        let at = self.choices.below(self.names.len());
        match self.names.get(at) {
            Some(name) if !self.choices.chance(4) => name.clone(),
            _ => "nope".to_owned(),
        }
    }

    /// A `define` or `block` of a name of its own, which nobody else calls.
    fn define(&mut self, depth: usize) {
        let name = format!("\"d{}\"", self.choices.below(4));
        let vars = std::mem::take(&mut self.vars);
        let in_range = std::mem::replace(&mut self.in_range, false);
        if depth == BLOCK_DEPTH && self.choices.chance(50) {
            self.action(&format!("define {name}"));
        } else {
            let pipeline = self.expression('a', 1);
            self.action(&format!("block {name} {pipeline}"));
        }
        self.block(depth - 1);
        self.action("end");
        self.vars = vars;
        self.in_range = in_range;
    }

    fn pipeline(&mut self) -> String {
        let kind = self.choices.pick(&["a", "s", "s", "n", "l", "d", "b", "t"]);
        self.expression(kind.chars().next().unwrap_or('a'), EXPRESSION_DEPTH)
    }

    /// An expression that gives a value of the kind, mostly.
    fn expression(&mut self, kind: char, depth: usize) -> String {
        let is_count = kind == 'i';
        if !is_count && self.choices.chance(3) {
            return self.leaf('a');
        }
        if is_count || depth == 0 || self.choices.is_empty() || self.choices.chance(30) {
            return self.leaf(kind);
        }
        match self.function(kind) {
            Some(row) => self.call(row, depth),
            None => self.leaf(kind),
        }
    }

    /// A function that gives this kind.
    fn function(&mut self, kind: char) -> Option<Row> {
        let groups = functions::rows(self.vocabulary);
        let group = groups[self.choices.below(groups.len())];
        let start = self.choices.below(group.len());
        let fits = |row: &&Row| kind == 'a' || row.2 == kind || (kind == 's' && row.1.is_empty());
        group[start..]
            .iter()
            .chain(&group[..start])
            .find(fits)
            .copied()
    }

    /// A call, in parentheses or with its last argument piped into it.
    fn call(&mut self, (name, params, _): Row, depth: usize) -> String {
        let mut args = Vec::new();
        let mut letters = params.chars().peekable();
        while let Some(letter) = letters.next() {
            let mut count = 1;
            if letters.next_if_eq(&'*').is_some() {
                count = self.choices.below(4);
            }
            for _ in 0..count {
                args.push(self.argument(letter, depth - 1));
            }
        }
        if self.choices.chance(2) {
            args.pop();
        }
        if self.choices.chance(2) {
            args.push(self.leaf('a'));
        }
        let piped = if self.choices.chance(30) {
            args.pop()
        } else {
            None
        };
        let mut call = String::new();
        if let Some(piped) = piped {
            call.push_str(&piped);
            call.push_str(" | ");
        }
        call.push_str(name);
        for arg in args {
            call.push(' ');
            call.push_str(&arg);
        }
        format!("({call})")
    }

    fn argument(&mut self, letter: char, depth: usize) -> String {
        let text = match letter {
            'r' => patterns::pattern(self.choices),
            'R' => patterns::replacement(self.choices),
            'v' => texts::version(self.choices),
            'c' => texts::constraint(self.choices),
            'f' => texts::layout(self.choices),
            'F' => texts::time_text(self.choices),
            'u' => texts::duration(self.choices),
            'z' => self
                .choices
                .pick(&[
                    "UTC",
                    "Europe/Berlin",
                    "America/New_York",
                    "Asia/Kolkata",
                    "Nope/Zone",
                    "",
                    "EST",
                    "../x",
                ])
                .to_owned(),
            'y' => documents::yaml_text(self.choices),
            'j' => documents::json_text(self.choices),
            'o' => documents::toml_text(self.choices),
            'p' => texts::path(self.choices),
            'x' => texts::printf_format(self.choices, self.vocabulary == Vocabulary::Everything),
            'k' => match self.choices.chance(5) {
                true => return self.expression('s', depth),
                false => self.choices.pick(&values::KEYS).to_owned(),
            },
            'q' => self
                .choices
                .pick(&[
                    "string",
                    "int",
                    "float64",
                    "map",
                    "slice",
                    "[]interface {}",
                    "map[string]interface {}",
                    "bool",
                    "<nil>",
                    "invalid",
                    "ptr",
                ])
                .to_owned(),
            'm' => self.template_name(),
            'e' => return self.inner_template(),
            'T' => return self.time(),
            letter => return self.expression(letter, depth),
        };
        literal(self.choices, &text)
    }

    /// The text of a template, for `tpl`.
    fn inner_template(&mut self) -> String {
        let mut inner = Writer::new(self.choices, self.vocabulary, self.names);
        inner.statement(0);
        let text = inner.out;
        literal(self.choices, &text)
    }

    fn leaf(&mut self, kind: char) -> String {
        if kind != 'i'
            && !self.is_small
            && self.choices.chance(20)
            && let Some(name) = self.any_var()
        {
            return name;
        }
        match kind {
            'i' => self
                .choices
                .pick(&["0", "1", "2", "3", "5", "8", "12", "-1", "-3", "20"])
                .to_owned(),
            's' => match self.choices.below(5) {
                0 => "$.s".to_owned(),
                1 => ".s".to_owned(),
                _ => {
                    let text = texts::words(self.choices);
                    literal(self.choices, &text)
                }
            },
            'n' if self.is_small => self
                .choices
                .pick(&["$.i", "3", "1.5", "'\\n'", "-2"])
                .to_owned(),
            'n' => match self.choices.below(4) {
                0 => "$.n".to_owned(),
                1 => "$.i".to_owned(),
                _ => self
                    .choices
                    .pick(&[
                        "0",
                        "1",
                        "2",
                        "-1",
                        "3.5",
                        "1e3",
                        "0x10",
                        "'a'",
                        "1_000",
                        "9223372036854775807",
                        "-9223372036854775808",
                        "0.1",
                        "1e300",
                        "\"7\"",
                        "\"0x1f\"",
                        "\"1.5\"",
                        "-0.5",
                        "100",
                        "017",
                        "true",
                    ])
                    .to_owned(),
            },
            'b' => self
                .choices
                .pick(&["true", "false", "$.b", ".b"])
                .to_owned(),
            'l' => self
                .choices
                .pick(&[
                    "$.l",
                    "$.t",
                    "(list 1 \"a\" nil)",
                    "(list)",
                    ".l",
                    "(until 3)",
                    "(splitList \",\" \"b,a,c\")",
                    "(list 3 1.5 $.n)",
                ])
                .to_owned(),
            'd' => self
                .choices
                .pick(&[
                    "$.d",
                    "(dict \"a\" 1 \"b\" \"x\")",
                    "(dict)",
                    ".d",
                    "$",
                    "(dict \"a\" (dict \"b\" $.x))",
                ])
                .to_owned(),
            't' => match self.choices.chance(40) {
                true => self.time(),
                false => self
                    .choices
                    .pick(&[
                        "0",
                        "1700000000",
                        "-1",
                        "1e9",
                        "(int64 1709210096)",
                        "(int 86399)",
                    ])
                    .to_owned(),
            },
            _ => match self.choices.below(4) {
                0 => self
                    .choices
                    .pick(&[
                        "$.x", "$.z", ".", "$", ".x", "nil", "$.d.a", ".a", "$.l", "$.d", "$.nope",
                        ".d.b.c",
                    ])
                    .to_owned(),
                1 => self.leaf('s'),
                2 => self.leaf('n'),
                _ => {
                    let kind = self.choices.pick(&["l", "d", "b", "n", "t"]);
                    self.leaf(kind.chars().next().unwrap_or('b'))
                }
            },
        }
    }

    fn time(&mut self) -> String {
        if self.vocabulary == Vocabulary::Builtin {
            return "1".to_owned();
        }
        self.choices
            .pick(&[
                "(toDate \"2006-01-02\" \"2024-02-29\")",
                "(toDate \"2006-01-02T15:04:05.999Z07:00\" \"2023-12-31T23:59:59.987+05:30\")",
                "(toDate \"2006\" \"0001\")",
                "(toDate \"2006-01-02 MST\" \"1969-07-20 EST\")",
                "(dateModify \"-36h5m\" (toDate \"2006-01-02\" \"2024-03-01\"))",
                "(mustToDate \"02.01.2006\" \"31.12.9999\")",
            ])
            .to_owned()
    }
}

/// A text as a literal of the template language: in backquotes where that is possible, sometimes.
fn literal(choices: &mut Choices<'_>, text: &str) -> String {
    if choices.chance(20) && !text.contains(['`', '\r']) {
        return format!("`{text}`");
    }
    strconv::quote(text)
}
