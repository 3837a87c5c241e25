//! `make model`: the larger explorations, with their figures.

use std::process::ExitCode;
use std::time::Instant;

use leasehold_model::cases::{long, short};

#[expect(clippy::print_stdout, reason = "figures for people")]
#[expect(clippy::disallowed_methods, reason = "times the exploration itself")]
fn main() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for case in short().into_iter().chain(long()) {
        let start = Instant::now();
        let figures = case.explore();
        let seconds = start.elapsed().as_secs_f64();
        println!("{}: {figures}, {seconds:.0} s", case.name);
        if case.complaint(&figures).is_some() {
            println!("    not as it must be: at least {} states", case.states_min);
            code = ExitCode::FAILURE;
        }
    }
    code
}
