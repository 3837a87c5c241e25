//! `make model`: all explorations with their figures, or those whose names
//! contain the first argument.

use std::process::ExitCode;

use leasehold_model::cases::{long, short};
use rustix::time::{ClockId, clock_gettime};

/// Seconds of processor time; on a busy machine they are not those of a clock.
fn processor_seconds() -> i64 {
    clock_gettime(ClockId::ProcessCPUTime).tv_sec
}

#[expect(clippy::print_stdout, reason = "figures for people")]
fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let mut code = ExitCode::SUCCESS;
    let cases = short().into_iter().chain(long());
    for case in cases.filter(|case| case.name.contains(&wanted)) {
        let start = processor_seconds();
        let figures = case.explore();
        let seconds = processor_seconds() - start;
        println!("{}: {figures}, {seconds} s of one core", case.name);
        if case.complaint(&figures).is_some() {
            println!("    not as it must be: at least {} states", case.states_min);
            code = ExitCode::FAILURE;
        }
    }
    code
}
