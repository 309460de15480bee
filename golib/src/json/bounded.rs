//! Lists of JSON that somebody else wrote, read by serde: a bound on the text does not bound what is made of it, as `{},` may
//! stand for a struct of a hundred bytes.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// Reads a list of at most `MOST` elements; `null` is an empty one. For `#[serde(deserialize_with = "…")]`.
///
/// ```
/// #[derive(serde::Deserialize)]
/// struct Index {
///     #[serde(deserialize_with = "golib::json::at_most::<2, _, _>")]
///     entries: Vec<String>,
/// }
///
/// let index: Index = serde_json::from_str(r#"{"entries": ["a", "b"]}"#)?;
/// assert_eq!(index.entries, ["a", "b"]);
/// let error = serde_json::from_str::<Index>(r#"{"entries": ["a", "b", "c"]}"#).err();
/// assert!(error.is_some_and(|error| error.to_string().starts_with("more than 2 elements")));
/// # Ok::<(), serde_json::Error>(())
/// ```
///
/// # Errors
/// Anything else than a list, and its first element too many.
pub fn at_most<'de, const MOST: usize, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_any(List::<MOST, T>(PhantomData))
}

struct List<const MOST: usize, T>(PhantomData<T>);

impl<'de, const MOST: usize, T: Deserialize<'de>> Visitor<'de> for List<MOST, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a sequence")
    }

    fn visit_unit<E: Error>(self) -> Result<Vec<T>, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut read = Vec::new();
        while let Some(element) = list.next_element()? {
            if read.len() == MOST {
                return Err(A::Error::custom(format_args!("more than {MOST} elements")));
            }
            read.push(element);
        }
        Ok(read)
    }
}
