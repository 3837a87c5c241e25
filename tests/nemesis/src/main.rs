//! Injects random faults into real daemons and jobs on a real replica set, and checks their
//! behavior. `make nemesis` runs this program; docs/verification.md describes it.

// The output is for humans.
#![allow(clippy::print_stdout, clippy::print_stderr)]
// The nemesis waits and measures with real clocks.
#![allow(clippy::disallowed_methods)]

mod actors;
mod candidate;
mod embedder;
mod fault;
mod growth;
mod hand_made;
mod history;
mod job;
mod journal;
mod report;
mod residents;
mod rival;
mod schedule;
mod verdict;
mod world;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::Parser;
use leasehold_testbed::network;
use leasehold_testbed::{Failure, Scratch, skip};

use actors::Actor;
use report::Report;
use world::{Options, Profile, World};

/// Environment variable that marks the process inside the new namespaces.
const INSIDE: &str = "LEASEHOLD_NEMESIS_INSIDE";
/// Minimum length of a run that measures growth.
const SOAK_MINUTES: f64 = 10.0;
/// Time for in-flight calls to finish at the end of the run.
const SETTLE: Duration = Duration::from_secs(2);

/// Injects faults into daemons and jobs, and checks their behavior.
#[derive(Debug, Parser)]
#[command(name = "nemesis", args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Duration, in minutes.
    #[arg(long, default_value_t = 3.0)]
    minutes: f64,
    /// Seed of the faults; random if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// Timings of the leases and of MongoDB's elections.
    #[arg(long, value_enum, default_value_t = Profile::Fast)]
    profile: Profile,
    /// Also inject the faults into holders of other locks, and count their overlaps.
    #[arg(long, requires_all = ["etcdctl", "elector"])]
    rivals: bool,
    /// Path of etcdctl, as printed by tests/testbed/fetch-etcdctl.
    #[arg(long)]
    etcdctl: Option<PathBuf>,
    /// Path of the client-go elector, as printed by `tests/testbed/fetch-go-program elector`.
    #[arg(long)]
    elector: Option<PathBuf>,
    /// Also let daemons publish to an API server that occasionally stalls. Implied by --rivals.
    #[arg(long)]
    kubernetes: bool,
    /// Require TLS, and occasionally replace the set's certificates.
    #[arg(long)]
    tls: bool,
    /// Also keep some processes running throughout, and check whether their resource usage grows
    /// (takes at least 10 minutes; two hours give more precise results).
    #[arg(long)]
    soak: bool,
    /// Inject only faults whose names contain this text, such as "isolated" or "daemon".
    #[arg(long, default_value = "")]
    faults: String,
    /// Binary of another version of leasehold, which occasionally replaces a daemon.
    #[arg(long)]
    other: Option<PathBuf>,
    /// Path of the history checker, as printed by `tests/testbed/fetch-go-program linearizability`.
    #[arg(long)]
    linearizability: Option<PathBuf>,
    /// File for the report in JSON.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Directory for the journals and traces, kept after the run.
    #[arg(long)]
    keep: Option<PathBuf>,
    #[command(subcommand)]
    actor: Option<Actor>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(actor) = arguments.actor {
        return match actor.run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("nemesis: {error}");
                ExitCode::FAILURE
            }
        };
    }
    if arguments.soak && arguments.minutes < SOAK_MINUTES {
        eprintln!(
            "nemesis: --soak needs --minutes {SOAK_MINUTES} or more to measure growth, not {}",
            arguments.minutes
        );
        return ExitCode::from(2);
    }
    if std::env::var_os(INSIDE).is_none() {
        return outside();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime.expect("build the runtime");
    match runtime.block_on(inside(&arguments)) {
        Ok(report) => {
            println!("{}", report.text());
            match report.violations.is_empty() {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            }
        }
        Err(failure) => {
            eprintln!("nemesis: {failure}");
            ExitCode::from(2)
        }
    }
}

/// Runs this program again in new namespaces, so that no process, address or mount outlives the
/// run.
fn outside() -> ExitCode {
    if !rustix::process::geteuid().is_root() {
        skip("needs root, for network namespaces");
        return ExitCode::SUCCESS;
    }
    let this = std::env::current_exe().expect("the path of this program");
    let status = network::alone(this)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .status();
    match status {
        Ok(status) => ExitCode::from(
            status
                .code()
                .and_then(|code| code.try_into().ok())
                .unwrap_or(2),
        ),
        Err(error) => {
            eprintln!(
                "nemesis: cannot start setpriv: {error}; on Debian: apt-get install -y util-linux"
            );
            ExitCode::from(2)
        }
    }
}

async fn inside(arguments: &Arguments) -> Result<Report, Failure> {
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..));
    fastrand::seed(seed);
    println!("nemesis: seed {seed}");
    network::private_directories()?;
    let harness = std::env::current_exe().expect("the path of this program");
    let program = harness.with_file_name("leasehold");
    let scratch = Scratch::new();
    if let Some(keep) = &arguments.keep {
        let made = std::fs::create_dir_all(keep);
        made.map_err(|error| Failure::new(format!("cannot make {}: {error}", keep.display())))?;
    }
    let programs = (harness, program);
    let options = Options {
        profile: arguments.profile,
        other: arguments.other.clone(),
        rivals: arguments.rivals,
        kubernetes: arguments.kubernetes || arguments.rivals,
        tls: arguments.tls,
        etcdctl: arguments.etcdctl.clone(),
        elector: arguments.elector.clone(),
        soak: arguments.soak,
    };
    let world = World::start(options, programs, scratch.path().to_owned()).await?;
    let begun = Instant::now();
    let time = Duration::from_secs_f64(arguments.minutes * 60.0);
    let jobs = world
        .jobs
        .iter()
        .chain(&world.rivals)
        .map(|jobs| jobs.run());
    let story = tokio::select! {
        story = schedule::run(&world, time, &arguments.faults) => story?,
        failed = world.keep_up() => return Err(failed.expect_err("runs until it fails")),
        failed = world.residents() => return Err(failed.expect_err("runs until it fails")),
        failed = futures_util::future::select_all(jobs.map(Box::pin)) => {
            return Err(failed.0.expect_err("runs until it fails"));
        }
    };
    tokio::time::sleep(SETTLE).await;
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    let linearizability = arguments.linearizability.as_deref();
    let judged = verdict::of(world, &story, (seed, minutes), linearizability).await;
    if let Some(keep) = &arguments.keep {
        // Print the report even if the copy fails.
        copy(scratch.path(), keep).unwrap_or_else(|failure| eprintln!("nemesis: {failure}"));
    }
    let report = judged?;
    if let Some(path) = &arguments.report {
        let text = serde_json::to_string_pretty(&report.json()).expect("serialize the report");
        let written = std::fs::write(path, text + "\n");
        written
            .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))?;
    }
    Ok(report)
}

/// Copies the traces and journals to disk after the run. During the run, the files are in memory.
/// On a busy disk, daemons and guards would wait for each trace line, and guards would end commands
/// too late.
fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let failure = |why: String| Failure::new(format!("cannot copy to {}: {why}", to.display()));
    let copied = Command::new("cp")
        .args(["--archive", "--"])
        .args([&from.join("."), to])
        .status();
    match copied {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failure(format!("cp: {status}"))),
        Err(error) => Err(failure(error.to_string())),
    }
}
