//! The guard client in the daemon: sends the newest order to the guard, receives the guard's
//! reports, and ends CMD if the guard does not.
//!
//! ```text
//!  daemon ──orders──▶ guard ──fork──▶ shim ──exec──▶ CMD ──▶ its descendants
//!         ◀─reports──  (this binary)  (this binary)   a process group of its own
//! ```
//!
//! **Failures.**
//!
//! - Daemon killed, frozen, or out of memory: the guard sends the stop signal when the authority
//!   ends (immediately if the daemon is gone), and SIGKILL at the kill time of the newest order.
//! - Guard killed: the kernel ends CMD's leader, and the daemon ends the other processes.
//! - Guard frozen: the daemon kills the guard 100 ms after the kill time, and then CMD's processes.
//! - Guard and daemon both killed: the kernel ends CMD's leader, but its descendants survive.
//! - An attached guard (process 1 of another container) killed: the kernel ends all processes of
//!   the container before the guard's pidfd becomes readable.
//! - Connection to an attached guard lost: the guard ends CMD as if the daemon had exited. The
//!   daemon waits until the guard connects again and reports CMD as gone, or until the guard's
//!   pidfd becomes readable.
//!
//! Processes in a frozen cgroup or in uninterruptible sleep survive in all these cases. A command
//! also survives if it changed its user or gained privileges (setuid, setpriv) and thus lost its
//! parent-death signal. If a command may survive, the next daemon that uses the status directory
//! waits for the lease to expire, as candidates elsewhere do. Then only the fencing token protects
//! against the surviving command. A command with more privileges than the daemon cannot be
//! signalled.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram as StdUnixDatagram;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_current_process_group, kill_process,
    kill_process_group, waitid,
};
use signal_hook::consts::{SIGCONT, SIGINT, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixDatagram;
use tokio::sync::watch;

use super::children::reap;
use super::claim_share::{Child, ClaimShare};
use super::orphans::{WaitedFor, each_adopted};
use super::process::GuardProcess;
use super::signal_pipe::SignalPipe;
use super::socket::GuardSocket;
use super::terminal::Terminal;
use super::wire::{
    CommandStage, GuardReport, GuardStart, Received, ToGuard, post, post_with, take,
};
use super::{CommandEnd, CommandProgress, StandbyGuard, Termination};
use leasehold_clock::BootTimer;
use leasehold_core::election::BootTime;

/// Delay after the kill time of the newest order before the client kills the guard and CMD. Must be
/// shorter than the 500 ms margin of the timings.
const GUARD_LATE_MAX: Duration = Duration::from_millis(100);

/// Interval between searches for adopted children. The client has to search, because the kernel
/// does not report their exits.
const KILL_ROUND: Duration = Duration::from_millis(5);

/// If this process still runs this long after stopping itself, the stop signal had no effect.
const STOP_TAKES_MAX: Duration = Duration::from_millis(100);

pub(super) struct GuardClient {
    socket: UnixDatagram,
    guard: AsyncFd<GuardProcess>,
    leader: Option<WaitedFor>,
    /// Records the end of CMD if the guard cannot, and reserves the place while the guard runs.
    pub(super) claim: Option<ClaimShare>,
    orders: watch::Receiver<ToGuard>,
    progress: watch::Sender<CommandProgress>,
    terminal: Option<Terminal>,
    continued: Option<SignalPipe>,
    wanted: ToGuard,
    relays_asked: u32,
    unsent: bool,
    closed: bool,
    /// The socket that an attached guard connects to.
    socket_of_guard: Option<Arc<GuardSocket>>,
    session: BootTime,
    kill_since: Option<BootTime>,
    report: GuardReport,
    guard_killed: bool,
    /// True after this process stopped its own process group, until CMD is resumed.
    stopping: bool,
    had_foreground: bool,
}

impl GuardClient {
    /// Must be called inside a tokio runtime.
    pub(super) fn new(
        prepared: StandbyGuard,
        orders: watch::Receiver<ToGuard>,
        progress: watch::Sender<CommandProgress>,
    ) -> io::Result<Self> {
        // `AsyncFd::with_interest` is deprecated because some types may change their descriptor. A
        // `GuardProcess` always keeps its descriptor. The replacement is unsafe.
        #[allow(deprecated)]
        let guard = AsyncFd::with_interest(prepared.guard, Interest::READABLE)?;
        let listen = |_| SignalPipe::listen(SIGCONT);
        let continued = prepared.terminal.as_ref().map(listen).transpose()?;
        let wanted = *orders.borrow();
        Ok(Self {
            // tokio has no type for SOCK_SEQPACKET, and a datagram socket preserves record
            // boundaries too.
            socket: UnixDatagram::from_std(StdUnixDatagram::from(prepared.socket))?,
            guard,
            leader: None,
            claim: None,
            orders,
            progress,
            terminal: prepared.terminal,
            continued,
            wanted,
            relays_asked: 0,
            unsent: false,
            closed: false,
            socket_of_guard: prepared.socket_of_guard,
            session: BootTime::default(),
            kill_since: None,
            report: GuardReport::default(),
            guard_killed: false,
            stopping: false,
            had_foreground: false,
        })
    }

    pub(super) fn start(
        &mut self,
        start: &GuardStart,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        self.session = start.session;
        post_with(self.socket.as_fd(), start, descriptors)?;
        // The guard may have been stopped while it waited.
        self.guard().signal(Signal::CONT);
        Ok(())
    }

    fn guard(&self) -> &GuardProcess {
        self.guard.get_ref()
    }

    pub(super) async fn keep(mut self, mut timer: BootTimer) {
        let mut handles = true;
        let (mut lost, socket) = (false, self.socket_of_guard.take());
        loop {
            if self.closed && self.guard().is_attached() {
                if self.is_gone() {
                    // The guard has recorded the end, and waits for another command.
                    return;
                }
                if !std::mem::replace(&mut lost, true) {
                    self.report_lost_connection();
                }
            }
            // The kernel accepts every `BootTime`; an instant in the past fires immediately.
            let _ = timer.arm(self.guard_due());
            tokio::select! {
                biased;
                _ = timer.fired() => self.kill_guard_if_late(),
                _ = self.socket.readable(), if !self.closed => self.receive_reports(),
                () = continued(&mut self.continued) => self.resume(),
                () = tokio::time::sleep(STOP_TAKES_MAX), if self.stopping => self.resume(),
                _ = self.guard.readable() => break,
                () = Self::ended_before_reconnection(socket.as_deref(), self.session), if lost => break,
                changed = self.orders.changed(), if handles => {
                    handles = changed.is_ok();
                    self.apply_newest(handles);
                }
                _ = self.socket.writable(), if self.unsent => self.send(),
            }
        }
        self.receive_reports();
        // The guard's process id is not reused until the guard is reaped here.
        self.guard().reap();
        if self.is_gone() {
            if !self.guard().is_attached() {
                return;
            }
        } else {
            let (end, by_us) = match self.guard().is_attached() {
                true => (self.report.end, self.report.by_us),
                false => self.end_what_is_left().await,
            };
            self.gone(Termination {
                guard_lost: true,
                ..self.ended(end, by_us)
            });
        }
        if let Some(claim) = self.claim.take() {
            record_end(claim);
        }
    }

    /// Waits until the guard connects again and reports this command as gone. Closes the connection
    /// of any other guard, which then connects again.
    async fn ended_before_reconnection(socket: Option<&GuardSocket>, session: BootTime) {
        let Some(socket) = socket else {
            return std::future::pending().await;
        };
        while !matches!(socket.connected().await, Ok(guard) if guard.ended == Some(session)) {}
    }

    /// Reports that CMD is ending. A closed connection does not prove that CMD is gone.
    fn report_lost_connection(&self) {
        self.progress.send_replace(CommandProgress::Ending {
            end: self.report.end,
            by_us: self.report.by_us,
            lingers: false,
        });
    }

    fn ended(&self, end: CommandEnd, by_us: bool) -> Termination {
        let key = matches!(end, CommandEnd::Signalled(SIGINT | SIGQUIT));
        Termination {
            end,
            by_us,
            interrupted: key && self.had_foreground && !by_us,
            lingered: false,
            guard_lost: false,
        }
    }

    fn gone(&self, ended: Termination) {
        if let Some(terminal) = &self.terminal {
            terminal.take_back();
        }
        self.progress.send_replace(CommandProgress::Gone(ended));
    }

    fn is_gone(&self) -> bool {
        self.report.stage == CommandStage::Gone
    }

    /// Sends the newest desired state. CMD is killed once all handles are dropped.
    fn apply_newest(&mut self, handles: bool) {
        let newest = *self.orders.borrow_and_update();
        self.wanted.desired = newest.desired;
        self.wanted.desired.kill |= !handles;
        if newest.relays != self.relays_asked {
            self.relays_asked = newest.relays;
            self.relay(newest.relay);
        }
        if self.wanted.desired.kill && self.kill_since.is_none() {
            self.kill_since = Some(leasehold_clock::boot_now());
        }
        self.unsent = true;
        self.send();
    }

    fn relay(&mut self, signal: i32) {
        self.wanted.relay = signal;
        self.wanted.relays = self.wanted.relays.wrapping_add(1);
    }

    /// If the socket is full, the newest record is sent once the socket is writable again.
    fn send(&mut self) {
        let (socket, wanted) = (&self.socket, &self.wanted);
        let sent = socket.try_io(tokio::io::Interest::WRITABLE, || {
            match post(socket.as_fd(), wanted)? {
                true => Ok(()),
                false => Err(io::ErrorKind::WouldBlock.into()),
            }
        });
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The record was sent, or the guard has exited, which the pidfd reports.
            Ok(()) | Err(_) => self.unsent = false,
        }
    }

    fn receive_reports(&mut self) {
        loop {
            let socket = &self.socket;
            let received = socket.try_io(tokio::io::Interest::READABLE, || {
                match take::<GuardReport>(socket.as_fd()) {
                    Received::Nothing => Err(io::ErrorKind::WouldBlock.into()),
                    Received::Closed => Ok(None),
                    Received::Record(report) => Ok(Some(report)),
                }
            });
            match received {
                Ok(Some(report)) => self.handle_report(report),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Ok(None) | Err(_) => {
                    self.closed = true;
                    return;
                }
            }
        }
    }

    fn handle_report(&mut self, report: GuardReport) {
        let before = std::mem::replace(&mut self.report, report);
        if self.leader.is_none() {
            // If the guard is killed, this process has to reap the leader.
            self.leader = Pid::from_raw(report.leader).map(WaitedFor::new);
        }
        // One report may announce both the leader's exit and the exits of all descendants.
        if before.stage < CommandStage::LeaderEnded && report.stage >= CommandStage::LeaderEnded {
            self.had_foreground = self.has_foreground();
        }
        if before.stage != report.stage || before.lingers != report.lingers {
            match report.stage {
                CommandStage::Starting => {}
                CommandStage::Running => {
                    let pid = report.leader.unsigned_abs();
                    self.progress.send_replace(CommandProgress::Running { pid });
                }
                CommandStage::LeaderEnded => {
                    self.progress.send_replace(CommandProgress::Ending {
                        end: report.end,
                        by_us: report.by_us,
                        lingers: report.lingers,
                    });
                }
                CommandStage::Gone => {
                    // If the supervisor is gone, the daemon exits without a release, so the guard
                    // must still become the witness.
                    self.wanted.dismissed = self.orders.has_changed().is_ok();
                    self.unsent = true;
                    self.send();
                    self.gone(Termination {
                        lingered: report.lingers,
                        ..self.ended(report.end, report.by_us)
                    });
                }
            }
        }
        if report.stopped != 0 && report.stopped != before.stopped {
            self.stop_with_cmd(report.stopped);
        }
    }

    fn has_foreground(&self) -> bool {
        let foreground = self.terminal.as_ref().and_then(Terminal::foreground);
        foreground.is_some() && foreground == self.leader.as_ref().map(WaitedFor::pid)
    }

    /// Stops this process after CMD was stopped by Ctrl-Z or by an access to the terminal, because
    /// the shell treats both processes as one job. The guard keeps enforcing the deadline.
    fn stop_with_cmd(&mut self, signal: i32) {
        let Some(terminal) = &self.terminal else {
            return;
        };
        if ![SIGTSTP, SIGTTIN, SIGTTOU].contains(&signal) {
            return;
        }
        match Signal::from_named_raw(signal) {
            // If another thread receives the signal, this thread continues for a short time.
            Some(signal) if !terminal.is_ours() => {
                let _ = kill_current_process_group(signal);
                self.stopping = true;
            }
            Some(_) | None => self.resume(),
        }
    }

    /// Resumes CMD, unless CMD is in the background and was stopped for using the terminal.
    fn resume(&mut self) {
        self.stopping = false;
        let (Some(terminal), Some(leader)) = (&self.terminal, &self.leader) else {
            return;
        };
        let stopped = self.report.stopped;
        if stopped == 0 {
            return;
        }
        let ours = terminal.is_ours();
        if ours {
            terminal.give(leader.pid());
        }
        if ours || stopped == SIGTSTP {
            self.relay(SIGCONT);
            self.unsent = true;
            self.send();
        }
    }

    fn guard_due(&self) -> Option<BootTime> {
        let attached = self.guard().is_attached();
        if self.report.killed || self.is_gone() || self.guard_killed || attached {
            return None;
        }
        let kill_at = self.wanted.desired.kill_at();
        let due = self.kill_since.map_or(kill_at, |at| at.min(kill_at));
        Some(due + GUARD_LATE_MAX)
    }

    fn kill_guard_if_late(&mut self) {
        // Reads the time before the reports. In the reverse order, a freeze between the two reads
        // could make a guard seem late although its timely report had already arrived.
        let now = leasehold_clock::boot_now();
        self.receive_reports();
        if (self.guard_due()).is_some_and(|due| now >= due) {
            // The guard's death kills CMD's leader (PDEATHSIG); the rest is killed after the loop.
            self.guard().signal(Signal::KILL);
            self.guard_killed = true;
        }
    }

    /// Kills the remaining processes in rounds. Reaps the leader last, to keep its id reserved.
    async fn end_what_is_left(&mut self) -> (CommandEnd, bool) {
        let mut end = self.report.end;
        let by_us = self.report.by_us || end == CommandEnd::Unknown;
        self.progress.send_replace(CommandProgress::Ending {
            end,
            by_us,
            lingers: false,
        });
        let leader = self.leader.as_ref().map(WaitedFor::pid);
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        loop {
            // The leader's id is reserved only while the leader is a child of this process.
            let look = |pid| waitid(WaitId::Pid(pid), ended | WaitIdOptions::NOWAIT);
            let leader_state = leader.map(look);
            if let (Some(leader), Some(Ok(_))) = (leader, &leader_state) {
                let _ = kill_process_group(leader, Signal::KILL);
            }
            let mut alive = u32::from(matches!(leader_state, Some(Ok(None))));
            let looked = each_adopted(self.terminal.is_some(), |child| {
                let _ = kill_process(child, Signal::KILL);
                alive += u32::from(!reap(child));
            });
            if alive == 0 && looked.is_ok() {
                break;
            }
            tokio::time::sleep(KILL_ROUND).await;
        }
        if let Some(leader) = leader
            && let Ok(Some(status)) = waitid(WaitId::Pid(leader), ended)
            && end == CommandEnd::Unknown
        {
            end = CommandEnd::of(&status);
        }
        (end, by_us)
    }
}

/// Waits for SIGCONT, or indefinitely if this process has no terminal.
async fn continued(continued: &mut Option<SignalPipe>) {
    match continued {
        // This call fails only if the event loop is gone.
        Some(continued) => drop(continued.arrived().await),
        None => std::future::pending().await,
    }
}

/// Records that CMD is gone. A thread writes the record, because the disk may hang.
fn record_end(claim: ClaimShare) {
    let write = move || {
        let _ = claim.write(Child::Gone);
    };
    // A failure is harmless: the next daemon searches for the process, and finds that it is gone.
    let _ = std::thread::Builder::new()
        .name("claim-record".to_owned())
        .spawn(write);
}
