//! Logs each change of leadership, and repeats lasting failures at growing intervals.

mod role_news;
mod streams;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::path::Path;

use tokio::sync::watch;
use tracing::{debug, error, info, warn};

use self::streams::StreamLog;
use super::reload::Reloader;
use super::store_errors::StoreErrors;
use super::workload::NotStarted;
use crate::calls::AnsweredCall;
use crate::cli::UNSUPPORTED;
use crate::cli::store_elections::Needed;
use crate::config::Config;
use crate::duration::shown;
use crate::election::{BootTime, ForeignDocument, Notice, ResourceName, Status, Timings, Watch};
use crate::log::{ErrorThrottle, millis};
use crate::publish::directory::{RecoveredState, Unproven};
use crate::publish::occupant::{Occupant, named};
use crate::publish::render::{ClockPair, Identification, StatusDocument};
use crate::signals::StopSignal;
use crate::store::mongo::WatchMode;
use crate::store::mongo::probe::lacks_right;
use crate::store::{
    FailoverSettings, Failure, RetryPolicy, StoreEvent, StoreInfo, foreign_document,
};

pub(super) struct Reporter {
    lease: ResourceName,
    /// True if the log goes to a terminal as text.
    at_terminal: bool,
    timings: watch::Receiver<Timings>,
    reads: ErrorThrottle,
    writes: ErrorThrottle,
    refuses_writes: bool,
    streams: StreamLog,
    not_started: watch::Receiver<NotStarted>,
}

impl Reporter {
    pub(super) fn new(
        lease: ResourceName,
        timings: watch::Receiver<Timings>,
        at_terminal: bool,
        not_started: watch::Receiver<NotStarted>,
    ) -> Self {
        Self {
            streams: StreamLog::new(lease.clone()),
            lease,
            at_terminal,
            timings,
            reads: ErrorThrottle::default(),
            writes: ErrorThrottle::default(),
            refuses_writes: false,
            not_started,
        }
    }

    pub(super) fn started(
        &mut self,
        config: &Config,
        directory: &Path,
        memory: &RecoveredState,
        http: Option<SocketAddr>,
    ) {
        self.streams.wants_hints = config.mongodb.watch == WatchMode::Hints;
        let timings = &config.lease.timings;
        if self.at_terminal {
            let http = http
                .map(|http| format!(", HTTP on {http}"))
                .unwrap_or_default();
            let (lease, name) = (&self.lease, &config.identity.name);
            info!(
                "contending for the lease {lease} as {name}; status in {}{http}",
                directory.display()
            );
        } else {
            info!(
                lease = %self.lease,
                identity = %config.identity.name,
                version = env!("CARGO_PKG_VERSION"),
                database = config.mongodb.database,
                collection = config.mongodb.collection,
                status_directory = %directory.display(),
                http = http.map(tracing::field::display),
                lease_duration_ms = millis(timings.lease_duration()),
                renew_deadline_ms = millis(timings.renew_deadline()),
                token_remembered = memory.token.get(),
                "contending for the lease"
            );
        }
        let (lease, directory) = (&self.lease, directory.display());
        if memory.other_lease {
            warn!(%lease, %directory, "status directory was used for another lease; its claim record is discarded");
        }
        if memory.damaged {
            warn!(%lease, %directory, "claim record unreadable; the highest known token is lost on this host");
        }
        match memory.unproven {
            Some(Unproven::MayRun(pid)) => warn!(
                %lease, pid,
                "the workload of the previous daemon may still run: its guard was killed too; \
                 waiting for its lease to expire"
            ),
            Some(Unproven::NotRecorded) => info!(
                %lease,
                "the claim record does not say whether a workload ran: waiting for the lease of \
                 the previous daemon to expire"
            ),
            Some(Unproven::FileRemains(file, why)) => warn!(
                %lease, %directory, file, %why,
                "cannot remove a status file of the previous daemon, waiting for its lease to expire"
            ),
            None => {}
        }
    }

    pub(super) fn store_event(&mut self, event: &StoreEvent) {
        let lease = &self.lease;
        match event {
            StoreEvent::Watch(Watch::Opened | Watch::LateStreamOpened) => {
                self.streams.stream_opened();
            }
            StoreEvent::Watch(Watch::HintsOpened) => self.streams.hints_opened(),
            StoreEvent::WatchFailed(failure) => self.streams.stream_failed(failure),
            StoreEvent::HintsFailed(failure) => self.streams.hints_failed(failure),
            StoreEvent::RequestIgnored(why) => warn!(
                %lease, why,
                "invalid request in the lease document, ignored (docs/operations.md shows valid requests)"
            ),
            StoreEvent::Connected(store) => self.connected(store),
            StoreEvent::Lookalike(product) => error!(%lease, product, "{UNSUPPORTED}"),
            StoreEvent::Failover(settings) => self.failover(settings),
            _ => {}
        }
    }

