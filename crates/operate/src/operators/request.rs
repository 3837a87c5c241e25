//! `leasehold step-down`, `transfer`, `pause`, `resume` and `cancel`. Each command changes the
//! lease with one write and, unless `--no-wait` is given, waits for the effect.

mod decision;
mod progress;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use self::decision::{RequestDecision, decide, held_by_target, is_holder, unapplied, words};
use self::progress::Progress;
use super::observed::{Evidence, Followed, lease, shown, wall};
use super::render::short;
use super::roll_call::{self, ANSWER_MAX, names};
use super::{
    CommandOutcome, OperatorError, RequestArgs, RequestResult, Session, did_you_mean, hinted, say,
    system,
};
use leasehold_cli::connecting;
use leasehold_clock as clock;
use leasehold_core::election::{BootTime, Identity, ResourceName, Timings};
use leasehold_host::CommandError;
use leasehold_host::signals::{Exit, Stops};
use leasehold_mongodb::randomness::KernelRandomness;
use leasehold_mongodb::store::mongo::operators::{
    Acted, ActionId, ActionKind, LeaseRecord, Present, Scope, ViewEvent,
};
use leasehold_mongodb::store::{Answer, Failure, RetryPolicy};

/// Minimum wait for a renewal: the default renewal interval plus a second.
const OBSERVE_MIN: Duration = Duration::from_secs(4);
const DOING: &str = "write the request";

#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    Deciding,
    /// The request may have been written.
    Writing,
    /// The request is in the document, and the lease had this holder.
    Recorded(Option<Identity>),
    SteppedDown,
}

pub(super) struct PendingRequest<'a> {
    session: &'a Session,
    args: &'a RequestArgs,
    stage: watch::Sender<Stage>,
    note: fn(&str),
}

pub(super) async fn run(session: &Session, args: RequestArgs) -> Result<Exit, CommandError> {
    let mut stops = Stops::register().map_err(system("register the signal handlers"))?;
    let (name, kind) = (&args.name, &args.action.kind);
    let request = PendingRequest::new(session, &args, say);
    tokio::select! {
        outcome = request.perform() => outcome?.print(session, name, kind.as_str()),
        stop = stops.next() => {
            let known = interrupted(&request.stage.borrow(), kind, name);
            say(&format!("{stop} received; lease {name}: {known}"));
            Ok(stop.into())
        }
    }
}

/// Describes the state of a request when this command stops waiting, and how to withdraw the
/// request.
fn interrupted(stage: &Stage, kind: &ActionKind, name: &ResourceName) -> String {
    let hinted = |command: &str| hinted(&format!("{command} {name}"));
    let (describe, cancel) = (hinted("describe"), hinted("cancel"));
    match (stage, kind) {
        (Stage::Deciding, _) => "nothing written".to_owned(),
        (Stage::Writing, ActionKind::StepDown | ActionKind::Transfer { .. }) => format!(
            "the request may have been recorded; {describe} shows it, {cancel} withdraws it"
        ),
        (Stage::Writing, _) => {
            format!("the change may have been written; {describe} shows the lease")
        }
        (Stage::Recorded(Some(holder)), ActionKind::Pause) => format!(
            "pause requested; {holder} has not stepped down{}",
            undo(kind, name)
        ),
        (_, ActionKind::Pause) => format!("paused{}", undo(kind, name)),
        (_, ActionKind::Resume) => format!("resumed{}", undo(kind, name)),
        (_, ActionKind::Cancel) => "request withdrawn".to_owned(),
        (Stage::Recorded(_), _) => {
            format!("the request stands, and the leader may still apply it; {cancel} withdraws it")
        }
        (Stage::SteppedDown, _) => format!(
            "the leader has stepped down, so the request cannot be withdrawn; {describe} shows the next leader"
        ),
    }
}

/// Returns the command that reverses a request, as text to append to a line.
fn undo(kind: &ActionKind, name: &ResourceName) -> String {
    let (what, command) = match kind {
        ActionKind::StepDown | ActionKind::Transfer { .. } => ("to withdraw it", "cancel"),
        ActionKind::Pause => ("to undo", "resume"),
        ActionKind::Resume => ("to undo", "pause"),
        _ => return String::new(),
    };
    format!("; {what}: {}", hinted(&format!("{command} {name}")))
}

/// Describes what the command waits for.
fn awaited(stage: &Stage, kind: &ActionKind) -> String {
    match (stage, kind) {
        (_, ActionKind::Resume) => "resumed; waiting for the next leader".to_owned(),
        (Stage::Recorded(Some(holder)), _) => {
            format!("requested; waiting for {holder} to step down")
        }
        _ => "the leader has stepped down; waiting for the next leader".to_owned(),
    }
}

