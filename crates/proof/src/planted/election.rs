//! Planted bugs. Each breaks one rule, to prove that a test fails when the rule is missing.
//!
//! `crates/core/src/election.rs` includes this file as its module `mutation` in builds of
//! `leasehold-proof`. In every other build `planted!` expands to `false`.

/// Defines a list of rules that can be broken, and the switch that breaks a rule. The locks have
/// their own list (`lock.rs`).
macro_rules! mutations {
    ($($(#[$doc:meta])* $name:ident: $rule:literal,)*) => {
        /// A rule that is broken on purpose.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Mutation {
            $($(#[$doc])* $name,)*
        }

        impl Mutation {
            /// All planted bugs.
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the rule that the bug breaks, as in `docs/verification/planted-bugs.md`.
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

        /// Returns true if this rule is broken in this thread.
        pub(crate) fn is_planted(mutation: Mutation) -> bool {
            $crate::election::mutation::mark();
            ACTIVE.get() == Some(mutation)
        }

        /// Returns the rule that is broken in this thread, if any.
        pub(crate) fn active() -> Option<Mutation> {
            ACTIVE.get()
        }

        /// Calls `run` with one rule broken.
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
    /// Authority of an acquisition counts from its reply.
    AcquisitionFromReply:
        "authority counts from before the acquisition was sent",
    /// Authority of a renewal counts from its reply.
    RenewalFromReply:
        "authority counts from before the renewal was sent, never from its acknowledgement",
    /// Decisions use the wall clock.
    WallClock:
        "no wall clock takes part in a decision",
    /// Contenders use the server's clock.
    ServerClock:
        "no server clock takes part in a decision",
    /// Deadlines use CLOCK_MONOTONIC, which does not advance during a suspend.
    MonotonicClock:
        "deadlines continue while the machine sleeps",
    /// The runner and the election process an acknowledgement before they check the deadline.
    AcknowledgedAfterDeadline:
        "an acknowledgement that is handled after the deadline extends nothing",
    /// A claim that reached its deadline is found in the store, renewed, and leads again.
    RenewedAfterDeadline:
        "a claim is never renewed after its deadline",
    /// An ended claim is renewed and leads again after its release was sent.
    RenewedAfterRelease:
        "a claim is never renewed after its release was sent",
    /// A contender compares the token instead of the revision.
    TokenCompared:
        "a contender waits for one revision, not for one token",
    /// A revision counts as unchanged although claim or token have changed.
    RevisionAlone:
        "a revision counts as unchanged only with its claim and token",
    /// Ids come only from the generator, which both twins of a forked machine continue.
    IdsOfGenerator:
        "ids do not repeat on the twins of a forked machine",
    /// The wait for an unchanged revision begins again with each observation.
    SeenCountsAgain:
        "an unchanged revision keeps the instant at which it was first seen",
    /// A process continues the wait of the previous process on the status directory.
    SeenKeptAcrossRestart:
        "the observations of an exited process do not shorten the wait of the next one",
    /// A contender waits for its own lease duration instead of the holder's.
    OwnDuration:
        "a contender waits for the duration that the holder declared",
    /// New settings apply to the claim that already leads.
    TimingsReloaded:
        "a reload of the timings applies from the next claim",
    /// A renewal of unknown outcome counts as acknowledged.
    UnknownAsApplied:
        "an unknown outcome extends nothing",
    /// A renewal of unknown outcome counts as never sent.
    UnknownAsFailed:
        "an unknown outcome is not a failure, because the write may have been applied or may be applied later",
    /// An event that shows a renewal counts as its acknowledgement.
    EventAsAuthority:
        "an event of the change stream is a hint and grants no authority",
    /// Acquire and takeover do not compare the revision.
    NoCompareAndSet:
        "acquire and takeover match only the revision that was seen",
    /// Acquire and takeover match a document with any token, even a token that the sender has not
    /// seen.
    TokenNotCompared:
        "acquire and takeover match only a lower token than their own",
    /// Events are applied to a document that was known before the stream was opened.
    DocumentKeptOverGap:
        "events change only a document that was shown since the stream was opened",
    /// A change stream reports only the writes after its opening. A write that was not
    /// majority-committed when the stream was opened is then missing from both the stream and the
    /// next read.
    StreamFromItsOpening:
        "a stream also reports the writes that were not majority-committed when it was opened",
    /// Acquisitions insert the document if it is missing.
    FollowerUpserts:
        "no acquisition creates a document",
    /// An acquisition does not clear an operator's request or a reservation.
    RequestKept:
        "an acquisition clears the request and the reservation",
    /// The registration of a standby changes the revision.
    RegistrationChangesRevision:
        "a registration does not change the revision",
    /// A registration replaces any standby.
    AnyStandbyReplaced:
        "a registration replaces only the standby that was seen, which has a lower priority",
    /// A standby acquires the lease at any revision.
    StandbyWithoutCompareAndSet:
        "a standby acquires only the revision that it saw",
    /// A renewal does not change the revision.
    RevisionKept:
        "each renewal writes a new revision",
    /// The filters of renewal and release do not compare the revision.
    NoRevisionChain:
        "renewal and release match only a revision that the claim may have",
    /// The candidate adopts a stored claim that names its session.
    SessionAdopted:
        "only a claim of this process's own open acquisitions is adopted",
    /// A claim that was found in the store leads without a renewal.
    AdoptedWithoutRenewal:
        "an adopted claim leads from its renewal, not from being found",
    /// Reads use read concern `local`.
    LocalReadConcern:
        "reads have read concern majority",
    /// Writes are acknowledged by the primary alone.
    WriteConcernOne:
        "writes are acknowledged by a majority",
    /// The next token is the document's token plus one.
    HighestTokenForgotten:
        "the next token is above the highest that this process has seen",
    /// If an acquisition succeeds, the candidate forgets that the store was rolled back while the
    /// acquisition was in flight.
    RollbackForgottenAtBegin:
        "an acquisition never leads if another claim had its token, or the store went back, since it was sent",
    /// A process starts without the token recorded in its directory.
    TokenNotRemembered:
        "the highest token is kept in the status directory",
    /// The wait after a rollback of the store is the candidate's own lease duration.
    OwnQuarantine:
        "after the store was rolled back, the wait is the longest lease duration seen",
    /// A process starts on a directory that another process has locked.
    LockIgnored:
        "the claim record is proof only for the process that holds its lock",
    /// The claim record counts as proof in a copy of its directory.
    RecordOfAnotherFile:
        "the claim record is proof only in the file whose inode it names",
    /// The claim record counts as proof in another boot.
    RecordOfAnotherBoot:
        "the claim record is proof only in the boot that it names",
    /// A holder with the candidate's own identity counts as proven to have exited.
    IdentityIsProof:
        "the same identity is not a proof that the predecessor exited",
    /// The candidate takes over the claim of an exited process although that process's files still
    /// say "leader".
    ProofBesideOldFiles:
        "the exited process's files no longer say leader before its claim is taken over",
    /// An operator's request changes the revision.
    RequestChangesRevision:
        "a request does not change the revision",
    /// A free lock on the claim counts as proof even if the record names a child.
    ProofWithoutChild:
        "the claim record is proof only when the child that it names is gone",
    /// The guard does not share its daemon's lock, so a new daemon starts while the old workload
    /// runs.
    GuardWithoutLock:
        "the guard also holds the claim lock until its child is gone",
    /// A later record revives a deadline that has passed in the guard.
    DeadlineRevived:
        "a later record cannot revive a deadline that has passed in the guard",
    /// The guard decides on each record before it reads the next record.
    EachRecordJudged:
        "the guard reads everything that was sent before it decides",
    /// The guard starts its child even after the child's deadline.
    StartedAfterDeadline:
        "the guard starts its child only before the deadline",
    /// The guard does nothing until its child is recorded.
    RecordBlocksGuard:
        "a guard enforces the deadline while the record of its child blocks",
    /// A daemon waits without a bound for its child to start.
    StartUnbounded:
        "a leader whose child does not start steps down in time",
    /// The child starts while the write of its record still blocks.
    RunsBeforeRecord:
        "a child is recorded before it runs",
    /// A child that exits on its own is started again under the same claim.
    StartedAgain:
        "a child is started once under a claim",
    /// The guard continues after its daemon has exited.
    ClosedPipeIgnored:
        "a guard whose daemon has exited ends its child immediately",
    /// The child is asked to stop at the deadline but not killed after it.
    LossWithoutKill:
        "the child is killed loss_grace after its deadline",
    /// Descendants get the stop signal as soon as the supervised command has exited by itself.
    LingerCutShort:
        "descendants of a child that ended by itself may linger",
    /// The release does not wait for the files.
    ReleaseBeforeFiles:
        "the release waits until the files say not leader",
    /// A step-down waits without a bound for a workload that survives its kill.
    StopUnbounded:
        "a step-down ends in time even if its workload survives SIGKILL",
    /// A workload that survives its kill counts as gone.
    KilledCountsAsGone:
        "a lease whose workload may still run expires and is not released",
    /// The exit of a hook counts as the end of the workload although the hook does not stop the
    /// workload.
    AnyHookConfirms:
        "a hook that is not declared to stop the workload does not confirm its end",
    /// A signal to step down is lost while an acquisition is in flight.
    SignalLostWhileAcquiring:
        "an acquisition never leads if a step-down was requested since it was sent",
    /// Effects are carried out before the status is published.
    EffectsBeforeStatus:
        "the status is published before the effects are carried out",
    /// HTTP and the gauge show the state as of the last publication.
    GaugeStored:
        "surfaces compute leadership from the deadline when they are read",
    /// A stream that reports changes late is treated like a prompt stream.
    LateStreamTrusted:
        "a follower of a late stream reads each renewal when it is expected",
    /// The hint carries a document, and the follower applies the document.
    HintTrusted:
        "a hint makes a follower read, and its content decides nothing",
    /// A follower keeps the cursor on a dropped collection of hints, and opens that cursor again.
    DroppedHintsKept:
        "hints are followed only while their collection exists",
    /// The cursor of hints stays on a member that is no longer the primary.
    DeposedHintsKept:
        "the cursor of hints is opened again when it may be stale",
    /// A holder declares the wrong renewal interval.
    WrongIntervalDeclared:
        "a follower of hints reads each renewal soon after it is stored",
    /// A foreign document is overwritten by a new lease.
    ForeignOverwritten:
        "an unrecognized document is never overwritten",
    /// The history grows with each claim, without a limit.
    HistoryUnbounded:
        "the history has at most twenty entries",
}

/// Marker in every program that contains planted bugs. The compiler cannot remove it.
/// `tests/no_planted_bug_ships.rs` searches for this marker.
const MARKER: &str = "leasehold: planted bugs are compiled in";

/// Keeps the marker in the compiled program.
pub(crate) fn mark() {
    std::hint::black_box(MARKER);
}

/// Evaluates to true if the rule is broken on purpose.
macro_rules! planted {
    ($name:ident) => {
        $crate::election::mutation::is_planted($crate::election::mutation::Mutation::$name)
    };
}
pub(crate) use planted;

// Helpers that only planted bugs need.

use super::claims::{Attempt, EndedClaim};
use super::decide::Predecessor;
use super::write::Acquired;
use super::{BootTime, CallId, Claim, Holder, Lease, Revision, Timings, Token};

/// Returns an ended claim as if the claim had never ended.
pub(super) fn revived(ended: &EndedClaim, timings: &Timings, now: BootTime) -> Attempt {
    attempt(
        ended.claim,
        ended.chain.clone(),
        ended.entry.token,
        timings,
        now,
    )
}

/// Returns another candidate's claim as this candidate's own.
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
    /// Returns true if the stream is late, so that an event is only a reason to read.
    pub(crate) fn only_reads_after_events(&self) -> bool {
        self.contender.reads.is_late()
    }

    pub(crate) fn revision_seen(&self) -> Option<super::Revision> {
        self.contender.view.revision()
    }

    pub(crate) fn token_seen(&self) -> Option<super::Token> {
        self.contender.view.marks.document_token()
    }

    /// Continues the previous process's wait: copies the time at which that process first saw the
    /// revision.
    pub(crate) fn continue_from(&mut self, before: &Self) {
        self.contender.view.continue_from(&before.contender.view);
    }

    /// Makes a claim that was found in the store lead, as if its renewal had been acknowledged.
    pub(super) fn lead_unrenewed(&mut self, attempt: Attempt, turn: &mut crate::claim::Turn<'_>) {
        let lease = self.contender.view.lease().cloned();
        let acquired = Acquired {
            revision: attempt.chain[0],
            attempt,
            sent: turn.now,
            lease: lease.expect("it was seen"),
            from: Predecessor::Nobody,
        };
        let begun = self.contender.begin(acquired, turn);
        self.begun(begun, turn);
    }
}

impl super::tenure::Tenure {
    /// Treats an event as the acknowledgement of a renewal.
    pub(super) fn acknowledged_by_event(&mut self, revision: super::Revision) {
        if let Some(call) = self.call_of(revision) {
            self.applied(call);
        }
    }
}
