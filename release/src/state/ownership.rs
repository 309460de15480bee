//! Decides what may be done to an object, from what is found under its name: one table, by which everything that
//! writes or deletes decides.
//!
//! An object is a release's only by proof: it carries the release's marks. On an object that was there before the
//! release wrote it an [`Adoption`] is noted: it stays where deleting it would delete more than the release
//! brought.

use std::fmt;

/// Why an object that was there before its release is noted as such, and what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Adoption {
    /// The object was nobody's, and nobody said that the release may have it: whoever removes the release leaves it.
    Kept,
    /// The object was nobody's, and a deploy with `takeOwnership` succeeded over it: removing the release removes it, nothing else does.
    Owned,
    /// The object had a release's marks, this one's or, with `takeOwnership`, another's: it is this release's
    /// from then on, but an attempt that fails never deletes it.
    HandedOver,
    /// The object is a namespace that a release left to others in it, taking its marks off: it belongs to whichever chart has it next.
    Left,
}

impl Adoption {
    /// The word in the object's annotation.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Owned => "owned",
            Self::HandedOver => "handed-over",
            Self::Left => "left",
        }
    }

    /// Reads the annotation. A word that nobody wrote means what is kept most.
    pub fn read(word: &str) -> Self {
        match word {
            "owned" => Self::Owned,
            "handed-over" => Self::HandedOver,
            "left" => Self::Left,
            _ => Self::Kept,
        }
    }

    /// What an object that is adopted now was noted as before, if it was: what was nobody's once is never
    /// a release's whole property.
    #[must_use]
    pub fn after(self, before: Option<Self>) -> Self {
        match (before, self) {
            (Some(known @ (Self::Kept | Self::Owned)), Self::HandedOver) => known,
            (Some(Self::Owned), Self::Kept) => Self::Owned,
            _ => self,
        }
    }
}

/// State of the object under a name, as a release sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjectState {
    /// No object.
    Absent,
    /// The object carries the release's marks, and a stored revision has it.
    Ours,
    /// The object carries the release's marks, and no stored revision has it.
    Marked,
    /// The object carries the release's marks and asks to be kept.
    KeepPolicy,
    /// The object carries the release's marks, and was adopted: see [`Adoption::Kept`].
    AdoptedKept,
    /// See [`Adoption::Owned`].
    AdoptedOwned,
    /// See [`Adoption::HandedOver`].
    HandedOver,
    /// Our field manager wrote it, and it has lost the marks; no stored revision has it, or it is to be deleted.
    Stripped,
    /// The object carries no release's marks.
    Unmarked,
    /// A release of ours had it, left it and took its marks off: see [`Adoption::Left`]. It says so until it has marks again, as it is whose chart has
    /// it next.
    Left,
    /// The object carries another release's marks.
    Foreign,
    /// The object is being deleted.
    Leaving,
}

/// The operation that reaches an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The object is written by a release that was never deployed.
    Install,
    /// The object is written by a later revision, and the last good one had not got it.
    Upgrade,
    /// An install or upgrade with `takeOwnership`.
    TakeOwnership,
    /// A correction of drift.
    Correct,
    /// A rollback to an earlier revision, as an attempt failed.
    Restore,
    /// The object is replaced by a new one (`force`), since a field of it cannot change.
    Recreate,
    /// An attempt that failed is undone, or left behind by the next one.
    Undo,
    /// The object was in the last good revision, and is not in the one deployed now.
    Drop,
    /// The release is removed; a release of a former name is removed alike.
    Remove,
}

impl Operation {
    /// All operations, in the order of the table's columns.
    #[rustfmt::skip]
    pub const ALL: [Self; 9] = [
        Self::Install, Self::Upgrade, Self::TakeOwnership, Self::Correct, Self::Restore, Self::Recreate, Self::Undo,
        Self::Drop, Self::Remove,
    ];

    /// Whether the operation ends with the object gone.
    pub fn deletes(self) -> bool {
        matches!(
            self,
            Self::Recreate | Self::Undo | Self::Drop | Self::Remove
        )
    }
}

/// The verdict about an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The object is created, and only if nothing is there.
    Create,
    /// The object is written.
    Write,
    /// The object is noted as adopted, then written.
    Adopt(Adoption),
    /// The object is not touched, which is an error.
    Refuse,
    /// The object is deleted.
    Delete,
    /// The object is not touched, which is reported.
    Leave,
    /// The object is waited for until it is gone, and created.
    Wait,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create => f.write_str("create"),
            Self::Write => f.write_str("write"),
            Self::Adopt(adoption) => write!(f, "adopt:{}", adoption.as_str()),
            Self::Refuse => f.write_str("refuse"),
            Self::Delete => f.write_str("delete"),
            Self::Leave => f.write_str("leave"),
            Self::Wait => f.write_str("wait"),
        }
    }
}

