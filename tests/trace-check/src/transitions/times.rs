//! Bounds the time of each change. A change happens after its call was passed to the driver, and
//! before the answer.

use leasehold_core::election::BootTime;

use super::Made;

/// Bounds on the times of a document's changes on one clock, in the order of the changes.
pub(super) struct Times {
    /// The earliest possible time of each change. Never decreases.
    earliest: Vec<BootTime>,
    /// The latest possible time of each change, or `None` without a bound. Never decreases.
    latest: Vec<Option<BootTime>>,
}

impl Times {
    /// Computes the bounds from the calls that made the changes and use this clock.
    pub(super) fn new(clock: Option<&str>, makers: &[Option<&Made<'_>>]) -> Self {
        let on_clock = |made: &&Made<'_>| made.clock == clock && clock.is_some();
        let makers: Vec<_> = makers
            .iter()
            .map(|maker| maker.filter(on_clock).map(|made| made.call))
            .collect();
        let mut earliest = Vec::new();
        let mut bound = BootTime::default();
        for call in &makers {
            let sent = call.and_then(|call| call.sent);
            bound = bound.max(sent.unwrap_or_default());
            earliest.push(bound);
        }
        let mut latest = Vec::new();
        let mut bound: Option<BootTime> = None;
        for call in makers.iter().rev() {
            let answered = call.and_then(|call| call.answered());
            bound = [bound, answered].into_iter().flatten().min();
            latest.push(bound);
        }
        latest.reverse();
        Self { earliest, latest }
    }

    /// Returns the first change whose latest possible time is before its earliest possible time.
    pub(super) fn contradiction(&self) -> Option<usize> {
        let bounds = self.earliest.iter().zip(&self.latest);
        let mut bounds = bounds.map(|(earliest, latest)| latest.is_some_and(|at| at < *earliest));
        bounds.position(|contradicts| contradicts)
    }

    /// Returns true if, at some time in a range, the document may have been in the state after its
    /// first `state` changes. An unknown bound does not limit the range.
    pub(super) fn may_show(
        &self,
        state: usize,
        from: Option<BootTime>,
        to: Option<BootTime>,
    ) -> bool {
        let begins = state.checked_sub(1).map(|change| self.earliest[change]);
        let ends = self.latest.get(state).copied().flatten();
        let begins_in_time = begins.zip(to).is_none_or(|(begins, to)| begins <= to);
        let ends_in_time = ends.zip(from).is_none_or(|(ends, from)| ends >= from);
        begins_in_time && ends_in_time
    }
}
