//! The progress of a request, from the changes of the lease.
//!
//! This module has no IO and reads no clock.

use std::time::Duration;

use super::super::RequestKind;
use super::super::outcome::{Leader, Outcome};
use super::decide::{withdrawn, words};
use crate::election::{BootTime, Claim, Revision};
use crate::exit;
use crate::store::mongo::operators::{ActionId, LeaseRecord};

/// The progress of a request.
pub(super) enum Step {
    /// No effect yet.
    Pending,
    /// The effect, or the reason why there will be none.
    Done(Outcome),
}

/// A request that was sent.
pub(super) struct Progress {
    kind: RequestKind,
    sent: BootTime,
    /// The holder at the time of the request.
    former: Option<Former>,
    /// The action in the document. Events that do not show it yet are older than the request.
    awaited: Option<ActionId>,
    /// True once the former holder no longer holds the lease.
    released: bool,
    withdrawn: String,
}

struct Former {
    claim: Claim,
    identity: String,
    revision: Revision,
    /// True once a renewal was seen after the request.
    renewed: bool,
    unchanged_since: BootTime,
    lease_duration: Duration,
}

impl Progress {
    /// A request that was sent at this time to a lease that was seen so, as this action; `None`
    /// if the document contains it already.
    pub(super) fn new(
        kind: &RequestKind,
        lease: &LeaseRecord,
        sent: BootTime,
        action: Option<ActionId>,
    ) -> Self {
        let holder = lease.held_by().zip(lease.holder.as_ref());
        Self {
            kind: kind.clone(),
            sent,
            former: holder.map(|(holder, shown)| Former {
                claim: holder.claim,
                identity: shown.identity.to_string(),
                revision: lease.lease.revision,
                renewed: false,
                unchanged_since: sent,
                lease_duration: holder.lease_duration.duration(),
            }),
            awaited: action,
            released: false,
            withdrawn: withdrawn(lease),
        }
    }

    /// Records the lease as it is at this time; `None` if it was deleted.
    pub(super) fn observe(&mut self, lease: Option<&LeaseRecord>, at: BootTime) -> Step {
        let Some(lease) = lease else {
            return self.failed("deleted", at, "the lease was deleted");
        };
        if let Some(awaited) = self.awaited {
            let mut actions = lease.actions.iter();
            if !actions.any(|action| action.id == Some(awaited.bytes())) {
                return Step::Pending;
            }
            self.awaited = None;
        }
        if let Some(former) = &mut self.former
            && former.revision != lease.lease.revision
        {
            former.revision = lease.lease.revision;
            former.renewed = true;
            former.unchanged_since = at;
        }
        let holder = lease.held_by();
        let former = self.former.as_ref().map(|former| former.claim);
        let successor = holder.filter(|holder| Some(holder.claim) != former);
        self.released |= former.is_some() && holder.is_none_or(|h| Some(h.claim) != former);
        // A holder that led before the pause may have exited meanwhile, so a renewal is awaited.
        let renews = self.former.as_ref().is_some_and(|former| former.renewed);
        let resumes = self.kind == RequestKind::Resume && renews;
        match &self.kind {
            RequestKind::Cancel => {
                let message = format!("request withdrawn; {}", self.withdrawn);
                Step::Done(Outcome::plain("done", exit::DONE, message))
            }
            RequestKind::Pause if !lease.lease.paused => {
                self.failed("superseded", at, "it was resumed meanwhile")
            }
            RequestKind::Pause if holder.is_none() => match &self.former {
                Some(former) => self.done(
                    at,
                    format!("paused; {} stepped down", former.identity),
                    None,
                ),
                None => self.done(at, "paused; nobody led".to_owned(), None),
            },
            RequestKind::Resume if lease.lease.paused => {
                self.failed("superseded", at, "it was paused again meanwhile")
            }
            RequestKind::StepDown | RequestKind::Transfer { .. }
                if self.released && holder.is_none() && lease.lease.paused =>
            {
                self.failed(
                    "superseded",
                    at,
                    "it was paused meanwhile, so no candidate leads",
                )
            }
            RequestKind::StepDown | RequestKind::Transfer { .. }
                if !self.released && lease.request.is_none() =>
            {
                self.failed("superseded", at, "the request was withdrawn meanwhile")
            }
            RequestKind::Transfer { to, .. }
                if successor.is_some_and(|holder| holder.identity != *to) =>
            {
                let leader = leader(lease);
                let leads = leads(leader.as_ref());
                self.failed(
                    "superseded",
                    at,
                    &format!("{leads}, since {to} did not acquire it in time"),
                )
            }
            RequestKind::Resume | RequestKind::StepDown | RequestKind::Transfer { .. }
                if successor.is_some() || (resumes && holder.is_some()) =>
            {
                let leader = leader(lease);
                self.done(at, leads(leader.as_ref()), leader)
            }
            _ => Step::Pending,
        }
    }

