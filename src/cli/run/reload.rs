//! SIGHUP: applies the settings that can change at runtime, and logs those that cannot.
//!
//! An invalid configuration changes nothing.

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use super::options::tunables;
use crate::admin::ReadyWhen;
use crate::config::{Config, ConfigError, PROBLEMS_SHOWN_MAX, Reload, Sources, UriSource};
use crate::election::{TimingSettings, Timings, Tunables};
use crate::log::LogHandle;

/// Reloads the configuration.
pub(super) struct Reloader {
    pub(super) current: Config,
    pub(super) sources: Sources,
    pub(super) drains: bool,
    pub(super) log: LogHandle,
    pub(super) ready_when: watch::Sender<ReadyWhen>,
    pub(super) uri: watch::Sender<UriSource>,
    /// The configuration that is being read.
    pub(super) reading: Option<JoinHandle<Result<Config, ConfigError>>>,
    /// True if the configuration must be read once more.
    pub(super) again: bool,
}

impl Reloader {
    /// Starts to read the configuration, outside the event loop, because a hanging disk would block
    /// it. [`Reloader::read`] returns it.
    pub(super) fn begin(&mut self) {
        let sources = self.sources.clone();
        if self.reading.is_some() {
            // The files may have been read before they were changed.
            self.again = true;
            return;
        }
        #[allow(
            clippy::disallowed_methods,
            reason = "its end is awaited by the event loop"
        )]
        let reading = tokio::task::spawn_blocking(move || sources.load().config());
        self.reading = Some(reading);
    }

    /// Returns the configuration once it was read; never returns if none is being read. Cancel safe.
    pub(super) async fn read(&mut self) -> Result<Config, ConfigError> {
        loop {
            let Some(reading) = &mut self.reading else {
                std::future::pending::<()>().await;
                continue;
            };
            let read = reading.await;
            self.reading = None;
            if std::mem::take(&mut self.again) {
                self.begin();
                continue;
            }
            match read {
                Ok(read) => return read,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The runtime is shutting down.
                    Err(_) => continue,
                },
            }
        }
    }

    /// Applies a configuration that was read. Returns the new settings for the election; `None` if
    /// nothing changed or it was rejected.
    pub(super) fn apply(&mut self, read: Result<Config, ConfigError>) -> Option<Tunables> {
        let lease = self.current.lease.name.clone();
        let new = match read {
            Ok(new) => new,
            Err(mistakes) => {
                let problems = mistakes.problems();
                for problem in problems.iter().take(PROBLEMS_SHOWN_MAX) {
                    error!(%lease, %problem, "reload rejected, keeping the current configuration");
                }
                if let Some(more @ 1..) = problems.len().checked_sub(PROBLEMS_SHOWN_MAX) {
                    error!(%lease, more, "reload rejected: more problems omitted");
                }
                return None;
            }
        };
        // The driver's timeouts were derived from this value when the client was created.
        let operation_timeout = self.current.lease.timings.operation_timeout();
        let settings = TimingSettings {
            operation_timeout,
            ..new.lease.timings.settings()
        };
        let timings = match Timings::new(settings) {
            Ok(timings) => timings,
            Err(mistakes) => {
                for problem in mistakes {
                    error!(
                        %lease, %problem,
                        "reload rejected: conflicts with the current operation_timeout, which requires a restart"
                    );
                }
                return None;
            }
        };
        let differences = self.current.differences(&new);
        if differences.is_empty() {
            info!(%lease, "configuration reloaded: no changes");
        }
        for difference in &differences {
            let key = difference.key.path();
            match difference.reload {
                Reload::Now => info!(%lease, key, "configuration reloaded"),
                Reload::NextClaim => {
                    info!(%lease, key, "configuration reloaded; takes effect with the next acquisition")
                }
                Reload::Restart => warn!(%lease, key, "configuration change requires a restart"),
            }
        }
        self.log.set_level(new.log.level.filter());
        self.ready_when.send_replace(new.http.ready_when.into());
        self.uri.send_replace(new.mongodb.uri.clone());
        self.current.applied(&new);
        self.current.mongodb.uri = new.mongodb.uri;
        self.current.log.level = new.log.level;
        self.current.http.ready_when = new.http.ready_when;
        self.current.lease.timings = timings;
        self.current.lease.handoff_delay = new.lease.handoff_delay;
        self.current.lease.prefer = new.lease.prefer;
        self.current.lease.prefer_interval = new.lease.prefer_interval;
        self.current.lease.profile = new.lease.profile;
        (!differences.is_empty()).then(|| tunables(&self.current, self.drains))
    }
}
