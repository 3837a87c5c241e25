//! Configures and starts a daemon.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::{Daemon, LastLines, nanos, valid_until_ns};
use crate::trace::{self, CheckedTrace};
use crate::{Failure, FakeClock, Host, Launch, Lifetime, ReservedPort, Scratch};

pub(super) const URI_FILE: &str = "uri";

/// The timings of an election, as flags. Section 3 of the protocol lists the constraints between
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DaemonTimings {
    /// `--lease-duration`
    pub lease_duration: Duration,
    /// `--lease-renew-deadline`
    pub renew_deadline: Duration,
    /// `--lease-renew-interval`
    pub renew_interval: Duration,
    /// `--lease-retry-interval`
    pub retry_interval: Duration,
    /// `--mongodb-operation-timeout`
    pub operation_timeout: Duration,
    /// `--workload-loss-grace`
    pub loss_grace: Duration,
}

impl DaemonTimings {
    /// The timings with the shortest lease that works reliably on a busy machine: 3 s.
    pub const SHORT: Self = Self::millis([3_000, 2_000, 300, 200, 500, 200]);
    /// The timings of the demonstration, with a lease of 6 s.
    pub const DEMO: Self = Self::millis([6_000, 4_500, 500, 250, 1_000, 400]);
    /// The timings of Kubernetes' own leader election: 15 s, 10 s and 2 s.
    pub const KUBERNETES: Self = Self::millis([15_000, 10_000, 2_000, 2_000, 2_000, 3_000]);
    /// leasehold's defaults, as explicit flags.
    pub const DEFAULT: Self = Self::millis([24_000, 18_000, 3_000, 1_000, 3_000, 3_000]);

    const fn millis(values: [u64; 6]) -> Self {
        let [lease, deadline, renew, retry, operation, loss] = values;
        Self {
            lease_duration: Duration::from_millis(lease),
            renew_deadline: Duration::from_millis(deadline),
            renew_interval: Duration::from_millis(renew),
            retry_interval: Duration::from_millis(retry),
            operation_timeout: Duration::from_millis(operation),
            loss_grace: Duration::from_millis(loss),
        }
    }

    /// Returns the CLOCK_BOOTTIME at which the write behind the deadline in `status` was sent. The
    /// authority may have ended since.
    ///
    /// # Panics
    /// If the status has no deadline.
    pub fn sent_ns(&self, status: &Value) -> u64 {
        let until = valid_until_ns(status).expect("the status of a leader");
        until - nanos(self.renew_deadline)
    }

    /// Asserts that the leader in `status` acquired the lease at least a lease duration after
    /// `since_ns`.
    #[track_caller]
    pub fn assert_waited_since(&self, since_ns: u64, status: &Value) {
        let waited = self.sent_ns(status) - since_ns;
        assert!(waited >= nanos(self.lease_duration), "only {waited} ns");
    }

    /// Returns the flags of `leasehold run`.
    pub fn flags(&self) -> Vec<String> {
        let Self {
            lease_duration,
            renew_deadline,
            renew_interval,
            retry_interval,
            operation_timeout,
            loss_grace,
        } = *self;
        let flags = [
            ("--lease-duration", lease_duration),
            ("--lease-renew-deadline", renew_deadline),
            ("--lease-renew-interval", renew_interval),
            ("--lease-retry-interval", retry_interval),
            ("--mongodb-operation-timeout", operation_timeout),
            ("--workload-loss-grace", loss_grace),
        ];
        flags
            .iter()
            .map(|(flag, value)| format!("{flag}={}ms", value.as_millis()))
            .collect()
    }
}

/// Builds a daemon; see [`Daemon::builder`].
#[derive(Debug, Clone)]
pub struct DaemonBuilder {
    program: PathBuf,
    lease: String,
    identity: String,
    uri: Option<String>,
    timings: Option<DaemonTimings>,
    status_directory: Option<PathBuf>,
    handoff_delay: Option<String>,
    flags: Vec<String>,
    environment: Vec<(String, OsString)>,
    workload: Vec<String>,
    lifetime: Lifetime,
    traced: bool,
    namespace: Option<String>,
    ip: Ipv4Addr,
}

