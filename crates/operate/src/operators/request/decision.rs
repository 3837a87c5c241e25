//! Decides whether a request is written. Uses neither IO nor a clock.

use super::super::observed::Evidence;
use super::super::render::request;
use super::super::{CommandOutcome, describing, hinted};
use leasehold_core::election::{BootTime, Identity, RequestKind, ResourceName, Token};
use leasehold_mongodb::store::mongo::operators::{ActionKind, LeaseRecord, RequestEffect};

pub(super) enum RequestDecision {
    Write,
    /// An equal request is already pending. The command only waits for its effect.
    Await,
    /// The target of a transfer already holds the lease. The command checks that the holder renews.
    Observe(Identity),
    Answer(CommandOutcome),
}

/// Describes the holder that has not applied a recorded request, as text to append to a line.
pub(super) fn unapplied(
    kind: &ActionKind,
    lease: &LeaseRecord,
    doubt: Option<&Evidence>,
    now: BootTime,
) -> String {
    match (&lease.holder, doubt) {
        (Some(holder), Some(doubt)) => {
            format!("; {} is {}", holder.identity, doubt.words(None, now))
        }
        (Some(holder), None) if *kind == ActionKind::Pause => {
            format!("; {} has not stepped down", holder.identity)
        }
        (Some(_), None) | (None, _) => String::new(),
    }
}

/// Decides on a request. Refuses it if `seen` is given and differs from the current token.
pub(super) fn decide(
    name: &ResourceName,
    kind: &ActionKind,
    seen: Option<Token>,
    lease: &LeaseRecord,
) -> RequestDecision {
    use RequestDecision::{Answer, Await, Observe, Write};

    let (is_held, paused) = (lease.holder.is_some(), lease.lease.paused);
    let refused = |why: String, next: &str| {
        Answer(CommandOutcome::refused(format!(
            "{why}; nothing written{next}"
        )))
    };
    let resume = format!("; to fix: {}", hinted(&format!("resume {name}")));
    let describe = format!("; {} shows the lease", describing(name));
    let already = |why: &str| Answer(CommandOutcome::already(format!("{why}; nothing written")));
    let token = lease.lease.token;
    if let Some(seen) = seen.filter(|seen| *seen != token) {
        return refused(format!("the token is now {token}, not {seen}"), "");
    }
    if lease.is_retired() {
        // Any action would end the retirement.
        return refused("retired, so no candidate leads".to_owned(), &describe);
    }
    match kind {
        ActionKind::StepDown | ActionKind::Transfer { .. } if paused => {
            let why = match lease.held_by() {
                Some(holder) => format!(
                    "paused, so no candidate takes over from {}",
                    holder.identity
                ),
                None => "paused, so no candidate leads".to_owned(),
            };
            refused(why, &resume)
        }
        ActionKind::StepDown if !is_held => refused("no candidate leads".to_owned(), &describe),
        ActionKind::Transfer { to, .. } if !is_held => refused(
            format!("no candidate leads, so no leader can hand over to {to}"),
            &describe,
        ),
        ActionKind::Transfer { to, .. } if is_holder(lease, to) => Observe(to.clone()),
        ActionKind::Pause if paused && !is_held => already("paused already"),
        ActionKind::Pause if paused => Await,
        ActionKind::Resume if !paused => already("it is not paused"),
        ActionKind::Cancel if lease.request.is_none() => already("no request to cancel"),
        _ if is_standing(kind, lease) => Await,
        _ => Write,
    }
}

pub(super) fn is_holder(lease: &LeaseRecord, identity: &Identity) -> bool {
    let holder = lease.held_by();
    holder.is_some_and(|holder| holder.identity == *identity)
}

/// Returns the outcome of a transfer whose target already holds the lease and still renews.
pub(super) fn held_by_target(
    name: &ResourceName,
    kind: &ActionKind,
    lease: &LeaseRecord,
    to: &Identity,
) -> CommandOutcome {
    match &lease.request {
        // The holder may be applying the pending request, and renews until it releases the lease.
        Some(it) if is_effective(lease) && !is_standing(kind, lease) => {
            CommandOutcome::refused(format!(
                "{to} holds the lease, but was asked to step down: {}; nothing written; wait for the next leader, or \
                 withdraw the request: {}",
                request(it),
                hinted(&format!("cancel {name}"))
            ))
        }
        _ => CommandOutcome::already(format!("{to} holds it already; nothing written")),
    }
}

/// Returns true if an equal request is pending and will have an effect.
pub(super) fn is_standing(kind: &ActionKind, lease: &LeaseRecord) -> bool {
    let standing = lease
        .request
        .as_ref()
        .and_then(|it| it.request.as_ref().ok());
    let is_equal = standing.is_some_and(|request| match (kind, &request.kind) {
        (ActionKind::StepDown, RequestKind::StepDown) => true,
        (ActionKind::Transfer { to, .. }, RequestKind::Transfer(of)) => of.identity == *to,
        _ => false,
    });
    is_equal && is_effective(lease)
}

fn is_effective(lease: &LeaseRecord) -> bool {
    lease.effect() == Some(RequestEffect::Effective)
}

pub(super) fn words(kind: &ActionKind) -> String {
    match kind {
        ActionKind::Transfer { to, .. } => format!("transfer to {to}"),
        ActionKind::Resume => "resumption".to_owned(),
        ActionKind::Cancel => "cancellation".to_owned(),
        kind => kind.as_str().replace('_', "-"),
    }
}
