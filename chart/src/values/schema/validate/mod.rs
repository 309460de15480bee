//! Checking a value against a compiled schema.
//!
//! Mirrors `validator.go` of santhosh-tekuri/jsonschema: what is checked in which order decides what
//! is reported.

mod kinds;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::compile::metaschema;
use super::compiled::{Combined, Dynamic, Id, Ref, Schema};
use super::draft::Draft;
use super::failure::{Failure, Kind, escape};
use super::number::Decimal;
use super::resource::Resource;
use super::work::Work;

/// Schemas in schemas or values in values beyond which nothing is checked.
const MAX_DEPTH: usize = 400;
/// Bytes of text that are looked at in about the time a schema takes.
pub(super) const BYTES_PER_STEP: usize = 256;

/// Bytes of a text whose format is looked at in that time.
const FORMAT_BYTES_PER_STEP: usize = 32;

/// Bytes that a property or item takes that no keyword has looked at yet.
const UNEVALUATED_BYTES: usize = 40;

/// While schemas are checked themselves: their own schema, and where other drafts begin.
type Meta<'s> = Option<(Ref<'s>, &'s BTreeMap<String, Resource>)>;

/// Checks a whole document.
pub(super) fn validate<'s>(
    value: &Value,
    schema: Ref<'s>,
    meta: Meta<'s>,
    work: &mut Work<'_>,
) -> Result<(), Failure> {
    let room = work.room();
    let checked = document(value, schema, meta, work, 0);
    if work.is_over() {
        // Nothing else is said of it.
        work.give_back_to(room);
        let failure = Failure {
            kind: Kind::TooComplex,
            ..Failure::default()
        };
        work.hold(&failure, 0);
        return Err(failure);
    }
    if checked.is_ok() {
        work.give_back_to(room);
    }
    checked
}

fn document<'s>(
    value: &Value,
    schema: Ref<'s>,
    meta: Meta<'s>,
    work: &mut Work<'_>,
    depth: usize,
) -> Result<(), Failure> {
    let scope = SchemaScope {
        schema,
        keyword: "",
        value_id: 0,
        parent: None,
    };
    let left = Unevaluated::of(value, schema.schema(), false, work);
    let held = left.bytes();
    let mut check = Check {
        value,
        path: &mut Vec::new(),
        schema,
        scope: &scope,
        left,
        failures: Vec::new(),
        quick: false,
        meta,
        work,
        depth,
    };
    let checked = check.run();
    work.release(held);
    let Err(failure) = checked else {
        return Ok(());
    };
    Err(Failure {
        location: Vec::new(),
        kind: Kind::Schema(schema.schema().location()),
        causes: failure.into_causes(),
    })
}

/// The schemas that led here, innermost first.
struct SchemaScope<'p, 's> {
    schema: Ref<'s>,
    /// The keyword that jumped here; empty where the schema lies inside its parent.
    keyword: &'static str,
    /// Equal for scopes that look at the same value.
    value_id: usize,
    parent: Option<&'p SchemaScope<'p, 's>>,
}

impl<'s> SchemaScope<'_, 's> {
    fn chain(&self) -> impl Iterator<Item = &SchemaScope<'_, 's>> {
        std::iter::successors(Some(self), |scope| scope.parent)
    }

    /// An outer scope that applies the same schema to the same value.
    fn cycle(&self) -> Option<&SchemaScope<'_, 's>> {
        self.chain()
            .skip(1)
            .take_while(|scope| scope.value_id == self.value_id)
            .find(|scope| scope.schema.is(self.schema))
    }

    fn keyword_location(&self) -> String {
        let mut steps = Vec::new();
        for scope in self.chain() {
            let Some(parent) = scope.parent else { break };
            steps.push(if scope.keyword.is_empty() {
                let outer = parent.schema.schema().location();
                let inner = scope.schema.schema().location();
                inner.get(outer.len()..).unwrap_or_default().to_owned()
            } else {
                format!("/{}", escape(scope.keyword))
            });
        }
        steps.reverse();
        steps.concat()
    }
}

/// Properties and items no keyword has looked at yet.
#[derive(Debug, Default)]
struct Unevaluated<'v> {
    properties: BTreeSet<&'v str>,
    items: BTreeSet<usize>,
}

