//! Planted bugs of the locks: each breaks one rule, so that it can be shown
//! that the rule's absence is noticed. Compiled for unit tests only; in every
//! other build `planted!` is the word `false` and this file is not read.

crate::election::mutation::mutations! {
    /// Authority of an acquisition counts from its reply.
    AcquisitionFromReply:
        "authority counts from before the acquiring write was sent",
    /// Authority of a renewal counts from its reply.
    RenewalFromReply:
        "authority counts from before the renewal was sent, never from its acknowledgement",
    /// An unknown renewal counts as acknowledged.
    UnknownExtends:
        "an unknown outcome extends nothing",
    /// An unknown join that would be granted counts as acknowledged.
    UnknownGrants:
        "an unknown outcome grants nothing",
    /// An acknowledgement is looked at before the deadline.
    AcknowledgedAfterDeadline:
        "an acknowledgement that is looked at after the deadline extends nothing",
    /// A reply that is older than its deadline gives authority from now.
    LateReplyGrants:
        "a reply older than its own deadline gives nothing",
    /// A grant counts as held.
    GrantCountsAsHeld:
        "a granted entry has no authority before its own renewal",
    /// A holder entry of mine that a read shows counts as held.
    FoundCountsAsHeld:
        "an entry that is found holding gives nothing: it is renewed",
    /// A hint of the stream counts as the grant's confirmation.
    HintGrants:
        "a hint grants nothing",
    /// A claim that reached its deadline is renewed.
    RenewedAfterDeadline:
        "a claim that ended is never renewed",
    /// The late rejection of a renewal ends the claim.
    OvertakenRejectionObeyed:
        "the late rejection of an overtaken renewal means nothing",
    /// An unknown write counts as never sent.
    UnknownAsFailed:
        "every revision that was sent is kept, for what may have landed",
    /// A renewal writes the revision of the one before it.
    RevisionKept:
        "each attempt of each write carries a fresh revision",
    /// A join of unknown outcome is repeated with another claim.
    JoinedAnew:
        "a join is repeated with the same claim until it is known",
    /// Whoever lost its place joins with the claim that it had.
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
    /// Waiters renew nothing.
    PlaceNotKept:
        "a waiter keeps its place by renewing",
    /// A leave of unknown outcome is forgotten.
    LeaveNotRepeated:
        "a leave is repeated until it is resolved",
    /// Whoever gives up leaves its entry in the queue.
    NoLeaveAtGivingUp:
        "who gives up leaves the queue",
    /// A lock that was lost by its deadline is left to be swept.
    NoLeaveAfterLoss:
        "a lock that was lost by its deadline is left too",
    /// The leave after a loss does not wait for the work.
    LeaveBeforeWork:
        "the leave waits until nothing runs under the claim (I6)",
    /// Holders are swept as soon as grantees.
    DeclaredIgnored:
        "a sweeper waits for the duration that the entry declares",
    /// Grantees are swept at once.
    GrantSweptAtOnce:
        "a grantee has its time to confirm",
    /// Grantees are given as long as holders.
    GrantNeverSwept:
        "a grantee that does not confirm in time is swept",
    /// A new revision does not begin a new wait.
    SightingKept:
        "each new revision begins a new wait",
    /// A grant does not begin a new wait.
    GrantKeepsSighting:
        "a grant begins a new wait",
    /// Only who holds is swept.
    WaitersNotSwept:
        "the dead are swept wherever they stand",
    /// A contender begins without what earlier ones saw.
    NothingRemembered:
        "what was seen of others is kept from one contender to the next",
    /// Holders leave expired entries to those who wait.
    HoldersDoNotSweep:
        "holders sweep too",
    /// A sweep does not compare revisions.
    SweepWithoutRevision:
        "a sweep takes out only what still has the revision that was seen",
    /// A leave grants nobody.
    NoGrantInLeave:
        "a leave grants in the same write",
    /// A sweep grants nobody.
    NoGrantInSweep:
        "a sweep grants in the same write",
    /// A reader is granted past a waiting writer.
    SharedOvertakes:
        "a reader waits behind a writer that waits",
    /// A join sets the number of slots.
    SlotsChanged:
        "the number of slots changes only while the lock is empty",
    /// A confirmation takes the token of the document as it is.
    TokenNotRaised:
        "each confirmation raises the token",
    /// A join does not look whether its claim is there.
    JoinedTwice:
        "a claim is in the document once",
    /// Writes are acknowledged by the primary alone.
    WriteConcernOne:
        "writes are acknowledged by a majority",
}

/// Whether a rule is broken on purpose.
macro_rules! planted {
    ($name:ident) => {
        $crate::lock::mutation::is_planted($crate::lock::mutation::Mutation::$name)
    };
}
pub(crate) use planted;
