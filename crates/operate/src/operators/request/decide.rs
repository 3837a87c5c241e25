//! Checks a request against the current lease. A request that makes no sense is answered, and
//! nothing is written.

use super::super::OperatorRequest;
use super::super::outcome::CommandOutcome;
use super::super::render::because;
use leasehold_core::election::{Identity, RequestKind as Requested, Token};
use leasehold_host::exit;
use leasehold_mongodb::store::mongo::operators::{LeaseRecord, RequestEffect};

/// The decision on a request.
pub(super) enum RequestDecision {
    /// Write it.
    Write,
    /// The same request stands already: only wait for its effect.
    Await,
    /// The candidate that a transfer names holds it in the document: find out if it renews.
    Observe(Identity),
    /// Answer, without a write.
    Answer(CommandOutcome),
}

/// Decides on a request. Refuses it if the operator has `seen` a token other than the current
/// token.
pub(super) fn decide(
    kind: &OperatorRequest,
    seen: Option<Token>,
    lease: &LeaseRecord,
) -> RequestDecision {
    let holder = lease.holder.as_ref().map(|holder| holder.identity.as_str());
    let paused = lease.lease.paused;
    let refused = |message: String| {
        let message = format!("{message}; nothing written");
        RequestDecision::Answer(CommandOutcome::plain("refused", exit::NEGATIVE, message))
    };
    let already = |message: String| {
        let message = format!("{message}; nothing written");
        RequestDecision::Answer(CommandOutcome::plain("already", exit::DONE, message))
    };
    let token = lease.lease.token;
    if let Some(seen) = seen.filter(|seen| *seen != token) {
        return refused(format!("its token is now {token}, not {seen}"));
    }
    match (kind, holder) {
        (OperatorRequest::StepDown | OperatorRequest::Transfer { .. }, None) if paused => {
            refused("it is paused, so nobody leads".to_owned())
        }
        (OperatorRequest::StepDown, None) => refused("nobody leads".to_owned()),
        (OperatorRequest::Transfer { to, .. }, None) => refused(format!(
            "nobody leads, so there is nobody to hand over to {to}"
        )),
        (OperatorRequest::Transfer { to, .. }, Some(_)) if is_holder(lease, to.as_str()) => {
            RequestDecision::Observe(to.clone())
        }
        (OperatorRequest::StepDown | OperatorRequest::Transfer { .. }, Some(_)) => {
            match is_standing(kind, lease) {
                true => RequestDecision::Await,
                false => RequestDecision::Write,
            }
        }
        (OperatorRequest::Pause, None) if paused => already("it is paused already".to_owned()),
        (OperatorRequest::Pause, Some(_)) if paused => RequestDecision::Await,
        (OperatorRequest::Pause, _) => RequestDecision::Write,
        (OperatorRequest::Resume, _) if !paused => already("it is not paused".to_owned()),
        (OperatorRequest::Resume, _) => RequestDecision::Write,
        (OperatorRequest::Cancel, _) if lease.request.is_none() => {
            refused("no request to cancel".to_owned())
        }
        (OperatorRequest::Cancel, _) => RequestDecision::Write,
    }
}

/// Returns true if this candidate holds the lease.
pub(super) fn is_holder(lease: &LeaseRecord, identity: &str) -> bool {
    let holder = lease.held_by();
    holder.is_some_and(|holder| holder.identity.as_str() == identity)
}

/// Returns true if the same request stands and has an effect.
pub(super) fn is_standing(kind: &OperatorRequest, lease: &LeaseRecord) -> bool {
    if lease.effect() != Some(RequestEffect::Effective) {
        return false;
    }
    let standing = lease
        .request
        .as_ref()
        .and_then(|request| request.request.as_ref().ok());
    match (kind, standing.map(|request| &request.kind)) {
        (OperatorRequest::StepDown, Some(Requested::StepDown)) => true,
        (OperatorRequest::Transfer { to, .. }, Some(Requested::Transfer(reservation))) => {
            reservation.identity == *to
        }
        _ => false,
    }
}

/// Names a request.
pub(super) fn words(kind: &OperatorRequest) -> String {
    match kind {
        OperatorRequest::StepDown => "step-down".to_owned(),
        OperatorRequest::Transfer { to, .. } => format!("transfer to {to}"),
        OperatorRequest::Pause => "pause".to_owned(),
        OperatorRequest::Resume => "resumption".to_owned(),
        OperatorRequest::Cancel => "cancellation".to_owned(),
    }
}

/// Describes a request that was withdrawn.
pub(super) fn withdrawn(lease: &LeaseRecord) -> String {
    match lease.effect() {
        Some(RequestEffect::Effective) | None => "the holder may have begun to apply it".to_owned(),
        Some(effect) => format!("it had no effect: {}", because(effect)),
    }
}
