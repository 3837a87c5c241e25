//! The guard: CMD's parent, which ends CMD in time even if the daemon cannot.
//!
//! The guard is a second instance of this binary, with one thread and without a runtime. Once the
//! start message arrives, the guard holds the newest deadlines and the claim lock. A new daemon
//! finds the lock free only if CMD is gone or this guard was killed. If the guard was killed, the
//! claim file names the process that became CMD. After the start of CMD, the guard allocates
//! nothing, because memory may be exhausted. If the OOM killer chooses the guard, PDEATHSIG ends
//! CMD's leader. The daemon, which is also a subreaper, ends the other processes.
//!
//! **Sessions.** Without a terminal, the guard has its own session. With a terminal, the guard
//! stays in the daemon's session, which CMD inherits. In another session, CMD could not receive
//! Ctrl-C and, as an orphaned process group, would not stop on Ctrl-Z. The guard's own process
//! group never gets the foreground, so no key of the terminal reaches the guard.
//!
//! **Signals.** If a service manager signals every process of a unit, the guard must not exit
//! before CMD. Signals that end or stop a process therefore have a handler that does nothing,
//! unless they were ignored at the start. CMD does not inherit handlers.

mod ready;
mod signalling;
mod starting;

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getppid, setsid, wait, waitid,
};
use signal_hook::consts::SIGTERM;

use self::ready::outlive_signals;
use self::signalling::StopReceivers;
use super::children::reap;
use super::claim_share::{Child, ClaimPlace, ClaimShare};
use super::dispositions::Ignored;
use super::groups::number;
use super::progress::CommandEnd;
use super::shim::{Shim, errno};
use super::wire::{
    CommandStage, GuardBegin, GuardReport, GuardStart, Received, ToGuard, post, split, take,
    wait_with,
};
use super::witness::Witness;
use leasehold_core::deadline_policy::{
    Action, DeadlinePolicy, DesiredState, PolicyInput, PolicyOptions, Stop,
};
use leasehold_core::election::BootTime;

pub(super) use self::ready::{ContainerSignals, Ready};

/// Interval between kill rounds. If a child is forked during one round, the next round kills it.
const KILL_ROUND: Duration = Duration::from_millis(10);

/// A command that a guard is about to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    /// Options of the policy that decides when the guard stops and kills the command.
    pub policy: PolicyOptions,
    /// The guard's place in the claim file, if it has one.
    pub place: Option<ClaimPlace>,
    /// Process id of the daemon.
    pub daemon: u32,
}

/// Records the inputs of a guard's policy and its decisions, for traces.
pub trait PolicyObserver {
    /// Called after the policy has handled an input, and before the guard takes the action.
    fn handled(&mut self, now: BootTime, input: PolicyInput, action: Option<Action>);
}

pub(super) type Observe<'a> = &'a dyn Fn(&Watched) -> Option<Box<dyn PolicyObserver>>;

/// The daemon's socket is this process's standard input.
pub(super) fn run(observe: Observe<'_>) -> ExitCode {
    let attended = Guard::begin(observe).and_then(|guard| guard.map(Guard::attend).transpose());
    match attended {
        Ok(_) => ExitCode::SUCCESS,
        // Needs no report, because CMD was never started and the daemon notices this exit.
        Err(_) => ExitCode::FAILURE,
    }
}

pub(super) struct Guard {
    policy: DeadlinePolicy,
    observer: Option<Box<dyn PolicyObserver>>,
    foreground: i32,
    launch: Option<Launch>,
    daemon: OwnedFd,
    daemon_gone: bool,
    dismissed: bool,
    ready: Box<Ready>,
    shim: Option<OwnedFd>,
    leader: Option<GroupLeader>,
    asked: StopReceivers,
    /// The newest desired state that the daemon sent.
    desired: DesiredState,
    stop_signal: i32,
    stop_grace: Duration,
    /// The stop requested by a signal to the container of an attached guard.
    own_stop: Option<Stop>,
    relays: u32,
    report: GuardReport,
    reported: Option<GuardReport>,
    /// Holds the claim lock until CMD is gone or this process exits.
    claim: Option<ClaimShare>,
    /// The program to become if the daemon exits first.
    witness: Option<Witness>,
    /// Kept open so that descendants of CMD can read the descriptor through /proc.
    _kept: Option<OwnedFd>,
}

