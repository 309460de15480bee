//! Bytes read as decisions.

/// A stream of decisions: a fuzzer's input, or the bytes of a seeded generator. When it has run out every answer is the
/// first and smallest one, so a shorter input always means a smaller case.
#[derive(Clone, Debug)]
pub struct Choices<'b> {
    bytes: std::slice::Iter<'b, u8>,
}

impl<'b> Choices<'b> {
    pub fn new(bytes: &'b [u8]) -> Self {
        Self {
            bytes: bytes.iter(),
        }
    }

    /// The next byte, 0 at the end.
    pub fn byte(&mut self) -> u8 {
        self.bytes.next().copied().unwrap_or(0)
    }

    /// A number below `count`; 0 when `count` is 0.
    pub fn below(&mut self, count: usize) -> usize {
        let number = match count {
            0..=1 => return 0,
            2..=256 => usize::from(self.byte()),
            _ => usize::from(self.byte()) << 8 | usize::from(self.byte()),
        };
        number % count
    }

    /// Whether something happens that does so in so many of a hundred cases; never at the end of the bytes.
    pub fn chance(&mut self, percent: u32) -> bool {
        u32::from(self.byte()) * 100 / 256 >= 100 - percent
    }

    pub fn pick<'t, T: ?Sized>(&mut self, from: &[&'t T]) -> &'t T {
        from[self.below(from.len())]
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.len() == 0
    }

    /// What is left, as it is.
    pub fn rest(&self) -> &'b [u8] {
        self.bytes.as_slice()
    }
}

/// The bytes of case `number` of the run with this seed: the same for ever (SplitMix64).
pub fn seeded(seed: u64, number: u64, length: usize) -> Vec<u8> {
    let mut state = seed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend((word ^ word >> 31).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
