//! `GET /leader?wait=30s`: waits at most 30 s until this candidate leads or, with `role=follower`,
//! until it does not lead.

use std::future::pending;
use std::time::Duration;

use hyper::StatusCode;

use tokio::sync::watch;

use super::answer::leader;
use super::{AdminState, STREAMS_MAX};
use crate::clock::{self, boot_now};
use crate::duration::parse_duration;
use crate::election::{BootTime, Status};
use crate::publish::render::authority_at;
use leasehold_http::{Answer, Client, full};

/// Maximum time that a request waits. Clients and proxies give up after some minutes without an
/// answer, so a longer wait needs several requests.
pub const WAIT_MAX: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wait {
    time: Duration,
    for_leader: bool,
}

impl Wait {
    /// Parses the query of `/leader`. Returns `None` if the request does not wait. The error names the
    /// parameter, its value and the accepted values.
    pub(super) fn parse(query: &str) -> Result<Option<Self>, String> {
        let (mut time, mut for_leader) = (None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let again = match name {
                "wait" => {
                    let parsed = parse_duration(value, Duration::ZERO, WAIT_MAX);
                    let parsed = parsed.map_err(|expected| bad(name, value, &expected))?;
                    time.replace(parsed).is_some()
                }
                "role" => {
                    let parsed = match value {
                        "leader" => true,
                        "follower" => false,
                        _ => return Err(bad(name, value, "expected leader or follower")),
                    };
                    for_leader.replace(parsed).is_some()
                }
                _ => return Err(bad(name, value, "/leader accepts only wait and role")),
            };
            if again {
                return Err(bad(name, value, "given twice"));
            }
        }
        match (time, for_leader) {
            (Some(time), for_leader) => {
                let for_leader = for_leader.unwrap_or(true);
                Ok(Some(Self { time, for_leader }))
            }
            (None, None) => Ok(None),
            (None, Some(for_leader)) => {
                let role = if for_leader { "leader" } else { "follower" };
                Err(bad("role", role, "requires wait, for example wait=30s"))
            }
        }
    }

    fn is_over(self, status: &Status, now: BootTime) -> bool {
        authority_at(status, now).is_some() == self.for_leader
    }
}

fn bad(name: &str, value: &str, expected: &str) -> String {
    format!("parameter {name:?} with value {value:?}: {expected}")
}

pub(super) async fn leader_after(wait: Wait, client: &Client, state: &AdminState) -> Answer {
    if !wait.is_over(&state.status.borrow(), boot_now()) && !wait.time.is_zero() {
        let refused = || state.metrics.http_stream_refused();
        let Some(mut place) = client.streams.admit(client, refused) else {
            // Status 503 would mean that this candidate does not lead.
            return full(StatusCode::TOO_MANY_REQUESTS, STREAMS_MAX);
        };
        let mut status = state.status.clone();
        let role = async {
            loop {
                let now = boot_now();
                let over = wait.is_over(&status.borrow_and_update(), now);
                if over || !changed(&mut status, now).await {
                    break;
                }
            }
        };
        let over = boot_now() + wait.time;
        tokio::select! {
            () = role => {}
            () = sleep_until(over) => {}
            () = place.closing() => {}
        }
    }
    leader(&state.status.borrow())
}

/// Waits for a new status or for the next deadline of the current status, because the election may
/// publish an expiry late. Returns immediately if a deadline has passed since `seen`, the time of
/// the caller's last read. Returns false if the channel has closed.
pub(super) async fn changed(status: &mut watch::Receiver<Status>, seen: BootTime) -> bool {
    let deadline = next_deadline(&status.borrow(), seen);
    let passed = async {
        match deadline {
            Some(deadline) => sleep_until(deadline).await,
            None => pending().await,
        }
    };
    tokio::select! {
        changed = status.changed() => changed.is_ok(),
        () = passed => true,
    }
}

/// Waits until an exact instant, even while tokio's timers are coarse (`cli/run/idle_timers.rs`).
pub(super) async fn sleep_until(instant: BootTime) {
    if clock::sleep_until(instant).await.is_err() {
        // The exact timer could not be created, for example because the process is out of file
        // descriptors.
        tokio::time::sleep(instant.since(boot_now())).await;
    }
}

