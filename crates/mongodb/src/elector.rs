//! A candidate as a value: for the daemon, and for programs that embed one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::runner::{KernelRandomness, NoSurfaces, Runner, Surfaces, news_channel};
use crate::store::mongo::{MongoStore, StoreOptions};
use crate::store::{DeploymentId, News, StoreInfo};
use leasehold_core::election::{
    Authority, Candidate, Claim, Election, Input, LeaseName, Status, Token, Tunables,
};

/// Signals and confirmations of the workload that wait for the event loop:
/// people and one workload do not send more in one turn of it.
const INPUTS_MAX: usize = 16;

/// Default time that a workload has to notice the end of leadership.
pub const HANDOFF_DELAY: Duration = Duration::from_secs(2);

/// How a candidate contends. [`ElectorOptions::new`] sets the defaults; the
/// fields are there to be changed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ElectorOptions {
    /// The collection, the identity and the timings.
    pub store: StoreOptions,
    /// The lease.
    pub lease: LeaseName,
    /// Time from the end of leadership to the release of the lease, for a
    /// workload that does not confirm that it has stopped
    /// ([`Elector::workload_done`]); [`HANDOFF_DELAY`] by default.
    pub handoff_delay: Duration,
    /// True if the workload has stopped before [`Elector::stop`] is called: then
    /// at most one second of `handoff_delay` is waited for.
    pub workload_ends_first: bool,
    /// The highest token that this machine remembers; [`Token::ZERO`] if none.
    pub token_remembered: Token,
    /// The longest lease duration that was seen up to that token, if known.
    pub lease_longest_remembered: Option<Duration>,
    /// The claim of a predecessor that is proven to have exited.
    pub predecessor_claim: Option<Claim>,
}

impl ElectorOptions {
    /// A candidate for `lease` that remembers nothing.
    pub fn new(store: StoreOptions, lease: LeaseName) -> Self {
        Self {
            store,
            lease,
            handoff_delay: HANDOFF_DELAY,
            workload_ends_first: false,
            token_remembered: Token::ZERO,
            lease_longest_remembered: None,
            predecessor_claim: None,
        }
    }
}

/// A candidate that has not begun: its channels can be handed out.
pub struct Prepared {
    election: Election,
    store: MongoStore,
    news: mpsc::Receiver<News>,
    status: watch::Sender<Status>,
    store_info: watch::Receiver<Option<StoreInfo>>,
    inputs: (mpsc::Sender<Input>, mpsc::Receiver<Input>),
    operation_timeout: Duration,
}

/// A running candidate for one lease.
///
/// It contends until it is stopped. Whether it leads is a question about an
/// instant: ask [`Elector::authority`] right before each effect on the
/// outside, and send the token along where the outside can compare it.
///
/// The example stands in the [crate]'s documentation.
pub struct Elector {
    status: watch::Receiver<Status>,
    inputs: mpsc::Sender<Input>,
    store: MongoStore,
    /// Taken when it has ended.
    runner: Option<JoinHandle<io::Result<()>>>,
    watcher: JoinHandle<()>,
}

impl Prepared {
    /// Makes a candidate that has not begun.
    pub fn new(options: ElectorOptions) -> Self {
        Self::with(options, false)
    }

    /// Makes a candidate whose surfaces run its workload: they carry out
    /// [`Surfaces::workload`] and answer with [`Input::WorkloadGone`].
    pub fn supervising(options: ElectorOptions) -> Self {
        Self::with(options, true)
    }

    fn with(options: ElectorOptions, supervises: bool) -> Self {
        let ElectorOptions {
            store,
            lease,
            handoff_delay,
            workload_ends_first,
            token_remembered,
            lease_longest_remembered,
            predecessor_claim,
        } = options;
        let candidate = Candidate {
            identity: store.identity.clone(),
            tunables: Tunables {
                timings: store.timings,
                handoff_delay,
                workload_ends_first,
            },
            token_remembered,
            lease_longest_remembered,
            supervises,
            predecessor_claim,
        };
        let operation_timeout = store.timings.operation_timeout();
        let election = Election::new(
            candidate,
            leasehold_clock::boot_now(),
            &mut KernelRandomness,
        );
        let (news_sender, news) = news_channel();
        let (store, store_info) = MongoStore::new(store, lease, news_sender);
        let (status, _) = watch::channel(election.status().clone());
        let inputs = mpsc::channel(INPUTS_MAX);
        Self {
            election,
            store,
            news,
            status,
            store_info,
            inputs,
            operation_timeout,
        }
    }

