//! `leasehold step-down`, `transfer`, `pause`, `resume` and `cancel`.
//!
//! Each writes one request, for the claim that it has seen, and waits until it has had its effect.
//! The time that this took is measured on this command's clock, from before the write was sent.

mod decide;
mod progress;

use self::decide::Decision;
use self::progress::{Progress, Step};
use super::candidates::{ANSWER_MAX, candidates, names};
use super::outcome::Outcome;
use super::{Author, OperatorError, RequestArgs, RequestKind, Session, say};
use crate::cli::CommandError;
use crate::clock;
use crate::election::{BootTime, LeaseName, Token};
use crate::exit;
use crate::runner::KernelRandomness;
use crate::store::RetryPolicy;
use crate::store::mongo::operators::{
    Acted, Action, ActionId, ActionKind, Content, LeaseRecord, Present, Scope, View, ViewEvent,
};

pub(super) async fn run(session: &Session, args: RequestArgs) -> Result<u8, CommandError> {
    let (name, action) = (args.name.clone(), action(&args.kind).as_str());
    let outcome = perform(session, args, &say).await?;
    outcome.print(session, &name, action)
}

/// Decides on a request, writes it, and waits for its effect. `note` receives what the operator may
/// want to know meanwhile.
pub(super) async fn perform(
    session: &Session,
    args: RequestArgs,
    note: &(dyn Fn(&str) + Sync),
) -> Result<Outcome, OperatorError> {
    let RequestArgs {
        name,
        kind,
        seen,
        author,
        wait,
    } = args;
    let mut view = session.collection.follow(Scope::One(name.clone()));
    let (entries, _) = session.listed(&mut view, "read the lease").await?;
    let mut lease = session.lease(&name, entries).await?;
    match decide::decide(&kind, seen, &lease) {
        Decision::Answer(outcome) => Ok(outcome),
        Decision::Await if !wait => {
            let message = format!("{} requested already", decide::words(&kind));
            Ok(Outcome::plain("already", exit::DONE, message))
        }
        Decision::Await => {
            note(&format!("lease {name}: already requested; waiting"));
            let mut progress = Progress::new(&kind, &lease, clock::boot_now(), None);
            match progress.observe(Some(&lease), clock::boot_now()) {
                Step::Done(outcome) => Ok(outcome),
                Step::Pending => waited(session, &mut view, &name, progress, note).await,
            }
        }
        Decision::Write => {
            if let Some(outcome) = no_candidate(session, &mut view, &name, &kind).await? {
                return Ok(outcome);
            }
            match write(session, &name, (&kind, seen), author, &mut lease).await? {
                Sent::Rejected(outcome) => Ok(outcome),
                Sent::At(..) if !wait => {
                    let message = format!("{} requested", decide::words(&kind));
                    Ok(Outcome::plain("requested", exit::DONE, message))
                }
                Sent::At(at, id) => {
                    let progress = Progress::new(&kind, &lease, at, id);
                    waited(session, &mut view, &name, progress, note).await
                }
            }
        }
    }
}

/// Refuses a transfer to an identity that is not a candidate. The leader would step down for it, and
/// the lease would be reserved in vain.
async fn no_candidate(
    session: &Session,
    view: &mut View,
    name: &LeaseName,
    kind: &RequestKind,
) -> Result<Option<Outcome>, OperatorError> {
    let RequestKind::Transfer {
        to, force: false, ..
    } = kind
    else {
        return Ok(None);
    };
    let answers = |present: &[Present]| present.iter().any(|present| present.identity == *to);
    let present = candidates(session, view, name, answers).await?;
    if answers(&present) {
        return Ok(None);
    }
    let waited = humantime::format_duration(ANSWER_MAX);
    let message = format!(
        "{to} is not a candidate: it did not answer a roll call within {waited}, which these did: {}; \
         no request written (--force: do not check)",
        names(&present)
    );
    Ok(Some(Outcome::plain("refused", exit::NEGATIVE, message)))
}

/// The result of a write.
enum Sent {
    /// It was sent at this time and applied, as the action with this id; `None` if another
    /// operator has requested the same.
    At(BootTime, Option<ActionId>),
    /// The lease changed, so that nothing was left to write.
    Rejected(Outcome),
}

