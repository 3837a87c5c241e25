//! The inherited dispositions of signals: nohup(1) ignores HUP for its command, and a script
//! ignores INT and QUIT for its background jobs. A handler would undo this, because exec resets
//! handled signals to the default. SIGPIPE cannot be examined, because the standard library ignores
//! it before `main`.

use std::fs::read_to_string;

use nix::libc::{
    SIGALRM, SIGIO, SIGPROF, SIGPWR, SIGRTMAX, SIGRTMIN, SIGSTKFLT, SIGVTALRM, SIGXCPU,
};
use nix::sys::signal::{SigSet, Signal};

/// Unblocks all signals in this thread, and in threads and processes that it starts later.
pub fn unblock_all() {
    // This call fails only for an invalid set.
    let _ = SigSet::empty().thread_set_mask();
}

/// Makes background reads of the terminal in this thread fail instead of stopping the process.
pub fn read_without_stopping() {
    // This call fails only for an invalid set.
    let _ = SigSet::from(Signal::SIGTTIN).thread_block();
}

/// Returns the signals that end a process by default, except faults and the signals that terminals
/// and users send (INT, QUIT, HUP, TERM, USR1, USR2).
pub fn ending() -> impl Iterator<Item = i32> {
    let named = [
        SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGXCPU, SIGPWR, SIGSTKFLT,
    ];
    named.into_iter().chain(SIGRTMIN()..=SIGRTMAX())
}

/// Returns the name of a signal in the spelling of kill(1).
pub fn signal_name(number: i32) -> String {
    match Signal::try_from(number) {
        Ok(signal) => signal.as_str().to_owned(),
        Err(_) if number >= SIGRTMIN() => format!("SIGRTMIN+{}", number - SIGRTMIN()),
        // The C library reserves signals 32 and 33 for its threads.
        Err(_) => format!("signal {number}"),
    }
}

/// Calls `access` with SIGTTOU blocked in this thread. The signal would stop a background process
/// that changes the terminal's foreground group, or that writes to a terminal with `stty tostop`.
pub fn without_background_stop<T>(access: impl FnOnce() -> T) -> T {
    let terminal_output = SigSet::from(Signal::SIGTTOU);
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
        (1..=64).contains(&signal) && (self.0 >> (signal - 1)) & 1 == 1
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
        assert_eq!(signal_name(SIGRTMIN() - 2), "signal 32");
    }

    #[test]
    fn the_mask_counts_from_the_lowest_bit() {
        let ignored = Ignored::parse("Name:\tx\nSigIgn:\t0000000000001003\n").unwrap();
        let signals: Vec<_> = (0..=65).filter(|n| ignored.contains(*n)).collect();
        assert_eq!(signals, [1, 2, 13]);
        assert_eq!(Ignored::parse("Name:\tx\n"), None);
    }
}