pub(super) struct Launch {
    /// The waiting shim. If this shim failed to start, the guard starts another shim together with
    /// CMD.
    pub(super) shim: Option<Shim>,
    pub(super) stdin: OwnedFd,
    pub(super) exec_spec: OwnedFd,
}

/// The end of CMD, and the resources that an attached guard reuses for the next CMD.
pub(super) struct Attended {
    pub(super) ready: Box<Ready>,
    pub(super) report: GuardReport,
    /// True if a signal to the guard's container stopped CMD.
    pub(super) stopped_here: bool,
    /// The result of recording the end of CMD. Without this record, the next daemon cannot know
    /// that CMD is gone.
    pub(super) recorded: io::Result<()>,
}

struct GroupLeader {
    pid: Pid,
    /// True if the leader was reaped; its process group can no longer be signalled safely.
    reaped: bool,
}

impl Guard {
    fn begin(observe: Observe<'_>) -> io::Result<Option<Self>> {
        let parent = getppid();
        let daemon = io::stdin().as_fd().try_clone_to_owned()?;
        outlive_signals(Ignored::of_this_process())?;
        let Some((begin, descriptors)) = wait_with::<GuardBegin>(daemon.as_fd())? else {
            return Ok(None);
        };
        let [Some(stdin), None, None] = descriptors else {
            return Err(Errno::PROTO.into());
        };
        if !begin.on_terminal {
            setsid()?;
        }
        if begin.has_witness {
            Witness::hide()?;
        }
        let ready = Ready::new(None)?;
        // If this fails, the shim is created when needed.
        let shim = Shim::new().ok();
        let Some((start, descriptors)) = wait_with::<GuardStart>(daemon.as_fd())? else {
            shim.into_iter().for_each(Shim::dismiss);
            return Ok(None);
        };
        let (exec_spec, claim, last) = split(&start, descriptors)?;
        let (witness, kept) = match start.has_witness {
            true => (last.map(Witness::of_file).transpose()?, None),
            false => (None, last),
        };
        let watched = Watched {
            policy: start.policy,
            place: start.place,
            daemon: parent.map_or(0, |parent| number(parent).unsigned_abs()),
        };
        let launch = Launch {
            shim,
            stdin,
            exec_spec,
        };
        Ok(Some(Self {
            observer: observe(&watched),
            witness,
            _kept: kept,
            ..Self::new(ready, daemon, start, launch, claim)
        }))
    }

    /// Creates a guard without a witness.
    pub(super) fn new(
        ready: Box<Ready>,
        daemon: OwnedFd,
        start: GuardStart,
        launch: Launch,
        claim: Option<ClaimShare>,
    ) -> Self {
        Self {
            policy: DeadlinePolicy::new(start.policy),
            observer: None,
            foreground: start.foreground,
            launch: Some(launch),
            daemon,
            daemon_gone: false,
            dismissed: false,
            ready,
            shim: None,
            leader: None,
            asked: StopReceivers::default(),
            desired: DesiredState::run(start.policy.terms),
            stop_signal: start.policy.stop_signal,
            stop_grace: start.stop_grace,
            own_stop: None,
            relays: 0,
            report: GuardReport::default(),
            reported: None,
            claim,
            witness: None,
            _kept: None,
        }
    }

