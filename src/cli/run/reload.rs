//! Reloads the configuration on SIGHUP: applies settings that can change at runtime, and logs the
//! others. An invalid configuration changes nothing.

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use super::options::tunables;
use crate::config::{
    Config, ConfigError, Key, PROBLEMS_SHOWN_MAX, ReadyWhen, Reload, Sources, UriSource,
};
use crate::election::Tunables;
use crate::log::LogHandle;

/// The new configuration, and the keys whose values have changed.
type Reloaded = Result<(Config, Vec<&'static Key>), ConfigError>;

pub(super) struct Reloader {
    pub(super) current: Config,
    pub(super) sources: Sources,
    pub(super) drains: bool,
    pub(super) log: LogHandle,
    pub(super) ready_when: watch::Sender<ReadyWhen>,
    pub(super) uri: watch::Sender<UriSource>,
    pub(super) reading: Option<JoinHandle<Reloaded>>,
    pub(super) again: bool,
}

impl Reloader {
    /// Starts reading the configuration on another thread, so that a hanging disk does not block
    /// the event loop.
    pub(super) fn begin(&mut self) {
        if self.reading.is_some() {
            // The read in progress may have missed the newest change to the files.
            self.again = true;
            return;
        }
        let (current, sources) = (self.current.clone(), self.sources.clone());
        #[allow(clippy::disallowed_methods, reason = "the event loop awaits the task")]
        let reading = tokio::task::spawn_blocking(move || current.reload(&sources));
        self.reading = Some(reading);
    }

    /// Waits for the configuration that [`Reloader::begin`] reads; waits indefinitely if no read is
    /// in progress. Cancel safe.
    pub(super) async fn read(&mut self) -> Reloaded {
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

    /// Applies a configuration that was read. Returns the new settings of the election; `None` if
    /// nothing changed or the configuration was rejected.
    pub(super) fn apply(&mut self, read: Reloaded) -> Option<Tunables> {
        let lease = &self.current.lease.name;
        let (new, differences) = match read {
            Ok(read) => read,
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
        if differences.is_empty() {
            info!(%lease, "configuration reloaded: no changes");
        }
        for difference in &differences {
            let key = difference.path();
            match difference.reload {
                Reload::Now => info!(%lease, key, "configuration reloaded"),
                Reload::NextClaim => {
                    info!(%lease, key, "configuration reloaded; takes effect with the next acquisition")
                }
                Reload::Reconnect => {
                    info!(%lease, key, "configuration reloaded; takes effect when leasehold reconnects to MongoDB")
                }
                Reload::Restart => warn!(%lease, key, "configuration change requires a restart"),
            }
        }
        self.log.set_level(new.log.level);
        self.ready_when.send_replace(new.http.ready_when);
        self.uri.send_replace(new.mongodb.uri.clone());
        self.current = new;
        (!differences.is_empty()).then(|| tunables(&self.current, self.drains))
    }
}
