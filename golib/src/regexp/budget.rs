//! What expressions may take that are compiled for somebody else's document and kept beside each other.

/// Bytes that a compiled expression takes at least, while it is used.
const LEAST: usize = 8 << 10;
/// Bytes of it for each unit of its effort, at worst about.
const EFFORT_BYTES: usize = 512;

/// Bytes that compiled expressions may take together.
#[derive(Debug, Clone)]
pub struct Budget {
    left: usize,
}

impl Budget {
    /// At most so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self { left: bytes }
    }

    /// Takes what an expression of this effort needs, if there is as much.
    pub(super) fn take(&mut self, effort: u64) -> Option<()> {
        self.left = self.left.checked_sub(weight(effort))?;
        Some(())
    }
}

pub(super) fn weight(effort: u64) -> usize {
    let effort = usize::try_from(effort).unwrap_or(usize::MAX);
    LEAST.saturating_add(effort.saturating_mul(EFFORT_BYTES))
}
