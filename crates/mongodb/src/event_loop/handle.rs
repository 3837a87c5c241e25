//! An event loop as a value: before it starts, and while it runs.

use std::io;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::{EventLoop, Host, Machine};
use crate::calls::InFlight;
use crate::store::StoreEvent;
use crate::trace::{Drawn, Trace, Tracer};
use leasehold_core::election::{BootTime, Randomness};
use leasehold_core::trace::Kind;

/// Capacity of the queue of requests: operators and one workload send fewer in one turn of the
/// event loop.
pub(super) const INPUTS_MAX: usize = 16;
/// Capacity of the queue of store events: a burst of changes of one document on one stream.
const STORE_EVENTS_MAX: usize = 64;

/// A machine with its channels and its trace, before its loop starts.
pub(crate) struct PreparedLoop<M: Machine, W> {
    pub(crate) machine: M,
    tracer: Tracer,
    /// The published status.
    pub(crate) status: watch::Sender<M::Status>,
    /// Requests of the program: signals, confirmations of the workload.
    pub(crate) inputs: mpsc::Sender<M::Input>,
    requests: mpsc::Receiver<M::Input>,
    /// Events of the store.
    events: mpsc::Receiver<StoreEvent<W>>,
}

impl<M: Machine, W> PreparedLoop<M, W> {
    /// Creates a machine for a stored document. Returns also the sender of the store's events.
    pub(crate) fn new<O: Clone + Serialize>(
        trace: Option<Trace>,
        (kind, document): (Kind, String),
        options: &O,
        create: impl FnOnce(O, BootTime, &mut dyn Randomness) -> M,
    ) -> (Self, mpsc::Sender<StoreEvent<W>>) {
        let now = leasehold_clock::boot_now();
        let mut random = Drawn::kept_for(trace.as_ref());
        let machine = create(options.clone(), now, &mut random);
        let tracer = Tracer::started(trace, kind, document, (now, random), options);
        let (inputs, requests) = mpsc::channel(INPUTS_MAX);
        let (sender, events) = mpsc::channel(STORE_EVENTS_MAX);
        let (status, _) = watch::channel(machine.status().into_owned());
        let prepared = Self {
            machine,
            tracer,
            status,
            inputs,
            requests,
            events,
        };
        (prepared, sender)
    }

    /// Starts the loop. Must be called inside a tokio runtime.
    pub(crate) fn start<H>(self, host: H, operation_timeout: Duration) -> LoopHandle<M, H::Result>
    where
        M: Send + 'static,
        H: Host<Machine = M, Hint = W> + Send + 'static,
        W: Send + 'static,
    {
        let (status, inputs) = (self.status.subscribe(), self.inputs);
        let mut event_loop = EventLoop {
            machine: self.machine,
            host,
            tracer: self.tracer,
            status: self.status,
            requests: self.requests,
            abandoned: false,
            events: self.events,
            calls: InFlight::new(operation_timeout),
        };
        LoopHandle {
            status,
            inputs,
            task: Some(tokio::spawn(async move {
                let end = event_loop.run().await;
                event_loop.host.finish(&event_loop.machine, end).await
            })),
            result: None,
        }
    }
}

/// A loop that runs, or has ended.
pub(crate) struct LoopHandle<M: Machine, R> {
    pub(crate) status: watch::Receiver<M::Status>,
    pub(crate) inputs: mpsc::Sender<M::Input>,
    /// `None` after the loop has ended.
    pub(crate) task: Option<JoinHandle<io::Result<R>>>,
    /// The result of a loop that has ended without a fault.
    result: Option<R>,
}

impl<M: Machine, R: Clone> LoopHandle<M, R> {
    /// Sends a request. A loop that has ended needs none.
    pub(crate) async fn send(&self, input: M::Input) {
        let _ = self.inputs.send(input).await;
    }

    /// Waits for the result; `None` if the loop has failed before. Cancel-safe.
    ///
    /// # Errors
    /// If the kernel provided no timer, or a task panicked.
    pub(crate) async fn wait(&mut self) -> io::Result<Option<R>> {
        if let Some(task) = &mut self.task {
            let ended = task.await;
            self.task = None;
            self.result = Some(ended.map_err(io::Error::other)??);
        }
        Ok(self.result.clone())
    }
}
