//! One lock in a MongoDB collection.

mod document;
mod granting;
mod update;
mod wake;

#[cfg(test)]
mod any_bson;

use std::sync::{Arc, Mutex, OnceLock};

use mongodb::bson::{Document, Timestamp, doc};
use tokio::runtime::{self, Handle};
use tokio::sync::{Notify, mpsc, watch};

pub(super) use self::document::{kept_until, projection, read, with_server_now};
pub(super) use self::update::contention;
use self::wake::ClaimFollower;

use super::connection::{Deployment, Monitoring, SendError};
use super::display::{CommandResult, PastHolder, history};
use super::options::StoreOptions;
use super::{follow, now};
use crate::store::{Answer, Failure, StoreEvent, StoreInfo};
use leasehold_core::election::{Claim, ResourceName, Token};
use leasehold_core::lock::{FoundLock, Hint, LockOperation, LockOutcome};

/// A lock in a MongoDB collection.
#[derive(Debug, Clone)]
pub struct MongoLockStore {
    shared: Arc<LockInner>,
}

#[derive(Debug)]
struct LockInner {
    name: ResourceName,
    deployment: Arc<Deployment>,
    shares_client: bool,
    news: mpsc::Sender<StoreEvent<ClaimHint>>,
    /// Previous number of slots. Set by this contender's first join that changed the number.
    slots_before: OnceLock<u32>,
    /// The newest claim, and the operation time of its join, where its change stream starts.
    joined: Mutex<Option<(Claim, Timestamp)>>,
    /// Set once the work has ended. Recorded by the write that releases or keeps the lock.
    result: OnceLock<CommandResult>,
    /// Set once a product other than MongoDB was reported.
    reported: OnceLock<()>,
}

/// A change stream hint for one claim. The contender may already follow a newer claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimHint {
    /// The followed claim.
    pub claim: Claim,
    /// The hint for that claim.
    pub hint: Hint,
}

impl MongoLockStore {
    /// Creates a store that sends its events to `news`. The store connects when it is first called.
    pub fn new(
        options: StoreOptions,
        name: ResourceName,
        news: mpsc::Sender<StoreEvent<ClaimHint>>,
    ) -> (Self, watch::Receiver<Option<StoreInfo>>) {
        let monitoring = Monitoring::of_locks(&options.timings);
        let deployment = Deployment::new(options, monitoring);
        let info = deployment.info.subscribe();
        (Self::over(deployment, false, name, news), info)
    }

    pub(super) fn over(
        deployment: Arc<Deployment>,
        shares_client: bool,
        name: ResourceName,
        news: mpsc::Sender<StoreEvent<ClaimHint>>,
    ) -> Self {
        deployment.observe(news.clone());
        Self {
            shared: Arc::new(LockInner {
                name,
                deployment,
                shares_client,
                news,
                slots_before: OnceLock::new(),
                joined: Mutex::new(None),
                result: OnceLock::new(),
                reported: OnceLock::new(),
            }),
        }
    }

    /// Follows the change stream of one claim until the future is dropped. Retries after failures.
    pub async fn watch(self, claim: Claim) {
        let store = self;
        // The contender drops this future to reopen the stream.
        let never_reopen = Notify::new();
        follow::watch(ClaimFollower { store, claim }, &never_reopen).await;
    }

    /// Clears the optional fields of a lock. Rejected if the lock is in use or was used since
    /// `seen`.
    pub async fn prune(&self, seen: Token) -> Answer<FoundLock> {
        let sent = self.write(update::prune(self.name(), seen)).await;
        self.shared.deployment.answer(sent).await
    }

