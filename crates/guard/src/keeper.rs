//! The daemon's side of a guard: sends the newest order, hears the reports,
//! and ends CMD itself where the guard does not.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram as StdUnixDatagram;
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_current_process_group, kill_process,
    kill_process_group, pidfd_open, waitid,
};
use signal_hook::consts::{SIGCONT, SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU};
use tokio::io::unix::AsyncFd;
use tokio::net::UnixDatagram;
use tokio::sync::watch;

use super::claim_share::{Child, ClaimShare};
use super::orphans::{WaitedFor, each_adopted};
use super::terminal::{Continued, Terminal};
use super::wire::{GuardStart, LeaderEnd, Received, Report, Stage, ToGuard, post, post_with, take};
use super::{End, Ended, Prepared, Progress};
use leasehold_clock::BootTimer;
use leasehold_core::election::BootTime;
use leasehold_core::judge::Order;

/// How much later than the deadline a guard may say that it has killed CMD
/// before it is killed itself, and CMD by us. A fifth of the 500 ms by which
/// `lease_duration` exceeds the last deadline, so that what follows fits too.
const GUARD_LATE_MAX: Duration = Duration::from_millis(100);

/// How often descendants are looked for once the guard is gone. The kernel
/// says nothing when a child is adopted; this takes no part where the guard lives.
const KILL_ROUND: Duration = Duration::from_millis(5);

/// After that long without having stopped we are not going to: signals of the
/// terminal do not stop process 1, nor a group that no shell looks after.
const STOP_TAKES_MAX: Duration = Duration::from_millis(100);

/// One guard, until CMD is gone.
pub(super) struct Keeper {
    socket: UnixDatagram,
    /// Readable when the guard has ended.
    ended: AsyncFd<OwnedFd>,
    guard: WaitedFor,
    leader: Option<WaitedFor>,
    /// Where the end of a CMD is written whose guard cannot.
    pub(super) claim: Option<ClaimShare>,
    orders: watch::Receiver<ToGuard>,
    progress: watch::Sender<Progress>,
    terminal: Option<Terminal>,
    continued: Option<Continued>,
    /// What the guard is to know: the newest order, and signals to pass on.
    order: ToGuard,
    /// Signals that the handle has asked to pass on.
    relays_asked: u32,
    /// The order has not been sent yet.
    unsent: bool,
    /// The guard has closed its end.
    deaf: bool,
    /// When the order to kill was given.
    kill_since: Option<BootTime>,
    report: Option<Report>,
    guard_killed: bool,
    /// We asked our own process group to stop, and nobody has let it go on.
    stopping: bool,
    /// CMD had the foreground of the terminal when it ended.
    had_foreground: bool,
}

impl Keeper {
    /// Of a guard that waits. Inside a tokio runtime.
    pub(super) fn new(
        prepared: Prepared,
        orders: watch::Receiver<ToGuard>,
        progress: watch::Sender<Progress>,
    ) -> io::Result<Self> {
        let Prepared {
            socket,
            guard,
            terminal,
            ..
        } = prepared;
        let ended = pidfd_open(guard.pid(), PidfdFlags::NONBLOCK)?;
        // Deprecated for types whose descriptor may change; an `OwnedFd` has
        // one for its life. What replaces it is unsafe, which this crate forbids.
        #[allow(deprecated)]
        let ended = AsyncFd::new(ended)?;
        let continued = terminal.as_ref().map(|_| Continued::listen()).transpose()?;
        let order = *orders.borrow();
        Ok(Self {
            // To tokio all sockets that keep records are datagram sockets.
            socket: UnixDatagram::from_std(StdUnixDatagram::from(socket))?,
            ended,
            guard,
            leader: None,
            claim: None,
            orders,
            progress,
            terminal,
            continued,
            order,
            relays_asked: 0,
            unsent: false,
            deaf: false,
            kill_since: None,
            report: None,
            guard_killed: false,
            stopping: false,
            had_foreground: false,
        })
    }

    /// Tells the guard to start CMD.
    pub(super) fn start(
        &self,
        start: &GuardStart,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        post_with(self.socket.as_fd(), start, descriptors)?;
        // It waited for long, and somebody may have stopped it meanwhile.
        let _ = kill_process(self.guard.pid(), Signal::CONT);
        Ok(())
    }

