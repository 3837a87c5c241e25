//! The texts of a trace, for a human to read.

use std::fmt::Write as _;

use super::SECOND;
use super::cluster::Machine;
use super::files::Memory;
use super::invariants::Violation;
use super::replica_set::{Committed, Document, Writer};
use super::run::{Ran, Setup, run};
use crate::election::mutation;
use crate::election::{Found, Input, Lease, Operation, Outcome, Transition, Watch};

/// The explanation of the trace lines.
const LEGEND: &str = "each line: true time, who (p1 is the second process that was started, in \
                      its machine m and status directory d), what; -- is a trouble, == the store";

/// Number of consecutive routine lines that are shown.
const ROUTINE_MAX: usize = 8;

/// Describes a seed in which no invariant broke.
pub(super) fn good(setup: &Setup, lines: usize) -> String {
    let ran = run(&Setup {
        traced: true,
        ..setup.clone()
    });
    let mut text = format!("seed {}: every invariant holds\n", setup.seed);
    text += &body(&ran, lines);
    text
}

/// Describes a failing seed by the smallest failing run found.
pub(super) fn failed(
    setup: &Setup,
    smallest: &Setup,
    violation: &Violation,
    lines: usize,
) -> String {
    let ran = run(&Setup {
        traced: true,
        ..smallest.clone()
    });
    let invariant = violation.invariant;
    let meaning = meaning(invariant);
    let mut text = format!("seed {}: {invariant} is broken: {meaning}\n", setup.seed);
    if smallest.faults.is_some() {
        text += "this is the smallest run found in which it is: fewer kinds of faults, fewer \
                 troubles, fewer candidates\n";
    }
    text += &body(&ran, lines);
    let evidence = ran
        .violation
        .as_ref()
        .map_or(&violation.evidence, |v| &v.evidence);
    let after = ran.lasted as f64 / SECOND as f64;
    let _ = writeln!(
        text,
        "after {after:.3} s {invariant} is broken: {meaning}\n    {evidence}"
    );
    let _ = write!(text, "again: make replay SEED={}", setup.seed);
    if let Some(mutation) = mutation::active() {
        let _ = write!(text, " MUTATION={mutation:?}");
    }
    text
}

