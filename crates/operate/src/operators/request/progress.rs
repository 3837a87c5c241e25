//! Follows the progress of a request. Uses neither IO nor a clock.

use std::time::Duration;

use super::super::observed::{Evidence, Liveness, Silence};
use super::super::render::{end_reason, ineffective, is_done, request, short};
use super::super::roll_call::{Roll, names};
use super::super::{CommandOutcome, Leader, RequestResult};
use super::decision::{is_standing, words};
use leasehold_core::election::{BootTime, Identity, WallMillis};
use leasehold_host::duration::shown;
use leasehold_mongodb::store::mongo::operators::{ActionId, ActionKind, ActionRecord, LeaseRecord};

pub(super) struct Progress {
    kind: ActionKind,
    sent: BootTime,
    before: LeaseRecord,
    /// Time since the former holder's last renewal or since the request, whichever is shorter.
    silence: Silence,
    renewed_at: WallMillis,
    /// The id of the request's action; `None` once an event has contained this action. All earlier
    /// events are older than the request.
    awaited: Option<ActionId>,
    /// The newest action when the request was recorded: the request's own action, or, if an equal
    /// request was already pending, the newest action in `before`.
    latest: Option<[u8; 16]>,
    /// Instant at which the former holder was first seen to have released the lease.
    released: Option<BootTime>,
    /// The candidate that the released lease was reserved for, if the reservation was seen.
    reserved_for: Option<Identity>,
    blind: bool,
    /// The command's own roll call, made after the request.
    pub(super) roll_call: Option<ActionId>,
    /// True if the roll call was seen. From then on, all answers are newer than the request.
    is_called: bool,
    /// The evidence at the time of the request if the holder was late or seemed to be gone.
    pub(super) doubt: Option<Evidence>,
}

impl Progress {
    /// `before` is the lease at the time `sent`. `action` is `None` if the lease already contained
    /// an equal request.
    pub(super) fn new(
        kind: &ActionKind,
        before: &LeaseRecord,
        sent: BootTime,
        action: Option<ActionId>,
    ) -> Self {
        let last = before.actions.last();
        Self {
            kind: kind.clone(),
            sent,
            before: before.clone(),
            silence: Silence::new(Some(before.lease.revision), sent),
            renewed_at: renewed_at(before),
            awaited: action,
            latest: action.map(ActionId::bytes).or_else(|| last?.id),
            released: None,
            reserved_for: None,
            blind: false,
            roll_call: None,
            is_called: false,
            doubt: None,
        }
    }

