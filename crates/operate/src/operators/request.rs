//! `leasehold step-down`, `transfer`, `pause`, `resume` and `cancel`.
//!
//! Each command writes one request, for the claim that it has seen, and waits for its effect. The
//! wait is measured on this command's clock, from before the write was sent.

mod decide;
mod progress;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::sync::watch;

use self::decide::RequestDecision;
use self::progress::{Progress, RequestProgress};
use super::candidates::{ANSWER_MAX, candidates, names};
use super::observed::{Observed, lease};
use super::outcome::CommandOutcome;
use super::render::short;
use super::{Author, OperatorError, OperatorRequest, RequestArgs, Session, say, system};
use leasehold_clock as clock;
use leasehold_core::election::{BootTime, Identity, ResourceName, Token};
use leasehold_host::CommandError;
use leasehold_host::exit;
use leasehold_host::signals::{Exit, Stops};
use leasehold_mongodb::randomness::KernelRandomness;
use leasehold_mongodb::store::RetryPolicy;
use leasehold_mongodb::store::mongo::operators::{
    Acted, ActionId, ActionKind, LeaseRecord, LiveView, OperatorAction, Present, Scope, ViewEvent,
};

/// Minimum wait for a renewal: the default interval of renewals, and a second.
const OBSERVE_MIN: Duration = Duration::from_secs(4);

/// How far a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing is written.
    Deciding,
    /// It may have been written.
    Writing,
    /// It is in the document.
    Recorded,
    /// The leader has released the lease for it.
    SteppedDown,
}

/// News of a request that is carried out.
pub(super) enum News<'a> {
    /// A note for the operator.
    Note(&'a str),
    /// The stage that the request has reached.
    Stage(Stage),
}

