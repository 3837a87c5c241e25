//! Estimates how busy a deployment is, from the replies to the driver's heartbeats. The estimate
//! serves only to choose between a change stream and hints.

use mongodb::bson::Document;

/// Minimum mean increment on a busy deployment. The increment of a write's timestamp starts at 1 in
/// each second and counts that second's writes, so a mean of 8 corresponds to about 16 writes per
/// second.
const BUSY_MIN: f64 = 8.0;
/// Larger increments count as this value, so that a single burst of writes does not make a
/// deployment busy.
const SAMPLE_MAX: u32 = 32;
/// Weight of the newest sample. A set of three members yields 18 samples a minute.
const WEIGHT: f64 = 1.0 / 8.0;

#[derive(Debug, Default)]
pub(super) struct WriteRate {
    mean: f64,
}

impl WriteRate {
    /// Records the time of a server's last write, and returns whether the deployment is busy.
    /// Returns `None` if the reply contains no time: standalone servers and routers send none.
    pub(super) fn record(&mut self, hello: &Document) -> Option<bool> {
        let optime = hello.get_document("lastWrite").ok()?;
        let optime = optime.get_document("opTime").ok()?;
        let sample = optime.get_timestamp("ts").ok()?.increment.min(SAMPLE_MAX);
        self.mean += WEIGHT * (f64::from(sample) - self.mean);
        Some(self.mean >= BUSY_MIN)
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{Timestamp, doc};

    use super::*;

    fn hello(increment: u32) -> Document {
        let ts = Timestamp { time: 7, increment };
        doc! { "lastWrite": { "opTime": { "ts": ts, "t": 1_i64 } } }
    }

    fn after(increments: impl IntoIterator<Item = u32>) -> bool {
        let mut rate = WriteRate::default();
        let last = increments
            .into_iter()
            .map(|i| rate.record(&hello(i)))
            .last();
        last.flatten().expect("a sample")
    }

    #[test]
    fn only_lasting_writes_make_a_deployment_busy() {
        assert!(!after([1_000; 2]), "a burst");
        assert!(after([1_000; 3]), "many writes");
        assert!(!after([2; 100]), "a few leases");
        assert!(after((0..40).map(|i| i * 7 % 30)), "thirty writes a second");
        assert!(
            !after([1_000; 20].into_iter().chain([1; 20])),
            "quiet again"
        );
    }

    #[test]
    fn a_reply_without_a_time_is_not_a_sample() {
        let mut rate = WriteRate::default();
        for reply in [doc! {}, doc! { "lastWrite": {} }, doc! { "lastWrite": 7 }] {
            assert_eq!(rate.record(&reply), None);
        }
    }
}