    fn connected(&self, store: &StoreInfo) {
        info!(lease = %self.lease, store = store.describe(), "connected to MongoDB");
        if store.kind.has_late_streams() {
            info!(lease = %self.lease, "change streams may be late, also reading each renewal");
        }
    }

    /// Warns if the leader would lose leadership during an election of the replica set.
    fn failover(&self, settings: &Result<FailoverSettings, Failure>) {
        let lease = &self.lease;
        let (settings, unknown) = match settings {
            Ok(settings) => (*settings, None),
            Err(why) if lacks_right(why) => {
                let why = "the role lacks replSetGetConfig (clusterMonitor)".to_owned();
                (FailoverSettings::default(), Some(why))
            }
            Err(why) => (FailoverSettings::default(), Some(why.to_string())),
        };
        let election = match unknown {
            Some(_) => "an election with MongoDB's default settings",
            None => "a MongoDB election",
        };
        let timings = *self.timings.borrow();
        let needed = Needed::of(&timings, &settings);
        let arithmetic = &needed.arithmetic;
        match needed.suffices {
            true => debug!(
                %lease, settings_unknown = unknown,
                "the leadership survives {election}: {arithmetic}"
            ),
            false => warn!(
                %lease, without_writes_ms = millis(needed.gap),
                renew_deadline_ms = millis(timings.renew_deadline()), settings_unknown = unknown,
                "{election} would end the leadership; to fix: raise lease.renew_deadline to {} or \
                 more (leasehold check shows why)",
                shown(needed.sum)
            ),
        }
    }

    pub(super) fn notice(&self, notice: &Notice) {
        let lease = &self.lease;
        match notice {
            Notice::Overtook {
                identity,
                token,
                silent,
            } => warn!(
                %lease, holder = %identity, token = token.get(), silent_ms = millis(*silent),
                "took over from an expired holder"
            ),
            Notice::Succeeded { token } => info!(
                %lease, token = token.get(),
                "took over immediately: the previous process that used this status directory has exited"
            ),
            Notice::StoreRolledBack { seen, found, wait } => error!(
                %lease, token_seen = seen.get(), token_found = found.map(|t| t.get()),
                wait_ms = millis(*wait),
                "lease document is older than last seen (deleted, restored, or another database); \
                 not contending until previous leases have expired"
            ),
            Notice::Duplicate { session } => error!(
                %lease, %session,
                "another process renewed with this claim (cloned machine or edited document); \
                 continuing with a new session"
            ),
            Notice::Foreign { why } => foreign(lease, why),
            Notice::InvalidLeaseDuration { identity, millis } => warn!(
                %lease, holder = %identity, lease_duration_ms = millis,
                "holder declares a lease duration outside 1s to 1h; treating it as 1h"
            ),
            Notice::BackingOff { wait } => warn!(
                %lease, wait_ms = millis(*wait),
                "leadership lost at its deadline twice within ten minutes; backing off"
            ),
            Notice::NotDemoted { wait } => warn!(
                %lease, wait_ms = millis(*wait),
                "status files still say leader and cannot be rewritten; delaying the release \
                 until their deadline"
            ),
            Notice::LeftToExpire => warn!(
                %lease,
                "exiting without a release because the status files still say leader; the lease \
                 will expire"
            ),
            Notice::WorkloadStuck { token, wait } => error!(
                %lease, token = token.get(), wait_ms = millis(*wait),
                "workload still runs after SIGKILL; neither renewing nor releasing, the lease \
                 expires"
            ),
            Notice::RequestForAnotherToken { requested, leading } => warn!(
                %lease, token = leading.get(), token_requested = requested.get(),
                "request ignored: token mismatch; set request.token to the leader's current \
                 token"
            ),
            Notice::GivingWay { identity, priority } => info!(
                %lease, standby = %identity, priority,
                "handing over to the standby: its priority is higher"
            ),
            Notice::TokensExhausted => error!(
                %lease,
                "token exhausted (maximum int64); no candidate can lead until the document is repaired"
            ),
        }
    }

