#![doc = include_str!("../README.md")]

pub mod duration;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use leasehold_core::election::BootTime;

/// Returns the current CLOCK_BOOTTIME.
pub fn boot_now() -> BootTime {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    BootTime::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Returns the CPU time that this process has used.
pub fn cpu_time() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(used).unwrap_or_default()
}

/// Returns the current wall-clock time. The wall clock must not decide who leads (I9).
#[allow(clippy::disallowed_methods)] // This is the clock module.
pub fn wall_now() -> SystemTime {
    SystemTime::now()
}

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const TIME_NAMESPACE: &str = "/proc/self/ns/time";

/// Returns the boot id, if the system exposes it. Fails, for example, if no descriptor is free.
pub fn boot_id() -> io::Result<Option<String>> {
    let id = shown(BOOT_ID, std::fs::read_to_string(BOOT_ID))?;
    Ok(id.map(|id| id.trim().to_owned()))
}

/// Returns the inode of this process's time namespace; `None` if the kernel has no time namespaces
/// or does not expose them. CLOCK_BOOTTIME may differ between time namespaces of the same boot.
pub fn time_namespace() -> io::Result<Option<u64>> {
    let found = shown(TIME_NAMESPACE, std::fs::metadata(TIME_NAMESPACE))?;
    Ok(found.map(|found| found.ino()))
}

/// Identifies the clock that [`boot_now`] reads, by the boot and the time namespace. Processes with
/// equal ids share a clock, so their instants are comparable. `None` if the system does not expose
/// the boot id.
pub fn boot_clock() -> io::Result<Option<String>> {
    let (boot, namespace) = (boot_id()?, time_namespace()?);
    Ok(boot.map(|boot| match namespace {
        Some(namespace) => format!("{boot} {namespace}"),
        None => boot,
    }))
}

fn shown<T>(path: &str, read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Ok(None),
            kind => Err(io::Error::new(kind, format!("cannot read {path}: {error}"))),
        },
    }
}

/// A pollable timer on CLOCK_BOOTTIME, for threads without an event loop.
#[derive(Debug)]
pub struct Alarm(OwnedFd);

impl Alarm {
    /// Creates an alarm that is not armed. Fails if no descriptor is free.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self(timerfd_create(TimerfdClockId::Boottime, flags)?))
    }

    /// Arms the alarm for `at`, or disarms it. Fails if the kernel rejects the instant.
    pub fn arm(&self, at: Option<BootTime>) -> io::Result<()> {
        // Zero would disarm the timer. An instant in the past fires immediately.
        let nanos = at.map_or(0, |at| at.as_nanos().max(1));
        let setting = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(nanos % 1_000_000_000).unwrap_or(0),
            },
        };
        timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &setting)?;
        Ok(())
    }
}

impl AsRawFd for Alarm {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A timer on CLOCK_BOOTTIME. Unlike tokio's own timers, it fires on time after a suspend.
#[derive(Debug)]
pub struct BootTimer {
    fd: AsyncFd<Alarm>,
    armed: Option<BootTime>,
}

impl BootTimer {
    /// Creates a timer that is not armed. Fails if no descriptor is free.
    pub fn new() -> io::Result<Self> {
        // `AsyncFd::new` is deprecated because some types may change their descriptor. An `OwnedFd`
        // always keeps its descriptor. The replacement is unsafe, and this crate forbids unsafe
        // code.
        #[allow(deprecated)]
        let fd = AsyncFd::new(Alarm::new()?)?;
        Ok(Self { fd, armed: None })
    }

    /// Arms the timer for `at`, or disarms it. Fails if the kernel rejects the instant.
    pub fn arm(&mut self, at: Option<BootTime>) -> io::Result<()> {
        if self.armed == at {
            return Ok(());
        }
        self.fd.get_ref().arm(at)?;
        self.armed = at;
        Ok(())
    }

    /// Waits until the timer fires. Waits indefinitely if the timer is not armed.
    pub async fn fired(&mut self) -> io::Result<()> {
        let mut guard = self.fd.readable().await?;
        let mut expirations = [0; 8];
        match rustix::io::read(guard.get_inner(), &mut expirations) {
            Ok(_) => self.armed = None,
            Err(error) if error == rustix::io::Errno::AGAIN => guard.clear_ready(),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Waits until `at`, or indefinitely if `at` is `None`. A suspend delays the wake-up.
pub async fn until(at: Option<BootTime>) {
    match at {
        Some(at) => tokio::time::sleep(at.since(boot_now())).await,
        None => std::future::pending().await,
    }
}

/// Waits until `at` on CLOCK_BOOTTIME. Fails if no descriptor is free.
pub async fn sleep_until(at: BootTime) -> io::Result<()> {
    let mut timer = BootTimer::new()?;
    timer.arm(Some(at))?;
    while timer.armed.is_some() {
        timer.fired().await?;
    }
    Ok(())
}
