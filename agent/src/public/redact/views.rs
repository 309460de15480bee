//! A text in all the ways in which it may be read, each ready to be looked into: an escape is taken off the text, once, and put on nothing that is looked for.

use std::borrow::Cow;
use std::collections::HashSet;

use super::canonical;
use super::fragments::Fragment;
use super::limits::{MAX_TEXT_BYTES, SHORTEST};
use super::masks::merged;
use super::parts::{Part, Parts};
use super::readings::Reading;

/// Shortest part found of a secret broken into lines, in bytes without blanks.
const SHORTEST_BROKEN: usize = 16;

/// So much is made into another form at once, in bytes: more than any text has, though it is quoted.
const MOST_OF_FORM: usize = 4 * MAX_TEXT_BYTES;

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
    /// In the form that is the same of what is looked for.
    Canonical,
    /// The text without blanks.
    OneLine,
}

/// The secrets' parts that stand in the text, in each of its views.
#[derive(Default)]
pub(super) struct Found(Vec<HashSet<Part>>);

impl Kind {
    /// Something as it is looked for.
    fn form(self, of: &str) -> Cow<'_, [u8]> {
        match self {
            Self::Plain => Cow::Borrowed(of.as_bytes()),
            Self::Canonical => canonical::form(of),
            Self::OneLine => canonical::joined_form(of),
        }
    }

    /// The secret in this view's form, if it is long enough to be found.
    fn form_to_find(self, of: &str) -> Option<Cow<'_, [u8]>> {
        let shortest = match self {
            Self::Plain => 0,
            Self::Canonical => SHORTEST,
            Self::OneLine => SHORTEST_BROKEN,
        };
        // A beginning of the secret is found as well as all of it.
        let most = of.floor_char_boundary(MOST_OF_FORM);
        let form = match self {
            Self::Plain => self.form(of),
            Self::Canonical | Self::OneLine => self.form(&of[..most]),
        };
        (form.len() >= shortest).then_some(form)
    }
}

impl View {
    fn of(reading: Reading, kind: Kind) -> Self {
        let Reading { bytes, spans } = reading;
        let parts = Parts::of(&bytes);
        let parts = match kind {
            Kind::Plain => parts,
            Kind::Canonical => parts.with_left_out(|sign| canonical::of_text(sign).bytes),
            Kind::OneLine => parts.with_left_out(|sign| kind.form(sign).into_owned()),
        };
        Self { parts, spans, kind }
    }
}

impl Views {
    pub(super) fn of(text: &str) -> Self {
        let canonical = canonical::has_escapes(text).then(|| canonical::of_text(text));
        let lines = canonical::of_lines(text);
        let readings = Reading::plain(text).unquoted().into_iter();
        let plain = readings.map(|one| (one, Kind::Plain));
        let canonical = canonical.map(|one| (one, Kind::Canonical));
        let lines = lines.map(|one| (one, Kind::OneLine));
        let all = plain.chain(canonical).chain(lines);
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
            self.find_verbatim(&fragment.quoted, found);
        }
    }

    /// Finds the parts of `form` that stand in the text as it is.
    fn find_verbatim(&self, form: &str, found: &mut Found) {
        found.0.resize_with(self.all.len(), HashSet::new);
        if let (Some(view), Some(found)) = (self.all.first(), found.0.first_mut()) {
            view.parts.find(form.bytes(), |part| {
                found.insert(part);
            });
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
            if let Some(form) = view.kind.form_to_find(form) {
                let bytes = form.iter().copied();
                view.parts.find(bytes, |part| act(found, part));
            }
        }
    }

    /// Takes those away that stand in any of these as well.
    pub(super) fn forget_those_in(&self, others: &[&[u8]], found: &mut Found) {
        for (view, found) in self.all.iter().zip(&mut found.0) {
            if found.is_empty() {
                continue;
            }
            let pieces = others.iter().flat_map(|other| pieces(other));
            let forms = pieces.map(|piece| {
                let piece = String::from_utf8_lossy(piece);
                view.kind.form(&piece).into_owned().into_iter()
            });
            view.parts.without_those_in(found, forms);
        }
    }

    /// How much of the text's end is the beginning of this.
    pub(super) fn begun_at_end(&self, form: &str) -> usize {
        let begun = self.all.iter().filter_map(|view| {
            let form = view.kind.form(form);
            let begun = view.parts.begun_at_end(form.iter().copied());
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

/// A text bit by bit, where one begins within another, so that what a text has is in one of them.
fn pieces(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let begins = (0..text.len()).step_by(MOST_OF_FORM);
    begins.map(|begin| &text[begin..text.len().min(begin + 2 * MOST_OF_FORM)])
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
