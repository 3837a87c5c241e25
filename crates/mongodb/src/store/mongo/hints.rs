//! Hints wake followers. After each change that others wait for, candidates and operators insert a
//! document into a small capped collection, which followers read with tailable cursors. A hint only
//! causes a read, or an acquisition that matches only the announced release, so lost, late or false
//! hints are harmless, and hints need no majority.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use mongodb::bson::{Bson, Document, RawArray, RawDocument, Uuid, doc};
use mongodb::error::Error;
use mongodb::options::{CursorType, ReadConcern};
use mongodb::raw_batch_cursor::RawBatchCursor;
use mongodb::{Collection, Database};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

use super::connection::{Deployment, by_primary};
use super::options::WatchMode;
use super::{document, lock, now, outcome, primary};
use crate::randomness::KernelRandomness;
use crate::store::Failure;
use leasehold_core::election::{
    BootTime, Claim, HEAD_START, Identity, Operation, Randomness, Released, ResourceName, Revision,
};

/// Size in bytes, enough for about 300 hints. A cursor that falls further behind is reopened.
const SIZE: i64 = 32 * 1024;
/// Batch size, in documents. Larger than the collection, so that a new cursor skips all old hints.
const BATCH_MAX: u32 = 1_000;
/// Maximum number of hints in flight; further hints are dropped.
const LEAVING_MAX: u32 = 4;
/// Minimum time between a refusal and the next attempt.
pub(super) const RETRY: Duration = Duration::from_secs(60);
/// Minimum time between two attempts to create the collection, because each attempt reopens the
/// change stream.
const CREATION_RETRY: Duration = Duration::from_secs(3600);
/// Maximum time that an exiting process or an operator waits until the hints are sent.
const SENT_MAX: Duration = Duration::from_millis(250);
pub(super) const NO_HINTS: &str = "no collection of hints";
/// Error code for a tailable cursor on a collection that is not capped.
const BAD_VALUE: i32 = 2;
const NAMESPACE_EXISTS: i32 = 48;
const INVALID_OPTIONS: i32 = 72;

#[derive(Debug)]
pub(super) struct Hints {
    pub(super) mode: WatchMode,
    state: Mutex<HintsState>,
    leaving: Arc<Semaphore>,
    heard: Notify,
}

#[derive(Debug, Default)]
struct HintsState {
    /// Marks our own hints, so that our cursor skips them. Each cursor draws a new mark, because
    /// copies of a virtual machine must not skip each other's hints.
    by: Uuid,
    /// True if the last attempt found a capped collection that accepts hints.
    usable: bool,
    /// True if the candidate follows a cursor instead of a change stream.
    following: bool,
    /// True while an open cursor proves that the collection exists.
    exists: bool,
    holder_leaves_none: bool,
    refused_until: BootTime,
    creation_refused_until: BootTime,
    /// The claim whose release was announced last.
    announced: Option<Claim>,
    interval: Option<Duration>,
    /// True if the candidate's claim declares the renewal interval.
    declared: bool,
}

impl Hints {
    pub(super) fn new(mode: WatchMode) -> Self {
        Self {
            mode,
            state: Mutex::new(HintsState {
                by: id(),
                ..HintsState::default()
            }),
            leaving: Arc::new(Semaphore::new(LEAVING_MAX as usize)),
            heard: Notify::new(),
        }
    }

    /// Returns whether the candidate will write hints; `None` if `operation` does not declare this.
    pub(super) fn declare(&self, operation: &mut Operation) -> Option<bool> {
        let mut state = lock(&self.state);
        match operation {
            Operation::Acquire(acquisition) | Operation::TakeOver { acquisition, .. } => {
                state.interval = acquisition.renew_interval;
                if !state.usable {
                    acquisition.renew_interval = None;
                }
                Some(state.usable)
            }
            Operation::Renew { .. } => (state.declared != state.usable).then_some(state.usable),
            _ => None,
        }
    }

    pub(super) fn interval(&self, leaves_hints: bool) -> Option<Duration> {
        lock(&self.state).interval.filter(|_| leaves_hints)
    }

