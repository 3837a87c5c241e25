use super::cluster::Machine;
use super::document::{Committed, Document, Writer};
use super::files::RecoveredState;
use crate::election::{Acquisition, Found, Input, Lease, Operation, Outcome, Transition, Watch};
use crate::proof::sim::SECOND;
use crate::proof::sim::report::follows;

pub(super) const LEGEND: &str = "each line: true time, process, event; p1 is the second process \
that was started, m its machine, d its status directory; -- marks a fault, == the store";

/// A trace line with one of these texts is routine: a renewal, or a read or an event around a
/// renewal.
pub(super) const ROUTINE: &[&str] = &[
    " renew ",
    " applied [",
    "== a majority has",
    " event [",
    "Alive",
    " read",
];

/// Returns the rule of an invariant, shortened from `docs/protocol.md`. Other rules are returned
/// unchanged.
pub(super) fn meaning(invariant: &'static str) -> &'static str {
    match invariant {
        "I1" => "at most one claim has authority at any instant",
        "I2" => "authority comes only from an acknowledged write, counted from before it was sent",
        "I3" => "the token grows with every acquisition and is never reused",
        "I4" => "file, HTTP and metrics say \"not leader\" by valid_until",
        "I5" => "a supervised child is gone by its deadline plus loss_grace",
        "I6" => "release only after the workload is gone",
        "I7" => "an unknown outcome never grants or extends authority",
        "I8" => "a follower writes only with a cause",
        "I9" => "no wall clock decides anything",
        "I10" => "a candidate leads within the bound once the faults have ended",
        "I11" => "no foreign document is overwritten, and every queue is bounded",
        "assertion" => "an assertion in the code failed",
        rule => rule,
    }
}

pub(super) fn candidate(machine: &Machine) -> String {
    let t = machine.tunables.timings;
    let workload = match machine.confirms_within {
        Some(within) => format!("confirms within {:.3} s", within as f64 / SECOND as f64),
        None => "never confirms".to_owned(),
    };
    format!(
        "m{} {}: lease_duration {:?}, renew_deadline {:?}, renew_interval {:?}, retry_interval \
         {:?}, operation_timeout {:?}, handoff_delay {:?}, priority {}, prefers {:?}, clock at {:.3}, \
         {}, its workload {workload}",
        machine.boot,
        machine.identity,
        t.lease_duration(),
        t.renew_deadline(),
        t.renew_interval(),
        t.retry_interval(),
        t.operation_timeout(),
        machine.tunables.handoff_delay,
        machine.priority,
        machine.tunables.prefer_interval,
        machine.clock.rate as f64 / 1000.0,
        follows(machine.streams),
    )
}

pub(super) fn memory(memory: &RecoveredState) -> String {
    let RecoveredState {
        claim,
        token,
        lease_longest,
        informed: _,
    } = memory;
    let claim = claim.map(|claim| format!(", proven dead: {}", short(claim)));
    let longest = lease_longest.map(|longest| format!(", longest lease {longest:?}"));
    let (claim, longest) = (claim.unwrap_or_default(), longest.unwrap_or_default());
    format!("token {token}{longest}{claim}")
}

pub(super) fn committed(committed: &Committed) -> String {
    let by = match committed.write {
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
            Outcome::Rejected => format!("#{call} rejected"),
            Outcome::Failed => format!("#{call} failed"),
            Outcome::PrimaryOnly => format!("#{call} acknowledged by the primary"),
            Outcome::Unknown => format!("#{call} unknown"),
        },
        Input::Watch(Watch::Changed(it)) => format!("event {}", lease(it)),
        other => format!("{other:?}"),
    }
}

pub(super) fn operation(operation: &Operation) -> String {
    match operation {
        Operation::Create { .. } => "create".to_owned(),
        Operation::Acquire(new) => acquisition("acquire", new),
        Operation::TakeOver {
            acquisition: new, ..
        } => acquisition("take over", new),
        Operation::Renew {
            claim,
            revision,
            chain,
        } => {
            let chain: Vec<_> = chain.iter().map(short).collect();
            let (claim, revision) = (short(claim), short(revision));
            format!("renew {claim} rev {revision} on {chain:?}")
        }
        Operation::Release { claim, chain, .. } => {
            let chain: Vec<_> = chain.iter().map(short).collect();
            format!("release {} on {chain:?}", short(claim))
        }
        Operation::Register { holder, .. } => format!("register with {}", short(holder)),
        Operation::Withdraw { .. } => "withdraw".to_owned(),
        Operation::Read { confirm } => format!("read{}", if *confirm { " to confirm" } else { "" }),
    }
}

fn acquisition(name: &str, new: &Acquisition) -> String {
    format!(
        "{name} token {} claim {} rev {} on {}",
        new.token,
        short(new.claim),
        short(new.revision),
        short(new.expected)
    )
}
