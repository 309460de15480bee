//! Which file of a crate uses which: what stands after `use` and every path in the code, followed to the file that has the item.
//!
//! A file is named by its module; the root of the crate has no name. Macros are not looked into, and what a file only hands on
//! (`pub use`), without naming it anywhere else, it does not use.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;

/// The names on the way from the root of a crate.
pub(crate) type Module = Vec<String>;

/// What stands in the files of a crate.
#[derive(Default)]
pub(crate) struct Imports {
    /// The paths that a file uses, as they are written.
    paths: BTreeMap<Module, Vec<String>>,
    /// Where an item really is that a file hands on under a name.
    handed_on: BTreeMap<(Module, String), String>,
    /// Files for tests alone.
    tests: BTreeSet<Module>,
}

impl Imports {
    /// Reads every file of a crate that ships, programs apart.
    pub(crate) fn of_crate(source: &Path) -> Result<Self> {
        let mut imports = Self::default();
        let mut open = vec![source.to_owned()];
        while let Some(path) = open.pop() {
            if path.is_dir() {
                for entry in std::fs::read_dir(&path)? {
                    open.push(entry?.path());
                }
                continue;
            }
            let name = path.strip_prefix(source)?.with_extension("");
            let mut module: Module = name
                .iter()
                .map(|name| name.to_string_lossy().into_owned())
                .collect();
            if module == ["main"] || module[0] == "bin" {
                continue;
            }
            module.pop_if(|last| *last == "mod" || *last == "lib");
            imports.add(module, &std::fs::read_to_string(&path)?);
        }
        imports.leave_out_tests();
        Ok(imports)
    }

    fn add(&mut self, module: Module, text: &str) {
        let (mut code, tests) = shipped(text);
        for name in tests {
            self.tests.insert([&module[..], &[name]].concat());
        }
        let (mut used, mut named_so) = (Vec::new(), Vec::new());
        while let Some((start, end)) = first_use(&code) {
            let statement: String = code.drain(start..end).collect();
            let (visibility, tree) = statement.split_once("use ").unwrap_or_default();
            for path in paths(tree) {
                let (path, alias) = path.split_once('=').unwrap_or((&path, ""));
                let last = path.rsplit("::").next().unwrap_or_default();
                let name = if alias.is_empty() { last } else { alias };
                if visibility.contains("pub") {
                    let key = (module.clone(), name.to_owned());
                    self.handed_on.insert(key, path.to_owned());
                    named_so.push((name.to_owned(), path.to_owned()));
                } else {
                    used.push(path.to_owned());
                }
            }
        }
        let names: BTreeSet<&str> = code
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .collect();
        named_so.retain(|(name, _)| names.contains(name.as_str()));
        used.extend(named_so.into_iter().map(|(_, path)| path));
        let words = code.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
        let is_path = |word: &&str| word.contains("::") && word.starts_with(char::is_lowercase);
        let written = words.map(|word| word.trim_end_matches(':')).filter(is_path);
        used.extend(written.map(str::to_owned));
        self.paths.insert(module, used);
    }

    fn leave_out_tests(&mut self) {
        let is_test = |module: &Module| self.tests.iter().any(|test| module.starts_with(test));
        self.paths.retain(|module, _| !is_test(module));
        self.handed_on.retain(|(module, _), _| !is_test(module));
    }

    /// The files that each file uses.
    pub(crate) fn edges(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let owners = |(module, paths): (_, &Vec<String>)| {
            let owners = paths.iter().filter_map(|path| self.owner(module, path));
            (module, owners.filter(|owner| owner != module).collect())
        };
        self.paths.iter().map(owners).collect()
    }

