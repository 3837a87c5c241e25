//! From the configuration to what runs the workload and looks after its health.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::config::{Config, HealthCheck};
use crate::election::Input;
use crate::publish::file::status_file;
use crate::publish::metrics::Metrics;
use crate::supervisor::{
    Check, Health, HealthOptions, Ordered, Program, Supervisor, SupervisorOptions, Watched,
};

/// Codes of workloads that ended by themselves: one for each claim, and the
/// daemon looks at each at once.
const EXITS_MAX: usize = 4;

/// What this replica runs under a claim.
pub(super) struct Plan {
    pub(super) command: Vec<OsString>,
}

impl Plan {
    /// Whether anything is run.
    pub(super) fn supervises(&self, config: &Config) -> bool {
        !self.command.is_empty() || !config.hooks.on_lead.is_empty() || self.drains(config)
    }

    /// Whether the end of what is run is waited for. Then there is nothing
    /// left that `lease.handoff_delay` would wait for.
    pub(super) fn drains(&self, config: &Config) -> bool {
        !self.command.is_empty() || !config.hooks.on_step_down.is_empty()
    }
}

/// How long the end of the daemon waits for the processes that wait for
/// authority. They take some milliseconds, and one that somebody stopped 100.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

/// The tasks that run the workload and look after it.
pub(super) struct Workload {
    supervises: bool,
    tasks: JoinSet<&'static str>,
    exits: mpsc::Receiver<Exit>,
}

/// Counts what happens to the command, and passes its codes on.
struct Witness {
    metrics: Metrics,
    exits: mpsc::Sender<Exit>,
}

impl Watched for Witness {
    fn up(&mut self, up: bool) {
        self.metrics.workload_up(up);
    }

    fn stopped(&mut self, took: Duration) {
        self.metrics.workload_stopped(took);
    }

    fn ended(&mut self, code: u8, interrupted: bool) {
        // More than the daemon looked at tell it nothing new.
        let _ = self.exits.try_send(Exit { code, interrupted });
    }
}

/// The command ended by itself.
pub(super) struct Exit {
    /// As a shell has it.
    pub(super) code: u8,
    /// A key of the terminal ended it.
    pub(super) interrupted: bool,
}

/// What a workload's tasks come to tell.
pub(super) enum Told {
    /// The command ended by itself.
    Exited(Exit),
    /// A task ended that nobody asked to end.
    Broken(&'static str),
}

impl Workload {
    /// Starts what is configured. The election hears of an unknown health
    /// before it contends.
    pub(super) fn start(
        plan: &Plan,
        config: &Config,
        directory: &Path,
        lock: OwnedFd,
        orders: Option<watch::Receiver<Option<Ordered>>>,
        inputs: &mpsc::Sender<Input>,
        metrics: &Metrics,
    ) -> Self {
        let mut tasks = JoinSet::new();
        let (exits_sender, exits) = mpsc::channel(EXITS_MAX);
        let program = Program {
            lease: config.lease.name.clone(),
            identity: config.identity.clone(),
            // A command may change its directory.
            status_file: status_file(directory),
        };
        let mut runs = None;
        let supervises = orders.is_some();
        if let Some(orders) = orders {
            let options = SupervisorOptions {
                program: program.clone(),
                command: plan.command.clone(),
                stop_signal: config.workload.stop_signal.number(),
                stop_grace: config.workload.stop_grace,
                on_lead: config.hooks.on_lead.clone(),
                on_step_down: config.hooks.on_step_down.clone(),
                hook_timeout: config.hooks.timeout,
                lock,
            };
            let watched = Witness {
                metrics: metrics.clone(),
                exits: exits_sender,
            };
            let supervisor = Supervisor::new(options, orders, inputs.clone(), watched);
            runs = (!plan.command.is_empty()).then(|| supervisor.runs());
            tasks.spawn(async move {
                supervisor.run().await;
                "supervisor"
            });
        }
        if let Some(health) = &config.workload.health {
            let options = HealthOptions {
                check: match &health.check {
                    HealthCheck::Url(url) => Check::Url(url.clone()),
                    HealthCheck::Command(command) => Check::Command(command.clone()),
                },
                period: health.period,
                timeout: health.timeout,
                failures: health.failures,
                retry_after: config.lease.timings.lease_duration(),
            };
            let health = Health::new(options, program, runs);
            if !health.at_first() {
                // The queue is empty: nothing has begun.
                let _ = inputs.try_send(Input::Health { healthy: false });
            }
            let inputs = inputs.clone();
            tasks.spawn(async move {
                health.watch(inputs).await;
                "health"
            });
        }
        Self {
            supervises,
            tasks,
            exits,
        }
    }

    /// Waits, for a moment, until nothing of it is left; nobody gives orders any more.
    pub(super) async fn close(&mut self) {
        let supervised = async {
            while let Some(ended) = self.tasks.join_next().await {
                if matches!(ended, Ok("supervisor")) {
                    return;
                }
            }
        };
        if self.supervises {
            let _ = tokio::time::timeout(CLOSED_WITHIN, supervised).await;
        }
    }

    /// What is to be told next; for ever, if there is nothing.
    pub(super) async fn told(&mut self) -> Told {
        tokio::select! {
            Some(exit) = self.exits.recv() => Told::Exited(exit),
            Some(ended) = self.tasks.join_next() => Told::Broken(ended.unwrap_or("workload")),
            else => std::future::pending().await,
        }
    }
}
