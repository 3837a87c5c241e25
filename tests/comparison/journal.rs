//! A file that records the holders' acts. Each act appends one line, so the lines are in the order
//! of the acts.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Act {
    /// CLOCK_BOOTTIME with a resolution of 10 ms, for humans. The order of the lines, not this
    /// time, is the order of the acts.
    pub(crate) at: f64,
    pub(crate) owner: String,
}

impl Journal {
    pub(crate) fn new(path: PathBuf) -> Self {
        std::fs::write(&path, "").expect("the journal can be created");
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn acts(&self) -> Vec<Act> {
        let text = std::fs::read_to_string(&self.path).expect("the journal can be read");
        // The last line may be incomplete.
        let lines = text.split_inclusive('\n').filter(|l| l.ends_with('\n'));
        let act = |line: &str| {
            let (at, owner) = line.trim().split_once(' ')?;
            let (at, owner) = (at.parse().ok()?, owner.to_owned());
            Some(Act { at, owner })
        };
        lines
            .map(|line| act(line).unwrap_or_else(|| panic!("no act: {line:?}")))
            .collect()
    }

    pub(crate) fn count(&self, owner: &str) -> usize {
        let acts = self.acts();
        acts.iter().filter(|act| act.owner == owner).count()
    }

    /// Counts the actions of `owner` that were recorded after the first action of `next`.
    pub(crate) fn after_the_next_began(&self, owner: &str, next: &str) -> usize {
        acts_after(&self.acts(), owner, next)
    }

    /// Returns false if `owner` has not acted `count` times before `limit`.
    pub(crate) async fn reaches(&self, owner: &str, count: usize, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while self.count(owner) < count {
            if Instant::now() > end {
                return false;
            }
            tokio::time::sleep(POLL).await;
        }
        true
    }
}

fn acts_after(acts: &[Act], owner: &str, next: &str) -> usize {
    let began = acts.iter().position(|act| act.owner == next);
    let after = &acts[began.unwrap_or(acts.len())..];
    after.iter().filter(|act| act.owner == owner).count()
}

/// Counts how often an owner acted again after another owner had acted. The result is 0 if each
/// owner's acts are contiguous.
pub(crate) fn returns(acts: &[Act]) -> usize {
    let mut seen: Vec<&str> = Vec::new();
    let mut returns = 0;
    for act in acts {
        if seen.last() != Some(&act.owner.as_str()) {
            returns += usize::from(seen.contains(&act.owner.as_str()));
            seen.push(&act.owner);
        }
    }
    returns
}

#[test]
fn only_concurrent_acts_are_counted() {
    let acts = |owners: &str| -> Vec<Act> {
        let act = |owner: char| Act {
            at: 0.0,
            owner: owner.to_string(),
        };
        owners.chars().map(act).collect()
    };
    assert_eq!(acts_after(&acts("aabb"), "a", "b"), 0);
    assert_eq!(acts_after(&acts("aababa"), "a", "b"), 2);
    assert_eq!(returns(&acts("aabbc")), 0);
    assert_eq!(returns(&acts("aababc")), 2);
}
