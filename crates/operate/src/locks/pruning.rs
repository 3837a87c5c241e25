//! `leasehold locks prune`: shrinks the documents of unused locks, and prints why other locks are
//! kept.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use super::calls::{Calls, LockCalls, Reread, WriteResult, version};
use crate::operators::render::short;
use crate::operators::{OperatorError, hinted};
use leasehold_cli::answer;
use leasehold_core::election::ResourceName;
use leasehold_core::lock::{Ending, Entry, LockDocument, LockOperation};
use leasehold_host::log::millis;
use leasehold_host::terminal::fitted;
use leasehold_host::{CommandError, exit};
use leasehold_mongodb::store::mongo::operators::{CollectionEntry, Content, LockRecord};

enum Pruning {
    /// Contains the age of the last success, if the lock had one. The record of this success was
    /// removed too.
    Pruned(Option<Duration>),
    /// The document already contains only its token.
    Bare,
    Kept(Kept),
}

struct Kept {
    /// A stable identifier for scripts.
    reason: &'static str,
    why: String,
    used_ago: Option<Duration>,
}

impl Kept {
    fn because(reason: &'static str, why: impl Into<String>) -> Pruning {
        Pruning::Kept(Self {
            reason,
            why: why.into(),
            used_ago: None,
        })
    }

    fn not_a_lock(why: &str) -> Pruning {
        Self::because("not_a_lock", format!("not a lock: {why}"))
    }

    fn used(ago: Duration) -> Pruning {
        Pruning::Kept(Self {
            reason: "used",
            why: format!("used {} ago", short(ago)),
            used_ago: Some(ago),
        })
    }

    fn object(&self, name: &str) -> Value {
        let used = self.used_ago.map(millis);
        json!({ "lock": name, "reason": self.reason, "why": self.why, "used_ago_ms": used })
    }
}

pub(super) async fn run(
    calls: &Calls<'_>,
    unused_for: Duration,
    json: bool,
) -> Result<u8, CommandError> {
    let (mut pruned, mut kept, mut bare) = (Vec::new(), Vec::new(), 0_usize);
    let mut forgotten = Vec::new();
    let mut failed = None;
    for listed in calls.list().await? {
        let line = match one(calls, &listed, unused_for).await {
            Ok(Pruning::Bare) => {
                bare += 1;
                continue;
            }
            Ok(Pruning::Pruned(success_ago)) => {
                let name = listed.name;
                let line = match success_ago {
                    None => format!("pruned {name}\n"),
                    Some(ago) => {
                        forgotten.push(json!({ "lock": name, "success_ago_ms": millis(ago) }));
                        let ago = short(ago);
                        format!(
                            "pruned {name}; its success {ago} ago is forgotten, so --once-per may run the job again\n"
                        )
                    }
                };
                pruned.push(name);
                line
            }
            Ok(Pruning::Kept(why)) => {
                kept.push(why.object(&listed.name));
                format!("kept {}: {}\n", listed.name, why.why)
            }
            Err(error) => {
                failed = Some(error);
                break;
            }
        };
        if !json {
            answer(fitted(&io::stdout(), &line).as_bytes())?;
        }
    }
    let counts = format!("{} kept, {bare} pruned before", kept.len());
    let summary = match pruned.len() {
        0 => format!(
            "no lock has been unused for {}: {counts}",
            short(unused_for)
        ),
        pruned => format!("{pruned} pruned, {counts}"),
    };
    let exit = match pruned.is_empty() {
        true => exit::NEGATIVE,
        false => exit::DONE,
    };
    if json {
        let object = json!({
            "pruned": pruned, "forgotten": forgotten, "kept": kept, "pruned_before": bare,
        });
        answer(format!("{object:#}\n").as_bytes())?;
    } else if failed.is_none() {
        answer(fitted(&io::stdout(), &format!("{summary}\n")).as_bytes())?;
    }
    failed.map_or(Ok(exit), |error| Err(error.into()))
}

async fn one(
    calls: &Calls<'_>,
    listed: &CollectionEntry,
    unused_for: Duration,
) -> Result<Pruning, OperatorError> {
    let record = match &listed.content {
        Content::Lock(record) => record,
        Content::Foreign(why) => return Ok(Kept::not_a_lock(why)),
        // The scope excludes leases.
        Content::Lease(_) => return Ok(Pruning::Bare),
    };
    let Ok(name) = ResourceName::new(listed.name.as_str()) else {
        return Ok(Kept::not_a_lock("invalid lock name"));
    };
    if let Some(kept) = occupied(&name, &record.lock) {
        return Ok(kept);
    }
    match prune(&calls.of(name), record, unused_for).await {
        // The document was replaced after it was listed.
        Err(OperatorError::Foreign { why, .. }) => Ok(Kept::not_a_lock(&why)),
        pruned => pruned,
    }
}

