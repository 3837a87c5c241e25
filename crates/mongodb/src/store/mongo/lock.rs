//! One lock in a MongoDB collection, and the listing of a collection's locks for humans.

mod client;
mod document;
mod expressions;
mod granting;
pub(super) mod trial;
mod update;
mod wake;

#[cfg(test)]
mod any_bson;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures_util::TryStreamExt;
use mongodb::bson::{DateTime, Document, Timestamp, doc};
use mongodb::options::{ReadConcern, ReadPreference, SelectionCriteria};
use tokio::sync::{Notify, mpsc, watch};

pub(crate) use self::client::LockClient;
use self::client::OpenClient;
pub(super) use self::document::read;
use self::wake::ClaimFollower;

use super::connection::{Deployment, Monitoring, SendError};
use super::display::shown;
use super::document::LOCK_KIND;
use super::follow;
use super::history::{self, PastHolder};
use super::options::StoreOptions;
use crate::store::{Answer, Failure, Store, StoreEvent, StoreInfo};
use leasehold_core::election::{Claim, ResourceName};
use leasehold_core::lock::{FoundLock, Hint, LockOperation, LockOutcome};

/// Maximum number of locks in a listing. For more, operators filter in the database.
const LISTED_MAX: usize = 10_000;

/// A lock in a MongoDB collection.
#[derive(Clone)]
pub struct MongoLockStore {
    shared: Arc<LockInner>,
}

impl fmt::Debug for MongoLockStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoLockStore")
            .field("name", &self.shared.name)
            .finish_non_exhaustive()
    }
}

struct LockInner {
    name: ResourceName,
    deployment: Arc<Deployment>,
    news: mpsc::Sender<StoreEvent<ClaimHint>>,
    /// Set by the first join that changed the number of slots.
    slots_before: OnceLock<u32>,
    /// The newest claim whose join was acknowledged, and the operation time of that write, where
    /// its change stream starts.
    joined: Mutex<Option<(Claim, Timestamp)>>,
    /// Set when a product that is not MongoDB was reported.
    reported: OnceLock<()>,
    /// The client, if other stores use it too.
    client: Option<OpenClient>,
}

/// A change stream hint, with the claim that the stream follows. By the time it is read, another
/// claim may be followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimHint {
    /// The followed claim.
    pub claim: Claim,
    /// The hint for that claim.
    pub hint: Hint,
}

impl LockInner {
    fn newest_join(&self) -> MutexGuard<'_, Option<(Claim, Timestamp)>> {
        // A poisoned value is consistent, because it is only replaced as a whole.
        self.joined.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MongoLockStore {
    /// Creates a store that connects at first use and sends its events to `news`.
    pub fn new(
        options: StoreOptions,
        name: ResourceName,
        news: mpsc::Sender<StoreEvent<ClaimHint>>,
    ) -> (Self, watch::Receiver<Option<StoreInfo>>) {
        let monitoring = Monitoring::of_locks(&options.timings);
        let (deployment, info) = Deployment::new(options, monitoring);
        (Self::sharing(deployment, name, news, None), info)
    }

    fn sharing(
        deployment: Arc<Deployment>,
        name: ResourceName,
        news: mpsc::Sender<StoreEvent<ClaimHint>>,
        client: Option<OpenClient>,
    ) -> Self {
        deployment.observe(news.clone());
        Self {
            shared: Arc::new(LockInner {
                name,
                deployment,
                news,
                slots_before: OnceLock::new(),
                joined: Mutex::new(None),
                reported: OnceLock::new(),
                client,
            }),
        }
    }

    /// Follows the change stream of one claim, retrying after failures, until the future is
    /// dropped.
    pub async fn watch(self, claim: Claim) {
        let store = self;
        // Never notified: to follow again, the event loop drops this future and creates another one.
        let never = Notify::new();
        follow::watch(ClaimFollower { store, claim }, &never).await;
    }

    /// Removes the optional fields of an empty lock but keeps its token; rejected if the lock has a
    /// holder or waiter.
    pub async fn prune(&self) -> Answer<LockOutcome> {
        let sent = self.write(update::prune(self.name())).await;
        self.shared.deployment.answer(sent).await
    }

    /// Returns the most recent entries of the history, oldest first.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn history(&self) -> Result<Vec<PastHolder>, Failure> {
        let deployment = &self.shared.deployment;
        let read = deployment.read(self.name(), doc! {}, false).await;
        let document = deployment.read_answer(read).await?;
        Ok(document.as_ref().map(history::history).unwrap_or_default())
    }