/// Returns the next instant after `now` at which the result of [`Status::at`] changes without a new
/// status.
fn next_deadline(status: &Status, now: BootTime) -> Option<BootTime> {
    let authority = status.authority.map(|authority| authority.valid_until);
    let holder = status.holder.as_ref().map(|holder| holder.until);
    let ahead = |deadline: &BootTime| *deadline > now;
    authority.into_iter().chain(holder).filter(ahead).min()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::time::timeout;

    use super::*;
    use crate::election::HolderView;
    use crate::publish::fixture::{at, leader as leading, token, who};

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_query_is_a_wait_or_an_error(
            query in prop_oneof![
                "\\PC{0,40}",
                "(&|=|(wait|role|watt)=?|[0-9]{1,12}|ns|us|µs|ms|s|m|h|d|y|%31s|leader|follower){0,12}",
            ],
        ) {
            match Wait::parse(&query) {
                Ok(Some(wait)) => {
                    prop_assert!(wait.time <= WAIT_MAX);
                    prop_assert!(query.contains("wait="));
                }
                Ok(None) => prop_assert!(query.chars().all(|c| c == '&'), "{}", query),
                Err(why) => {
                    prop_assert!(why.starts_with("parameter "), "{}", why);
                    prop_assert!(!why.contains(char::is_control), "{:?}", why);
                }
            }
        }
    }

    #[test]
    fn parameters_are_parsed() {
        let wait = |seconds, for_leader| {
            Ok(Some(Wait {
                time: Duration::from_secs(seconds),
                for_leader,
            }))
        };
        assert_eq!(Wait::parse(""), Ok(None));
        assert_eq!(Wait::parse("wait=30s"), wait(30, true));
        assert_eq!(Wait::parse("role=follower&wait=5m"), wait(300, false));
        assert_eq!(Wait::parse("wait=0s&role=leader"), wait(0, true));
    }

    #[test]
    fn an_error_names_the_parameter_and_accepted_values() {
        let cases = [
            (
                "wait=",
                r#""wait" with value "": expected a duration such as "500ms""#,
            ),
            (
                "wait=30",
                r#""wait" with value "30": expected a duration with its unit: write "30s""#,
            ),
            (
                "wait=-1s",
                r#""wait" with value "-1s": expected a duration"#,
            ),
            (
                "wait=301s",
                r#""wait" with value "301s": expected a duration between 0s and 5m"#,
            ),
            (
                "wait=1s&role=boss",
                r#""role" with value "boss": expected leader or follower"#,
            ),
            (
                "role=leader",
                r#""role" with value "leader": requires wait"#,
            ),
            ("wait=1s&wait=2s", r#""wait" with value "2s": given twice"#),
            (
                "watt=30s",
                r#""watt" with value "30s": /leader accepts only wait and role"#,
            ),
            (
                "wait=%31s",
                r#""wait" with value "%31s": expected a duration"#,
            ),
        ];
        for (query, expected) in cases {
            let error = Wait::parse(query).expect_err(query);
            assert!(error.contains(expected), "{query}: {error}");
        }
    }

    #[tokio::test]
    async fn a_deadline_that_passes_after_the_last_read_is_a_change() {
        let seen = boot_now();
        let (_sender, mut receiver) = watch::channel(leading(7, seen + Duration::from_nanos(1)));
        let changed = timeout(Duration::from_secs(60), changed(&mut receiver, seen)).await;
        assert_eq!(changed, Ok(true));
    }

    #[test]
    fn the_next_deadline_is_the_earliest_ahead() {
        let status = Status {
            holder: Some(HolderView {
                identity: who("a").identity,
                token: token(7),
                until: at(9),
                unconfirmed: false,
            }),
            ..leading(7, at(5))
        };
        let next = |now| next_deadline(&status, at(now));
        assert_eq!(
            [next(4), next(5), next(9)],
            [Some(at(5)), Some(at(9)), None]
        );
    }
}