    /// Keeps the guard until CMD and all its descendants are gone.
    pub(super) async fn keep(mut self, mut timer: BootTimer) {
        let mut handles = true;
        loop {
            // A refused instant fires at once, and is looked at then.
            let _ = timer.arm(self.guard_due());
            tokio::select! {
                biased;
                _ = timer.fired() => self.kill_guard_if_late(),
                _ = self.socket.readable(), if !self.deaf => self.hear(),
                () = continued(&mut self.continued) => self.resume(),
                () = tokio::time::sleep(STOP_TAKES_MAX), if self.stopping => self.resume(),
                _ = self.ended.readable() => break,
                changed = self.orders.changed(), if handles => {
                    handles = changed.is_ok();
                    self.obey(handles);
                }
                _ = self.socket.writable(), if self.unsent => self.send(),
            }
        }
        self.hear();
        // Its process id is its own until it has been waited for here.
        let guard = WaitId::Pid(self.guard.pid());
        let _ = waitid(guard, WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        if !self.is_gone() {
            let (end, by_us) = self.end_what_is_left().await;
            if let Some(claim) = self.claim.take() {
                // Else the next daemon looks for it, and does not find it.
                let _ = claim.write(Child::Gone);
            }
            self.gone(end, by_us, true);
        }
    }

    /// Nothing of CMD is left.
    fn gone(&self, end: End, by_us: bool, guard_lost: bool) {
        let key = matches!(end, End::Signalled(SIGINT | SIGQUIT));
        let ended = Ended {
            end,
            by_us,
            interrupted: key && self.had_foreground && !by_us,
            guard_lost,
        };
        if let Some(terminal) = &self.terminal {
            terminal.take_back();
        }
        self.progress.send_replace(Progress::Gone(ended));
    }

    fn is_gone(&self) -> bool {
        (self.report).is_some_and(|report| report.stage == Stage::Gone)
    }

    /// Takes the newest order; without a handle nobody wants CMD any more.
    fn obey(&mut self, handles: bool) {
        let newest = *self.orders.borrow_and_update();
        self.order.order = newest.order;
        self.order.order.kill |= !handles;
        if newest.relays != self.relays_asked {
            self.relays_asked = newest.relays;
            self.order.relay = newest.relay;
            self.order.relays = self.order.relays.wrapping_add(1);
        }
        if self.order.order.kill && self.kill_since.is_none() {
            self.kill_since = Some(leasehold_clock::boot_now());
        }
        self.unsent = true;
        self.send();
    }

    /// Sends the newest order, if there is room. It never waits: an order that
    /// finds none is replaced by the next one.
    fn send(&mut self) {
        let (socket, order) = (&self.socket, &self.order);
        let sent = socket.try_io(tokio::io::Interest::WRITABLE, || {
            match post(socket.as_fd(), order)? {
                true => Ok(()),
                false => Err(io::ErrorKind::WouldBlock.into()),
            }
        });
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Sent, or the guard is gone, which its descriptor tells.
            Ok(()) | Err(_) => self.unsent = false,
        }
    }

    fn hear(&mut self) {
        loop {
            let socket = &self.socket;
            let heard = socket.try_io(tokio::io::Interest::READABLE, || {
                match take::<Report>(socket.as_fd()) {
                    Received::Nothing => Err(io::ErrorKind::WouldBlock.into()),
                    Received::Closed => Ok(None),
                    Received::Record(report) => Ok(Some(report)),
                }
            });
            match heard {
                Ok(Some(report)) => self.learn(report),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Ok(None) | Err(_) => {
                    self.deaf = true;
                    return;
                }
            }
        }
    }

    fn learn(&mut self, report: Report) {
        let stopped_before = self.report.map_or(0, |report| report.stopped);
        let stage_before = self.report.map(|report| report.stage);
        self.report = Some(report);
        if self.leader.is_none() {
            // Should the guard be killed, it is ours to be waited for.
            self.leader = Pid::from_raw(report.leader).map(WaitedFor::new);
        }
        // The leader's end and everybody's may come in one report.
        if stage_before < Some(Stage::LeaderEnded) && report.stage >= Stage::LeaderEnded {
            self.had_foreground = self.has_foreground();
        }
        if stage_before != Some(report.stage) {
            match report.stage {
                Stage::Starting => {}
                Stage::Running => {
                    let pid = report.leader.unsigned_abs();
                    self.progress.send_replace(Progress::Running { pid });
                }
                Stage::LeaderEnded => {
                    self.progress.send_replace(Progress::Ending {
                        end: end_of(report.end),
                        by_us: report.by_us,
                    });
                }
                // It has let the claim lock go before it said so.
                Stage::Gone => {
                    self.claim = None;
                    self.gone(end_of(report.end), report.by_us, false);
                }
            }
        }
        if report.stopped != 0 && report.stopped != stopped_before {
            self.stop_with_cmd(report.stopped);
        }
    }

    fn has_foreground(&self) -> bool {
        let foreground = self.terminal.as_ref().and_then(Terminal::foreground);
        foreground.is_some() && foreground == self.leader.as_ref().map(WaitedFor::pid)
    }

