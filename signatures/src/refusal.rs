//! Why a chart is refused, for a condition: which rule, which key or identity, what was found.

use std::fmt;

/// A chart that a policy does not let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The chart's address and digest.
    pub chart: String,
    /// What is missing, rule by rule; at least one.
    pub unmet: Vec<Unmet>,
}

/// A rule that is not satisfied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    /// The rule's name.
    pub rule: String,
    /// What was tried and found, one entry for each digest or signer that would have done.
    pub tried: Vec<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "signature policy refuses {}", self.chart)?;
        for (at, unmet) in self.unmet.iter().enumerate() {
            let separator = if at == 0 { ':' } else { ';' };
            write!(f, "{separator} rule \"{}\": ", unmet.rule)?;
            f.write_str(&unmet.tried.join("; or "))?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}
