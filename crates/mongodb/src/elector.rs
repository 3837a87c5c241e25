//! A candidate for a lease, for the daemon and for programs that embed a candidate.

mod host;

use std::io;
use std::time::{Duration, UNIX_EPOCH};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

pub use self::host::Surfaces;

use self::host::ElectionHost;
use crate::event_loop::{EventLoop, LoopHandle};
use crate::store::mongo::{MongoStore, StoreOptions};
use crate::store::{DeploymentId, StoreInfo};
use leasehold_clock::{boot_now, wall_now};
use leasehold_core::election::{
    Authority, Candidate, Claim, Election, Input, ResourceName, Status, Timings, Token, Tunables,
    Watch,
};
use leasehold_core::trace::Kind;

/// Options of a candidate. Create options with [`ElectorOptions::new`], then assign fields.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ElectorOptions {
    /// The collection, the identity and the timings.
    pub store: StoreOptions,
    /// The lease.
    pub lease: ResourceName,
    /// Delay between the end of leadership and the release of the lease, 2 s by default. The delay
    /// ends early if the workload confirms its end ([`Elector::workload_done`]).
    pub handoff_delay: Duration,
    /// True if the workload normally ends before the program calls [`Elector::stop`]. A stop then
    /// limits `handoff_delay` to one second.
    pub workload_ends_first: bool,
    /// Priority of the candidate. Candidates with a higher priority are preferred as the standby.
    pub priority: u32,
    /// Minimum time of leadership before a handoff to a standby of higher priority; `None` disables
    /// these handoffs.
    pub prefer_interval: Option<Duration>,
    /// The highest token that this machine has seen; [`Token::ZERO`] if none.
    pub token_remembered: Token,
    /// The longest lease duration that this machine recorded with `token_remembered`, if any.
    pub lease_longest_remembered: Option<Duration>,
    /// The predecessor's claim, if the predecessor is proven to have exited.
    pub predecessor_claim: Option<Claim>,
    /// True if the candidate releases `predecessor_claim` instead of leading again immediately.
    pub releases_predecessor: bool,
}

impl ElectorOptions {
    /// The default options for `lease`, with no state from an earlier candidate.
    pub fn new(store: StoreOptions, lease: ResourceName) -> Self {
        let defaults = Tunables::default();
        Self {
            store,
            lease,
            handoff_delay: defaults.handoff_delay,
            workload_ends_first: defaults.workload_ends_first,
            priority: 0,
            prefer_interval: defaults.prefer_interval,
            token_remembered: Token::ZERO,
            lease_longest_remembered: None,
            predecessor_claim: None,
            releases_predecessor: false,
        }
    }
}

/// A candidate before its start. The channels can be handed out before the candidate contends.
#[derive(Debug)]
#[must_use = "the candidate does not contend until it is started"]
pub struct ElectorBuilder {
    candidate: EventLoop<Election, Watch>,
    inputs: mpsc::Sender<Input>,
    store: MongoStore,
    store_info: watch::Receiver<Option<StoreInfo>>,
}

/// A running candidate for one lease.
///
/// Authority can end at any instant. Call [`Elector::authority`] right before each external effect,
/// and send the token if the receiver can compare it. The [crate] documentation has an example.
#[derive(Debug)]
#[must_use = "dropping it steps down and releases the lease"]
pub struct Elector {
    candidate: LoopHandle<Election, bool>,
    store: MongoStore,
    watcher: JoinHandle<()>,
}

/// Reason why a candidate did not end as requested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ElectorError {
    /// The candidate no longer leads, but the release was not confirmed. A stuck workload or status
    /// file may have prevented the release. The lease expires by itself.
    #[error("release of the lease not confirmed; the lease expires by itself")]
    Unconfirmed,
    /// The candidate failed.
    #[error("the candidate for the lease failed")]
    Fault(#[source] io::Error),
}

impl ElectorBuilder {
    /// Creates a candidate, without starting it.
    pub fn new(options: ElectorOptions) -> Self {
        Self::with(options, false)
    }

    /// Creates a candidate whose surfaces run its workload. The surfaces must
    /// carry out each order that [`Surfaces::workload`] receives, and send
    /// [`Input::WorkloadGone`] when the workload has exited.
    pub fn supervising(options: ElectorOptions) -> Self {
        Self::with(options, true)
    }

    fn with(options: ElectorOptions, supervises: bool) -> Self {
        let mut candidate = Candidate::new(options.store.identity.clone());
        candidate.tunables = Tunables {
            timings: options.store.timings,
            handoff_delay: options.handoff_delay,
            workload_ends_first: options.workload_ends_first,
            prefer_interval: options.prefer_interval,
        };
        candidate.priority = options.priority;
        candidate.token_remembered = options.token_remembered;
        candidate.lease_longest_remembered = options.lease_longest_remembered;
        candidate.supervises = supervises;
        candidate.predecessor_claim = options.predecessor_claim;
        candidate.releases_predecessor = options.releases_predecessor;
        candidate.shared_clock_offset = Some(wall_clock_ahead());
        let (store, lease) = (options.store, options.lease);
        let traced = (Kind::Election, lease.as_str());
        let (candidate, inputs, events) = EventLoop::new(&store, traced, &candidate, Election::new);
        let (store, store_info) = MongoStore::new(store, lease, events);
        Self {
            candidate,
            inputs,
            store,
            store_info,
        }
    }

