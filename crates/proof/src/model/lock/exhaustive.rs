//! Goal: no order of events within the bounds violates exclusion, the order of tokens, the rule
//! that every possible grant is made, the order of the queue, or liveness. To show that the model
//! would notice a violation, every case must reach its milestones. Moreover, the model must find
//! two holders if the clock rates differ more than the protocol allows.

use crate::lock::LockMode::Exclusive;
use crate::proof::model::exploration::Case as _;
use crate::proof::model::lock::bounds::Seat;
use crate::proof::model::lock::cases::{beyond_the_ratio, short};

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
    0 two_contenders_with_a_fault
    1 two_contenders_on_change_streams
    2 three_contenders
    3 a_reader_and_a_writer
    4 two_readers
    5 a_least_time_and_a_kill
    6 work_once_and_a_delay
    7 grants
    8 grants_and_a_delay
    9 grants_and_a_duplicate
    10 a_missing_document_and_a_contender_that_gives_up
}

#[test]
fn every_case_of_the_test_run_has_a_test() {
    assert_eq!(short().len(), 11);
}

#[test]
fn exclusion_breaks_as_soon_as_the_clocks_are_further_apart_than_the_ratio() {
    // The clock rates may differ by a factor of 4/3. With rates of 1500 and 2000, the tests above
    // pass. With rates of 1490 and 2000, this test must find two holders.
    let figures = beyond_the_ratio([1490, 2000].map(|rate| Seat::of(rate, Exclusive)));
    let (broken, steps) = figures.broken.expect("two holders");
    assert_eq!(broken, "exclusion");
    assert!(steps.len() < 20, "{steps:?}");
}

#[test]
fn a_grant_excludes_others_up_to_the_same_ratio() {
    // With rates of 75 and 100, `make model` passes. With rates of 74 and 100, this test must find
    // two holders.
    let figures = beyond_the_ratio([74, 100].map(|rate| Seat::of_grants(rate, Exclusive)));
    let (broken, steps) = figures.broken.expect("two holders");
    assert_eq!(broken, "exclusion");
    let frozen = |step: &String| step.starts_with("Freeze");
    assert!(steps.iter().any(frozen), "{steps:?}");
}
