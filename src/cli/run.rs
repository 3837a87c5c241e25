//! `leasehold run`: builds and runs the daemon. The status directory and the port are checked
//! before the election begins.

mod files;
mod idle_timers;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod options;
mod pod;
mod reload;
mod reporter;
mod store_errors;
mod surfaces;
mod workload;

use std::convert::Infallible;
use std::error::Error;
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tracing::{info, warn};

use self::idle_timers::IdleTimers;
pub use self::options::RunArgs;

pub(super) use self::files::known_home;
pub(super) use self::options::options;

use self::pod::PodPublisher;
use self::reload::Reloader;
use self::reporter::Reporter;
use self::store_errors::StoreErrors;
use self::surfaces::{DaemonSurfaces, StatusFollower};
use self::workload::{Supervised, Workload, WorkloadEvent};
use super::{CommandError, trace};
use crate::admin::{self, AdminState, Bound, Streams};
use crate::cli::store_options::stopping;
use crate::clock;
use crate::config::{Config, HealthCheck, Key, OnExit, Sources, UriSource};
use crate::election::{Input, ResourceName, Status, StoreAnswer};
use crate::elector::{Elector, ElectorBuilder, ElectorError};
use crate::exit;
use crate::log;
use crate::publish::StoreError;
use crate::publish::directory::{StatusDirectory, default_directory};
use crate::publish::file::{FileOptions, StatusFileHandle};
use crate::publish::metrics::Metrics;
use crate::publish::occupant::Occupant;
use crate::publish::render::Identification;
use crate::publish::systemd::Systemd;
use crate::signals::{Exit, Signal, Signals, StopRequest, StopRequests, StopSignal};
use crate::store::StoreInfo;
use crate::supervisor::Orders;
use crate::workload::Orphans;
use crate::workload::prerequisites::prerequisites;
use leasehold_cli::connecting;
use leasehold_host::privacy::hide_from_the_user;

/// Maximum wait at exit for files and event streams to say "not leader". A local disk takes less
/// than a millisecond; if the disk hangs, readers rely on the deadline in the files.
const LAST_FLUSH_MAX: Duration = Duration::from_millis(250);

/// Interval at which the daemon logs again that the document is not a lease.
const REMINDER_INTERVAL: Duration = Duration::from_secs(60);

/// Runs the daemon until it is stopped.
#[inline(never)]
pub fn run(args: RunArgs) -> Result<ExitCode, CommandError> {
    let idle_timers = Arc::default();
    // One thread suffices, because the status files have a thread of their own.
    // The future is boxed, because otherwise copies of it stay on the stack.
    let serving = Box::pin(serve(args, Arc::clone(&idle_timers)));
    let exit = idle_timers::run_to_end(&idle_timers, serving)??;
    Ok(exit.take())
}

fn system<E: Into<Box<dyn Error + Send + Sync>>>(operation: &str) -> impl Fn(E) -> CommandError {
    CommandError::failed(exit::NEGATIVE, operation)
}

/// Returns the exit after a stop signal from the controlling terminal. Otherwise, the exit code of a
/// graceful stop is 0.
fn exit_after(stop: StopSignal) -> Option<Exit> {
    let on_terminal = || std::fs::File::open("/dev/tty").is_ok();
    (stop.is_of_terminal() && on_terminal()).then_some(Exit::Signal(stop))
}

struct Daemon {
    elector: Elector,
    signals: Signals,
    systemd: Systemd,
    files: Arc<StatusFileHandle>,
    pod: Option<PodPublisher>,
    streams: Option<Streams>,
    workload: Workload,
    orphans: Orphans,
    on_exit: OnExit,
    at_terminal: bool,
    status: watch::Receiver<Status>,
    other_kind: Arc<Notify>,
    inputs: mpsc::Sender<Input>,
    reloader: Reloader,
    who: Identification,
    idle_timers: Arc<IdleTimers>,
}