    /// Sends one operation. Must run to completion, because a dropped write may still be applied.
    pub async fn perform(&self, operation: LockOperation) -> Answer<FoundLock> {
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

    pub(crate) fn server(&self) -> Option<String> {
        self.shared.deployment.servers.known().writable()
    }

    /// Returns the most recent history entries, oldest first. Fails if the entries cannot be read.
    pub async fn history(&self) -> Result<Vec<PastHolder>, Failure> {
        let deployment = &self.shared.deployment;
        let read = deployment.read(self.name(), doc! {}, false).await;
        let document = deployment.read_answer(read).await?;
        Ok(document.as_ref().map(history).unwrap_or_default())
    }

    /// Returns why no server can be used, if known before a call fails.
    pub fn trouble(&self) -> Option<Failure> {
        self.shared.deployment.trouble()
    }

    pub(crate) fn set_result(&self, result: CommandResult) {
        // Cannot fail, because the work of a contender ends only once.
        let _ = self.shared.result.set(result);
    }

    /// Returns the previous number of slots if a join of this contender changed it; 0 if the lock
    /// was exclusive or shared before.
    pub fn slots_before(&self) -> Option<u32> {
        self.shared.slots_before.get().copied()
    }

    /// Shuts down the client within a bounded time, unless other stores use it too.
    pub async fn shut_down(&self) {
        if !self.shared.shares_client {
            self.shared.deployment.shut_down().await;
        }
    }

    fn name(&self) -> &str {
        self.shared.name.as_str()
    }

    async fn send(&self, operation: LockOperation) -> Result<LockOutcome, SendError> {
        let (name, deployment) = (self.name(), &self.shared.deployment);
        let result = self.shared.result.get().copied();
        let identity = &deployment.options.identity;
        let write = update::write(name, &operation, identity, now(), result);
        match (operation, write) {
            (LockOperation::Join { entry, .. }, Some((filter, update))) => {
                let joined = deployment.timed_update(filter, update, projection());
                let (document, at) = joined.await?;
                if let (Some(_), Some(at)) = (&document, at) {
                    *super::lock(&self.shared.joined) = Some((entry.claim, at));
                }
                if let Some(before) = document.as_ref().and_then(document::slots_before) {
                    // Already set if an earlier join changed the slots.
                    let _ = self.shared.slots_before.set(before);
                }
                Ok(outcome(document.as_ref()))
            }
            (_, Some(write)) => self.write(write).await,
            (LockOperation::Create { seen }, None) => {
                let document = document::create(name, seen);
                deployment.insert(&document).await?;
                Ok(LockOutcome::Applied(read(&document)))
            }
            (other, None) => {
                let confirm = matches!(other, LockOperation::Read { confirm: true });
                let found = deployment.read(name, projection(), confirm).await?;
                let found = found.as_ref().map_or(FoundLock::Missing, read);
                Ok(LockOutcome::Applied(found))
            }
        }
    }

    async fn write(&self, (filter, update): update::Write) -> Result<LockOutcome, SendError> {
        let deployment = &self.shared.deployment;
        let written = deployment.update(filter, update, projection()).await?;
        Ok(outcome(written.as_ref()))
    }
}

/// Returns the outcome of a write; `None` means that the write matched no document.
fn outcome(document: Option<&Document>) -> LockOutcome {
    document
        .map(read)
        .map_or(LockOutcome::Rejected, LockOutcome::Applied)
}

/// Makes a contender confirm a grant before acting on it, because a product other than MongoDB may
/// report a grant that no majority has acknowledged.
fn confirm_first(outcome: &mut LockOutcome) {
    if let LockOutcome::Applied(FoundLock::Lock(lock)) = outcome {
        for entry in lock.holders.iter_mut().filter(|e| !e.is_confirmed()) {
            (entry.granted_revision, entry.token) = (None, None);
        }
    }
}

/// Unlimited, because the change streams of waiters occupy connections, and a holder's renewals
/// must not wait for a connection. The maximum queue length limits the number of waiters.
const CONNECTIONS_MAX: u32 = u32::MAX;

/// The shared client of a program's contenders on one runtime. The last user shuts the client down.
#[derive(Debug, Clone, Default)]
pub(crate) struct LockClient {
    newest: Arc<Mutex<Option<ClientOfRuntime>>>,
}

type ClientOfRuntime = (runtime::Id, Arc<Deployment>);

impl LockClient {
    /// Creates a store that uses the client of this runtime. Must be called inside a tokio runtime.
    pub(crate) fn store(
        &self,
        options: StoreOptions,
        name: ResourceName,
        news: mpsc::Sender<StoreEvent<ClaimHint>>,
    ) -> (MongoLockStore, watch::Receiver<Option<StoreInfo>>) {
        let runtime = Handle::current().id();
        let mut newest = super::lock(&self.newest);
        // Do not reuse the client of another runtime, which may have ended.
        newest.take_if(|(of, _)| *of != runtime);
        let (_, client) = newest.get_or_insert_with(|| {
            let monitoring = Monitoring::of_locks(&options.timings);
            let client = Deployment::with_pool(options, monitoring, CONNECTIONS_MAX);
            (runtime, client)
        });
        let (client, info) = (Arc::clone(client), client.info.subscribe());
        (MongoLockStore::over(client, true, name, news), info)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::election::{Declared, Identity, Revision, Session, WallMillis};
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
