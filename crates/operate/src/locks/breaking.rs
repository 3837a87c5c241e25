//! `leasehold locks break`: removes expired entries, or all holders with `--force`.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Duration;

use serde_json::json;

use super::calls::{LockCalls, Reread, WriteResult, version};
use crate::operators::missing;
use crate::operators::render::short;
use leasehold_cli::{answer, say};
use leasehold_clock as clock;
use leasehold_core::election::{BootTime, Claim};
use leasehold_core::lock::{
    Ending, Entry, EntryState, EntryVersion, LockDocument, LockOperation, Observations, Observer,
};
use leasehold_host::terminal::fitted;
use leasehold_host::{CommandError, exit};

/// Interval between reads; short, because an operator is waiting.
const INTERVAL: Duration = Duration::from_millis(500);

struct BreakOutcome {
    /// True if entries were removed, or if the lock was granted to a waiter.
    done: bool,
    message: String,
}

/// `round_trip` is the maximum time of a read.
pub(super) async fn run(
    lock: &LockCalls<'_>,
    force: bool,
    confirmed: bool,
    round_trip: Duration,
    json: bool,
) -> Result<u8, CommandError> {
    let BreakOutcome { done, message } = outcome(lock, force, confirmed, round_trip).await?;
    let name = &lock.name;
    let text = match json {
        true => {
            let result = if done { "done" } else { "refused" };
            let object = json!({
                "lock": name.as_str(), "action": "break", "result": result, "message": message,
            });
            format!("{object}\n")
        }
        false => fitted(&io::stdout(), &format!("lock {name}: {message}\n")),
    };
    answer(text.as_bytes())?;
    Ok(if done { exit::DONE } else { exit::NEGATIVE })
}

async fn outcome(
    lock: &LockCalls<'_>,
    force: bool,
    confirmed: bool,
    round_trip: Duration,
) -> Result<BreakOutcome, CommandError> {
    match lock.read().await? {
        None => Err(missing(lock.calls.locks, "lock", &lock.name).await.into()),
        Some(found) if found.holders.is_empty() && found.queue.is_empty() => {
            Ok(nothing_done("no holder"))
        }
        // The write that evicts entries also grants the lock to the first waiter, even if there is
        // no entry to evict.
        Some(found) if found.holders.is_empty() => {
            let operation = LockOperation::Evict {
                entries: Vec::new(),
                me: None,
                ending: Ending::Broken,
                seen: found.token,
            };
            let done = "the lock had waiters but no holder (the document was edited): granted to the first waiter";
            sent(lock, operation, done).await
        }
        Some(found) if force => forced(lock, &found, confirmed).await,
        Some(found) => expired(lock, found, round_trip).await,
    }
}

fn nothing_done(why: &str) -> BreakOutcome {
    let message = why.to_owned();
    BreakOutcome {
        done: false,
        message,
    }
}

async fn expired(
    lock: &LockCalls<'_>,
    first: LockDocument,
    round_trip: Duration,
) -> Result<BreakOutcome, CommandError> {
    let mut observer = Observer::new(round_trip);
    let mut noted = false;
    // Entries from the first read that have been neither renewed nor removed since then, so they
    // may still expire. A holder whose work has ended is left out, because its minimum hold may be
    // much longer than a lease duration.
    let has_rest = |entry: &&Entry| entry.work_done && !entry.min_hold.is_zero();
    let holders = first.holders.iter().filter(|entry| !has_rest(entry));
    let mut silent: Vec<_> = holders.chain(&first.queue).map(version).collect();
    let mut found = first;
    loop {
        let now = clock::boot_now();
        observer.observe(&found, now);
        if let Some(operation) = observer.break_expired(now) {
            let broken = named(&found, &removed(&operation));
            return sent(lock, operation, &broken).await;
        }
        let present: Vec<_> = entries(&found).map(version).collect();
        if present.is_empty() {
            return Ok(nothing_done("no holder left"));
        }
        let expired = kept_by_expired(observer.observations(), now);
        silent.retain(|entry| {
            present.contains(entry) && !expired.iter().any(|(claim, _)| *claim == entry.claim)
        });
        if silent.is_empty() {
            let over = found.holders.iter().filter(|entry| entry.work_done);
            let rests = expired.iter().map(|(_, rest)| *rest);
            let what = match expired.is_empty() {
                true => "a holder's work has ended, but its minimum hold",
                false => "a holder has expired, but its minimum hold",
            };
            let why = match rests.chain(over.map(|entry| entry.min_hold)).max() {
                // A remaining time below 50 ms would be printed as 0.0s.
                Some(rest) if rest.as_millis() < 50 => {
                    format!("{what} has not ended (--force removes the holder)")
                }
                Some(rest) => {
                    let rest = short(rest);
                    format!("{what} lasts another {rest} (--force removes the holder)")
                }
                None => "every holder and waiter renews its entry, so none is removed".to_owned(),
            };
            return Ok(nothing_done(&why));
        }
        if !noted {
            noted = true;
            let left = observer
                .next_expiry()
                .map_or(Duration::ZERO, |at| at.since(now));
            say(&format!(
                "lock {}: watching for up to {} for entries that are not renewed; entries that are renewed are \
                 kept (--force removes them too, which is unsafe)",
                lock.name,
                short(left)
            ));
        }
        // Reads the lock again at the latest when the next entry expires, to notice a late renewal.
        let next = observer.next_expiry().map_or(INTERVAL, |at| at.since(now));
        tokio::time::sleep(next.min(INTERVAL)).await;
        found = lock.read().await?.unwrap_or_default();
    }
}