async fn serve(args: RunArgs, idle_timers: Arc<IdleTimers>) -> Result<Exit, CommandError> {
    let RunArgs {
        configuration,
        command,
    } = args;
    let mut sources = configuration.sources;
    let config = sources.load().config()?;
    let trace = trace::from_environment()?;
    let json = config.log.format.json;
    let json = json.unwrap_or_else(log::is_json_by_default);
    let log = log::start(config.log.level, log::LineFormat::of(json));
    log_sources(&config, &sources);
    sources.started_with = Some(config.mongodb.uri.clone());
    hide_from_the_user();
    let supervised = Supervised::new(command, &config)?;
    let supervises = supervised.supervises(&config);
    let drains = supervised.drains();
    let on_exit = supervised.on_exit(&config);
    let checks = config.workload.health.check();
    if supervises || matches!(checks, Some(HealthCheck::Command(_))) {
        prerequisites()?;
    }
    supervised.check()?;
    let lease = &config.lease.name;
    let path = default_directory(lease, config.status.directory.as_deref());
    let patience = workload::outlives_daemon_by(&config);
    let mut signals = Signals::register().map_err(system("register the signal handlers"))?;
    let mut stop = None;
    let waiting = |by: &[Occupant]| reporter::directory_locked(lease, &path, by);
    let opened = StatusDirectory::open_after(&path, lease, patience, waiting, || {
        stop = signals.stop_arrived();
        stop.is_some()
    });
    if let Some(stop) = stop {
        info!(%lease, signal = %stop, "stopped");
        return Ok(exit_after(stop).unwrap_or(Exit::Code(exit::DONE)));
    }
    let (directory, memory) = opened?;
    let path = directory.path().to_owned();
    files::log_exposure(lease, &path);
    config.kubernetes.placement.check("lease", lease)?;
    let publisher = pod::find(&config)?;
    let http = config.http.listen.map(admin::bind).transpose()?;

    let orphans = Orphans::adopt().map_err(system("adopt orphaned processes"))?;
    let systemd = Systemd::from_environment();
    let who = Identification {
        lease: lease.clone(),
        identity: config.identity.name.clone(),
        boot_id: clock::boot_id().map_err(system("identify the boot"))?,
    };
    let (uri, uri_receiver) = watch::channel(config.mongodb.uri.clone());
    let home = known_home(lease, &directory);
    let options = options(&config, drains, memory, home, uri_receiver, trace);
    let elector = match supervises {
        true => ElectorBuilder::supervising(options),
        false => ElectorBuilder::new(options),
    };
    let (status, inputs) = (elector.status(), elector.inputs());
    let metrics = Metrics::new(&who, status.clone(), elector.store_info())
        .and_then(|metrics| metrics.with_revision(env!("LEASEHOLD_REVISION")))
        .map_err(system("register the metrics"))?;
    log.stderr.on_loss({
        let metrics = metrics.clone();
        move |lines| metrics.log_lines_lost(lines)
    });
    let timings = elector.timings();
    let at_terminal = !json && io::stderr().is_terminal();
    let (not_started, reasons) = watch::channel(None);
    let mut reporter = Reporter::new(lease.clone(), timings.clone(), at_terminal, reasons);
    let address = http.as_ref().map(Bound::address);
    reporter.started(&config, &path, &memory, address);
    let (store_errors, store_error) = StoreErrors::channel(timings.clone());
    tokio::spawn(log_connecting(
        lease.clone(),
        config.mongodb.uri.clone(),
        elector.store_info(),
        store_error.clone(),
    ));
    let file_options = FileOptions {
        who: who.clone(),
        timings: timings.clone(),
        store_error: store_error.clone(),
        deployment: elector.deployment(),
    };
    let orders = || Orders::channel(stopping(&config.workload));
    let (orders, desired) = supervises.then(orders).unzip();
    let lock = directory.lock_handle();
    let witness = workload::witness(&supervised, &config, &sources);
    let workload = Workload::start(
        (supervised, witness),
        &config,
        &path,
        lock.map_err(system("share the lock of the status directory"))?,
        desired,
        (&inputs, &timings),
        (&metrics, not_started),
    )?;
    let files = StatusFileHandle::spawn(directory, status.clone(), file_options, metrics.clone());
    let files = Arc::new(files.map_err(system("start the thread of the status files"))?);
    let hangs = files::watch(
        lease.clone(),
        path,
        files.progress(),
        timings,
        status.clone(),
    );
    tokio::spawn(hangs);

    let (ready_when, ready_receiver) = watch::channel(config.http.ready_when);
    let state = AdminState {
        who: who.clone(),
        status: status.clone(),
        store: elector.store_info(),
        store_error,
        metrics: metrics.clone(),
        ready_when: ready_receiver,
        inputs: inputs.clone(),
    };
    let streams = http.as_ref().map(Bound::streams);
    let serving = serve_http(http, state);
    let pod = publisher.map(|start| start(&who, &status, &metrics));
    let pod = pod.transpose().map_err(system("publish on the pod"))?;
    let other_kind = Arc::new(Notify::new());
    let surfaces = DaemonSurfaces {
        other_kind: Some(Arc::clone(&other_kind)),
        files: Arc::clone(&files),
        pod: pod.clone(),
        orders,
        metrics,
        store_errors,
        reporter,
        idle_timers: Arc::clone(&idle_timers),
    };
    let pings = systemd.ping_interval();
    if checks.is_none() && pings.is_none_or(|ping| ping >= idle_timers::EXACT_BELOW) {
        idle_timers.allow();
    }
    let mut daemon = Daemon {
        elector: elector.start(surfaces),
        signals,
        systemd,
        files: Arc::clone(&files),
        pod,
        streams,
        workload,
        orphans,
        on_exit,
        at_terminal,
        status,
        other_kind,
        inputs,
        reloader: Reloader {
            current: config,
            sources,
            drains,
            log,
            ready_when,
            uri,
            reading: None,
            again: false,
        },
        who,
        idle_timers,
    };
    let ended = daemon.attend(serving).await;
    // Before the process exits, even after a failure, the files must say that this daemon has
    // stopped. Until then, the supervisor must not be dropped: after a second stop signal, it would
    // kill the command, which has time until its deadline.
    let _ = tokio::time::timeout(LAST_FLUSH_MAX, files.close()).await;
    drop(daemon);
    ended
}

