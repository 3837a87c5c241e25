//! Runs all explorations and prints their figures, or only those with `MODEL_ONLY` in their names.

use rustix::time::{ClockId, clock_gettime};

use super::cases::{long, short};

/// Returns the CPU time in seconds, which differs from wall-clock time on a busy machine.
fn processor_seconds() -> i64 {
    clock_gettime(ClockId::ProcessCPUTime).tv_sec
}

#[test]
#[ignore = "ten minutes: make model"]
#[expect(clippy::print_stdout, reason = "figures for people")]
fn every_exploration() {
    let wanted = std::env::var("MODEL_ONLY").unwrap_or_default();
    let mut complaints = Vec::new();
    let cases = short().into_iter().chain(long());
    for case in cases.filter(|case| case.name.contains(&wanted)) {
        let start = processor_seconds();
        let figures = case.explore();
        let seconds = processor_seconds() - start;
        println!("{}: {figures}, {seconds} s of one core", case.name);
        complaints.extend(case.complaint(&figures));
    }
    assert!(complaints.is_empty(), "{complaints:?}");
}
