//! A Go slice as its JSON shows it: absent (`null`) and empty (`[]`) are different things.
//!
//! Helm's release records keep that difference, so a record we rewrite must keep it too. Everyone
//! else reads a [`List`] as a plain slice.

use std::ops::{Deref, DerefMut};

use serde::{Serialize, Serializer};

/// A list that remembers whether it was `null` or `[]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List<T>(Option<Vec<T>>);

impl<T> List<T> {
    /// The absent list, written `null`.
    pub const fn absent() -> Self {
        Self(None)
    }

    /// Whether the list is absent rather than empty.
    pub fn is_absent(&self) -> bool {
        self.0.is_none()
    }

    /// Appends an element; an absent list begins to exist.
    pub fn push(&mut self, item: T) {
        self.0.get_or_insert_with(Vec::new).push(item);
    }

    /// Keeps the elements `keep` is true for.
    pub fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        if let Some(items) = &mut self.0 {
            items.retain(keep);
        }
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self::absent()
    }
}

impl<T> From<Vec<T>> for List<T> {
    fn from(items: Vec<T>) -> Self {
        Self(Some(items))
    }
}

impl<T> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self(Some(items.into_iter().collect()))
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl<T> DerefMut for List<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.0.as_deref_mut().unwrap_or_default()
    }
}

impl<'a, T> IntoIterator for &'a List<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: Serialize> Serialize for List<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}
