//! `GET /events`: streams the status as server-sent events, each with the deadline.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::AdminState;
use super::wait::{changed, sleep_until};
use crate::clock::boot_now;
use crate::election::{BootTime, Status};
use crate::log::millis;
use crate::publish::StoreError;
use crate::publish::render::{ClockPair, StatusDocument, last_status, renders_equal};
use leasehold_http::{EventBody, Feed, StreamPlace, event_body};
use serde::Serialize;

/// Interval between comment lines on a stream without events, so that client and server notice a
/// lost connection. The documented readers reconnect after three intervals without data; proxies
/// close an idle connection after 30 s or more.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Minimum interval between events that only extend authority or report a MongoDB error.
const EXTENSION_INTERVAL: Duration = Duration::from_secs(1);
/// Reconnect interval for browsers, in milliseconds. It is shorter than the default
/// `lease.handoff_delay`, so that a browser whose stream broke still learns of a step-down in time.
const RETRY_MS: u32 = 1000;

/// Data of an event: the fields of `status.json` and the time of writing.
#[derive(Serialize)]
struct EventData {
    #[serde(flatten)]
    document: StatusDocument,
    /// Remaining authority at the time of writing; null unless leader.
    valid_for_ms: Option<u64>,
    /// Time of writing on the daemon's CLOCK_BOOTTIME. A reader on another machine uses this time
    /// to translate the deadline to its own clock.
    written_boottime_ns: u64,
    /// Number of role changes that were skipped since the previous event; null if the previous
    /// event is unknown or from another process.
    missed: Option<u64>,
}

/// Identifies an event by its process and the number of role changes so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EventId {
    session: String,
    transitions: u64,
}

struct StatusEvents {
    state: AdminState,
    place: StreamPlace,
    shown: Option<Shown>,
    last_id: Option<EventId>,
    written: BootTime,
    ended: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Shown {
    status: Status,
    error: Option<StoreError>,
    at: BootTime,
}

/// `last_id` identifies the last event that the client received from an earlier stream.
pub(super) fn events(state: AdminState, place: StreamPlace, last_id: Option<EventId>) -> EventBody {
    event_body(StatusEvents {
        state,
        place,
        shown: None,
        last_id,
        written: boot_now(),
        ended: false,
    })
}

impl Feed for StatusEvents {
    async fn next(&mut self) -> Option<String> {
        if self.ended {
            return None;
        }
        loop {
            let now = boot_now();
            let current = self.state.status.borrow_and_update().at(now);
            let error = self.state.store_error.borrow_and_update().clone();
            let due = match &self.shown {
                None => Some(now),
                Some(shown) => shown.next_due(&current, error.as_ref(), now),
            };
            if due.is_some_and(|due| due <= now) {
                return Some(self.event(current, error));
            }
            let heartbeat = self.written + HEARTBEAT;
            if heartbeat <= now {
                self.written = now;
                return Some(":\n\n".to_owned());
            }
            let wake = due.map_or(heartbeat, |due| due.min(heartbeat));
            let goes_on = tokio::select! {
                goes_on = changed(&mut self.state.status, now) => goes_on,
                // Both senders are dropped together, so the branch above detects the shutdown.
                Ok(()) = self.state.store_error.changed() => true,
                () = sleep_until(wake) => true,
                () = self.place.closing() => false,
            };
            if !goes_on {
                self.ended = true;
                let last = last_status(&self.state.status.borrow(), boot_now());
                return Some(self.event(last, None));
            }
        }
    }
}

impl StatusEvents {
    fn event(&mut self, status: Status, error: Option<StoreError>) -> String {
        let moment = ClockPair::now();
        let mut document = StatusDocument::new(&status, &self.state.who, moment)
            .with_store_error(error.as_ref(), moment);
        document.stopped = self.ended;
        let id = EventId {
            session: document.session.clone(),
            transitions: document.transitions,
        };
        let until = document.valid_until_boottime_ns.map(BootTime::from_nanos);
        let event = EventData {
            valid_for_ms: until.map(|until| millis(until.since(moment.boot))),
            written_boottime_ns: moment.boot.as_nanos(),
            missed: self.last_id.as_ref().and_then(|last| id.missed_since(last)),
            document,
        };
        let retry = match self.shown {
            None => format!("retry: {RETRY_MS}\n"),
            Some(_) => String::new(),
        };
        let data = serde_json::to_string(&event).expect("all keys are strings");
        let text = format!("{retry}id: {id}\ndata: {data}\n\n");
        self.written = moment.boot;
        self.last_id = Some(id);
        self.shown = Some(Shown {
            status: status.at(moment.boot),
            error,
            at: moment.boot,
        });
        text
    }
}

impl Shown {
    /// Returns the time at which an event about `current` is due; `None` if the event would repeat
    /// the last event.
    fn next_due(
        &self,
        current: &Status,
        error: Option<&StoreError>,
        now: BootTime,
    ) -> Option<BootTime> {
        let mut renewed = self.status.clone();
        if let (Some(shown), Some(newest)) = (&mut renewed.authority, current.authority) {
            shown.valid_until = newest.valid_until;
        }
        if !renders_equal(&renewed, current) {
            return Some(now);
        }
        if renewed == self.status && self.error.as_ref() == error {
            return None;
        }
        // Readers need the extension before the old deadline passes.
        let left = self.status.authority.map(|a| a.valid_until.since(self.at));
        let pause = left.map_or(EXTENSION_INTERVAL, |left| EXTENSION_INTERVAL.min(left / 2));
        Some(self.at + pause)
    }
}

impl EventId {
    /// Returns the number of role changes between two consecutive events; `None` if unknown.
    fn missed_since(&self, last: &Self) -> Option<u64> {
        let changes = self.transitions.checked_sub(last.transitions)?;
        (self.session == last.session).then(|| changes.saturating_sub(1))
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.session, self.transitions)
    }
}

