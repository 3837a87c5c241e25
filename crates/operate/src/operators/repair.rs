//! `leasehold repair`: raises the token of a lease after a backup was restored, so that no token is
//! used twice. The command is refused while a candidate renews: running candidates need no repair,
//! because they detect the restored document and wait.

use std::time::Duration;

use super::arguments::RepairArgs;
use super::observed::Followed;
use super::render::short;
use super::{CommandOutcome, OperatorError, RequestResult, Session, say};
use leasehold_clock as clock;
use leasehold_core::election::{
    BootTime, LEASE_DURATION_MIN, ResourceName, Revision, Timings, Token,
};
use leasehold_host::CommandError;
use leasehold_host::signals::Exit;
use leasehold_mongodb::randomness::KernelRandomness;
use leasehold_mongodb::store::mongo::operators::{Acted, ActionKind, LeaseRecord, Scope};
use leasehold_mongodb::store::{Answer, Failure, RetryPolicy};
use leasehold_status::dates::dated_by_holder;

const DOING: &str = "repair the lease";

pub(super) async fn run(session: &Session, args: RepairArgs) -> Result<Exit, CommandError> {
    let (name, at_least) = (args.write.lease.get(), args.token_at_least);
    let scope = Scope::One(name.clone());
    let mut followed = session.follow(scope, DOING).await?;
    let seen = followed.observed.one().map(|seen| &seen.entry);
    if seen.is_none() && args.create {
        let action = args.write.action(ActionKind::Create { token: at_least });
        let revision = Revision::random(&mut KernelRandomness);
        let sent = clock::boot_now();
        let created = session.collection.create(name, revision, &action).await;
        let outcome = match written(name, created, DOING)? {
            true => done(format!("created with token {at_least}, free"), sent),
            false => {
                CommandOutcome::refused("the lease was created meanwhile; run the command again")
            }
        };
        return outcome.print(session, name, action.kind.as_str());
    }
    let lease = session
        .lease(name, seen)
        .await
        .map_err(|error| match error {
            OperatorError::Missing { kind, name, hint } => OperatorError::Missing {
                kind,
                name,
                hint: format!("{hint}; to create it with token {at_least}: pass --create"),
            },
            error => error,
        })?;
    let action = args.write.action(ActionKind::RaiseToken { at_least });
    let token = lease.lease.token;
    let outcome = if token >= at_least {
        CommandOutcome::already(format!(
            "token {token} is not below {at_least}; nothing written"
        ))
    } else if let Some(refused) = written_by_another(&mut followed, name, &lease, at_least).await {
        refused
    } else {
        say(&format!(
            "lease {name}: raising the token from {token} to {at_least}"
        ));
        let sent = clock::boot_now();
        let raised = session.collection.act(name, &lease, &action).await;
        match written(name, raised, DOING)? {
            true => done(raised_message(&lease, at_least), sent),
            false => CommandOutcome::refused("the lease changed meanwhile; nothing written"),
        }
    };
    outcome.print(session, name, action.kind.as_str())
}

pub(super) fn done(message: String, sent: BootTime) -> CommandOutcome {
    CommandOutcome::new(RequestResult::Done, message).after(clock::boot_now().since(sent))
}

/// Watches the lease for one lease duration. Returns the refusal if a candidate writes.
async fn written_by_another(
    followed: &mut Followed,
    name: &ResourceName,
    lease: &LeaseRecord,
    at_least: Token,
) -> Option<CommandOutcome> {
    // A free lease has no duration, but a running candidate would acquire it within the default
    // duration.
    let lasts = lease.lease_duration();
    let lasts = lasts.unwrap_or(Timings::default().lease_duration());
    say(&format!(
        "lease {name}: verifying for up to {} that no candidate writes to it",
        short(lasts)
    ));
    let mut refused = watched(followed, lease, lasts.max(LEASE_DURATION_MIN)).await?;
    if refused.result == RequestResult::Deleted {
        refused.message += &format!("; pass --create to create it with token {at_least}");
    }
    Some(refused)
}

/// Watches a lease for the time `lasts`. Returns the refusal if anything but a request changes the
/// lease.
pub(super) async fn watched(
    followed: &mut Followed,
    seen: &LeaseRecord,
    lasts: Duration,
) -> Option<CommandOutcome> {
    let until = clock::boot_now() + lasts;
    while followed.advance(until).await {
        let Some((_, now)) = followed.observed.lease() else {
            let message = "the lease was deleted or replaced meanwhile; nothing written";
            return Some(CommandOutcome::new(RequestResult::Deleted, message));
        };
        if now.lease.revision != seen.lease.revision {
            let writer = now.holder.as_ref().map(|holder| holder.identity.as_str());
            return Some(CommandOutcome::refused(format!(
                "in use: {} writes to it; nothing written. Stop all candidates first",
                writer.unwrap_or("a candidate")
            )));
        }
    }
    None
}

fn raised_message(lease: &LeaseRecord, at_least: Token) -> String {
    let retired = match lease.is_retired() {
        true => "; the lease is no longer retired",
        false => "",
    };
    let raised = format!(
        "token raised from {} to {at_least}{retired}",
        lease.lease.token
    );
    match &lease.holder {
        Some(holder) => format!(
            "{raised}; {} is still recorded as the holder (last renewal {}) and expires like any other holder",
            holder.identity,
            dated_by_holder(holder.renewed_at, clock::wall_now())
        ),
        None => raised,
    }
}

/// Returns true if the write was applied, and false if the lease had changed before the write.
pub(super) fn written(
    name: &ResourceName,
    answer: Answer<()>,
    doing: &'static str,
) -> Result<bool, OperatorError> {
    let unanswered = || Failure::new("MongoDB did not answer", "run leasehold check");
    let failure = answer.failure.unwrap_or_else(unanswered);
    match answer.outcome {
        Acted::Applied(()) => Ok(true),
        Acted::Rejected => Ok(false),
        // If the server refused this write, the server will not apply it later.
        Acted::PrimaryOnly | Acted::Unknown if failure.retry != RetryPolicy::Reconfigure => {
            Err(OperatorError::unknown_lease(name, failure))
        }
        Acted::PrimaryOnly | Acted::Unknown | Acted::Failed => {
            Err(OperatorError::Store { doing, failure })
        }
    }
}