    /// Returns a receiver of the candidate's status.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.candidate.status()
    }

    /// Returns a receiver of the deployment that stores the lease; `None` until it is known.
    pub fn store_info(&self) -> watch::Receiver<Option<StoreInfo>> {
        self.store_info.clone()
    }

    /// Returns a receiver of the deployment's identity, updated whenever its members change.
    pub fn deployment(&self) -> watch::Receiver<Option<DeploymentId>> {
        self.store.deployment()
    }

    /// Returns a receiver of the timings for the next claim. [`Input::Reconfigure`] changes them.
    pub fn timings(&self) -> watch::Receiver<Timings> {
        self.store.timings()
    }

    /// Returns a sender for inputs from this machine: signals and workload confirmations.
    pub fn inputs(&self) -> mpsc::Sender<Input> {
        self.inputs.clone()
    }

    /// Starts contending. Must be called inside a tokio runtime.
    pub fn start(self, surfaces: impl Surfaces) -> Elector {
        let watcher = tokio::spawn(self.store.clone().watch());
        let host = ElectionHost {
            store: self.store.clone(),
            status: self.candidate.status(),
            surfaces,
            demoting: None,
            label: None,
        };
        Elector {
            candidate: self.candidate.start(self.inputs, host),
            store: self.store,
            watcher,
        }
    }
}

impl Elector {
    /// Starts contending without surfaces. Must be called inside a tokio runtime.
    pub fn start(options: ElectorOptions) -> Self {
        ElectorBuilder::new(options).start(())
    }

    /// Returns a receiver of the candidate's status. Use [`Status::at`] to check its authority.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.candidate.status.clone()
    }

    /// Returns the authority at this instant; `None` if another candidate may lead.
    pub fn authority(&self) -> Option<Authority> {
        let status = self.candidate.status.borrow();
        status.at(boot_now()).authority
    }

    /// Steps down if leading. The candidate then does not contend during a cooldown.
    pub async fn step_down(&self) {
        self.candidate.send(Input::StepDown).await;
    }

    /// Sets the health of the workload. An unhealthy candidate steps down and does not contend.
    pub async fn set_healthy(&self, healthy: bool) {
        self.candidate.send(Input::Health { healthy }).await;
    }

    /// Confirms that the workload stopped its work under `token`.
    pub async fn workload_done(&self, token: Token) {
        self.candidate.send(Input::WorkloadDone { token }).await;
    }

    /// Steps down, releases the lease, and waits for the end as [`Elector::wait`] does.
    pub async fn stop(mut self) -> Result<(), ElectorError> {
        self.candidate.send(Input::Shutdown).await;
        let ended = self.wait().await;
        self.close().await;
        ended
    }

    /// Waits until the candidate has finished. Cancel safe. Later calls return the same result.
    /// Fails if the candidate failed, or if the release was not acknowledged. Without an
    /// acknowledgement, the lease may stay held until it expires.
    pub async fn wait(&mut self) -> Result<(), ElectorError> {
        match self.candidate.wait().await.map_err(ElectorError::Fault)? {
            true => Ok(()),
            false => Err(ElectorError::Unconfirmed),
        }
    }

    /// Closes the connections of a candidate that has finished.
    pub async fn close(&self) {
        self.store.shut_down().await;
    }
}

/// Returns how far the wall clock is ahead of the boot clock. The election uses this difference to
/// renew at the same times as other processes. If the wall clock is changed later, the times no
/// longer coincide, which only increases the load on the servers.
fn wall_clock_ahead() -> Duration {
    let booted = Duration::from_nanos(boot_now().as_nanos());
    let wall = wall_now().duration_since(UNIX_EPOCH);
    wall.unwrap_or_default().saturating_sub(booted)
}

impl Drop for Elector {
    /// Makes the candidate step down and release the lease, if its runtime is still running.
    fn drop(&mut self) {
        self.watcher.abort();
        // If the queue is full and there is no runtime, nothing is sent. The loop then ends because
        // its queue is closed, unless another sender from [`ElectorBuilder::inputs`] still exists.
        if self.candidate.task.is_some()
            && self.candidate.inputs.try_send(Input::Shutdown).is_err()
            && let Ok(runtime) = Handle::try_current()
        {
            let inputs = self.candidate.inputs.clone();
            runtime.spawn(async move { inputs.send(Input::Shutdown).await });
        }
    }
}
