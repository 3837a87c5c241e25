//! Planted bugs: each breaks one rule, so that it can be shown that the rule's
//! absence is noticed. Compiled for tests only; in every other build
//! `planted!` is the word `false` and this file is not read.

use std::cell::Cell;

macro_rules! mutations {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A rule that is broken on purpose.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Mutation {
            $($(#[$doc])* $name,)*
        }

        impl Mutation {
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

mutations! {
    /// Authority of an acquisition counts from its reply.
    AcquisitionFromReply,
    /// Authority of a renewal counts from its reply.
    RenewalFromReply,
    /// Decisions by the wall clock.
    WallClock,
    /// Contenders decide by the server's clock.
    ServerClock,
    /// Deadlines in CLOCK_MONOTONIC, which stands still in a suspend.
    MonotonicClock,
    /// Unchanged means the same token, not the same revision.
    TokenCompared,
    /// A renewal leaves the revision as it is.
    RevisionKept,
    /// An ended claim is renewed and leads again, after its release was sent.
    EndedClaimAdopted,
    /// The acknowledgement is looked at before the deadline.
    RenewedAfterDeadline,
    /// A claim that names this session is adopted.
    SessionAdopted,
    /// The filters of renewal and release do not look at the revision.
    NoRevisionChain,
    /// The next token is the document's plus one.
    HighestTokenForgotten,
    /// The next token is the highest this process led with or remembers, plus one.
    TokenFromMemory,
    /// New settings change the claim that leads.
    TimingsReloaded,
    /// A declared duration is believed, whatever it is.
    AbsurdDurationBelieved,
    /// A draining claim is not renewed.
    DrainNotRenewed,
    /// An operator's request changes the revision.
    RequestChangesRevision,
    /// No read follows when a stream was opened.
    NoReadAfterOpen,
    /// Reads with local read concern.
    LocalReadConcern,
    /// Writes are acknowledged by the primary alone.
    WriteConcernOne,
    /// An unknown renewal counts as acknowledged.
    UnknownAsApplied,
    /// An unknown renewal counts as never sent.
    UnknownAsFailed,
    /// An acquisition that is found in the store leads without a renewal.
    AdoptedWithoutRenewal,
    /// The release does not wait for the workload.
    ReleaseBeforeWorkload,
    /// The release does not wait for the files.
    ReleaseBeforeFiles,
    /// A file that cannot be rewritten is not waited for.
    StuckFileIgnored,
    /// A process that exits releases although a file is stuck.
    StuckFileIgnoredAtExit,
    /// Effects are carried out before the status is published.
    EffectsBeforeStatus,
    /// Acquisitions insert where there is no document.
    FollowerUpserts,
    /// A contender waits for its own lease duration.
    OwnDuration,
    /// The instant at which a revision was seen is kept for the next one.
    SeenNotReset,
    /// An event that shows a renewal counts as its acknowledgement.
    EventAsAuthority,
    /// A reservation for another is not looked at.
    ReservationIgnored,
    /// A paused lease is taken over.
    PauseIgnored,
    /// Acknowledgements of two renewals count in the order in which they come.
    RenewalsOutOfOrder,
    /// HTTP and gauge show what was true when it was published.
    GaugeStored,
    /// One majority read is enough to believe that the store went back.
    StaleReadBelieved,
    /// A candidate that saw the store go back contends at once.
    NoQuarantine,
    /// A candidate that was asked to step down contends at once.
    NoStayOut,
    /// A request that names another token is obeyed.
    RequestOfAnotherToken,
    /// The claim record counts as proof in a copied directory and another boot.
    RecordBelievedAnywhere,
    /// The claim of the dead is taken over although its files still say "leader".
    ProofBesideOldFiles,
    /// A renewal that hangs is waited for without end.
    HungRenewalAwaited,
}

thread_local! {
    static ACTIVE: Cell<Option<Mutation>> = const { Cell::new(None) };
}

/// Whether this rule is broken in this thread.
pub(crate) fn is_planted(mutation: Mutation) -> bool {
    ACTIVE.get() == Some(mutation)
}

/// Runs with one rule broken.
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

/// Whether a rule is broken on purpose.
macro_rules! planted {
    ($name:ident) => {
        $crate::election::mutation::is_planted($crate::election::mutation::Mutation::$name)
    };
}
pub(crate) use planted;

// What a broken rule needs and nothing else does.

impl super::Election {
    /// An ended claim as if it had never ended.
    pub(super) fn revived(&self, ended: &super::Ended) -> super::Attempt {
        super::Attempt {
            call: super::CallId(0),
            claim: ended.claim,
            chain: ended.chain.clone(),
            token: ended.entry.token,
            sent: self.now,
            timings: self.tunables.timings,
        }
    }

    /// Another's claim as if it were one's own.
    pub(super) fn stranger(&self, lease: &super::Lease, holder: &super::Holder) -> super::Attempt {
        super::Attempt {
            call: super::CallId(0),
            claim: holder.claim,
            chain: vec![lease.revision],
            token: lease.token,
            sent: self.now,
            timings: self.tunables.timings,
        }
    }
}

impl super::tenure::Tenure {
    /// An event is believed.
    pub(super) fn acknowledged_by_event(&mut self, revision: super::Revision) {
        if let Some(call) = self.call_of(revision) {
            self.applied(call);
        }
    }
}
