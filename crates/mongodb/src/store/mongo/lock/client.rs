//! The client that the contenders of one program share.

use std::fmt;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use super::super::connection::{Deployment, Monitoring};
use super::super::options::StoreOptions;
use super::{ClaimHint, MongoLockStore};
use crate::store::{StoreEvent, StoreInfo};
use leasehold_core::election::LeaseName;

/// A client of several stores, which is shut down once nothing uses it.
#[derive(Clone)]
pub(crate) struct LockClient(Arc<Open>);

struct Open(Arc<Deployment>);

impl LockClient {
    /// Creates a client that connects at first use.
    pub(crate) fn new(options: StoreOptions) -> Self {
        let monitoring = Monitoring::of_locks(&options.timings);
        let (deployment, _) = Deployment::new(options, monitoring);
        Self(Arc::new(Open(deployment)))
    }

    /// Creates a store that uses the client.
    pub(crate) fn store(
        &self,
        name: LeaseName,
        news: mpsc::Sender<StoreEvent<ClaimHint>>,
    ) -> (MongoLockStore, watch::Receiver<Option<StoreInfo>>) {
        let Open(deployment) = &*self.0;
        let store = MongoLockStore::sharing(Arc::clone(deployment), name, news, Some(self.clone()));
        (store, deployment.info())
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient").finish_non_exhaustive()
    }
}

impl Drop for Open {
    /// Ends the sessions of the client in the background, if there is a runtime.
    fn drop(&mut self) {
        if let Ok(runtime) = Handle::try_current() {
            let deployment = Arc::clone(&self.0);
            runtime.spawn(async move { deployment.shut_down().await });
        }
    }
}
