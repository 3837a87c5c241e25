//! The figures of docs/benchmarks.md, measured on real replica sets with the release binary: speed
//! and cost only, since the tests cover correctness.
//!
//! `cargo bench --bench figures -- [--quick] [--binary FILE] [FIGURE…]`
//!
//! A figure that cannot be measured is reported and does not affect the others. All child processes
//! end with this one, however it ends.

// The fixtures fail by panicking with a reason; a panic fails one figure as a whole.
#![allow(clippy::expect_used)]

mod busy_store;
// The hand-made locks are measured here too, for comparison.
#[path = "../../tests/comparison/client.rs"]
#[allow(
    clippy::disallowed_methods,
    dead_code,
    reason = "shared with the tests of hand-made locks, whose part it is too"
)]
mod client;
mod contender;
#[path = "../../tests/comparison/designs/mod.rs"]
#[allow(
    clippy::disallowed_methods,
    reason = "hand-made locks read wall clocks"
)]
mod designs;
mod frozen_primary;
mod handoff;
mod kubernetes;
mod launch;
mod locks;
mod machine;
mod observer;
mod operators;
mod overlap;
mod profile;
mod report;
mod size;
mod starts;
mod steady;
mod supervision;
mod takeover;
mod usage;

use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::process::ExitCode;

use futures_util::FutureExt;
use leasehold::signals::{Signal, Signals};

use launch::Setup;
use report::{Report, Row};

type Measured = Pin<Box<dyn Future<Output = Vec<Row>>>>;

/// Figures that are measured together, and the names that select their rows.
struct Figure {
    names: &'static [&'static str],
    measure: fn(Setup) -> Measured,
}

const FIGURES: &[Figure] = &[
    Figure {
        names: &["size"],
        measure: |setup| Box::pin(size::measure(setup)),
    },
    Figure {
        names: &["cold_start"],
        measure: |setup| Box::pin(starts::cold_start(setup)),
    },
    Figure {
        names: &["restart"],
        measure: |setup| Box::pin(starts::restart(setup)),
    },
    Figure {
        names: &["handoff"],
        measure: |setup| Box::pin(handoff::of_three(setup)),
    },
    Figure {
        names: &["handoff_50"],
        measure: |setup| Box::pin(handoff::of_fifty(setup)),
    },
    Figure {
        names: &["step_down"],
        measure: |setup| Box::pin(operators::step_down(setup)),
    },
    Figure {
        names: &["leases_watch"],
        measure: |setup| Box::pin(operators::watch(setup)),
    },
    Figure {
        names: &["web_memory"],
        measure: |setup| Box::pin(operators::web(setup)),
    },
    Figure {
        names: &["memory", "cpu", "store_load"],
        measure: |setup| Box::pin(steady::measure(setup)),
    },
    Figure {
        names: &["busy_store"],
        measure: |setup| Box::pin(busy_store::measure(setup)),
    },
    Figure {
        names: &["label", "endpoint", "kubernetes_memory", "api_requests"],
        measure: |setup| Box::pin(kubernetes::of_three(setup)),
    },
    Figure {
        names: &["pods_20"],
        measure: |setup| Box::pin(kubernetes::of_twenty(setup)),
    },
    Figure {
        names: &["lock_uncontended"],
        measure: |setup| Box::pin(locks::uncontended(setup)),
    },
    Figure {
        names: &["lock_handover"],
        measure: |setup| Box::pin(locks::hand_over(setup)),
    },
    Figure {
        names: &["lock_contended"],
        measure: |setup| Box::pin(locks::contended(setup)),
    },
    Figure {
        names: &["workload_handoff"],
        measure: |setup| Box::pin(supervision::handoff(setup)),
    },
    Figure {
        names: &["guard_memory"],
        measure: |setup| Box::pin(supervision::guard_memory(setup)),
    },
    Figure {
        names: &["takeover"],
        measure: |setup| Box::pin(takeover::measure(setup)),
    },
    Figure {
        names: &["frozen_primary"],
        measure: |setup| Box::pin(frozen_primary::measure(setup)),
    },
    Figure {
        names: &["overlap_stall"],
        measure: |setup| Box::pin(overlap::stall(setup)),
    },
    Figure {
        names: &["overlap_stop"],
        measure: |setup| Box::pin(overlap::stop(setup)),
    },
];

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments
        .next_if(|argument| argument == launch::STAGE)
        .is_some()
    {
        return launch::stage(arguments);
    }
    if arguments
        .next_if(|argument| argument == locks::ACT)
        .is_some()
    {
        return locks::carry_out(arguments);
    }
    if arguments
        .next_if(|argument| argument == supervision::WORK)
        .is_some()
    {
        return supervision::carry_out(arguments);
    }
    client::act_as_client();
    let arguments: Vec<String> = arguments
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let (setup, selected) = match parse(&arguments) {
        Ok(parsed) => parsed,
        Err(problem) => {
            say(&problem);
            return ExitCode::from(64);
        }
    };
    // Single-threaded, because child processes end with the thread that started them: see `launch`.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("an event loop can be made");
    runtime.block_on(run(setup, &selected))
}

/// Returns the setup and the names of the selected figures; all figures if none is named.
fn parse(arguments: &[String]) -> Result<(Setup, Vec<String>), String> {
    let mut setup = Setup::default();
    let mut selected = Vec::new();
    let mut arguments = arguments.iter();
    let known = || FIGURES.iter().flat_map(|figure| figure.names);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            // Passed by Cargo.
            "--bench" => {}
            "--quick" => setup.quick = true,
            "--binary" => {
                let path = arguments.next().ok_or("--binary takes a file")?;
                setup.binary = path.into();
            }
            name if known().any(|known| *known == name) => selected.push(name.to_owned()),
            other => {
                let known: Vec<_> = known().copied().collect();
                let known = known.join(" ");
                return Err(format!(
                    "{other}: not a figure; these are: {known}; options: --quick, --binary FILE"
                ));
            }
        }
    }
    if selected.is_empty() {
        selected = known().map(|name| (*name).to_owned()).collect();
    }
    Ok((setup, selected))
}

async fn run(setup: Setup, selected: &[String]) -> ExitCode {
    let mut signals = Signals::register().expect("signal handlers can be registered");
    let mut report = Report::default();
    let mut failed = false;
    let wanted = |name: &&str| selected.iter().any(|selected| selected == name);
    print(&machine::describe(&setup));
    for figure in FIGURES {
        if !figure.names.iter().any(wanted) {
            continue;
        }
        let names = figure.names.join(" ");
        say(&format!("measuring {names}"));
        let measured = AssertUnwindSafe((figure.measure)(setup.clone())).catch_unwind();
        let rows = tokio::select! {
            rows = measured => rows,
            () = stopped(&mut signals) => {
                say("stopped");
                return ExitCode::from(130);
            }
        };
        match rows {
            Ok(rows) => {
                for row in rows.into_iter().filter(|row| wanted(&row.figure)) {
                    say(&row.line());
                    report.add(row);
                }
            }
            // The panic message has shown the reason.
            Err(_) => {
                failed = true;
                report.add(Row::failed(figure.names[0]));
            }
        }
    }
    print(&report.render());
    ExitCode::from(u8::from(failed))
}

async fn stopped(signals: &mut Signals) {
    while signals.next().await != Signal::Stop {}
}

/// Prints a result on standard output.
fn print(text: &str) {
    // A reader that closed the pipe does not want the rest.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// Prints progress on standard error.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
