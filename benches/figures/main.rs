//! The figures of docs/benchmarks.md, measured on real replica sets with the release binary. The
//! figures cover only speed and cost, because the tests cover correctness.
//!
//! `cargo bench --bench figures -- --help` lists the options. The name `peers` selects all figures
//! that compare leasehold with other electors and locks. Their names begin with `peers_`.
//!
//! A figure that cannot be measured is reported and does not affect the others. All child processes
//! end when this process ends, even if it is killed.

// A fixture that fails panics with the reason, and the panic fails the whole figure.
#![allow(clippy::expect_used)]

mod busy_store;
// The benchmarks compare leasehold with these hand-made locks.
#[path = "../../tests/comparison/client.rs"]
#[allow(
    clippy::disallowed_methods,
    dead_code,
    reason = "only the tests of hand-made locks use the rest"
)]
mod client;
mod contender;
#[path = "../../tests/comparison/designs/mod.rs"]
#[allow(
    clippy::disallowed_methods,
    reason = "hand-made locks read wall clocks"
)]
mod designs;
mod floor;
mod frozen_primary;
mod handoff;
mod hostile;
mod kubernetes;
mod launch;
mod locks;
mod machine;
mod observer;
mod operators;
mod options;
mod overlap;
mod peers;
mod profile;
mod profiles;
mod regions;
mod report;
mod results;
mod size;
mod starts;
mod steady;
mod supervision;
mod takeover;
mod usage;

use std::collections::BTreeMap;
use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;

use futures_util::FutureExt;
use leasehold::signals::{Signal, Signals};

use launch::Setup;
use options::{Options, Order};
use report::{Report, Row};
use results::Results;

type Measured = Pin<Box<dyn Future<Output = Vec<Row>>>>;

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
        names: &["workload_killed"],
        measure: |setup| Box::pin(supervision::killed(setup)),
    },
    Figure {
        names: &["container_killed"],
        measure: |setup| Box::pin(supervision::container_killed(setup)),
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
        names: &["profiles"],
        measure: |setup| Box::pin(profiles::measure(setup)),
    },
    Figure {
        names: &["frozen_primary"],
        measure: |setup| Box::pin(frozen_primary::measure(setup)),
    },
    Figure {
        names: &["regions"],
        measure: |setup| Box::pin(regions::measure(setup)),
    },
    Figure {
        names: &["hostile"],
        measure: |setup| Box::pin(hostile::measure(setup)),
    },
    Figure {
        names: &["overlap_stall"],
        measure: |setup| Box::pin(overlap::stall(setup)),
    },
    Figure {
        names: &["overlap_stop"],
        measure: |setup| Box::pin(overlap::stop(setup)),
    },
    Figure {
        names: &["peers_election"],
        measure: |setup| Box::pin(peers::elections::measure(setup)),
    },
    Figure {
        names: &["peers_rest"],
        measure: |setup| Box::pin(peers::rest::measure(setup)),
    },
    Figure {
        names: &["peers_lock"],
        measure: |setup| Box::pin(peers::locks::measure(setup)),
    },
    Figure {
        names: &["peers_busy"],
        measure: |setup| Box::pin(peers::busy::measure(setup)),
    },
    Figure {
        names: &["peers_many"],
        measure: |setup| Box::pin(peers::many::measure(setup)),
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
    if arguments
        .next_if(|argument| argument == regions::INSIDE)
        .is_some()
    {
        return regions::carry_out(arguments);
    }
    client::act_as_client();
    let arguments: Vec<String> = arguments
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let known: Vec<_> = FIGURES
        .iter()
        .flat_map(|figure| figure.names)
        .copied()
        .collect();
    let options = match options::parse(&arguments, &known) {
        Ok(Order::Measure(options)) => options,
        Ok(Order::Help) => {
            print(&options::help(&known));
            return ExitCode::SUCCESS;
        }
        Ok(Order::Table(path)) => return tables(&path),
        Err(problem) => {
            say(&problem);
            return ExitCode::from(64);
        }
    };
    // Single-threaded, because child processes exit with the thread that started them; see
    // `launch`.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("create an event loop");
    runtime.block_on(run(&options))
}

fn tables(path: &Path) -> ExitCode {
    match Results::read(path) {
        Ok(results) => {
            print(results.tables().trim_end());
            ExitCode::SUCCESS
        }
        Err(problem) => {
            say(&problem);
            ExitCode::from(66)
        }
    }
}

async fn run(options: &Options) -> ExitCode {
    match measure(options).await {
        Ok(false) => ExitCode::SUCCESS,
        Ok(true) => ExitCode::FAILURE,
        Err(Stopped) => {
            say("stopped");
            ExitCode::from(130)
        }
    }
}

struct Stopped;

/// Measures all selected figures on all selected disks. Returns true if a figure failed.
async fn measure(options: &Options) -> Result<bool, Stopped> {
    let mut signals = Signals::register().expect("register signal handlers");
    let mut report = Report::default();
    let mut failed = false;
    let mut results = match header(options).await {
        Ok(results) => results,
        Err(problem) => {
            say(&problem);
            return Ok(true);
        }
    };
    print(&machine::describe(&options.setup, &results.disks));
    for disk in &options.disks {
        for figure in FIGURES {
            if !figure.names.iter().any(|name| options.selects(name)) {
                continue;
            }
            let names = figure.names.join(" ");
            say(&format!("measuring {names}, disk {}", disk.name));
            let setup = disk.setup(&options.setup);
            let measured = AssertUnwindSafe((figure.measure)(setup)).catch_unwind();
            let rows = tokio::select! {
                rows = measured => rows,
                () = stopped(&mut signals) => return Err(Stopped),
            };
            // The panic message has already shown the reason.
            let rows = rows.unwrap_or_else(|_| vec![Row::failed(figure.names[0])]);
            for mut row in rows.into_iter().filter(|row| options.selects(row.figure)) {
                row.disk = disk.name;
                failed |= row.is_failed();
                say(&row.line());
                report.add(row);
            }
            // Write the file after each figure, because a complete run takes hours.
            peers::targets::apply(&mut report.rows);
            results.rows = report.measured();
            let written = options.output.as_ref().map(|path| results.write(path));
            written.transpose().unwrap_or_else(|problem| {
                say(&problem);
                failed = true;
                None
            });
        }
    }
    if let Some(table) = report.render() {
        print(&table);
    }
    if results.compares() {
        print(&results.tables());
    }
    Ok(failed)
}

/// Returns results without rows. First checks the disks and the output file and builds the compared
/// programs, so that no build runs during a measurement.
async fn header(options: &Options) -> Result<Results, String> {
    let load = machine::load();
    let mut disks = BTreeMap::new();
    for disk in &options.disks {
        let description = machine::disk(disk.storage);
        let description =
            description.map_err(|failure| format!("--disk {}: {failure}", disk.name))?;
        disks.insert(disk.name.to_owned(), description);
    }
    let results = Results {
        schema: results::SCHEMA,
        machine: machine::machine(),
        load,
        sizes: machine::sizes(&options.setup).to_owned(),
        versions: peers::versions(&options.setup, options.compares()).await,
        disks,
        rows: Vec::new(),
    };
    if let Some(path) = &options.output {
        results.write(path)?;
    }
    Ok(results)
}

async fn stopped(signals: &mut Signals) {
    while !matches!(signals.next().await, Signal::Stop(_)) {}
}

fn print(text: &str) {
    // A reader that has closed the pipe does not need the rest.
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

fn say(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
