//! Hints: one small capped collection next to the leases, in which candidates and operators leave a
//! document after each change that others wait for. A follower keeps a cursor on it, which wakes on
//! inserts into that collection only, whatever else the deployment does.
//!
//! A hint is written without majority after the change that it reports was acknowledged. It may be
//! lost, late or false: it makes a follower read, and decides nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use mongodb::bson::{Bson, Document, Uuid, doc};
use mongodb::error::Error;
use mongodb::options::{Acknowledgment, CursorType, ReadConcern, WriteConcern};
use mongodb::raw_batch_cursor::RawBatchCursor;
use mongodb::{Collection, Database};
use tokio::sync::Semaphore;

use super::connection::Deployment;
use super::options::WatchMode;
use super::{document, lock, now, outcome, primary};
use crate::randomness::KernelRandomness;
use crate::store::Failure;
use leasehold_core::election::{BootTime, Operation, Randomness, ResourceName};

/// Size of the collection in bytes: some three hundred hints. A cursor that falls further behind is
/// reopened.
const SIZE: i64 = 32 * 1024;
/// Hints in one batch; more than the collection has, so that a cursor skips all old ones.
const BATCH_MAX: u32 = 1_000;
/// Maximum number of hints in flight; further hints are dropped.
const LEAVING_MAX: u32 = 4;
/// How long a refusal is remembered.
const RETRY: Duration = Duration::from_secs(60);
/// Time that a process that exits, or an operator, waits for its hints to be sent.
const SENT_MAX: Duration = Duration::from_millis(250);

/// Kind of the failure if the collection of hints does not exist.
pub(super) const NO_HINTS: &str = "no collection of hints";
/// Error codes: `BadValue` for a collection that is not capped, `NamespaceExists`, and
/// `InvalidOptions`.
const BAD_VALUE: i32 = 2;
const NAMESPACE_EXISTS: i32 = 48;
const INVALID_OPTIONS: i32 = 72;

/// The hints of one candidate: it leaves its own, and may follow the hints of others.
#[derive(Debug)]
pub(super) struct Hints {
    pub(super) mode: WatchMode,
    state: Mutex<HintsState>,
    /// A permit for each hint in flight.
    leaving: Arc<Semaphore>,
}

#[derive(Debug)]
struct HintsState {
    /// Marks the candidate's own hints, which its cursor skips. Each cursor draws a new mark,
    /// because copies of a virtual machine must not skip each other's hints.
    by: Uuid,
    /// True if the collection is capped and hints can be left in it, when last tried.
    usable: bool,
    /// True if the cursor is followed, and not a change stream.
    following: bool,
    /// True if the last known holder leaves no hints.
    holder_leaves_none: bool,
    /// When hints are tried again after a refusal.
    refused_until: BootTime,
    /// The interval of this candidate's renewals, and whether its claim declares it.
    interval: Option<Duration>,
    declared: bool,
}

impl Hints {
    pub(super) fn new(mode: WatchMode) -> Self {
        Self {
            mode,
            state: Mutex::new(HintsState {
                by: id(),
                usable: false,
                following: false,
                holder_leaves_none: false,
                refused_until: BootTime::default(),
                interval: None,
                declared: false,
            }),
            leaving: Arc::new(Semaphore::new(LEAVING_MAX as usize)),
        }
    }

    /// Adds to a write whether this candidate leaves hints: to an acquisition, and to a renewal if
    /// that has changed since. Returns what the claim declares if the write is applied.
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

    /// Returns the interval that a renewal declares; `None` if the candidate leaves no hints.
    pub(super) fn interval(&self, leaves_hints: bool) -> Option<Duration> {
        lock(&self.state).interval.filter(|_| leaves_hints)
    }

    /// Records that a write with this declaration was applied.
    pub(super) fn declared(&self, leaves_hints: bool) {
        lock(&self.state).declared = leaves_hints;
    }

    /// Returns true if hints are to be followed where available.
    pub(super) fn are_wanted(&self) -> bool {
        self.mode == WatchMode::Hints || !lock(&self.state).holder_leaves_none
    }

    pub(super) fn follows(&self, hints: bool) {
        lock(&self.state).following = hints;
    }

    /// Returns true if the source should change, because the last read holder has begun or ceased
    /// to leave hints.
    pub(super) fn should_change(&self, lease: &Document) -> bool {
        let mut state = lock(&self.state);
        let Some(left) = left_by_holder(lease) else {
            return false;
        };
        state.holder_leaves_none = !left;
        if self.mode != WatchMode::Auto || left == state.following {
            return false;
        }
        let now = leasehold_clock::boot_now();
        let tried = state.refused_until > now;
        if left && !tried {
            // At most one attempt for each period, since each read comes here.
            state.refused_until = now + RETRY;
        }
        !left || !tried
    }

    /// Opens a cursor on the hints for a lease, after the last stored hint.
    pub(super) async fn open(
        &self,
        leases: &Collection<Document>,
        name: &ResourceName,
        await_max: Duration,
    ) -> Result<RawBatchCursor, HintsRefusal> {
        let hints = collection(leases);
        lock(&self.state).by = id();
        let opened = self.opened(&hints, name, await_max).await;
        let mut state = lock(&self.state);
        state.usable = match &opened {
            Ok(_) => true,
            Err(refusal) => state.usable && !refusal.is_final(),
        };
        state.refused_until = match &opened {
            Ok(_) => BootTime::default(),
            Err(_) => leasehold_clock::boot_now() + RETRY,
        };
        opened
    }

