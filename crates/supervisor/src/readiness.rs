//! Combines the health of the workload and the presence of its guard into one input of the election.

use tokio::sync::{Mutex, mpsc};

use leasehold_core::election::Input;

/// Reports to the election whether the workload could run here.
#[derive(Debug)]
pub struct Readiness {
    inputs: mpsc::Sender<Input>,
    state: Mutex<ReadinessState>,
}

#[derive(Debug, Clone, Copy)]
struct ReadinessState {
    healthy: bool,
    guarded: bool,
}

impl ReadinessState {
    fn is_ready(self) -> bool {
        self.healthy && self.guarded
    }
}

impl Readiness {
    /// Creates the readiness before the first check and the first connection of a guard. Must be
    /// called before other inputs are sent, so that the election does not contend too early.
    pub fn new(inputs: mpsc::Sender<Input>, healthy: bool, guarded: bool) -> Self {
        let state = ReadinessState { healthy, guarded };
        if !state.is_ready() {
            // The queue is empty, because nothing has started yet.
            let _ = inputs.try_send(Input::Health { healthy: false });
        }
        Self {
            inputs,
            state: Mutex::new(state),
        }
    }

    /// Records the health. Returns false if the election has ended.
    pub(crate) async fn set_healthy(&self, healthy: bool) -> bool {
        self.set(|state| state.healthy = healthy).await
    }

    /// Records whether a guard is available to start the workload.
    pub(crate) async fn set_guarded(&self, guarded: bool) {
        self.set(|state| state.guarded = guarded).await;
    }

    async fn set(&self, change: impl FnOnce(&mut ReadinessState)) -> bool {
        // The lock is held until the input is sent, so that the newest input is sent last.
        let mut state = self.state.lock().await;
        let before = state.is_ready();
        change(&mut state);
        let healthy = state.is_ready();
        before == healthy || self.inputs.send(Input::Health { healthy }).await.is_ok()
    }
}