/// Returns the maximum wait for a renewal of a holder with this lease duration.
fn observe_max(lease_duration: Duration) -> Duration {
    (lease_duration / 4).max(OBSERVE_MIN)
}

enum Written {
    /// The write was sent at this time. The action's id is `None` if another operator's equal
    /// request is already pending.
    At(BootTime, Option<ActionId>),
    /// The lease changed, so the request is obsolete.
    Rejected(CommandOutcome),
}

impl<'a> PendingRequest<'a> {
    pub(super) fn new(session: &'a Session, args: &'a RequestArgs, note: fn(&str)) -> Self {
        Self {
            session,
            args,
            stage: watch::Sender::new(Stage::Deciding),
            note,
        }
    }

    pub(super) async fn perform(&self) -> Result<CommandOutcome, OperatorError> {
        let (name, kind) = (&self.args.name, &self.args.action.kind);
        let scope = Scope::One(name.clone());
        let mut followed = self.session.follow(scope, "read the lease").await?;
        let seen = followed.observed.one().map(|seen| &seen.entry);
        let mut lease = self.session.lease(name, seen).await?;
        let doubtful = self.doubtful(&followed);
        let silent = doubtful.as_ref().filter(|(_, it)| it.is_silent());
        let decided = decide(name, kind, self.args.seen, &lease);
        let writes = matches!(decided, RequestDecision::Await | RequestDecision::Write);
        // If the command does not wait, its answer contains the evidence.
        let noted = self.needed(doubtful.as_ref());
        if let Some((holder, evidence)) = noted.filter(|_| writes && self.args.wait) {
            let words = evidence.words(None, clock::boot_now());
            (self.note)(&format!("lease {name}: {holder} is {words}"));
        }
        let (sent, id) = match decided {
            RequestDecision::Answer(outcome) => return Ok(outcome),
            RequestDecision::Observe(holder) => {
                let limit = observe_max(lease.lease_duration().unwrap_or_default());
                let renewed = self.held_already(&mut followed, &holder);
                let what = || format!("waiting for a renewal of {holder}");
                return Ok(connecting::announced(renewed, limit, self.note, what).await);
            }
            RequestDecision::Await => {
                self.warn(silent, "is already pending");
                (clock::boot_now(), None)
            }
            RequestDecision::Write => {
                if let Some(outcome) = self.no_candidate().await? {
                    return Ok(outcome);
                }
                match self.write(&mut lease).await? {
                    Written::At(sent, id) => {
                        self.warn(silent, "is recorded nevertheless");
                        (sent, id)
                    }
                    Written::Rejected(outcome) => return Ok(outcome),
                }
            }
        };
        if !self.args.wait {
            let (result, already) = match id {
                Some(_) => (RequestResult::Requested, ""),
                None => (RequestResult::Already, " already"),
            };
            let (evidence, now) = (doubtful.map(|(_, evidence)| evidence), clock::boot_now());
            let holder = unapplied(kind, &lease, evidence.as_ref(), now);
            let message = format!(
                "{} requested{already}{holder}{}",
                words(kind),
                undo(kind, name)
            );
            let outcome = CommandOutcome::new(result, message);
            return Ok(outcome.with_evidence(evidence.as_ref(), None));
        }
        if id.is_none() {
            (self.note)(&format!("lease {name}: already requested; waiting"));
        }
        let mut progress = Progress::new(kind, &lease, sent, id);
        progress.doubt = doubtful.as_ref().map(|(_, evidence)| *evidence);
        match progress.observe(Some(&lease), sent) {
            Some(outcome) => Ok(outcome),
            None => Ok(self.waited(&mut followed, progress, silent.is_some()).await),
        }
    }

    /// Returns the holder and the evidence if the holder is late or seems to be gone.
    fn doubtful(&self, followed: &Followed) -> Option<(Identity, Evidence)> {
        let (seen, lease) = followed.observed.lease()?;
        let evidence = seen
            .evidence(clock::boot_now())
            .filter(Evidence::is_doubtful)?;
        Some((lease.holder.as_ref()?.identity.clone(), evidence))
    }

