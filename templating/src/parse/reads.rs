//! The fields of its dot that a template may read, found from its text alone.
//!
//! Go has no such analysis. It over-estimates where it cannot know: whoever re-renders when what was read changed
//! must never miss a change, and may render once too often.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::{Branch, Command, Expr, ExprKind, Fields, List, Node, Pipe, Source, Tree};

/// The fields of the dot a template may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reads {
    /// The dot itself is handed on: anything may be read.
    Everything,
    /// These paths and whatever lies below them, such as `["ClusterLabels", "env"]`.
    Paths(BTreeSet<Vec<String>>),
}

impl Reads {
    /// Whether the dot does not matter.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Paths(paths) if paths.is_empty())
    }

    /// Adds the paths that another template reads.
    ///
    /// ```
    /// use templating::{Dialect, Reads};
    ///
    /// let mut set = Dialect::Fleet.template_set("values");
    /// set.parse("a", "${ .ClusterName }")?;
    /// set.parse("b", "${ .ClusterLabels.env }")?;
    /// let mut reads = Reads::default();
    /// reads.extend(set.reads("a").unwrap());
    /// reads.extend(set.reads("b").unwrap());
    /// let Reads::Paths(paths) = reads else { panic!("the dot is not handed on") };
    /// assert_eq!(paths.len(), 2);
    /// # Ok::<(), templating::Error>(())
    /// ```
    pub fn extend(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::Paths(own), Self::Paths(other)) => own.extend(other),
            (Self::Everything, _) => {}
            (own @ Self::Paths(_), Self::Everything) => *own = Self::Everything,
        }
    }
}

impl Default for Reads {
    fn default() -> Self {
        Self::Paths(BTreeSet::new())
    }
}

/// The reads of one tree and of those it calls; `find` gives trees by name.
pub(crate) fn reads<'t>(tree: &'t Tree, find: &dyn Fn(&str) -> Option<&'t Arc<Tree>>) -> Reads {
    let mut walk = Walk {
        find,
        source: &tree.source,
        seen: HashSet::new(),
        found: Reads::default(),
    };
    let scope = ReadScope {
        dot: Is::Root,
        dollar: Is::Root,
    };
    walk.list(&tree.root, scope);
    walk.found
}

/// Whether a dot is the one the caller of the whole template gave.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Is {
    Root,
    /// A part of it, which counts as read where it was taken, or a value made from parts.
    Other,
}

#[derive(Clone, Copy)]
struct ReadScope {
    dot: Is,
    dollar: Is,
}

struct Walk<'a, 't> {
    find: &'a dyn Fn(&str) -> Option<&'t Arc<Tree>>,
    /// Of the tree that is being read.
    source: &'t Source,
    seen: HashSet<(Arc<str>, Is)>,
    found: Reads,
}

impl Walk<'_, '_> {
    fn list(&mut self, list: &List, scope: ReadScope) {
        for node in &**list {
            self.node(node, scope);
        }
    }

    fn node(&mut self, node: &Node, scope: ReadScope) {
        match node {
            Node::Text { .. } | Node::Break { .. } | Node::Continue { .. } => {}
            Node::Action { pipe, .. } => self.pipe(pipe, scope),
            Node::If(branch) => self.branch(branch, scope, scope.dot),
            Node::With(branch) | Node::Range(branch) => self.branch(branch, scope, Is::Other),
            Node::Template { name, pipe, .. } => self.template(name, pipe.as_deref(), scope),
        }
    }

    fn branch(&mut self, branch: &Branch, scope: ReadScope, dot: Is) {
        self.pipe(&branch.pipe, scope);
        self.list(&branch.list, ReadScope { dot, ..scope });
        if let Some(list) = &branch.else_list {
            self.list(list, scope);
        }
    }

    /// A template that is handed the dot itself reads what its own fields say.
    fn template(&mut self, name: &Arc<str>, pipe: Option<&Pipe>, scope: ReadScope) {
        let given = pipe.map_or(Is::Other, |pipe| match pipe.only_expression() {
            Some(expression) => is(expression, scope),
            None => Is::Other,
        });
        if let Some(pipe) = pipe.filter(|_| given == Is::Other) {
            self.pipe(pipe, scope);
        }
        if !self.seen.insert((Arc::clone(name), given)) {
            return;
        }
        if let Some(tree) = (self.find)(name) {
            let scope = ReadScope {
                dot: given,
                dollar: given,
            };
            let outer = std::mem::replace(&mut self.source, &tree.source);
            self.list(&tree.root, scope);
            self.source = outer;
        }
    }

