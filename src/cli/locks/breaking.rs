//! `leasehold locks break`: removes expired entries, as every waiter would, or all holders with
//! `--force`.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Duration;

use tracing::warn;

use super::{LocksError, one};
use crate::cli::{CommandError, answer, say};
use crate::clock;
use crate::config::LockConfig;
use crate::election::{BootTime, Claim, LeaseName, Revision};
use crate::exit;
use crate::lock::{
    Entry, EntryState, Found, LockDocument, Observations, Observer, Operation, Outcome,
};
use crate::store::Store;
use crate::store::mongo::lock::MongoLockStore;

/// Interval between reads. A holder renews every three seconds by default, and an operator waits at
/// a terminal.
const LOOK: Duration = Duration::from_millis(500);

pub(super) async fn run(
    name: LeaseName,
    config: &LockConfig,
    force: bool,
    confirmed: bool,
) -> Result<u8, CommandError> {
    let store = one(&name, config);
    let lock = read(&store, &name).await?;
    let code = match lock {
        None => {
            say(&format!("lock {name}: not used yet"));
            exit::NEGATIVE
        }
        Some(lock) if lock.holders.is_empty() && lock.queue.is_empty() => {
            say(&format!("lock {name}: no holder"));
            exit::NEGATIVE
        }
        Some(lock) if force => forced(&store, &name, &lock, confirmed).await?,
        Some(lock) => silent(&store, &name, config, lock).await?,
    };
    store.shut_down().await;
    Ok(code)
}

/// Waits until some entries have expired, and removes them.
async fn silent(
    store: &MongoLockStore,
    name: &LeaseName,
    config: &LockConfig,
    first: LockDocument,
) -> Result<u8, CommandError> {
    let mut observer = Observer::new(config.timings.operation_timeout());
    say(&format!(
        "lock {name}: waiting for entries that are not renewed; entries that are renewed are kept \
         (--force removes them too, and voids the exclusion)"
    ));
    // Entries of the first read that have neither renewed nor left. Each of them renews, leaves, or
    // expires after its declared lease duration. The rest of a least time can be much longer.
    let mut silent = observations(&first);
    let has_rest = |entry: &&Entry| entry.is_over && !entry.at_least.is_zero();
    let kept: Vec<_> = first
        .holders
        .iter()
        .filter(has_rest)
        .map(|e| e.claim)
        .collect();
    silent.retain(|(claim, _)| !kept.contains(claim));
    let mut lock = first;
    loop {
        let now = clock::boot_now();
        observer.observe(&lock, now);
        if let Some(operation) = observer.break_expired(now) {
            let claims: Vec<_> = match &operation {
                Operation::Evict { entries, .. } => entries.iter().map(|e| e.claim).collect(),
                _ => Vec::new(),
            };
            let broken = named(&lock, &claims);
            return sent(store, name, operation, &broken).await;
        }
        let present = observations(&lock);
        silent.retain(|entry| present.contains(entry));
        if present.is_empty() {
            say(&format!("lock {name}: no holder left"));
            return Ok(exit::NEGATIVE);
        }
        let expired = kept_by_expired(observer.observations(), now);
        silent.retain(|(claim, _)| !expired.iter().any(|(other, _)| other == claim));
        let rest = expired
            .iter()
            .map(|(_, rest)| *rest)
            .chain(rests(&lock))
            .max();
        if let (true, Some(rest)) = (silent.is_empty(), rest) {
            let what = match expired.is_empty() {
                true => "its work has ended and its place",
                false => "a holder has expired and its place",
            };
            say(&format!(
                "lock {name}: {what} is kept for another {} (--force removes it)",
                humantime::format_duration(Duration::from_secs(rest.as_secs()))
            ));
            return Ok(exit::NEGATIVE);
        }
        if silent.is_empty() {
            say(&format!(
                "lock {name}: every holder and waiter renews its entry, so none is removed"
            ));
            return Ok(exit::NEGATIVE);
        }
        // Read again before that time, so that entries that renew are recognized as alive.
        let next = observer.next_expiry().map_or(LOOK, |at| at.since(now));
        tokio::time::sleep(next.min(LOOK)).await;
        lock = read(store, name).await?.unwrap_or_default();
    }
}

