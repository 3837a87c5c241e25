//! Schedules the faults. Most faults strike alone, with quiet periods around them; some strike
//! together.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use leasehold_testbed::Failure;
use leasehold_testbed::daemon::boottime_ns;

use crate::fault::Fault;
use crate::world::World;

const TOGETHER_MAX: usize = 3;
/// Maximum number of draws. If none of the drawn faults has the requested name, no fault has it.
const DRAWS_MAX: usize = 10_000;
/// In every round whose number is a multiple of this constant, several faults strike together.
const TOGETHER_EVERY: usize = 3;
const QUIET_MILLIS: std::ops::Range<u64> = 500..2_000;
/// Number of rounds between copies of the document, which later faults restore.
const COPY_EVERY: usize = 5;

/// An injected fault, with its times on CLOCK_BOOTTIME.
#[derive(Debug, Clone)]
pub(crate) struct Struck {
    pub(crate) fault: Fault,
    pub(crate) began: u64,
    pub(crate) healed: u64,
    pub(crate) alone: bool,
}

/// A period without a leader, longer than the bound.
#[derive(Debug, Clone)]
pub(crate) struct Leaderless {
    pub(crate) after: Vec<Fault>,
    pub(crate) logs: String,
}

#[derive(Debug, Default)]
pub(crate) struct Story {
    pub(crate) struck: Vec<Struck>,
    pub(crate) leaderless: Vec<Leaderless>,
}

/// Injects faults whose names contain `names` until `time` has passed.
pub(crate) async fn run(world: &World, time: Duration, names: &str) -> Result<Story, Failure> {
    let mut story = Story::default();
    world.known().await;
    let end = Instant::now() + time;
    let bound = world.recovery_max();
    for round in 1.. {
        if Instant::now() > end {
            break;
        }
        if round % COPY_EVERY == 0 {
            world.keep_copy().await;
        }
        let count = match round % TOGETHER_EVERY {
            0 => fastrand::usize(2..=TOGETHER_MAX),
            _ => 1,
        };
        let mut faults = Vec::new();
        for _ in 0..count {
            let fault = drawn(world, names).await?;
            if !faults
                .iter()
                .any(|other| world.together_excluded(&fault, other))
            {
                faults.push(fault);
            }
        }
        let alone = faults.len() == 1;
        let strikes = faults.iter().map(async |fault| {
            let began = boottime_ns();
            fault.strike(world, duration(world)).await?;
            Ok::<_, Failure>(Struck {
                fault: fault.clone(),
                began,
                healed: boottime_ns(),
                alone,
            })
        });
        story.struck.extend(try_join_all(strikes).await?);
        if !world.led_within(bound).await {
            story.leaderless.push(Leaderless {
                after: faults,
                logs: world.logs(),
            });
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(QUIET_MILLIS))).await;
    }
    Ok(story)
}

/// Returns a random fault duration, from zero to more than a lease duration.
fn duration(world: &World) -> Duration {
    let lease = world.profile.timings().lease_duration;
    match fastrand::u8(0..4) {
        0 => lease.mul_f64(fastrand::f64() * 0.2),
        1 | 2 => lease.mul_f64(0.2 + fastrand::f64() * 0.8),
        _ => lease.mul_f64(1.0 + fastrand::f64() * 0.7),
    }
}

async fn drawn(world: &World, names: &str) -> Result<Fault, Failure> {
    for _ in 0..DRAWS_MAX {
        let fault = Fault::drawn(world).await;
        if fault.name().contains(names) {
            return Ok(fault);
        }
    }
    Err(Failure::new(format!("no fault has {names:?} in its name")))
}