    /// Runs CMD until it is gone.
    pub(super) fn attend(mut self) -> io::Result<Attended> {
        loop {
            // Reads the time before the orders. Otherwise, after a freeze between the two reads,
            // the guard would compare an old order with the current time, although a newer order
            // had already arrived.
            let now = leasehold_clock::boot_now();
            self.receive_orders();
            self.receive_signals();
            self.receive_from_shim();
            self.check_children();
            if let Some(action) = self.decide(now, PolicyInput::Time) {
                self.act(action);
            }
            if self.policy.killed() && self.report.stage != CommandStage::Gone {
                self.kill_round();
            }
            self.notify_daemon();
            let reported = self.daemon_gone || self.reported == Some(self.report);
            if self.report.stage == CommandStage::Gone && reported && self.is_dismissed() {
                self.await_shim();
                return self.finish();
            }
            self.sleep(reported)?;
        }
    }

    /// Reads all orders, because only the newest order counts.
    fn receive_orders(&mut self) {
        while !self.daemon_gone {
            match take::<ToGuard>(self.daemon.as_fd()) {
                Received::Record(record) => {
                    self.dismissed |= record.dismissed;
                    self.order(record.desired);
                    if record.relays != self.relays {
                        self.relays = record.relays;
                        self.relay(record.relay);
                    }
                }
                Received::Nothing => return,
                Received::Closed => {
                    self.daemon_gone = true;
                    self.policy_input(PolicyInput::Closed);
                }
            }
        }
    }

    /// Applies a desired state that the daemon sent. A stop requested by a signal to the container
    /// stays in force.
    fn order(&mut self, desired: DesiredState) {
        self.desired = desired;
        let desired = self.own_stop.map_or(desired, |stop| desired.stopped(stop));
        self.policy_input(PolicyInput::Order(desired));
    }

    /// Stops CMD after a signal that asks the container to stop, and relays other signals.
    fn receive_signals(&mut self) {
        let Some(signals) = &mut self.ready.signals else {
            return;
        };
        let (stop, others) = signals.take();
        if let (Some(signal), None) = (stop, self.own_stop) {
            let kill_at = leasehold_clock::boot_now() + self.stop_grace;
            // Container runtimes send SIGTERM unless the image asks for another signal.
            let signal = match signal {
                SIGTERM => self.stop_signal,
                other => other,
            };
            self.own_stop = Some(Stop { signal, kill_at });
            self.order(self.desired);
        }
        others.for_each(|signal| self.relay(signal));
    }

    fn policy_input(&mut self, input: PolicyInput) {
        self.decide(leasehold_clock::boot_now(), input);
    }

