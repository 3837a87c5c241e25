//! The progress of a request, from the changes of the lease.
//!
//! This module has no IO and reads no clock.

use std::time::Duration;

use super::super::OperatorRequest;
use super::super::outcome::{CommandOutcome, Leader};
use super::super::render::request;
use super::decide::{is_standing, withdrawn, words};
use leasehold_core::election::{BootTime, Claim, Revision, Token};
use leasehold_host::exit;
use leasehold_mongodb::store::mongo::operators::{ActionId, ActionKind, ActionRecord, LeaseRecord};

/// The progress of a request.
pub(super) enum RequestProgress {
    /// No effect yet.
    Pending,
    /// The effect, or the reason why there will be none.
    Done(CommandOutcome),
}

/// A request that was sent.
pub(super) struct Progress {
    kind: OperatorRequest,
    sent: BootTime,
    /// The holder at the time of the request.
    former: Option<Former>,
    /// The action in the document. Events that do not show it yet are older than the request.
    awaited: Option<ActionId>,
    /// The latest action when the request was recorded: the request itself, or a later one than an
    /// equal request.
    latest: Option<[u8; 16]>,
    /// True once the former holder no longer holds the lease.
    released: bool,
    /// True while the lease cannot be read.
    blind: bool,
    withdrawn: String,
}

struct Former {
    claim: Claim,
    token: Option<Token>,
    identity: String,
    revision: Revision,
    /// True once a renewal was seen after the request.
    renewed: bool,
    unchanged_since: BootTime,
    lease_duration: Duration,
}