/// The receiver of [`News`].
pub(super) type Listener<'a> = &'a (dyn Fn(News<'_>) + Sync);

pub(super) async fn run(session: &Session, args: RequestArgs) -> Result<Exit, CommandError> {
    let mut stops = Stops::register().map_err(system("register the signal handlers"))?;
    let (name, kind) = (args.name.clone(), args.kind.clone());
    let (stage, reached) = watch::channel(Stage::Deciding);
    let listener = |news: News<'_>| match news {
        News::Note(note) => say(note),
        News::Stage(now) => {
            stage.send_replace(now);
        }
    };
    tokio::select! {
        outcome = perform(session, args, &listener) => {
            outcome?.print(session, &name, action(&kind).as_str()).map(Exit::from)
        }
        stop = stops.next() => {
            let known = interrupted(*reached.borrow(), &kind, &name);
            say(&format!("{stop} received; lease {name}: {known}"));
            Ok(stop.into())
        }
    }
}

/// Returns the state of a request when this command stops waiting for it, and how to withdraw it.
fn interrupted(stage: Stage, kind: &OperatorRequest, name: &ResourceName) -> String {
    match (stage, kind) {
        (Stage::Deciding, _) => "nothing written".to_owned(),
        (Stage::Writing, OperatorRequest::StepDown | OperatorRequest::Transfer { .. }) => format!(
            "the request may have been recorded; leasehold describe {name} shows it, leasehold cancel {name} withdraws it"
        ),
        (Stage::Writing, _) => {
            format!("it may have been written; leasehold describe {name} shows the lease")
        }
        (_, OperatorRequest::Pause) => {
            format!("paused; to undo: leasehold resume {name}")
        }
        (_, OperatorRequest::Resume) => {
            format!("resumed; to undo: leasehold pause {name}")
        }
        (_, OperatorRequest::Cancel) => "request withdrawn".to_owned(),
        (Stage::Recorded, OperatorRequest::StepDown | OperatorRequest::Transfer { .. }) => format!(
            "the request stands, and the leader may still apply it; leasehold cancel {name} withdraws it"
        ),
        (Stage::SteppedDown, OperatorRequest::StepDown | OperatorRequest::Transfer { .. }) => {
            format!(
                "the leader has stepped down, so the request cannot be withdrawn; leasehold describe {name} shows the next one"
            )
        }
    }
}

/// Decides on a request, writes it, and waits for its effect.
pub(super) async fn perform(
    session: &Session,
    args: RequestArgs,
    listener: Listener<'_>,
) -> Result<CommandOutcome, OperatorError> {
    let RequestArgs {
        name,
        kind,
        seen,
        author,
        wait,
    } = args;
    let mut view = session.collection.follow(Scope::One(name.clone()));
    let (entries, at) = session.listed(&mut view, "read the lease").await?;
    let mut lease = session.lease(&name, entries.clone()).await?;
    match decide::decide(&kind, seen, &lease) {
        RequestDecision::Answer(outcome) => Ok(outcome),
        RequestDecision::Observe(holder) => {
            let mut observed = Observed::default();
            observed.apply(ViewEvent::Listed { entries, at });
            Ok(held_already(session, &mut view, observed, &name, &holder).await)
        }
        RequestDecision::Await if !wait => {
            let message = format!("{} requested already", decide::words(&kind));
            Ok(CommandOutcome::plain("already", exit::DONE, message))
        }
        RequestDecision::Await => {
            listener(News::Note(&format!(
                "lease {name}: already requested; waiting"
            )));
            let mut progress = Progress::new(&kind, &lease, clock::boot_now(), None);
            match progress.observe(Some(&lease), clock::boot_now()) {
                RequestProgress::Done(outcome) => Ok(outcome),
                RequestProgress::Pending => {
                    waited(session, &mut view, &name, progress, listener).await
                }
            }
        }
        RequestDecision::Write => {
            if let Some(outcome) = no_candidate(session, &mut view, &name, &kind).await? {
                return Ok(outcome);
            }
            match write(session, &name, (&kind, seen), author, &mut lease, listener).await? {
                WriteSent::Rejected(outcome) => Ok(outcome),
                WriteSent::At(..) if !wait => {
                    let message = format!("{} requested", decide::words(&kind));
                    Ok(CommandOutcome::plain("requested", exit::DONE, message))
                }
                WriteSent::At(at, id) => {
                    let progress = Progress::new(&kind, &lease, at, id);
                    waited(session, &mut view, &name, progress, listener).await
                }
            }
        }
    }
}

/// Answers a transfer to the candidate that holds the lease in the document. It may have exited, so
/// a renewal is awaited until it is late.
async fn held_already(
    session: &Session,
    view: &mut LiveView,
    mut observed: Observed,
    name: &ResourceName,
    to: &Identity,
) -> CommandOutcome {
    let refused = |message: String| {
        let message = format!("{message}; nothing written");
        CommandOutcome::plain("refused", exit::NEGATIVE, message)
    };
    loop {
        let seen = observed.get(name.as_str());
        let held = seen.and_then(|seen| {
            let lease = self::lease(&seen.entry)?;
            let duration = lease.lease_duration()?;
            decide::is_holder(lease, to.as_str()).then_some((seen.silence, duration))
        });
        let Some((silence, duration)) = held else {
            return refused(format!("{to} held it, and the lease changed meanwhile"));
        };
        if silence.renewal_seen {
            let message = format!("{to} holds it already; nothing written");
            return CommandOutcome::plain("already", exit::DONE, message);
        }
        let now = clock::boot_now();
        let (lasts, observe) = (silence.lasts(now), (duration / 4).max(OBSERVE_MIN));
        if lasts >= observe || now >= session.deadline {
            return refused(format!(
                "{to} holds it in the document, but no renewal was seen within {}, so it may have exited; another \
                 candidate may take over {} after the last renewal",
                short(lasts),
                short(duration)
            ));
        }
        let late = now + observe.saturating_sub(lasts);
        if let Some(event) = session.next(view, late.min(session.deadline)).await {
            observed.apply(event);
        }
    }
}

/// Refuses a transfer to an identity that is not a candidate, or to a candidate that would not
/// acquire the lease. The leader would step down for it, and the lease would be reserved in vain.
async fn no_candidate(
    session: &Session,
    view: &mut LiveView,
    name: &ResourceName,
    kind: &OperatorRequest,
) -> Result<Option<CommandOutcome>, OperatorError> {
    let OperatorRequest::Transfer {
        to, force: false, ..
    } = kind
    else {
        return Ok(None);
    };
    let called = clock::boot_now();
    let named = |candidate: &&Present| candidate.identity == *to;
    let answered = |present: &[Present]| present.iter().any(|present| named(&present));
    let present = candidates(session, view, name, answered).await?;
    let refused = |message| {
        Ok(Some(CommandOutcome::plain(
            "refused",
            exit::NEGATIVE,
            message,
        )))
    };
    match present.iter().find(named) {
        Some(candidate) if candidate.healthy == Some(false) => refused(format!(
            "the workload of {to} is unhealthy, so it would not acquire the lease; no request written (--force: do \
             not check)"
        )),
        Some(_) => Ok(None),
        None => {
            let waited = short(clock::boot_now().since(called).min(ANSWER_MAX));
            refused(format!(
                "{to} is not a candidate: no answer to a roll call within {waited}; answers came from: {}; no request written (--force: do not check)",
                names(&present)
            ))
        }
    }
}

/// The result of a write.
enum WriteSent {
    /// The write was sent at this time and applied, as the action with this id; `None` if another
    /// operator has made an equal request.
    At(BootTime, Option<ActionId>),
    /// The lease changed, so that nothing was left to write.
    Rejected(CommandOutcome),
}

/// Writes the request until its outcome is known. If the lease changed meanwhile, decides again.
async fn write(
    session: &Session,
    name: &ResourceName,
    (kind, seen): (&OperatorRequest, Option<Token>),
    author: Author,
    lease: &mut Box<LeaseRecord>,
    listener: Listener<'_>,
) -> Result<WriteSent, OperatorError> {
    let action = OperatorAction {
        id: ActionId::random(&mut KernelRandomness),
        kind: action(kind),
        by: author.by.to_string(),
        reason: author.reason,
    };
    let retry = leasehold_core::election::Timings::default().retry_interval();
    // An attempt whose outcome is unknown may be applied later, whatever becomes of the next ones.
    let mut unknown = None;
    loop {
        let sent = clock::boot_now();
        listener(News::Stage(Stage::Writing));
        let acted = session.collection.act(name, lease, &action).await;
        let failure = match (acted.outcome, acted.failure) {
            (Acted::Applied, _) => {
                listener(News::Stage(Stage::Recorded));
                return Ok(WriteSent::At(sent, Some(action.id)));
            }
            // A server that refused this write does not apply it later.
            (_, Some(failure))
                if failure.retry == RetryPolicy::Reconfigure && unknown.is_none() =>
            {
                let doing = "write the request";
                return Err(OperatorError::Store { doing, failure });
            }
            (Acted::Unknown, failure) => {
                unknown = failure.clone();
                failure
            }
            (_, failure) => failure,
        };
        if unknown.is_none() {
            listener(News::Stage(Stage::Deciding));
        }
        if clock::boot_now() >= session.deadline {
            let failure = failure.unwrap_or_else(|| {
                leasehold_mongodb::store::Failure::new("the lease changed with each attempt", "")
            });
            return Err(match unknown {
                Some(failure) => OperatorError::Unknown {
                    name: name.clone(),
                    failure,
                },
                None => OperatorError::Store {
                    doing: "write the request",
                    failure,
                },
            });
        }
        if failure.is_some() {
            tokio::time::sleep(retry.min(session.deadline.since(clock::boot_now()))).await;
        }
        let Some(now) = reread(session, name).await? else {
            continue;
        };
        // An attempt whose reply was lost is recognized by its id.
        let recorded = now
            .actions
            .iter()
            .any(|done| done.id == Some(action.id.bytes()));
        if recorded {
            listener(News::Stage(Stage::Recorded));
            return Ok(WriteSent::At(sent, Some(action.id)));
        }
        *lease = now;
        match decide::decide(kind, seen, lease) {
            RequestDecision::Answer(outcome) => return Ok(WriteSent::Rejected(outcome)),
            RequestDecision::Observe(holder) => {
                let message = format!("{holder} holds it by now; nothing written");
                return Ok(WriteSent::Rejected(CommandOutcome::plain(
                    "already",
                    exit::DONE,
                    message,
                )));
            }
            RequestDecision::Await => return Ok(WriteSent::At(sent, None)),
            RequestDecision::Write => {}
        }
    }
}

/// Reads the lease; `None` if MongoDB does not answer.
async fn reread(
    session: &Session,
    name: &ResourceName,
) -> Result<Option<Box<LeaseRecord>>, OperatorError> {
    match session.collection.read(name.as_str()).await {
        Ok(entry) => session
            .lease(name, entry.into_iter().collect())
            .await
            .map(Some),
        Err(_) => Ok(None),
    }
}

/// Returns the action to write for a request.
pub(super) fn action(kind: &OperatorRequest) -> ActionKind {
    match kind {
        OperatorRequest::StepDown => ActionKind::StepDown,
        OperatorRequest::Transfer { to, reserve, .. } => ActionKind::Transfer {
            to: to.clone(),
            reserve: *reserve,
        },
        OperatorRequest::Pause => ActionKind::Pause,
        OperatorRequest::Resume => ActionKind::Resume,
        OperatorRequest::Cancel => ActionKind::Cancel,
    }
}

/// Waits until the request has had its effect, or for the timeout.
async fn waited(
    session: &Session,
    view: &mut LiveView,
    name: &ResourceName,
    mut progress: Progress,
    listener: Listener<'_>,
) -> Result<CommandOutcome, OperatorError> {
    let deadline = clock::boot_now() + session.timeout;
    listener(News::Stage(Stage::Recorded));
    loop {
        let wakeup = progress.expires().unwrap_or(deadline).min(deadline);
        let step = match session.next(view, wakeup).await {
            Some(ViewEvent::Changed { entry, at }) => progress.observe(lease(&entry), at),
            Some(ViewEvent::Listed { entries, at }) => {
                progress.observe(entries.first().and_then(lease), at)
            }
            Some(ViewEvent::Removed { .. }) => progress.observe(None, clock::boot_now()),
            Some(ViewEvent::Failed(failure) | ViewEvent::Polling(failure)) => {
                listener(News::Note(&format!(
                    "MongoDB reports no changes: {failure}"
                )));
                progress.lose_sight(clock::boot_now());
                RequestProgress::Pending
            }
            Some(ViewEvent::Streaming) => RequestProgress::Pending,
            None if clock::boot_now() < deadline => checked(session, name, &mut progress).await,
            None => {
                let step = match progress.has_expired(clock::boot_now()) {
                    true => checked(session, name, &mut progress).await,
                    false => RequestProgress::Pending,
                };
                let under_way = || progress.under_way(session.timeout, clock::boot_now());
                return Ok(match step {
                    RequestProgress::Done(outcome) => outcome,
                    RequestProgress::Pending => under_way(),
                });
            }
        };
        if let RequestProgress::Done(outcome) = step {
            return Ok(outcome);
        }
        if progress.is_released() {
            listener(News::Stage(Stage::SteppedDown));
        }
    }
}

/// Reads the lease before its holder is reported as expired, because the stream may be stale.
async fn checked(
    session: &Session,
    name: &ResourceName,
    progress: &mut Progress,
) -> RequestProgress {
    let read = session.collection.read(name.as_str()).await;
    let now = clock::boot_now();
    let Ok(entry) = read else {
        progress.lose_sight(now);
        return RequestProgress::Pending;
    };
    match progress.observe(entry.as_ref().and_then(lease), now) {
        RequestProgress::Pending => progress.tick(now),
        done => done,
    }
}
