//! Planted bugs of the locks. Each bug breaks one rule, to prove that a test fails when the rule is
//! missing.
//!
//! `crates/core/src/lock.rs` includes this file as its module `mutation` in builds of
//! `leasehold-proof`. In every other build `planted!` expands to `false`.

crate::election::mutation::mutations! {
    RenewalFromReply:
        "authority counts from an instant before the renewal was sent, never from its acknowledgement",
    /// A contender's write with an unknown outcome counts as a grant.
    UnknownGrants:
        "an unknown outcome grants nothing",
    /// Provisional authority counts from the event or reply that showed the grant.
    GrantFromEvent:
        "provisional authority counts from a time before the grant, on the owner's clock",
    /// Provisional authority counts from the reply to the write that carried the granted revision.
    AnchorAtReply:
        "the authority of a grant is measured from the time when the granted revision was sent",
    /// Provisional authority counts from the newest write of the claim.
    AnchorPerClaim:
        "the authority of a grant is measured from the granted revision, not from the claim's other writes",
    /// Provisional authority lasts as long as other contenders wait, so a slow clock lets two
    /// contenders hold the lock.
    GrantWithoutRatio:
        "provisional authority is a share of the renew deadline, not of the lease duration",
    /// An unconfirmed grant confers authority for a whole renew deadline.
    NeverConfirmed:
        "a grant is confirmed before its provisional authority ends",
    /// A granted entry counts as unconfirmed even after its owner has written.
    GrantAsFlag:
        "a grant is unconfirmed only while the entry has the granted revision",
    RenewedAfterDeadline:
        "a claim that ended is never renewed",
    /// A write with an unknown outcome counts as never sent.
    UnknownAsFailed:
        "every revision that was sent is kept, because its write may have been applied",
    RevisionKept:
        "each attempt of each write carries a fresh revision",
    /// A contender repeats a join of unknown outcome with another claim.
    JoinedAnew:
        "a join is repeated with the same claim until its outcome is known",
    /// A contender that lost its entry joins again with the ended claim.
    ClaimReused:
        "a claim that lost its place has ended, and the next join has a new claim",
    RejectionRepeated:
        "after a rejected write, a contender reads before it writes again",
    /// A majority read that does not show the claim counts as proof of its absence.
    PlainReadProvesAbsence:
        "only a write or a linearizable read proves the claim absent",
    LeaveBeforeWork:
        "a contender leaves only when no work runs under the claim (I6)",
    /// The wait for an unchanged entry begins again with each observation.
    SightingAnew:
        "an unchanged entry keeps the instant at which it was first seen",
    /// A contender starts without the observations of earlier contenders on its machine.
    NothingRemembered:
        "observations of other entries are kept from one contender to the next",
    LeaveBeforeLeastTime:
        "the lock stays taken for the minimum hold even if the work has ended",
    /// An entry stays for its minimum hold although its work never began.
    GivenUpPlaceKept:
        "there is no minimum hold for work that never began",
    DeathEndsLeastTime:
        "the lock stays taken for the minimum hold even if its owner has exited",
    LeastTimeUndeclared:
        "the minimum hold is declared before the work begins",
    /// Work begins after a grant that does not show the recorded successes.
    GrantWithoutSuccesses:
        "work that is done once per period begins only after a reply has shown earlier successes",
    ReleaseAssumed:
        "a release counts as done only if a reply confirms it",
    AnyEndIsASuccess:
        "only work that succeeded is recorded",
    /// An eviction without entries matches no document, so nothing grants the lock after an edit.
    OverlookedWaits:
        "after an edit that leaves room, the head of the queue is granted the lock",
    ConfirmedWithoutPause:
        "a confirmation that finds no free slot is repeated after a pause",
    LeaveByClaim:
        "a leave removes an entry only if the sender wrote the entry's revision",
    /// Ids come only from the generator. After a machine is copied, both copies draw the same ids.
    IdsOfGenerator:
        "ids are different on the copies of a machine",
    /// A success with a date in the future counts until that date.
    FutureSuccessCounts:
        "a success counts only for one period, measured by the store's clock",
    SweepWithoutRevision:
        "an eviction removes only entries that still have the revision that was seen",
    NoGrantInLeave:
        "a leave also grants the lock to the next entries, in the same write",
    NoGrantInSweep:
        "an eviction also grants the lock to the next entries, in the same write",
    SharedOvertakes:
        "a shared contender does not overtake a waiting exclusive contender",
    SlotsChanged:
        "the number of slots changes only while the lock is empty",
    SlotTwice:
        "no two holders have the same slot",
    TokenNotRaised:
        "each confirmation raises the token",
    JoinedTwice:
        "a claim is in the document at most once",
    WriteConcernOne:
        "writes are acknowledged by a majority",
}

macro_rules! planted {
    ($name:ident) => {
        $crate::lock::mutation::is_planted($crate::lock::mutation::Mutation::$name)
    };
    ($name:ident, $bug:expr, $rule:expr) => {
        if $crate::lock::mutation::is_planted($crate::lock::mutation::Mutation::$name) {
            $bug
        } else {
            $rule
        }
    };
}
pub(crate) use planted;