impl DaemonBuilder {
    pub(super) fn new(program: PathBuf) -> Self {
        Self {
            program,
            lease: "orders".to_owned(),
            identity: "a".to_owned(),
            uri: None,
            timings: None,
            status_directory: None,
            handoff_delay: None,
            flags: Vec::new(),
            environment: Vec::new(),
            workload: Vec::new(),
            lifetime: Lifetime::OfStarter,
            traced: true,
            namespace: None,
            ip: Ipv4Addr::LOCALHOST,
        }
    }

    /// Sets the lease; `orders` by default.
    pub fn lease(mut self, lease: &str) -> Self {
        self.lease = lease.to_owned();
        self
    }

    /// Sets the identity; `a` by default.
    pub fn identity(mut self, identity: &str) -> Self {
        self.identity = identity.to_owned();
        self
    }

    /// Sets the connection string, which is passed in the file `uri` in [`Daemon::directory`]; see
    /// [`Daemon::replace_uri`].
    pub fn uri(mut self, uri: &str) -> Self {
        self.uri = Some(uri.to_owned());
        self
    }

    /// Sets the timings. Without this call, the daemon uses its defaults.
    pub fn timings(mut self, timings: DaemonTimings) -> Self {
        self.timings = Some(timings);
        self
    }

    /// Uses this status directory, which another daemon may have used, instead of a new directory.
    pub fn status_directory(mut self, directory: &Path) -> Self {
        self.status_directory = Some(directory.to_path_buf());
        self
    }

    /// Sets `lease.handoff_delay`. Ignored for a daemon that supervises a command, because
    /// `leasehold run` refuses this combination.
    pub fn handoff_delay(mut self, delay: &str) -> Self {
        self.handoff_delay = Some(delay.to_owned());
        self
    }

    /// Adds a flag, as `--name=value`. A second `--mongodb-watch` replaces the first, because a
    /// stage sets this flag.
    pub fn flag(mut self, flag: &str) -> Self {
        const WATCH: &str = "--mongodb-watch=";
        if flag.starts_with(WATCH) {
            self.flags.retain(|earlier| !earlier.starts_with(WATCH));
        }
        self.flags.push(flag.to_owned());
        self
    }

    /// Adds flags, each as `--name=value`.
    pub fn flags<F: AsRef<str>>(self, flags: impl IntoIterator<Item = F>) -> Self {
        let add = |builder: Self, flag: F| builder.flag(flag.as_ref());
        flags.into_iter().fold(self, add)
    }

    /// Sets an environment variable. By default, the environment contains only PATH.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Gives the daemon a separate wall clock.
    pub fn clock(mut self, clock: &FakeClock) -> Self {
        self.environment.extend(clock.variables().iter().cloned());
        self
    }

    /// Sets the command to supervise: `run -- CMD ARG…`.
    pub fn workload<A: Into<String>>(mut self, command: impl IntoIterator<Item = A>) -> Self {
        self.workload = command.into_iter().map(Into::into).collect();
        self
    }

    /// Waits for the guard of a workload in another container on this socket. The daemon
    /// then refuses `lease.handoff_delay`, as with a command.
    pub fn guard_socket(mut self, socket: &Path) -> Self {
        self.handoff_delay = None;
        self.flag(&format!("--workload-socket={}", socket.display()))
    }

    /// Disables the trace. By default, the trace is checked when the daemon is dropped. Use this if
    /// the test measures the daemon, runs the daemon as another user, or violates the assumptions
    /// of the trace check.
    pub fn untraced(mut self) -> Self {
        self.traced = false;
        self
    }

