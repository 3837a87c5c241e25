//! `leasehold repair`: raises the token of a lease after a backup was restored, so that tokens which
//! receivers have seen are not used again.
//!
//! A candidate that leads or contends would notice the restored document and wait by itself, so the
//! command refuses while one renews.

use tracing::warn;

use super::observed::Observed;
use super::{Author, OperatorError, Session, say};
use crate::cli::{CommandError, answer};
use crate::election::{LEASE_DURATION_MIN, LeaseName, Revision, Timings, Token};
use crate::exit;
use crate::publish::render::date;
use crate::runner::KernelRandomness;
use crate::store::mongo::operators::{
    Acted, Action, ActionId, ActionKind, LeaseRecord, Scope, ViewEvent,
};

const DOING: &str = "repair the lease";

pub(super) async fn run(
    session: &Session,
    name: &LeaseName,
    at_least: Token,
    create: bool,
    author: Author,
) -> Result<u8, CommandError> {
    let mut view = session.collection.follow(Scope::One(name.clone()));
    let (entries, at) = session.listed(&mut view, DOING).await?;
    if entries.is_empty() && create {
        return created(session, name, at_least).await;
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
    if lease.lease.token >= at_least {
        let token = lease.lease.token;
        answer(
            format!("lease {name}: token {token} is not below {at_least}; nothing written\n")
                .as_bytes(),
        )?;
        return Ok(exit::DONE);
    }
    let mut observed = Observed::default();
    observed.apply(ViewEvent::Listed { entries, at });
    // A free lease is acquired within moments if there is a candidate.
    let watched = lease
        .lease_duration()
        .unwrap_or(Timings::default().lease_duration());
    let until = at + watched.max(LEASE_DURATION_MIN);
    let watched = humantime::format_duration(watched);
    say(&format!(
        "lease {name}: watching for {watched} that no candidate writes to it"
    ));
    while let Some(event) = session.next(&mut view, until).await {
        observed.apply(event);
        let now = observed
            .get(name.as_str())
            .and_then(|seen| super::observed::lease(&seen.entry));
        let unchanged = now.is_some_and(|now| now.lease.revision == lease.lease.revision);
        if !unchanged {
            let who = now.and_then(|now| now.holder.as_ref());
            let who = who.map_or("a candidate".to_owned(), |holder| {
                holder.identity.to_string()
            });
            say(&format!(
                "lease {name}: {who} has written to it, so nothing was changed; stop all candidates first"
            ));
            return Ok(exit::NEGATIVE);
        }
    }
    raised(session, name, &lease, at_least, author).await
}

async fn created(session: &Session, name: &LeaseName, token: Token) -> Result<u8, CommandError> {
    let revision = Revision::random(&mut KernelRandomness);
    let created = session.collection.create(name, revision, token).await;
    match (created.outcome, created.failure) {
        (Acted::Applied, _) => {
            answer(format!("lease {name}: created with token {token}, free\n").as_bytes())?;
            Ok(exit::DONE)
        }
        (Acted::Rejected, _) => {
            say(&format!(
                "lease {name}: it was created meanwhile; run the command again"
            ));
            Ok(exit::NEGATIVE)
        }
        (outcome, failure) => Err(not_written(name, outcome, failure).into()),
    }
}

async fn raised(
    session: &Session,
    name: &LeaseName,
    lease: &LeaseRecord,
    at_least: Token,
    author: Author,
) -> Result<u8, CommandError> {
    let action = Action {
        id: ActionId::random(&mut KernelRandomness),
        kind: ActionKind::RaiseToken { at_least },
        by: author.by.to_string(),
        reason: author.reason,
    };
    warn!(lease = %name, from = lease.lease.token.get(), to = at_least.get(), "raising the token");
    let acted = session.collection.act(name, lease, &action).await;
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
            let line = format!(
                "lease {name}: token raised from {before} to {at_least}{}\n",
                held.unwrap_or_default()
            );
            answer(line.as_bytes())?;
            Ok(exit::DONE)
        }
        (Acted::Rejected, _) => {
            say(&format!(
                "lease {name}: it changed meanwhile; nothing written"
            ));
            Ok(exit::NEGATIVE)
        }
        (outcome, failure) => Err(not_written(name, outcome, failure).into()),
    }
}

fn not_written(
    name: &LeaseName,
    outcome: Acted,
    failure: Option<crate::store::Failure>,
) -> OperatorError {
    let failure =
        failure.unwrap_or_else(|| crate::store::Failure::new("MongoDB did not answer", ""));
    match outcome {
        Acted::Unknown => OperatorError::Unknown {
            name: name.clone(),
            failure,
        },
        Acted::Applied | Acted::Rejected | Acted::Failed => OperatorError::Store {
            doing: DOING,
            failure,
        },
    }
}
