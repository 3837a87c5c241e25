//! Measures one leader across three regions with a round-trip time between them. Each region has a
//! member of the replica set and a candidate. Each round-trip time is measured by a separate
//! process in its own namespaces. All these processes run at once, because they spend most of their
//! time waiting. The delay applies between a daemon and the members of other regions, and between
//! members. Member 0, in region 0, is preferred as the primary.

mod world;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::network::{UNSHARE, private_directories};
use leasehold_testbed::{Daemon, DaemonTimings, Launch, Scratch, Storage};
use serde::{Deserialize, Serialize};

use crate::handoff::{standby, stored};
use crate::launch::{Setup, directories, seconds, watching};
use crate::observer::Observer;
use crate::report::{Bound, Row, Statistic, Unit};
use crate::results::OURS;
use crate::usage::Work;
use crate::{profiles, takeover};
use world::{Floors, REGIONS, World};

/// First argument of this program when it measures one round-trip time.
pub(crate) const INSIDE: &str = "--regions-inside";

const FIGURE: &str = "regions";
const ROUND_TRIPS_MS: [u64; 3] = [20, 80, 150];
const MEASURED_MAX: Duration = Duration::from_secs(1800);
const LEADS_MAX: Duration = Duration::from_secs(90);
const EXIT_MAX: Duration = Duration::from_secs(20);
/// Time after which the daemons have started and do nothing but renew.
const SETTLE: Duration = Duration::from_secs(15);
/// Pause between rounds. The other daemons write their files during the pause.
const BETWEEN: Duration = Duration::from_millis(500);
/// Delay between starting two daemons, so that their renewals do not coincide.
const STAGGER: Duration = Duration::from_millis(137);
const TIMINGS: DaemonTimings = DaemonTimings::DEFAULT;

/// The samples of a row, as the inner process writes them.
#[derive(Debug, Serialize, Deserialize)]
struct Series {
    what: String,
    unit: Unit,
    samples: Vec<f64>,
    /// Target for the median, in the row's unit.
    p50_max: Option<f64>,
    /// Target for the smallest value, in the row's unit.
    min: Option<f64>,
}

impl Series {
    fn new(what: impl Into<String>, unit: Unit, samples: Vec<f64>) -> Self {
        Self {
            what: what.into(),
            unit,
            samples,
            p50_max: None,
            min: None,
        }
    }

    fn row(&self, millis: u64) -> Row {
        let most = self
            .p50_max
            .map(|limit| Bound::AtMost(Statistic::Median, limit));
        let least = self.min.map(|limit| Bound::AtLeast(Statistic::Min, limit));
        let bounds: Vec<_> = most.into_iter().chain(least).collect();
        let what = format!("{millis} ms: {}", self.what);
        Row::new(FIGURE, what, self.unit, &self.samples, &bounds)
    }
}

pub(crate) async fn measure(setup: Setup) -> Vec<Row> {
    if !rustix::process::geteuid().is_root() {
        let why = "needs root, for network namespaces";
        return vec![Row::skipped(FIGURE, OURS, why.to_owned())];
    }
    let measured = ROUND_TRIPS_MS.map(|millis| outside(&setup, millis));
    join_all(measured).await.concat()
}

