//! Runs the explorations and prints their figures. `MODEL_ONLY` selects the explorations whose
//! names contain its value.

use rustix::time::{ClockId, clock_gettime};

use super::exploration::Case;
use super::{election, lock};

/// Returns CPU time, because wall-clock time depends on the load of the machine.
fn processor_seconds() -> i64 {
    clock_gettime(ClockId::ProcessCPUTime).tv_sec
}

#[expect(clippy::print_stdout, reason = "prints figures")]
fn complaints(cases: impl IntoIterator<Item = impl Case>) -> Vec<String> {
    let wanted = std::env::var("MODEL_ONLY").unwrap_or_default();
    let mut complaints = Vec::new();
    let cases = cases.into_iter();
    for case in cases.filter(|case| case.name().contains(&wanted)) {
        let start = processor_seconds();
        let figures = case.explore();
        let seconds = processor_seconds() - start;
        println!("{}: {figures}, {seconds} s of one core", case.name());
        complaints.extend(case.complaint(&figures));
    }
    complaints
}

#[test]
#[ignore = "ten minutes: make model"]
fn every_exploration() {
    let mut complained = complaints(election::cases::short());
    complained.extend(complaints(election::cases::long()));
    complained.extend(complaints(lock::cases::short()));
    complained.extend(complaints(lock::cases::long()));
    assert!(complained.is_empty(), "{complained:?}");
}
