use std::time::Duration;

use super::api::ApiRetry;

/// Wait after the first failure. Each further failure doubles the wait, up to [`BACKOFF_MAX`].
pub(super) const BACKOFF_MIN: Duration = Duration::from_millis(250);
/// Maximum wait, and thus the maximum delay of a label after an outage of the API server.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// Returns the wait after this number of failures; `None` if a quick retry cannot succeed. A
/// `Retry-After` can only extend the wait, because overloaded API servers always request one
/// second.
pub(super) fn pause(retry: ApiRetry, failures: u32, random: u8) -> Option<Duration> {
    match retry {
        ApiRetry::Again => Some(backoff(failures, random)),
        ApiRetry::After(asked) => {
            let wait = asked.min(RETRY_AFTER_MAX).max(backoff(failures, 0));
            Some(wait + fifth(wait, random))
        }
        ApiRetry::Person | ApiRetry::NewPod => None,
    }
}

fn backoff(failures: u32, random: u8) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let wait = (BACKOFF_MIN * 2_u32.pow(doublings)).min(BACKOFF_MAX);
    wait - fifth(wait, random)
}

fn fifth(wait: Duration, random: u8) -> Duration {
    wait * u32::from(random) / (5 * u32::from(u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_at_most_a_fifth_off() {
        let wait = |retry, random| pause(retry, 99, random);
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(wait(ApiRetry::Again, 0), seconds(5));
        assert_eq!(wait(ApiRetry::Again, 255), seconds(4));
        let asked = ApiRetry::After(Duration::from_secs(10));
        assert_eq!(wait(asked, 0), seconds(10));
        assert_eq!(wait(asked, 255), seconds(12));
        let longest = ApiRetry::After(Duration::from_secs(u64::MAX));
        assert_eq!(wait(longest, 255), seconds(72));
        for retry in [ApiRetry::Person, ApiRetry::NewPod] {
            assert_eq!(wait(retry, 0), None);
        }
    }
}