    /// Records a new state of the lease (`None` if it was deleted). Returns the outcome once it is
    /// certain.
    pub(super) fn observe(
        &mut self,
        lease: Option<&LeaseRecord>,
        at: BootTime,
    ) -> Option<CommandOutcome> {
        let Some(lease) = lease else {
            let deleted = CommandOutcome::new(RequestResult::Deleted, "the lease was deleted");
            return Some(deleted.after(at.since(self.sent)));
        };
        self.blind = false;
        if self.kind == ActionKind::Cancel {
            // The applied write is the whole effect, so there is no change to wait for.
            return Some(self.cancelled(at));
        }
        if let Some(awaited) = self.awaited {
            let mut actions = lease.actions.iter();
            if !actions.any(|action| action.id == Some(awaited.bytes())) {
                return None;
            }
            self.awaited = None;
        }
        self.silence.observe(Some(lease.lease.revision), at);
        self.renewed_at = renewed_at(lease);
        let (holder, paused) = (lease.held_by(), lease.lease.paused);
        let former = self.before.held_by().map(|holder| holder.claim);
        let successor = holder.filter(|holder| Some(holder.claim) != former);
        if former.is_some() && (holder.is_none() || successor.is_some()) {
            self.released.get_or_insert(at);
            let reserved_for = lease.lease.reserved_for.as_ref();
            let reserved_for = reserved_for.map(|it| it.identity.clone());
            self.reserved_for = reserved_for.or(self.reserved_for.take());
        }
        let found = lease.roll_call.as_ref().map(|call| call.id);
        self.is_called |= found.is_some() && found == self.roll_call.map(ActionId::bytes);
        // A renewal does not prove that a holder from before the pause still leads, because a
        // holder that steps down renews until it releases the lease. Only the holder's answer to a
        // roll call proves that it still leads.
        let steps_down = ![ActionKind::Pause, ActionKind::Resume].contains(&self.kind);
        match &self.kind {
            ActionKind::Pause if !paused => {
                let by = self.author(lease, &ActionKind::Resume);
                self.superseded(at, format!("in the meantime, it was resumed{by}"))
            }
            ActionKind::Pause if holder.is_none() => {
                let Some(former) = self.former() else {
                    let message = "paused; nobody led".to_owned();
                    let outcome = CommandOutcome::new(RequestResult::Done, message);
                    return Some(outcome.after(at.since(self.sent)));
                };
                self.done(at, format!("paused; {former} stepped down"), None)
            }
            ActionKind::Resume if paused => {
                let by = self.author(lease, &ActionKind::Pause);
                self.superseded(at, format!("in the meantime, it was paused again{by}"))
            }
            ActionKind::Resume if successor.is_none() && self.leads_on(lease) => {
                let leader = leader(lease)?;
                let message = format!(
                    "{} still leads with token {}",
                    leader.identity, leader.token
                );
                self.done(at, message, Some(leader))
            }
            _ if steps_down && self.is_released() && holder.is_none() && paused => {
                let by = self.author(lease, &ActionKind::Pause);
                let how = format!("in the meantime, it was paused{by}, so no candidate leads");
                self.superseded(at, how)
            }
            kind if steps_down && !self.is_released() && !is_standing(kind, lease) => {
                let how = match (self.overruled(lease), &lease.request) {
                    (Some(how), _) => how,
                    (None, Some(it)) => format!("another request replaced it: {}", request(it)),
                    (None, None) => "in the meantime, the request was withdrawn".to_owned(),
                };
                let how = how + "; the leader may have begun to apply it before";
                self.superseded(at, how)
            }
            ActionKind::Transfer { to, .. }
                if successor.is_some_and(|holder| holder.identity != *to) =>
            {
                let leads = self::leads(leader(lease).as_ref());
                let how = match self.overruled(lease) {
                    Some(how) => format!("{how}; {leads}"),
                    None => format!("{leads}{}", self.missed(lease, to)),
                };
                self.superseded(at, how)
            }
            ActionKind::StepDown if successor.is_some() && self.acquired_again(lease) => {
                let leads = self::leads(leader(lease).as_ref());
                self.superseded(
                    at,
                    format!(
                        "{leads}: the holder acquired the lease again instead of stepping down"
                    ),
                )
            }
            ActionKind::Resume | ActionKind::StepDown | ActionKind::Transfer { .. }
                if successor.is_some() =>
            {
                let leader = leader(lease);
                self.done(at, self::leads(leader.as_ref()), leader)
            }
            _ => None,
        }
    }

    /// Returns true if the holder has reported since the request that it leads.
    fn leads_on(&self, lease: &LeaseRecord) -> bool {
        let calls = lease.roll_call.iter().filter(|_| self.is_called);
        let mut answers = calls.flat_map(|call| &call.present);
        let holder = lease.held_by().map(|holder| &holder.identity);
        answers.any(|it| {
            Some(&it.identity) == holder
                && it.leads_with.is_some()
                && it.leads_with == lease.holder_token()
        })
    }

    pub(super) fn former(&self) -> Option<&Identity> {
        self.before.holder.as_ref().map(|holder| &holder.identity)
    }

    fn cancelled(&self, at: BootTime) -> CommandOutcome {
        let doubt = self.former().zip(self.doubt);
        let gone = doubt.filter(|(_, doubt)| doubt.is_silent());
        let effect = match (ineffective(&self.before), gone) {
            (Some(why), _) => format!("it had no effect: {why}"),
            (None, _) if is_done(&self.before) => "it was done already".to_owned(),
            (None, Some((former, _))) => format!("{former} has not applied it"),
            (None, None) => "the holder may have begun to apply it".to_owned(),
        };
        let holder = doubt.map(|(former, it)| format!("; {former} is {}", it.words(None, at)));
        let message = format!("request withdrawn; {effect}{}", holder.unwrap_or_default());
        let outcome = CommandOutcome::new(RequestResult::Done, message);
        outcome.with_evidence(self.doubt.as_ref(), None)
    }

