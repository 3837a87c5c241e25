//! The steps from one state to the next. A call is identified by `(candidate, number)`.

/// One step of a run. The steps `Delay`, `DelayAnswer`, `Duplicate`, `Lag`, `Depose`, `ReadStale`,
/// `Refuse`, `DelayEvent`, `Crash`, `Freeze` and `Delete` are faults, and the bounds limit how many faults a
/// run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// Time advances by a tick. Possible only if no other step must happen first.
    Tick,
    Wake(usize),
    /// The call reaches the store, a majority applies it, and its answer returns, all in this
    /// tick.
    Serve(usize, u64),
    /// The network delays the call for an arbitrary time, possibly forever.
    Delay(usize, u64),
    /// The store applies the call now, and the network delays the answer for an arbitrary time.
    DelayAnswer(usize, u64),
    /// The store applies the call now, and possibly once more later.
    Duplicate(usize, u64),
    /// The primary applies the write, but a majority does not have it yet. The primary acknowledges
    /// only an announced release.
    Lag(usize, u64),
    /// A deposed primary acknowledges the announced release, which no other member ever has.
    Depose(usize, u64),
    /// A deposed primary answers the read.
    ReadStale(usize, u64),
    /// The driver reports that it never sent the call.
    Refuse(usize, u64),
    Land(usize, u64),
    /// A delayed answer returns. The candidate may already have abandoned the call.
    Answer(usize, u64),
    GiveUp(usize, u64),
    Commit,
    /// The primary fails over, which rolls back the writes that no majority has.
    RollBack,
    Event(usize),
    DelayEvent(usize),
    /// A delayed event arrives, possibly after later events.
    LateEvent(usize),
    Crash(usize),
    Restart {
        candidate: usize,
        /// The status directory survives the crash.
        remembers: bool,
    },
    Freeze(usize),
    Thaw(usize),
    StepDown(usize),
    Shutdown(usize),
    Pause,
    Resume,
    Transfer(usize),
    Delete,
}
