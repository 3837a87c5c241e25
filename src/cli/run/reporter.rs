//! What the daemon says in its log: each change of leadership in one line,
//! each trouble once and then at growing intervals.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tracing::{debug, error, info, warn};

use crate::clock;
use crate::config::Config;
use crate::election::{BootTime, LeaseName, Notice, Reason, Status, Transition};
use crate::publish::directory::Memory;
use crate::publish::render::{Identification, Moment, render};
use crate::runner::Answered;
use crate::store::Failure;

/// From the first line about a trouble to the second.
const REPEAT_MIN: Duration = Duration::from_secs(2);
/// The longest time between two lines about a trouble that lasts.
const REPEAT_MAX: Duration = Duration::from_secs(300);

/// Writes the log of one candidate.
pub(super) struct Reporter {
    lease: LeaseName,
    reads: Trouble,
    writes: Trouble,
    watch: Trouble,
}

/// A trouble that lasts, or comes and goes: when to speak of it again.
#[derive(Default)]
struct Trouble {
    since: Option<BootTime>,
    failures: u64,
    /// Whether it was spoken of since it began.
    said: bool,
    speak_at: BootTime,
    interval: Duration,
    /// Kinds that were spoken of: a new one is worth a line at once. The
    /// store knows about twenty.
    kinds: Vec<&'static str>,
}

impl Trouble {
    /// Whether to speak of this failure.
    fn failed(&mut self, kind: &'static str, now: BootTime) -> bool {
        if self.since.is_none() {
            self.since = Some(now);
            self.failures = 0;
            // One that comes back before its next line was due goes on where
            // it was, else it would be a line each time.
            if now >= self.speak_at + self.interval {
                self.interval = REPEAT_MIN;
                self.kinds.clear();
            }
        }
        self.failures += 1;
        let new_kind = !self.kinds.contains(&kind);
        if new_kind {
            self.kinds.push(kind);
        }
        let due = now >= self.speak_at;
        if due {
            self.speak_at = now + self.interval;
            self.interval = (self.interval * 2).min(REPEAT_MAX);
        }
        self.said |= due || new_kind;
        due || new_kind
    }

    /// Since when it had lasted, and how many failures it had, if it is over
    /// now and was spoken of.
    fn over(&mut self) -> Option<(BootTime, u64)> {
        let since = self.since.take()?;
        std::mem::take(&mut self.said).then_some((since, self.failures))
    }
}

impl Reporter {
    pub(super) fn new(lease: LeaseName) -> Self {
        Self {
            lease,
            reads: Trouble::default(),
            writes: Trouble::default(),
            watch: Trouble::default(),
        }
    }

    /// What runs here, and what is doubtful about its settings.
    pub(super) fn started(
        &self,
        config: &Config,
        directory: &Path,
        memory: &Memory,
        http: Option<SocketAddr>,
    ) {
        let timings = &config.lease.timings;
        info!(
            lease = %self.lease,
            identity = %config.identity,
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
        if memory.damaged {
            warn!(
                lease = %self.lease,
                directory = %directory.display(),
                "the record in the status directory cannot be read: the highest token seen before \
                 is forgotten here"
            );
        }
        if let Some(warning) = timings.election_gap_warning() {
            warn!(lease = %self.lease, "{warning}");
        }
    }

    /// One line for each change of role.
    pub(super) fn transition(&self, transition: &Transition) {
        let Transition {
            from,
            to,
            reason,
            token,
            lasted,
        } = transition;
        let lost = matches!(
            reason,
            Some(Reason::Deadline | Reason::Rejected | Reason::StoreWentBack | Reason::Duplicate)
        );
        let (from, to) = (from.as_str(), to.as_str());
        let (reason, token) = (reason.map(Reason::as_str), token.map(|t| t.get()));
        let lasted_ms = millis(*lasted);
        let lease = &self.lease;
        if lost {
            warn!(%lease, from, to, token, reason, lasted_ms, "role changed");
        } else {
            info!(%lease, from, to, token, reason, lasted_ms, "role changed");
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
                "took over from a holder that had expired"
            ),
            Notice::Succeeded { token } => info!(
                %lease, token = token.get(),
                "took over at once: the process that held the lease on this status directory is gone"
            ),
            Notice::StoreWentBack { seen, found, wait } => error!(
                %lease, token_seen = seen.get(), token_found = found.map(|t| t.get()),
                wait_ms = millis(*wait),
                "store went back: the lease document was deleted or restored to an older state; not \
                 contending until everybody who saw it has expired"
            ),
            Notice::Duplicate { session } => error!(
                %lease, %session,
                "another process renewed with this one's claim: a forked machine, or an edited \
                 document; going on with a new session"
            ),
            Notice::Foreign { why } => error!(
                %lease, why,
                "the document under the lease's name is not a lease of this version: not touched, \
                 not leading, looking again"
            ),
            Notice::AbsurdDuration { identity, millis } => warn!(
                %lease, holder = %identity, lease_duration_ms = millis,
                "the holder declares a lease duration outside 1s to 1h: waiting for 1h"
            ),
            Notice::BackingOff { wait } => warn!(
                %lease, wait_ms = millis(*wait),
                "lost by deadline twice within ten minutes: letting others go first"
            ),
            Notice::NotDemoted { wait } => warn!(
                %lease, wait_ms = millis(*wait),
                "the status files still say leader and cannot be rewritten: holding the release \
                 back until the deadline in them"
            ),
            Notice::LeftToExpire => warn!(
                %lease,
                "exiting without a release, since the status files still say leader: the lease \
                 expires by itself"
            ),
            Notice::TokensExhausted => error!(
                %lease,
                "the token in the lease document is the largest number there is: nobody can lead \
                 until it is repaired"
            ),
        }
    }