/// Returns the reason to keep a lock. Returns `None` if the lock has no waiter, and no holder whose
/// work or minimum hold is still in progress.
fn occupied(name: &ResourceName, lock: &LockDocument) -> Option<Pruning> {
    let named = |entry: &Entry| format!("{} ({})", entry.owner.identity, entry.mode.as_str());
    if let Some(holder) = lock.holders.iter().find(|entry| !entry.work_done) {
        let held = format!("held by {}", named(holder));
        let why = match silence(holder, lock) {
            None => held,
            Some(silence) => format!(
                "{held}, whose last renewal was {} ago; to remove it: {}",
                short(silence),
                hinted(&format!("locks break {name}"))
            ),
        };
        return Some(Kept::because("held", why));
    }
    if let Some(waiter) = lock.queue.first() {
        let why = format!("{} waits for it", named(waiter));
        return Some(Kept::because("waited_for", why));
    }
    let last = lock.holders.iter().max_by_key(|entry| entry.min_hold)?;
    let (by, rest) = (named(last), short(last.min_hold));
    let why = format!("the work of {by} has ended; its minimum hold lasts another {rest}");
    (!last.min_hold.is_zero()).then(|| Kept::because("kept", why))
}

/// Returns the age of the entry's last renewal if the age exceeds the lease duration. The age is
/// MongoDB's time minus the renewal's date on the owner's clock.
fn silence(entry: &Entry, lock: &LockDocument) -> Option<Duration> {
    let age = lock.store_now.0.checked_sub(entry.owner.renewed_at.0)?;
    let age = Duration::from_millis(u64::try_from(age).ok()?);
    (age > entry.lease_duration.duration()).then_some(age)
}

async fn prune(
    lock: &LockCalls<'_>,
    record: &LockRecord,
    unused_for: Duration,
) -> Result<Pruning, OperatorError> {
    let document = &record.lock;
    let mut last_end = record.history.iter().map(|end| end.ended_at.0).max();
    if !document.holders.is_empty() {
        evict(lock, document).await?;
        last_end = lock.last_end(lock.calls.deadline()).await?;
    }
    let Some(last_end) = last_end else {
        return Ok(Pruning::Bare);
    };
    let ago = |at: i64| {
        let ago = document.store_now.0.saturating_sub(at);
        Duration::from_millis(u64::try_from(ago).unwrap_or(0))
    };
    let success = document.successes.iter().map(|success| success.at.0).max();
    let unused = ago(success.map_or(last_end, |at| at.max(last_end)));
    if unused < unused_for {
        return Ok(Kept::used(unused));
    }
    // If the lock was acquired after the read, its token is higher, and this write matches nothing.
    let seen = document.token;
    let send = || {
        let store = lock.store.clone();
        async move { store.prune(seen).await }
    };
    let written = lock.write("prune a lock", send, async |found, deadline| {
        let unchanged =
            |found: &LockDocument| found.token == seen && occupied(&lock.name, found).is_none();
        if !found.is_some_and(|found| unchanged(&found)) {
            return Ok(Reread::Changed);
        }
        Ok(match lock.last_end(deadline).await? {
            None => Reread::Done,
            Some(_) => Reread::Unchanged,
        })
    });
    Ok(match written.await? {
        WriteResult::Rejected => Kept::because("changed", "changed after it was listed"),
        WriteResult::Applied | WriteResult::Shown => Pruning::Pruned(success.map(ago)),
    })
}

async fn evict(lock: &LockCalls<'_>, document: &LockDocument) -> Result<(), OperatorError> {
    let entries: Vec<_> = document.holders.iter().map(version).collect();
    let evict = LockOperation::Evict {
        entries: entries.clone(),
        me: None,
        ending: Ending::Expired,
        seen: document.token,
    };
    let written = lock.perform("remove an ended holder", &evict, |found| {
        let mut holders = found.iter().flat_map(|lock| &lock.holders);
        match holders.any(|entry| entries.contains(&version(entry))) {
            true => Reread::Unchanged,
            false => Reread::Done,
        }
    });
    written.await.map(drop)
}
