//! What the kills came to.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::life::Stage;

/// Something that must not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// It did not come right within the time given.
    Stuck,
    /// An object of the manifest that was being deployed was deleted.
    Deleted,
    /// At some moment no good revision was stored.
    Lost,
    /// A hook did not run.
    Skipped,
    /// A hook ran more often than its events came.
    Repeated,
    /// An object or a record stayed behind that belongs to nothing any more.
    LeftOver,
}

/// A fault, and where it happened.
#[derive(Debug, Clone)]
pub struct Finding {
    /// What.
    pub fault: Fault,
    /// Everything needed to see it again.
    pub story: String,
}

/// Counts of a campaign.
#[derive(Debug, Default)]
pub struct Tally {
    kills: BTreeMap<(&'static str, Stage), usize>,
    slowest: Option<(Duration, &'static str, Stage)>,
    /// What went wrong, in the order it happened.
    pub findings: Vec<Finding>,
}

impl Tally {
    pub(super) fn killed(&mut self, sort: &'static str, stage: Stage) {
        *self.kills.entry((sort, stage)).or_default() += 1;
    }

    pub(super) fn recovered(&mut self, sort: &'static str, stage: Stage, took: Duration) {
        if self.slowest.is_none_or(|(slowest, ..)| took > slowest) {
            self.slowest = Some((took, sort, stage));
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        for (key, count) in other.kills {
            *self.kills.entry(key).or_default() += count;
        }
        if let Some((took, sort, stage)) = other.slowest {
            self.recovered(sort, stage, took);
        }
        self.findings.extend(other.findings);
    }

    /// Kills in all.
    pub fn kills(&self) -> usize {
        self.kills.values().sum()
    }

    /// One line about one life.
    pub(super) fn summary(&self) -> String {
        let slowest = self.slowest.map_or(String::new(), |(took, _, stage)| {
            format!(", {:.1} s after {}", took.as_secs_f64(), stage.name())
        });
        let faults: Vec<String> = self
            .findings
            .iter()
            .map(|finding| format!(", {:?}", finding.fault))
            .collect();
        format!("{} kills{slowest}{}", self.kills(), faults.concat())
    }

    fn count(&self, fault: Fault) -> usize {
        let is_it = |finding: &&Finding| finding.fault == fault;
        self.findings.iter().filter(is_it).count()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<12}", "kills")?;
        for stage in Stage::ALL {
            write!(f, "{:>10}", stage.name())?;
        }
        writeln!(f)?;
        for sort in super::charts::SORTS {
            write!(f, "{sort:<12}")?;
            for stage in Stage::ALL {
                let count = self.kills.get(&(sort, stage)).copied().unwrap_or_default();
                write!(f, "{count:>10}")?;
            }
            writeln!(f)?;
        }
        if let Some((took, sort, stage)) = &self.slowest {
            let seconds = took.as_secs_f64();
            writeln!(
                f,
                "slowest to come right: {seconds:.1} s ({sort}, {})",
                stage.name()
            )?;
        }
        write!(
            f,
            "{} kills: {} stuck, {} objects of the new manifest deleted, {} lost good revisions, {} hooks skipped, {} repeated, {} left over",
            self.kills(),
            self.count(Fault::Stuck),
            self.count(Fault::Deleted),
            self.count(Fault::Lost),
            self.count(Fault::Skipped),
            self.count(Fault::Repeated),
            self.count(Fault::LeftOver),
        )
    }
}
