//! A text in all the ways in which it may be read, each ready to be looked into: an escape is taken off the text, once, and put on nothing that is looked for.

use std::collections::HashSet;

use super::fragments::Fragment;
use super::limits::SHORTEST;
use super::masks::merged;
use super::parts::{Part, Parts};
use super::readings::Reading;

/// What is broken into lines in a text is known again from so many bytes on, without blanks.
const SHORTEST_BROKEN: usize = 16;

/// A text in all ways.
pub(super) struct Views {
    all: Vec<View>,
    fragments: Vec<Fragment>,
    /// How long the text is, in bytes.
    length: usize,
}

struct View {
    parts: Parts,
    /// Where in the text each byte of it stands.
    spans: Vec<(usize, usize)>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    /// A plus sign may be a blank.
    Address,
    /// Without blanks.
    OneLine,
}

/// What stands in the text, in each of its views.
#[derive(Default)]
pub(super) struct Found(Vec<HashSet<Part>>);

impl Kind {
    fn read(self, byte: u8) -> Option<u8> {
        match self {
            Self::Address if byte == b'+' => Some(b' '),
            Self::OneLine if byte.is_ascii_whitespace() => None,
            _ => Some(byte),
        }
    }

    /// Something as it is looked for.
    fn bytes(self, of: &[u8]) -> impl Iterator<Item = u8> {
        of.iter().filter_map(move |byte| self.read(*byte))
    }

    fn is_too_short(self, form: &str) -> bool {
        self == Self::OneLine
            && self
                .bytes(form.as_bytes())
                .nth(SHORTEST_BROKEN - 1)
                .is_none()
    }
}

impl View {
    fn of(reading: Reading, kind: Kind) -> Self {
        let Reading { mut bytes, spans } = reading;
        bytes
            .iter_mut()
            .for_each(|byte| *byte = kind.read(*byte).unwrap_or(*byte));
        Self {
            parts: Parts::of(&bytes),
            spans,
            kind,
        }
    }
}

impl Views {
    pub(super) fn of(text: &str) -> Self {
        let readings = Reading::plain(text).unquoted();
        let (first, last) = (
            readings.first(),
            readings.last().filter(|_| readings.len() > 1),
        );
        let address = last.or(first).and_then(Reading::of_addresses);
        let lines = first.into_iter().chain(last);
        let lines: Vec<_> = lines.filter_map(Reading::of_one_line).collect();
        let plain = readings.into_iter().map(|one| (one, Kind::Plain));
        let address = address.map(|one| (one, Kind::Address));
        let lines = lines.into_iter().map(|one| (one, Kind::OneLine));
        let all = plain.chain(address).chain(lines);
        Self {
            all: all.map(|(reading, kind)| View::of(reading, kind)).collect(),
            fragments: Fragment::all_in(text),
            length: text.len(),
        }
    }

    /// Adds where this is, if it stands in the text.
    pub(super) fn find(&self, form: &str, found: &mut Found) {
        self.each_of(form, found, |found, part| {
            found.insert(part);
        });
    }

    /// Adds where a parser quotes what is wrong with this.
    pub(super) fn find_fragments_of(&self, secret: &str, found: &mut Found) {
        let fragments = self.fragments.iter();
        for fragment in fragments.filter(|fragment| fragment.is_of(secret)) {
            self.find(&fragment.quoted, found);
        }
    }

    /// Takes away where this is.
    pub(super) fn forget(&self, form: &str, found: &mut Found) {
        self.each_of(form, found, |found, part| {
            found.remove(&part);
        });
    }

    fn each_of(&self, form: &str, found: &mut Found, act: impl Fn(&mut HashSet<Part>, Part)) {
        found.0.resize_with(self.all.len(), HashSet::new);
        for (view, found) in self.all.iter().zip(&mut found.0) {
            if !view.kind.is_too_short(form) {
                let bytes = view.kind.bytes(form.as_bytes());
                view.parts.find(bytes, |part| act(found, part));
            }
        }
    }

    /// Takes those away that stand in any of these as well.
    pub(super) fn forget_those_in(&self, others: &[&[u8]], found: &mut Found) {
        for (view, found) in self.all.iter().zip(&mut found.0) {
            let others = others.iter().map(|other| view.kind.bytes(other));
            view.parts.without_those_in(found, others);
        }
    }

    /// How much of the text's end is the beginning of this.
    pub(super) fn begun_at_end(&self, form: &str) -> usize {
        let begun = self.all.iter().filter_map(|view| {
            let begun = view.parts.begun_at_end(view.kind.bytes(form.as_bytes()));
            let at = view.spans.len().checked_sub(begun)?;
            let (begin, _) = view.spans.get(at).filter(|_| begun >= SHORTEST)?;
            Some(self.length - begin)
        });
        begun.max().unwrap_or_default()
    }

    /// Where in the text these stand, from first to last; what overlaps is one place.
    pub(super) fn places(&self, found: &Found) -> Vec<(usize, usize)> {
        let each = self.all.iter().zip(&found.0);
        let places = each.flat_map(|(view, found)| {
            let places = view.parts.places(found).into_iter();
            places.map(|(begin, end)| (view.spans[begin].0, view.spans[end - 1].1))
        });
        merged(places.collect())
    }
}

impl Found {
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(HashSet::is_empty)
    }

    pub(super) fn extend(&mut self, others: Self) {
        self.0
            .resize_with(self.0.len().max(others.0.len()), HashSet::new);
        for (found, others) in self.0.iter_mut().zip(others.0) {
            found.extend(others);
        }
    }
}