    async fn opened(
        &self,
        hints: &Collection<Document>,
        name: &ResourceName,
        await_max: Duration,
    ) -> Result<RawBatchCursor, HintsRefusal> {
        match tail(hints, self.filter(name), await_max).await {
            Ok(cursor) => {
                // Shows that hints can be left. The cursor exists, so the insert creates no
                // collection.
                insert(hints, self.hint(None)).await?;
                Ok(cursor)
            }
            Err(HintsRefusal::Missing) if self.mode == WatchMode::Hints => {
                create(hints).await?;
                insert(hints, self.hint(None)).await?;
                tail(hints, self.filter(name), await_max).await
            }
            Err(refusal) => Err(refusal),
        }
    }

    pub(super) fn leave(self: &Arc<Self>, deployment: &Arc<Deployment>, name: &ResourceName) {
        let permit = Arc::clone(&self.leaving).try_acquire_owned();
        let (Ok(permit), true) = (permit, lock(&self.state).usable) else {
            return;
        };
        let (hints, deployment) = (Arc::clone(self), Arc::clone(deployment));
        let hint = self.hint(Some(name));
        tokio::spawn(async move {
            let _permit = permit;
            let Ok(leases) = deployment.collection().await else {
                return;
            };
            let there = collection(&leases);
            // A cursor ends if the collection is dropped. Without a cursor, the collection must be
            // checked.
            let followed = lock(&hints.state).following;
            let left = match followed {
                true => insert(&there, hint).await,
                false => insert_into_existing(&there, hint).await,
            };
            if left.is_err_and(|refusal| refusal.is_final()) {
                lock(&hints.state).usable = false;
            }
        });
    }

    /// Waits briefly until the hints that are left have been sent.
    pub(super) async fn sent(&self) {
        let all = self.leaving.acquire_many(LEAVING_MAX);
        let _ = tokio::time::timeout(SENT_MAX, all).await;
    }

    fn filter(&self, name: &ResourceName) -> Document {
        doc! { "name": name.as_str(), "by": { "$ne": lock(&self.state).by } }
    }

    fn hint(&self, name: Option<&ResourceName>) -> Document {
        let name = name.map_or(Bson::Null, |name| name.as_str().into());
        doc! { "_id": id(), "name": name, "by": lock(&self.state).by, "at": now() }
    }
}

pub(super) enum HintsRefusal {
    /// There is no such collection, or it is empty.
    Missing,
    Error(Error),
}

impl From<Error> for HintsRefusal {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl HintsRefusal {
    /// Returns true if another attempt fails too, until an operator has changed something.
    fn is_final(&self) -> bool {
        match self {
            Self::Missing => true,
            Self::Error(error) => matches!(
                outcome::code(error),
                Some(BAD_VALUE | outcome::UNAUTHORIZED)
            ),
        }
    }

    pub(super) fn failure(&self, deployment: &Deployment) -> Failure {
        let options = &deployment.options;
        let hints = format!("{}.{}", options.database, name_of(&options.collection));
        let Self::Error(error) = self else {
            let detail = format!(
                "{hints} does not exist or is empty: mongodb.watch = \"hints\" creates it as a capped \
                 collection"
            );
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

/// Returns true if the holder in a lease document leaves hints; `None` if there is no holder.
fn left_by_holder(lease: &Document) -> Option<bool> {
    let holder = lease.get_document("holder").ok()?;
    Some(document::renews_every(holder).is_some())
}

/// Inserts a hint if the collection exists and is capped. An insert into a missing collection would
/// create it uncapped.
async fn insert_into_existing(
    hints: &Collection<Document>,
    hint: Document,
) -> Result<(), HintsRefusal> {
    let nothing = doc! { "_id": Bson::Null };
    tail(hints, nothing, Duration::ZERO).await?;
    insert(hints, hint).await
}

/// Leaves a hint for an operator, if there is a collection of hints. Errors are ignored: followers
/// read in any case, only later.
pub(super) async fn leave_for_operator(deployment: Arc<Deployment>, name: String) {
    let left = tokio::spawn(async move {
        let Ok(leases) = deployment.collection().await else {
            return;
        };
        let hint = doc! { "_id": id(), "name": name, "at": now() };
        let _ = insert_into_existing(&collection(&leases), hint).await;
    });
    let _ = tokio::time::timeout(SENT_MAX, left).await;
}

/// Checks that hints can be followed and left, without inserting a hint.
pub(super) async fn probe(
    leases: &Collection<Document>,
    refused: Bson,
) -> Result<(), HintsRefusal> {
    let hints = collection(leases);
    tail(&hints, doc! { "_id": Bson::Null }, Duration::ZERO).await?;
    match insert(&hints, doc! { "_id": refused }).await {
        Err(HintsRefusal::Error(error)) if outcome::is_write_error(&error) => Ok(()),
        other => other,
    }
}

/// Checks that the collection may be created, without creating it: the request lacks the size, and
/// the server checks the rights first.
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

/// Opens a cursor that waits for new hints, and skips those that are there.
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
    let first = cursor
        .next()
        .await
        .transpose()?
        .ok_or(HintsRefusal::Missing)?;
    let reply = first.as_raw_document();
    // The server closes the cursor at once if the collection does not exist or is empty.
    let id = reply.get_document("cursor").and_then(|c| c.get_i64("id"));
    match id {
        Ok(id) if id != 0 => Ok(cursor),
        Ok(_) | Err(_) => Err(HintsRefusal::Missing),
    }
}

async fn insert(hints: &Collection<Document>, hint: Document) -> Result<(), HintsRefusal> {
    let one = WriteConcern::builder().w(Acknowledgment::Nodes(1)).build();
    hints.insert_one(hint).write_concern(one).await?;
    Ok(())
}

/// Returns a new id. The driver's ids repeat on copies of a virtual machine, and a server refuses a
/// hint whose id is stored.
fn id() -> Uuid {
    Uuid::from_bytes(KernelRandomness.bits().to_be_bytes())
}