impl<'v> Unevaluated<'v> {
    /// All of a value that a schema is asked for. Every schema that leads to another keeps its own, for which room is made: it is to
    /// be released.
    fn of(value: &'v Value, schema: &Schema, asked_for: bool, work: &mut Work<'_>) -> Self {
        let mut left = Self::default();
        match value {
            Value::Object(object) => {
                let rules = schema.object.as_deref();
                let asked_for =
                    asked_for || rules.is_some_and(|rules| rules.unevaluated_properties.is_some());
                let all_evaluated =
                    rules.is_some_and(|rules| rules.additional_properties.is_some());
                let is_kept = asked_for && !all_evaluated;
                if is_kept && work.hold_bytes(UNEVALUATED_BYTES * object.len()) {
                    left.properties = object.keys().map(String::as_str).collect();
                }
            }
            Value::Array(items) => {
                let rules = schema.array.as_deref();
                let asked_for =
                    asked_for || rules.is_some_and(|rules| rules.unevaluated_items.is_some());
                let all_evaluated = rules
                    .is_some_and(|rules| rules.items.is_some() || rules.additional_items.is_some());
                let evaluated = rules.map_or(0, |rules| rules.prefix_items.len());
                let rest = evaluated..items.len();
                let is_kept = asked_for && !all_evaluated;
                if is_kept && work.hold_bytes(UNEVALUATED_BYTES * rest.len()) {
                    left.items = rest.collect();
                }
            }
            _ => {}
        }
        left
    }

    fn merge(&mut self, other: &Self) {
        self.properties
            .retain(|name| other.properties.contains(name));
        self.items.retain(|index| other.items.contains(index));
    }

    fn is_empty(&self) -> bool {
        self.properties.is_empty() && self.items.is_empty()
    }

    fn len(&self) -> usize {
        self.properties.len() + self.items.len()
    }

    /// What it takes of the room while it is kept.
    fn bytes(&self) -> usize {
        UNEVALUATED_BYTES * self.len()
    }

    /// Steps of finding each in the others.
    fn cost(&self) -> usize {
        let names = self.properties.iter().map(|name| name.len());
        4 * self.len() + names.sum::<usize>() / BYTES_PER_STEP
    }
}

struct Check<'c, 'v, 'p, 's, 'w> {
    value: &'v Value,
    path: &'c mut Vec<String>,
    schema: Ref<'s>,
    scope: &'p SchemaScope<'p, 's>,
    left: Unevaluated<'v>,
    failures: Vec<Failure>,
    /// Only whether it fails is of interest.
    quick: bool,
    meta: Meta<'s>,
    work: &'c mut Work<'w>,
    depth: usize,
}

