//! The loop that drives a state machine: the election, or a contender for a lock.
//!
//! The loop makes no decisions: inputs are passed on one at a time, and it publishes the status before
//! the effects of a turn are carried out, so nothing is released while a surface still shows the
//! authority that went with it. Store calls are left to [`calls`](crate::calls), which never drops
//! one.

mod handle;

use std::borrow::Cow;
use std::future::Future;
use std::io;

use tokio::sync::{mpsc, watch};

use serde::Serialize;

pub(crate) use self::handle::{LoopHandle, PreparedLoop};

use crate::calls::{AnsweredCall, InFlight};
use crate::store::{CallOutcome, StoreEvent};
use crate::trace::Tracer;
use leasehold_clock::BootTimer;
use leasehold_core::election::{BootTime, CallId, Randomness};

/// A state machine without IO.
pub(crate) trait Machine {
    /// An event or a request.
    type Input: Send + Serialize;
    /// An action to carry out.
    type Effect: Send + Serialize;
    /// The published state.
    type Status: Clone + PartialEq + Send + Sync + 'static;
    /// The outcome of a store call.
    type Outcome: CallOutcome;

    /// The input of a timer that fired.
    const TICK: Self::Input;
    /// The input once every handle to the machine has been dropped.
    const ABANDONED: Self::Input;

    /// Returns the store call of an effect; `None` if it is another effect.
    fn call(effect: &Self::Effect) -> Option<CallId>;
    /// Returns the input of a store call that was answered or has timed out.
    fn reply(call: CallId, outcome: Self::Outcome) -> Self::Input;
    /// Handles one input.
    fn handle(&mut self, now: BootTime, input: Self::Input, random: &mut dyn Randomness);
    /// Takes the next effect of the turn.
    fn next_effect(&mut self) -> Option<Self::Effect>;
    /// The instant at which the machine needs a tick.
    fn next_wakeup(&self) -> Option<BootTime>;
    /// The current status.
    fn status(&self) -> Cow<'_, Self::Status>;
}

/// Makes a machine of the core a [`Machine`]: both have the same methods.
macro_rules! state_machine {
    ($machine:ty, $input:ident, $effect:ident, $status:ident, $outcome:ident, abandoned: $abandoned:ident, status: $cow:path) => {
        impl $crate::event_loop::Machine for $machine {
            type Input = $input;
            type Effect = $effect;
            type Status = $status;
            type Outcome = $outcome;

            const TICK: $input = $input::Tick;
            const ABANDONED: $input = $input::$abandoned;

            fn call(effect: &$effect) -> Option<CallId> {
                match effect {
                    $effect::Call { id, .. } => Some(*id),
                    _ => None,
                }
            }

            fn reply(call: CallId, outcome: $outcome) -> $input {
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

            fn status(&self) -> Cow<'_, $status> {
                $cow(self.status())
            }
        }
    };
}
pub(crate) use state_machine;

/// The IO of a machine.
pub(crate) trait Host {
    /// The machine.
    type Machine: Machine;
    /// The content of an event of the change stream.
    type Hint;
    /// The content of the last effect.
    type End: Send;
    /// The result of the loop.
    type Result: Send + 'static;

    /// Reports a new status.
    fn published(&mut self, status: &Status<Self>);
    /// Carries out an effect; returns the result if it was the last one.
    fn carry_out(
        &mut self,
        effect: <Self::Machine as Machine>::Effect,
        calls: &mut CallsInFlight<Self>,
    ) -> Option<Self::End>;
    /// Reports the number of store calls in flight, before the loop waits.
    fn calls_in_flight(&mut self, _: usize) {}
    /// Reports a store call that was answered.
    fn answered(&mut self, answered: &AnsweredCall);
    /// Converts a store event to an input, if the machine needs it.
    fn news(&mut self, news: StoreEvent<Self::Hint>) -> Option<Input<Self>>;
    /// Reports an input of the program, before the machine handles it.
    fn received(&mut self, _: &Input<Self>) {}
    /// Waits for an event of the host itself. Must be cancel-safe.
    fn event(&mut self) -> impl Future<Output = Input<Self>> + Send {
        std::future::pending()
    }
    /// Ends the IO after the last effect, or after a fault of the loop.
    fn finish(
        &mut self,
        machine: &Self::Machine,
        end: io::Result<Self::End>,
    ) -> impl Future<Output = io::Result<Self::Result>> + Send;
}

/// The input of a host's machine.
pub(crate) type Input<H> = <<H as Host>::Machine as Machine>::Input;
/// The status of a host's machine.
pub(crate) type Status<H> = <<H as Host>::Machine as Machine>::Status;
/// The store calls in flight of a host's machine.
pub(crate) type CallsInFlight<H> = InFlight<CallId, <<H as Host>::Machine as Machine>::Outcome>;

/// A machine, its host, and the loop between them.
struct EventLoop<H: Host> {
    machine: H::Machine,
    host: H,
    tracer: Tracer,
    status: watch::Sender<Status<H>>,
    requests: mpsc::Receiver<Input<H>>,
    /// True once every sender of requests has been dropped.
    abandoned: bool,
    events: mpsc::Receiver<StoreEvent<H::Hint>>,
    calls: CallsInFlight<H>,
}