    /// Returns this holder if the request depends on the holder.
    fn needed<'s>(
        &self,
        silent: Option<&'s (Identity, Evidence)>,
    ) -> Option<&'s (Identity, Evidence)> {
        use ActionKind::{Cancel, Resume};

        silent.filter(|_| ![Resume, Cancel].contains(&self.args.action.kind))
    }

    /// Warns that the holder is unresponsive. The request is recorded nevertheless, because clocks
    /// may be wrong: a live holder applies the request; otherwise, the next leader removes the
    /// request.
    fn warn(&self, silent: Option<&(Identity, Evidence)>, recorded: &str) {
        if let Some((holder, _)) = self.needed(silent) {
            let name = &self.args.name;
            let effect = match self.args.action.kind {
                ActionKind::Pause => "prevents a takeover".to_owned(),
                _ => format!("takes effect only if {holder} recovers"),
            };
            (self.note)(&format!(
                "lease {name}: the request {recorded}, and {effect}"
            ));
        }
    }

    /// Answers a transfer to the current holder. The holder may have exited, so this function waits
    /// until the holder renews or its renewal is late.
    async fn held_already(&self, followed: &mut Followed, to: &Identity) -> CommandOutcome {
        loop {
            let held = followed.observed.lease();
            let held = held.filter(|(_, lease)| is_holder(lease, to));
            let Some((silence, duration, lease)) =
                held.and_then(|(seen, lease)| Some((seen.silence, lease.lease_duration()?, lease)))
            else {
                let message = format!("{to} no longer holds the lease; nothing written");
                return CommandOutcome::refused(message);
            };
            if silence.renewal_seen {
                return held_by_target(&self.args.name, &self.args.action.kind, lease, to);
            }
            let now = clock::boot_now();
            let (lasts, observe) = (silence.lasts(now), observe_max(duration));
            if lasts >= observe || now >= self.session.deadline {
                let evidence = held.and_then(|(seen, _)| seen.evidence(now));
                let message = format!(
                    "{to} is recorded as the holder, but did not renew within {}, so {to} may have exited; {}; nothing written",
                    short(lasts),
                    evidence.map_or_else(String::new, |it| it.words(None, now)),
                );
                return CommandOutcome::refused(message).with_evidence(evidence.as_ref(), None);
            }
            let late = (now + observe.saturating_sub(lasts)).min(self.session.deadline);
            followed.advance(late).await;
        }
    }

    /// Refuses a transfer to an unknown or unhealthy candidate. Without this check, the lease could
    /// have no leader until the reservation ends.
    async fn no_candidate(&self) -> Result<Option<CommandOutcome>, OperatorError> {
        let to = match &self.args.action.kind {
            ActionKind::Transfer { to, .. } if !self.args.force => to,
            _ => return Ok(None),
        };
        let called = clock::boot_now();
        let named = |candidate: &&Present| candidate.identity == *to;
        let answered = |present: &[Present]| present.iter().any(|present| named(&present));
        let present = self
            .session
            .candidates(&self.args.name, answered, self.note)
            .await?;
        // Only requests from the web page set `seen`. A hint about a flag would not help there.
        let is_terminal = self.args.seen.is_none();
        let hint = is_terminal.then_some(" (--force: do not check)");
        let hint = hint.unwrap_or_default();
        Ok(match present.iter().find(named) {
            Some(candidate) if candidate.healthy == Some(false) => {
                Some(CommandOutcome::refused(format!(
                    "the workload of {to} is unhealthy, so {to} would not acquire the lease; no request written{hint}"
                )))
            }
            Some(_) => None,
            None => {
                let waited = short(clock::boot_now().since(called).min(ANSWER_MAX));
                let known: Vec<_> = present.iter().map(|it| it.identity.as_str()).collect();
                let near = did_you_mean(to.as_str(), &known).unwrap_or_default();
                let names = names(&present);
                Some(CommandOutcome::refused(format!(
                    "{to} is not a candidate: no answer to a roll call within {waited}; answers came from: {names}; no request written{hint}{near}"
                )))
            }
        })
    }

    /// Writes the request, and retries until the outcome is known. Decides again after each change
    /// of the lease.
    async fn write(&self, lease: &mut Box<LeaseRecord>) -> Result<Written, OperatorError> {
        let (session, RequestArgs { name, action, .. }) = (self.session, self.args);
        let written = |sent, lease: &LeaseRecord| {
            let holder = lease.holder.as_ref().map(|holder| holder.identity.clone());
            self.stage.send_replace(Stage::Recorded(holder));
            Ok(Written::At(sent, Some(action.id)))
        };
        let deadline = clock::boot_now() + session.timeout;
        // An attempt with an unknown outcome may take effect even after later attempts.
        let mut unknown = None;
        loop {
            let sent = clock::boot_now();
            self.stage.send_replace(Stage::Writing);
            let Answer { outcome, failure } = session.collection.act(name, lease, action).await;
            match (outcome, &failure) {
                (Acted::Applied(()), _) => return written(sent, lease),
                // If the server refused this write, the server will not apply it later.
                (_, Some(refused))
                    if refused.retry == RetryPolicy::Reconfigure && unknown.is_none() =>
                {
                    let (doing, failure) = (DOING, refused.clone());
                    return Err(OperatorError::Store { doing, failure });
                }
                (Acted::PrimaryOnly | Acted::Unknown, failure) => unknown = failure.clone(),
                (Acted::Rejected | Acted::Failed, _) => {}
            }
            if unknown.is_none() {
                self.stage.send_replace(Stage::Deciding);
            }
            if clock::boot_now() >= deadline {
                let changed = || Failure::new("the lease changed before each attempt", "");
                return Err(match unknown {
                    Some(failure) => OperatorError::unknown_lease(name, failure),
                    None => OperatorError::Store {
                        doing: DOING,
                        failure: failure.unwrap_or_else(changed),
                    },
                });
            }
            if failure.is_some() {
                let left = deadline.since(clock::boot_now());
                sleep(Timings::default().retry_interval().min(left)).await;
            }
            let Ok(entry) = session.collection.read(name.as_str()).await else {
                continue;
            };
            let now = session.lease(name, entry.as_ref()).await?;
            // If the reply to an attempt was lost, the action's id shows that the attempt was
            // applied.
            let own = Some(action.id.bytes());
            if now.actions.iter().any(|recorded| recorded.id == own) {
                return written(sent, &now);
            }
            *lease = now;
            match decide(name, &action.kind, self.args.seen, lease) {
                RequestDecision::Answer(outcome) => return Ok(Written::Rejected(outcome)),
                RequestDecision::Observe(holder) => {
                    let message =
                        format!("{holder} has acquired the lease meanwhile; nothing written");
                    return Ok(Written::Rejected(CommandOutcome::already(message)));
                }
                RequestDecision::Await => return Ok(Written::At(sent, None)),
                RequestDecision::Write => {}
            }
        }
    }

    /// Waits for the effect of the request, at most until the timeout. Asks the candidates to
    /// report: immediately if `is_silent`, otherwise shortly before the timeout. After a resume,
    /// asks the holder immediately whether it still leads.
    async fn waited(
        &self,
        followed: &mut Followed,
        mut progress: Progress,
        is_silent: bool,
    ) -> CommandOutcome {
        let (session, timeout) = (self.session.clone(), self.session.timeout);
        let name = self.args.name.clone();
        let may_lead = self.args.action.kind == ActionKind::Resume && progress.former().is_some();
        let (delay, within) = match ANSWER_MAX.min(timeout / 2) {
            _ if may_lead && !is_silent => (Duration::ZERO, timeout),
            within if is_silent => (Duration::ZERO, within),
            within => (timeout.saturating_sub(within), within),
        };
        let call = ActionId::random(&mut KernelRandomness);
        progress.roll_call = Some(call);
        // If the outcome is known earlier, the roll call is unnecessary. Dropping the set aborts
        // it.
        let mut roll = JoinSet::new();
        roll.spawn(async move {
            sleep(delay).await;
            roll_call::roll_with(&session, &name, call, within).await
        });
        let what = || awaited(&self.stage.borrow(), &self.args.action.kind);
        let effect = self.effect(followed, progress);
        let effect = connecting::announced(effect, timeout, self.note, what);
        let (progress, now) = match effect.await {
            Ok(outcome) => return outcome,
            Err(pending) => pending,
        };
        let roll = roll.join_next().await.and_then(Result::ok);
        progress.under_way(timeout, (now, wall()), roll.as_ref())
    }

    /// Follows the request until its outcome is known. At the timeout, returns the progress as
    /// `Err`.
    async fn effect(
        &self,
        followed: &mut Followed,
        mut progress: Progress,
    ) -> Result<CommandOutcome, (Progress, BootTime)> {
        let deadline = clock::boot_now() + self.session.timeout;
        let holder = progress.former().cloned();
        self.stage.send_replace(Stage::Recorded(holder));
        loop {
            let wakeup = progress.expires().unwrap_or(deadline).min(deadline);
            let event = followed.next(wakeup).await;
            let now = clock::boot_now();
            let done = match &event {
                Some(ViewEvent::Failed(failure) | ViewEvent::Polling(failure)) => {
                    (self.note)(&format!("MongoDB reports no changes: {failure}"));
                    progress.lose_sight(now);
                    None
                }
                Some(event) => shown(event).and_then(|lease| progress.observe(lease, now)),
                None if now < deadline || progress.has_expired(now) => {
                    self.checked(&mut progress).await
                }
                None => None,
            };
            if let Some(outcome) = done {
                return Ok(outcome);
            }
            if event.is_none() && now >= deadline {
                return Err((progress, clock::boot_now()));
            }
            if progress.is_released() {
                self.stage.send_replace(Stage::SteppedDown);
            }
        }
    }

    /// Reads the lease again before reporting its holder as expired, because the stream may be
    /// stale.
    async fn checked(&self, progress: &mut Progress) -> Option<CommandOutcome> {
        let read = self.session.collection.read(self.args.name.as_str()).await;
        let now = clock::boot_now();
        let Ok(entry) = read else {
            progress.lose_sight(now);
            return None;
        };
        let lease = entry.as_ref().and_then(lease);
        progress.observe(lease, now).or_else(|| progress.tick(now))
    }
}
