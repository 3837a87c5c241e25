//! Drives a state machine: the election, or a contender for a lock. Publishes the status before it
//! carries out effects, so that a surface never shows authority after the release of its lease or
//! lock.

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::calls::{AnsweredCall, InFlight};
use crate::store::StoreEvent;
use crate::store::mongo::{StoreOptions, publish};
use crate::trace::MachineTrace;
use leasehold_clock::BootTimer;
use leasehold_core::election::{BootTime, CallId, Outcome, Randomness};
use leasehold_core::trace::Kind;

/// Capacity of the queue of requests. Larger than the number of requests that operators and a
/// workload send during one turn of the loop.
const INPUTS_MAX: usize = 16;
/// Capacity of the queue of store events; sufficient for a burst of changes to one document.
const STORE_EVENTS_MAX: usize = 64;

pub(crate) trait Machine: Send + 'static {
    type Input: Send + Serialize;
    type Effect: Send + Serialize;
    type Status: Clone + Debug + PartialEq + Send + Sync + 'static;
    /// The document that an applied store call returns.
    type Found: Send + 'static;

    /// Input when a timer fires.
    const TICK: Self::Input;
    /// Input once every handle to the state machine has been dropped.
    const ABANDONED: Self::Input;

    fn call(effect: &Self::Effect) -> Option<CallId>;
    fn reply(call: CallId, outcome: Outcome<Self::Found>) -> Self::Input;
    fn handle(&mut self, now: BootTime, input: Self::Input, random: &mut dyn Randomness);
    fn next_effect(&mut self) -> Option<Self::Effect>;
    fn next_wakeup(&self) -> Option<BootTime>;
    fn status(&self) -> Self::Status;
}

/// Implements [`Machine`] by calling the methods of a state machine of `leasehold_core`.
macro_rules! state_machine {
    ($machine:ty, $input:ident, $effect:ident, $status:ident, $found:ident, abandoned: $abandoned:ident) => {
        impl $crate::event_loop::Machine for $machine {
            type Input = $input;
            type Effect = $effect;
            type Status = $status;
            type Found = $found;

            const TICK: $input = $input::Tick;
            const ABANDONED: $input = $input::$abandoned;

            fn call(effect: &$effect) -> Option<CallId> {
                match effect {
                    $effect::Call { id, .. } => Some(*id),
                    _ => None,
                }
            }

            fn reply(call: CallId, outcome: Outcome<$found>) -> $input {
                $input::Reply { call, outcome }
            }

            fn handle(&mut self, now: BootTime, input: $input, random: &mut dyn Randomness) {
                self.handle(now, input, random);
            }

            fn next_effect(&mut self) -> Option<$effect> {
                self.next_effect()
            }

            fn next_wakeup(&self) -> Option<BootTime> {
                self.next_wakeup()
            }

            fn status(&self) -> $status {
                self.status().to_owned()
            }
        }
    };
}
pub(crate) use state_machine;

pub(crate) trait Host: Send + 'static {
    type Machine: Machine;
    type Hint: Send + 'static;
    type End: Send;
    type Result: Send + 'static;

    /// Carries out an effect. If this effect was the last, returns the result that it contains.
    fn carry_out(
        &mut self,
        effect: <Self::Machine as Machine>::Effect,
        calls: &mut CallsInFlight<Self>,
    ) -> Option<Self::End>;
    fn calls_in_flight(&mut self, _: usize) {}
    fn answered(&mut self, answered: &AnsweredCall);
    /// Reports a store event, and converts it to an input if the state machine needs it.
    fn news(&mut self, news: StoreEvent<Self::Hint>) -> Option<Input<Self>>;
    /// Reports an input from the program. The state machine has not handled the input yet.
    fn received(&mut self, _: &Input<Self>) {}
    /// Waits for an event that the host itself generates. Must be cancel safe.
    fn event(&mut self) -> impl Future<Output = Input<Self>> + Send {
        std::future::pending()
    }
    fn finish(
        self,
        machine: &Self::Machine,
        end: Self::End,
    ) -> impl Future<Output = Self::Result> + Send;
}