async fn forced(
    lock: &LockCalls<'_>,
    found: &LockDocument,
    confirmed: bool,
) -> Result<BreakOutcome, CommandError> {
    let name = &lock.name;
    let operation = LockOperation::Break {
        claims: found.holders.iter().map(|entry| entry.claim).collect(),
        seen: found.token,
    };
    let broken = named(found, &removed(&operation));
    let effect = match found.holders.iter().all(|entry| entry.work_done) {
        true => "The work has ended: --force ends only the minimum hold.",
        false => {
            "--force is unsafe: the current holder keeps running until its next renewal, alongside the next one. During \
             that time, only a fencing token protects the resource."
        }
    };
    say(&format!("lock {name}: {broken}\n{effect}"));
    if !confirmed && !asked()? {
        return Ok(nothing_done("nothing changed"));
    }
    sent(lock, operation, &broken).await
}

fn removed(operation: &LockOperation) -> Vec<Claim> {
    match operation {
        LockOperation::Evict { entries, .. } => entries.iter().map(|it| it.claim).collect(),
        LockOperation::Break { claims, .. } => claims.clone(),
        _ => Vec::new(),
    }
}

async fn sent(
    lock: &LockCalls<'_>,
    operation: LockOperation,
    what: &str,
) -> Result<BreakOutcome, CommandError> {
    let claims = removed(&operation);
    let written = lock.perform("break the lock", &operation, |found| {
        let found = found.unwrap_or_default();
        let remains = match claims.is_empty() {
            true => found.holders.is_empty() && !found.queue.is_empty(),
            false => entries(&found).any(|entry| claims.contains(&entry.claim)),
        };
        match (remains, &operation) {
            (false, _) => Reread::Done,
            (true, LockOperation::Evict { entries, .. }) if has_renewed(&found, entries) => {
                Reread::Changed
            }
            (true, _) => Reread::Unchanged,
        }
    });
    let message = match (written.await?, claims.is_empty()) {
        (WriteResult::Rejected, _) => {
            let why = "the lock changed meanwhile; nothing removed; try again";
            return Ok(nothing_done(why));
        }
        (WriteResult::Applied, false) => format!("broken: {what}"),
        // The holder may have released the lock, or another operator may have broken it.
        (WriteResult::Shown, false) => format!("no longer {what}"),
        (WriteResult::Applied | WriteResult::Shown, true) => what.to_owned(),
    };
    Ok(BreakOutcome {
        done: true,
        message,
    })
}

fn entries(lock: &LockDocument) -> impl Iterator<Item = &Entry> {
    lock.holders.iter().chain(&lock.queue)
}

fn has_renewed(lock: &LockDocument, seen: &[EntryVersion]) -> bool {
    let is_later = |entry: &Entry, seen: &EntryVersion| {
        entry.claim == seen.claim && entry.revision != seen.revision
    };
    entries(lock).any(|entry| seen.iter().any(|seen| is_later(entry, seen)))
}

/// Returns the expired holders whose minimum hold has not ended, each with the remaining time.
fn kept_by_expired(observations: &Observations, now: BootTime) -> Vec<(Claim, Duration)> {
    let expired = observations.iter().filter_map(|(claim, seen)| {
        let silent = seen.since + seen.lease_duration.duration() <= now;
        let until = seen.kept_until.filter(|until| silent && *until > now)?;
        (seen.state == EntryState::Held).then(|| (claim, until.since(now)))
    });
    expired.collect()
}

fn asked() -> Result<bool, CommandError> {
    if !io::stdin().is_terminal() {
        say("not a terminal: pass --yes to confirm");
        return Ok(false);
    }
    let _ = write!(io::stderr().lock(), "Break it? Type yes: ");
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    read.map_err(CommandError::failed(
        exit::CANNOT_TELL,
        "read standard input",
    ))?;
    Ok(line.trim() == "yes")
}

fn named(lock: &LockDocument, claims: &[Claim]) -> String {
    let holders = lock.holders.iter().map(|entry| ("held by", entry));
    let waiters = lock.queue.iter().map(|entry| ("waited for by", entry));
    let all = holders
        .chain(waiters)
        .filter(|(_, entry)| claims.contains(&entry.claim));
    let names = all.map(|(does, entry)| {
        let (identity, mode) = (&entry.owner.identity, entry.mode.as_str());
        format!("{does} {identity} ({mode})")
    });
    names.collect::<Vec<_>>().join(", ")
}
