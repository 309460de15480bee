//! How much may be done with lists, whose elements are compared with each other and move when one is taken out, and how much operations
//! may put into documents.

/// Steps that are left, some ten nanoseconds each.
#[derive(Debug, Clone)]
pub struct Work {
    left: usize,
}

/// There were not enough steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("lists are too long for all that is changed in them")]
pub struct TooMuchWork;

impl Work {
    /// At most so many steps.
    pub fn new(steps: usize) -> Self {
        Self { left: steps }
    }

    /// Whatever it takes.
    pub fn unbounded() -> Self {
        Self::new(usize::MAX)
    }

    pub(super) fn spend(&mut self, steps: usize) -> Result<(), TooMuchWork> {
        match self.left.checked_sub(steps) {
            Some(left) => self.left = left,
            // Nothing is done any more.
            None => {
                self.left = 0;
                return Err(TooMuchWork);
            }
        }
        Ok(())
    }

    /// So many elements move by one.
    pub(super) fn shift(&mut self, elements: usize) -> Result<(), TooMuchWork> {
        self.spend(1 + elements / 16)
    }
}