    pub(super) fn declared(&self, leaves_hints: bool) {
        lock(&self.state).declared = leaves_hints;
    }

    /// True if the source should change because the holder started or stopped writing hints.
    pub(super) fn should_change(&self, lease: &Document) -> bool {
        let mut state = lock(&self.state);
        let Ok(holder) = lease.get_document("holder") else {
            return false;
        };
        let left = document::renews_every(holder).is_some();
        state.holder_leaves_none = !left;
        if self.mode != WatchMode::Auto || left == state.following {
            return false;
        }
        let now = leasehold_clock::boot_now();
        let tried = state.refused_until > now;
        if left && !tried {
            // Limits the attempts, because each read calls this function.
            state.refused_until = now + RETRY;
        }
        !left || !tried
    }

    /// True if the candidate should try to create the collection, although it is not configured to
    /// use hints alone.
    pub(super) fn should_create(&self) -> bool {
        let state = lock(&self.state);
        let refused = state.creation_refused_until > leasehold_clock::boot_now();
        self.mode == WatchMode::Auto && !state.usable && !refused
    }

    /// Opens a cursor; `None` if the holder writes no hints and a change stream is better. Creates
    /// a missing collection if hints are configured or `may_create`.
    pub(super) async fn open(
        &self,
        leases: &Collection<Document>,
        (name, me): (&ResourceName, &Identity),
        await_max: Duration,
        may_create: bool,
    ) -> Result<Option<RawBatchCursor>, HintsRefusal> {
        let hints = collection(leases);
        lock(&self.state).by = id();
        let creates = self.mode == WatchMode::Hints || (may_create && self.should_create());
        let opened = async {
            let tailed = tail(&hints, self.filter(name, me), await_max).await;
            let missing = matches!(tailed, Err(HintsRefusal::Missing));
            if missing && creates {
                create(&hints).await?;
                insert(&hints, self.hint(None)).await?;
                return tail(&hints, self.filter(name, me), await_max).await;
            }
            let cursor = tailed?;
            // Tests the right to insert. The collection exists, so the insert cannot create it.
            insert(&hints, self.hint(None)).await?;
            Ok(cursor)
        };
        let opened = opened.await;
        let mut state = lock(&self.state);
        state.usable = match &opened {
            Ok(_) => true,
            Err(refusal) => state.usable && !refusal.is_final(),
        };
        let now = leasehold_clock::boot_now();
        state.refused_until = match &opened {
            Ok(_) => BootTime::default(),
            Err(_) => now + RETRY,
        };
        if creates && opened.as_ref().is_err_and(HintsRefusal::is_final) {
            state.creation_refused_until = now + CREATION_RETRY;
        }
        let is_wanted = self.mode == WatchMode::Hints || !state.holder_leaves_none;
        state.following = opened.is_ok() && is_wanted;
        state.exists = state.following;
        Ok(Some(opened?).filter(|_| is_wanted))
    }

    /// Notes that the cursor was closed, perhaps because the collection was dropped.
    pub(super) fn lost(&self) {
        lock(&self.state).exists = false;
    }

    /// Notes that the cursor has received the hint of another candidate.
    pub(super) fn heard(&self) {
        self.heard.notify_waiters();
    }

    /// Returns the release that the hint of this operation announces. Announces only a release for
    /// a named successor, and only if its hint can be inserted. Announces each claim only once. If
    /// the release is repeated, a majority must acknowledge it, so that a rejection is final and
    /// retries do not form a busy loop.
    pub(super) fn announce(&self, operation: &Operation) -> Option<Released> {
        let Operation::Release {
            claim,
            revision,
            reserved_for: Some(reserved_for),
            ..
        } = operation
        else {
            return None;
        };
        let mut state = lock(&self.state);
        let is_first = state.usable && state.announced.replace(*claim) != Some(*claim);
        is_first.then(|| Released {
            claim: *claim,
            revision: *revision,
            reserved_for: reserved_for.identity.clone(),
        })
    }

