//! One replica set that many tests of a binary share without disturbing each other.
//!
//! A value in a static is never dropped, and would leave its data behind. The tests that hold the
//! set therefore own it. The last of these tests drops the set, and a later test starts another
//! set.

use std::future::Future;
use std::sync::{Arc, OnceLock, Weak};

use mongodb::Client;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::{Failure, ReplicaSet, ReplicaSetBuilder};

/// Number of worker threads, equal to the cores of the CI machines.
const THREADS: usize = 2;

/// Runs one test on the shared runtime, which the clients of a shared control plane need. A test
/// that uses only a replica set can run on any runtime.
pub fn run<F: Future>(test: F) -> F::Output {
    runtime().block_on(test)
}

/// Runs a future on a separate thread, so that a caller inside a runtime may block on it.
pub(crate) fn run_apart<T: Send>(future: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| run(future)).join();
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Creates a driver client. A client stops working when the runtime that created it ends, so the
/// clients of shared sets belong to a runtime that outlives the tests.
pub(crate) async fn client(uri: &str) -> Result<Client, Failure> {
    let uri = uri.to_owned();
    let created = runtime().spawn(async { Client::with_uri_str(uri).await });
    Ok(created.await.expect("the runtime never ends")?)
}

pub(crate) fn spawn<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    runtime().spawn(task)
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let built = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .enable_all()
            .build();
        built.expect("build the runtime")
    })
}

/// A replica set that is started by the first test.
#[derive(Debug)]
pub struct SharedSet {
    builder: fn() -> ReplicaSetBuilder,
    current: Mutex<Weak<ReplicaSet>>,
}

impl SharedSet {
    /// Defines a shared set for a `static`, without starting it.
    pub const fn new(builder: fn() -> ReplicaSetBuilder) -> Self {
        Self {
            builder,
            current: Mutex::const_new(Weak::new()),
        }
    }

    /// Returns the set, which the test must hold until it ends.
    pub async fn get(&self) -> Arc<ReplicaSet> {
        let mut current = self.current.lock().await;
        if let Some(set) = current.upgrade() {
            return set;
        }
        let set = Arc::new((self.builder)().start().await);
        *current = Arc::downgrade(&set);
        set
    }
}