/// Warns about ineffective environment variables; logs if a reload cannot change the connection
/// string.
fn log_sources(config: &Config, sources: &Sources) {
    let lease = &config.lease.name;
    for ignored in sources.ignored_variables() {
        let meant = ignored.meant.map(Key::variable);
        warn!(%lease, variable = ignored.name, meant, "{ignored}");
    }
    if let UriSource::Pipe(path, _) = &config.mongodb.uri {
        info!(
            %lease, path = %path.display(),
            "connection string read from a pipe; a new one requires a restart"
        );
    }
}

/// Logs the servers if no call to MongoDB has succeeded or failed within a second. A failed call
/// logs its own cause.
async fn log_connecting(
    lease: ResourceName,
    uri: UriSource,
    store: watch::Receiver<Option<StoreInfo>>,
    store_error: watch::Receiver<Option<StoreError>>,
) {
    let answered = || store.borrow().is_some() || store_error.borrow().is_some();
    let servers = connecting::unanswered(&uri, answered).await;
    info!(%lease, servers, "connecting to MongoDB");
}

impl Daemon {
    async fn attend(
        &mut self,
        serving: impl Future<Output = io::Result<Infallible>>,
    ) -> Result<Exit, CommandError> {
        tokio::pin!(serving);
        let mut stops = StopRequests::default();
        let mut ping = self.systemd.ping_interval().map(tokio::time::interval);
        let lease = self.who.lease.clone();
        let mut follower = StatusFollower::new(lease, Arc::clone(&self.files), self.at_terminal);
        let mut reported_ready = false;
        let (mut reminders, mut reminds) = (tokio::time::interval(REMINDER_INTERVAL), false);
        let mut exit = Exit::Code(exit::DONE);
        loop {
            let pinged = async {
                match &mut ping {
                    Some(interval) => interval.tick().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // If the candidate and a helper task end together, the candidate's result takes
                // precedence.
                biased;
                signal = self.signals.next() => match signal {
                    Signal::Stop(stop) => match stops.arrived() {
                        StopRequest::First => {
                            exit = exit_after(stop).unwrap_or(exit);
                            self.begin_stop(stop).await;
                        }
                        StopRequest::Repeated => {}
                        StopRequest::Second => {
                            warn!(lease = %self.who.lease, "second stop signal, exiting now without releasing the lease");
                            self.demoted().await;
                            self.flush().await;
                            return Ok(exit::NEGATIVE.into());
                        }
                    },
                    Signal::Reload => self.reloader.begin(),
                    Signal::StepDown => self.send(Input::StepDown).await,
                    Signal::Report => reporter::report(&self.status.borrow(), &self.who),
                },
                ended = self.elector.wait() => match ended {
                    // The cause was already logged.
                    Ok(()) | Err(ElectorError::Unconfirmed) => break,
                    Err(error) => return Err(system("run the election")(error)),
                },
                event = self.workload.next_event() => match event {
                    WorkloadEvent::Exited(exited)
                        if !stops.any() && (exited.interrupted || self.on_exit == OnExit::Exit) =>
                    {
                        exit = exited.exit();
                        self.send(Input::Shutdown).await;
                    }
                    WorkloadEvent::Exited(_) => {}
                    WorkloadEvent::Broken(task) => {
                        return Err(system("run the workload")(format!("task {task} ended")));
                    }
                },
                serving = &mut serving => {
                    let Err(error) = serving;
                    return Err(system("serve HTTP")(error));
                }
                reaped = self.orphans.reap() => {
                    let Err(error) = reaped;
                    return Err(system("wait for orphaned processes")(error));
                }
                read = self.reloader.read() => {
                    if let Some(tunables) = self.reloader.apply(read) {
                        self.send(Input::Reconfigure(tunables)).await;
                    }
                }
                Ok(()) = self.status.changed() => {
                    let (status, now) = (self.status.borrow_and_update().clone(), clock::boot_now());
                    follower.changed(&status, now);
                    if matches!(status.store, StoreAnswer::Foreign(_)) != reminds {
                        reminds = !reminds;
                        reminders.reset();
                    }
                    if status.store != StoreAnswer::None && !reported_ready {
                        reported_ready = true;
                        self.systemd.ready();
                    }
                    self.systemd.show(&status, &self.who.lease, &self.who.identity, now);
                }
                _ = pinged => self.systemd.ping(),
                () = self.systemd.retry() => {}
                () = self.other_kind.notified() => {
                    warn!(lease = %self.who.lease, "exiting with code 78, because a lock has the name of this lease");
                    exit = Exit::Code(exit::CONFIGURATION);
                    self.send(Input::Shutdown).await;
                }
                _ = reminders.tick(), if reminds => {
                    if let StoreAnswer::Foreign(why) = &self.status.borrow().store {
                        reporter::foreign(&self.who.lease, why);
                    }
                }
            }
        }
        self.idle_timers.forbid();
        self.flush().await;
        self.workload.close().await;
        self.elector.close().await;
        info!(lease = %self.who.lease, "stopped");
        Ok(exit)
    }

    async fn begin_stop(&mut self, stop: StopSignal) {
        self.idle_timers.forbid();
        self.systemd.stopping();
        reporter::stopping(&self.status.borrow(), &self.reloader, stop);
        self.send(Input::Shutdown).await;
    }

    async fn send(&self, input: Input) {
        // If the receiver was dropped, the candidate has ended, and `attend` will detect its end.
        let _ = self.inputs.send(input).await;
    }

    /// Waits briefly until the candidate has applied the first stop request. If the files were
    /// flushed earlier, they would say leader until their deadline.
    async fn demoted(&mut self) {
        let demoted = self.status.wait_for(|status| status.authority.is_none());
        // If the candidate hangs, readers stop trusting its files at the deadline.
        let _ = tokio::time::timeout(LAST_FLUSH_MAX, demoted).await;
    }

    /// Waits briefly until files, label and event streams show the current status, and the streams
    /// have ended.
    async fn flush(&self) {
        let labelled = async {
            if let Some(pod) = &self.pod {
                pod.last_words().await;
            }
        };
        let streamed = async {
            if let Some(streams) = &self.streams {
                // A client that does not read must rely on the deadline of its last event.
                let _ = tokio::time::timeout(LAST_FLUSH_MAX, streams.close()).await;
            }
        };
        let files = tokio::time::timeout(LAST_FLUSH_MAX, self.files.flush());
        let (flushed, (), ()) = tokio::join!(files, labelled, streamed);
        if !matches!(flushed, Ok(Ok(true))) {
            warn!(
                lease = %self.who.lease,
                "failed to rewrite the status files; readers must rely on the deadline in them"
            );
        }
    }
}

async fn serve_http(http: Option<Bound>, state: AdminState) -> io::Result<Infallible> {
    match http {
        Some(bound) => bound.serve(state).await,
        None => std::future::pending().await,
    }
}