    fn decide(&mut self, now: BootTime, input: PolicyInput) -> Option<Action> {
        self.policy.handle(now, input);
        let action = self.policy.next_action();
        if let Some(observer) = &mut self.observer {
            observer.handled(now, input, action);
        }
        action
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Start => {
                if let Err(error) = self.start() {
                    self.never_started(CommandEnd::NotSpawned(errno(&error)));
                }
            }
            Action::Refuse => self.never_started(CommandEnd::Refused),
            Action::Signal(signal) => {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    self.ask_to_stop(signal);
                }
            }
            Action::SignalMain(signal) => {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    self.signal_leader(signal);
                    self.signal_leader(Signal::CONT);
                }
            }
            // `kill_round`, which runs next, sends SIGKILL and repeats it.
            Action::Kill => {}
        }
    }

    fn gone(&mut self) {
        self.report.stage = CommandStage::Gone;
        self.policy_input(PolicyInput::Gone);
    }

    /// Returns false while this guard may still have to become the witness, because the daemon
    /// could be killed before it confirms that CMD is gone.
    fn is_dismissed(&self) -> bool {
        self.dismissed || self.daemon_gone || self.witness.is_none()
    }

    /// Records the end of CMD. Called after the daemon was notified, because the disk may hang. If
    /// the daemon has exited, the witness then releases the lease.
    fn finish(mut self) -> io::Result<Attended> {
        let mut recorded = Ok(());
        if let Some(claim) = self.claim.take() {
            // If this fails, the next daemon searches for the process, and finds that it is gone.
            // An attached guard exits instead.
            recorded = claim.write(Child::Gone);
            if let Some(witness) = self.witness.take().filter(|_| self.daemon_gone) {
                return Err(witness.take_over(&claim, self.policy.valid_until()));
            }
        }
        Ok(Attended {
            ready: self.ready,
            report: self.report,
            stopped_here: self.own_stop.is_some(),
            recorded,
        })
    }

    fn kill_round(&mut self) {
        self.signal(Signal::KILL);
        self.give_up_shim();
    }

    /// Reaps CMD's leader last, so that the id of its process group is not reused too early.
    fn check_children(&mut self) {
        // Checks all children, because one signal may report the exits of several children.
        let _ = self.ready.child_ended.read(&mut [0; 64]);
        if self.report.stage == CommandStage::Gone {
            return;
        }
        let Some(leader) = self.leader.as_ref().map(|leader| leader.pid) else {
            return;
        };
        self.check_leader(leader);
        let (mut others, asked) = (0, &mut self.asked);
        let looked = self.ready.children.each(|child| match child {
            _ if child == leader => {}
            _ if reap(child) => asked.forget(child),
            _ => {
                others += 1;
                asked.adopt(child);
            }
        });
        if looked.is_ok() && others == 0 && self.report.stage == CommandStage::LeaderEnded {
            self.reap_leader(leader);
        }
    }

    fn check_leader(&mut self, leader: Pid) {
        if self.report.stage >= CommandStage::LeaderEnded {
            return;
        }
        let look = |options| waitid(WaitId::Pid(leader), options | WaitIdOptions::NOHANG);
        if let Ok(Some(end)) = look(WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            // If the shim failed, the reason is in its socket.
            self.receive_from_shim();
            if self.report.end == CommandEnd::Unknown {
                self.report.end = CommandEnd::of(&end);
            }
            self.report.by_us = self.policy.stop_requested();
            self.report.stopped = 0;
            self.report.stage = CommandStage::LeaderEnded;
            self.policy_input(PolicyInput::LeaderEnded);
        } else if let Ok(Some(change)) = look(WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED) {
            self.report.stopped = change.stopping_signal().unwrap_or(0);
        }
    }

    /// Called if no other child was seen. The next wait confirms that no child remains.
    fn reap_leader(&mut self, leader: Pid) {
        reap(leader);
        if let Some(leader) = &mut self.leader {
            leader.reaped = true;
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                // A child was forked during the check.
                Ok(None) => return,
                Err(_) => break,
            }
        }
        self.gone();
    }

    fn notify_daemon(&mut self) {
        self.report.killed = self.policy.killed();
        self.report.lingers = self.policy.lingers();
        if self.daemon_gone || self.reported == Some(self.report) {
            return;
        }
        // A full socket is retried later. `receive_orders` notices that the daemon is gone.
        if let Ok(true) = post(self.daemon.as_fd(), &self.report) {
            self.reported = Some(self.report);
        }
    }

    fn sleep(&mut self, reported: bool) -> io::Result<()> {
        let killing = self.policy.killed() && self.report.stage != CommandStage::Gone;
        let round = killing.then(|| leasehold_clock::boot_now() + KILL_ROUND);
        let due = self.policy.next_wakeup().into_iter().chain(round).min();
        self.ready.alarm.arm(due)?;
        let mut wanted = PollFlags::IN;
        wanted.set(PollFlags::OUT, !reported);
        // Takes the place of an absent or closed socket, because poll would always report a closed
        // socket as ready.
        let idle = || PollFd::new(&self.ready.alarm, PollFlags::empty());
        let daemon = Some(&self.daemon).filter(|_| !self.daemon_gone);
        let signals = self.ready.signals.as_ref();
        let mut places = [
            PollFd::new(&self.ready.child_ended, PollFlags::IN),
            PollFd::new(&self.ready.alarm, PollFlags::IN),
            signals.map_or_else(idle, |signals| PollFd::new(signals, PollFlags::IN)),
            daemon.map_or_else(idle, |daemon| PollFd::new(daemon, wanted)),
            (self.shim.as_ref()).map_or_else(idle, |shim| PollFd::new(shim, PollFlags::IN)),
        ];
        match poll(&mut places, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