/// Returns the rests of the places whose work has ended.
fn rests(lock: &LockDocument) -> impl Iterator<Item = Duration> {
    let over = lock.holders.iter().filter(|entry| entry.is_over);
    over.map(|entry| entry.at_least)
}

/// Returns the holders that have not renewed for their lease duration, each with the rest of its
/// least time.
fn kept_by_expired(observations: &Observations, now: BootTime) -> Vec<(Claim, Duration)> {
    let expired = observations.iter().filter_map(|(claim, seen)| {
        let silent = seen.since + seen.lease_duration.duration() <= now;
        let until = seen.kept_until.filter(|until| silent && *until > now)?;
        (seen.state == EntryState::Held).then(|| (claim, until.since(now)))
    });
    expired.collect()
}

/// Returns all entries with their revisions.
fn observations(lock: &LockDocument) -> Vec<(Claim, Revision)> {
    let entries = lock.holders.iter().chain(&lock.queue);
    entries.map(|entry| (entry.claim, entry.revision)).collect()
}

/// Removes all holders that were shown to the operator.
async fn forced(
    store: &MongoLockStore,
    name: &LeaseName,
    lock: &LockDocument,
    confirmed: bool,
) -> Result<u8, CommandError> {
    let claims: Vec<_> = lock.holders.iter().map(|entry| entry.claim).collect();
    let broken = named(lock, &claims);
    say(&format!(
        "lock {name}: {broken}\n--force is unsafe: the present holder keeps running until its next renewal, alongside \
         the next one. Only a fencing token protects then."
    ));
    if !confirmed && !asked()? {
        say("nothing changed");
        return Ok(exit::NEGATIVE);
    }
    warn!(lock = %name, "breaking the lock by force");
    let operation = Operation::Break {
        claims,
        seen: lock.token,
    };
    sent(store, name, operation, &broken).await
}

/// Returns true if the operator confirms. Without a terminal, nothing is confirmed.
fn asked() -> Result<bool, CommandError> {
    if !io::stdin().is_terminal() {
        say("not a terminal: pass --yes to confirm");
        return Ok(false);
    }
    let _ = write!(io::stderr().lock(), "Break it? Type yes: ");
    let mut line = String::new();
    io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(CommandError::Output)?;
    Ok(line.trim() == "yes")
}

async fn sent(
    store: &MongoLockStore,
    name: &LeaseName,
    operation: Operation,
    broken: &str,
) -> Result<u8, CommandError> {
    let answered = store.perform(operation).await;
    match (answered.outcome, answered.failure) {
        (Outcome::Applied(_), _) => {
            answer(format!("lock {name}: broken: {broken}\n").as_bytes())?;
            Ok(exit::DONE)
        }
        (_, Some(failure)) => {
            let doing = "break the lock";
            Err(LocksError::Store { doing, failure }.into())
        }
        (Outcome::Rejected | Outcome::Failed | Outcome::Unknown, None) => {
            say(&format!(
                "lock {name}: it changed meanwhile, nothing removed; try again"
            ));
            Ok(exit::NEGATIVE)
        }
    }
}

async fn read(
    store: &MongoLockStore,
    name: &LeaseName,
) -> Result<Option<LockDocument>, LocksError> {
    let answered = store.perform(Operation::Read { confirm: false }).await;
    match (answered.outcome, answered.failure) {
        (Outcome::Applied(Found::Lock(lock)), _) => Ok(Some(lock)),
        (Outcome::Applied(Found::Missing), _) => Ok(None),
        (Outcome::Applied(Found::Foreign(why)), _) => Err(LocksError::NoLock {
            name: name.clone(),
            why,
        }),
        (_, Some(failure)) => {
            let doing = "read the lock";
            Err(LocksError::Store { doing, failure })
        }
        (Outcome::Rejected | Outcome::Failed | Outcome::Unknown, None) => Ok(None),
    }
}

fn named(lock: &LockDocument, claims: &[Claim]) -> String {
    let of = |entries: &[Entry], does: &str| -> Vec<String> {
        entries
            .iter()
            .filter(|entry| claims.contains(&entry.claim))
            .map(|entry| format!("{does} {} ({})", entry.identity, entry.mode.as_str()))
            .collect()
    };
    let holders = of(&lock.holders, "held by");
    let waiters = of(&lock.queue, "waited for by");
    [holders, waiters].concat().join(", ")
}