    /// Returns why the servers are unusable, if known before a call fails.
    pub fn trouble(&self) -> Option<Failure> {
        self.shared.deployment.trouble()
    }

    /// Returns the number of slots that the unused lock had before a join of this store changed it.
    /// 0 means exclusive and shared.
    pub fn slots_before(&self) -> Option<u32> {
        self.shared.slots_before.get().copied()
    }

    /// Shuts down the client, within a bounded time, unless other stores use it too.
    pub async fn shut_down(&self) {
        if self.shared.client.is_none() {
            self.shared.deployment.shut_down().await;
        }
    }

    fn name(&self) -> &str {
        self.shared.name.as_str()
    }

    async fn send(&self, operation: LockOperation) -> Result<LockOutcome, SendError> {
        let (name, deployment) = (self.name(), &self.shared.deployment);
        let identity = &deployment.options().identity;
        let now = DateTime::from_system_time(leasehold_clock::wall_now());
        let write = match &operation {
            LockOperation::Read { confirm } => {
                let read = deployment.read(name, document::projection(), *confirm);
                return Ok(LockOutcome::Applied(found(read.await?.as_ref())));
            }
            LockOperation::Create { seen } => {
                let document = document::create(name, *seen);
                deployment.insert(&document).await?;
                return Ok(LockOutcome::Applied(found(Some(&document))));
            }
            LockOperation::Join {
                entry,
                seen,
                non_blocking,
            } => {
                let join = update::join(name, entry, *seen, *non_blocking, identity, now);
                let joined = self.joined(entry.claim, join).await?;
                if let Some(before) = joined.as_ref().and_then(document::slots_before) {
                    // Already set if an earlier join changed the slots.
                    let _ = self.shared.slots_before.set(before);
                }
                return Ok(outcome(joined.as_ref()));
            }
            LockOperation::Renew {
                claim,
                revision,
                mine,
                seen,
                min_hold,
            } => {
                let (mine, renewal) = (mine.as_slice(), (*claim, *revision));
                update::renew(name, renewal, mine, (*seen, *min_hold), now)
            }
            LockOperation::Keep {
                claim,
                revision,
                mine,
                min_hold,
                success,
            } => {
                let kept = (*min_hold, success.as_ref());
                update::keep(name, (*claim, *revision), mine, kept, now)
            }
            LockOperation::Leave {
                claim,
                mine,
                seen,
                success,
                slots,
            } => {
                let success = success.as_ref();
                update::leave(name, (*claim, mine), (success, *slots), *seen, now)
            }
            LockOperation::Evict {
                entries,
                me,
                ending,
                seen,
            } => update::sweep(name, entries, (*ending, *me), *seen, now),
            LockOperation::Break { claims, seen } => update::break_up(name, claims, *seen, now),
        };
        self.write(write).await
    }

    /// Sends a join and records its operation time.
    async fn joined(
        &self,
        claim: Claim,
        (filter, update): update::Write,
    ) -> Result<Option<Document>, SendError> {
        let deployment = &self.shared.deployment;
        let projection = document::projection();
        let sent = deployment.timed_update(filter, update, projection).await?;
        let (document, at) = sent;
        if let (Some(_), Some(at)) = (&document, at) {
            *self.shared.newest_join() = Some((claim, at));
        }
        Ok(document)
    }

    async fn write(&self, (filter, update): update::Write) -> Result<LockOutcome, SendError> {
        let deployment = &self.shared.deployment;
        let projection = document::projection();
        let written = deployment.update(filter, update, projection).await?;
        Ok(outcome(written.as_ref()))
    }
}

/// Returns the outcome of a write: the document after it, or a rejection if the filter did not
/// match.
fn outcome(document: Option<&Document>) -> LockOutcome {
    document.map_or(LockOutcome::Rejected, |document| {
        LockOutcome::Applied(document::read(document))
    })
}

fn found(document: Option<&Document>) -> FoundLock {
    document.map_or(FoundLock::Missing, document::read)
}

impl Store<LockOperation, LockOutcome> for MongoLockStore {
    async fn perform(&self, operation: LockOperation) -> Answer<LockOutcome> {
        let mut sent = self.send(operation).await;
        if let (Ok(outcome), Some(product)) = (&mut sent, self.shared.deployment.other_product()) {
            confirm_first(outcome);
            if self.shared.reported.set(()).is_ok() {
                let event = StoreEvent::Lookalike(product);
                let _ = self.shared.news.send(event).await;
            }
        }
        self.shared.deployment.answer(sent).await
    }

    fn server(&self) -> Option<String> {
        self.shared.deployment.servers().writable()
    }
}

