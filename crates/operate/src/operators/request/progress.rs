//! The progress of a request, from the changes of the lease.
//!
//! This module has no IO and reads no clock.

use std::time::Duration;

use super::super::observed::{Liveness, Silence};
use super::super::outcome::{CommandOutcome, Leader, RequestResult};
use super::super::render::{request, short};
use super::decide::{is_standing, withdrawn, words};
use leasehold_core::election::{BootTime, Claim, Token};
use leasehold_mongodb::store::mongo::operators::{ActionId, ActionKind, ActionRecord, LeaseRecord};

/// A request that was sent.
pub(super) struct Progress {
    kind: ActionKind,
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
    /// The time without a renewal, since the request at most.
    silence: Silence,
    lease_duration: Duration,
}

impl Progress {
    /// A request that was sent at this time to a lease in this state, as this action; `None`
    /// if the document contains it already.
    pub(super) fn new(
        kind: &ActionKind,
        lease: &LeaseRecord,
        sent: BootTime,
        action: Option<ActionId>,
    ) -> Self {
        let holder = lease.held_by().zip(lease.holder.as_ref());
        let last = lease.actions.last();
        Self {
            kind: kind.clone(),
            sent,
            former: holder.map(|(holder, shown)| Former {
                claim: holder.claim,
                token: lease.holder_token(),
                identity: shown.identity.to_string(),
                silence: Silence::new(Some(lease.lease.revision), sent),
                lease_duration: holder.lease_duration.duration(),
            }),
            awaited: action,
            latest: action.map(ActionId::bytes).or_else(|| last?.id),
            released: false,
            blind: false,
            withdrawn: withdrawn(lease),
        }
    }

