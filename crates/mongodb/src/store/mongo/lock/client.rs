//! The client that the contenders of one program share.

use std::sync::{Arc, Mutex};

use tokio::runtime::{self, Handle};
use tokio::sync::{mpsc, watch};

use super::super::connection::{Deployment, Monitoring};
use super::super::lock;
use super::super::options::StoreOptions;
use super::{ClaimHint, MongoLockStore};
use crate::store::{StoreEvent, StoreInfo};
use leasehold_core::election::ResourceName;

/// Maximum size of the connection pool: unlimited. The change stream of each waiter occupies a
/// connection, and a holder's renewals must not wait for it. The places in a lock limit the
/// waiters.
const CONNECTIONS_MAX: u32 = u32::MAX;

/// A client, and the runtime that runs its tasks.
type RuntimeClient = (runtime::Id, Arc<Deployment>);

/// The client of several contenders on each runtime that uses it. It is shut down once neither this
/// value nor a store uses it.
#[derive(Debug, Clone)]
pub(crate) struct LockClient {
    options: StoreOptions,
    newest: Arc<Mutex<Option<RuntimeClient>>>,
}

impl LockClient {
    pub(crate) fn new(options: StoreOptions) -> Self {
        Self {
            options,
            newest: Arc::default(),
        }
    }

    /// Creates a store that uses the client of this runtime. Must be called inside a tokio runtime.
    pub(crate) fn store(
        &self,
        name: ResourceName,
        news: mpsc::Sender<StoreEvent<ClaimHint>>,
    ) -> (MongoLockStore, watch::Receiver<Option<StoreInfo>>) {
        let deployment = self.of_this_runtime();
        let info = deployment.info.subscribe();
        (MongoLockStore::over(deployment, true, name, news), info)
    }

    /// Returns the newest client, or a new one if the tasks of the newest run on another runtime,
    /// which may have ended. Contenders on that runtime keep theirs.
    fn of_this_runtime(&self) -> Arc<Deployment> {
        let runtime = Handle::current().id();
        let mut newest = lock(&self.newest);
        newest.take_if(|(of, _)| *of != runtime);
        let (_, client) = newest.get_or_insert_with(|| {
            let (options, timings) = (self.options.clone(), &self.options.timings);
            let monitoring = Monitoring::of_locks(timings);
            let client = Deployment::with_pool(options, monitoring, CONNECTIONS_MAX);
            (runtime, client)
        });
        Arc::clone(client)
    }
}