    /// Sets the network namespace, which `ip netns add` has created.
    pub fn inside(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Starts the daemon on a host. The daemon's HTTP server listens there too.
    pub fn host(mut self, host: &Host) -> Self {
        self.ip = host.address;
        self.inside(&host.namespace)
    }

    /// Starts a process that can be left running; see [`Daemon::leave_up`].
    pub fn detached(mut self) -> Self {
        self.lifetime = Lifetime::Detached;
        self
    }

    /// Starts the daemon, and returns immediately; see [`Daemon::wait_until`].
    ///
    /// # Panics
    /// If the daemon cannot be started.
    pub fn start(self) -> Daemon {
        self.try_start()
            .unwrap_or_else(|failure| panic!("start a daemon: {failure}"))
    }

    /// Starts the daemon, and waits until it leads.
    ///
    /// # Panics
    /// If the daemon cannot be started, or does not lead before `deadline`.
    pub async fn leading(self, deadline: Duration) -> Daemon {
        let daemon = self.start();
        daemon.wait_leads(deadline).await;
        daemon
    }

    /// Starts the daemon, and waits until it follows `leader`.
    ///
    /// # Panics
    /// If the daemon cannot be started, or does not follow before `deadline`.
    pub async fn following(self, leader: &str, deadline: Duration) -> Daemon {
        let daemon = self.start();
        daemon.wait_follows(leader, deadline).await;
        daemon
    }

    /// Like [`start`](Self::start), but returns errors.
    ///
    /// # Errors
    /// If the daemon cannot be started.
    pub fn try_start(self) -> Result<Daemon, Failure> {
        let Self {
            program,
            lease,
            identity,
            uri,
            timings,
            status_directory,
            handoff_delay,
            flags,
            environment,
            workload,
            lifetime,
            traced,
            namespace,
            ip,
        } = self;
        if !program.exists() {
            let program = program.display();
            return Err(Failure::new(format!(
                "{program} is missing: run cargo build --bin leasehold"
            )));
        }
        let scratch = Scratch::new();
        let directory = status_directory.unwrap_or_else(|| scratch.path().join("status"));
        let port = ReservedPort::new();
        let http = SocketAddr::from((ip, port.number()));
        let mut launch = Launch::new(program)
            .arguments(["run", "--lease", &lease, "--identity", &identity])
            .arguments(["--status-directory".as_ref(), directory.as_os_str()])
            .argument(format!("--http-listen={http}"))
            .stderr(scratch.path().join("log"))
            .lifetime(lifetime);
        if let Some(uri) = uri {
            let file = scratch.path().join(URI_FILE);
            write_secret(&file, &uri);
            launch = launch.arguments(["--mongodb-uri-file".as_ref(), file.as_os_str()]);
        }
        launch = launch
            .arguments(timings.iter().flat_map(DaemonTimings::flags))
            .arguments(flags);
        if workload.is_empty() {
            let delay = handoff_delay.map(|delay| format!("--lease-handoff-delay={delay}"));
            launch = launch.arguments(delay);
        } else {
            launch = launch.argument("--").arguments(workload);
        }
        let elsewhere = environment.iter().any(|(name, _)| name == trace::VARIABLE);
        let traced =
            (traced && !elsewhere).then(|| CheckedTrace::new(scratch.path().join("trace")));
        if let Some(trace) = &traced {
            launch = launch.envs([(trace::VARIABLE, trace.path())]);
        }
        launch = launch.envs(environment);
        if let Some(namespace) = namespace {
            launch = launch.inside(namespace);
        }
        let process = launch.start()?;
        Ok(Daemon {
            identity,
            launch,
            process,
            port,
            http,
            directory,
            _trace: traced,
            _last_lines: LastLines(scratch.path().join("log")),
            scratch,
        })
    }
}

pub(super) fn write_secret(path: &Path, text: &str) {
    std::fs::write(path, text).expect("write a file in the scratch directory");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path, mode).expect("set a file's mode");
}
