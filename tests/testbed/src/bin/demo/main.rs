//! The demonstration: three daemons contend for one lease on a private replica set. The leader is
//! killed; then its successor hands off the lease.
//!
//! `KEEP=1` leaves everything running. `demo mongodb` starts only the replica set and leaves it
//! running, for the tutorial. `demo stop` ends both.

// The output is for humans.
#![allow(clippy::print_stdout, clippy::print_stderr)]
// The demonstration measures the daemons from outside.
#![allow(clippy::disallowed_methods)]

mod kept;
mod view;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use leasehold_testbed::daemon::{boottime_ns, leads};
use leasehold_testbed::timeline::readable;
use leasehold_testbed::{Daemon, DaemonTimings, Failure, ReplicaSet, mongod_binary};

use view::View;

const TIMINGS: DaemonTimings = DaemonTimings::DEMO;
const IDENTITIES: [&str; 3] = ["anna", "bert", "cleo"];
/// Time that each state stays on the screen.
const LOOK: Duration = Duration::from_secs(4);
/// Interval between reads of the status files, and resolution of the measurements.
const FRAME: Duration = Duration::from_millis(2);
/// Interval between redraws of the screen.
const PICTURE: Duration = Duration::from_millis(100);
/// Maximum catch-up time of a new primary. `leasehold check` warns if a replica set has no limit.
const CATCH_UP: Duration = Duration::from_millis(200);
/// Maximum wait for a leader, far above the lease duration.
const LEADER_MAX: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let argument = std::env::args().nth(1);
    match argument.as_deref() {
        None | Some("mongodb") => {}
        Some("stop") => {
            println!("{} processes ended", kept::end());
            return ExitCode::SUCCESS;
        }
        Some(other) => {
            eprintln!("demo: unknown argument {other}: only mongodb and stop are known");
            return ExitCode::from(64);
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("build the runtime");
    let done = runtime.block_on(async {
        tokio::select! {
            done = async {
                match argument {
                    None => demonstrate().await,
                    Some(_) => mongodb().await,
                }
            } => done,
            // The other branch owns all processes. Dropping that branch ends the processes.
            _ = stop_requested() => {
                println!("\ninterrupted; all processes ended");
                Ok(())
            }
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("demo: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn stop_requested() {
    use tokio::signal::unix::{SignalKind, signal};

    let listen = |kind| signal(kind).expect("install a signal handler");
    let mut interrupted = listen(SignalKind::interrupt());
    let mut terminated = listen(SignalKind::terminate());
    let mut hung_up = listen(SignalKind::hangup());
    tokio::select! {
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
        _ = hung_up.recv() => {}
    }
}

/// Starts a replica set and leaves it running. Prints a shell assignment with the connection string
/// to standard output, and everything else to standard error.
async fn mongodb() -> Result<(), Failure> {
    refuse_a_second_one()?;
    eprintln!("starting three mongod on loopback");
    let set = ReplicaSet::builder().detached().catch_up(CATCH_UP);
    let set = set.try_start().await?;
    note(&set, &[])?;
    println!("export LEASEHOLD_MONGODB__URI='{}'", set.uri());
    eprintln!("the replica set is up; `make stop` ends it and removes its data");
    set.leave_up();
    Ok(())
}

/// Fails if an earlier demonstration is still running, because the file can record only one
/// demonstration.
fn refuse_a_second_one() -> Result<(), Failure> {
    match kept::any_runs() {
        true => Err(Failure::new(
            "an earlier demonstration is still running; to end it: make stop",
        )),
        false => Ok(()),
    }
}

async fn demonstrate() -> Result<(), Failure> {
    let keep = std::env::var("KEEP").is_ok_and(|value| !value.is_empty() && value != "0");
    if keep {
        refuse_a_second_one()?;
    }
    let mut view = View::new(TIMINGS.lease_duration);
    view.say(&introduction());
    mongod_binary()?;
    let begin = Instant::now();
    let builder = ReplicaSet::builder();
    let set = if keep { builder.detached() } else { builder }
        .try_start()
        .await?;
    view.say(&format!(
        "the set is up, after {}",
        readable(begin.elapsed())
    ));

    let uri = set.uri();
    let mut daemons = Vec::new();
    for identity in IDENTITIES {
        let builder = Daemon::builder(binary())
            .untraced()
            .lease("demo")
            .identity(identity)
            .uri(&uri);
        let builder = builder.timings(TIMINGS).handoff_delay("0s");
        daemons.push(if keep { builder.detached() } else { builder }.try_start()?);
    }
    let begin = Instant::now();
    let first = next_leader(&mut view, &daemons, None).await?;
    let took = readable(begin.elapsed());
    view.say(&format!(
        "{} leads, {took} after the daemons started",
        daemons[first].identity()
    ));
    if keep {
        look(&mut view, &daemons).await;
        view.finish();
        println!("\n{}", kept_up(&set, &daemons));
        // If the demonstration is interrupted before this point, all of its processes end.
        note(&set, &daemons)?;
        daemons.into_iter().for_each(Daemon::leave_up);
        set.leave_up();
        return Ok(());
    }
    look(&mut view, &daemons).await;
    let second = kill(&mut view, &daemons, first).await?;
    look(&mut view, &daemons).await;
    hand_off(&mut view, &daemons, second).await?;
    look(&mut view, &daemons).await;
    view.finish();
    drop(daemons);
    drop(set);
    view.say("all processes ended, all data removed; next: docs/tutorial.md");
    Ok(())
}

/// Kills the leader (SIGKILL), so the others wait until its lease expires.
async fn kill(view: &mut View, daemons: &[Daemon], leader: usize) -> Result<usize, Failure> {
    let name = daemons[leader].identity();
    let status = daemons[leader].status();
    // Authority lasts for the renew deadline, counted from when the last acknowledged renewal was
    // sent.
    let until = Duration::from_nanos(status["valid_until_boottime_ns"].as_u64().unwrap_or(0));
    let renewed = until.saturating_sub(TIMINGS.renew_deadline);
    let killed = Duration::from_nanos(boottime_ns());
    daemons[leader].kill();
    view.say(&format!(
        "{name} is killed (SIGKILL); the others wait until its lease expires"
    ));
    let next = next_leader(view, daemons, Some(leader)).await?;
    let now = Duration::from_nanos(boottime_ns());
    view.say(&format!(
        "{} took over {} after the kill,\n{} after {name}'s last renewal (the lease is {})",
        daemons[next].identity(),
        readable(now.saturating_sub(killed)),
        readable(now.saturating_sub(renewed)),
        readable(TIMINGS.lease_duration),
    ));
    Ok(next)
}

/// Sends SIGTERM to the leader, which releases the lease before it exits.
async fn hand_off(view: &mut View, daemons: &[Daemon], leader: usize) -> Result<(), Failure> {
    let name = daemons[leader].identity();
    view.say(&format!("{name} receives SIGTERM and hands off gracefully"));
    let begin = Instant::now();
    daemons[leader].term();
    let next = next_leader(view, daemons, Some(leader)).await?;
    let took = readable(begin.elapsed());
    view.say(&format!(
        "{} leads {took} after the signal",
        daemons[next].identity()
    ));
    Ok(())
}

async fn next_leader(
    view: &mut View,
    daemons: &[Daemon],
    before: Option<usize>,
) -> Result<usize, Failure> {
    let end = Instant::now() + LEADER_MAX;
    let mut picture = Instant::now();
    loop {
        let found = daemons.iter().enumerate().position(|(index, daemon)| {
            Some(index) != before && daemon.try_status().as_ref().is_some_and(leads)
        });
        if let Some(index) = found {
            return Ok(index);
        }
        let unwell = daemons
            .iter()
            .find(|daemon| !matches!(daemon.exit_code(), None | Some(0 | 137)));
        if let Some(daemon) = unwell.or(daemons.first().filter(|_| Instant::now() > end)) {
            let (name, code) = (daemon.identity(), daemon.exit_code());
            let log = daemon.logs();
            return Err(Failure::new(format!(
                "no daemon leads; {name} (exit {code:?}) logged:\n{log}"
            )));
        }
        if Instant::now() >= picture {
            view.show(daemons);
            picture += PICTURE;
        }
        tokio::time::sleep(FRAME).await;
    }
}

async fn look(view: &mut View, daemons: &[Daemon]) {
    let end = Instant::now() + LOOK;
    while Instant::now() < end {
        view.show(daemons);
        tokio::time::sleep(PICTURE).await;
    }
}

fn introduction() -> String {
    let DaemonTimings {
        lease_duration,
        renew_deadline,
        renew_interval,
        retry_interval,
        operation_timeout: _,
        loss_grace: _,
    } = TIMINGS;
    format!(
        "three daemons, one lease, a private MongoDB replica set\n\
         short timings, to be worth watching: lease {}, deadline {},\n\
         renewal every {}, retry every {}, handoff delay 0",
        readable(lease_duration),
        readable(renew_deadline),
        readable(renew_interval),
        readable(retry_interval),
    )
}

fn note(set: &ReplicaSet, daemons: &[Daemon]) -> Result<(), Failure> {
    let pids: Vec<_> = daemons.iter().map(Daemon::pid).chain(set.pids()).collect();
    let directories = daemons
        .iter()
        .map(Daemon::directory)
        .chain([set.directory()]);
    let directories: Vec<_> = directories.map(PathBuf::from).collect();
    kept::note(&pids, &directories).map_err(|error| Failure::new(format!("note: {error}")))
}

fn kept_up(set: &ReplicaSet, daemons: &[Daemon]) -> String {
    let mut text = format!("connection string  {}\n", set.uri());
    for daemon in daemons {
        let (name, pid, port) = (daemon.identity(), daemon.pid(), daemon.port());
        text += &format!("\n{name} (process {pid})\n");
        text += &format!("  http://127.0.0.1:{port}/status\n  http://127.0.0.1:{port}/metrics\n");
        text += &format!("  {}\n", daemon.status_directory().display());
    }
    let pids: Vec<_> = set.pids().iter().map(u32::to_string).collect();
    text += &format!(
        "\nmongod processes   {}\nto end all of it   make stop",
        pids.join(" ")
    );
    text
}

/// Returns the path of leasehold. Cargo puts both binaries into the same directory.
fn binary() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program.with_file_name("leasehold")
}
