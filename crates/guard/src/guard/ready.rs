//! Prepares a guard that does not know its command yet. Loads into memory the code that will end
//! CMD, and registers the event sources.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{
    Signal, WaitId, WaitIdOptions, getpid, set_child_subreaper, test_kill_process, waitid,
};
use signal_hook::consts::{
    SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2,
    SIGWINCH, SIGXFSZ,
};

use crate::children::Children;
use crate::dispositions::{Ignored, ending};
use crate::groups::group_of;
use crate::wire::ToGuard;
use leasehold_clock::Alarm;
use leasehold_core::deadline_policy::{
    DeadlinePolicy, DesiredState, PolicyInput, PolicyOptions, Stop, Terms,
};

/// Signals that a guard survives, in addition to the signals of [`ending`].
const OUTLIVED: [i32; 10] = [
    SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2, SIGXFSZ,
];

/// Signals that ask a container to stop.
const STOPS: [i32; 3] = [SIGTERM, SIGINT, SIGQUIT];

/// Signals that an attached guard relays to CMD, which would be process 1 without the guard.
const RELAYED: [i32; 4] = [SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH];

/// Gives every signal that would end or stop this process a handler that does nothing. CMD inherits
/// ignored signals, but not handlers.
pub(in crate::guard) fn outlive_signals(ignored: Ignored) -> io::Result<()> {
    let outlived = Arc::new(AtomicBool::new(false));
    for signal in OUTLIVED.into_iter().chain(ending()) {
        if !ignored.contains(signal) {
            signal_hook::flag::register(signal, Arc::clone(&outlived))?;
        }
    }
    Ok(())
}

pub(crate) struct Ready {
    pub(crate) child_ended: UnixStream,
    pub(crate) alarm: Alarm,
    pub(crate) children: Children,
    /// Signals to the container of an attached guard.
    pub(crate) signals: Option<ContainerSignals>,
}

impl Ready {
    pub(crate) fn new(signals: Option<ContainerSignals>) -> io::Result<Box<Self>> {
        set_child_subreaper(Some(getpid()))?;
        let (child_ended, handler) = UnixStream::pair()?;
        child_ended.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGCHLD, handler)?;
        let alarm = Alarm::new()?;
        let mut children = Children::new();
        // Locks the used pages in memory if `ulimit -l` permits, in case a disk hangs.
        rehearse(&mut children, &alarm);
        let _ = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT);
        Ok(Box::new(Self {
            child_ended,
            alarm,
            children,
            signals,
        }))
    }
}

/// Signals that arrived at process 1 of a container.
pub(crate) struct ContainerSignals {
    arrived: UnixStream,
    flags: [(i32, Arc<AtomicBool>); STOPS.len() + RELAYED.len()],
}

impl ContainerSignals {
    /// Ignored signals stay ignored.
    pub(crate) fn register(ignored: Ignored) -> io::Result<Self> {
        outlive_signals(ignored)?;
        let (arrived, handler) = UnixStream::pair()?;
        arrived.set_nonblocking(true)?;
        let numbers = [SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH];
        let flags = numbers.map(|signal| (signal, Arc::new(AtomicBool::new(false))));
        for (signal, flag) in &flags {
            if !ignored.contains(*signal) {
                signal_hook::flag::register(*signal, Arc::clone(flag))?;
                signal_hook::low_level::pipe::register(*signal, handler.try_clone()?)?;
            }
        }
        Ok(Self { arrived, flags })
    }

    /// Returns a signal that asks the container to stop, if one has arrived, and the signals to
    /// relay.
    pub(crate) fn take(&mut self) -> (Option<i32>, impl Iterator<Item = i32> + use<>) {
        let _ = self.arrived.read(&mut [0; 64]);
        let mut arrived = [None; STOPS.len() + RELAYED.len()];
        for (place, (signal, flag)) in arrived.iter_mut().zip(&self.flags) {
            *place = flag.swap(false, Ordering::Relaxed).then_some(*signal);
        }
        let mut arrived = arrived.into_iter().flatten();
        let others = arrived.clone().filter(|signal| !STOPS.contains(signal));
        (arrived.find(|signal| STOPS.contains(signal)), others)
    }
}

impl AsFd for ContainerSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrived.as_fd()
    }
}

/// Runs the code that ends CMD, without sending a signal, so that the code's pages are in memory.
fn rehearse(children: &mut Children, alarm: &Alarm) {
    let now = leasehold_clock::boot_now();
    let terms = Terms::without_grace(now);
    let mut policy = DeadlinePolicy::new(PolicyOptions::new(terms, Signal::TERM.as_raw()));
    policy.handle(now, PolicyInput::Closed);
    policy.handle(now, PolicyInput::Time);
    let _ = (policy.next_action(), policy.next_wakeup());
    let stop = Stop {
        signal: Signal::TERM.as_raw(),
        kill_at: now,
    };
    crate::wire::rehearse(&ToGuard {
        desired: DesiredState::run(terms).stopped(stop).killed(),
        ..ToGuard::new(terms)
    });
    let _ = alarm.arm(None);
    let _ = children.each(|child| {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let _ = (waitid(WaitId::Pid(child), look), group_of(child));
        // The null signal only checks that the child exists.
        let _ = test_kill_process(child);
    });
}
