//! Everything that can happen between two states.
//!
//! A call goes by its number: `(candidate, number)`.

/// One step. Those that are faults cost one of the run's budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// A tick of time passes, once nothing prompt is left to do.
    Tick,
    /// The candidate's timer comes.
    Wake(usize),
    /// A call lands, a majority gets it, and its answer comes back, all in this tick.
    Serve(usize, u64),
    /// Fault: the call is under way for as long as it likes, maybe for ever.
    Delay(usize, u64),
    /// Fault: the call lands now, its answer is under way for as long as it likes.
    DelayAnswer(usize, u64),
    /// Fault: the call lands now, and once more later, maybe.
    Duplicate(usize, u64),
    /// Fault: the primary has the write, a majority has not.
    Lag(usize, u64),
    /// Fault: a deposed primary answers the read.
    ReadStale(usize, u64),
    /// Fault: the call is provably never sent.
    Refuse(usize, u64),
    /// A delayed call lands; what has an answer is answered some time later.
    Land(usize, u64),
    /// A delayed answer comes, before or after the candidate gave the call up.
    Answer(usize, u64),
    /// The candidate stops waiting: the outcome is unknown to it.
    GiveUp(usize, u64),
    /// A majority gets what only the primary had.
    Commit,
    /// The primary fails over: what a majority had not is undone.
    RollBack,
    /// An event of the change stream comes, in order.
    Event(usize),
    /// Fault: the event is under way for as long as it likes.
    DelayEvent(usize),
    /// A delayed event comes, after later ones maybe.
    LateEvent(usize),
    /// Fault: the process dies.
    Crash(usize),
    /// A new process starts; `remembers`: on the same status directory.
    Restart {
        /// Which.
        candidate: usize,
        /// Whether the status directory is still there.
        remembers: bool,
    },
    /// Fault: the process does not run for as long as it likes.
    Freeze(usize),
    /// It runs again.
    Thaw(usize),
    /// Somebody asks it to step down.
    StepDown(usize),
    /// It is told to end.
    Shutdown(usize),
    /// An operator pauses the lease.
    Pause,
    /// An operator resumes it.
    Resume,
    /// An operator asks the holder to step down in favour of this one.
    Transfer(usize),
    /// Fault: the document is deleted.
    Delete,
}