impl<'v, 's, 'w> Check<'_, 'v, '_, 's, 'w> {
    fn run(&mut self) -> Result<Unevaluated<'v>, Failure> {
        let s = self.schema.schema();
        if self.depth > MAX_DEPTH {
            self.work.end_too_deep();
        }
        let cost = 1 + self.left.cost() + s.cost();
        if !self.work.step(cost) {
            return Err(Failure::default());
        }
        match s.always {
            Some(true) => return Ok(std::mem::take(&mut self.left)),
            Some(false) => return Err(self.failure(Kind::FalseSchema)),
            None => {}
        }
        if let Some(outer) = self.scope.cycle() {
            return Err(self.failure(Kind::RefCycle {
                url: s.location(),
                first: self.scope.keyword_location(),
                second: outer.keyword_location(),
            }));
        }
        self.whole_value(s)?;
        if let Some(target) = s.reference {
            let referred = self.reference(target, "$ref");
            if s.draft < Draft::Draft2019 {
                return referred.map(|()| std::mem::take(&mut self.left));
            }
            self.note(referred);
        }
        self.by_kind(s);
        if self.failures.is_empty() || !self.quick {
            if let Some(dynamic) = &s.dynamic {
                self.dynamic_references(dynamic);
            }
            if let Some(combined) = &s.combined {
                self.combinations(combined);
            }
            if s.draft >= Draft::Draft2019 {
                self.unevaluated(s);
            }
        }
        let mut failures = std::mem::take(&mut self.failures);
        match failures.len() {
            0 => Ok(std::mem::take(&mut self.left)),
            1 => Err(failures.remove(0)),
            _ => Err(Failure {
                causes: failures,
                ..self.failure(Kind::Group)
            }),
        }
    }

    /// Type, const, enum and format: the first that fails is all that is reported.
    fn whole_value(&mut self, s: &Schema) -> Result<(), Failure> {
        if !s.types.is_empty() {
            let got = type_of(self.value);
            let is_integer = || match self.value {
                Value::Number(number) => Decimal::from(number).is_integer(),
                _ => false,
            };
            let matches = s.types.contains(&got) || (s.types.contains(&"integer") && is_integer());
            if !matches {
                return Err(self.failure(Kind::Type {
                    got,
                    want: s.types.to_vec(),
                }));
            }
        }
        let read = match (s.format, self.value) {
            (Some(_), Value::String(text)) => text.len() / FORMAT_BYTES_PER_STEP,
            _ => 0,
        };
        if !self.work.step(s.comparing + read) {
            return Err(Failure::default());
        }
        if let Some(want) = &s.constant
            && !equal(self.value, want)
        {
            return Err(self.failure(Kind::Const(want.clone())));
        }
        if let Some(allowed) = &s.allowed
            && !allowed.iter().any(|item| equal(self.value, item))
        {
            return Err(self.failure(Kind::Enum(allowed.clone())));
        }
        if let Some(format) = s.format
            && let Err(why) = format.check(self.value)
        {
            let (got, want) = (self.value.clone(), format.name());
            return Err(self.failure(Kind::Format { got, want, why }));
        }
        Ok(())
    }

    fn combinations(&mut self, s: &Combined) {
        if let Some(id) = s.not
            && self.same_value(id, true).is_ok()
        {
            self.fail(Kind::Not);
        }
        let mut failures = Vec::new();
        for id in &s.all_of {
            if let Err(failure) = self.same_value(*id, false) {
                failures.push(failure);
                if self.quick {
                    break;
                }
            }
        }
        if !failures.is_empty() {
            self.fail_because(Kind::AllOf, failures);
        }
        self.any_of(s);
        self.one_of(s);
        if let Some(id) = s.condition {
            let branch = match self.same_value(id, true) {
                Ok(()) => s.then,
                Err(_) => s.otherwise,
            };
            if let Some(id) = branch {
                self.apply(id, false);
            }
        }
    }

    fn any_of(&mut self, s: &Combined) {
        let mut failures = Vec::new();
        let mut matched = s.any_of.is_empty();
        for id in &s.any_of {
            match self.same_value(*id, false) {
                Err(failure) => failures.push(failure),
                Ok(()) => {
                    matched = true;
                    // The values left to evaluate depend on every schema that matches.
                    if self.left.is_empty() {
                        break;
                    }
                }
            }
        }
        match matched {
            true => self.work.forget(&failures),
            false => self.fail_because(Kind::AnyOf, failures),
        }
    }

    fn one_of(&mut self, s: &Combined) {
        let mut failures = Vec::new();
        let mut matched = None;
        for (index, id) in s.one_of.iter().enumerate() {
            match (self.same_value(*id, matched.is_some()), matched) {
                (Err(failure), None) => failures.push(failure),
                (Err(_), Some(_)) => {}
                (Ok(()), None) => {
                    self.work.forget(&failures);
                    failures.clear();
                    matched = Some(index);
                }
                (Ok(()), Some(first)) => {
                    self.fail(Kind::OneOf(Some([first, index])));
                    break;
                }
            }
        }
        if matched.is_none() && !s.one_of.is_empty() {
            self.fail_because(Kind::OneOf(None), failures);
        }
    }

    fn unevaluated(&mut self, s: &Schema) {
        match self.value {
            Value::Object(object) => {
                if let Some(id) = s.object.as_ref().and_then(|o| o.unevaluated_properties) {
                    for name in std::mem::take(&mut self.left.properties) {
                        if let Some(value) = object.get(name) {
                            self.apply_to(id, value, name.to_owned());
                        }
                    }
                }
            }
            Value::Array(items) => {
                if let Some(id) = s.array.as_ref().and_then(|a| a.unevaluated_items) {
                    for index in std::mem::take(&mut self.left.items) {
                        if let Some(item) = items.get(index) {
                            self.apply_to(id, item, index.to_string());
                        }
                    }
                }
            }
            _ => {}
        }
    }

    fn dynamic_references(&mut self, dynamic: &Dynamic) {
        if let Some(id) = dynamic.recursive_reference {
            let mut target = self.schema.sibling(id);
            if target.schema().is_recursive_anchor() {
                for scope in self.scope.chain() {
                    let owner = scope.schema.sibling(scope.schema.schema().resource);
                    if owner.schema().is_recursive_anchor() {
                        target = scope.schema;
                    }
                }
            }
            let referred = self.reference_to(target, "$recursiveRef");
            self.note(referred);
        }
        if let Some((id, anchor)) = &dynamic.reference {
            let mut target = self.schema.sibling(*id);
            let named = target.schema().dynamic.as_deref();
            if !anchor.is_empty() && named.is_some_and(|dynamic| dynamic.anchor == *anchor) {
                for scope in self.scope.chain() {
                    let owner = scope.schema.sibling(scope.schema.schema().resource);
                    if let Some(id) = owner.schema().dynamic_anchor(anchor) {
                        target = owner.sibling(id);
                    }
                }
            }
            let referred = self.reference_to(target, "$dynamicRef");
            self.note(referred);
        }
    }

    fn reference(&mut self, id: Id, keyword: &'static str) -> Result<(), Failure> {
        self.reference_to(self.schema.sibling(id), keyword)
    }

    fn reference_to(&mut self, schema: Ref<'s>, keyword: &'static str) -> Result<(), Failure> {
        self.same_value_against(schema, keyword, false)
            .map_err(|failure| Failure {
                causes: failure.into_causes(),
                ..self.failure(Kind::Reference)
            })
    }

    fn apply(&mut self, id: Id, quick: bool) {
        let applied = self.same_value(id, quick);
        self.note(applied);
    }

    fn apply_to(&mut self, id: Id, value: &Value, key: String) {
        let applied = self.value_against(id, value, key);
        self.note(applied);
    }

    fn same_value(&mut self, id: Id, quick: bool) -> Result<(), Failure> {
        self.same_value_against(self.schema.sibling(id), "", quick)
    }

    fn same_value_against(
        &mut self,
        schema: Ref<'s>,
        keyword: &'static str,
        quick: bool,
    ) -> Result<(), Failure> {
        if self.work.is_over() {
            return Err(Failure::default());
        }
        let value_id = self.scope.value_id;
        let scope = SchemaScope {
            schema,
            keyword,
            value_id,
            parent: Some(self.scope),
        };
        let is_asked_for = !self.left.is_empty();
        let left = Unevaluated::of(self.value, schema.schema(), is_asked_for, self.work);
        let held = left.bytes();
        let quick = self.quick || quick;
        let checked = self.below(self.value, &scope, left, quick).run();
        self.work.release(held);
        self.left.merge(&checked?);
        Ok(())
    }

    fn value_against(&mut self, id: Id, value: &Value, key: String) -> Result<(), Failure> {
        if self.work.is_over() {
            return Err(Failure::default());
        }
        let schema = self.schema.sibling(id);
        let value_id = self.scope.value_id + 1;
        let scope = SchemaScope {
            schema,
            keyword: "",
            value_id,
            parent: Some(self.scope),
        };
        let left = Unevaluated::of(value, schema.schema(), false, self.work);
        let held = left.bytes();
        self.path.push(key);
        let checked = self.below(value, &scope, left, self.quick).run();
        self.path.pop();
        self.work.release(held);
        checked.map(|_| ())
    }

    /// The check of a value, which may be this one's, by the schema of `scope`.
    fn below<'b, 'u>(
        &'b mut self,
        value: &'u Value,
        scope: &'b SchemaScope<'b, 's>,
        left: Unevaluated<'u>,
        quick: bool,
    ) -> Check<'b, 'u, 'b, 's, 'w> {
        let (schema, meta) = self.in_its_draft(scope.schema);
        Check {
            value,
            path: self.path,
            schema,
            scope,
            left,
            failures: Vec::new(),
            quick,
            meta,
            work: self.work,
            depth: self.depth + 1,
        }
    }

    /// A schema inside a schema may follow another draft; then it is checked by that draft's schema.
    fn in_its_draft(&self, schema: Ref<'s>) -> (Ref<'s>, Meta<'s>) {
        let Some((meta, resources)) = self.meta else {
            return (schema, None);
        };
        if !schema.is(meta) {
            return (schema, self.meta);
        }
        let pointer: String = self
            .path
            .iter()
            .map(|key| format!("/{}", escape(key)))
            .collect();
        match resources.get(&pointer) {
            Some(resource) => {
                let meta = metaschema(resource.draft);
                (meta, Some((meta, resources)))
            }
            None => (schema, self.meta),
        }
    }

    fn failure(&mut self, kind: Kind) -> Failure {
        if self.quick || self.work.is_over() {
            return Failure::default();
        }
        let failure = Failure {
            location: self.path.clone(),
            kind,
            causes: Vec::new(),
        };
        self.work.hold(&failure, self.depth);
        failure
    }

    fn fail(&mut self, kind: Kind) {
        self.fail_because(kind, Vec::new());
    }

    fn fail_because(&mut self, kind: Kind, causes: Vec<Failure>) {
        let failure = Failure {
            causes,
            ..self.failure(kind)
        };
        self.note(Err(failure));
    }

    fn note(&mut self, outcome: Result<(), Failure>) {
        // One failure is as good as many where they are not reported.
        let is_enough = (self.quick || self.work.is_over()) && !self.failures.is_empty();
        if !is_enough {
            self.failures.extend(outcome.err());
        }
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "boolean",
        value => golib::json::type_name(value),
    }
}

/// Numbers are equal when their values are.
fn equal(a: &Value, b: &Value) -> bool {
    golib::json::equal(a, b, |a, b| a == b || Decimal::from(a) == Decimal::from(b))
}

/// How many values there are in a value, itself included. Long texts and keys count as several.
pub(super) fn nodes(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(nodes).sum::<usize>(),
        Value::Object(object) => {
            let entries = object.iter();
            let entries = entries.map(|(key, value)| key.len() / BYTES_PER_STEP + nodes(value));
            1 + entries.sum::<usize>()
        }
        Value::String(text) => 1 + text.len() / BYTES_PER_STEP,
        _ => 1,
    }
}