impl Progress {
    /// A request that was sent at this time to a lease in this state, as this action; `None`
    /// if the document contains it already.
    pub(super) fn new(
        kind: &OperatorRequest,
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
                token: lease.holder_token(),
                identity: shown.identity.to_string(),
                revision: lease.lease.revision,
                renewed: false,
                unchanged_since: sent,
                lease_duration: holder.lease_duration.duration(),
            }),
            awaited: action,
            latest: match action {
                Some(action) => Some(action.bytes()),
                None => lease.actions.last().and_then(|action| action.id),
            },
            released: false,
            blind: false,
            withdrawn: withdrawn(lease),
        }
    }

    /// Records the lease at this time; `None` if it was deleted.
    pub(super) fn observe(&mut self, lease: Option<&LeaseRecord>, at: BootTime) -> RequestProgress {
        let Some(lease) = lease else {
            return self.failed("deleted", at, "the lease was deleted");
        };
        self.blind = false;
        if let Some(awaited) = self.awaited {
            let mut actions = lease.actions.iter();
            if !actions.any(|action| action.id == Some(awaited.bytes())) {
                return RequestProgress::Pending;
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
        let resumes = self.kind == OperatorRequest::Resume && renews;
        match &self.kind {
            OperatorRequest::Cancel => {
                let message = format!("request withdrawn; {}", self.withdrawn);
                RequestProgress::Done(CommandOutcome::plain("done", exit::DONE, message))
            }
            OperatorRequest::Pause if !lease.lease.paused => {
                let by = self.author(lease, &ActionKind::Resume);
                self.failed("superseded", at, &format!("it was resumed meanwhile{by}"))
            }
            OperatorRequest::Pause if holder.is_none() => match &self.former {
                Some(former) => self.done(
                    at,
                    format!("paused; {} stepped down", former.identity),
                    None,
                ),
                None => self.done(at, "paused; nobody led".to_owned(), None),
            },
            OperatorRequest::Resume if lease.lease.paused => {
                let by = self.author(lease, &ActionKind::Pause);
                self.failed(
                    "superseded",
                    at,
                    &format!("it was paused again meanwhile{by}"),
                )
            }
            OperatorRequest::StepDown | OperatorRequest::Transfer { .. }
                if self.released && holder.is_none() && lease.lease.paused =>
            {
                let by = self.author(lease, &ActionKind::Pause);
                let message = format!("it was paused meanwhile{by}, so no candidate leads");
                self.failed("superseded", at, &message)
            }
            OperatorRequest::StepDown | OperatorRequest::Transfer { .. }
                if !self.released && !is_standing(&self.kind, lease) =>
            {
                let how = match (self.overruled(lease), &lease.request) {
                    (Some(how), _) => how,
                    (None, Some(other)) => {
                        format!("another request replaced it: {}", request(other))
                    }
                    (None, None) => "the request was withdrawn meanwhile".to_owned(),
                };
                let message = format!("{how}; the leader may have begun to apply it before");
                self.failed("superseded", at, &message)
            }
            OperatorRequest::Transfer { to, .. }
                if successor.is_some_and(|holder| holder.identity != *to) =>
            {
                let leader = leader(lease);
                let leads = leads(leader.as_ref());
                let message = match self.overruled(lease) {
                    Some(how) => format!("{how}; {leads}"),
                    None => format!("{leads}, since {to} did not acquire it in time"),
                };
                self.failed("superseded", at, &message)
            }
            OperatorRequest::Resume
            | OperatorRequest::StepDown
            | OperatorRequest::Transfer { .. }
                if successor.is_some() || (resumes && holder.is_some()) =>
            {
                let leader = leader(lease);
                self.done(at, leads(leader.as_ref()), leader)
            }
            _ => RequestProgress::Pending,
        }
    }

    /// Returns the actions that were recorded after the request, oldest first.
    fn later<'a>(&self, lease: &'a LeaseRecord) -> &'a [ActionRecord] {
        let is_latest = |action: &ActionRecord| action.id.is_some() && action.id == self.latest;
        let after = lease.actions.iter().rposition(is_latest);
        let after = after.map_or(0, |at| at.saturating_add(1));
        lease.actions.get(after..).unwrap_or_default()
    }

    /// Returns how another operator has cancelled or replaced the request, if that is recorded.
    fn overruled(&self, lease: &LeaseRecord) -> Option<String> {
        let former = self.former.as_ref()?;
        let (step_down, transfer) = (ActionKind::StepDown.as_str(), "transfer");
        for action in self.later(lease) {
            let by = action.by.as_deref().unwrap_or("another operator");
            match action.action.as_str() {
                kind if kind == ActionKind::Cancel.as_str() => {
                    return Some(format!("{by} cancelled the request"));
                }
                // A request to the next leader.
                kind if kind == step_down || kind == transfer => {
                    if action.token != former.token {
                        return None;
                    }
                    let other = match &action.to {
                        Some(to) => format!("transfer to {to}"),
                        None => "step-down".to_owned(),
                    };
                    if other != words(&self.kind) {
                        return Some(format!("{by} replaced the request with a {other}"));
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// Names the author of the latest action of a kind since the request, as " by NAME", or
    /// returns nothing.
    fn author(&self, lease: &LeaseRecord, kind: &ActionKind) -> String {
        let mut later = self.later(lease).iter().rev();
        let action = later.find(|action| action.action == kind.as_str());
        let by = action.and_then(|action| action.by.as_ref());
        by.map_or_else(String::new, |by| format!(" by {by}"))
    }

    /// Records that changes before this time may not have been seen.
    pub(super) fn lose_sight(&mut self, now: BootTime) {
        self.blind = true;
        if let Some(former) = &mut self.former {
            former.unchanged_since = now;
        }
    }

    /// Returns when a holder that does not renew expires, if a pause waits for that.
    pub(super) fn expires(&self) -> Option<BootTime> {
        let former = self
            .former
            .as_ref()
            .filter(|_| self.kind == OperatorRequest::Pause)?;
        Some(former.unchanged_since + former.lease_duration)
    }

    /// Returns true once the holder has released the lease.
    pub(super) fn is_released(&self) -> bool {
        self.released
    }

    /// Returns true if the holder has not renewed for its lease duration, as far as was seen.
    pub(super) fn has_expired(&self, now: BootTime) -> bool {
        let former = self.former.as_ref().filter(|_| !self.released);
        former.is_some_and(|former| now.since(former.unchanged_since) >= former.lease_duration)
    }

    /// Records that time has passed without a change.
    pub(super) fn tick(&mut self, now: BootTime) -> RequestProgress {
        match (self.expires(), &self.former) {
            (Some(expires), Some(former)) if expires <= now => {
                let message = format!(
                    "paused; {} has not renewed for its lease duration, and no candidate takes over",
                    former.identity
                );
                self.done(now, message, None)
            }
            _ => RequestProgress::Pending,
        }
    }

    /// Returns the outcome of a request without an effect so far.
    pub(super) fn under_way(&self, waited: Duration, now: BootTime) -> CommandOutcome {
        let expired = self.has_expired(now);
        let waited = humantime::format_duration(waited);
        let message = match (&self.former, self.released, &self.kind) {
            (_, _, kind) if self.blind => format!(
                "{} under way: the lease cannot be read, so no change was seen within {waited}; leasehold \
                 describe shows it",
                words(kind)
            ),
            (_, _, OperatorRequest::Resume) => {
                format!("resumed; no candidate has acquired it within {waited}")
            }
            (Some(former), false, kind) if expired => format!(
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
        CommandOutcome::plain("under_way", exit::UNDER_WAY, message)
    }

    fn done(&self, at: BootTime, message: String, leader: Option<Leader>) -> RequestProgress {
        let took = at.since(self.sent);
        RequestProgress::Done(CommandOutcome {
            result: "done",
            message: format!("{message}, {} after the request", milliseconds(took)),
            code: exit::DONE,
            took: Some(took),
            leader,
        })
    }

    fn failed(&self, result: &'static str, at: BootTime, message: &str) -> RequestProgress {
        RequestProgress::Done(CommandOutcome {
            took: Some(at.since(self.sent)),
            ..CommandOutcome::plain(result, exit::NEGATIVE, message.to_owned())
        })
    }
}

/// Returns the current holder.
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