    fn pipe(&mut self, pipe: &Pipe, scope: ReadScope) {
        for command in &*pipe.cmds {
            for argument in &*command.args {
                self.expression(argument, scope);
            }
        }
    }

    fn expression(&mut self, expression: &Expr, scope: ReadScope) {
        if is(expression, scope) == Is::Root {
            self.found.extend(Reads::Everything);
            return;
        }
        match &expression.kind {
            ExprKind::Field(fields) if scope.dot == Is::Root => self.path(*fields),
            ExprKind::Variable { name, end } if &**name == "$" && scope.dollar == Is::Root => {
                self.path(expression.fields_to(*end));
            }
            ExprKind::Chain { base, fields } => match is(base, scope) {
                Is::Root => self.path(*fields),
                Is::Other => self.expression(base, scope),
            },
            ExprKind::Pipe(pipe) => self.pipe(pipe, scope),
            _ => {}
        }
    }

    fn path(&mut self, fields: Fields) {
        let names = fields.names(self.source);
        let path = names.map(str::to_owned).collect();
        self.found.extend(Reads::Paths(BTreeSet::from([path])));
    }
}

/// Whether an expression is the root dot, nothing more and nothing less.
fn is(expression: &Expr, scope: ReadScope) -> Is {
    match &expression.kind {
        ExprKind::Dot => scope.dot,
        ExprKind::Variable { name, end } if &**name == "$" && *end == expression.pos => {
            scope.dollar
        }
        ExprKind::Pipe(pipe) => pipe
            .only_expression()
            .map_or(Is::Other, |one| is(one, scope)),
        _ => Is::Other,
    }
}

impl Pipe {
    /// The expression of a pipeline that is nothing else.
    fn only_expression(&self) -> Option<&Expr> {
        let ([Command { args, .. }], None) = (&*self.cmds, &self.decl) else {
            return None;
        };
        match &**args {
            [one] => Some(one),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Dialect;

    use super::*;

    fn of(text: &str) -> Reads {
        let mut set = Dialect::Fleet.template_set("t");
        set.parse("t", text).unwrap();
        set.reads("t").unwrap()
    }

    fn paths(text: &str) -> String {
        match of(text) {
            Reads::Everything => "everything".to_owned(),
            Reads::Paths(paths) => {
                let paths: Vec<_> = paths.iter().map(|path| path.join(".")).collect();
                paths.join(" ")
            }
        }
    }

    #[test]
    fn fields_of_the_dot_alone_count() {
        assert_eq!(paths("${ .A.b | quote }x${ $.C }"), "A.b C");
        assert_eq!(paths("${ with .A }${ .b }${ $.C.d }${ end }"), "A C.d");
        assert_eq!(
            paths("${ range $i, $x := .A }${ . }${ $x.b }${ else }${ .C }${ end }"),
            "A C"
        );
        assert_eq!(
            paths("${ if .A }${ .B }${ else if eq .C 1 }${ end }"),
            "A B C"
        );
        assert_eq!(
            paths("${ index .A \"x/y\" }${ ($).B.c }${ (dict \"a\" .D).a }"),
            "A B.c D"
        );
        assert!(of("plain ${ now }").is_empty());
    }

    #[test]
    fn a_template_that_uses_the_whole_dot_reads_all_fields() {
        for text in [
            "${ . | toString }",
            "${ $x := . }${ $x.A }",
            "${ range $ }${ end }",
            "${ dict \"a\" $ }",
        ] {
            assert_eq!(of(text), Reads::Everything, "{text}");
        }
    }

    #[test]
    fn called_templates_read_what_they_are_given() {
        let defined = "${ define \"d\" }${ .A }${ template \"d\" . }${ end }";
        assert_eq!(paths(&format!("{defined}${{ template \"d\" . }}")), "A");
        assert_eq!(paths(&format!("{defined}${{ template \"d\" .B }}")), "B");
        assert_eq!(
            paths(&format!(
                "{defined}${{ with .B }}${{ template \"d\" $ }}${{ end }}"
            )),
            "A B"
        );
        assert_eq!(paths(defined), "");
    }
}