impl FromStr for EventId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (session, transitions) = text.split_once(':').ok_or(())?;
        Ok(Self {
            session: session.to_owned(),
            transitions: transitions.parse().map_err(|_| ())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::election::{HolderView, Role};
    use crate::publish::fixture::{at, leader, status, token, who};

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_a_valid_id_or_refused(text in prop_oneof!["\\PC{0,30}", "[0-9a-f:+-]{0,60}"]) {
            if let Ok(id) = text.parse::<EventId>() {
                prop_assert_eq!(id.to_string().parse(), Ok(id.clone()));
                prop_assert_eq!(id.missed_since(&id), Some(0));
            }
        }
    }

    fn shown(status: Status, seconds: u64) -> Shown {
        Shown {
            status,
            error: None,
            at: at(seconds),
        }
    }

    #[test]
    fn a_change_of_role_or_holder_is_due_immediately() {
        let led = shown(leader(7, at(20)), 1);
        for current in [
            status(Role::Stopping),
            leader(7, at(20)).at(at(20)),
            leader(8, at(20)),
        ] {
            assert_eq!(
                led.next_due(&current, None, at(1)),
                Some(at(1)),
                "{current:?}"
            );
        }
        let followed = shown(status(Role::Follower), 1);
        let held = Status {
            holder: Some(HolderView {
                identity: who("other").identity,
                token: token(8),
                until: at(30),
                unconfirmed: false,
            }),
            ..status(Role::Follower)
        };
        assert_eq!(followed.next_due(&held, None, at(1)), Some(at(1)));
        let renewed = Status {
            holder: held.holder.clone().map(|holder| HolderView {
                until: at(33),
                ..holder
            }),
            ..held.clone()
        };
        assert_eq!(shown(held, 1).next_due(&renewed, None, at(2)), None);
    }

    #[test]
    fn an_extension_is_due_a_second_later_but_before_the_deadline() {
        let led = shown(leader(7, at(20)), 2);
        assert_eq!(led.next_due(&leader(7, at(20)), None, at(2)), None);
        assert_eq!(led.next_due(&leader(7, at(21)), None, at(2)), Some(at(3)));
        let brief = shown(leader(7, at(2) + Duration::from_millis(800)), 2);
        let due = brief.next_due(&leader(7, at(3)), None, at(2));
        assert_eq!(due, Some(at(2) + Duration::from_millis(400)));
    }

    #[test]
    fn an_error_of_the_store_is_due_a_second_later() {
        let error = StoreError {
            message: "no primary".to_owned(),
            since: at(2),
        };
        let followed = shown(status(Role::Follower), 2);
        let current = status(Role::Follower);
        assert_eq!(
            followed.next_due(&current, Some(&error), at(2)),
            Some(at(3))
        );
    }

    #[test]
    fn an_id_shows_how_many_changes_were_missed() {
        let id = |text: &str| text.parse::<EventId>();
        let now = id("ab-c:7").unwrap();
        assert_eq!(now.to_string(), "ab-c:7");
        let missed = |last: &str| now.missed_since(&id(last).unwrap());
        assert_eq!([missed("ab-c:7"), missed("ab-c:6")], [Some(0), Some(0)]);
        assert_eq!(missed("ab-c:3"), Some(3));
        assert_eq!([missed("ab-c:8"), missed("x:7")], [None, None]);
        for bad in ["", "ab-c", "ab-c:", "ab-c:x", "ab-c:-1", "a:b:7"] {
            assert_eq!(id(bad), Err(()), "{bad}");
        }
    }
}
