//! `leasehold locks break`: removes expired entries, as every waiter would, or all holders with
//! `--force`.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Duration;

use tracing::warn;

use super::LocksError;
use super::calls::{Calls, Reread, WriteResult};
use leasehold_cli::{answer, say};
use leasehold_clock as clock;
use leasehold_core::election::{BootTime, Claim, ResourceName, Revision};
use leasehold_core::lock::{
    Ending, Entry, EntryState, EntryVersion, FoundLock, LockDocument, LockOperation, Observations,
    Observer,
};
use leasehold_host::CommandError;
use leasehold_host::exit;
use leasehold_mongodb::store::Store as _;
use leasehold_mongodb::store::mongo::lock::MongoLockStore;

/// Interval between reads. A holder renews every three seconds by default, and an operator waits at
/// a terminal.
const LOOK: Duration = Duration::from_millis(500);

/// The lock that an operator breaks.
pub(super) struct Target<'a> {
    pub(super) store: MongoLockStore,
    pub(super) name: &'a ResourceName,
    pub(super) calls: &'a Calls<'a>,
    /// Maximum time of a read.
    pub(super) round_trip: Duration,
}

impl Target<'_> {
    pub(super) async fn broken(&self, force: bool, confirmed: bool) -> Result<u8, CommandError> {
        let name = self.name;
        Ok(match self.read().await? {
            None => {
                say(&format!("lock {name}: not used yet"));
                exit::NEGATIVE
            }
            Some(lock) if lock.holders.is_empty() && lock.queue.is_empty() => {
                say(&format!("lock {name}: no holder"));
                exit::NEGATIVE
            }
            // No write of leasehold leaves it like that.
            Some(lock) if lock.holders.is_empty() => self.grant(&lock).await?,
            Some(lock) if force => self.forced(&lock, confirmed).await?,
            Some(lock) => self.silent(lock).await?,
        })
    }

    /// Grants a lock whose holders were removed from the document by hand.
    async fn grant(&self, lock: &LockDocument) -> Result<u8, CommandError> {
        let operation = LockOperation::Evict {
            entries: Vec::new(),
            me: None,
            ending: Ending::Broken,
            seen: lock.token,
        };
        let done = "no holder although entries wait (the document was edited): granted to the first of them";
        self.sent(operation, &[], done).await
    }

    /// Waits until some entries have expired, and removes them.
    async fn silent(&self, first: LockDocument) -> Result<u8, CommandError> {
        let name = self.name;
        let mut observer = Observer::new(self.round_trip);
        say(&format!(
            "lock {name}: waiting for entries that are not renewed; entries that are renewed are kept \
         (--force removes them too, and voids the exclusion)"
        ));
        // Entries of the first read that have neither renewed nor left. Each of them renews, leaves, or
        // expires after its declared lease duration. The rest of a minimum hold can be much longer.
        let mut silent = observations(&first);
        let has_rest = |entry: &&Entry| entry.work_done && !entry.min_hold.is_zero();
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
                    LockOperation::Evict { entries, .. } => {
                        entries.iter().map(|e| e.claim).collect()
                    }
                    _ => Vec::new(),
                };
                let broken = named(&lock, &claims);
                return self.sent(operation, &claims, &broken).await;
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
            // The next read is earlier, to recognize renewed entries as alive.
            let next = observer.next_expiry().map_or(LOOK, |at| at.since(now));
            tokio::time::sleep(next.min(LOOK)).await;
            lock = self.read().await?.unwrap_or_default();
        }
    }

    /// Removes all holders that were shown to the operator.
    async fn forced(&self, lock: &LockDocument, confirmed: bool) -> Result<u8, CommandError> {
        let name = self.name;
        let claims: Vec<_> = lock.holders.iter().map(|entry| entry.claim).collect();
        let broken = named(lock, &claims);
        say(&format!(
            "lock {name}: {broken}\n--force is unsafe: the current holder keeps running until its next renewal, alongside \
         the next one. Only a fencing token protects then."
        ));
        if !confirmed && !asked()? {
            say("nothing changed");
            return Ok(exit::NEGATIVE);
        }
        warn!(lock = %name, "breaking the lock by force");
        let operation = LockOperation::Break {
            claims: claims.clone(),
            seen: lock.token,
        };
        self.sent(operation, &claims, &broken).await
    }

    /// Sends a removal of these claims. Without claims, it grants.
    async fn sent(
        &self,
        operation: LockOperation,
        claims: &[Claim],
        what: &str,
    ) -> Result<u8, CommandError> {
        let name = self.name;
        let send = || {
            let (store, operation) = (self.store.clone(), operation.clone());
            async move { store.perform(operation).await }
        };
        let doing = ("break the lock", name);
        let written = self.calls.write(doing, send, async |deadline| {
            let found = self.calls.lock(&self.store, true, deadline).await?;
            let lock = self.document(found)?.unwrap_or_default();
            let is_left = |entry: &Entry| claims.contains(&entry.claim);
            let remains = match claims.is_empty() {
                true => lock.holders.is_empty() && !lock.queue.is_empty(),
                false => lock.holders.iter().chain(&lock.queue).any(is_left),
            };
            Ok(match (remains, &operation) {
                (false, _) => Reread::Done,
                (true, LockOperation::Evict { entries, .. }) if has_renewed(&lock, entries) => {
                    Reread::Changed
                }
                (true, _) => Reread::Unchanged,
            })
        });
        let done = match (written.await?, claims.is_empty()) {
            (WriteResult::Rejected, _) => {
                say(&format!(
                    "lock {name}: it changed meanwhile, nothing removed; try again"
                ));
                return Ok(exit::NEGATIVE);
            }
            (WriteResult::Applied, false) => format!("broken: {what}"),
            // The holder may have released it, or another operator may have broken it.
            (WriteResult::Shown, false) => format!("no longer {what}"),
            (WriteResult::Applied | WriteResult::Shown, true) => what.to_owned(),
        };
        answer(format!("lock {name}: {done}\n").as_bytes())?;
        Ok(exit::DONE)
    }

    async fn read(&self) -> Result<Option<LockDocument>, LocksError> {
        let deadline = self.calls.deadline();
        self.document(self.calls.lock(&self.store, false, deadline).await?)
    }

    fn document(&self, found: FoundLock) -> Result<Option<LockDocument>, LocksError> {
        match found {
            FoundLock::Lock(lock) => Ok(Some(lock)),
            FoundLock::Foreign(why) => Err(LocksError::NoLock {
                name: self.name.clone(),
                why,
            }),
            FoundLock::Missing => Ok(None),
        }
    }
}

