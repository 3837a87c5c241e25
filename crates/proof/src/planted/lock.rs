//! Planted bugs of the locks. Each breaks one rule, to prove that a test fails when the rule is
//! missing.
//!
//! `crates/core/src/lock.rs` includes this file as its module `mutation` in builds of
//! `leasehold-proof`. In every other build `planted!` expands to `false`.

crate::election::mutation::mutations! {
    /// Authority of a renewal counts from its reply.
    RenewalFromReply:
        "authority counts from before the renewal was sent, never from its acknowledgement",
    /// A contending write of unknown outcome counts as a grant.
    UnknownGrants:
        "an unknown outcome grants nothing",
    /// Provisional authority counts from the event or reply that shows the grant.
    GrantFromEvent:
        "provisional authority counts from an instant of the owner that precedes the grant",
    /// Provisional authority counts from the reply to the write that carried the granted revision.
    AnchorAtReply:
        "the authority of a grant counts from when the granted revision was sent",
    /// Provisional authority counts from the newest write of the claim.
    AnchorPerClaim:
        "the authority of a grant counts from the granted revision, not from other writes of the claim",
    /// Provisional authority lasts as long as others wait, which ignores different clock rates.
    GrantWithoutRatio:
        "provisional authority is a share of the renew deadline, not of the lease duration",
    /// Authority from a grant lasts for a whole renew deadline without a confirmation.
    NeverConfirmed:
        "a grant is confirmed before its provisional authority ends",
    /// A granted entry still counts as unconfirmed after its owner has written.
    GrantAsFlag:
        "a grant is unconfirmed only while the entry has the granted revision",
    /// A claim that reached its deadline is renewed.
    RenewedAfterDeadline:
        "a claim that ended is never renewed",
    /// A write of unknown outcome counts as never sent.
    UnknownAsFailed:
        "every revision that was sent is kept, because its write may have been applied",
    /// A renewal carries the revision of the previous write.
    RevisionKept:
        "each attempt of each write carries a fresh revision",
    /// A join of unknown outcome is repeated with another claim.
    JoinedAnew:
        "a join is repeated with the same claim until its outcome is known",
    /// A contender that lost its entry joins again with the ended claim.
    ClaimReused:
        "a claim that lost its place has ended, and the next join has a new claim",
    /// A rejected write is repeated without a read.
    RejectionRepeated:
        "a rejected write is followed by a read before the next write",
    /// A majority read proves the claim absent.
    PlainReadProvesAbsence:
        "only a write or a linearizable read proves the claim absent",
    /// The leave after a loss does not wait until the work has ended.
    LeaveBeforeWork:
        "the leave waits until no work runs under the claim (I6)",
    /// The wait for an unchanged entry begins again with each observation.
    SightingAnew:
        "an unchanged entry keeps the instant at which it was first seen",
    /// A contender starts without the observations of earlier contenders on its machine.
    NothingRemembered:
        "observations of other entries are kept from one contender to the next",
    /// An owner whose work ends early leaves before its minimum hold has passed.
    LeaveBeforeLeastTime:
        "the lock stays taken for the minimum hold although the work has ended",
    /// An entry stays for its minimum hold although its work never began.
    GivenUpPlaceKept:
        "there is no minimum hold for work that never began",
    /// The entry of an exited process expires before its minimum hold has passed.
    DeathEndsLeastTime:
        "the lock stays taken for the minimum hold although its owner has exited",
    /// Work begins before its minimum hold is declared.
    LeastTimeUndeclared:
        "the minimum hold is declared before the work begins",
    /// Work begins after a grant although the grant does not show the recorded successes.
    GrantWithoutSuccesses:
        "work that is done once per period begins only after a reply that shows the successes",
    /// A release that was never confirmed counts as done.
    ReleaseAssumed:
        "a release counts as done only if a reply confirms it",
    /// A claim that ends without success counts as a success of its work.
    AnyEndIsASuccess:
        "only work that succeeded is recorded",
    /// An eviction without entries matches no document.
    OverlookedWaits:
        "after an edit that leaves room, the head of the queue is granted",
    /// A grantee without a free slot confirms again immediately.
    ConfirmedWithoutPause:
        "a confirmation that finds no free slot is repeated after a pause",
    /// The filter of a leave compares only the claim.
    LeaveByClaim:
        "a leave removes an entry only if the sender has sent its revision",
    /// Ids come only from the machine's generator.
    IdsOfGenerator:
        "ids are different on the copies of a machine",
    /// A success dated in the future counts until its date.
    FutureSuccessCounts:
        "a success counts only within one period of the store's clock",
    /// An eviction does not compare revisions.
    SweepWithoutRevision:
        "an eviction removes only entries that still have the revision that was seen",
    /// A leave does not grant.
    NoGrantInLeave:
        "a leave grants in the same write",
    /// An eviction does not grant.
    NoGrantInSweep:
        "an eviction grants in the same write",
    /// A shared contender is granted before an exclusive contender that waits.
    SharedOvertakes:
        "a shared contender does not overtake a waiting exclusive contender",
    /// A join sets the number of slots.
    SlotsChanged:
        "the number of slots changes only while the lock is empty",
    /// A grant assigns a slot that another holder has.
    SlotTwice:
        "no two holders have the same slot",
    /// A confirmation takes the document's token without raising it.
    TokenNotRaised:
        "each confirmation raises the token",
    /// A join does not check whether its claim is already in the document.
    JoinedTwice:
        "a claim is in the document at most once",
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
