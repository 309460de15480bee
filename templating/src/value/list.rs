//! Go slices. No template function changes a list in place, so the elements are shared and immutable.

use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use super::drop::Children;
use super::size::ELEMENT;
use super::types::{INTS, LIST, ListType, STRINGS};
use super::{Items, List, Str, Value};
use crate::memory::Held;

impl List {
    /// A `[]interface {}`.
    pub fn new(items: Vec<Value>) -> Self {
        Self::typed(&LIST, items)
    }

    /// A `[]string`.
    ///
    /// ```
    /// use templating::{List, Value};
    ///
    /// let hosts = List::strings(["a", "b"]);
    /// assert_eq!(hosts.as_slice().len(), 2);
    /// assert_eq!(Value::List(hosts).type_name(), "[]string");
    /// ```
    pub fn strings<T: Into<Str>>(items: impl IntoIterator<Item = T>) -> Self {
        let items = items
            .into_iter()
            .map(|item| Value::Str(item.into()))
            .collect();
        Self::typed(&STRINGS, items)
    }

    /// A `[]int`.
    pub fn ints(items: impl IntoIterator<Item = i64>) -> Self {
        Self::typed(&INTS, items.into_iter().map(Value::Int).collect())
    }

    /// A list of the given type; the elements must be of its element type.
    ///
    /// ```
    /// use templating::value::STRINGS;
    /// use templating::{List, Value};
    ///
    /// let hosts = List::typed(&STRINGS, vec!["a".into()]);
    /// assert_eq!(Value::List(hosts).type_name(), "[]string");
    /// ```
    pub fn typed(ty: &'static ListType, items: Vec<Value>) -> Self {
        let _held = Held::new(items.len() as u64 * ELEMENT);
        Self {
            ty,
            items: Some(Rc::new(Items { items, _held })),
        }
    }

    /// The nil list of a type: empty, and `null` in JSON.
    ///
    /// ```
    /// use templating::value::STRINGS;
    /// use templating::{List, Value};
    ///
    /// let none = Value::List(List::nil(&STRINGS));
    /// assert!(none.is_nil() && !none.is_untyped_nil());
    /// assert_eq!(none.to_json()?, serde_json::Value::Null);
    /// # Ok::<(), templating::Error>(())
    /// ```
    pub fn nil(ty: &'static ListType) -> Self {
        Self { ty, items: None }
    }

    /// Whether this is the nil list of its type.
    pub fn is_nil(&self) -> bool {
        self.items.is_none()
    }

    /// The Go type.
    pub fn list_type(&self) -> &'static ListType {
        self.ty
    }

    /// These elements under another type with the same element type.
    pub fn with_type(&self, ty: &'static ListType) -> Self {
        Self {
            ty,
            items: self.items.clone(),
        }
    }

    /// Distinguishes these elements from all others alive.
    pub fn address(&self) -> usize {
        self.items
            .as_ref()
            .map_or(0, |items| Rc::as_ptr(items).addr())
    }

    /// The elements.
    pub fn as_slice(&self) -> &[Value] {
        self.items.as_ref().map_or(&[], |items| &items.items)
    }

    pub(super) fn into_children(mut self) -> Vec<Value> {
        self.items
            .take()
            .and_then(Rc::into_inner)
            .map_or(Vec::new(), |mut i| i.take())
    }
}

impl Items {
    fn take(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.items)
    }
}

impl Drop for Items {
    fn drop(&mut self) {
        Children::release(self.take());
    }
}

impl Deref for List {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        self.as_slice()
    }
}

impl FromIterator<Value> for List {
    fn from_iter<I: IntoIterator<Item = Value>>(items: I) -> Self {
        Self::new(items.into_iter().collect())
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}
