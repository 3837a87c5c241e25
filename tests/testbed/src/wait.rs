//! Waits for conditions instead of sleeping for a fixed time.

use std::time::{Duration, Instant};

/// Timeout of waits, which end as soon as their condition holds. Most waits take milliseconds on an
/// idle machine.
pub const LONG: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
/// Longest pause between two polls. A poll costs a millisecond of processor time if it sends a
/// request.
const POLL_MAX: Duration = Duration::from_millis(25);
/// The end of a wait is noticed at most this fraction too late, beyond [`POLL`].
const POLL_FRACTION: u32 = 20;

/// Pauses between two polls of a wait that began at `begin`, and longer in a longer wait.
pub async fn pause(begin: Instant) {
    let pause = begin.elapsed() / POLL_FRACTION;
    tokio::time::sleep(pause.clamp(POLL, POLL_MAX)).await;
}

/// Polls until `condition` holds. Returns the elapsed time.
///
/// # Panics
/// If this takes longer than [`LONG`]. The message contains `what`.
pub async fn eventually(what: &str, condition: impl AsyncFnMut() -> bool) -> Duration {
    within(LONG, what, condition).await
}

/// Like [`eventually`], but with this timeout.
///
/// # Panics
/// If this takes longer than `limit`. The message contains `what`.
pub async fn within(
    limit: Duration,
    what: &str,
    mut condition: impl AsyncFnMut() -> bool,
) -> Duration {
    let begin = Instant::now();
    while !condition().await {
        assert!(
            begin.elapsed() < limit,
            "still false after {limit:?}: {what}"
        );
        pause(begin).await;
    }
    begin.elapsed()
}

/// Polls `look` until `look` returns a value.
///
/// # Panics
/// If this takes longer than [`LONG`]. The message contains `what`.
pub async fn found<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let mut found = None;
    eventually(what, async || {
        found = look().await;
        found.is_some()
    })
    .await;
    found.expect("the wait found a value")
}

/// Asserts that `condition` holds for this time. A fixed time is needed only to prove that
/// something does not happen.
///
/// # Panics
/// If the condition does not hold. The message contains `what`.
pub async fn throughout(time: Duration, what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        assert!(condition().await, "no longer true: {what}");
        tokio::time::sleep(POLL).await;
    }
}
