//! Compiled schemas: what each asks, with the schemas it refers to by number.
//!
//! A chart's schema is thousands of them, of which nearly all ask little: what belongs to one kind of value, or to keywords
//! that few use, is kept apart and only where a schema has it.

use std::collections::BTreeMap;
use std::sync::Arc;

use golib::regexp::Regexp;
use serde_json::Value;

use super::draft::Draft;
use super::format::Format;
use super::number::Decimal;
use super::resource::Place;

/// A schema by its position in its set.
pub(super) type Id = usize;

/// One compiled schema; empty parts are not checked.
#[derive(Debug, Default)]
pub(super) struct Schema {
    pub(super) place: Place,
    pub(super) draft: Draft,
    pub(super) resource: Id,
    pub(super) always: Option<bool>,
    pub(super) reference: Option<Id>,
    pub(super) dynamic: Option<Box<Dynamic>>,
    pub(super) types: Box<[&'static str]>,
    pub(super) allowed: Option<Arc<[Value]>>,
    pub(super) constant: Option<Arc<Value>>,
    /// Steps that comparing a value with these takes at most: none for the short texts that they mostly are.
    pub(super) comparing: usize,
    /// Steps that looking for the properties it names takes at most, beside those for their number.
    pub(super) asking: usize,
    pub(super) format: Option<Format>,
    pub(super) combined: Option<Box<Combined>>,
    pub(super) object: Option<Box<ObjectRules>>,
    pub(super) array: Option<Box<ArrayRules>>,
    pub(super) text: Option<Box<TextRules>>,
    pub(super) number: Option<Box<NumberRules>>,
}

/// References that depend on where validation came from.
#[derive(Debug, Default)]
pub(super) struct Dynamic {
    pub(super) anchors: BTreeMap<String, Id>,
    pub(super) anchor: String,
    pub(super) reference: Option<(Id, String)>,
    pub(super) recursive_reference: Option<Id>,
    pub(super) is_recursive_anchor: bool,
}

/// Schemas that the same value is checked against.
#[derive(Debug, Default)]
pub(super) struct Combined {
    pub(super) not: Option<Id>,
    pub(super) all_of: Vec<Id>,
    pub(super) any_of: Vec<Id>,
    pub(super) one_of: Vec<Id>,
    pub(super) condition: Option<Id>,
    pub(super) then: Option<Id>,
    pub(super) otherwise: Option<Id>,
}

#[derive(Debug, Default)]
pub(super) struct ObjectRules {
    pub(super) max_properties: Option<i64>,
    pub(super) min_properties: Option<i64>,
    pub(super) required: Vec<String>,
    pub(super) property_names: Option<Id>,
    pub(super) properties: BTreeMap<String, Id>,
    pub(super) pattern_properties: Vec<(Arc<Regexp>, Id)>,
    pub(super) additional_properties: Option<Additional>,
    pub(super) dependencies: BTreeMap<String, Dependent>,
    pub(super) dependent_required: BTreeMap<String, Vec<String>>,
    pub(super) dependent_schemas: BTreeMap<String, Id>,
    pub(super) unevaluated_properties: Option<Id>,
}

#[derive(Debug, Default)]
pub(super) struct ArrayRules {
    pub(super) min_items: Option<i64>,
    pub(super) max_items: Option<i64>,
    pub(super) unique_items: bool,
    pub(super) contains: Option<Id>,
    pub(super) min_contains: Option<i64>,
    pub(super) max_contains: Option<i64>,
    /// `prefixItems`, or `items` as a list before 2020.
    pub(super) prefix_items: Vec<Id>,
    /// `items` for all that are left.
    pub(super) items: Option<Id>,
    pub(super) additional_items: Option<Additional>,
    pub(super) unevaluated_items: Option<Id>,
}

#[derive(Debug, Default)]
pub(super) struct TextRules {
    pub(super) min_length: Option<i64>,
    pub(super) max_length: Option<i64>,
    pub(super) pattern: Option<(Arc<Regexp>, String)>,
}

#[derive(Debug, Default)]
pub(super) struct NumberRules {
    pub(super) maximum: Option<Decimal>,
    pub(super) minimum: Option<Decimal>,
    pub(super) exclusive_maximum: Option<Decimal>,
    pub(super) exclusive_minimum: Option<Decimal>,
    pub(super) multiple_of: Option<Decimal>,
}

/// `additionalProperties` or `additionalItems`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Additional {
    Allowed(bool),
    Schema(Id),
}

/// An entry of `dependencies`.
#[derive(Debug)]
pub(super) enum Dependent {
    Required(Vec<String>),
    Schema(Id),
}

/// Compiled schemas that refer to each other.
#[derive(Debug, Default)]
pub(super) struct Set {
    pub(super) schemas: Vec<Schema>,
}

/// A schema in its set.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ref<'s> {
    pub(super) set: &'s Set,
    pub(super) id: Id,
}

impl<'s> Ref<'s> {
    pub(super) fn schema(self) -> &'s Schema {
        &self.set.schemas[self.id]
    }

    pub(super) fn sibling(self, id: Id) -> Self {
        Self { set: self.set, id }
    }

    pub(super) fn is(self, other: Self) -> bool {
        std::ptr::eq(self.set, other.set) && self.id == other.id
    }
}

impl ObjectRules {
    /// Steps that the bytes of the names take that each object is asked for.
    pub(super) fn asking(&self, bytes_per_step: usize) -> usize {
        let dependent = self.dependent_required.keys();
        let dependent = dependent.chain(self.dependent_schemas.keys());
        let names = self.required.iter().chain(self.dependencies.keys());
        names.chain(dependent).map(String::len).sum::<usize>() / bytes_per_step
    }
}

impl Schema {
    /// A schema that asks nothing yet.
    pub(super) fn empty(place: Place) -> Self {
        Self {
            place,
            ..Self::default()
        }
    }

    /// The schema's URL with its pointer, as messages and reference cycles show it.
    pub(super) fn location(&self) -> String {
        self.place.shown()
    }

    /// Cost of checking a value, besides the schemas inside, in steps.
    pub(super) fn cost(&self) -> usize {
        let listed = self.allowed.as_ref().map_or(0, |allowed| allowed.len());
        let asked = self.object.as_ref().map_or(0, |rules| {
            let dependent = rules.dependent_required.len() + rules.dependent_schemas.len();
            rules.required.len() + rules.dependencies.len() + dependent
        });
        (listed + asked) / 16 + self.asking
    }

    pub(super) fn is_recursive_anchor(&self) -> bool {
        let dynamic = self.dynamic.as_ref();
        dynamic.is_some_and(|dynamic| dynamic.is_recursive_anchor)
    }

    /// The schema that a dynamic anchor of this resource means.
    pub(super) fn dynamic_anchor(&self, name: &str) -> Option<Id> {
        self.dynamic.as_ref()?.anchors.get(name).copied()
    }
}