pub(crate) type Input<H> = <<H as Host>::Machine as Machine>::Input;
pub(crate) type CallsInFlight<H> = InFlight<<<H as Host>::Machine as Machine>::Found>;

#[derive(Debug)]
pub(crate) struct EventLoop<M: Machine, W> {
    machine: M,
    trace: MachineTrace,
    operation_timeout: Duration,
    status: watch::Sender<M::Status>,
    requests: mpsc::Receiver<M::Input>,
    events: mpsc::Receiver<StoreEvent<W>>,
}

impl<M: Machine, W: Send + 'static> EventLoop<M, W> {
    pub(crate) fn new<O: Clone + Serialize>(
        store: &StoreOptions,
        (kind, name): (Kind, &str),
        options: &O,
        create: impl FnOnce(O, BootTime, &mut dyn Randomness) -> M,
    ) -> (Self, mpsc::Sender<M::Input>, mpsc::Sender<StoreEvent<W>>) {
        let now = leasehold_clock::boot_now();
        let mut trace = MachineTrace::new(store.trace.clone());
        let machine = create(options.clone(), now, &mut trace);
        trace.started((kind, store.document(name)), now, options);
        let (inputs, requests) = mpsc::channel(INPUTS_MAX);
        let (sender, events) = mpsc::channel(STORE_EVENTS_MAX);
        let event_loop = Self {
            status: watch::Sender::new(machine.status()),
            machine,
            trace,
            operation_timeout: store.timings.operation_timeout(),
            requests,
            events,
        };
        (event_loop, inputs, sender)
    }

    pub(crate) fn status(&self) -> watch::Receiver<M::Status> {
        self.status.subscribe()
    }

    /// Starts the loop. Must be called inside a tokio runtime.
    pub(crate) fn start<H>(
        self,
        inputs: mpsc::Sender<M::Input>,
        host: H,
    ) -> LoopHandle<M, H::Result>
    where
        H: Host<Machine = M, Hint = W>,
    {
        LoopHandle {
            status: self.status(),
            inputs,
            // Boxed, because otherwise copies of this large future stay on the stack.
            task: Some(tokio::spawn(Box::pin(self.run(host)))),
            result: None,
        }
    }

    /// Runs until the last effect. Fails if the kernel cannot create a timer.
    async fn run<H>(mut self, mut host: H) -> io::Result<H::Result>
    where
        H: Host<Machine = M, Hint = W>,
    {
        let mut timer = BootTimer::new()?;
        let mut calls = InFlight::new(self.operation_timeout);
        let mut abandoned = false;
        let mut input = M::TICK;
        loop {
            let now = leasehold_clock::boot_now();
            let traced = self.trace.copy(&input);
            self.machine.handle(now, input, &mut self.trace);
            publish(&self.status, self.machine.status());
            let effects: Vec<_> = std::iter::from_fn(|| self.machine.next_effect()).collect();
            self.trace.turn(now, &traced, &effects);
            for effect in effects {
                if let Some(call) = M::call(&effect) {
                    self.trace.sent(call);
                }
                if let Some(end) = host.carry_out(effect, &mut calls) {
                    return Ok(host.finish(&self.machine, end).await);
                }
            }
            timer.arm(self.machine.next_wakeup())?;
            host.calls_in_flight(calls.in_flight());
            input = loop {
                tokio::select! {
                    // The timer comes first, because a flood of store events must not delay a
                    // deadline.
                    biased;
                    fired = timer.fired() => {
                        fired?;
                        break M::TICK;
                    }
                    input = host.event() => break input,
                    input = self.requests.recv(), if !abandoned => {
                        abandoned = input.is_none();
                        if let Some(input) = &input {
                            host.received(input);
                        }
                        break input.unwrap_or(M::ABANDONED);
                    }
                    reply = calls.next() => {
                        if let Some(answered) = reply.answered {
                            self.trace.answered(reply.call, answered.outcome, answered.late);
                            host.answered(&answered);
                        }
                        break M::reply(reply.call, reply.outcome);
                    }
                    Some(news) = self.events.recv() => {
                        if let Some(input) = host.news(news) {
                            break input;
                        }
                    }
                }
            };
        }
    }
}

