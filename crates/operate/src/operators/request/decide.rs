//! Checks a request against the current lease. A request that makes no sense is answered, and
//! nothing is written.

use super::super::outcome::{CommandOutcome, RequestResult};
use super::super::render::ineffective;
use leasehold_core::election::{Identity, RequestKind as Requested, Token};
use leasehold_mongodb::store::mongo::operators::{ActionKind, LeaseRecord, RequestEffect};

pub(super) enum RequestDecision {
    /// Write it.
    Write,
    /// An equal request stands already: only wait for its effect.
    Await,
    /// The candidate of a transfer holds the lease in the document: find out if the candidate renews.
    Observe(Identity),
    /// Answer, without a write.
    Answer(CommandOutcome),
}

/// Decides on a request. Refuses it if the operator has `seen` a token other than the current
/// token.
pub(super) fn decide(
    kind: &ActionKind,
    seen: Option<Token>,
    lease: &LeaseRecord,
) -> RequestDecision {
    let (is_held, paused) = (lease.holder.is_some(), lease.lease.paused);
    let answer = |result, message: String| {
        let message = format!("{message}; nothing written");
        RequestDecision::Answer(CommandOutcome::new(result, message))
    };
    let refused = |message: String| answer(RequestResult::Refused, message);
    let already = |message: &str| answer(RequestResult::Already, message.to_owned());
    let token = lease.lease.token;
    if let Some(seen) = seen.filter(|seen| *seen != token) {
        return refused(format!("its token is now {token}, not {seen}"));
    }
    match kind {
        ActionKind::StepDown | ActionKind::Transfer { .. } if !is_held && paused => {
            refused("it is paused, so nobody leads".to_owned())
        }
        ActionKind::StepDown if !is_held => refused("nobody leads".to_owned()),
        ActionKind::Transfer { to, .. } if !is_held => {
            refused(format!("nobody leads, so no leader can hand over to {to}"))
        }
        ActionKind::Transfer { to, .. } if is_holder(lease, to) => {
            RequestDecision::Observe(to.clone())
        }
        ActionKind::Pause if paused && !is_held => already("it is paused already"),
        ActionKind::Pause if paused => RequestDecision::Await,
        ActionKind::Resume if !paused => already("it is not paused"),
        ActionKind::Cancel if lease.request.is_none() => refused("no request to cancel".to_owned()),
        _ if is_standing(kind, lease) => RequestDecision::Await,
        _ => RequestDecision::Write,
    }
}

pub(super) fn is_holder(lease: &LeaseRecord, identity: &Identity) -> bool {
    let holder = lease.held_by();
    holder.is_some_and(|holder| holder.identity == *identity)
}

/// Returns true if an equal request stands and has an effect.
pub(super) fn is_standing(kind: &ActionKind, lease: &LeaseRecord) -> bool {
    let standing = lease
        .request
        .as_ref()
        .and_then(|it| it.request.as_ref().ok());
    let is_same = match (kind, standing.map(|request| &request.kind)) {
        (ActionKind::StepDown, Some(Requested::StepDown)) => true,
        (ActionKind::Transfer { to, .. }, Some(Requested::Transfer(reservation))) => {
            reservation.identity == *to
        }
        _ => false,
    };
    is_same && lease.effect() == Some(RequestEffect::Effective)
}

pub(super) fn words(kind: &ActionKind) -> String {
    match kind {
        ActionKind::Transfer { to, .. } => format!("transfer to {to}"),
        ActionKind::Resume => "resumption".to_owned(),
        ActionKind::Cancel => "cancellation".to_owned(),
        kind => kind.as_str().replace('_', "-"),
    }
}

pub(super) fn withdrawn(lease: &LeaseRecord) -> String {
    match ineffective(lease) {
        None => "the holder may have begun to apply it".to_owned(),
        Some(why) => format!("it had no effect: {why}"),
    }
}
