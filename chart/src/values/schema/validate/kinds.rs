//! What a schema asks of each kind of value: objects, arrays, texts, numbers.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{BYTES_PER_STEP, Check, document, nodes};
use crate::values::schema::compiled::{
    Additional, ArrayRules, Dependent, Id, NumberRules, ObjectRules, Ref, Schema, TextRules,
};
use crate::values::schema::draft::Draft;
use crate::values::schema::failure::Kind;
use crate::values::schema::number::Decimal;

/// Steps for each value that is compared with all others.
const STEPS_PER_UNIQUE: usize = 4;

impl<'s> Check<'_, '_, '_, 's, '_> {
    /// What the schema asks of values of this kind alone.
    pub(super) fn by_kind(&mut self, s: &Schema) {
        match self.value {
            Value::Object(object) => {
                if let Some(rules) = &s.object {
                    self.object(rules, s.draft, object);
                }
            }
            Value::Array(items) => {
                if let Some(rules) = &s.array {
                    self.array(rules, s.draft, items);
                }
            }
            Value::String(text) => {
                if let Some(rules) = &s.text {
                    self.text(rules, text);
                }
            }
            Value::Number(number) => {
                if let Some(rules) = &s.number {
                    self.number(rules, &Decimal::from(number));
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn least(&mut self, keyword: &'static str, got: i64, want: Option<i64>) {
        if let Some(want) = want.filter(|want| got < *want) {
            self.fail(Kind::Size { keyword, got, want });
        }
    }

    fn most(&mut self, keyword: &'static str, got: i64, want: Option<i64>) {
        if let Some(want) = want.filter(|want| got > *want) {
            self.fail(Kind::Size { keyword, got, want });
        }
    }

    fn object(&mut self, s: &ObjectRules, draft: Draft, object: &Map<String, Value>) {
        let length = length(object.len());
        self.least("minProperties", length, s.min_properties);
        self.most("maxProperties", length, s.max_properties);
        let missing = missing(object, &s.required);
        if !missing.is_empty() {
            self.fail(Kind::Required(missing));
        }
        if self.quick && !self.failures.is_empty() {
            return;
        }
        for (property, dependent) in &s.dependencies {
            if object.contains_key(property) {
                match dependent {
                    Dependent::Required(names) => self.dependent(object, property, names),
                    Dependent::Schema(id) => self.apply(*id, false),
                }
            }
        }
        if !self.properties(s, object) || draft == Draft::Draft4 {
            return;
        }
        if let Some(id) = s.property_names {
            for name in object.keys() {
                self.property_name(self.schema.sibling(id), name);
            }
        }
        if draft == Draft::Draft6 {
            return;
        }
        for (property, id) in &s.dependent_schemas {
            if object.contains_key(property) {
                self.apply(*id, false);
            }
        }
        for (property, names) in &s.dependent_required {
            if object.contains_key(property) {
                self.dependent(object, property, names);
            }
        }
    }

    /// False if the rest is of no interest.
    fn properties(&mut self, s: &ObjectRules, object: &Map<String, Value>) -> bool {
        let mut additional = Vec::new();
        for (name, value) in object {
            if self.quick && !self.failures.is_empty() {
                return false;
            }
            let mut evaluated = false;
            if let Some(id) = s.properties.get(name) {
                evaluated = true;
                self.apply_to(*id, value, name.clone());
            }
            let looked_up = name.len() / BYTES_PER_STEP;
            if !self.work.step(1 + looked_up + s.pattern_properties.len()) {
                return false;
            }
            for (pattern, id) in &s.pattern_properties {
                let Ok(is_match) = pattern.is_match(name.as_bytes(), self.work) else {
                    return false;
                };
                if is_match {
                    evaluated = true;
                    self.apply_to(*id, value, name.clone());
                }
            }
            if !evaluated && let Some(rest) = s.additional_properties {
                evaluated = true;
                match rest {
                    Additional::Allowed(true) => {}
                    Additional::Allowed(false) => additional.push(name.clone()),
                    Additional::Schema(id) => self.apply_to(id, value, name.clone()),
                }
            }
            if evaluated {
                self.left.properties.remove(name.as_str());
            }
        }
        if !additional.is_empty() {
            self.fail(Kind::AdditionalProperties(additional));
        }
        true
    }

    fn dependent(&mut self, object: &Map<String, Value>, property: &str, names: &[String]) {
        let bytes: usize = names.iter().map(String::len).sum();
        if !self
            .work
            .step(1 + names.len() / 16 + bytes / BYTES_PER_STEP)
        {
            return;
        }
        let missing = missing(object, names);
        if !missing.is_empty() {
            self.fail(Kind::Dependency {
                property: property.to_owned(),
                missing,
            });
        }
    }

    fn property_name(&mut self, schema: Ref<'s>, name: &str) {
        let (schema, meta) = self.in_its_draft(schema);
        let value = Value::String(name.to_owned());
        if let Err(failure) = document(&value, schema, meta, self.work, self.depth + 1) {
            self.fail_because(Kind::PropertyNames(name.to_owned()), failure.causes);
        }
    }

    fn array(&mut self, s: &ArrayRules, draft: Draft, items: &[Value]) {
        let length = length(items.len());
        self.least("minItems", length, s.min_items);
        self.most("maxItems", length, s.max_items);
        if s.unique_items
            && self
                .work
                .step(STEPS_PER_UNIQUE * items.iter().map(nodes).sum::<usize>())
            && let Some(at) = duplicates(items)
        {
            self.fail(Kind::UniqueItems(at));
        }
        let fixed = s.prefix_items.len().min(items.len());
        for (index, (id, item)) in s.prefix_items.iter().zip(items).enumerate() {
            self.apply_to(*id, item, index.to_string());
        }
        let rest = || items.iter().enumerate().skip(fixed);
        if let Some(id) = s.items {
            for (index, item) in rest() {
                self.apply_to(id, item, index.to_string());
            }
        }
        match s.additional_items {
            Some(Additional::Allowed(false)) if fixed < items.len() => {
                self.fail(Kind::AdditionalItems(items.len() - fixed));
            }
            Some(Additional::Schema(id)) => {
                for (index, item) in rest() {
                    self.apply_to(id, item, index.to_string());
                }
            }
            _ => {}
        }
        if let Some(id) = s.contains {
            self.contains(s, draft, id, items);
        }
    }

    fn contains(&mut self, s: &ArrayRules, draft: Draft, id: Id, items: &[Value]) {
        let (mut failures, mut matched) = (Vec::new(), Vec::new());
        for (index, item) in items.iter().enumerate() {
            match self.value_against(id, item, index.to_string()) {
                Err(failure) => failures.push(failure),
                Ok(()) => {
                    matched.push(index);
                    if draft >= Draft::Draft2020 {
                        self.left.items.remove(&index);
                    }
                }
            }
        }
        let count = length(matched.len());
        match s.min_contains {
            Some(want) if count < want => {
                let kind = Kind::MinContains {
                    got: matched.clone(),
                    want,
                };
                self.fail_because(kind, failures);
            }
            None if matched.is_empty() => self.fail_because(Kind::Contains, failures),
            _ => self.work.forget(&failures),
        }
        if let Some(want) = s.max_contains.filter(|want| count > *want) {
            self.fail(Kind::MaxContains { got: matched, want });
        }
    }

    fn text(&mut self, s: &TextRules, text: &str) {
        if !self.work.step(text.len() / BYTES_PER_STEP + 1) {
            return;
        }
        if s.min_length.is_some() || s.max_length.is_some() {
            let length = length(text.chars().count());
            self.least("minLength", length, s.min_length);
            self.most("maxLength", length, s.max_length);
        }
        if let Some((pattern, written)) = &s.pattern
            && pattern.is_match(text.as_bytes(), self.work) == Ok(false)
        {
            self.fail(Kind::Pattern {
                got: text.to_owned(),
                want: written.clone(),
            });
        }
    }

    fn number(&mut self, s: &NumberRules, got: &Decimal) {
        let effort = s.multiple_of.as_ref().map_or(0, |want| got.effort(want));
        if !self.work.step(1 + effort) {
            return;
        }
        let mut bound = |keyword, want: &Option<Decimal>, fails: &dyn Fn(&Decimal) -> bool| {
            if let Some(want) = want.as_ref().filter(|want| fails(want)) {
                self.fail(Kind::Bound {
                    keyword,
                    got: got.clone(),
                    want: want.clone(),
                });
            }
        };
        bound("minimum", &s.minimum, &|want| got < want);
        bound("maximum", &s.maximum, &|want| got > want);
        bound("exclusiveMinimum", &s.exclusive_minimum, &|want| {
            got <= want
        });
        bound("exclusiveMaximum", &s.exclusive_maximum, &|want| {
            got >= want
        });
        bound("multipleOf", &s.multiple_of, &|want| {
            !got.is_multiple_of(want)
        });
    }
}

fn length(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

fn missing(object: &Map<String, Value>, names: &[String]) -> Vec<String> {
    names
        .iter()
        .filter(|name| !object.contains_key(*name))
        .cloned()
        .collect()
}

/// The first pair of equal items.
fn duplicates(items: &[Value]) -> Option<[usize; 2]> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (second, item) in items.iter().enumerate() {
        // Go's JSON has one text for equal values, but for the two zeros.
        let mut item = golib::json::floats(item.clone());
        one_zero(&mut item);
        let text = golib::json::encode(&item);
        if let Some(first) = seen.get(&text) {
            return Some([*first, second]);
        }
        seen.insert(text, second);
    }
    None
}

fn one_zero(value: &mut Value) {
    match value {
        Value::Number(number) if number.as_f64() == Some(0.0) => *number = 0.into(),
        Value::Array(items) => items.iter_mut().for_each(one_zero),
        Value::Object(entries) => entries.values_mut().for_each(one_zero),
        _ => {}
    }
}
