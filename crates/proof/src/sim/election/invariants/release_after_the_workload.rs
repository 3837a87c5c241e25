//! I6: a process sends a release only when no surface says "leader" and the workload has ended or
//! has had time to notice the loss. A supervised workload must always have ended. Until then, this
//! process and its successors on the status directory do not begin another claim.

use super::{Violation, require, with};

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Release {
    /// The claim never led in this process, so there is nothing to stop.
    pub(crate) never_led: bool,
    /// The claim's deadline has passed, and the workload has had time to notice.
    pub(crate) expired: bool,
    /// An earlier release of the claim has an unknown outcome.
    pub(crate) repeated: bool,
    /// The workload confirmed its end or has had time to notice.
    pub(crate) drained: bool,
    pub(crate) child_runs: bool,
    pub(crate) http_says_leader: bool,
    pub(crate) file_says_leader: bool,
}

pub(crate) fn check(release: Release) -> Option<Violation> {
    let gone = release.never_led || release.expired || release.repeated || release.drained;
    let beside = release.child_runs || release.http_says_leader || release.file_says_leader;
    require(gone && !beside, "I6", &release)
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Acquisition {
    pub(crate) child_runs: bool,
    /// The process takes over the claim of a process that has provably exited, while a child of
    /// that process runs.
    pub(crate) orphan_runs: bool,
}

pub(crate) fn check_acquisition(acquisition: Acquisition) -> Option<Violation> {
    let runs = acquisition.child_runs || acquisition.orphan_runs;
    require(!runs, "I6", &acquisition)
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Beside {
    /// The workload of the releasing process still works under the released claim, because the
    /// workload has not checked since the release.
    pub(crate) works: bool,
    pub(crate) elsewhere: bool,
    /// The document was damaged, a machine was forked, or the machine of that workload was asleep
    /// when the workload's check was due.
    pub(crate) tolerated: bool,
}

pub(crate) fn check_concurrent(beside: Beside) -> Option<Violation> {
    let two_work = beside.works && beside.elsewhere && !beside.tolerated;
    require(!two_work, "I6", &beside)
}

#[test]
fn a_release_after_the_drain_is_in_order() {
    let release = with(Release::default(), |it| it.drained = true);
    assert_eq!(check(release), None);
}

#[test]
fn a_release_before_the_drain_or_while_a_surface_says_leader_is_found() {
    let drained = with(Release::default(), |it| it.drained = true);
    assert!(check(Release::default()).is_some());
    for release in [
        with(drained, |it| it.http_says_leader = true),
        with(drained, |it| it.file_says_leader = true),
        with(drained, |it| it.child_runs = true),
    ] {
        assert!(check(release).is_some(), "{release:?}");
    }
}

#[test]
fn a_workload_that_has_not_looked_keeps_others_from_leading() {
    let beside = Beside {
        works: true,
        elsewhere: true,
        tolerated: false,
    };
    assert!(check_concurrent(beside).is_some());
    for fine in [
        with(beside, |it| it.works = false),
        with(beside, |it| it.elsewhere = false),
        with(beside, |it| it.tolerated = true),
    ] {
        assert_eq!(check_concurrent(fine), None);
    }
}

#[test]
fn nothing_is_acquired_while_an_earlier_child_runs() {
    let acquisition = |child_runs, orphan_runs| Acquisition {
        child_runs,
        orphan_runs,
    };
    assert_eq!(check_acquisition(acquisition(false, false)), None);
    assert!(check_acquisition(acquisition(true, false)).is_some());
    assert!(check_acquisition(acquisition(false, true)).is_some());
}
