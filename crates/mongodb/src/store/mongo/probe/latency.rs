use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mongodb::bson::{Timestamp, doc, serialize_to_document};
use mongodb::change_stream::event::ResumeToken;
use mongodb::options::ReadConcern;

use super::StoreProbe;
use crate::store::Failure;
use crate::store::mongo::follow;
use leasehold_core::election::BootTime;

/// Maximum number of samples. More samples would hardly change the percentiles.
const SAMPLES_MAX: usize = 100;
/// Time after which a measurement starts no more calls.
pub const MEASURED_MAX: Duration = Duration::from_millis(1_500);
/// Maximum number of change stream positions to wait for. Each position costs a log entry.
const POSITIONS_MAX: usize = 10;
/// Maximum time that the server holds a getMore without events.
const AWAIT: Duration = Duration::from_millis(1);

/// The measured durations of one kind of call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latencies {
    /// The number of calls, at least one.
    pub count: usize,
    /// Median duration of the calls.
    pub p50: Duration,
    /// The duration that 99 of 100 calls did not exceed; with fewer calls, the longest.
    pub p99: Duration,
}

impl Latencies {
    fn of(mut measured: Vec<Duration>) -> Self {
        measured.sort_unstable();
        let count = measured.len();
        let at = |percent: usize| {
            let rank = (count * percent).div_ceil(100).max(1);
            measured.get(rank - 1).copied().unwrap_or_default()
        };
        let (p50, p99) = (at(50), at(99));
        Self { count, p50, p99 }
    }
}

async fn repeated(
    samples_max: usize,
    mut call: impl AsyncFnMut() -> Result<Duration, Failure>,
) -> Result<Latencies, Failure> {
    let began = leasehold_clock::boot_now();
    let mut measured = Vec::new();
    while measured.is_empty() || (measured.len() < samples_max && since(began) < MEASURED_MAX) {
        measured.push(call().await?);
    }
    Ok(Latencies::of(measured))
}

fn since(began: BootTime) -> Duration {
    leasehold_clock::boot_now().since(began)
}

impl StoreProbe {
    /// Measures round trips to the primary.
    pub async fn round_trips(&self) -> Result<Latencies, Failure> {
        repeated(SAMPLES_MAX, async || {
            let began = leasehold_clock::boot_now();
            self.deployment.admin(doc! { "ping": 1 }).await?;
            Ok(since(began))
        })
        .await
    }

    /// Measures majority-acknowledged writes with linearizable reads, which wait until a majority
    /// has stored an empty log entry. A standalone server refuses linearizable reads.
    pub async fn majority_writes(&self) -> Result<Latencies, Failure> {
        repeated(SAMPLES_MAX, async || {
            let began = leasehold_clock::boot_now();
            self.linearizable().await?;
            Ok(since(began))
        })
        .await
    }

    /// Measures how long a change stream takes to advance past the empty log entry that a
    /// linearizable read writes.
    pub async fn stream_delays(&self) -> Result<Latencies, Failure> {
        let collection = self.collection().await?;
        let opening = follow::opening(&collection, follow::events_of(self.lease.as_str()));
        let opened = opening.max_await_time(AWAIT).await;
        let mut stream = opened.map_err(|error| self.described(&error))?;
        repeated(POSITIONS_MAX, async || {
            // The log position of the write, once known.
            let written = AtomicU64::new(u64::MAX);
            let sent = leasehold_clock::boot_now();
            let write = async {
                written.store(self.linearizable().await?, Ordering::Relaxed);
                Ok(())
            };
            let follow = async {
                let mut positions = Vec::new();
                loop {
                    let next = stream.next_if_any().await;
                    next.map_err(|error| self.described(&error))?;
                    let at = stream.resume_token().as_ref().and_then(position);
                    let at = at.ok_or_else(|| {
                        let why = "the server does not show the position of a change stream";
                        Failure::new(why, "")
                    })?;
                    positions.push((at, since(sent)));
                    let written = written.load(Ordering::Relaxed);
                    if at >= written {
                        let passed = positions.into_iter().find(|(at, _)| *at >= written);
                        return Ok(passed.map_or(Duration::ZERO, |(_, after)| after));
                    }
                }
            };
            let ((), delay) = tokio::try_join!(write, follow)?;
            Ok(delay)
        })
        .await
    }

    /// Returns the log position of the empty entry that the read wrote; 0 if unknown.
    async fn linearizable(&self) -> Result<u64, Failure> {
        let collection = self.collection().await?;
        let (name, concern) = (self.lease.as_str(), ReadConcern::linearizable());
        let read = self.deployment.read_time(&collection, name, concern).await;
        let time = read.map_err(|error| self.described(&error))?;
        Ok(time.map_or(0, position_of))
    }
}

fn position_of(time: Timestamp) -> u64 {
    u64::from(time.time) << 32 | u64::from(time.increment)
}

/// Returns the log position that a resume token contains. The token begins with the type byte of a
/// timestamp and the timestamp's eight bytes, in hexadecimal digits.
fn position(token: &ResumeToken) -> Option<u64> {
    const TIMESTAMP: &str = "82";
    let token = serialize_to_document(token).ok()?;
    let digits = token.get_str("_data").ok()?.strip_prefix(TIMESTAMP)?;
    u64::from_str_radix(digits.get(..16)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use mongodb::bson::deserialize_from_document;

    use super::*;

    fn latencies(count: u64) -> Latencies {
        Latencies::of((1..=count).rev().map(Duration::from_millis).collect())
    }

    #[test]
    fn percentiles_are_of_the_sorted_durations() {
        let hundred = latencies(100);
        assert_eq!(hundred.p50, Duration::from_millis(50));
        assert_eq!(hundred.p99, Duration::from_millis(99));
        let three = latencies(3);
        assert_eq!(three.p50, Duration::from_millis(2));
        assert_eq!(three.p99, Duration::from_millis(3));
        assert_eq!(latencies(1).p99, Duration::from_millis(1));
    }

    #[test]
    fn the_position_of_a_token_is_comparable_with_the_time_of_an_operation() {
        let token = |data: &str| {
            deserialize_from_document::<ResumeToken>(doc! { "_data": data }).expect("a token")
        };
        let read = position(&token("8263F5D0A1000000022B0429296E1404"));
        assert_eq!(read, Some(0x63f5_d0a1_0000_0002));
        let time = mongodb::bson::Timestamp {
            time: 0x63f5_d0a1,
            increment: 2,
        };
        assert_eq!(Some(position_of(time)), read);
        for other in [
            "",
            "82",
            "8263F5",
            "9963F5D0A1000000022B04",
            "82zzzzzzzzzzzzzzzz",
        ] {
            assert_eq!(position(&token(other)), None, "{other}");
        }
    }
}