impl<H: Host> EventLoop<H> {
    /// Runs until the last effect.
    ///
    /// # Errors
    /// If the kernel provides no timer.
    async fn run(&mut self) -> io::Result<H::End> {
        let mut timer = BootTimer::new()?;
        let mut input = H::Machine::TICK;
        loop {
            let now = leasehold_clock::boot_now();
            let begun = self.tracer.begin(&input);
            self.machine.handle(now, input, self.tracer.random());
            self.publish();
            let effects: Vec<_> = std::iter::from_fn(|| self.machine.next_effect()).collect();
            self.tracer.turn(now, begun, &effects);
            for effect in effects {
                if let Some(call) = H::Machine::call(&effect) {
                    self.tracer.sent(call);
                }
                if let Some(end) = self.host.carry_out(effect, &mut self.calls) {
                    return Ok(end);
                }
            }
            timer.arm(self.machine.next_wakeup())?;
            self.host.calls_in_flight(self.calls.in_flight());
            input = self.next_input(&mut timer).await?;
        }
    }

    fn publish(&mut self) {
        let status = self.machine.status();
        let changed = self.status.send_if_modified(|published| {
            let changed = *published != *status;
            if changed {
                published.clone_from(&*status);
            }
            changed
        });
        if changed {
            self.host.published(&status);
        }
    }

    /// Waits for the next event. The timer has priority, so that deadlines are kept even under a
    /// flood of store events.
    async fn next_input(&mut self, timer: &mut BootTimer) -> io::Result<Input<H>> {
        loop {
            tokio::select! {
                biased;
                fired = timer.fired() => {
                    fired?;
                    return Ok(H::Machine::TICK);
                }
                input = self.host.event() => return Ok(input),
                input = self.requests.recv(), if !self.abandoned => {
                    self.abandoned = input.is_none();
                    if let Some(input) = &input {
                        self.host.received(input);
                    }
                    return Ok(input.unwrap_or(H::Machine::ABANDONED));
                }
                Some(reply) = self.calls.next() => {
                    if let Some(answered) = reply.answered {
                        self.tracer.answered(reply.call, answered.outcome, answered.late);
                        self.host.answered(&answered);
                    }
                    return Ok(H::Machine::reply(reply.call, reply.outcome));
                }
                Some(news) = self.events.recv() => {
                    if let Some(input) = self.host.news(news) {
                        return Ok(input);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::election::Outcome;
    use leasehold_core::trace::Kind;

    use std::time::Duration;

    use super::*;
    use crate::event_loop::handle::INPUTS_MAX;

    /// Records its inputs and ends when it is abandoned.
    #[derive(Default)]
    struct Recorder {
        inputs: Vec<&'static str>,
        end: Option<()>,
    }

    impl Machine for Recorder {
        type Input = &'static str;
        type Effect = ();
        type Status = usize;
        type Outcome = Outcome;

        const TICK: &'static str = "tick";
        const ABANDONED: &'static str = "abandoned";

        fn call((): &()) -> Option<CallId> {
            None
        }

        fn reply(_: CallId, _: Outcome) -> &'static str {
            "reply"
        }

        fn handle(&mut self, _: BootTime, input: &'static str, _: &mut dyn Randomness) {
            self.inputs.push(input);
            self.end = (input == Self::ABANDONED).then_some(());
        }

        fn next_effect(&mut self) -> Option<()> {
            self.end.take()
        }

        fn next_wakeup(&self) -> Option<BootTime> {
            None
        }

        fn status(&self) -> Cow<'_, usize> {
            Cow::Owned(self.inputs.len())
        }
    }

    /// Records each status.
    #[derive(Default)]
    struct Surface(Vec<usize>);

    impl Host for Surface {
        type Machine = Recorder;
        type Hint = ();
        type End = ();
        type Result = (Vec<&'static str>, Vec<usize>);

        fn published(&mut self, status: &usize) {
            self.0.push(*status);
        }

        fn carry_out(&mut self, (): (), _: &mut CallsInFlight<Self>) -> Option<()> {
            Some(())
        }

        fn answered(&mut self, _: &AnsweredCall) {}

        fn news(&mut self, _: StoreEvent<()>) -> Option<&'static str> {
            Some("news")
        }

        async fn finish(
            &mut self,
            recorder: &Recorder,
            end: io::Result<()>,
        ) -> io::Result<Self::Result> {
            end.map(|()| (recorder.inputs.clone(), self.0.clone()))
        }
    }

    #[test]
    fn a_machine_without_handles_is_notified_after_the_last_request() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async {
            let traced = (Kind::Election, String::new());
            let create = |(), _, _: &mut dyn Randomness| Recorder::default();
            let (prepared, _events) = PreparedLoop::new(None, traced, &(), create);
            while prepared.inputs.try_send("request").is_ok() {}
            let started = prepared.start(Surface::default(), Duration::from_secs(1));
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