    /// What the candidate will say of itself.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Which deployment keeps the lease, once that is known.
    pub fn store_info(&self) -> watch::Receiver<Option<StoreInfo>> {
        self.store_info.clone()
    }

    /// The deployment itself, once it is known, and whenever its members change.
    pub fn deployment(&self) -> watch::Receiver<Option<DeploymentId>> {
        self.store.deployment()
    }

    /// Where the machine's inputs go: signals, confirmations of the workload.
    pub fn inputs(&self) -> mpsc::Sender<Input> {
        self.inputs.0.clone()
    }

    /// Begins to contend. To be called inside a tokio runtime.
    pub fn start(self, surfaces: impl Surfaces + 'static) -> Elector {
        let receiver = self.status.subscribe();
        let (sender, inputs) = self.inputs;
        let watcher = tokio::spawn(self.store.clone().watch());
        let runner = Runner::new(
            self.election,
            Arc::new(self.store.clone()),
            surfaces,
            self.status,
            inputs,
            self.news,
            self.operation_timeout,
        );
        Elector {
            status: receiver,
            inputs: sender,
            store: self.store,
            runner: Some(tokio::spawn(runner.run())),
            watcher,
        }
    }
}

impl Elector {
    /// Begins to contend, with no surfaces but this handle. To be called
    /// inside a tokio runtime.
    pub fn start(options: ElectorOptions) -> Self {
        Prepared::new(options).start(NoSurfaces)
    }

    /// What the candidate says of itself. Ask [`Status::at`] of what it holds.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// The authority at this instant; `None` if another may lead.
    pub fn authority(&self) -> Option<Authority> {
        self.status
            .borrow()
            .at(leasehold_clock::boot_now())
            .authority
    }

    /// Steps down if leading, and leaves the lease to others for a while.
    pub async fn step_down(&self) {
        // A runner that has ended has stepped down.
        let _ = self.inputs.send(Input::StepDown).await;
    }

    /// Says whether the workload can do its work. While it cannot, this
    /// candidate steps down and leaves the lease to others.
    pub async fn set_healthy(&self, healthy: bool) {
        let _ = self.inputs.send(Input::Health { healthy }).await;
    }

    /// Confirms that the workload stopped what it did under `token`.
    pub async fn workload_done(&self, token: Token) {
        let _ = self.inputs.send(Input::WorkloadDone { token }).await;
    }

    /// Steps down, releases the lease, ends.
    ///
    /// # Errors
    /// As [`Elector::wait`].
    pub async fn stop(mut self) -> io::Result<()> {
        let _ = self.inputs.send(Input::Shutdown).await;
        let ended = self.wait().await;
        self.close().await;
        ended
    }

    /// Waits until the candidate has ended; may be given up and called again.
    ///
    /// # Errors
    /// When it ended by a fault: the kernel gave no timer, or a task panicked.
    pub async fn wait(&mut self) -> io::Result<()> {
        let Some(runner) = &mut self.runner else {
            return Ok(());
        };
        let ended = runner.await;
        self.runner = None;
        match ended {
            Ok(result) => result,
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Closes the connections of a candidate that has ended.
    pub async fn close(self) {
        self.store.shut_down().await;
    }
}

impl Drop for Elector {
    /// A candidate that nobody holds any more steps down and releases the
    /// lease, as far as its runtime still turns.
    fn drop(&mut self) {
        self.watcher.abort();
        if self.runner.is_some() {
            // A full queue has a request in it already, or its runner is stuck
            // and loses the lease by its deadline.
            let _ = self.inputs.try_send(Input::Shutdown);
        }
    }
}
