//! Pieces of the re-written pattern, and how they are put together.

/// A piece of the re-written pattern with what Go's limits need to know about it.
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) kind: Kind,
    pub(super) height: usize,
    /// The product of the repeat counts on the worst path down.
    pub(super) repeats: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Binds tighter than any operator: a character, a class, a group.
    Atom,
    /// Needs a group before it can be repeated.
    Sequence,
    /// Needs a group in a sequence too.
    Alternation,
}

impl Piece {
    pub(super) fn atom(text: String) -> Self {
        Self {
            text,
            kind: Kind::Atom,
            height: 1,
            repeats: 1,
        }
    }

    pub(super) fn grouped(&self, loosest: Kind) -> bool {
        match loosest {
            Kind::Atom => self.kind != Kind::Atom,
            _ => self.kind == Kind::Alternation,
        }
    }

    pub(super) fn write(&self, loosest: Kind, out: &mut String) {
        if self.grouped(loosest) {
            out.push_str("(?:");
            out.push_str(&self.text);
            out.push(')');
        } else {
            out.push_str(&self.text);
        }
    }
}

/// Joins pieces of a concatenation or an alternation; a single piece stays itself.
pub(super) fn join(mut pieces: Vec<Piece>, kind: Kind) -> Piece {
    if pieces.len() == 1
        && let Some(only) = pieces.pop()
    {
        return only;
    }
    let mut text = String::with_capacity(pieces.iter().map(|p| p.text.len() + 4).sum());
    let (mut height, mut repeats) = (0, 1);
    for (index, piece) in pieces.iter().enumerate() {
        if kind == Kind::Alternation && index > 0 {
            text.push('|');
        }
        piece.write(
            if kind == Kind::Alternation {
                Kind::Alternation
            } else {
                Kind::Sequence
            },
            &mut text,
        );
        height = height.max(piece.height);
        repeats = repeats.max(piece.repeats);
    }
    if text.is_empty() {
        text.push_str("(?:)");
    }
    Piece {
        text,
        kind,
        height: height + 1,
        repeats,
    }
}
