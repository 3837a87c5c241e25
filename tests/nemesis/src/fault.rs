//! Draws random faults from a seed, injects them, and heals them.

use std::time::Duration;

use leasehold_testbed::forwarder::Weather;
use leasehold_testbed::network::Node;
use leasehold_testbed::{Cgroup, Failure, pid};
use mongodb::bson::{Document, doc};
use rustix::process::Signal;

use crate::candidate::{Kind, Part};
use crate::job::Jobs;
use crate::world::{Edit, World};

/// CPU limit for all processes of a throttled candidate, as a percentage of a core.
const THROTTLE_PERCENT: u32 = 3;
const THROTTLE_PERIOD: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    Kill(usize, Part),
    Freeze(usize, Part),
    /// The daemon receives SIGTERM and restarts later.
    Stop(usize),
    Throttle(usize),
    Skew(usize, &'static str),
    FullDisk(usize),
    Version(usize),
    Slow(usize, Duration, f64),
    /// Drops packets between a client's host and these members, in one direction or both.
    Cut(usize, Vec<usize>, Direction),
    KillJob(usize),
    FreezeJob(usize),
    KillMember(usize),
    FreezeMember(usize),
    /// Drops packets between a member and all other members.
    Isolate(usize, Direction),
    StepDown,
    /// `fsyncLock` locks the member, so it answers requests but applies no writes.
    LockMember(usize),
    FailCommands(usize, Document),
    Delete,
    /// Restores an earlier version of the lease document.
    Restore,
    /// Temporarily changes the type of a field in the lease document, as another program could.
    Foreign,
    StallServer,
    RotateCertificate(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Candidate(usize),
    Network(usize),
    Job(usize),
    /// The replica set. Only one fault at a time hits the set, so that a majority remains.
    Set,
    Document,
    Server,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Both,
    Out,
    In,
}

impl Fault {
    pub(crate) async fn drawn(world: &World) -> Self {
        let candidates = world.candidates.len();
        // Two thirds of all candidate faults hit the leader.
        let candidate = match (fastrand::u8(0..3), world.leader()) {
            (1.., Some(leader)) => leader,
            _ => fastrand::usize(..candidates),
        };
        let supervised = world.candidates[candidate].kind == Kind::Supervised;
        let part = match fastrand::u8(0..4) {
            0 if supervised => Part::Guard,
            1 if supervised => Part::Work,
            _ => Part::Daemon,
        };
        let members = world.set.member_count();
        let primary = world.set.primary_within(Duration::ZERO).await.unwrap_or(0);
        let member = if fastrand::bool() {
            primary
        } else {
            fastrand::usize(..members)
        };
        let job = fastrand::usize(..world.jobs.len());
        let direction = [Direction::Both, Direction::Out, Direction::In][fastrand::usize(..3)];
        match fastrand::u8(0..28) {
            25 if world.places.cluster.is_some() => Self::StallServer,
            26 if world.set.certificates().is_some() => Self::RotateCertificate(member),
            0..3 => Self::Kill(candidate, part),
            3..6 => Self::Freeze(candidate, part),
            6 => Self::Stop(candidate),
            7 => Self::Throttle(candidate),
            8 => Self::Skew(
                candidate | 1,
                ["+1h", "-1h", "+3s", "-3s"][fastrand::usize(..4)],
            ),
            9 => Self::FullDisk(candidate),
            10 if world.other.is_some() => Self::Version(candidate),
            10 | 11 => {
                let latency = Duration::from_millis(fastrand::u64(20..300));
                Self::Slow(candidate, latency, fastrand::f64() * 0.1)
            }
            12 => Self::Cut(candidate, vec![primary], direction),
            13 => Self::Cut(candidate, (0..members).collect(), direction),
            14 => Self::KillJob(job),
            15 => Self::FreezeJob(job),
            16 => Self::KillMember(member),
            17 => Self::FreezeMember(member),
            18..20 => Self::Isolate(member, direction),
            20 => Self::StepDown,
            21 => Self::LockMember(member),
            22 => Self::FailCommands(member, failing()),
            23 => Self::Delete,
            24 => Self::Restore,
            27 => Self::Foreign,
            // The drawn fault has no target here, so freeze a candidate, which is always possible.
            _ => Self::Freeze(candidate, part),
        }
    }

    pub(crate) fn name(&self) -> String {
        let of = |part: &Part| match part {
            Part::Daemon => "daemon",
            Part::Guard => "guard",
            Part::Work => "command",
        };
        match self {
            Self::Kill(_, part) => format!("{} killed", of(part)),
            Self::Freeze(_, part) => format!("{} frozen", of(part)),
            Self::Stop(_) => "daemon stopped".to_owned(),
            Self::Throttle(_) => "daemon throttled".to_owned(),
            Self::Skew(..) => "wall clock jumps".to_owned(),
            Self::FullDisk(_) => "status disk full".to_owned(),
            Self::Version(_) => "other version".to_owned(),
            Self::Slow(..) => "slow and lossy network".to_owned(),
            Self::Cut(_, members, direction) => {
                let from = if members.len() == 1 {
                    "the primary"
                } else {
                    "the set"
                };
                format!("daemon cut off from {from}{}", one_way(*direction))
            }
            Self::KillJob(_) => "job killed".to_owned(),
            Self::FreezeJob(_) => "job frozen".to_owned(),
            Self::KillMember(_) => "mongod killed".to_owned(),
            Self::FreezeMember(_) => "mongod frozen".to_owned(),
            Self::Isolate(_, direction) => format!("mongod isolated{}", one_way(*direction)),
            Self::StepDown => "primary stepped down".to_owned(),
            Self::LockMember(_) => "mongod locked".to_owned(),
            Self::FailCommands(..) => "commands fail".to_owned(),
            Self::Delete => "document deleted".to_owned(),
            Self::Restore => "document restored".to_owned(),
            Self::Foreign => "document of another type".to_owned(),
            Self::StallServer => "API server stalled".to_owned(),
            Self::RotateCertificate(_) => "certificate rotated".to_owned(),
        }
    }

    /// Returns the target. Two concurrent faults on one target would undo each other.
    pub(crate) fn target(&self) -> Target {
        match self {
            Self::Kill(number, _)
            | Self::Freeze(number, _)
            | Self::Stop(number)
            | Self::Throttle(number)
            | Self::Skew(number, _)
            | Self::FullDisk(number)
            | Self::Version(number) => Target::Candidate(*number),
            Self::Slow(number, ..) | Self::Cut(number, ..) => Target::Network(*number),
            Self::KillJob(number) | Self::FreezeJob(number) => Target::Job(*number),
            Self::KillMember(_)
            | Self::FreezeMember(_)
            | Self::Isolate(..)
            | Self::StepDown
            | Self::LockMember(_)
            | Self::FailCommands(..)
            | Self::RotateCertificate(_) => Target::Set,
            Self::StallServer => Target::Server,
            Self::Delete | Self::Restore | Self::Foreign => Target::Document,
        }
    }

    /// True if work must continue even before the fault is healed, because other candidates can
    /// take over.
    pub(crate) fn is_survived(&self) -> bool {
        match self {
            // The leader stays leader while its command is frozen or slow, so no candidate takes
            // over.
            Self::Freeze(_, Part::Work) | Self::Throttle(_) => false,
            Self::Kill(..)
            | Self::Freeze(..)
            | Self::Stop(_)
            | Self::Skew(..)
            | Self::FullDisk(_)
            | Self::Version(_)
            | Self::Cut(..)
            | Self::KillJob(_)
            | Self::FreezeJob(_)
            | Self::KillMember(_)
            | Self::StallServer
            | Self::RotateCertificate(_)
            | Self::StepDown => true,
            // A member that answers slowly, or ignores writes, may stay primary.
            Self::Slow(..)
            | Self::FreezeMember(_)
            | Self::Isolate(..)
            | Self::LockMember(_)
            | Self::FailCommands(..)
            | Self::Delete
            | Self::Restore
            | Self::Foreign => false,
        }
    }

    pub(crate) async fn strike(&self, world: &World, time: Duration) -> Result<(), Failure> {
        let wait = || tokio::time::sleep(time);
        match self {
            Self::Kill(candidate, part) => {
                world.candidates[*candidate].kill(*part);
                world.companions(*candidate).for_each(Jobs::kill);
                wait().await;
                world.candidates[*candidate].up();
            }
            Self::Freeze(candidate, part) => {
                let pid = world.candidates[*candidate].pid(*part);
                let companions = world.companions(*candidate).flat_map(Jobs::pids);
                freeze(&pid.into_iter().chain(companions).collect::<Vec<_>>(), time).await;
            }
            Self::Stop(candidate) => {
                world.candidates[*candidate].stop();
                wait().await;
                world.candidates[*candidate].up();
            }
            Self::Throttle(candidate) => {
                let group = Cgroup::new(&candidate.to_string(), THROTTLE_PERCENT, THROTTLE_PERIOD);
                let group = group.map_err(|why| Failure::new(format!("cgroups: {why}")))?;
                world.candidates[*candidate].throttle(Some(group));
                wait().await;
                world.candidates[*candidate].throttle(None);
            }
            Self::Skew(candidate, offset) => {
                let mine = world.candidates.get(*candidate);
                let mine = mine.and_then(|candidate| candidate.clock.as_ref());
                let companions = world.companions(*candidate / 2).filter_map(Jobs::clock);
                let clocks: Vec<_> = mine.into_iter().chain(companions).collect();
                clocks.iter().for_each(|clock| clock.jump(offset));
                wait().await;
                clocks.iter().for_each(|clock| clock.jump("+0s"));
            }
            Self::FullDisk(candidate) => {
                let disk = &world.candidates[*candidate].disk;
                disk.fill();
                wait().await;
                disk.empty();
            }
            Self::Version(candidate) => {
                let candidate = &world.candidates[*candidate];
                candidate.kill(Part::Daemon);
                candidate.gone().await;
                candidate.launch(world.other.as_deref())?;
                wait().await;
                candidate.kill(Part::Daemon);
                candidate.up();
                candidate.up();
            }
            Self::Slow(client, latency, loss) => {
                let hosts = world.hosts_alike(*client);
                let set = |weather| {
                    let hosts = hosts.iter().map(|host| Node::Client(*host));
                    hosts.for_each(|host| world.network.weather(host, weather));
                };
                let (latency, loss) = (*latency, *loss);
                set(Weather { latency, loss });
                wait().await;
                set(Weather::default());
            }
            Self::Cut(client, members, direction) => {
                let members = members.iter().map(|m| Node::Member(*m));
                let members: Vec<_> = members.chain([Node::Server]).collect();
                let hosts = world.hosts_alike(*client).into_iter();
                let hosts: Vec<_> = hosts.map(Node::Client).collect();
                cut(world, &hosts, &members, *direction, time).await?;
            }
            Self::KillJob(job) => {
                world.jobs[*job].kill();
                world.companions(*job).for_each(Jobs::kill);
            }
            Self::FreezeJob(job) => {
                let jobs = std::iter::once(&world.jobs[*job]).chain(world.companions(*job));
                let one_each = jobs.filter_map(|jobs| fastrand::choice(jobs.pids()));
                freeze(&one_each.collect::<Vec<_>>(), time).await;
            }
            Self::KillMember(member) => {
                let etcd = world.places.cluster.as_ref().map(|cluster| &cluster.etcd);
                world.set.kill(*member);
                etcd.iter().for_each(|etcd| etcd.kill(*member));
                wait().await;
                world.set.restart(*member).await;
                etcd.map(|etcd| etcd.restart(*member)).transpose()?;
            }
            Self::FreezeMember(member) => {
                let etcd = world.places.cluster.as_ref().map(|cluster| &cluster.etcd);
                world.set.stop(*member);
                etcd.iter()
                    .for_each(|etcd| etcd.signal(*member, Signal::STOP));
                wait().await;
                world.set.cont(*member);
                etcd.iter()
                    .for_each(|etcd| etcd.signal(*member, Signal::CONT));
            }
            Self::Isolate(member, direction) => {
                let others = (0..world.set.member_count()).filter(|other| other != member);
                let others: Vec<_> = others.map(Node::Member).collect();
                cut(world, &[Node::Member(*member)], &others, *direction, time).await?;
            }
            Self::StepDown => {
                let primary = world.set.primary_within(Duration::from_secs(1)).await;
                let down = doc! { "replSetStepDown": 10, "secondaryCatchUpPeriodSecs": 1 };
                // The server refuses to step down if no secondary is caught up.
                let _ = world.set.command(primary.unwrap_or(0), down).await;
                wait().await;
            }
            Self::LockMember(member) => {
                let lock = world
                    .set
                    .command(*member, doc! { "fsync": 1, "lock": true })
                    .await;
                wait().await;
                if lock.is_ok() {
                    let unlock = doc! { "fsyncUnlock": 1 };
                    let unlocked =
                        async || world.set.command(*member, unlock.clone()).await.is_ok();
                    leasehold_testbed::eventually("unlock the member", unlocked).await;
                }
            }
            Self::FailCommands(member, data) => {
                let mut data = data.clone();
                data.insert(
                    "failCommands",
                    vec!["update", "findAndModify", "find", "getMore"],
                );
                let fail = |mode: &str| {
                    let point = "failCommand";
                    doc! { "configureFailPoint": point, "mode": mode, "data": data.clone() }
                };
                let set = world.set.command(*member, fail("alwaysOn")).await;
                wait().await;
                if set.is_ok() {
                    let off = async || world.set.command(*member, fail("off")).await.is_ok();
                    leasehold_testbed::eventually("disable the fail point", off).await;
                }
            }
            Self::StallServer => {
                let cluster = world.places.cluster.as_ref();
                cluster.iter().for_each(|cluster| cluster.stall(true));
                wait().await;
                cluster.iter().for_each(|cluster| cluster.stall(false));
            }
            Self::RotateCertificate(member) => {
                if let Some(certificates) = world.set.certificates() {
                    certificates.renew_server();
                }
                let rotated = world.set.command(*member, doc! { "rotateCertificates": 1 });
                // Open connections keep the old certificate. New connections use the new
                // certificate.
                rotated.await?;
            }
            Self::Delete => drop(world.edit(Edit::Delete).await),
            Self::Restore => {
                let copy = world.copy.lock().expect("no holder panics").clone();
                if let Some(copy) = copy {
                    let _ = world.edit(Edit::Replace(copy)).await;
                }
            }
            Self::Foreign => {
                let _ = world.edit(Edit::Token("$toDouble")).await;
                wait().await;
                let repaired = async || world.edit(Edit::Token("$toLong")).await;
                leasehold_testbed::eventually("the document is a lease again", repaired).await;
            }
        }
        Ok(())
    }
}

fn one_way(direction: Direction) -> &'static str {
    match direction {
        Direction::Both => "",
        Direction::Out | Direction::In => ", one way",
    }
}

