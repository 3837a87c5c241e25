use std::fmt::Write as _;

use super::SECOND;
use super::faults::Kind as _;
use super::invariants::Violation;
use super::planted::Bug as _;
use super::run::{Ran, Setup, run};
use super::with;
use super::world::Protocol;

/// Maximum length of a sequence of routine lines. The report shortens a longer sequence.
const ROUTINE_MAX: usize = 8;

fn traced<P: Protocol>(setup: &Setup<P::Fault>) -> Ran<P> {
    run(&with(setup.clone(), |it| it.traced = true))
}

pub(super) fn good<P: Protocol>(setup: &Setup<P::Fault>, lines: usize) -> String {
    let mut text = format!("seed {}: every invariant holds\n", setup.seed);
    text += &body(&traced::<P>(setup), lines);
    text
}

pub(super) fn failed<P: Protocol>(
    setup: &Setup<P::Fault>,
    smallest: &Setup<P::Fault>,
    violation: &Violation,
    lines: usize,
) -> String {
    let ran = traced::<P>(smallest);
    let invariant = violation.invariant;
    let meaning = P::meaning(invariant);
    let mut text = format!("seed {}: {invariant} is broken: {meaning}\n", setup.seed);
    if smallest.faults.is_some() {
        text += "this is the smallest violating run that was found: fewer kinds of faults, fewer \
        planned faults, fewer candidates\n";
    }
    text += &body(&ran, lines);
    let evidence = &ran.violation.as_ref().unwrap_or(violation).evidence;
    let after = ran.lasted as f64 / SECOND as f64;
    let _ = writeln!(text, "after {after:.3} s {invariant} is broken: {meaning}");
    let _ = writeln!(text, "    {evidence}");
    let _ = write!(text, "again: {} SEED={}", P::REPLAY, setup.seed);
    if let Some(mutation) = P::Mutation::active() {
        let _ = write!(text, " MUTATION={mutation:?}");
    }
    text
}

pub(super) fn follows(streams: bool) -> &'static str {
    if streams { "change streams" } else { "polls" }
}

fn body<P: Protocol>(ran: &Ran<P>, lines: usize) -> String {
    let mut text = String::from("candidates\n");
    for machine in &ran.machines {
        let _ = writeln!(text, "    {machine}");
    }
    let faults = ran.faults.list();
    let (kinds, troubles) = (faults.len(), ran.planned.len());
    let _ = writeln!(text, "{kinds} kinds of faults, {troubles} planned faults");
    for fault in faults {
        let _ = writeln!(text, "    {:<16} {}", format!("{fault:?}"), fault.words());
    }
    let _ = writeln!(text, "{}", P::LEGEND);
    let from = ran.trace.len().saturating_sub(lines);
    if from > 0 {
        let _ = writeln!(text, "    … {from} lines before ({} shows them)", P::REPLAY);
    }
    for line in shortened(&ran.trace[from..], P::ROUTINE) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Returns the trace without long sequences of routine lines. Keeps the first and last lines of
/// each long sequence, and the whole sequence at the end of the trace. One line replaces the other
/// lines of a sequence.
fn shortened(trace: &[(u64, String)], routine: &[&str]) -> Vec<String> {
    let show =
        |(at, line): &(u64, String)| format!("{:>9.3} s  {line}", *at as f64 / SECOND as f64);
    let routine = |(_, line): &(u64, String)| routine.iter().any(|part| line.contains(part));
    let mut lines = Vec::new();
    for stretch in trace.chunk_by(|a, b| routine(a) && routine(b)) {
        let last = trace
            .last()
            .is_some_and(|l| std::ptr::eq(l, &raw const stretch[stretch.len() - 1]));
        if last || stretch.len() <= ROUTINE_MAX {
            lines.extend(stretch.iter().map(show));
            continue;
        }
        let left_out = stretch.len() - ROUTINE_MAX / 2 * 2;
        let (begin, rest) = stretch.split_at(ROUTINE_MAX / 2);
        lines.extend(begin.iter().map(show));
        lines.push(format!(
            "             … {left_out} lines of renewals and reads"
        ));
        lines.extend(rest[left_out..].iter().map(show));
    }
    lines
}

#[test]
fn long_stretches_of_routine_are_one_line_but_not_at_the_end() {
    let renewals = |n: u64| (0..n).map(|i| (i * SECOND, format!("p0 sends #{i} renew ab")));
    let mut trace: Vec<_> = renewals(100).collect();
    trace.push((100 * SECOND, "p0 is gone".to_owned()));
    trace.extend(renewals(20));
    let lines = shortened(&trace, &[" renew "]);
    assert_eq!(lines.len(), ROUTINE_MAX + 1 + 1 + 20, "{lines:#?}");
    assert!(lines[ROUTINE_MAX / 2].contains("92 lines"), "{lines:#?}");
}
