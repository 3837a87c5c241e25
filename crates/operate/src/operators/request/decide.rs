//! Checks a request against the current lease. A request that makes no sense is answered, and
//! nothing is written.

use super::super::RequestKind;
use super::super::outcome::Outcome;
use super::super::render::because;
use leasehold_core::election::{Identity, RequestKind as Requested, Token};
use leasehold_host::exit;
use leasehold_mongodb::store::mongo::operators::{LeaseRecord, RequestEffect};

/// The decision on a request.
pub(super) enum Decision {
    /// Write it.
    Write,
    /// The same request stands already: only wait for its effect.
    Await,
    /// The candidate that a transfer names holds it in the document: find out if it renews.
    Observe(Identity),
    /// Answer, without a write.
    Answer(Outcome),
}

/// Decides on a request. Refuses it if the operator has `seen` a token other than the current
/// token.
pub(super) fn decide(kind: &RequestKind, seen: Option<Token>, lease: &LeaseRecord) -> Decision {
    let holder = lease.holder.as_ref().map(|holder| holder.identity.as_str());
    let paused = lease.lease.paused;
    let refused = |message: String| {
        let message = format!("{message}; nothing written");
        Decision::Answer(Outcome::plain("refused", exit::NEGATIVE, message))
    };
    let already = |message: String| {
        let message = format!("{message}; nothing written");
        Decision::Answer(Outcome::plain("already", exit::DONE, message))
    };
    let token = lease.lease.token;
    if let Some(seen) = seen.filter(|seen| *seen != token) {
        return refused(format!("its token is now {token}, not {seen}"));
    }
    match (kind, holder) {
        (RequestKind::StepDown | RequestKind::Transfer { .. }, None) if paused => {
            refused("it is paused, so nobody leads".to_owned())
        }
        (RequestKind::StepDown, None) => refused("nobody leads".to_owned()),
        (RequestKind::Transfer { to, .. }, None) => refused(format!(
            "nobody leads, so there is nobody to hand over to {to}"
        )),
        (RequestKind::Transfer { to, .. }, Some(_)) if is_holder(lease, to.as_str()) => {
            Decision::Observe(to.clone())
        }
        (RequestKind::StepDown | RequestKind::Transfer { .. }, Some(_)) => {
            match is_standing(kind, lease) {
                true => Decision::Await,
                false => Decision::Write,
            }
        }
        (RequestKind::Pause, None) if paused => already("it is paused already".to_owned()),
        (RequestKind::Pause, Some(_)) if paused => Decision::Await,
        (RequestKind::Pause, _) => Decision::Write,
        (RequestKind::Resume, _) if !paused => already("it is not paused".to_owned()),
        (RequestKind::Resume, _) => Decision::Write,
        (RequestKind::Cancel, _) if lease.request.is_none() => {
            refused("no request to cancel".to_owned())
        }
        (RequestKind::Cancel, _) => Decision::Write,
    }
}

/// Returns true if this candidate holds the lease.
pub(super) fn is_holder(lease: &LeaseRecord, identity: &str) -> bool {
    let holder = lease.held_by();
    holder.is_some_and(|holder| holder.identity.as_str() == identity)
}

/// Returns true if the same request stands and has an effect.
pub(super) fn is_standing(kind: &RequestKind, lease: &LeaseRecord) -> bool {
    if lease.effect() != Some(RequestEffect::Effective) {
        return false;
    }
    let standing = lease
        .request
        .as_ref()
        .and_then(|request| request.request.as_ref().ok());
    match (kind, standing.map(|request| &request.kind)) {
        (RequestKind::StepDown, Some(Requested::StepDown)) => true,
        (RequestKind::Transfer { to, .. }, Some(Requested::Transfer(reservation))) => {
            reservation.identity == *to
        }
        _ => false,
    }
}

/// Names a request.
pub(super) fn words(kind: &RequestKind) -> String {
    match kind {
        RequestKind::StepDown => "step-down".to_owned(),
        RequestKind::Transfer { to, .. } => format!("transfer to {to}"),
        RequestKind::Pause => "pause".to_owned(),
        RequestKind::Resume => "resumption".to_owned(),
        RequestKind::Cancel => "cancellation".to_owned(),
    }
}

/// Describes a request that was withdrawn.
pub(super) fn withdrawn(lease: &LeaseRecord) -> String {
    match lease.effect() {
        Some(RequestEffect::Effective) | None => "the holder may have begun to apply it".to_owned(),
        Some(effect) => format!("it had no effect: {}", because(effect)),
    }
}
