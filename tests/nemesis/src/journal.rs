//! Reads the journals that workloads write, and checks that the workloads excluded each other.

use std::collections::BTreeMap;
use std::path::Path;

use leasehold_trace_check::Tenure;

use crate::job::SLOTS;

/// A journal line, which proves that its writer relied on the token at the time `at`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// Time of the line on CLOCK_BOOTTIME, in nanoseconds.
    pub(crate) at: u64,
    pub(crate) token: i64,
    pub(crate) writer: String,
    pub(crate) pid: u32,
}

/// All lines that one process wrote with one token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) token: i64,
    pub(crate) writer: String,
    pub(crate) pid: u32,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Workloads run one at a time, in the order of their tokens.
    Exclusive,
    /// Readers run together; a writer runs alone.
    Readers,
    /// At most [`SLOTS`] workloads run at the same time.
    Slots,
}

/// Reads a journal. The last line may be incomplete, because the writer may have been killed.
pub(crate) fn read(path: &Path) -> Result<Vec<Line>, String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.split_inclusive('\n');
    let lines = whole.filter_map(|line| line.strip_suffix('\n'));
    let mut lines: Vec<_> = lines.map(parse).collect::<Result<_, _>>()?;
    lines.sort_by_key(|line| line.at);
    Ok(lines)
}

fn parse(line: &str) -> Result<Line, String> {
    let words: Vec<_> = line.split(' ').collect();
    let read = || {
        let [at, token, writer, pid] = words.as_slice() else {
            return None;
        };
        Some(Line {
            at: at.parse().ok()?,
            token: token.parse().ok()?,
            writer: (*writer).to_owned(),
            pid: pid.parse().ok()?,
        })
    };
    read().ok_or_else(|| format!("not a journal line: {line:?}"))
}

/// Groups the lines by token and process, and sorts the groups by their first line's time.
pub(crate) fn works(lines: &[Line]) -> Vec<Work> {
    let mut works = BTreeMap::new();
    for line in lines {
        let work = works.entry((line.token, line.pid)).or_insert_with(|| Work {
            token: line.token,
            writer: line.writer.clone(),
            pid: line.pid,
            first: line.at,
            last: line.at,
        });
        work.first = work.first.min(line.at);
        work.last = work.last.max(line.at);
    }
    let mut works: Vec<_> = works.into_values().collect();
    works.sort_by_key(|work| work.first);
    works
}

/// Checks that only the permitted workloads overlap, and that tokens increase.
pub(crate) fn exclusion(rule: Rule, works: &[Work]) -> Vec<String> {
    let mut found = Vec::new();
    for (index, work) in works.iter().enumerate() {
        let together: Vec<_> = works[..index]
            .iter()
            .filter(|b| b.last >= work.first)
            .collect();
        let too_many = match rule {
            Rule::Exclusive => !together.is_empty(),
            Rule::Slots => together.len() >= SLOTS as usize,
            Rule::Readers => {
                let writes = |work: &Work| work.writer.starts_with("writer");
                together.iter().any(|other| writes(work) || writes(other))
            }
        };
        if too_many {
            found.push(format!("{work:?} overlaps {together:?}"));
        }
        let same = works[..index]
            .iter()
            .find(|other| other.token == work.token);
        if let Some(other) = same {
            found.push(format!("{work:?} has the token of {other:?}"));
        }
        let newer = works[..index].iter().find(|other| other.token > work.token);
        if let Some(newer) = newer.filter(|_| rule == Rule::Exclusive) {
            found.push(format!("{work:?} follows {newer:?}, whose token is higher"));
        }
    }
    found
}

/// For locks without tokens: returns the start of each workload that overlapped an earlier
/// workload.
pub(crate) fn overlaps(works: &[Work]) -> Vec<u64> {
    let begins = works.iter().enumerate().filter(|(index, work)| {
        let mut before = works[..*index].iter();
        before.any(|other| other.last >= work.first)
    });
    begins.map(|(_, work)| work.first).collect()
}