/// Writes the request until its outcome is known. A lease that changed meanwhile is judged anew.
async fn write(
    session: &Session,
    name: &LeaseName,
    (kind, seen): (&RequestKind, Option<Token>),
    author: Author,
    lease: &mut Box<LeaseRecord>,
) -> Result<Sent, OperatorError> {
    let action = Action {
        id: ActionId::random(&mut KernelRandomness),
        kind: action(kind),
        by: author.by.to_string(),
        reason: author.reason,
    };
    let retry = crate::election::Timings::default().retry_interval();
    // An attempt whose outcome is unknown may be applied later, whatever becomes of the next ones.
    let mut unknown = None;
    loop {
        let sent = clock::boot_now();
        let acted = session.collection.act(name, lease, &action).await;
        let failure = match (acted.outcome, acted.failure) {
            (Acted::Applied, _) => return Ok(Sent::At(sent, Some(action.id))),
            (Acted::Unknown, failure) => {
                unknown = failure.clone();
                failure
            }
            (_, Some(failure))
                if failure.retry == RetryPolicy::Reconfigure && unknown.is_none() =>
            {
                let doing = "write the request";
                return Err(OperatorError::Store { doing, failure });
            }
            (_, failure) => failure,
        };
        if clock::boot_now() >= session.deadline {
            let failure = failure.unwrap_or_else(|| {
                crate::store::Failure::new("the lease changed with each attempt", "")
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
            return Ok(Sent::At(sent, Some(action.id)));
        }
        *lease = now;
        match decide::decide(kind, seen, lease) {
            Decision::Answer(outcome) => return Ok(Sent::Rejected(outcome)),
            Decision::Await => return Ok(Sent::At(sent, None)),
            Decision::Write => {}
        }
    }
}

/// Reads the lease; `None` if MongoDB does not answer.
async fn reread(
    session: &Session,
    name: &LeaseName,
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
pub(super) fn action(kind: &RequestKind) -> ActionKind {
    match kind {
        RequestKind::StepDown => ActionKind::StepDown,
        RequestKind::Transfer { to, reserve, .. } => ActionKind::Transfer {
            to: to.clone(),
            reserve: *reserve,
        },
        RequestKind::Pause => ActionKind::Pause,
        RequestKind::Resume => ActionKind::Resume,
        RequestKind::Cancel => ActionKind::Cancel,
    }
}

/// Waits until the request has had its effect, or for the timeout.
async fn waited(
    session: &Session,
    view: &mut View,
    name: &LeaseName,
    mut progress: Progress,
    note: &(dyn Fn(&str) + Sync),
) -> Result<Outcome, OperatorError> {
    let deadline = clock::boot_now() + session.timeout;
    loop {
        let wakeup = progress.expires().unwrap_or(deadline).min(deadline);
        let step = match session.next(view, wakeup).await {
            Some(ViewEvent::Changed { entry, at }) => progress.observe(lease(&entry.content), at),
            Some(ViewEvent::Listed { entries, at }) => {
                let entry = entries.first();
                progress.observe(entry.and_then(|entry| lease(&entry.content)), at)
            }
            Some(ViewEvent::Removed { .. }) => progress.observe(None, clock::boot_now()),
            Some(ViewEvent::Failed(failure) | ViewEvent::Polling(failure)) => {
                note(&format!("changes are not seen at present: {failure}"));
                progress.lose_sight(clock::boot_now());
                Step::Pending
            }
            Some(ViewEvent::Streaming) => Step::Pending,
            None if clock::boot_now() >= deadline => {
                return Ok(progress.under_way(session.timeout, clock::boot_now()));
            }
            None => expired(session, name, &mut progress).await,
        };
        if let Step::Done(outcome) = step {
            return Ok(outcome);
        }
    }
}

/// Ends a pause whose leader has not renewed for its lease duration. The stream may be stale, so the
/// lease is read first.
async fn expired(session: &Session, name: &LeaseName, progress: &mut Progress) -> Step {
    let read = session.collection.read(name.as_str()).await;
    let now = clock::boot_now();
    let Ok(entry) = read else {
        progress.lose_sight(now);
        return Step::Pending;
    };
    match progress.observe(entry.as_ref().and_then(|entry| lease(&entry.content)), now) {
        Step::Pending => progress.tick(now),
        done => done,
    }
}

fn lease(content: &Content) -> Option<&LeaseRecord> {
    match content {
        Content::Lease(lease) => Some(lease),
        Content::Lock(_) | Content::Foreign(_) => None,
    }
}
