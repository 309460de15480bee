//! Making a case smaller as long as it still shows something.

/// The smallest input found that is still interesting. `Choices` takes zeros for the smallest answers, so shorter bytes
/// and more zeros mean a simpler case. Stops after `attempts` questions.
pub fn shrink(
    bytes: Vec<u8>,
    mut attempts: usize,
    mut is_interesting: impl FnMut(&[u8]) -> bool,
) -> Vec<u8> {
    let mut best = bytes;
    let mut ask = |candidate: &[u8]| {
        attempts = attempts.saturating_sub(1);
        attempts > 0 && is_interesting(candidate)
    };
    loop {
        let before = best.clone();
        let mut size = (best.len() / 2).max(1);
        loop {
            let mut at = 0;
            while at < best.len() {
                let end = (at + size).min(best.len());
                let mut shorter = best.clone();
                shorter.drain(at..end);
                if ask(&shorter) {
                    best = shorter;
                    continue;
                }
                if best[at..end].iter().any(|byte| *byte != 0) {
                    let mut zeroed = best.clone();
                    zeroed[at..end].fill(0);
                    if ask(&zeroed) {
                        best = zeroed;
                    }
                }
                at = end;
            }
            if size == 1 {
                break;
            }
            size /= 2;
        }
        if best == before {
            return best;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::shrink;

    #[test]
    fn a_shrunk_case_still_fails() {
        let bytes = (0..=255).collect();
        let least = shrink(bytes, 10_000, |bytes| {
            bytes.contains(&77) && bytes.len() > 2
        });
        assert_eq!(least.len(), 3);
        assert!(least.contains(&77));
        assert_eq!(least.iter().filter(|byte| **byte == 0).count(), 2);
    }
}