/// Checks that every line was written while its token had authority. A supervised command may work
/// for `grace` after the deadline (I5). With `some_untraced`, tokens without a trace are not
/// checked, because a version that writes no traces takes part.
pub(crate) fn authority(
    document: &str,
    works: &[Work],
    tenures: &[Tenure],
    (grace, some_untraced): (impl Fn(&Work) -> u64, bool),
) -> Vec<String> {
    let mine = tenures.iter().filter(|tenure| tenure.document == document);
    let mine: BTreeMap<_, _> = mine.map(|tenure| (tenure.token, tenure)).collect();
    let outside = works.iter().filter_map(|work| match mine.get(&work.token) {
        None if some_untraced => None,
        None => Some(format!("no trace contains the token of {work:?}")),
        Some(tenure) if work.first < tenure.from || work.last > tenure.deadline + grace(work) => {
            Some(format!("{work:?} is not within {tenure:?}"))
        }
        Some(_) => None,
    });
    outside.collect()
}

/// Returns the start and end of each gap longer than `least` between two lines.
pub(crate) fn gaps(lines: &[Line], least: u64) -> Vec<(u64, u64)> {
    let pairs = lines.windows(2).map(|pair| (pair[0].at, pair[1].at));
    pairs.filter(|(from, until)| until - from > least).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(token: i64, writer: &str, first: u64, last: u64) -> Work {
        let pid = u32::try_from(token).unwrap();
        Work {
            token,
            writer: writer.to_owned(),
            pid,
            first,
            last,
        }
    }

    #[test]
    fn sequential_work_satisfies_each_rule() {
        let works = [work(1, "writer-a", 0, 9), work(2, "writer-b", 10, 20)];
        for rule in [Rule::Exclusive, Rule::Readers, Rule::Slots] {
            assert_eq!(exclusion(rule, &works), Vec::<String>::new());
        }
    }

    #[test]
    fn an_overlap_is_found() {
        let works = [work(1, "a", 0, 10), work(2, "b", 10, 20)];
        assert_eq!(exclusion(Rule::Exclusive, &works).len(), 1);
        assert!(exclusion(Rule::Slots, &works).is_empty());
        assert!(exclusion(Rule::Readers, &works).is_empty());
        let works = [work(1, "writer-a", 0, 10), work(2, "b", 10, 20)];
        assert_eq!(exclusion(Rule::Readers, &works).len(), 1);
    }

    #[test]
    fn overlaps_are_counted_without_tokens() {
        let works = [
            work(1, "a", 0, 10),
            work(2, "b", 10, 20),
            work(3, "c", 21, 30),
        ];
        assert_eq!(overlaps(&works), [10]);
    }

    #[test]
    fn more_holders_than_slots_are_found() {
        let works = [
            work(1, "a", 0, 10),
            work(2, "b", 1, 20),
            work(3, "c", 2, 20),
        ];
        assert_eq!(exclusion(Rule::Slots, &works).len(), 1);
    }

    #[test]
    fn a_reused_or_decreasing_token_is_found() {
        let mut again = work(1, "b", 10, 20);
        again.pid = 7;
        let works = [work(1, "a", 0, 9), again];
        assert_eq!(exclusion(Rule::Slots, &works).len(), 1);
        let works = [work(2, "a", 0, 9), work(1, "b", 10, 20)];
        assert_eq!(exclusion(Rule::Exclusive, &works).len(), 1);
    }

    #[test]
    fn a_line_after_the_deadline_and_one_without_a_trace_are_found() {
        let document = "leasehold.leases/orders".to_owned();
        let tenure = |until| Tenure {
            document: document.clone(),
            token: 1,
            from: 0,
            until: 5,
            deadline: until,
        };
        let works = [work(1, "a", 0, 9)];
        assert!(authority(&document, &works, &[tenure(9)], (|_| 0, false)).is_empty());
        assert_eq!(
            authority(&document, &works, &[tenure(8)], (|_| 0, false)).len(),
            1
        );
        assert_eq!(authority(&document, &works, &[], (|_| 0, false)).len(), 1);
    }
}
