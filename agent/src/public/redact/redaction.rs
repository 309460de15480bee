//! Texts that are redacted before they are published.

use super::masks::Masks;
use super::quotes::quoted;
use super::templates::words_of;
use super::views::{Found, Views};
use super::{MAX_TEXT_BYTES, SensitiveData};

/// Texts to be published. Secrets are searched for one by one, and none of them is kept.
pub(super) struct Redaction {
    /// The texts, with a separator between them.
    text: String,
    /// How long each of them is.
    lengths: Vec<usize>,
    /// Whether more text follows, which is withheld.
    is_cut: bool,
    views: Views,
    found: Found,
    /// How much of the text's end is withheld.
    dropped: usize,
    /// Whether all quotes are withheld.
    is_unquoted: bool,
}

impl Redaction {
    /// As much of a text as may be published.
    pub(super) fn of(whole: &str) -> Self {
        Self::of_joined(whole, vec![whole.len()])
    }

    pub(super) fn of_all(texts: &[String]) -> Self {
        let lengths = texts.iter().map(String::len).collect();
        Self::of_joined(&texts.join("\0"), lengths)
    }

    fn of_joined(whole: &str, lengths: Vec<usize>) -> Self {
        let text = &whole[..whole.floor_char_boundary(MAX_TEXT_BYTES)];
        Self {
            text: text.to_owned(),
            lengths,
            is_cut: text.len() < whole.len(),
            views: Views::of(text),
            found: Found::default(),
            dropped: 0,
            is_unquoted: false,
        }
    }

    /// Leaves out all of these, and the beginning of any where the text is cut.
    pub(super) fn without(mut self, secrets: &SensitiveData) -> Self {
        self.found.extend(secrets.found_in(&self.views));
        self.is_unquoted |= secrets.are_some_unknown;
        if self.is_cut {
            let word = match secrets.unread.is_empty() {
                true => 0,
                false => self.text.len() - self.text.rfind(char::is_whitespace).unwrap_or_default(),
            };
            let begun = secrets.begun_at_end(&self.views);
            self.dropped = self.dropped.max(word).max(begun);
        }
        self
    }

    pub(super) fn finish(self) -> String {
        self.finish_all().pop().unwrap_or_default()
    }

    pub(super) fn finish_all(self) -> Vec<String> {
        let mut places = self.views.places(&self.found);
        places.extend(words_of(&self.text, &places));
        if self.is_unquoted {
            places.extend(self.quoted());
        }
        let (mut masks, mut redacted) = (Masks::at(places), Vec::new());
        let end = self.text.len() - self.dropped;
        let end = self.text.floor_char_boundary(end);
        for (begin, length) in self.each() {
            if begin <= end {
                redacted.push(masks.take(&self.text[begin..end.min(begin + length)]));
            }
        }
        redacted
    }

    /// Where each of the texts begins, and how much there is of it.
    fn each(&self) -> impl Iterator<Item = (usize, usize)> {
        let whole = self.text.len();
        let begins = self.lengths.iter().scan(0, |next, length| {
            let begin = *next;
            *next += length + 1;
            Some((begin, *length))
        });
        begins
            .take_while(move |(begin, _)| *begin <= whole)
            .map(move |(begin, length)| (begin, length.min(whole - begin)))
    }

    /// What each of them quotes.
    fn quoted(&self) -> impl Iterator<Item = (usize, usize)> {
        self.each().filter_map(|(begin, length)| {
            let end = begin + length;
            let is_whole = !self.is_cut || end < self.text.len();
            let (first, last) = quoted(&self.text[begin..end], is_whole)?;
            Some((begin + first, begin + last))
        })
    }
}