/// Removes the data that lets a contender act on an unconfirmed grant. That requires a
/// majority-acknowledged grant, which products other than MongoDB do not promise.
fn confirm_first(outcome: &mut LockOutcome) {
    if let LockOutcome::Applied(FoundLock::Lock(lock)) = outcome {
        for entry in lock.holders.iter_mut().filter(|e| !e.is_confirmed()) {
            (entry.granted_revision, entry.token) = (None, None);
        }
    }
}

/// The locks of one collection, for humans.
pub struct MongoLocks {
    deployment: Arc<Deployment>,
}

impl fmt::Debug for MongoLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoLocks").finish_non_exhaustive()
    }
}

/// A lock in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// The lock's name, safe to show on a terminal.
    pub name: String,
    /// The holders and waiters.
    pub found: FoundLock,
}

impl MongoLocks {
    /// Creates the listing of a collection. Connects at its first use.
    pub fn new(options: StoreOptions) -> Self {
        let (deployment, _) = Deployment::new(options, Monitoring::Checks);
        Self { deployment }
    }

    /// Returns the locks with their holders and waiters, sorted by name; at most 10,000.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn list(&self) -> Result<Vec<Listed>, Failure> {
        // The server's limit does not end the wait for an answer that the network has lost.
        let limit = self.deployment.operation_timeout() * 2;
        match tokio::time::timeout(limit, self.find()).await {
            Ok(listed) => self.deployment.read_answer(listed).await,
            Err(_) => Err(Failure::no_answer(limit)),
        }
    }

    /// Returns why the servers are unusable, if known before a call fails.
    pub fn trouble(&self) -> Option<Failure> {
        self.deployment.trouble()
    }

    /// Returns one lock of the collection, for reads and single writes by the same client.
    pub fn lock(&self, name: ResourceName) -> MongoLockStore {
        // No change stream is opened, so there are no events.
        let (news, _) = mpsc::channel(1);
        MongoLockStore::sharing(Arc::clone(&self.deployment), name, news, None)
    }

    /// Shuts down the client, within a bounded time.
    pub async fn shut_down(&self) {
        self.deployment.shut_down().await;
    }

    async fn find(&self) -> Result<Vec<Listed>, SendError> {
        let collection = self.deployment.collection().await?;
        let mut locks = collection
            .find(doc! { "kind": LOCK_KIND, "_id": { "$type": "string" } })
            .sort(doc! { "_id": 1 })
            .projection(document::projection())
            .limit(i64::try_from(LISTED_MAX).unwrap_or(i64::MAX))
            .read_concern(ReadConcern::majority())
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .max_time(self.deployment.operation_timeout())
            .await?;
        let mut listed = Vec::new();
        while let Some(document) = locks.try_next().await? {
            let name = shown(document.get_str("_id").unwrap_or_default());
            let found = document::read(&document);
            listed.push(Listed { name, found });
        }
        Ok(listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::election::{Declared, Identity, Revision, Session, Token, WallMillis};
    use leasehold_core::lock::{Entry, EntryMode, EntryOwner, LockDocument};

    #[test]
    fn on_another_product_a_grant_is_confirmed_first_and_a_held_lock_stays_held() {
        let entry = |revision, granted: Option<u8>| Entry {
            claim: Claim::from_bytes([1; 16]),
            owner: EntryOwner {
                identity: Identity::new("a").expect("legal"),
                session: Session::from_bytes([2; 16]),
                acquired_at: WallMillis(0),
                renewed_at: WallMillis(0),
            },
            mode: EntryMode::Shared,
            revision: Revision::from_bytes([revision; 16]),
            lease_duration: Declared { millis: 24_000 },
            token: Token::new(7),
            granted_revision: granted.map(|granted| Revision::from_bytes([granted; 16])),
            slot: None,
            min_hold: std::time::Duration::ZERO,
            work_done: false,
        };
        let (granted, confirmed) = (entry(3, Some(3)), entry(4, Some(3)));
        assert!(granted.unconfirmed_grant().is_some());
        let mut outcome = LockOutcome::Applied(FoundLock::Lock(LockDocument {
            holders: vec![granted, confirmed.clone(), entry(5, None)],
            ..LockDocument::default()
        }));
        confirm_first(&mut outcome);
        let LockOutcome::Applied(FoundLock::Lock(lock)) = outcome else {
            panic!("it stays a lock");
        };
        let grants = lock.holders.iter().map(Entry::unconfirmed_grant);
        assert_eq!(grants.collect::<Vec<_>>(), [None; 3]);
        assert_eq!(lock.holders[0].token, None);
        assert_eq!(lock.holders[1..], [confirmed, entry(5, None)]);
    }
}