    /// Records the lease at this time; `None` if it was deleted. Returns the outcome, once there is
    /// one.
    pub(super) fn observe(
        &mut self,
        lease: Option<&LeaseRecord>,
        at: BootTime,
    ) -> Option<CommandOutcome> {
        let Some(lease) = lease else {
            return self.failed(RequestResult::Deleted, at, "the lease was deleted");
        };
        self.blind = false;
        if let Some(awaited) = self.awaited {
            let mut actions = lease.actions.iter();
            if !actions.any(|action| action.id == Some(awaited.bytes())) {
                return None;
            }
            self.awaited = None;
        }
        if let Some(former) = &mut self.former {
            former.silence.observe(Some(lease.lease.revision), at);
        }
        let holder = lease.held_by();
        let former = self.former.as_ref().map(|former| former.claim);
        let successor = holder.filter(|holder| Some(holder.claim) != former);
        self.released |= former.is_some() && holder.is_none_or(|h| Some(h.claim) != former);
        // A holder that led before the pause may have exited meanwhile, so a renewal is awaited.
        let leads = match (&self.kind, &self.former) {
            (ActionKind::Resume, Some(former)) if former.silence.renewal_seen => holder,
            _ => successor,
        };
        match &self.kind {
            ActionKind::Cancel => {
                let message = format!("request withdrawn; {}", self.withdrawn);
                Some(CommandOutcome::new(RequestResult::Done, message))
            }
            ActionKind::Pause if !lease.lease.paused => {
                let by = self.author(lease, &ActionKind::Resume);
                self.superseded(at, &format!("it was resumed meanwhile{by}"))
            }
            ActionKind::Pause if holder.is_none() => {
                let how = match &self.former {
                    Some(former) => format!("{} stepped down", former.identity),
                    None => "nobody led".to_owned(),
                };
                self.done(at, format!("paused; {how}"), None)
            }
            ActionKind::Resume if lease.lease.paused => {
                let by = self.author(lease, &ActionKind::Pause);
                self.superseded(at, &format!("it was paused again meanwhile{by}"))
            }
            ActionKind::StepDown | ActionKind::Transfer { .. }
                if self.released && holder.is_none() && lease.lease.paused =>
            {
                let by = self.author(lease, &ActionKind::Pause);
                self.superseded(
                    at,
                    &format!("it was paused meanwhile{by}, so no candidate leads"),
                )
            }
            ActionKind::StepDown | ActionKind::Transfer { .. }
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
                self.superseded(at, &message)
            }
            ActionKind::Transfer { to, .. }
                if successor.is_some_and(|holder| holder.identity != *to) =>
            {
                let leads = self::leads(leader(lease).as_ref());
                let message = match self.overruled(lease) {
                    Some(how) => format!("{how}; {leads}"),
                    None => format!("{leads}, since {to} did not acquire it in time"),
                };
                self.superseded(at, &message)
            }
            ActionKind::Resume | ActionKind::StepDown | ActionKind::Transfer { .. }
                if leads.is_some() =>
            {
                let leader = leader(lease);
                self.done(at, self::leads(leader.as_ref()), leader)
            }
            _ => None,
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
        for action in self.later(lease) {
            let by = action.by.as_deref().unwrap_or("another operator");
            let other = match (action.action.as_str(), &action.to) {
                ("cancel", _) => return Some(format!("{by} cancelled the request")),
                ("step_down" | "transfer", Some(to)) => format!("transfer to {to}"),
                ("step_down" | "transfer", None) => "step-down".to_owned(),
                _ => continue,
            };
            // A request to the next leader does not concern this one.
            if action.token != former.token {
                return None;
            }
            if other != words(&self.kind) {
                return Some(format!("{by} replaced the request with a {other}"));
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
            former.silence.lose_sight(now);
        }
    }

    /// Returns when a holder that does not renew expires, if a pause waits for that.
    pub(super) fn expires(&self) -> Option<BootTime> {
        let former = self
            .former
            .as_ref()
            .filter(|_| self.kind == ActionKind::Pause)?;
        Some(former.silence.expires(former.lease_duration))
    }

    pub(super) fn is_released(&self) -> bool {
        self.released
    }

    /// Returns true if the holder has not renewed for its lease duration, as far as was seen.
    pub(super) fn has_expired(&self, now: BootTime) -> bool {
        let former = self.former.as_ref().filter(|_| !self.released);
        former.is_some_and(|it| it.silence.liveness(it.lease_duration, now) == Liveness::Expired)
    }

    /// Returns the outcome of a pause whose holder has expired by now without a change.
    pub(super) fn tick(&mut self, now: BootTime) -> Option<CommandOutcome> {
        let former = self.former.as_ref()?;
        if self.expires()? > now {
            return None;
        }
        let message = format!(
            "paused; {} has not renewed for its lease duration, and no candidate takes over",
            former.identity
        );
        self.done(now, message, None)
    }

    /// Returns the outcome of a request without an effect so far.
    pub(super) fn under_way(&self, waited: Duration, now: BootTime) -> CommandOutcome {
        let (waited, words) = (short(waited), words(&self.kind));
        let message = match &self.former {
            _ if self.blind => format!(
                "{words} under way: the lease cannot be read, so no change was seen within {waited}; leasehold \
                 describe shows it"
            ),
            _ if self.kind == ActionKind::Resume => {
                format!("resumed; no candidate has acquired it within {waited}")
            }
            Some(former) if self.released => format!(
                "{} stepped down; no candidate has acquired it within {waited}",
                former.identity
            ),
            Some(former) if self.has_expired(now) => format!(
                "{words} under way: {} has not renewed for its lease duration and has expired, and no \
                 candidate has taken over within {waited}",
                former.identity
            ),
            Some(former) => format!(
                "{words} under way: {} still holds it after {waited}. It releases the lease when its \
                 workload has ended; leasehold describe shows whether it renews",
                former.identity
            ),
            None => format!("{words} under way"),
        };
        CommandOutcome::new(RequestResult::UnderWay, message)
    }

    fn done(
        &self,
        at: BootTime,
        message: String,
        leader: Option<Leader>,
    ) -> Option<CommandOutcome> {
        let took = at.since(self.sent);
        // With a tenth of a millisecond below a second.
        let time = match took.as_secs() {
            0 => format!("{:.1} ms", took.as_secs_f64() * 1e3),
            _ => format!("{:.2} s", took.as_secs_f64()),
        };
        let message = format!("{message}, {time} after the request");
        let outcome = CommandOutcome::new(RequestResult::Done, message).after(took);
        Some(CommandOutcome { leader, ..outcome })
    }

    fn superseded(&self, at: BootTime, message: &str) -> Option<CommandOutcome> {
        self.failed(RequestResult::Superseded, at, message)
    }

    fn failed(&self, result: RequestResult, at: BootTime, message: &str) -> Option<CommandOutcome> {
        Some(CommandOutcome::new(result, message).after(at.since(self.sent)))
    }
}

fn leader(lease: &LeaseRecord) -> Option<Leader> {
    Some(Leader {
        identity: lease.holder.as_ref()?.identity.to_string(),
        token: lease.holder_token()?.get(),
    })
}

fn leads(leader: Option<&Leader>) -> String {
    match leader {
        Some(Leader { identity, token }) => format!("{identity} leads with token {token}"),
        None => "nobody leads".to_owned(),
    }
}
