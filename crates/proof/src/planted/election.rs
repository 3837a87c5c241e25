//! Planted bugs. Each bug breaks one rule, to prove that a test fails when the rule is missing.
//!
//! `crates/core/src/election.rs` includes this file as its module `mutation` in builds of
//! `leasehold-proof`. In every other build `planted!` expands to `false`.

/// Defines a list of rules that a test can break, and the switch that breaks one rule. The locks
/// have their own list (`lock.rs`).
macro_rules! mutations {
    ($($(#[$doc:meta])* $name:ident: $rule:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Mutation {
            $($(#[$doc])* $name,)*
        }

        impl Mutation {
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the text of the rule in `docs/verification/planted-bugs.md`.
            pub(crate) const fn rule(self) -> &'static str {
                match self {
                    $(Self::$name => $rule,)*
                }
            }
        }

        thread_local! {
            static ACTIVE: std::cell::Cell<Option<Mutation>> =
                const { std::cell::Cell::new(None) };
        }

        pub(crate) fn is_planted(mutation: Mutation) -> bool {
            $crate::election::mutation::mark();
            ACTIVE.get() == Some(mutation)
        }

        /// Returns the rule that is broken in this thread, if any.
        pub(crate) fn active() -> Option<Mutation> {
            ACTIVE.get()
        }

        pub(crate) fn with<T>(mutation: Option<Mutation>, run: impl FnOnce() -> T) -> T {
            struct Reset;
            impl Drop for Reset {
                fn drop(&mut self) {
                    ACTIVE.set(None);
                }
            }
            let _reset = Reset;
            ACTIVE.set(mutation);
            run()
        }

        impl $crate::proof::sim::planted::Bug for Mutation {
            const ALL: &'static [Self] = Self::ALL;

            fn rule(self) -> &'static str {
                self.rule()
            }

            fn active() -> Option<Self> {
                active()
            }

            fn with<T>(bug: Option<Self>, run: impl FnOnce() -> T) -> T {
                with(bug, run)
            }
        }
    };
}
pub(crate) use mutations;

mutations! {
    AcquisitionFromReply:
        "authority counts from an instant before the acquisition was sent",
    RenewalFromReply:
        "authority counts from an instant before the renewal was sent, never from its acknowledgement",
    WallClock:
        "no decision uses a wall clock",
    /// Contenders compute deadlines with the clock of the server.
    ServerClock:
        "no decision uses a server clock",
    /// Deadlines use CLOCK_MONOTONIC, which stops while the machine sleeps.
    MonotonicClock:
        "deadlines continue while the machine sleeps",
    /// The event loop and the election handle an acknowledgement before they check the deadline.
    AcknowledgedAfterDeadline:
        "an acknowledgement that is handled after the deadline extends nothing",
    RenewedAfterDeadline:
        "a claim is never renewed after its deadline",
    RenewedAfterRelease:
        "a claim is never renewed after its release was sent",
    TokenCompared:
        "a contender's wait restarts when the revision changes, not only when the token changes",
    /// A contender compares only the revision, although the claim or the token may have changed.
    RevisionAlone:
        "a revision counts as unchanged only if its claim and token are unchanged too",
    /// Ids come only from the generator. After a machine is forked, both copies draw the same ids.
    IdsOfGenerator:
        "the two copies of a forked machine draw different ids",
    SeenCountsAgain:
        "an unchanged revision keeps the instant at which it was first seen",
    /// A new process continues the wait of its predecessor, whose status directory it uses.
    SeenKeptAcrossRestart:
        "the observations of an exited process do not shorten the wait of the next process",
    OwnDuration:
        "a contender waits for the duration that the holder declared",
    TimingsReloaded:
        "reloaded timings apply from the next claim on",
    UnknownAsApplied:
        "an unknown outcome extends nothing",
    UnknownAsFailed:
        "an unknown outcome is not a failure, because the write may have been applied or may be applied later",
    EventAsAuthority:
        "an event of the change stream is a hint and grants no authority",
    NoCompareAndSet:
        "acquire and takeover match only the revision that was seen",
    /// Acquire and takeover match a document whose token the sender has not seen.
    TokenNotCompared:
        "acquire and takeover match only a token that is lower than their own",
    /// A follower applies events to a document that it read before it opened the stream.
    DocumentKeptOverGap:
        "an event is applied only to a document that was seen after the stream was opened",
    /// A change stream reports only writes that follow its opening. The follower then misses an
    /// earlier write that is not yet majority-committed at the follower's next read.
    StreamFromItsOpening:
        "a stream also reports the writes that were not majority-committed when it was opened",
    /// An acquisition inserts the document if it is missing.
    FollowerUpserts:
        "no acquisition creates a document",
    RequestKept:
        "an acquisition clears the request and the reservation",
    RegistrationChangesRevision:
        "a registration does not change the revision",
    /// A registration replaces any registered standby.
    AnyStandbyReplaced:
        "a registration replaces a standby only if that standby was seen and has a lower priority",
    /// A standby acquires the lease regardless of the revision.
    StandbyWithoutCompareAndSet:
        "a standby's acquisition matches only the revision that the standby saw",
    RevisionKept:
        "each renewal writes a new revision",
    /// The filters of renewals and releases do not compare the revision.
    NoRevisionChain:
        "renewal and release match only a revision that the claim may have written",
    /// A candidate adopts any stored claim that contains the candidate's session.
    SessionAdopted:
        "a process adopts only claims of its own open acquisitions",
    AdoptedWithoutRenewal:
        "an adopted claim leads only after its renewal",
    LocalReadConcern:
        "reads have read concern majority",
    WriteConcernOne:
        "writes are acknowledged by a majority",
    HighestTokenForgotten:
        "the next token is above the highest token that this process has seen",
    /// A candidate learns of a rollback while an acquisition is in flight, but forgets the rollback
    /// when the acquisition succeeds.
    RollbackForgottenAtBegin:
        "an acquisition never leads if, after it was sent, another claim had its token or the store was rolled back",
    TokenNotRemembered:
        "the highest token is kept in the status directory",
    OwnQuarantine:
        "after a rollback of the store, candidates wait for the longest lease duration that they have seen",
    /// A process starts although another process has locked the directory.
    LockIgnored:
        "the claim record is proof only for the process that holds its lock",
    /// The claim record in a copy of the directory counts as proof.
    RecordOfAnotherFile:
        "the claim record is proof only in the file whose inode it names",
    /// The claim record of an earlier boot counts as proof.
    RecordOfAnotherBoot:
        "the claim record is proof only in the boot that it names",
    IdentityIsProof:
        "an equal identity does not prove that the predecessor has exited",
    /// A candidate takes over the claim of an exited process while that process's files still say
    /// "leader".
    ProofBesideOldFiles:
        "an exited process's claim is taken over only after its files no longer say leader",
    ExitUnnoticed:
        "an exited process's claim is released only after an unsupervised workload has had time to notice the exit",
    RequestChangesRevision:
        "a request does not change the revision",
    ProofWithoutChild:
        "the claim record is proof only when the child that it names is gone",
    /// A guard that connects again applies the last order of its earlier connection.
    OldOrderObeyed:
        "a guard that connects again applies no order of an earlier connection",
    TwoGuardsOrdered:
        "a daemon uses one guard at a time, whichever pod it is in",
    /// The connection of any guard counts as proof that the workload of another guard is gone.
    AnyGuardProves:
        "a guard that connects again proves only the end of its own workload",
    ClosedIsGone:
        "a closed connection does not prove that the workload is gone",
    LeadsWithoutGuard:
        "a daemon contends only while its guard is connected",
    FreeLockIsProof:
        "a free claim lock proves nothing while the record from another container says that a child runs",
    /// The guard does not keep its daemon's lock, so a new daemon starts while the old workload
    /// runs.
    GuardWithoutLock:
        "the guard also holds the claim lock until its child is gone",
    /// A later record extends a deadline that the guard has seen pass.
    DeadlineRevived:
        "a later record cannot extend a deadline that the guard has seen pass",
    EachRecordJudged:
        "before it decides, the guard reads every record that has arrived",
    StartedAfterDeadline:
        "the guard starts its child only before the deadline",
    /// The guard does not enforce the deadline until its child is recorded.
    RecordBlocksGuard:
        "a guard enforces the deadline even while its child's record cannot be written",
    StartUnbounded:
        "a leader whose child does not start steps down in time",
    /// The child runs although the write of the child's record still blocks.
    RunsBeforeRecord:
        "a child is recorded before it runs",
    StartedAgain:
        "a claim starts its child at most once",
    ClosedPipeIgnored:
        "a guard whose daemon has exited ends its child immediately",
    /// The guard asks the child to stop at the deadline, but does not kill it later.
    LossWithoutKill:
        "the child is killed loss_grace after its deadline",
    /// The supervised command exits by itself, and its descendants immediately get the stop
    /// signal.
    LingerCutShort:
        "descendants of a child that ended by itself may linger",
    ReleaseBeforeFiles:
        "the release waits until the files say \"not leader\"",
    StopUnbounded:
        "a step-down ends in time even if its workload survives SIGKILL",
    KilledCountsAsGone:
        "while its workload may still run, a lease is left to expire and is not released",
    AnyHookConfirms:
        "a hook that is not declared to stop the workload does not confirm that the workload has ended",
    /// A signal to step down arrives while an acquisition is in flight, and is lost.
    SignalLostWhileAcquiring:
        "an acquisition never leads if a step-down was requested after it was sent",
    EffectsBeforeStatus:
        "the status is published before the effects are carried out",
    /// HTTP and the leadership gauge show the last published state.
    GaugeStored:
        "surfaces compute leadership from the deadline when they are read",
    /// A follower trusts a delayed change stream as if the stream had no delay.
    LateStreamTrusted:
        "a follower of a delayed stream reads each renewal when it is due",
    /// A hint carries a document, and the follower applies the document without a read.
    HintTrusted:
        "a hint causes a read, or an acquisition that matches only the released lease",
    /// The reply to a release counts as majority-committed although only the primary acknowledged
    /// the release.
    PrimaryTrusted:
        "a reply to a release that only the primary acknowledged shows no document",
    /// Only the candidate that a release names receives a hint of the release.
    OthersNotHinted:
        "if the candidate that a release names has crashed, the others receive a hint, too",
    /// A leader declares its renewal interval with each renewal, although it writes no hints.
    DeclaredWithoutHints:
        "a holder declares its renewal interval only while it writes hints",
    /// A candidate follows hints as soon as it has the right to, although the holder writes none.
    HintsOfNoneFollowed:
        "a follower follows hints only while the holder writes them",
    DroppedHintsKept:
        "hints are followed only while their collection exists",
    DeposedHintsKept:
        "a cursor on hints is reopened when it may be stale",
    WrongIntervalDeclared:
        "a follower of hints reads each renewal soon after it is stored",
    ForeignOverwritten:
        "an unrecognized document is never overwritten",
    HistoryUnbounded:
        "the history has at most twenty entries",
}

/// Every program with planted bugs contains this marker, which the compiler cannot remove.
/// `tests/no_planted_bug_ships.rs` searches for it.
const MARKER: &str = "leasehold: planted bugs are compiled in";

pub(crate) fn mark() {
    std::hint::black_box(MARKER);
}

macro_rules! planted {
    ($name:ident) => {
        $crate::election::mutation::is_planted($crate::election::mutation::Mutation::$name)
    };
    ($name:ident, $bug:expr, $rule:expr) => {
        if $crate::election::mutation::is_planted($crate::election::mutation::Mutation::$name) {
            $bug
        } else {
            $rule
        }
    };
}
pub(crate) use planted;

use super::claims::{Attempt, EndedClaim};
use super::{BootTime, CallId, Claim, Holder, Lease, Revision, Timings, Token};

/// Returns an ended claim as if it had never ended.
pub(super) fn revived(ended: &EndedClaim, timings: &Timings, now: BootTime) -> Attempt {
    attempt(
        ended.claim,
        ended.chain.clone(),
        ended.entry.token,
        timings,
        now,
    )
}

/// Returns another candidate's claim as if it were the candidate's own.
pub(super) fn stranger(
    lease: &Lease,
    holder: &Holder,
    timings: &Timings,
    now: BootTime,
) -> Attempt {
    let chain = vec![lease.revision];
    attempt(holder.claim, chain, lease.token, timings, now)
}

fn attempt(
    claim: Claim,
    chain: Vec<Revision>,
    token: Token,
    timings: &Timings,
    now: BootTime,
) -> Attempt {
    Attempt {
        call: CallId(0),
        claim,
        replaces: (chain[0], token),
        chain,
        token,
        sent: now,
        timings: *timings,
        overtaken: None,
        cancelled: false,
    }
}

impl super::Election {
    /// Returns true if the change stream is delayed. Each event then only causes a read.
    pub(crate) fn only_reads_after_events(&self) -> bool {
        self.contender.only_reads_after_events()
    }

    pub(crate) fn revision_seen(&self) -> Option<super::Revision> {
        self.contender.view().revision()
    }

    pub(crate) fn token_seen(&self) -> Option<super::Token> {
        self.contender.view().marks.document_token
    }

    /// Continues the wait of the previous process by copying the time at which that process first
    /// saw the revision.
    pub(crate) fn continue_from(&mut self, before: &Self) {
        self.contender.continue_from(&before.contender);
    }
}

impl super::tenure::Tenure {
    pub(super) fn acknowledged_by_event(&mut self, revision: super::Revision) {
        if let Some(call) = self.call_of(revision) {
            self.applied(call);
        }
    }
}
