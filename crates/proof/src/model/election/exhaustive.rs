//! Goal: no order of events within the bounds violates I1, I3, I7, I8 or I10. To show that the
//! model would notice a violation, every case must reach its milestones. Moreover, the model must
//! find two leaders if the clock rates differ more than the protocol allows.

use crate::proof::model::election::cases::{beyond_the_ratio, short};
use crate::proof::model::exploration::Case as _;

/// To see the figures, run `cargo test -- --nocapture`.
#[expect(clippy::print_stdout, reason = "prints figures")]
fn every_run_holds(index: usize) {
    let case = short().swap_remove(index);
    let figures = case.explore();
    println!("{}: {figures}", case.name);
    assert_eq!(case.complaint(&figures), None);
}

/// Defines one test for each case, so that the cases run in parallel.
macro_rules! tests {
    ($($index:literal $name:ident)+) => {
        $(#[test]
        fn $name() {
            every_run_holds($index);
        })+
    };
}

tests! {
    0 two_candidates_with_a_fault_and_a_request
    1 two_candidates_on_change_streams
    2 a_document_that_is_deleted
    3 three_candidates_with_a_fault
    4 two_candidates_that_declare_different_durations
    5 a_lease_that_is_paused
    6 a_lease_that_is_transferred
    7 a_pause_on_change_streams
    8 a_transfer_among_three_candidates
    9 a_standby_and_a_request
    10 a_standby_on_change_streams_with_a_fault
    11 a_preferred_standby
    12 a_release_that_is_announced
}

#[test]
fn every_case_of_the_test_run_has_a_test() {
    assert_eq!(short().len(), 13);
}

#[test]
fn i1_breaks_as_soon_as_the_clocks_are_further_apart_than_the_ratio() {
    // The clock rates may differ by a factor of 4/3. With rates of 750 and 1000, the tests above
    // pass. With rates of 740 and 1000, this test must find two leaders.
    let figures = beyond_the_ratio([740, 1000]);
    let (broken, steps) = figures.broken.expect("two leaders");
    assert!(broken.starts_with("I1"), "{broken}");
    assert!(steps.len() < 20, "{steps:?}");
}
