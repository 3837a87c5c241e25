//! `leasehold repair`: raises the token of a lease after a backup was restored, so that tokens which
//! receivers have seen are not used again.
//!
//! A candidate that leads or contends would notice the restored document and wait by itself, so the
//! command refuses while one renews.

use tracing::warn;

use super::observed::{Observed, lease as lease_in};
use super::outcome::CommandOutcome;
use super::{Author, OperatorError, Session, say};
use leasehold_clock as clock;
use leasehold_core::election::{LEASE_DURATION_MIN, ResourceName, Revision, Timings, Token};
use leasehold_host::CommandError;
use leasehold_host::exit;
use leasehold_mongodb::randomness::KernelRandomness;
use leasehold_mongodb::store::mongo::operators::{
    Acted, ActionId, ActionKind, CollectionEntry, LeaseRecord, LiveView, OperatorAction, Scope,
    ViewEvent,
};
use leasehold_mongodb::store::{Failure, RetryPolicy};
use leasehold_status::render::date;

const DOING: &str = "repair the lease";

pub(super) async fn run(
    session: &Session,
    name: &ResourceName,
    at_least: Token,
    create: bool,
    author: Author,
) -> Result<u8, CommandError> {
    let mut view = session.collection.follow(Scope::One(name.clone()));
    let (entries, at) = session.listed(&mut view, DOING).await?;
    let action = |kind| OperatorAction {
        id: ActionId::random(&mut KernelRandomness),
        kind,
        by: author.by.to_string(),
        reason: author.reason.clone(),
    };
    if entries.is_empty() && create {
        let action = action(ActionKind::Create { token: at_least });
        let outcome = created(session, name, at_least, &action).await?;
        return outcome.print(session, name, action.kind.as_str());
    }
    let lease = session
        .lease(name, entries.clone())
        .await
        .map_err(|error| match error {
            OperatorError::Missing { name, hint } => OperatorError::Missing {
                name,
                hint: format!("{hint}; pass --create to create it with token {at_least}"),
            },
            error => error,
        })?;
    let action = action(ActionKind::RaiseToken { at_least });
    let token = lease.lease.token;
    let outcome = if token >= at_least {
        let message = format!("token {token} is not below {at_least}; nothing written");
        CommandOutcome::plain("already", exit::DONE, message)
    } else {
        let mut observed = Observed::default();
        observed.apply(ViewEvent::Listed { entries, at });
        match written_by_another(session, &mut view, &mut observed, &lease, at_least).await {
            Some(refused) => refused,
            None => raised(session, name, &lease, at_least, &action).await?,
        }
    };
    outcome.print(session, name, action.kind.as_str())
}

/// Watches the lease for its lease duration. Returns the refusal if it changes.
async fn written_by_another(
    session: &Session,
    view: &mut LiveView,
    observed: &mut Observed,
    lease: &LeaseRecord,
    at_least: Token,
) -> Option<CommandOutcome> {
    let name = observed.documents().next()?.entry.name.clone();
    // A free lease is acquired within moments if there is a candidate.
    let watched = lease
        .lease_duration()
        .unwrap_or(Timings::default().lease_duration());
    let until = clock::boot_now() + watched.max(LEASE_DURATION_MIN);
    let watched = humantime::format_duration(watched);
    say(&format!(
        "lease {name}: verifying for {watched} that no candidate writes to it"
    ));
    while let Some(event) = session.next(view, until).await {
        observed.apply(event);
        let entry = observed.get(&name).map(|seen| &seen.entry);
        if let Some((result, message)) = change(entry, lease, at_least) {
            return Some(CommandOutcome::plain(result, exit::NEGATIVE, message));
        }
    }
    None
}

/// Returns how the lease changed since it was seen, or `None` if no candidate has written to it.
fn change(
    entry: Option<&CollectionEntry>,
    seen: &LeaseRecord,
    at_least: Token,
) -> Option<(&'static str, String)> {
    let Some(entry) = entry else {
        let message = format!(
            "the lease was deleted while this command watched it, so nothing was changed; pass --create to create it \
             with token {at_least}"
        );
        return Some(("deleted", message));
    };
    let Some(now) = lease_in(entry) else {
        let message = "the document was replaced and is not a lease now; nothing written";
        return Some(("refused", message.to_owned()));
    };
    if now.lease.revision == seen.lease.revision {
        return None;
    }
    let writer = now.holder.as_ref().map(|holder| holder.identity.as_str());
    let writer = writer.unwrap_or("a candidate");
    let message =
        format!("{writer} has written to it, so nothing was changed; stop all candidates first");
    Some(("refused", message))
}

async fn created(
    session: &Session,
    name: &ResourceName,
    token: Token,
    action: &OperatorAction,
) -> Result<CommandOutcome, OperatorError> {
    let (revision, sent) = (Revision::random(&mut KernelRandomness), clock::boot_now());
    let created = session.collection.create(name, revision, action).await;
    match (created.outcome, created.failure) {
        (Acted::Applied, _) => Ok(CommandOutcome {
            took: Some(clock::boot_now().since(sent)),
            ..CommandOutcome::plain(
                "done",
                exit::DONE,
                format!("created with token {token}, free"),
            )
        }),
        (Acted::Rejected, _) => Ok(CommandOutcome::plain(
            "refused",
            exit::NEGATIVE,
            "it was created meanwhile; run the command again".to_owned(),
        )),
        (outcome, failure) => Err(not_written(name, outcome, failure)),
    }
}

async fn raised(
    session: &Session,
    name: &ResourceName,
    lease: &LeaseRecord,
    at_least: Token,
    action: &OperatorAction,
) -> Result<CommandOutcome, OperatorError> {
    warn!(lease = %name, from = lease.lease.token.get(), to = at_least.get(), "raising the token");
    let sent = clock::boot_now();
    let acted = session.collection.act(name, lease, action).await;
    match (acted.outcome, acted.failure) {
        (Acted::Applied, _) => {
            let before = lease.lease.token;
            let held = lease.holder.as_ref().map(|holder| {
                format!(
                    "; {} still holds it in the document, with the last renewal at {}, and expires like any other holder",
                    holder.identity,
                    date(holder.renewed_at)
                )
            });
            let message = format!(
                "token raised from {before} to {at_least}{}",
                held.unwrap_or_default()
            );
            Ok(CommandOutcome {
                took: Some(clock::boot_now().since(sent)),
                ..CommandOutcome::plain("done", exit::DONE, message)
            })
        }
        (Acted::Rejected, _) => Ok(CommandOutcome::plain(
            "refused",
            exit::NEGATIVE,
            "it changed meanwhile; nothing written".to_owned(),
        )),
        (outcome, failure) => Err(not_written(name, outcome, failure)),
    }
}

fn not_written(name: &ResourceName, outcome: Acted, failure: Option<Failure>) -> OperatorError {
    let failure =
        failure.unwrap_or_else(|| Failure::new("MongoDB did not answer", "run leasehold check"));
    match outcome {
        // A server that refused this write does not apply it later.
        Acted::Unknown if failure.retry != RetryPolicy::Reconfigure => OperatorError::Unknown {
            name: name.clone(),
            failure,
        },
        Acted::Unknown | Acted::Applied | Acted::Rejected | Acted::Failed => OperatorError::Store {
            doing: DOING,
            failure,
        },
    }
}