/// The table: a row for each [`ObjectState`], a column for each [`Operation`].
#[rustfmt::skip]
const TABLE: [[Verdict; 9]; 12] = {
    use Verdict::{Create, Delete, Leave, Refuse, Wait, Write};
    const KEPT: Verdict = Verdict::Adopt(Adoption::Kept);
    const HANDED: Verdict = Verdict::Adopt(Adoption::HandedOver);
    [
        // Install, Upgrade, TakeOwnership, Correct, Restore, Recreate, Undo, Drop, Remove
        [Create, Create, Create, Create, Create, Create, Leave, Leave, Leave],
        [Write, Write, Write, Write, Write, Delete, Delete, Delete, Delete],
        [HANDED, HANDED, HANDED, Write, Write, Delete, Leave, Delete, Delete],
        [Write, Write, Write, Write, Write, Refuse, Leave, Leave, Leave],
        [Write, Write, Write, Write, Write, Refuse, Leave, Leave, Leave],
        [Write, Write, Write, Write, Write, Delete, Leave, Leave, Delete],
        [Write, Write, Write, Write, Write, Delete, Leave, Delete, Delete],
        [Refuse, KEPT, KEPT, Write, Write, Refuse, Leave, Leave, Leave],
        [Refuse, KEPT, KEPT, KEPT, KEPT, Refuse, Leave, Leave, Leave],
        [Write, Write, Write, Write, Write, Refuse, Leave, Leave, Leave],
        [Refuse, Refuse, HANDED, Refuse, Leave, Refuse, Leave, Leave, Leave],
        [Wait, Wait, Wait, Wait, Wait, Wait, Leave, Leave, Leave],
    ]
};

/// What an operation does to what is found.
pub fn judge(operation: Operation, state: ObjectState) -> Verdict {
    TABLE[state as usize][operation as usize]
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    /// The table as people read it.
    const GOLDEN: &str = include_str!("ownership.txt");

    impl ObjectState {
        /// All states, in the order of the table's rows.
        #[rustfmt::skip]
        const ALL: [Self; 12] = [
            Self::Absent, Self::Ours, Self::Marked, Self::KeepPolicy, Self::AdoptedKept, Self::AdoptedOwned,
            Self::HandedOver, Self::Stripped, Self::Unmarked, Self::Left, Self::Foreign, Self::Leaving,
        ];

        /// Whether an object in this state carries the release's marks.
        fn is_proven(self) -> bool {
            matches!(
                self,
                Self::Ours
                    | Self::Marked
                    | Self::KeepPolicy
                    | Self::AdoptedKept
                    | Self::AdoptedOwned
                    | Self::HandedOver
            )
        }
    }

    fn table() -> String {
        let row = |name: String, cells: [String; 9]| {
            let mut row = format!("{name:<13}");
            for cell in cells {
                let _ = write!(row, " {cell:<17}");
            }
            row.trim_end().to_owned() + "\n"
        };
        let head = Operation::ALL.map(|operation| format!("{operation:?}"));
        let rows = ObjectState::ALL.map(|state| {
            let cells = Operation::ALL.map(|operation| judge(operation, state).to_string());
            row(format!("{state:?}"), cells)
        });
        row(String::new(), head) + &rows.concat()
    }

    #[test]
    fn every_object_in_every_operation_has_its_verdict() {
        let golden: String = GOLDEN
            .lines()
            .filter(|line| !line.starts_with('#'))
            .fold(String::new(), |text, line| text + line + "\n");
        assert_eq!(table(), golden, "\n{}", table());
    }

    /// What the table must never say, whatever is written into it.
    #[test]
    fn nothing_that_is_not_proven_ours_is_touched_unasked() {
        for state in ObjectState::ALL {
            for operation in Operation::ALL {
                let verdict = judge(operation, state);
                let what = format!("{operation:?} {state:?}: {verdict}");
                match verdict {
                    Verdict::Delete => {
                        assert!(operation.deletes() && state.is_proven(), "{what}");
                        assert_ne!(state, ObjectState::KeepPolicy, "{what}");
                        assert_ne!(state, ObjectState::AdoptedKept, "{what}");
                    }
                    // Overwriting what was nobody's is remembered, as what was left says itself, or the marks were ours.
                    Verdict::Write => assert!(
                        state.is_proven()
                            || state == ObjectState::Left
                            || state == ObjectState::Stripped
                                && matches!(operation, Operation::Correct | Operation::Restore),
                        "{what}"
                    ),
                    Verdict::Adopt(_) => assert!(
                        operation == Operation::TakeOwnership || state != ObjectState::Foreign,
                        "{what}"
                    ),
                    Verdict::Create => assert_eq!(state, ObjectState::Absent, "{what}"),
                    Verdict::Wait => assert_eq!(state, ObjectState::Leaving, "{what}"),
                    Verdict::Refuse | Verdict::Leave => {}
                }
                // An object that was there before us is deleted at most with the release as a whole, or with a good revision that dropped it after it
                // had been handed over.
                let was_there = matches!(
                    state,
                    ObjectState::AdoptedKept | ObjectState::AdoptedOwned | ObjectState::HandedOver
                );
                if was_there && operation == Operation::Undo {
                    assert_eq!(verdict, Verdict::Leave, "{what}");
                }
            }
        }
    }

    #[test]
    fn an_object_that_was_kept_stays_kept_after_a_hand_over() {
        use Adoption::{HandedOver, Kept, Left, Owned};
        assert_eq!(HandedOver.after(Some(Kept)), Kept);
        assert_eq!(HandedOver.after(Some(Owned)), Owned);
        assert_eq!(Kept.after(Some(Owned)), Owned);
        assert_eq!(Owned.after(Some(Kept)), Owned);
        assert_eq!(HandedOver.after(None), HandedOver);
        assert_eq!(HandedOver.after(Some(Left)), HandedOver);
        for adoption in [Kept, Owned, HandedOver, Left] {
            assert_eq!(Adoption::read(adoption.as_str()), adoption);
        }
    }
}
