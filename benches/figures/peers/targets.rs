//! Computes the ratios of all rows, and compares them with the targets of the comparison.

use super::{BY_HAND, CLIENT_GO, FLOOR, LEASEHOLD, LOCK};
use super::{busy, elections, many, rest};
use crate::locks;
use crate::report::{Row, Unit};
use crate::results::PEERS;

/// Leasehold's value is compared with another system's value, or with the value of another figure
/// of leasehold.
#[derive(Debug, Clone, Copy)]
enum Against {
    System(&'static str),
    Ours(&'static str, &'static str),
    Nothing,
}

/// A target: the median must be at most (or at least) `factor` times the other value, plus `more`.
struct Target {
    what: &'static str,
    at_least: bool,
    factor: f64,
    against: Against,
    more: f64,
}

const fn at_most(what: &'static str, factor: f64, against: Against) -> Target {
    let (at_least, more) = (false, 0.0);
    Target {
        what,
        at_least,
        factor,
        against,
        more,
    }
}

const fn limit(what: &'static str, more: f64) -> Target {
    Target {
        more,
        ..at_most(what, 0.0, Against::Nothing)
    }
}

/// Allows at most ten times the load for ten times as many leases.
const fn ten_times([ten, hundred]: [&'static str; 2]) -> Target {
    at_most(hundred, 10.0, Against::Ours(ten, "the row of 10"))
}

const fn of_many(index: usize) -> Target {
    at_most(many::HANDOFF_ROWS[index].1, 1.4, Against::System(FLOOR))
}

const HANDOFF_OF_3: Against = Against::Ours(elections::HANDOFF, "a handoff with 3");

const TARGETS: &[Target] = &[
    at_most(elections::HANDOFF, 1.4, Against::System(FLOOR)),
    at_most(elections::HANDOFF_OF_50, 1.5, HANDOFF_OF_3),
    limit(elections::REJECTED, 2.0),
    Target {
        more: 0.010,
        ..at_most(elections::TAKEOVER, 2.0, Against::System(FLOOR))
    },
    Target {
        more: 0.010,
        ..at_most(elections::TAKEOVER_OF_50, 2.0, Against::System(FLOOR))
    },
    limit(rest::RSS[0], 9e6),
    limit(rest::RSS[1], 9e6),
    limit(rest::RSS_KUBERNETES, 10e6),
    limit(rest::PRIVATE[0], 1.3e6),
    limit(rest::PRIVATE[1], 1.3e6),
    at_most(rest::CPU[0], 0.8, Against::System(CLIENT_GO)),
    at_most(rest::CPU[1], 0.6, Against::System(CLIENT_GO)),
    at_most(locks::CONNECTED, 1.2, Against::System(BY_HAND)),
    at_most(locks::EXEC, 1.0, Against::System(BY_HAND)),
    at_most(locks::HAND_OVER, 1.0, Against::System(LOCK)),
    Target {
        at_least: true,
        ..at_most(locks::RATE, 1.2, Against::System(LOCK))
    },
    limit(locks::SHARE, 1.1),
    limit(locks::COMMANDS, 3.1),
    // The first of a thousand acquisitions also creates the lock's document.
    limit(locks::COMMANDS_TO_WRITE, 2.05),
    limit(busy::FOLLOWER, 0.001),
    at_most(busy::HANDOFF, 1.4, Against::System(FLOOR)),
    ten_times(many::SERIES[0].cpu),
    ten_times(many::SERIES[0].network),
    ten_times(many::SERIES[1].cpu),
    ten_times(many::SERIES[1].network),
    limit(many::SERIES[2].cpu[1], 0.25),
    ten_times(many::SERIES[2].network),
    of_many(0),
    of_many(1),
    of_many(2),
    of_many(3),
    of_many(4),
];

/// Adds the ratio to each row of another system, and the target and the verdict to each row of
/// leasehold. Compares only rows on the same disk.
pub(crate) fn apply(rows: &mut [Row]) {
    let medians: Vec<_> = rows
        .iter()
        .filter_map(|row| {
            let p50 = row.values?.p50;
            Some((row.disk, row.what.clone(), row.system?, p50))
        })
        .collect();
    let median = |disk: &str, what: &str, system: &str| {
        let mut found = medians.iter();
        let found = found.find(|(d, w, s, _)| *d == disk && w == what && *s == system);
        found.map(|(.., p50)| *p50)
    };
    for row in rows.iter_mut().filter(|row| row.figure.starts_with(PEERS)) {
        let Some(p50) = row.values.map(|values| values.p50) else {
            continue;
        };
        let ours = median(row.disk, &row.what, LEASEHOLD);
        if row.system != Some(LEASEHOLD) {
            row.ratio = ours.filter(|_| p50 > 0.0).map(|ours| ours / p50);
            continue;
        }
        let Some(target) = TARGETS.iter().find(|target| target.what == row.what) else {
            continue;
        };
        let other = match target.against {
            Against::System(system) => median(row.disk, target.what, system),
            Against::Ours(what, _) => median(row.disk, what, LEASEHOLD),
            Against::Nothing => Some(0.0),
        };
        row.target = target.show(row.unit());
        row.verdict = other.map_or("", |other| target.judge(p50, other));
    }
}

impl Target {
    fn judge(&self, p50: f64, other: f64) -> &'static str {
        let bound = self.factor * other + self.more;
        let met = if self.at_least {
            p50 >= bound
        } else {
            p50 <= bound
        };
        if met { "met" } else { "MISSED" }
    }

    fn show(&self, unit: Unit) -> String {
        let sign = if self.at_least { '≥' } else { '≤' };
        let other = match self.against {
            Against::System(FLOOR) => "the floor",
            Against::System(name) | Against::Ours(_, name) => name,
            Against::Nothing => return format!("{sign} {}", unit.show(self.more)),
        };
        let more = match self.more {
            0.0 => String::new(),
            more => format!(" + {}", unit.show(more)),
        };
        format!("{sign} {:.1} × {other}{more}", self.factor)
    }
}