    /// Records that changes before this time may not have been seen.
    pub(super) fn lose_sight(&mut self, now: BootTime) {
        if let Some(former) = &mut self.former {
            former.unchanged_since = now;
        }
    }

    /// Returns when a holder that does not renew expires, if a pause waits for that.
    pub(super) fn expires(&self) -> Option<BootTime> {
        let former = self
            .former
            .as_ref()
            .filter(|_| self.kind == RequestKind::Pause)?;
        Some(former.unchanged_since + former.lease_duration)
    }

    /// Records that time has passed without a change.
    pub(super) fn tick(&mut self, now: BootTime) -> Step {
        match (self.expires(), &self.former) {
            (Some(expires), Some(former)) if expires <= now => {
                let message = format!(
                    "paused; {} has not renewed for its lease duration, and no candidate takes over",
                    former.identity
                );
                self.done(now, message, None)
            }
            _ => Step::Pending,
        }
    }

    /// Returns the outcome of a request without an effect so far.
    pub(super) fn under_way(&self, waited: Duration, now: BootTime) -> Outcome {
        let silent = |former: &Former| now.since(former.unchanged_since) >= former.lease_duration;
        let waited = humantime::format_duration(waited);
        let message = match (&self.former, self.released, &self.kind) {
            (_, _, RequestKind::Resume) => {
                format!("resumed; no candidate has acquired it within {waited}")
            }
            (Some(former), false, kind) if silent(former) => format!(
                "{} under way: {} has not renewed for its lease duration and has expired, and no \
                 candidate has taken over within {waited}",
                words(kind),
                former.identity
            ),
            (Some(former), true, _) => format!(
                "{} stepped down; no candidate has acquired it within {waited}",
                former.identity
            ),
            (Some(former), false, kind) => format!(
                "{} under way: {} still holds it after {waited}. It releases the lease when its \
                 workload has ended; leasehold describe shows whether it renews",
                words(kind),
                former.identity
            ),
            (None, _, kind) => format!("{} under way", words(kind)),
        };
        Outcome::plain("under_way", exit::UNDER_WAY, message)
    }

    fn done(&self, at: BootTime, message: String, leader: Option<Leader>) -> Step {
        let took = at.since(self.sent);
        Step::Done(Outcome {
            result: "done",
            message: format!("{message}, {} after the request", milliseconds(took)),
            code: exit::DONE,
            took: Some(took),
            leader,
        })
    }

    fn failed(&self, result: &'static str, at: BootTime, message: &str) -> Step {
        Step::Done(Outcome {
            took: Some(at.since(self.sent)),
            ..Outcome::plain(result, exit::NEGATIVE, message.to_owned())
        })
    }
}

/// Returns the present holder.
fn leader(lease: &LeaseRecord) -> Option<Leader> {
    let holder = lease.holder.as_ref()?;
    Some(Leader {
        identity: holder.identity.to_string(),
        token: lease.holder_token()?,
    })
}

fn leads(leader: Option<&Leader>) -> String {
    match leader {
        Some(Leader { identity, token }) => format!("{identity} leads with token {token}"),
        None => "nobody leads".to_owned(),
    }
}

/// Formats a time with a tenth of a millisecond below a second.
fn milliseconds(took: Duration) -> String {
    match took.as_secs() {
        0 => format!("{:.1} ms", took.as_secs_f64() * 1e3),
        _ => format!("{:.2} s", took.as_secs_f64()),
    }
}