    /// Files that use each other, directly or by way of others, in groups as large as can be.
    pub(crate) fn circles(&self) -> Vec<Vec<String>> {
        let edges = self.edges();
        let reached: BTreeMap<_, _> = edges
            .keys()
            .map(|start| (*start, reached(&edges, start)))
            .collect();
        let mut circles = BTreeSet::new();
        for (module, others) in &reached {
            let back = others
                .iter()
                .filter(|other| reached[*other].contains(module));
            let circle: Vec<String> = back.map(|other| other.join("::")).collect();
            circles.insert(circle);
        }
        circles
            .into_iter()
            .filter(|circle| !circle.is_empty())
            .collect()
    }

    /// The modules of a folder that the files in it name: each with the module that the file is of. The root of the folder itself is left out.
    pub(crate) fn named_in(&self, folder: &[&str]) -> BTreeSet<(&Module, String)> {
        let in_folder: Module = folder.iter().map(|name| (*name).to_owned()).collect();
        let handed_on = self
            .handed_on
            .iter()
            .map(|((module, _), path)| (module, path));
        let used = self
            .paths
            .iter()
            .flat_map(|(module, paths)| paths.iter().map(move |path| (module, path)));
        let named = handed_on
            .chain(used)
            .filter(|(module, _)| module.len() > folder.len() && module.starts_with(&in_folder));
        let below = |path: Module| Some(path.strip_prefix(&in_folder[..])?.first()?.clone());
        named
            .filter_map(|(module, path)| Some((module, below(self.absolute(module, path)?)?)))
            .collect()
    }

    /// The file that has what a path in `module` means; none for another crate's.
    fn owner(&self, module: &Module, path: &str) -> Option<Module> {
        let mut at = self.absolute(module, path)?;
        // Handing on in a circle does not compile, except through `*`.
        for _ in 0..8 {
            let is_file = |depth: &usize| self.paths.contains_key(&at[..*depth]);
            let depth = (0..=at.len()).rev().find(is_file)?;
            let rest = at.split_off(depth);
            let handed_on = rest
                .first()
                .and_then(|name| self.handed_on.get(&(at.clone(), name.clone())));
            match handed_on.and_then(|path| self.absolute(&at, path)) {
                Some(next) => at = next.into_iter().chain(rest.into_iter().skip(1)).collect(),
                None => return Some(at),
            }
        }
        None
    }

    /// A path of this crate from its root.
    fn absolute(&self, module: &Module, path: &str) -> Option<Module> {
        let mut at = module.clone();
        let mut names = path.split("::").peekable();
        match *names.peek()? {
            "crate" => at.clear(),
            "self" | "super" => {}
            child => {
                let child = child.to_owned();
                if !self.paths.contains_key(&[&at[..], &[child]].concat()) {
                    return None;
                }
            }
        }
        for name in names {
            match name {
                "crate" | "self" => {}
                "super" => {
                    at.pop();
                }
                name => at.push(name.to_owned()),
            }
        }
        Some(at)
    }
}

/// The files that one uses, directly or by way of others: itself, where they use it.
fn reached<'e>(
    edges: &'e BTreeMap<&Module, BTreeSet<Module>>,
    start: &'e Module,
) -> BTreeSet<&'e Module> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![start]);
    while let Some(module) = open.pop() {
        open.extend(edges[module].iter().filter(|next| reached.insert(*next)));
    }
    reached
}

/// Code without comments and without the items that `#[cfg(test)]` stands before; the files among these by their names.
fn shipped(text: &str) -> (String, Vec<String>) {
    let mut lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let (mut code, mut tests) = (String::new(), Vec::new());
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            code.extend([line, "\n"]);
            continue;
        }
        let item = lines.find(|line| !line.trim_start().starts_with("#["));
        let item = item.unwrap_or_default();
        if item.ends_with('{') {
            let end = line.replace("#[cfg(test)]", "}");
            lines.find(|line| *line == end);
        } else if let Some((_, name)) = item.trim_end_matches(';').split_once("mod ") {
            tests.push(name.to_owned());
        }
    }
    (code, tests)
}