    /// Logs a result that `store_errors` has recorded.
    pub(super) fn answered(
        &mut self,
        answered: &AnsweredCall,
        store_errors: &StoreErrors,
        now: BootTime,
    ) {
        let (operation, outcome, late) = (answered.operation, answered.outcome, answered.late);
        let lease = &self.lease;
        let elapsed_ms = millis(answered.elapsed);
        debug!(%lease, operation, outcome, elapsed_ms, late, "store call");
        if late || store_errors.is_outdated(answered, now) {
            return;
        }
        // A read-only role or a missing majority makes writes fail, but not reads.
        let errors = if operation == "read" {
            &mut self.reads
        } else {
            if let Some(failure) = &answered.failure {
                self.refuses_writes = failure.retry != RetryPolicy::WaitForServer;
            }
            &mut self.writes
        };
        match &answered.failure {
            Some(failure) => {
                self.streams.call_failed();
                let due = errors.failed_after(answered.elapsed, failure.kind, failure.code, now);
                if let Some((failing_for, failures)) = due {
                    // A standby's registration is not repeated at this interval.
                    let interval = self.timings.borrow().retry_interval();
                    let retry = match operation {
                        "register" | "withdraw" => String::new(),
                        _ => format!(", retrying in {}", shown(interval)),
                    };
                    warn!(
                        %lease, operation, outcome, elapsed_ms, why = %failure, failures,
                        failing_for_ms = (failures > 1).then_some(millis(failing_for)),
                        "MongoDB {operation} failed (attempt {failures}){retry}"
                    );
                }
            }
            None => {
                // A write that matches no document does not prove that writes are accepted.
                let proves_nothing = answered.is_rejected() && self.refuses_writes;
                let over = match proves_nothing {
                    true => None,
                    false => errors.over(now),
                };
                // A leader might never read again, and a follower might never write again.
                let read_over = store_errors.failed_read().is_none();
                let read_over = read_over.then(|| self.reads.over(now)).flatten();
                if store_errors.failed_write().is_none() {
                    self.writes.over(now);
                }
                if let Some((lasted, failures)) = over.or(read_over) {
                    let after_ms = millis(lasted);
                    info!(%lease, operation, after_ms, failures, "MongoDB answers again");
                }
                self.streams.call_answered();
            }
        }
    }
}

/// Logs the first stop request, and the maximum time that a leader's workload may delay the exit.
pub(super) fn stopping(status: &Status, reloader: &Reloader, stop: StopSignal) {
    let config = &reloader.current;
    let lease = &config.lease.name;
    let (workload, grace, key) = match reloader.drains {
        true => ("command", config.workload.stop_grace, "workload.stop_grace"),
        false => (
            "workload",
            config.lease.handoff_delay,
            "lease.handoff_delay",
        ),
    };
    let at_once = grace.is_zero() || !reloader.drains && config.workload.ends_first;
    if status.authority.is_none() || at_once {
        info!(%lease, "stopping");
        return;
    }
    let grace = shown(grace);
    let again = match stop {
        // If leasehold runs a command, Ctrl-C reaches only the command.
        StopSignal::INTERRUPT if !reloader.drains && io::stdin().is_terminal() => "Ctrl-C again",
        _ => "a second signal",
    };
    info!(%lease, "stopping: the {workload} has {grace} ({key}); {again} after 1s exits at once");
}

pub(super) fn foreign(lease: &ResourceName, why: &ForeignDocument) {
    let why = foreign_document(why, "lease");
    error!(%lease, why, "cannot lead, leaving the document untouched");
}

/// Logs that another process has locked the claim file of the status directory.
pub(super) fn directory_locked(lease: &ResourceName, directory: &Path, by: &[Occupant]) {
    let (directory, locked_by) = (directory.display(), named(by));
    if by.iter().all(|process| process.is_leasehold) {
        info!(
            %lease, %directory, locked_by,
            "waiting for the guard of the previous daemon to stop its workload"
        );
    } else {
        warn!(
            %lease, %directory, locked_by,
            "waiting for another program to unlock the claim file of the status directory"
        );
    }
}

pub(super) fn report(status: &Status, who: &Identification) {
    let document = StatusDocument::new(status, who, ClockPair::now());
    let holder = document.holder.as_ref();
    info!(
        lease = %who.lease,
        identity = document.identity,
        session = document.session,
        role = document.role,
        leader = document.leader,
        token = document.token,
        valid_until = document.valid_until,
        valid_until_boottime_ns = document.valid_until_boottime_ns,
        boot_id = document.boot_id,
        holder = holder.map(|holder| &holder.identity),
        holder_token = holder.map(|holder| holder.token),
        transitions = document.transitions,
        since = document.since,
        reason = document.reason,
        "status"
    );
}
