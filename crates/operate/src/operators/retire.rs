//! `leasehold leases retire`: hides an unused lease. The document keeps its token, and the
//! next write of a candidate ends the retirement.

use clap::Args;

use super::arguments::WriteArgs;
use super::observed::Followed;
use super::render::short;
use super::repair::{done, watched, written};
use super::roll_call::names;
use super::{CommandOutcome, OperatorError, Session, hinted, say};
use leasehold_clock as clock;
use leasehold_core::election::ResourceName;
use leasehold_host::CommandError;
use leasehold_host::signals::Exit;
use leasehold_mongodb::store::mongo::operators::{ActionKind, LeaseRecord, OperatorAction, Scope};

const DOING: &str = "retire the lease";

pub(super) const HELP: &str = "\
The document of the lease stays, with its token, so that receivers never see a token twice: the next leader gets a higher \
token, and its acquisition ends the retirement. The command refuses while the lease is renewed, is paused or has a \
request, or while a candidate answers. Requests to a retired lease are refused. If a holder is recorded, the command waits for one lease \
duration to see if the holder renews, and asks the candidates before and after this wait.

Examples:
  leasehold leases retire trial --reason 'trial is over'

Exit codes: 0 retired, or retired already; 1 refused; 64 usage; 69 MongoDB is unreachable or refuses a call; 78 configuration, or \
no such lease.";

#[derive(Debug, Args)]
pub(super) struct RetireArgs {
    #[command(flatten)]
    pub(super) write: WriteArgs,
    /// Do not ask the candidates first (asking takes 3s)
    #[arg(long)]
    pub(super) force: bool,
}

pub(super) async fn run(session: &Session, args: RetireArgs) -> Result<Exit, CommandError> {
    let (name, action) = (
        args.write.lease.get(),
        args.write.action(ActionKind::Retire),
    );
    let outcome = retired(session, name, &action, args.force).await?;
    outcome.print(session, name, action.kind.as_str())
}

async fn retired(
    session: &Session,
    name: &ResourceName,
    action: &OperatorAction,
    force: bool,
) -> Result<CommandOutcome, OperatorError> {
    let mut followed = session.follow(Scope::One(name.clone()), DOING).await?;
    let entry = followed.observed.one().map(|seen| &seen.entry);
    let lease = session.lease(name, entry).await?;
    if let Some(outcome) = unwritten(name, &lease) {
        return Ok(outcome);
    }
    // Candidates are asked again after the watch, because a candidate may have started during the
    // watch.
    if !force && let Some(outcome) = answered(session, name).await? {
        return Ok(outcome);
    }
    if let Some(outcome) = renewed(&mut followed, name, &lease).await {
        return Ok(outcome);
    }
    let was_watched = lease.holder.is_some();
    if !force
        && was_watched
        && let Some(outcome) = answered(session, name).await?
    {
        return Ok(outcome);
    }
    let sent = clock::boot_now();
    let answer = session.collection.act(name, &lease, action).await;
    Ok(match written(name, answer, DOING)? {
        true => done(message(&lease), sent),
        false => CommandOutcome::refused("the lease changed meanwhile; nothing written"),
    })
}

/// Returns the refusal if a candidate answers. An unhealthy candidate answers, but does not write.
async fn answered(
    session: &Session,
    name: &ResourceName,
) -> Result<Option<CommandOutcome>, OperatorError> {
    let present = session.candidates(name, |it| !it.is_empty(), say).await?;
    let refusal = || {
        CommandOutcome::refused(format!(
            "in use: candidates answer ({}); nothing written. Stop all candidates first",
            names(&present)
        ))
    };
    Ok((!present.is_empty()).then(refusal))
}

fn message(lease: &LeaseRecord) -> String {
    let token = lease.lease.token;
    format!(
        "retired; its token {token} is kept, and the next leader gets a higher one. To list it: {}",
        hinted("leases --all")
    )
}

/// Returns the outcome if the lease cannot or need not be retired.
fn unwritten(name: &ResourceName, lease: &LeaseRecord) -> Option<CommandOutcome> {
    if lease.is_retired() {
        return Some(CommandOutcome::already("retired already; nothing written"));
    }
    let why = match (lease.lease.paused, &lease.request) {
        (true, _) => format!(
            "paused, and would stay paused while hidden; nothing written; to fix: {}",
            hinted(&format!("resume {name} --no-wait"))
        ),
        (false, Some(_)) => {
            format!(
                "a request is pending; nothing written; to withdraw it: {}",
                hinted(&format!("cancel {name}"))
            )
        }
        (false, None) => return None,
    };
    Some(CommandOutcome::refused(why))
}

/// Watches a holder for its lease duration. Returns the refusal if the holder renews, or if another
/// candidate writes.
async fn renewed(
    followed: &mut Followed,
    name: &ResourceName,
    lease: &LeaseRecord,
) -> Option<CommandOutcome> {
    let (holder, lasts) = (lease.holder.as_ref()?, lease.lease_duration()?);
    say(&format!(
        "lease {name}: {} is recorded as the holder; waiting up to {} to see if the holder renews",
        holder.identity,
        short(lasts)
    ));
    watched(followed, lease, lasts).await
}