#[derive(Debug)]
pub(crate) struct LoopHandle<M: Machine, R> {
    pub(crate) status: watch::Receiver<M::Status>,
    pub(crate) inputs: mpsc::Sender<M::Input>,
    /// `None` once `wait` has returned.
    pub(crate) task: Option<JoinHandle<io::Result<R>>>,
    result: Option<R>,
}

impl<M: Machine, R: Clone> LoopHandle<M, R> {
    /// Sends a request. Does nothing after the loop has ended.
    pub(crate) async fn send(&self, input: M::Input) {
        let _ = self.inputs.send(input).await;
    }

    /// Cancel safe. Later calls return the same result. Fails if the kernel could not create a
    /// timer, or after a panic.
    pub(crate) async fn wait(&mut self) -> io::Result<R> {
        if let Some(task) = &mut self.task {
            let ended = task.await;
            self.task = None;
            self.result = Some(ended.map_err(io::Error::other)??);
        }
        let failed = || io::Error::other("the event loop failed earlier");
        self.result.clone().ok_or_else(failed)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::election::Identity;

    use super::*;

    /// Records its inputs. Each turn has one effect, which is true if the input was `ABANDONED`.
    #[derive(Default)]
    struct Recorder {
        inputs: Vec<&'static str>,
        effect: Option<bool>,
    }

    impl Machine for Recorder {
        type Input = &'static str;
        type Effect = bool;
        type Status = usize;
        type Found = ();

        const TICK: &'static str = "tick";
        const ABANDONED: &'static str = "abandoned";

        fn call(_: &bool) -> Option<CallId> {
            None
        }

        fn reply(_: CallId, _: Outcome<()>) -> &'static str {
            "reply"
        }

        fn handle(&mut self, _: BootTime, input: &'static str, _: &mut dyn Randomness) {
            self.inputs.push(input);
            self.effect = Some(input == Self::ABANDONED);
        }

        fn next_effect(&mut self) -> Option<bool> {
            self.effect.take()
        }

        fn next_wakeup(&self) -> Option<BootTime> {
            None
        }

        fn status(&self) -> usize {
            self.inputs.len()
        }
    }

    /// Records the status that was published before each effect.
    struct Surface(watch::Receiver<usize>, Vec<usize>);

    impl Host for Surface {
        type Machine = Recorder;
        type Hint = ();
        type End = ();
        type Result = (Vec<&'static str>, Vec<usize>);

        fn carry_out(&mut self, is_last: bool, _: &mut CallsInFlight<Self>) -> Option<()> {
            self.1.push(*self.0.borrow());
            is_last.then_some(())
        }

        fn answered(&mut self, _: &AnsweredCall) {}

        fn news(&mut self, _: StoreEvent<()>) -> Option<&'static str> {
            Some("news")
        }

        async fn finish(self, recorder: &Recorder, (): ()) -> Self::Result {
            (recorder.inputs.clone(), self.1)
        }
    }

    #[test]
    fn a_machine_without_handles_is_notified_after_the_last_request() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async {
            let store = StoreOptions::new("", Identity::new("me").expect("legal"));
            let create = |(), _, _: &mut dyn Randomness| Recorder::default();
            let traced = (Kind::Election, "x");
            let (event_loop, inputs, _events) = EventLoop::new(&store, traced, &(), create);
            while inputs.try_send("request").is_ok() {}
            let surface = Surface(event_loop.status(), Vec::new());
            let started = event_loop.start(inputs, surface);
            drop(started.inputs);
            let ended = started.task.expect("it runs").await.expect("no panic");
            let (inputs, published) = ended.expect("a timer");
            let requests = vec!["request"; INPUTS_MAX];
            assert_eq!(inputs, [vec!["tick"], requests, vec!["abandoned"]].concat());
            let each: Vec<_> = (1..=inputs.len()).collect();
            assert_eq!(published, each, "published before the effects");
        });
    }
}