/// Returns true if one of the entries is there, but with another revision.
fn has_renewed(lock: &LockDocument, entries: &[EntryVersion]) -> bool {
    let all = || lock.holders.iter().chain(&lock.queue);
    entries
        .iter()
        .any(|seen| all().any(|e| e.claim == seen.claim && e.revision != seen.revision))
}

/// Returns the rests of the places whose work has ended.
fn rests(lock: &LockDocument) -> impl Iterator<Item = Duration> {
    let over = lock.holders.iter().filter(|entry| entry.work_done);
    over.map(|entry| entry.min_hold)
}

/// Returns the holders that have not renewed for their lease duration, each with the rest of its
/// minimum hold.
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
        .map_err(CommandError::failed(
            exit::CANNOT_TELL,
            "read standard input",
        ))?;
    Ok(line.trim() == "yes")
}

fn named(lock: &LockDocument, claims: &[Claim]) -> String {
    let of = |entries: &[Entry], does: &str| -> Vec<String> {
        entries
            .iter()
            .filter(|entry| claims.contains(&entry.claim))
            .map(|entry| format!("{does} {} ({})", entry.owner.identity, entry.mode.as_str()))
            .collect()
    };
    let holders = of(&lock.holders, "held by");
    let waiters = of(&lock.queue, "waited for by");
    [holders, waiters].concat().join(", ")
}
