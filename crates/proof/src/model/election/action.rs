//! The actions: everything that can happen between two states.
//!
//! A call is identified by `(candidate, number)`.

/// One step. Each step marked as a fault counts against the run's fault budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// Time advances by a tick. Possible only once no prompt action remains.
    Tick,
    /// The candidate's timer fires.
    Wake(usize),
    /// The call lands, a majority receives it, and its answer returns, all in this tick.
    Serve(usize, u64),
    /// Fault: the call is delayed for any time, possibly indefinitely.
    Delay(usize, u64),
    /// Fault: the call lands now, and its answer is delayed for any time.
    DelayAnswer(usize, u64),
    /// Fault: the call lands now, and possibly once more later.
    Duplicate(usize, u64),
    /// Fault: the primary has the write, but a majority does not.
    Lag(usize, u64),
    /// Fault: a deposed primary answers the read.
    ReadStale(usize, u64),
    /// Fault: the call is provably never sent.
    Refuse(usize, u64),
    /// A delayed call lands. The answer, if any, returns some time later.
    Land(usize, u64),
    /// A delayed answer returns, before or after the candidate gave up the call.
    Answer(usize, u64),
    /// The call times out, so its outcome is unknown to the candidate.
    GiveUp(usize, u64),
    /// A majority receives the writes that only the primary had.
    Commit,
    /// The primary fails over. Writes that had not reached a majority are rolled back.
    RollBack,
    /// The next event of the change stream arrives, in order.
    Event(usize),
    /// Fault: the event is delayed for any time.
    DelayEvent(usize),
    /// A delayed event arrives, possibly after later events.
    LateEvent(usize),
    /// Fault: the process crashes.
    Crash(usize),
    /// A new process starts.
    Restart {
        /// Index of the candidate.
        candidate: usize,
        /// True if the status directory survives.
        remembers: bool,
    },
    /// Fault: the process is paused for any time.
    Freeze(usize),
    /// The process runs again.
    Thaw(usize),
    /// The candidate is asked to step down.
    StepDown(usize),
    /// The process is asked to exit.
    Shutdown(usize),
    /// An operator pauses the lease.
    Pause,
    /// An operator resumes the lease.
    Resume,
    /// An operator requests a transfer to this candidate.
    Transfer(usize),
    /// Fault: the document is deleted.
    Delete,
}