    pub(super) fn answered(&mut self, answered: &Answered) {
        let Answered {
            operation,
            outcome,
            elapsed,
            failure,
            late,
        } = answered;
        let lease = &self.lease;
        let elapsed_ms = millis(*elapsed);
        debug!(%lease, operation, outcome, elapsed_ms, late, "store call");
        if *late {
            return;
        }
        let now = clock::boot_now();
        // A role that may read and not write, or a majority that is missing,
        // fails one and not the other.
        let trouble = if *operation == "read" {
            &mut self.reads
        } else {
            &mut self.writes
        };
        match failure {
            Some(failure) => {
                if trouble.failed(failure.kind, now) {
                    warn!(
                        %lease, operation, outcome, elapsed_ms, why = %failure,
                        failures = trouble.failures, "store call failed; trying again"
                    );
                }
            }
            None => {
                if let Some((since, failures)) = trouble.over() {
                    let after_ms = millis(now.since(since));
                    info!(%lease, operation, after_ms, failures, "the store answers again");
                }
            }
        }
    }

    pub(super) fn request_ignored(&self, why: &str) {
        warn!(
            lease = %self.lease, why,
            "the request in the lease document cannot be understood and is ignored: set it to \
             {{kind: \"step_down\", token}} or {{kind: \"transfer\", token, to}}, with the leader's \
             token as a NumberLong"
        );
    }

    pub(super) fn watching(&mut self, failure: Option<&Failure>) {
        let lease = &self.lease;
        let now = clock::boot_now();
        match failure {
            Some(failure) => {
                if self.watch.failed(failure.kind, now) {
                    warn!(
                        %lease, why = %failure, failures = self.watch.failures,
                        "no change stream; polling"
                    );
                }
            }
            None => {
                if let Some((since, failures)) = self.watch.over() {
                    let after_ms = millis(now.since(since));
                    info!(%lease, after_ms, failures, "the change stream is open again");
                }
            }
        }
    }
}

/// Logs the full status (SIGUSR2).
pub(super) fn report(status: &Status, who: &Identification) {
    let (json, _) = render(status, who, Moment::now());
    info!(lease = %who.lease, status = json.trim(), "status");
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lasting_trouble_is_spoken_of_at_growing_intervals() {
        let mut trouble = Trouble::default();
        let start = BootTime::from_nanos(0) + Duration::from_secs(100);
        let lines: Vec<u64> = (0..600)
            .filter(|second| trouble.failed("a", start + Duration::from_secs(*second)))
            .collect();
        assert_eq!(lines, [0, 2, 6, 14, 30, 62, 126, 254, 510]);
        assert_eq!(trouble.over(), Some((start, 600)));
        assert_eq!(trouble.over(), None);
    }

    #[test]
    fn a_trouble_that_comes_and_goes_is_not_a_line_each_time() {
        let mut trouble = Trouble::default();
        let start = BootTime::from_nanos(0) + Duration::from_secs(100);
        let mut lines = 0;
        for second in 0..600 {
            lines += u32::from(trouble.failed("a", start + Duration::from_secs(second)));
            lines += u32::from(trouble.over().is_some());
        }
        assert!(lines <= 20, "{lines} lines in ten minutes");
    }

    #[test]
    fn another_kind_of_failure_is_spoken_of_at_once_and_once() {
        let mut trouble = Trouble::default();
        let start = BootTime::from_nanos(0) + Duration::from_secs(100);
        let said: Vec<bool> = ["a", "b", "a", "b"]
            .iter()
            .map(|kind| trouble.failed(kind, start))
            .collect();
        assert_eq!(said, [true, true, false, false]);
    }
}
