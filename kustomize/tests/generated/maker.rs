//! What a case is made from: chance, its files, which names are given out, and whether something in it is to be wrong.

use std::collections::{BTreeMap, BTreeSet};

use super::dice::Dice;

/// Texts by their paths.
pub(super) type Files = BTreeMap<String, String>;

/// Cases out of a hundred in which something may be wrong.
const FAULTY: usize = 12;
const VARIABLES: [&str; 3] = ["NAME", "IMAGE", "HOST"];

pub(super) struct Maker<'a> {
    dice: &'a mut Dice,
    pub(super) files: Files,
    is_faulty: bool,
    /// Kinds with the names that objects of theirs have.
    taken: BTreeSet<(String, String)>,
    pub(super) variables: usize,
}

impl<'a> Maker<'a> {
    pub(super) fn new(dice: &'a mut Dice) -> Self {
        let is_faulty = dice.chance(FAULTY);
        Self {
            dice,
            files: Files::new(),
            is_faulty,
            taken: BTreeSet::new(),
            variables: 0,
        }
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.dice.below(limit)
    }

    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.dice.chance(percent)
    }

    pub(super) fn pick<'b>(&mut self, from: &[&'b str]) -> &'b str {
        self.dice.pick(from)
    }

    pub(super) fn dice(&mut self) -> &mut Dice {
        self.dice
    }

    /// Whether something is wrong here.
    pub(super) fn fault(&mut self, percent: usize) -> bool {
        self.is_faulty && self.dice.chance(percent)
    }

    /// One of `usual`, where something may be wrong now and then one of `odd`.
    pub(super) fn mostly<'b>(&mut self, usual: &[&'b str], odd: &[&'b str]) -> &'b str {
        match self.is_faulty {
            true => self.dice.mostly(usual, odd),
            false => self.dice.pick(usual),
        }
    }

    /// A name that no other object of the kind has.
    pub(super) fn free_name(&mut self, kind: &str, names: &[&str]) -> String {
        let start = self.below(names.len());
        let in_turn = (0..names.len()).map(|at| names[(start + at) % names.len()].to_owned());
        let numbered = (2..).map(|number| format!("{}-{number}", names[start]));
        for name in in_turn.chain(numbered) {
            let is_free = self.taken.insert((kind.to_owned(), name.clone()));
            if is_free || self.fault(6) {
                return name;
            }
        }
        names[start].to_owned()
    }

    pub(super) fn is_taken(&self, kind: &str, name: &str) -> bool {
        self.taken.contains(&(kind.to_owned(), name.to_owned()))
    }

    /// Gives out no variables until their number is set to what is returned.
    pub(super) fn no_variables(&mut self) -> usize {
        std::mem::replace(&mut self.variables, VARIABLES.len())
    }

    /// A name that no other variable has.
    pub(super) fn variable(&mut self) -> Option<&'static str> {
        let name = VARIABLES.get(self.variables).copied();
        if !self.fault(20) {
            self.variables += 1;
        }
        name
    }
}
