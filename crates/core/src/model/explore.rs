//! All explorations with their figures, or those whose names contain
//! `MODEL_ONLY`.

use rustix::time::{ClockId, clock_gettime};

use super::cases::{long, short};

/// Seconds of processor time; on a busy machine they are not those of a clock.
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
