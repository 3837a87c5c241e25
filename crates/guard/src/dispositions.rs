//! Signals that this process ignores since its start.
//!
//! nohup(1) ignores HUP, and a script ignores INT and QUIT for its background jobs, on behalf of
//! everything that they start. A handler would undo this: after an exec, a signal with a handler
//! has its default effect again. SIGPIPE cannot be seen here, because the standard library ignores
//! it before `main`.

use std::fs::read_to_string;

use nix::libc::{
    SIGALRM, SIGIO, SIGPROF, SIGPWR, SIGRTMAX, SIGRTMIN, SIGSTKFLT, SIGVTALRM, SIGXCPU,
};
use nix::sys::signal::{SigSet, Signal};

/// Unblocks all signals in this thread and in the threads and processes that it starts later. A
/// process that was started with a signal blocked could not be stopped by it.
pub fn unblock_all() {
    // Fails for no valid set.
    let _ = SigSet::empty().thread_set_mask();
}

/// Blocks SIGTTIN in this thread. A read of the terminal in the background then fails, and does not
/// stop the process.
pub fn read_without_stopping() {
    let mut terminal_input = SigSet::empty();
    terminal_input.add(Signal::SIGTTIN);
    // Fails for no valid set.
    let _ = terminal_input.thread_block();
}

/// Returns the signals of timers, limits, IO and the power supply, and the real-time signals: all
/// signals that end a process by default, except faults and signals from terminals and users (INT,
/// QUIT, HUP, TERM, USR1, USR2).
pub fn ending() -> impl Iterator<Item = i32> {
    let named = [
        SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGXCPU, SIGPWR, SIGSTKFLT,
    ];
    named.into_iter().chain(SIGRTMIN()..=SIGRTMAX())
}

/// Returns the name of a signal, as kill(1) accepts it.
pub fn signal_name(number: i32) -> String {
    match Signal::try_from(number) {
        Ok(signal) => signal.as_str().to_owned(),
        Err(_) => format!("SIGRTMIN+{}", number - SIGRTMIN()),
    }
}

/// Calls `access` with SIGTTOU blocked in this thread. A process in the background that changes the
/// foreground group of its terminal, or writes to it with `stty tostop`, would otherwise be stopped.
pub fn without_background_stop<T>(access: impl FnOnce() -> T) -> T {
    let mut terminal_output = SigSet::empty();
    terminal_output.add(Signal::SIGTTOU);
    let blocked = terminal_output.thread_block();
    let result = access();
    if blocked.is_ok() {
        let _ = terminal_output.thread_unblock();
    }
    result
}

/// The set of ignored signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ignored(u64);

impl Ignored {
    /// Returns the signals that this process ignores; none without /proc.
    pub fn of_this_process() -> Self {
        let status = read_to_string("/proc/self/status").unwrap_or_default();
        Self::parse(&status).unwrap_or_default()
    }

    /// Returns true if the signal is ignored.
    pub fn contains(self, signal: i32) -> bool {
        let bit = u32::try_from(signal).ok().and_then(|n| n.checked_sub(1));
        bit.and_then(|bit| self.0.checked_shr(bit))
            .is_some_and(|rest| rest & 1 == 1)
    }

    fn parse(status: &str) -> Option<Self> {
        let mask = (status.lines()).find_map(|line| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(mask.trim(), 16).ok().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ending_signal_has_a_name() {
        let names: Vec<_> = ending().map(signal_name).collect();
        for name in ["SIGALRM", "SIGPWR", "SIGRTMIN+0", "SIGRTMIN+3"] {
            assert!(names.iter().any(|known| known == name), "{names:?}");
        }
    }

    #[test]
    fn the_mask_counts_from_the_lowest_bit() {
        let ignored = Ignored::parse("Name:\tx\nSigIgn:\t0000000000001003\n").unwrap();
        let signals: Vec<_> = (0..=65).filter(|n| ignored.contains(*n)).collect();
        assert_eq!(signals, [1, 2, 13]);
        assert_eq!(Ignored::parse("Name:\tx\n"), None);
    }
}