    /// Returns the recorded reason why the former holder's leadership ended.
    fn reason<'a>(&self, lease: &'a LeaseRecord) -> Option<&'a str> {
        let mut ended = lease.history.iter().rev();
        let ended = ended.find(|ended| ended.token == self.before.holder_token());
        ended.and_then(end_reason)
    }

    /// Returns true if the former holder leads again, and no request ended its former leadership.
    fn acquired_again(&self, lease: &LeaseRecord) -> bool {
        let reason = self.reason(lease).unwrap_or("requested");
        let holder = lease.holder.as_ref().map(|holder| &holder.identity);
        holder == self.former() && !["requested", "transferred"].contains(&reason)
    }

    /// Describes why a candidate other than `to` leads, as far as the lease shows the reason.
    fn missed(&self, lease: &LeaseRecord, to: &Identity) -> String {
        let Some((former, reason)) = self.former().zip(self.reason(lease)) else {
            return format!(", not {to}");
        };
        let earlier = self.before.request.as_ref().and_then(|it| it.to.as_ref());
        match (reason, &self.reserved_for) {
            ("requested", _) => format!(": {former} was already applying an earlier step-down"),
            ("transferred", Some(other)) if other != to => {
                format!(": {former} was already applying an earlier transfer to {other}")
            }
            // If the reservation was not seen, this transfer or the earlier transfer may have been
            // applied.
            ("transferred", None) if earlier.is_some_and(|it| it != to.as_str()) => {
                format!(", not {to}")
            }
            ("transferred", _) => format!(", since {to} did not acquire it in time"),
            (reason, _) => format!(
                ": {former} did not apply the transfer; its leadership ended with the reason {reason}"
            ),
        }
    }

    fn later<'a>(&self, lease: &'a LeaseRecord) -> &'a [ActionRecord] {
        let is_latest = |action: &ActionRecord| action.id.is_some() && action.id == self.latest;
        let after = lease.actions.iter().rposition(is_latest);
        let after = after.map_or(0, |at| at.saturating_add(1));
        lease.actions.get(after..).unwrap_or_default()
    }

    /// If another operator has cancelled or replaced the request, describes how.
    fn overruled(&self, lease: &LeaseRecord) -> Option<String> {
        for action in self.later(lease) {
            let by = action.by.as_deref().unwrap_or("another operator");
            let other = match (action.action.as_str(), &action.to) {
                ("cancel", _) => return Some(format!("{by} cancelled the request")),
                ("step_down" | "transfer", Some(to)) => format!("transfer to {to}"),
                ("step_down" | "transfer", None) => "step-down".to_owned(),
                _ => continue,
            };
            // An action for a different token does not concern this request.
            if action.token != self.before.holder_token() {
                return None;
            }
            if other != words(&self.kind) {
                return Some(format!("{by} replaced the request with a {other}"));
            }
        }
        None
    }

    /// Returns " by NAME" for the author of the latest action of a kind since the request; empty if
    /// unknown.
    fn author(&self, lease: &LeaseRecord, kind: &ActionKind) -> String {
        let mut later = self.later(lease).iter().rev();
        let action = later.find(|action| action.action == kind.as_str());
        let by = action.and_then(|action| action.by.as_ref());
        by.map_or_else(String::new, |by| format!(" by {by}"))
    }

    /// Records that changes before this time may have been missed.
    pub(super) fn lose_sight(&mut self, now: BootTime) {
        self.blind = true;
        self.silence.lose_sight(now);
    }

    /// Returns the instant at which the lease expires if the holder does not renew the lease. Only
    /// a pause waits for this instant; returns `None` for other requests.
    pub(super) fn expires(&self) -> Option<BootTime> {
        let duration = self.before.lease_duration();
        let duration = duration.filter(|_| self.kind == ActionKind::Pause)?;
        Some(self.silence.expires(duration))
    }

    pub(super) fn is_released(&self) -> bool {
        self.released.is_some()
    }

    pub(super) fn has_expired(&self, now: BootTime) -> bool {
        let duration = self.before.lease_duration().filter(|_| !self.is_released());
        duration.is_some_and(|it| self.silence.liveness(it, now) == Liveness::Expired)
    }

    pub(super) fn tick(&mut self, now: BootTime) -> Option<CommandOutcome> {
        let former = self.former()?;
        if self.expires()? > now {
            return None;
        }
        let message = format!(
            "paused; {former} has not renewed for its lease duration, and no candidate takes over"
        );
        self.done(now, message, None)
    }

    /// Returns the evidence on the candidate that held the lease when the request was sent, until
    /// this candidate has released the lease.
    pub(super) fn evidence(&self, now: BootTime, wall: WallMillis) -> Option<Evidence> {
        let duration = self
            .before
            .lease_duration()
            .filter(|_| !self.is_released())?;
        let (silence, renewed_at) = (self.silence, self.renewed_at);
        Some(Evidence::new(silence, renewed_at, duration, now, wall))
    }

    /// Returns the outcome of a request that has had no effect yet.
    pub(super) fn under_way(
        &self,
        waited: Duration,
        (now, wall): (BootTime, WallMillis),
        roll: Option<&Roll>,
    ) -> CommandOutcome {
        let (waited, words) = (short(waited), words(&self.kind));
        let evidence = self.evidence(now, wall);
        let gone = evidence.filter(|evidence| evidence.liveness != Liveness::Renews);
        let message = match (self.former(), gone) {
            _ if self.blind => format!(
                "{words} under way: the lease cannot be read, so no change was seen within {waited}; leasehold \
                 describe shows it"
            ),
            (former, gone) if self.kind == ActionKind::Resume => {
                let holder = match (former.filter(|_| !self.is_released()), gone) {
                    (Some(former), Some(gone)) => {
                        format!("; {former} is {}", gone.words(roll, now))
                    }
                    (Some(former), None) => format!(
                        "; {former} still holds the lease, and may be stepping down for the earlier pause"
                    ),
                    (None, _) => String::new(),
                };
                format!("resumed{holder}; no candidate has acquired the lease within {waited}")
            }
            (Some(former), _) if self.is_released() => {
                let others = self.others(former, roll, now);
                format!(
                    "{former} stepped down; no candidate has acquired the lease within {waited}{others}"
                )
            }
            (Some(former), Some(gone)) => {
                let gone = gone.words(roll, now);
                match self.kind {
                    ActionKind::Pause => format!(
                        "paused; {former} is {gone}; no candidate takes over, and {former} steps down if it recovers"
                    ),
                    _ => format!(
                        "no {words} within {waited}: {former} is {gone}; the request stays in case {former} \
                         recovers; the next leader removes it"
                    ),
                }
            }
            (Some(former), None) => format!(
                "{words} under way: {former} still holds the lease after {waited}; {}. It releases the lease when \
                 its workload has ended",
                evidence.map_or_else(String::new, |evidence| evidence.last_write(now))
            ),
            (None, _) => format!("{words} under way"),
        };
        let outcome = CommandOutcome::new(RequestResult::UnderWay, message);
        outcome.with_evidence(evidence.as_ref(), roll)
    }

    /// Describes the candidates other than the former holder, and when the former holder may lead
    /// again.
    fn others(&self, former: &Identity, roll: Option<&Roll>, now: BootTime) -> String {
        let others = match roll {
            Some(Roll::Answered(present)) => {
                let others = present.iter().filter(|it| it.identity != *former);
                match names(&others.cloned().collect::<Vec<_>>()).as_str() {
                    "none" => "; no other candidate answers".to_owned(),
                    others => format!("; answers came from: {others}"),
                }
            }
            _ => String::new(),
        };
        // After a requested step-down, the former leader does not contend for one lease duration.
        let again = self.released.zip(self.before.lease_duration());
        let again = again.map(|(released, lasts)| (released + lasts).since(now));
        match again.filter(|again| !again.is_zero()) {
            Some(again) => format!("{others}; {former} may lead again in {}", short(again)),
            None => others,
        }
    }

    fn done(
        &self,
        at: BootTime,
        message: String,
        leader: Option<Leader>,
    ) -> Option<CommandOutcome> {
        let took = at.since(self.sent);
        let message = format!("{message}, {} after the request", shown(took));
        let outcome = CommandOutcome::new(RequestResult::Done, message).after(took);
        Some(CommandOutcome { leader, ..outcome })
    }

    fn superseded(&self, at: BootTime, how: String) -> Option<CommandOutcome> {
        let outcome = CommandOutcome::new(RequestResult::Superseded, how);
        Some(outcome.after(at.since(self.sent)))
    }
}

fn renewed_at(lease: &LeaseRecord) -> WallMillis {
    lease
        .holder
        .as_ref()
        .map_or_else(WallMillis::default, |holder| holder.renewed_at)
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
        None => "no candidate leads".to_owned(),
    }
}
