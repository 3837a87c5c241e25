//! Tracks whether MongoDB reports the changes of a live list.

use tracing::{info, warn};

use crate::operators::REMINDED_AFTER;
use leasehold_core::election::BootTime;
use leasehold_host::log::{ErrorThrottle, millis};
use leasehold_mongodb::store::mongo::operators::ViewEvent;

pub(super) struct WatchFeed {
    trouble: Option<String>,
    /// True if the change stream failed and has not been reopened.
    polls: bool,
    throttle: ErrorThrottle,
}

impl Default for WatchFeed {
    fn default() -> Self {
        Self {
            trouble: None,
            polls: false,
            throttle: ErrorThrottle::starting_with(REMINDED_AFTER),
        }
    }
}

impl WatchFeed {
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    pub(super) fn apply(&mut self, event: &ViewEvent) {
        match event {
            ViewEvent::Failed(failure) | ViewEvent::Polling(failure) => {
                self.polls |= matches!(event, ViewEvent::Polling(_));
                self.trouble = Some(match &*failure.public {
                    "" => failure.to_string(),
                    public => public.to_owned(),
                });
            }
            ViewEvent::Streaming => (self.polls, self.trouble) = (false, None),
            ViewEvent::Listed { .. } | ViewEvent::Changed { .. } | ViewEvent::Removed { .. } => {
                self.trouble = self.trouble.take().filter(|_| self.polls);
            }
        }
    }

    /// Logs the beginning and the end of an outage, and a reminder at most once a minute. Returns
    /// true if the event was logged.
    pub(super) fn log(&mut self, event: &ViewEvent, now: BootTime) -> bool {
        let failed = matches!(event, ViewEvent::Failed(_) | ViewEvent::Polling(_));
        self.apply(event);
        match &self.trouble {
            // All failures count as one kind; otherwise a failure of a new kind would be logged
            // immediately.
            Some(why) if failed => {
                let logs = self.throttle.failed("view", None, now).is_some();
                if logs {
                    warn!(why, "MongoDB reports no changes, retrying");
                }
                logs
            }
            Some(_) => false,
            None => match self.throttle.over(now) {
                Some((lasted, _)) => {
                    info!(after_ms = millis(lasted), "MongoDB reports changes again");
                    true
                }
                None => false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_mongodb::store::Failure;

    #[test]
    fn an_outage_is_logged_once_and_its_end_ends_it() {
        let failed = || Failure::new("no answer", "");
        let listed = |at| ViewEvent::Listed {
            entries: Vec::new(),
            at,
        };
        let at = |seconds: u64| BootTime::from_nanos((1_000 + seconds) * 1_000_000_000);
        let mut feed = WatchFeed::default();
        let mut warned = 0;
        for second in 0..59 {
            let logged = feed.log(&ViewEvent::Failed(failed()), at(second));
            warned += usize::from(logged);
        }
        assert_eq!(warned, 1);
        feed.log(&listed(at(59)), at(59));
        assert_eq!(
            feed.trouble(),
            None,
            "read again, and the stream was not lost"
        );
        feed.log(&ViewEvent::Polling(failed()), at(200));
        feed.log(&listed(at(201)), at(201));
        assert!(feed.trouble().is_some(), "reads do not open the stream");
        feed.log(&ViewEvent::Streaming, at(202));
        assert_eq!(feed.trouble(), None);
    }
}
