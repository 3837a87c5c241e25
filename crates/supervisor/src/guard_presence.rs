//! Reports to the election whether a guard is ready to start the command, and logs the state of an
//! attached guard. Each new state is logged once; a missing guard is logged after five seconds.

use std::sync::Arc;

use tracing::{info, warn};

use super::Readiness;
use super::command::GuardChange;
use leasehold_core::election::ResourceName;

#[derive(Debug)]
pub(super) struct GuardPresence {
    lease: ResourceName,
    readiness: Arc<Readiness>,
    /// True if the guard is in another container.
    attached: bool,
    /// The state in the last log line, if any.
    logged: Option<GuardState>,
}

#[derive(Debug, PartialEq, Eq)]
enum GuardState {
    Connected,
    Absent,
    Refused(String),
}

impl GuardPresence {
    pub(super) fn new(lease: ResourceName, readiness: Arc<Readiness>, attached: bool) -> Self {
        Self {
            lease,
            readiness,
            attached,
            logged: None,
        }
    }

    pub(super) fn is_attached(&self) -> bool {
        self.attached
    }

    pub(super) async fn changed(&mut self, change: GuardChange) {
        let lease = self.lease.clone();
        match change {
            GuardChange::Ready => {
                if self.attached && self.is_news(GuardState::Connected) {
                    info!(%lease, "workload guard connected; contending for the lease");
                }
                self.readiness.set_guarded(true).await;
            }
            GuardChange::Lost => self.left().await,
            GuardChange::Absent(socket) => {
                if self.is_news(GuardState::Absent) {
                    let socket = socket.display();
                    warn!(%lease, %socket, "no workload guard connected; not contending for the lease");
                }
            }
            GuardChange::Refused(why) => {
                let why = why.to_string();
                if self.is_news(GuardState::Refused(why.clone())) {
                    warn!(%lease, "refused a guard: {why}");
                }
            }
        }
    }

    /// Reports to the election that no guard is available.
    pub(super) async fn left(&self) {
        self.readiness.set_guarded(false).await;
    }

    fn is_news(&mut self, state: GuardState) -> bool {
        let news = self.logged.as_ref() != Some(&state);
        self.logged = Some(state);
        news
    }
}
