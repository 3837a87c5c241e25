//! The client that the contenders of one program share.

use std::fmt;
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

/// The client of several contenders on each runtime that uses it.
#[derive(Clone)]
pub(crate) struct LockClient {
    options: StoreOptions,
    /// The newest client, and the runtime that runs its tasks.
    newest: Arc<Mutex<Option<(runtime::Id, OpenClient)>>>,
}

impl LockClient {
    /// Creates a client that connects at first use.
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
        let client = self.of_this_runtime();
        let deployment = Arc::clone(&client.0.0);
        let info = deployment.info();
        let store = MongoLockStore::sharing(deployment, name, news, Some(client));
        (store, info)
    }

    /// Returns the newest client, or a new one if the tasks of the newest run on another runtime,
    /// which may have ended. Contenders on that runtime keep theirs.
    fn of_this_runtime(&self) -> OpenClient {
        let runtime = Handle::current().id();
        let mut newest = lock(&self.newest);
        if let Some((_, client)) = newest.as_ref().filter(|(of, _)| *of == runtime) {
            return client.clone();
        }
        let client = OpenClient::new(self.options.clone());
        *newest = Some((runtime, client.clone()));
        client
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient").finish_non_exhaustive()
    }
}

/// A client of several stores, which is shut down once nothing uses it.
#[derive(Clone)]
pub(super) struct OpenClient(Arc<OpenDeployment>);

struct OpenDeployment(Arc<Deployment>);

impl OpenClient {
    fn new(options: StoreOptions) -> Self {
        let monitoring = Monitoring::of_locks(&options.timings);
        let deployment = Deployment::with_pool(options, monitoring, CONNECTIONS_MAX);
        Self(Arc::new(OpenDeployment(deployment)))
    }
}

impl Drop for OpenDeployment {
    /// Ends the sessions of the client in the background, if there is a runtime.
    fn drop(&mut self) {
        if let Ok(runtime) = Handle::try_current() {
            let deployment = Arc::clone(&self.0);
            runtime.spawn(async move { deployment.shut_down().await });
        }
    }
}