    /// CMD was stopped by a key of the terminal, or for its use of it from the
    /// background. To the shell CMD and we are one job, so we stop too. The
    /// guard does not, and the deadline comes for a stopped CMD as for any other.
    fn stop_with_cmd(&mut self, signal: i32) {
        let Some(terminal) = &self.terminal else {
            return;
        };
        if ![SIGTSTP, SIGTTIN, SIGTTOU].contains(&signal) {
            return;
        }
        match Signal::from_named_raw(signal) {
            // Another thread may take the signal, so this one runs on for a
            // moment; CMD goes on when we are told that we do.
            Some(signal) if !terminal.is_ours() => {
                let _ = kill_current_process_group(signal);
                self.stopping = true;
            }
            Some(_) | None => self.resume(),
        }
    }

    /// Lets a stopped CMD go on: in the foreground if that is ours to give,
    /// and in the background if it was not stopped for wanting the foreground.
    fn resume(&mut self) {
        self.stopping = false;
        let (Some(terminal), Some(leader), Some(report)) =
            (&self.terminal, &self.leader, self.report)
        else {
            return;
        };
        if report.stopped == 0 {
            return;
        }
        let ours = terminal.is_ours();
        if ours {
            terminal.give(leader.pid());
        }
        if ours || report.stopped == SIGTSTP {
            self.order.relay = SIGCONT;
            self.order.relays = self.order.relays.wrapping_add(1);
            self.unsent = true;
            self.send();
        }
    }

    /// When the guard must have killed CMD, and to have said so.
    fn guard_due(&self) -> Option<BootTime> {
        let killed = self.report.is_some_and(|report| report.killed);
        if killed || self.is_gone() || self.guard_killed {
            return None;
        }
        let Order { terms, stop, .. } = self.order.order;
        let stop = stop.map(|stop| stop.kill_at);
        let due = [stop, self.kill_since].into_iter().flatten();
        Some(due.fold(terms.kill_at, BootTime::min) + GUARD_LATE_MAX)
    }

    fn kill_guard_if_late(&mut self) {
        // A daemon that was frozen has not read yet what its guard did in time.
        self.hear();
        if (self.guard_due()).is_some_and(|due| leasehold_clock::boot_now() >= due) {
            // With it goes CMD's leader (PDEATHSIG); the rest is ours then.
            let _ = kill_process(self.guard.pid(), Signal::KILL);
            self.guard_killed = true;
        }
    }

    /// Kills what the guard left behind, round by round, the leader last: its
    /// process group is its own until we have waited for it.
    async fn end_what_is_left(&mut self) -> (End, bool) {
        let told = self.report.map(|report| (end_of(report.end), report.by_us));
        let told = told.filter(|(end, _)| *end != End::Unknown);
        let (mut end, by_us) = told.unwrap_or((End::Unknown, true));
        self.progress.send_replace(Progress::Ending { end, by_us });
        let leader = self.leader.as_ref().map(WaitedFor::pid);
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        loop {
            // Its id is its own only as long as it is our child.
            let look = |pid| waitid(WaitId::Pid(pid), ended | WaitIdOptions::NOWAIT);
            let leader_state = leader.map(look);
            if let (Some(leader), Some(Ok(_))) = (leader, &leader_state) {
                let _ = kill_process_group(leader, Signal::KILL);
            }
            let mut alive = u32::from(matches!(leader_state, Some(Ok(None))));
            let looked = each_adopted(self.terminal.is_some(), |child| {
                let _ = kill_process(child, Signal::KILL);
                let gone = !matches!(waitid(WaitId::Pid(child), ended), Ok(None));
                alive += u32::from(!gone);
            });
            if alive == 0 && looked.is_ok() {
                break;
            }
            tokio::time::sleep(KILL_ROUND).await;
        }
        if let Some(leader) = leader
            && let Ok(Some(status)) = waitid(WaitId::Pid(leader), ended)
            && end == End::Unknown
        {
            end = end_of(LeaderEnd::of(&status));
        }
        (end, by_us)
    }
}

/// Waits until this process goes on after a stop; for ever without a terminal.
async fn continued(continued: &mut Option<Continued>) {
    match continued {
        Some(continued) => continued.next().await,
        None => std::future::pending().await,
    }
}

fn end_of(end: LeaderEnd) -> End {
    match end {
        LeaderEnd::Unknown => End::Unknown,
        // An exit code has eight bits.
        LeaderEnd::Exited(code) => End::Exited(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
        LeaderEnd::Signalled(signal) => End::Signalled(signal),
        LeaderEnd::NotExecuted(errno) => End::NotExecuted(errno),
        LeaderEnd::NotSpawned(errno) => End::NotSpawned(errno),
        LeaderEnd::Refused => End::Refused,
    }
}