/// Runs this program again in new namespaces. The namespaces end with the new process.
async fn outside(setup: &Setup, millis: u64) -> Vec<Row> {
    // The inner process mounts its own file system over the in-memory directories.
    let scratch = Scratch::on(Storage::Disk).expect("create a directory");
    let (output, log) = (scratch.path().join("output"), scratch.path().join("log"));
    let this = std::env::current_exe().expect("the path of this program");
    let size = if setup.quick { "quick" } else { "full" };
    let storage = match setup.storage {
        Storage::Memory => "ram",
        Storage::Disk => "real",
    };
    let mut launch = Launch::new("unshare")
        .arguments(UNSHARE)
        .argument(this)
        .arguments([INSIDE, &millis.to_string(), size, storage])
        .arguments([&setup.binary, &output])
        .stderr(&log);
    for name in ["HOME", "XDG_CACHE_HOME", "TMPDIR"] {
        launch = launch.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    let process = launch.start().unwrap_or_else(|failure| panic!("{failure}"));
    let ended = process.wait(MEASURED_MAX).await;
    assert!(
        ended.is_some_and(|status| status.success()),
        "{millis} ms: {}",
        fs::read_to_string(&log).unwrap_or_default()
    );
    let text = fs::read(&output).expect("the inner process has written its samples");
    let series: Vec<Series> =
        serde_json::from_slice(&text).expect("the samples have the expected format");
    series.iter().map(|series| series.row(millis)).collect()
}

/// Runs the inner process: `--regions-inside MILLIS SIZE STORAGE BINARY OUTPUT`.
pub(crate) fn carry_out(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<_> = arguments.collect();
    let [millis, size, storage, binary, output] = arguments.as_slice() else {
        return ExitCode::from(64);
    };
    let Some(millis) = millis.to_str().and_then(|millis| millis.parse().ok()) else {
        return ExitCode::from(64);
    };
    let setup = Setup {
        binary: PathBuf::from(binary),
        quick: size == "quick",
        storage: match storage == "real" {
            true => Storage::Disk,
            false => Storage::Memory,
        },
    };
    private_directories().unwrap_or_else(|failure| panic!("{failure}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("create an event loop");
    let series = runtime.block_on(inside(&setup, millis));
    let text = serde_json::to_vec(&series).expect("serializable series");
    fs::write(Path::new(output), text).expect("write the output");
    ExitCode::SUCCESS
}

async fn inside(setup: &Setup, millis: u64) -> Vec<Series> {
    let world = World::start(setup, Duration::from_millis(millis)).await;
    let mut floors = Floors::start(&world).await;
    let mut series = writes(setup, &world, &floors).await;
    series.extend(trio(setup, &world, &mut floors).await);
    series.extend(takeovers(setup, &world).await);
    series.extend(killed_primaries(setup, &world).await);
    series
}

async fn writes(setup: &Setup, world: &World, floors: &Floors) -> Vec<Series> {
    let mut rows = Vec::new();
    // A write from another region also travels to the primary and back.
    for (region, place, trips) in [(0, "the primary's region", 1), (1, "another region", 2)] {
        let mut samples = Vec::new();
        for _ in 0..setup.count(30, 10) {
            samples.push(floors.write(region).await);
        }
        let what = format!("the floor: a majority write, client in {place}");
        rows.push(Series {
            min: Some((world.round_trip * trips).as_secs_f64()),
            ..Series::new(what, Unit::Time, samples)
        });
    }
    rows
}

/// Measures the CPU time of three idle daemons of one lease, and then their handoffs.
async fn trio(setup: &Setup, world: &World, floors: &mut Floors) -> Vec<Series> {
    let scratch = Scratch::new();
    let paths = directories(scratch.path(), REGIONS);
    let mut observer = Observer::start(&paths);
    let mut daemons = Vec::new();
    for (region, path) in paths.iter().enumerate() {
        let daemon = world
            .daemon(setup, "handoff", region)
            .status_directory(path)
            .handoff_delay("0s")
            .start();
        if region == 0 {
            daemon.wait_leads(LEADS_MAX).await;
        }
        watching(&daemon).await;
        daemons.push(daemon);
    }
    let mut rows = cpu(setup, &daemons).await;
    let stored = stored(&world.set);
    let mut directions: [(&str, Vec<f64>, Vec<f64>); 3] = [
        ("the primary's region → another", vec![], vec![]),
        ("another region → the primary's", vec![], vec![]),
        ("another region → a third", vec![], vec![]),
    ];
    let mut ratios = Vec::new();
    let mut leader = 0;
    for _ in 0..setup.count(18, 6) {
        tokio::time::sleep(BETWEEN).await;
        standby(&stored).await;
        observer.forget();
        let old = leader;
        let sent_ns = boottime_ns();
        daemons[old].term();
        let seen = observer
            .find("another leads", LEADS_MAX, |seen| {
                seen.index != old && seen.leads_until_ns().is_some()
            })
            .await;
        leader = seen.index;
        let took = seconds(sent_ns, seen.at_ns);
        daemons[old].wait_exit(EXIT_MAX).await;
        daemons[old].restart_same_directory();
        watching(&daemons[old]).await;
        let floor = floors.handoff(old, leader).await;
        let direction = match (old, leader) {
            (0, _) => 0,
            (_, 0) => 1,
            _ => 2,
        };
        directions[direction].1.push(took);
        directions[direction].2.push(floor);
        ratios.push(took / floor);
    }
    for (name, took, floor) in directions {
        // The registered standby determines the direction of a handoff, so a short series may lack
        // a direction.
        if took.is_empty() {
            continue;
        }
        let what = format!("handoff, {name}: SIGTERM → another leads");
        rows.push(Series::new(what, Unit::Time, took));
        let what = format!("handoff, {name}: the floor");
        rows.push(Series::new(what, Unit::Time, floor));
    }
    let what = "handoff ÷ the floor of its direction";
    rows.push(Series {
        p50_max: Some(1.5),
        ..Series::new(what, Unit::Count, ratios)
    });
    rows
}

async fn cpu(setup: &Setup, daemons: &[Daemon]) -> Vec<Series> {
    tokio::time::sleep(setup.pause(SETTLE)).await;
    let work = || daemons.iter().map(|daemon| Work::of(daemon.pid()));
    let began_ns = boottime_ns();
    let before: Vec<_> = work().collect();
    tokio::time::sleep(setup.pause(Duration::from_secs(60))).await;
    let after = work();
    let minutes = seconds(began_ns, boottime_ns()) / 60.0;
    let spent = before.iter().zip(after);
    let spent: Vec<_> = spent
        .map(|(before, after)| (after.cpu - before.cpu) / minutes)
        .collect();
    let row = |role: &str, spent: &[f64]| {
        let what = format!("CPU a minute, {role}");
        Series::new(what, Unit::Time, spent.to_vec())
    };
    vec![
        row("leader in the primary's region", &spent[..1]),
        row("followers in other regions", &spent[1..]),
    ]
}

/// Crashes the holders of several leases. The successor is always in a different region from the
/// holder.
async fn takeovers(setup: &Setup, world: &World) -> Vec<Series> {
    let count = setup.count(9, 3);
    let scratch = Scratch::new();
    let paths = directories(scratch.path(), 2 * count);
    let mut observer = Observer::start(&paths);
    let mut pairs = Vec::new();
    for index in 0..count {
        let lease = format!("l{index}");
        let daemon = |place: usize, region: usize| {
            let path = &paths[place];
            let daemon = world.daemon(setup, &lease, region % REGIONS);
            daemon.status_directory(path).timings(TIMINGS)
        };
        let holder = daemon(2 * index, index).leading(LEADS_MAX).await;
        let contender = daemon(2 * index + 1, index + 1).start();
        watching(&contender).await;
        pairs.push((holder, contender));
    }
    observer.forget();
    let crashed = pairs.iter().enumerate().map(async |(index, (holder, _))| {
        tokio::time::sleep(STAGGER * u32::try_from(index).expect("few leases")).await;
        takeover::crash(holder, TIMINGS).await
    });
    let renewed_ns = join_all(crashed).await;
    let mut led_ns = vec![None; count];
    while led_ns.contains(&None) {
        let seen = observer
            .find("the other daemon takes over", LEADS_MAX, |seen| {
                seen.index % 2 == 1 && seen.leads_until_ns().is_some()
            })
            .await;
        led_ns[seen.index / 2].get_or_insert(seen.at_ns);
    }
    let duration = TIMINGS.lease_duration.as_secs_f64();
    let beyond = renewed_ns.into_iter().zip(led_ns.into_iter().flatten());
    let beyond = beyond.map(|(renewed, led)| seconds(renewed, led) - duration);
    let what = "takeover after SIGKILL: beyond lease_duration, to another region";
    vec![Series {
        min: Some(0.0),
        ..Series::new(what, Unit::Time, beyond.collect())
    }]
}

/// Kills the primary repeatedly, while a daemon in each region leads its own lease.
async fn killed_primaries(setup: &Setup, world: &World) -> Vec<Series> {
    let scratch = Scratch::new();
    let paths = directories(scratch.path(), REGIONS);
    let mut observer = Observer::start(&paths);
    let leaders = paths.iter().enumerate().map(async |(region, path)| {
        tokio::time::sleep(STAGGER * u32::try_from(region).expect("few regions")).await;
        let daemon = world.daemon(setup, &format!("led-{region}"), region);
        let daemon = daemon.status_directory(path).timings(TIMINGS);
        let daemon = daemon.leading(LEADS_MAX).await;
        watching(&daemon).await;
        daemon
    });
    let daemons = join_all(leaders).await;
    let (mut waited, mut lost) = (Vec::new(), 0.0);
    let kills = setup.count(3, 1);
    for _ in 0..kills {
        for (took, was_lost) in profiles::kill(&world.set, &daemons, &mut observer).await {
            waited.push(took);
            lost += f64::from(u8::from(was_lost));
        }
        world.settled().await;
        tokio::time::sleep(setup.pause(SETTLE)).await;
    }
    let what = format!("leaderships lost, of {REGIONS} on each of {kills} killed primaries");
    let none = Series {
        p50_max: Some(0.0),
        ..Series::new(what, Unit::Count, vec![lost])
    };
    let what = "primary killed → next renewal, electionTimeoutMillis 10000";
    vec![Series::new(what, Unit::Time, waited), none]
}
