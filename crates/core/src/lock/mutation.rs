//! Planted bugs of the locks. Each breaks one rule, to show that the tests notice it. Compiled for
//! unit tests only; in every other build `planted!` expands to `false` and this file is not
//! compiled.

crate::election::mutation::mutations! {
    /// Authority of an acquisition counts from its reply.
    AcquisitionFromReply:
        "authority counts from before the acquiring write was sent",
    /// Authority of a renewal counts from its reply.
    RenewalFromReply:
        "authority counts from before the renewal was sent, never from its acknowledgement",
    /// A renewal of unknown outcome counts as acknowledged.
    UnknownExtends:
        "an unknown outcome extends nothing",
    /// A contending write of unknown outcome counts as a grant.
    UnknownGrants:
        "an unknown outcome grants nothing",
    /// An acknowledgement is processed before the deadline is checked.
    AcknowledgedAfterDeadline:
        "an acknowledgement that is looked at after the deadline extends nothing",
    /// A reply that is older than its own deadline gives authority from now on.
    LateReplyGrants:
        "a reply older than its own deadline gives nothing",
    /// A grant counts as held before it is confirmed.
    GrantCountsAsHeld:
        "a granted entry has no authority before its own renewal",
    /// A holder entry of this contender that a read shows counts as held.
    FoundCountsAsHeld:
        "an entry that is found holding gives nothing: it is renewed",
    /// A hint of the change stream counts as confirmation of the grant.
    HintGrants:
        "a hint grants nothing",
    /// A claim that reached its deadline is renewed.
    RenewedAfterDeadline:
        "a claim that ended is never renewed",
    /// The late rejection of an overtaken renewal ends the claim.
    OvertakenRejectionObeyed:
        "the late rejection of an overtaken renewal means nothing",
    /// A write of unknown outcome counts as never sent.
    UnknownAsFailed:
        "every revision that was sent is kept, for what may have landed",
    /// A renewal carries the revision of the write before it.
    RevisionKept:
        "each attempt of each write carries a fresh revision",
    /// A join of unknown outcome is repeated with another claim.
    JoinedAnew:
        "a join is repeated with the same claim until it is known",
    /// A contender that lost its place joins again with the same claim.
    ClaimReused:
        "a claim that lost its place is ended: the next join has a new one",
    /// A rejected write is repeated without a read.
    RejectionRepeated:
        "after a rejection comes a read, then the next write",
    /// A reply to an older call proves the claim absent.
    OldReplyProvesAbsence:
        "only a reply to a call that was sent after the claim was known proves it absent",
    /// A majority read proves the claim absent.
    PlainReadProvesAbsence:
        "only a write or a linearizable read proves the claim absent",
    /// Waiters do not renew.
    PlaceNotKept:
        "a waiter keeps its place by renewing",
    /// A leave of unknown outcome is not repeated.
    LeaveNotRepeated:
        "a leave is repeated until it is resolved",
    /// A contender that gives up leaves its entry in the queue.
    NoLeaveAtGivingUp:
        "who gives up leaves the queue",
    /// A lock that was lost at its deadline is left for others to evict.
    NoLeaveAfterLoss:
        "a lock that was lost by its deadline is left too",
    /// The leave after a loss does not wait for the end of the work.
    LeaveBeforeWork:
        "the leave waits until nothing runs under the claim (I6)",
    /// Holders are evicted as early as grantees.
    DeclaredIgnored:
        "a sweeper waits for the duration that the entry declares",
    /// Grantees are evicted immediately.
    GrantSweptAtOnce:
        "a grantee has its time to confirm",
    /// Grantees are evicted only after the maximum lease duration.
    GrantNeverSwept:
        "a grantee that does not confirm in time is swept",
    /// A new revision does not restart the wait.
    SightingKept:
        "each new revision begins a new wait",
    /// A grant does not restart the wait.
    GrantKeepsSighting:
        "a grant begins a new wait",
    /// Only holders and grantees are evicted in time.
    WaitersNotSwept:
        "the dead are swept wherever they stand",
    /// A contender starts without the observations of earlier ones.
    NothingRemembered:
        "what was seen of others is kept from one contender to the next",
    /// Holders leave the eviction of expired entries to waiters.
    HoldersDoNotSweep:
        "holders sweep too",
    /// A sweep does not compare revisions.
    SweepWithoutRevision:
        "a sweep takes out only what still has the revision that was seen",
    /// A leave does not grant.
    NoGrantInLeave:
        "a leave grants in the same write",
    /// A sweep does not grant.
    NoGrantInSweep:
        "a sweep grants in the same write",
    /// A reader is granted past a waiting writer.
    SharedOvertakes:
        "a reader waits behind a writer that waits",
    /// A join sets the number of slots.
    SlotsChanged:
        "the number of slots changes only while the lock is empty",
    /// A confirmation takes the document's token without raising it.
    TokenNotRaised:
        "each confirmation raises the token",
    /// A join does not check if its claim is already in the document.
    JoinedTwice:
        "a claim is in the document once",
    /// Writes are acknowledged by the primary alone.
    WriteConcernOne:
        "writes are acknowledged by a majority",
}

/// True if a rule is broken on purpose.
macro_rules! planted {
    ($name:ident) => {
        $crate::lock::mutation::is_planted($crate::lock::mutation::Mutation::$name)
    };
}
pub(crate) use planted;