    pub(super) fn leave(
        self: &Arc<Self>,
        deployment: &Arc<Deployment>,
        name: &ResourceName,
        released: Option<Released>,
    ) {
        let permit = Arc::clone(&self.leaving).try_acquire_owned();
        let (Ok(permit), true) = (permit, lock(&self.state).usable) else {
            return;
        };
        let (hints, deployment) = (Arc::clone(self), Arc::clone(deployment));
        let mut hint = self.hint(Some(name));
        // The server sends an announced release only to the candidate that it names.
        let for_the_others = released.is_some().then(|| self.hint(Some(name)));
        if let Some(released) = released {
            hint.insert("released", announcement(&released));
        }
        tokio::spawn(async move {
            let _permit = permit;
            let heard = hints.heard.notified();
            tokio::pin!(heard);
            heard.as_mut().enable();
            let Ok(leases) = deployment.collection().await else {
                return;
            };
            let there = collection(&leases);
            let exists = lock(&hints.state).exists;
            let mut left = match exists {
                true => insert(&there, hint).await,
                false => insert_into_existing(&there, hint).await,
            };
            if let (Ok(()), Some(hint)) = (&left, for_the_others)
                && timeout(HEAD_START, heard).await.is_err()
            {
                // That candidate has probably crashed.
                left = insert(&there, hint).await;
            }
            if left.is_err_and(|refusal| refusal.is_final()) {
                lock(&hints.state).usable = false;
            }
        });
    }

    pub(super) async fn sent(&self) {
        let all = self.leaving.acquire_many(LEAVING_MAX);
        let _ = timeout(SENT_MAX, all).await;
    }

    /// Selects the hints of other candidates. The release for a named candidate wakes only this
    /// candidate, because the others would use processors and connections that it needs.
    fn filter(&self, name: &ResourceName, me: &Identity) -> Document {
        let others = doc! { "released.reserved_for": { "$in": [Bson::Null, me.as_str()] } };
        doc! { "$and": [
            { "name": name.as_str(), "by": { "$ne": lock(&self.state).by } },
            others,
        ] }
    }

    fn hint(&self, name: Option<&ResourceName>) -> Document {
        let name = name.map_or(Bson::Null, |name| name.as_str().into());
        doc! { "_id": id(), "name": name, "by": lock(&self.state).by, "at": now() }
    }
}

fn announcement(released: &Released) -> Document {
    doc! {
        "claim": document::uuid(released.claim.bytes()),
        "revision": document::uuid(released.revision.bytes()),
        "reserved_for": released.reserved_for.as_str(),
    }
}

/// Returns the newest release that these hints announce, if any.
pub(super) fn released(hints: &RawArray) -> Option<Released> {
    let hints = hints.into_iter().flatten();
    hints
        .filter_map(|hint| announced(hint.as_document()?))
        .last()
}

fn announced(hint: &RawDocument) -> Option<Released> {
    let hint = Document::try_from(hint).ok()?;
    let released = hint.get_document("released").ok()?;
    let id = |key| document::id(released, key).ok();
    Some(Released {
        claim: Claim::from_bytes(id("claim")?),
        revision: Revision::from_bytes(id("revision")?),
        reserved_for: Identity::new(released.get_str("reserved_for").ok()?).ok()?,
    })
}

pub(super) enum HintsRefusal {
    /// The collection does not exist, or is empty.
    Missing,
    Error(Error),
}

impl From<Error> for HintsRefusal {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl HintsRefusal {
    /// True if retries fail until an operator removes the cause.
    fn is_final(&self) -> bool {
        let Self::Error(error) = self else {
            return true;
        };
        let code = outcome::code(error);
        code.is_some_and(|code| [BAD_VALUE, outcome::UNAUTHORIZED].contains(&code))
    }