fn failing() -> Document {
    let appname = doc! { "failInternalCommands": false };
    let mut data = match fastrand::u8(0..4) {
        0 => doc! { "closeConnection": true },
        // The codes of NotWritablePrimary, InterruptedAtShutdown and ExceededTimeLimit.
        1 => {
            let code = [10107, 11600, 262][fastrand::usize(..3)];
            doc! { "errorCode": code }
        }
        2 => doc! { "blockConnection": true, "blockTimeMS": fastrand::i32(100..2_000) },
        _ => doc! { "writeConcernError": { "code": 64, "errmsg": "waiting for replication" } },
    };
    data.extend(appname);
    data
}

async fn freeze(pids: &[u32], time: Duration) {
    let send = |signal| {
        pids.iter()
            .for_each(|pid| pid::signal_if_there(*pid, signal))
    };
    send(Signal::STOP);
    tokio::time::sleep(time).await;
    send(Signal::CONT);
}

async fn cut(
    world: &World,
    some: &[Node],
    others: &[Node],
    direction: Direction,
    time: Duration,
) -> Result<(), Failure> {
    let out = some
        .iter()
        .flat_map(|one| others.iter().map(|other| (*one, *other)));
    let into = out.clone().map(|(one, other)| (other, one));
    let pairs: Vec<_> = match direction {
        Direction::Both => out.chain(into).collect(),
        Direction::Out => out.collect(),
        Direction::In => into.collect(),
    };
    world.network.cut(&pairs)?;
    tokio::time::sleep(time).await;
    world.network.mend(&pairs)
}
