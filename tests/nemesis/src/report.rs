//! Collects and formats the violations and figures of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use leasehold_trace_check::Checked;

use crate::residents::Finding;
use crate::schedule::{Story, Struck};

pub(crate) struct Report {
    pub(crate) profile: String,
    pub(crate) seed: u64,
    pub(crate) minutes: f64,
    pub(crate) violations: Vec<String>,
    pub(crate) kinds: BTreeMap<String, Strikes>,
    pub(crate) leaderships: usize,
    pub(crate) jobs: usize,
    pub(crate) checked: Checked,
    pub(crate) bound: Duration,
    /// Statistics of the lease and of the other designs. Empty if no other design took part.
    pub(crate) compared: Vec<Compared>,
    pub(crate) growths: Vec<Finding>,
    pub(crate) linearizable: String,
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Strikes {
    pub(crate) times: usize,
    pub(crate) alone: usize,
    /// Longest gap in the work. A gap counts if it began during a single fault of this kind, or
    /// between that fault and the next.
    pub(crate) longest_gap: Duration,
}

pub(crate) struct Compared {
    pub(crate) name: &'static str,
    pub(crate) works: usize,
    pub(crate) overlaps: usize,
    pub(crate) after: BTreeMap<String, usize>,
    /// By kind of fault, the longest gap in the work. A gap counts if it began during a single
    /// fault of this kind, or between that fault and the next.
    pub(crate) longest: BTreeMap<String, Duration>,
}

impl Compared {
    pub(crate) fn new(
        name: &'static str,
        (works, overlaps): (usize, &[u64]),
        gaps: &[(u64, u64)],
        (story, since): (&Story, u64),
    ) -> Self {
        let kinds = by_kind(story, &lone(story, gaps));
        let alone = kinds.into_iter().filter(|(_, strikes)| strikes.alone > 0);
        Self {
            name,
            works,
            overlaps: overlaps.len(),
            after: attributed(story, overlaps, since),
            longest: alone.map(|(kind, s)| (kind, s.longest_gap)).collect(),
        }
    }

    fn cell(&self, fault: &str) -> String {
        let overlaps = self.after.get(fault).copied().unwrap_or_default();
        match self.longest.get(fault) {
            Some(longest) => format!("{overlaps}, {:.1} s", longest.as_secs_f64()),
            None => overlaps.to_string(),
        }
    }
}

/// Counts instants by fault. An instant belongs to the newest fault that was active at the instant
/// or was healed at most `since` earlier.
pub(crate) fn attributed(story: &Story, instants: &[u64], since: u64) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for at in instants {
        let near = story
            .struck
            .iter()
            .filter(|struck| struck.began <= *at && *at <= struck.healed.saturating_add(since));
        let newest = near.max_by_key(|struck| struck.began);
        let name = newest.map_or("no fault".to_owned(), |struck| struck.fault.name());
        *counts.entry(name).or_default() += 1;
    }
    counts
}

/// A single fault, during which no other fault was active. `gap` is the longest gap in the work,
/// among the gaps that began during the fault, or between the fault and the next.
pub(crate) struct Lone<'a> {
    pub(crate) struck: &'a Struck,
    pub(crate) gap: Duration,
    /// The part of `gap` after the fault was healed.
    pub(crate) gap_after: Duration,
}

pub(crate) fn lone<'a>(story: &'a Story, gaps: &[(u64, u64)]) -> Vec<Lone<'a>> {
    let alone = story.struck.iter().filter(|struck| struck.alone);
    let lone = alone.map(|struck| {
        let begins = story.struck.iter().map(|other| other.began);
        let next = begins
            .filter(|began| *began > struck.began)
            .min()
            .unwrap_or(u64::MAX);
        // Workloads write a line every 20 ms, so a gap that began more than 100 ms before the fault
        // has another cause.
        let since = struck.began.saturating_sub(100_000_000);
        let mine = gaps.iter().filter(|(from, _)| (since..next).contains(from));
        let longest = mine.max_by_key(|(from, until)| until - from);
        let (from, until) = longest.copied().unwrap_or_default();
        Lone {
            struck,
            gap: Duration::from_nanos(until - from),
            gap_after: Duration::from_nanos(until.saturating_sub(from.max(struck.healed))),
        }
    });
    lone.collect()
}