    pub(super) fn failure(&self, deployment: &Deployment) -> Failure {
        let options = &deployment.options;
        let hints = format!("{}.{}", options.database, name_of(&options.collection));
        let Self::Error(error) = self else {
            let remedy = "mongodb.watch = \"hints\" creates it as a capped collection";
            let detail = format!("{hints} does not exist or is empty: {remedy}");
            return Failure::new(NO_HINTS, detail);
        };
        let (kind, detail) = match outcome::code(error) {
            Some(BAD_VALUE) => (
                "the collection of hints is not capped",
                format!("drop {hints}"),
            ),
            Some(outcome::UNAUTHORIZED) => (
                "no right to use hints",
                format!("the role needs find, insert and convertToCapped on {hints}"),
            ),
            _ => return deployment.describe(error),
        };
        outcome::named(Failure::lasting(kind, detail), error)
    }
}

/// Inserts a hint only if the collection exists, because an insert would create it uncapped.
async fn insert_into_existing(
    hints: &Collection<Document>,
    hint: Document,
) -> Result<(), HintsRefusal> {
    let nothing = doc! { "_id": Bson::Null };
    tail(hints, nothing, Duration::ZERO).await?;
    insert(hints, hint).await
}

/// Inserts a hint on behalf of an operator. Ignores errors, because followers notice the change
/// later even without a hint.
pub(super) async fn leave_for_operator(deployment: Arc<Deployment>, name: String) {
    let left = tokio::spawn(async move {
        let Ok(leases) = deployment.collection().await else {
            return;
        };
        let hint = doc! { "_id": id(), "name": name, "at": now() };
        let _ = insert_into_existing(&collection(&leases), hint).await;
    });
    let _ = timeout(SENT_MAX, left).await;
}

/// Checks that hints can be followed and inserted, without inserting a hint.
pub(super) async fn probe(
    leases: &Collection<Document>,
    refused: Bson,
) -> Result<(), HintsRefusal> {
    match insert_into_existing(&collection(leases), doc! { "_id": refused }).await {
        Err(HintsRefusal::Error(error)) if outcome::is_write_error(&error) => Ok(()),
        other => other,
    }
}

/// Checks the right to create the collection. The request itself fails, because it specifies no
/// size.
pub(super) async fn probe_creation(leases: &Collection<Document>) -> Result<(), HintsRefusal> {
    let hints = collection(leases);
    let refused = doc! { "create": hints.name(), "capped": true };
    match database(&hints).run_command(refused).await {
        Err(error) if outcome::code(&error) != Some(INVALID_OPTIONS) => Err(error.into()),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn name_of(leases: &str) -> String {
    format!("{leases}.hints")
}

fn collection(leases: &Collection<Document>) -> Collection<Document> {
    let namespace = leases.namespace();
    database(leases).collection(&name_of(&namespace.coll))
}

fn database(leases: &Collection<Document>) -> Database {
    leases.client().database(&leases.namespace().db)
}

async fn create(hints: &Collection<Document>) -> Result<(), HintsRefusal> {
    let created = database(hints)
        .create_collection(hints.name())
        .capped(true)
        .size(u64::try_from(SIZE).unwrap_or_default())
        .await;
    match created {
        Err(error) if outcome::code(&error) != Some(NAMESPACE_EXISTS) => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Opens a cursor that skips the stored hints and waits for new hints.
async fn tail(
    hints: &Collection<Document>,
    filter: Document,
    await_max: Duration,
) -> Result<RawBatchCursor, HintsRefusal> {
    let mut cursor = hints
        .find(filter)
        .cursor_type(CursorType::TailableAwait)
        .max_await_time(await_max)
        .batch_size(BATCH_MAX)
        .read_concern(ReadConcern::local())
        .selection_criteria(primary())
        .batch()
        .await?;
    let first = cursor.next().await.transpose()?;
    let first = first.ok_or(HintsRefusal::Missing)?;
    let reply = first.as_raw_document();
    // The server closes the cursor at once if the collection does not exist or is empty.
    let id = reply.get_document("cursor").and_then(|c| c.get_i64("id"));
    match id {
        Ok(id) if id != 0 => Ok(cursor),
        Ok(_) | Err(_) => Err(HintsRefusal::Missing),
    }
}

async fn insert(hints: &Collection<Document>, hint: Document) -> Result<(), HintsRefusal> {
    hints.insert_one(hint).write_concern(by_primary()).await?;
    Ok(())
}

/// Returns a new id. Unlike the driver's ids, these ids differ between copies of a virtual machine.
fn id() -> Uuid {
    Uuid::from_bytes(KernelRandomness.bits().to_be_bytes())
}

#[cfg(test)]
mod tests;
