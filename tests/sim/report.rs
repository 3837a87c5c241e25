//! Words for a trace.

use crate::election::{Found, Input, Lease, Operation, Outcome, Watch};

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
