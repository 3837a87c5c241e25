//! Planted bugs: each breaks one rule, so that it can be shown that the rule's
//! absence is noticed. Compiled for unit tests and for the model only; in
//! every other build `planted!` is the word `false` and this file is not read.

/// A list of rules that can be broken, and the switch; the locks have a list
/// of their own (`src/lock/mutation.rs`).
macro_rules! mutations {
    ($($(#[$doc:meta])* $name:ident: $rule:literal,)*) => {
        /// A rule that is broken on purpose.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Mutation {
            $($(#[$doc])* $name,)*
        }

        impl Mutation {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The rule that it breaks, as the table in `docs/verification.md` has it.
            pub const fn rule(self) -> &'static str {
                match self {
                    $(Self::$name => $rule,)*
                }
            }
        }

        thread_local! {
            static ACTIVE: std::cell::Cell<Option<Mutation>> =
                const { std::cell::Cell::new(None) };
        }

        /// Whether this rule is broken in this thread.
        pub fn is_planted(mutation: Mutation) -> bool {
            $crate::election::mutation::mark();
            ACTIVE.get() == Some(mutation)
        }

        /// The rule that is broken in this thread.
        pub fn active() -> Option<Mutation> {
            ACTIVE.get()
        }

        /// Runs with one rule broken.
        pub fn with<T>(mutation: Option<Mutation>, run: impl FnOnce() -> T) -> T {
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
    /// Decisions by the wall clock.
    WallClock:
        "no wall clock takes part in a decision",
    /// Contenders decide by the server's clock.
    ServerClock:
        "no server clock takes part in a decision",
    /// Deadlines in CLOCK_MONOTONIC, which stands still in a suspend.
    MonotonicClock:
        "deadlines go on while the machine sleeps",
    /// The runner and the election look at an acknowledgement before the deadline.
    AcknowledgedAfterDeadline:
        "an acknowledgement that is looked at after the deadline extends nothing",
    /// A claim that reached its deadline is found in the store, renewed, and leads again.
    RenewedAfterDeadline:
        "a claim is never renewed after its deadline",
    /// An ended claim is renewed and leads again, after its release was sent.
    RenewedAfterRelease:
        "a claim is never renewed after its release was sent",
    /// A release of unknown outcome is forgotten.
    ReleaseNotRepeated:
        "a release is repeated until it is resolved",
    /// A claim that reached its deadline is left to expire.
    NoReleaseAfterDeadline:
        "a claim that ended by its deadline is released too",
    /// Unchanged means the same token, not the same revision.
    TokenCompared:
        "a contender waits for one revision, not for one token",
    /// The instant at which a revision was seen is kept for the next one.
    SeenNotReset:
        "each new revision begins a new wait",
    /// A process waits from where the one before it on its directory began.
    SeenKeptAcrossRestart:
        "what a dead process saw does not shorten the wait of the next one",
    /// A contender waits for its own lease duration.
    OwnDuration:
        "a contender waits for the duration that the holder declared",
    /// A declared duration is believed, whatever it is.
    AbsurdDurationBelieved:
        "a declared duration outside 1 s … 1 h counts as 1 h",
    /// New settings change the claim that leads.
    TimingsReloaded:
        "the timings belong to a claim: a reload counts from the next one",
    /// An unknown renewal counts as acknowledged.
    UnknownAsApplied:
        "an unknown outcome extends nothing",
    /// An unknown renewal counts as never sent.
    UnknownAsFailed:
        "an unknown outcome is no failure: the write may have landed, or may land later",
    /// An event that shows a renewal counts as its acknowledgement.
    EventAsAuthority:
        "an event of the change stream is a hint and grants no authority",
    /// Acquire and take-over do not compare the revision.
    NoCompareAndSet:
        "acquire and take-over match only the revision that was seen",
    /// Acquire and take-over match whatever token the document has, also where it
    /// is not the one that was seen.
    TokenNotCompared:
        "acquire and take-over match only a lower token than their own",
    /// Events change a document that was known before the stream was opened.
    DocumentKeptOverGap:
        "events change only a document that was shown since the stream was opened",
    /// Acquisitions insert where there is no document.
    FollowerUpserts:
        "no acquisition makes a document",
    /// An acquisition leaves an operator's request and a reservation as they are.
    RequestKept:
        "an acquisition clears the request and the reservation",
    /// A renewal leaves the revision as it is.
    RevisionKept:
        "each renewal writes a new revision",
    /// The filters of renewal and release do not look at the revision.
    NoRevisionChain:
        "renewal and release match only a revision that the claim may have",
    /// Acknowledgements of two renewals count in the order in which they come.
    RenewalsOutOfOrder:
        "of two renewals in flight, the later one counts whichever is acknowledged first",
    /// The rejection of a renewal that a later one overtook ends the claim.
    OvertakenRejectionObeyed:
        "the late rejection of an overtaken renewal means nothing",
    /// After its renewal was rejected a leader goes on until its deadline.
    RejectionOutlived:
        "a leader whose newest renewal is rejected steps down at once",
    /// A renewal that hangs is waited for without end.
    HungRenewalAwaited:
        "a renewal without an answer is followed by another",
    /// A new primary does not hurry a renewal.
    NewPrimaryAwaited:
        "at a new primary the holder renews again at once",
    /// Each new primary brings another renewal, however many hang.
    RenewalsUnbounded:
        "at most two renewals of a claim are in flight",
    /// A claim that names this session is adopted.
    SessionAdopted:
        "only a claim of this process's own open acquisitions is adopted",
    /// An acquisition that is found in the store leads without a renewal.
    AdoptedWithoutRenewal:
        "an adopted claim leads from its renewal, not from being found",
    /// Reads with local read concern.
    LocalReadConcern:
        "reads have read concern majority",
    /// Writes are acknowledged by the primary alone.
    WriteConcernOne:
        "writes are acknowledged by a majority",
    /// The next token is the document's plus one.
    HighestTokenForgotten:
        "the next token is above the highest that this process has seen",
    /// The next token is the highest this process led with or remembers, plus one.
    TokenFromMemory:
        "the next token is above the document's",
    /// A process starts without the token that its directory remembers.
    TokenNotRemembered:
        "the highest token is kept in the status directory",
    /// One majority read is enough to believe that the store went back.
    StaleReadBelieved:
        "only a linearizable read confirms that the store went back",
    /// A leader goes on when the store went back.
    LeadsAfterStoreWentBack:
        "a leader that sees the store go back steps down",
    /// A candidate that saw the store go back contends at once.
    NoQuarantine:
        "after the store went back nobody who knows it contends for a while",
    /// That while is the candidate's own lease duration.
    OwnQuarantine:
        "after the store went back the wait is the longest lease duration seen",
    /// A process starts on a directory that another one has locked.
    LockIgnored:
        "the claim record is proof only for who has its lock",
    /// The claim record counts as proof in a copy of its directory.
    RecordOfAnotherFile:
        "the claim record is proof only in the very file that it names",
    /// The claim record counts as proof in another boot.
    RecordOfAnotherBoot:
        "the claim record is proof only in the boot that it names",
    /// A holder of the own name counts as dead.
    IdentityIsProof:
        "the same identity proves nothing",
    /// The claim of the dead is taken over although its files still say "leader".
    ProofBesideOldFiles:
        "the dead process's files say nothing any more before its claim is taken over",
    /// A request that names another token is obeyed.
    RequestOfAnotherToken:
        "a request is meant for the token that it names",
    /// A leader does not look at a request.
    RequestIgnored:
        "a leader obeys a request that names its token",
    /// An operator's request changes the revision.
    RequestChangesRevision:
        "a request does not change the revision",
    /// A transfer is released without a reservation.
    TransferNotReserved:
        "a transfer leaves a reservation for the one it names",
    /// A reservation for another is not looked at.
    ReservationIgnored:
        "a reserved lease is left to who it is reserved for",
    /// A paused lease is taken over.
    PauseIgnored:
        "nobody acquires or takes over a paused lease",
    /// A leader does not look at a pause.
    PauseNotObeyed:
        "a leader steps down when the lease is paused",
    /// A candidate that was asked to step down contends at once.
    NoStayOut:
        "who was asked to step down lets another lead first",
    /// A leader whose workload is unhealthy goes on.
    UnhealthyLeads:
        "a leader whose workload is unhealthy steps down",
    /// A candidate whose workload is unhealthy contends.
    UnhealthyContends:
        "a candidate contends only while its workload is healthy",
    /// A candidate that lost by deadline twice contends at once.
    NoBackOff:
        "who lost by deadline twice in ten minutes lets others go first",
    /// A candidate whose workload crashes contends again at once.
    ExitNotBackedOff:
        "who cannot keep its workload running lets others try first",
    /// The lock of the claim alone counts as proof, whatever the record says of a child.
    ProofWithoutChild:
        "the claim record is proof only when the child that it names is gone",
    /// The release does not wait for the supervised workload's end.
    ReleaseBeforeChild:
        "the release waits until the supervised child is confirmed gone",
    /// The guard shares no lock: a new daemon starts beside the old one's workload.
    GuardWithoutLock:
        "the guard holds the claim lock too, until its child is gone",
    /// While the workload ends, renewals do not carry its deadline on.
    DrainNotExtended:
        "renewals carry the workload's deadline on also while it ends",
    /// The guard brings a deadline that has passed back.
    DeadlineRevived:
        "a deadline that passed in the guard is final",
    /// The guard judges each record before it reads the next.
    EachRecordJudged:
        "the guard reads all that was sent, and then judges",
    /// The guard starts its child whatever the time.
    StartedAfterDeadline:
        "the child starts only while its deadline is ahead in the guard",
    /// A child that ends by itself is started again under the same claim.
    StartedAgain:
        "a child is started once under a claim",
    /// The guard goes on as if its daemon lived.
    ClosedPipeIgnored:
        "a guard whose daemon is gone ends its child at once",
    /// At the deadline the child is asked to end, and no more.
    LossWithoutKill:
        "loss_grace after its deadline the child is killed",
    /// A child that was asked to end has all the time that its claim has.
    StopWithoutKill:
        "a child that was asked to end is killed when its time is over",
    /// A draining claim is not renewed.
    DrainNotRenewed:
        "renewals go on while the workload ends",
    /// The release does not wait for the workload.
    ReleaseBeforeWorkload:
        "the release waits until the workload is gone",
    /// The release after a deadline does not wait for the workload.
    ReleaseAtDeadline:
        "after a deadline too, the release waits until the workload has noticed",
    /// A workload that is said to end first is not waited for.
    EndsFirstTrusted:
        "`workload.ends_first` shortens the wait at a shutdown, and never skips it",
    /// The release does not wait for the files.
    ReleaseBeforeFiles:
        "the release waits until the files say not leader",
    /// A file that cannot be rewritten is not waited for.
    StuckFileIgnored:
        "the release waits for the deadline in a file that cannot be rewritten",
    /// A process that exits releases although a file is stuck.
    StuckFileIgnoredAtExit:
        "a process that exits beside a stuck file leaves its lease to expire",
    /// Effects are carried out before the status is published.
    EffectsBeforeStatus:
        "the status is published before the effects are carried out",
    /// HTTP and gauge show what was true when it was published.
    GaugeStored:
        "surfaces compute leadership from the deadline when they are asked",
    /// A stream outlives an election of another primary.
    StreamKeptAcrossElections:
        "a stream is opened anew when another primary is found",
    /// A stream that failed to report the holder's renewals goes on.
    DeafStreamKept:
        "a stream is opened anew after a rejected take-over",
    /// A read that shows more than the stream told changes nothing about it.
    StaleStreamKept:
        "a stream is opened anew when a read shows what it failed to report",
    /// A follower with an open stream believes that its holder is silent.
    SilenceTrusted:
        "a follower with a stream reads when the holder seems silent",
    /// A follower with an open stream never reads by the clock.
    NoRegularRead:
        "a follower with a stream reads once in each lease duration",
    /// The reply to a read that was sent before a newer event is believed.
    LateReadBelieved:
        "a late reply to a read does not replace a newer event",
    /// No read follows when a stream was opened.
    NoReadAfterOpen:
        "a follower reads after its stream was opened",
    /// A document that is none of ours is overwritten by a new lease.
    ForeignOverwritten:
        "a document of another shape is never overwritten",
    /// The history grows with each claim.
    HistoryUnbounded:
        "the history has twenty entries at most",
}

/// Stands in every program in which a rule can be broken, whatever the compiler
/// makes of the rest. `tests/no_planted_bug_ships.rs` looks for it.
const MARKER: &str = "leasehold: planted bugs are compiled in";

/// Keeps the marker in the program.
pub fn mark() {
    std::hint::black_box(MARKER);
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

    /// The revision that is believed to be stored.
    pub(crate) fn revision_seen(&self) -> Option<super::Revision> {
        self.view.revision()
    }

    /// What the process before on the same directory had seen, as if it had
    /// been seen here.
    pub(crate) fn continue_from(&mut self, before: &Self) {
        self.view.seen = before.view.seen;
    }

    /// A claim that was found leads as if its renewal had been acknowledged.
    pub(super) fn lead_unrenewed(&mut self, attempt: super::Attempt, turn: &mut super::Turn<'_>) {
        let (revision, lease) = (attempt.chain[0], self.view.lease().cloned());
        let lease = lease.expect("it was seen");
        let nobody = super::decide::Predecessor::Nobody;
        self.begin(attempt, revision, turn.now, lease, nobody, turn);
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