/// Where the first `use` of a text begins and ends.
fn first_use(code: &str) -> Option<(usize, usize)> {
    let mut at = 0;
    for line in code.split_inclusive('\n') {
        let (before, _) = line.split_once("use ").unwrap_or(("no", ""));
        let before = before.trim();
        if before.is_empty()
            || before == "pub"
            || before.starts_with("pub(") && before.ends_with(')')
        {
            return Some((at, at + code[at..].find(';')?));
        }
        at += line.len();
    }
    None
}

/// Each path of a `use` by itself: `a::{B, c::D as E}` is `a::B` and `a::c::D=E`.
fn paths(tree: &str) -> Vec<String> {
    let words: Vec<&str> = tree.split_whitespace().collect();
    let tree = words.join(" ").replace(" as ", "=").replace(' ', "");
    let (mut found, mut open, mut path) = (Vec::new(), Vec::new(), String::new());
    for sign in tree.chars().chain([',']) {
        match sign {
            '{' => open.push(path.clone()),
            ',' | '}' => {
                if !path.is_empty() && open.last() != Some(&path) {
                    found.push(path);
                }
                if sign == '}' {
                    open.pop();
                    path = String::new();
                } else {
                    path = open.last().cloned().unwrap_or_default();
                }
            }
            sign => path.push(sign),
        }
    }
    found
}

/// The circles of a crate of these files.
fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let mut imports = Imports::default();
    for (module, text) in files {
        let names = module.split("::").filter(|name| !name.is_empty());
        imports.add(names.map(str::to_owned).collect(), text);
    }
    imports.leave_out_tests();
    imports.circles()
}

#[test]
fn files_in_a_circle_are_found_however_they_name_each_other() {
    let found = circles(&[
        ("", "mod a;\nmod b;\nmod c;\n"),
        (
            "a",
            "use std::fmt;\nuse crate::{\n    b::{B, Other as Another},\n};\n",
        ),
        ("b", "use super::c::C;\n"),
        ("c", "fn made() -> bool {\n    crate::a::made()\n}\n"),
        ("d", "use crate::a;\n"),
    ]);
    assert_eq!(found, [["a", "b", "c"]]);
}

#[test]
fn the_user_of_an_item_that_is_handed_on_uses_the_file_that_has_it() {
    let root = "mod build;\nmod error;\npub use error::Failure as Error;\nuse build::build;\n";
    let with = |text| {
        circles(&[
            ("", root),
            ("build", text),
            ("error", "pub enum Failure {}\n"),
        ])
    };
    assert!(with("use super::Error;\n").is_empty());
    assert_eq!(with("use super::Unknown;\n"), [["", "build"]]);
}

#[test]
fn what_a_file_hands_on_and_names_itself_it_uses() {
    let with = |text| circles(&[("", ""), ("a", text), ("a::b", "use super::A;\n")]);
    let handed_on = "mod b;\npub use b::{B as Handed, C};\npub struct A;\n";
    assert!(with(handed_on).is_empty());
    let named = format!("{handed_on}fn made() -> Handed {{}}\n");
    assert_eq!(with(&named), [["a", "a::b"]]);
    let tested = format!("{handed_on}#[cfg(test)]\nmod tests {{\n    use super::Handed;\n}}\n");
    assert!(with(&tested).is_empty());
}

#[test]
fn tests_and_comments_use_nothing() {
    let tests = "/// As [`crate::b::B`].\n#[cfg(test)]\nmod fixtures;\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n";
    let fixtures = ("a::fixtures", "use super::A;\nuse crate::b::B;\n");
    let with = |text: &str| {
        circles(&[
            ("", ""),
            ("a", text),
            fixtures,
            ("b", "use crate::a::{A, fixtures};\n"),
        ])
    };
    assert!(with(tests).is_empty());
    assert_eq!(with(&format!("{tests}use super::b;\n")), [["a", "b"]]);
}
