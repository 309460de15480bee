//! Random choices that a seed repeats.

pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64, case: u64) -> Self {
        let mut dice = Self(seed ^ case.wrapping_mul(0xD134_2543_DE82_EF95));
        dice.next();
        dice
    }

    /// Splitmix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap_or(0)
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    /// Now and then one of `odd`, else one of `usual`.
    pub(crate) fn mostly<'a>(&mut self, usual: &[&'a str], odd: &[&'a str]) -> &'a str {
        if self.chance(12) {
            self.pick(odd)
        } else {
            self.pick(usual)
        }
    }
}
