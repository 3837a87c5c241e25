//! One replica set for many tests of a binary that do not disturb it.
//!
//! A value in a static is never dropped, and would leave its data behind. The set therefore belongs
//! to the tests that hold it. The last one to end drops the set, and a later one starts another.

use std::future::Future;
use std::sync::{Arc, OnceLock, Weak};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Mutex;

use crate::{ReplicaSet, ReplicaSetBuilder};

/// Number of worker threads, equal to the cores of the CI machines. A client of the driver works
/// only as long as the runtime that created it, so tests that share a set share a runtime.
const THREADS: usize = 2;

/// Runs one test on the shared runtime.
pub fn run<F: Future>(test: F) -> F::Output {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        let built = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .enable_all()
            .build();
        built.expect("a runtime can be built")
    });
    runtime.block_on(test)
}

/// A set that is started by the first test that needs it.
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

    /// Returns the set, to be held until the test ends. Must be called inside [`run`].
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