fn body(ran: &Ran, lines: usize) -> String {
    let mut text = String::from("candidates\n");
    for candidate in &ran.candidates {
        let _ = writeln!(text, "    {candidate}");
    }
    let faults = ran.faults.list();
    let _ = writeln!(
        text,
        "{} kinds of faults, {} planned troubles",
        faults.len(),
        ran.planned.len()
    );
    for fault in faults {
        let _ = writeln!(text, "    {:<16} {}", format!("{fault:?}"), fault.words());
    }
    let _ = writeln!(text, "{LEGEND}");
    let from = ran.trace.len().saturating_sub(lines);
    if from > 0 {
        let _ = writeln!(text, "    … {from} lines before (make replay shows them)");
    }
    for line in shortened(&ran.trace[from..]) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Returns true for routine lines: renewals, and the reads and events around them.
fn is_routine(line: &str) -> bool {
    let parts = [
        " renew ",
        " applied [",
        "== a majority has",
        " event [",
        "Alive",
        " read",
    ];
    parts.iter().any(|part| line.contains(part))
}

/// Returns the trace with long stretches of routine shortened to one line. The lines next to other
/// lines are kept, and so is the end.
fn shortened(trace: &[(u64, String)]) -> Vec<String> {
    let show =
        |(at, line): &(u64, String)| format!("{:>9.3} s  {line}", *at as f64 / SECOND as f64);
    let routine = |(_, line): &(u64, String)| is_routine(line);
    let mut lines = Vec::new();
    for stretch in trace.chunk_by(|a, b| routine(a) && routine(b)) {
        let last = trace
            .last()
            .is_some_and(|l| std::ptr::eq(l, &raw const stretch[stretch.len() - 1]));
        if last || stretch.len() <= ROUTINE_MAX {
            lines.extend(stretch.iter().map(show));
            continue;
        }
        let (begin, end) = (
            &stretch[..ROUTINE_MAX / 2],
            &stretch[stretch.len() - ROUTINE_MAX / 2..],
        );
        lines.extend(begin.iter().map(show));
        let left_out = stretch.len() - begin.len() - end.len();
        lines.push(format!(
            "             … {left_out} lines of renewals and reads"
        ));
        lines.extend(end.iter().map(show));
    }
    lines
}

/// Returns the rule in words, as in `docs/protocol.md`.
fn meaning(invariant: &str) -> &str {
    match invariant {
        "I1" => "at most one claim has authority at any instant",
        "I2" => "authority comes only from an acknowledged write, counted from before it was sent",
        "I3" => "the token grows with every acquisition and is never reused",
        "I4" => "file, HTTP and metrics say \"not leader\" by valid_until",
        "I5" => "a supervised child is gone by its deadline",
        "I6" => "release only after the workload is gone",
        "I7" => "an unknown outcome never grants or extends",
        "I8" => "a follower writes only with a cause",
        "I9" => "no wall clock decides anything",
        "I10" => "somebody leads when nothing is in the way",
        "I11" => "no foreign document is overwritten, and every queue is bounded",
        "assertion" => "the code asserts what only a bug can break",
        rule => rule,
    }
}

/// Describes a candidate in one line of the header.
pub(super) fn candidate(machine: &Machine) -> String {
    let t = machine.tunables.timings;
    let workload = match machine.confirms_within {
        Some(within) => format!("confirms within {:.3} s", within as f64 / SECOND as f64),
        None => "never confirms".to_owned(),
    };
    format!(
        "m{} {}: lease_duration {:?}, renew_deadline {:?}, renew_interval {:?}, retry_interval \
         {:?}, operation_timeout {:?}, handoff_delay {:?}, clock at {:.3}, {}, its workload {workload}",
        machine.boot,
        machine.identity,
        t.lease_duration(),
        t.renew_deadline(),
        t.renew_interval(),
        t.retry_interval(),
        t.operation_timeout(),
        machine.tunables.handoff_delay,
        machine.rate as f64 / 1000.0,
        if machine.streams {
            "change streams"
        } else {
            "polls"
        },
    )
}

/// Describes the content of a status directory for a process that starts.
pub(super) fn memory(memory: &Memory) -> String {
    let Memory {
        claim,
        token,
        lease_longest,
        informed: _,
    } = memory;
    let claim = claim.map_or(String::new(), |claim| {
        format!(", proven dead: {}", short(claim))
    });
    let longest = lease_longest.map_or(String::new(), |longest| {
        format!(", longest lease {longest:?}")
    });
    format!("token {token}{longest}{claim}")
}

/// Describes a committed write and its writer.
pub(super) fn committed(committed: &Committed) -> String {
    let by = match committed.by {
        Writer::Process(process) => format!("p{process}"),
        Writer::Operator => "a person".to_owned(),
    };
    let now = match &committed.after.document {
        Document::Missing => "[missing]".to_owned(),
        Document::Lease(it) => lease(it),
        Document::Foreign => "[foreign]".to_owned(),
    };
    format!("== a majority has what {by} wrote: {now}")
}

pub(super) fn transition(transition: &Transition) -> String {
    let Transition {
        from,
        to,
        reason,
        token,
        lasted,
    } = transition;
    let reason = reason.map_or(String::new(), |reason| format!(" ({reason})"));
    let token = token.map_or(String::new(), |token| format!(", token {token}"));
    format!("is {to}{reason}{token}; it was {from} for {lasted:?}")
}

fn short(id: impl std::fmt::Display) -> String {
    id.to_string().chars().take(6).collect()
}

fn lease(lease: &Lease) -> String {
    let holder = lease.holder.as_ref().map_or("nobody".to_owned(), |h| {
        format!("{}/{}", h.identity, short(h.claim))
    });
    let paused = if lease.paused { " paused" } else { "" };
    let (token, revision) = (lease.token, short(lease.revision));
    format!("[token {token} rev {revision} holder {holder}{paused}]")
}

fn found(found: &Found) -> String {
    match found {
        Found::Lease(it) => lease(it),
        Found::Missing => "[missing]".to_owned(),
        Found::Foreign(_) => "[foreign]".to_owned(),
    }
}

pub(super) fn input(input: &Input) -> String {
    match input {
        Input::Reply { call, outcome } => match outcome {
            Outcome::Applied(it) => format!("#{call} applied {}", found(it)),
            other => format!("#{call} {}", other.as_str()),
        },
        Input::Watch(Watch::Changed(it)) => format!("event {}", lease(it)),
        other => format!("{other:?}"),
    }
}

pub(super) fn operation(operation: &Operation) -> String {
    match operation {
        Operation::Create { .. } => "create".to_owned(),
        Operation::Acquire(new) => format!(
            "acquire token {} claim {} rev {} on {}",
            new.token,
            short(new.claim),
            short(new.revision),
            short(new.expected)
        ),
        Operation::TakeOver {
            acquisition: new, ..
        } => format!(
            "take over token {} claim {} rev {} on {}",
            new.token,
            short(new.claim),
            short(new.revision),
            short(new.expected)
        ),
        Operation::Renew {
            claim,
            revision,
            chain,
        } => {
            let chain: Vec<_> = chain.iter().map(short).collect();
            format!(
                "renew {} rev {} on {chain:?}",
                short(claim),
                short(revision)
            )
        }
        Operation::Release { claim, chain, .. } => {
            let chain: Vec<_> = chain.iter().map(short).collect();
            format!("release {} on {chain:?}", short(claim))
        }
        Operation::Read { confirm } => format!("read{}", if *confirm { " to confirm" } else { "" }),
    }
}

#[test]
fn long_stretches_of_routine_are_one_line_but_not_at_the_end() {
    let renewals = |n: u64| (0..n).map(|i| (i * SECOND, format!("p0 sends #{i} renew ab")));
    let mut trace: Vec<_> = renewals(100).collect();
    trace.push((100 * SECOND, "p0 is gone".to_owned()));
    trace.extend(renewals(20));
    let lines = shortened(&trace);
    assert_eq!(lines.len(), ROUTINE_MAX + 1 + 1 + 20, "{lines:#?}");
    assert!(lines[ROUTINE_MAX / 2].contains("92 lines"), "{lines:#?}");
}