pub(crate) fn by_kind(story: &Story, lone: &[Lone<'_>]) -> BTreeMap<String, Strikes> {
    let mut kinds: BTreeMap<String, Strikes> = BTreeMap::new();
    for struck in &story.struck {
        kinds.entry(struck.fault.name()).or_default().times += 1;
    }
    for Lone { struck, gap, .. } in lone {
        let strikes = kinds.entry(struck.fault.name()).or_default();
        strikes.alone += 1;
        strikes.longest_gap = strikes.longest_gap.max(*gap);
    }
    kinds
}

impl Report {
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "profile {}, seed {}, {:.1} minutes: {} leaderships, {} jobs, {} acquisitions, {} store \
             calls\n\n| fault | times | alone | longest time without work, alone |\n| --- | --- | \
             --- | --- |\n",
            self.profile,
            self.seed,
            self.minutes,
            self.leaderships,
            self.jobs,
            self.checked.acquisitions,
            self.checked.calls,
        );
        for (kind, strikes) in &self.kinds {
            let gap = match strikes.alone {
                0 => "".to_owned(),
                _ => format!("{:.1} s", strikes.longest_gap.as_secs_f64()),
            };
            text += &format!(
                "| {kind} | {} | {} | {gap} |\n",
                strikes.times, strikes.alone
            );
        }
        text += &format!(
            "\nchanges in the store: {}\nbound of the time without a leader after a fault: {:.1} \
            s\nhistories: {}\n{} violations\n",
            self.transitions(),
            self.bound.as_secs_f64(),
            self.linearizable.trim(),
            self.violations.len()
        );
        text += &self.comparison();
        if !self.growths.is_empty() {
            text += "\n| process | resource | mean | change per hour, 95% |\n| --- | --- | --- | --- |\n";
        }
        for finding in &self.growths {
            text += &finding.row();
            text.push('\n');
        }
        for violation in self.violations.iter().take(20) {
            text += &format!("- {violation}\n");
        }
        text
    }

    fn transitions(&self) -> String {
        let counts = &self.checked.transitions;
        let mut text = format!(
            "{}, {} by recorded calls ({} of unknown outcome), {} by operators, {} by edits ({} edits without a change)",
            counts.all, counts.calls, counts.unknown, counts.operators, counts.edits, counts.unused
        );
        for skipped in &self.checked.skipped {
            text += &format!("\n  skipped: {skipped}");
        }
        text
    }

    /// Returns an empty string if no other design took part.
    fn comparison(&self) -> String {
        if self.compared.is_empty() {
            return String::new();
        }
        let row = |first: &str, cell: &dyn Fn(&Compared) -> String| {
            let cells = self.compared.iter().map(cell).collect::<Vec<_>>();
            format!("| {first} | {} |\n", cells.join(" | "))
        };
        let mut text = "\nworkloads that began while another workload ran, and the longest time \
        without work; a time counts if it began during a single fault, or between that fault and \
        the next\n\n"
            .to_owned();
        text += &row("fault", &|compared| compared.name.to_owned());
        text += &row("---", &|_| "---".to_owned());
        text += &row("all", &|c| format!("{} of {}", c.overlaps, c.works));
        let overlapped = self
            .compared
            .iter()
            .flat_map(|compared| compared.after.keys());
        let faults: BTreeSet<_> = self.kinds.keys().chain(overlapped).collect();
        for fault in faults {
            text += &row(fault, &|compared| compared.cell(fault));
        }
        text
    }

    pub(crate) fn json(&self) -> Value {
        let kinds: BTreeMap<_, _> = self
            .kinds
            .iter()
            .map(|(kind, strikes)| {
                let gap = strikes.longest_gap.as_secs_f64();
                (
                    kind,
                    json!({ "times": strikes.times, "alone": strikes.alone, "longest_gap_s": gap }),
                )
            })
            .collect();
        let compared = self.compared.iter().map(|compared| {
            let seconds =
                |(kind, longest): (&String, &Duration)| (kind.clone(), longest.as_secs_f64());
            let longest: BTreeMap<_, _> = compared.longest.iter().map(seconds).collect();
            json!({
                "name": compared.name, "workloads": compared.works, "overlaps": compared.overlaps,
                "after": compared.after, "longest_gap_s": longest,
            })
        });
        json!({
            "compared": compared.collect::<Vec<_>>(),
            "residents": self.growths.iter().map(Finding::json).collect::<Vec<_>>(),
            "profile": self.profile, "seed": self.seed, "minutes": self.minutes,
            "leaderships": self.leaderships, "jobs": self.jobs,
            "acquisitions": self.checked.acquisitions, "store_calls": self.checked.calls,
            "recovery_bound_s": self.bound.as_secs_f64(),
            "histories": self.linearizable.trim(), "faults": kinds, "violations": self.violations,
        })
    }
}
