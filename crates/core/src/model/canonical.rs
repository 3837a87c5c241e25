//! What makes two states the same: all but the absolute time, the names of
//! random ids, and counters.
//!
//! The election derives `Hash`, so its whole state passes through a `Hasher`
//! as numbers. This one writes on what passes, with three changes:
//!
//! - An instant (recognised by its size: clocks begin at [`EPOCH`]) is written
//!   relative to the candidate's now. Instants longer past than any duration
//!   that the election compares with are all written alike.
//! - An id (the only 16 bytes that are ever hashed) is written as its place
//!   in the order of first appearance: ids are only compared for equality.
//! - A call's number likewise, within its candidate. The counters of calls and
//!   transitions (numbers directly before an instant) are left out, with the
//!   instant: the last input's, and since when the role lasts. Nothing is
//!   decided by these.
//!
//! That the result is sound is not only argued: a test explores without
//! merging, and finds that states with one canonical form have successors
//! with the same canonical forms.

use std::hash::{Hash, Hasher};

/// Where every candidate's clock begins, in nanoseconds: far above any other number.
pub(crate) const EPOCH: u64 = 1 << 60;

/// No duration that decides is longer, except the window of ten minutes for
/// repeated losses, which no run without a renewed fault lives to see the end of.
const PAST_MAX: u64 = 5_000_000_000;

/// Writes the canonical form of what is hashed to another hasher.
pub(crate) struct Canonical<'a, H> {
    inner: &'a mut H,
    /// The candidate's clock, by which its instants are written.
    now: u64,
    ids: Vec<[u8; 16]>,
    calls: Vec<u64>,
    /// A number that may turn out to be the first half of a duration, or a counter.
    held: Option<u64>,
}

impl<'a, H: Hasher> Canonical<'a, H> {
    /// Writes to `inner`.
    pub(crate) fn new(inner: &'a mut H) -> Self {
        Self {
            inner,
            now: EPOCH,
            ids: Vec::new(),
            calls: Vec::new(),
            held: None,
        }
    }

    /// What follows belongs to a candidate whose clock shows `now`.
    pub(crate) fn candidate(&mut self, now: u64) {
        self.flush();
        self.now = now;
        self.calls.clear();
    }

    /// Writes `value`.
    pub(crate) fn put(&mut self, value: &impl Hash) {
        value.hash(self);
        self.flush();
    }

    fn flush(&mut self) {
        if let Some(call) = self.held.take() {
            let place = place(&mut self.calls, call);
            self.inner.write_u64(place as u64);
        }
    }
}

fn place<T: PartialEq>(seen: &mut Vec<T>, item: T) -> usize {
    seen.iter().position(|s| *s == item).unwrap_or_else(|| {
        seen.push(item);
        seen.len() - 1
    })
}

impl<H: Hasher> Hasher for Canonical<'_, H> {
    fn finish(&self) -> u64 {
        self.inner.finish()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.flush();
        match <[u8; 16]>::try_from(bytes) {
            Ok(id) => {
                let place = place(&mut self.ids, id);
                self.inner.write_u64(place as u64);
            }
            Err(_) => self.inner.write(bytes),
        }
    }

    fn write_u64(&mut self, number: u64) {
        if number < EPOCH / 2 {
            self.flush();
            self.held = Some(number);
        } else {
            // A number before an instant counts something, and the instant is
            // when it was last counted up.
            if self.held.take().is_some() {
                return;
            }
            let past = self.now.saturating_sub(number).min(PAST_MAX);
            let ahead = number.saturating_sub(self.now);
            self.inner.write_u64(ahead);
            self.inner.write_u64(past);
        }
    }

    fn write_u32(&mut self, number: u32) {
        // The nanoseconds of a duration: the number before is its seconds.
        if let Some(seconds) = self.held.take() {
            self.inner.write_u64(seconds);
        }
        self.inner.write_u32(number);
    }

    fn write_u8(&mut self, number: u8) {
        self.flush();
        self.inner.write_u8(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.flush();
        self.inner.write_u64(number as u64);
    }

    fn write_isize(&mut self, number: isize) {
        self.flush();
        self.inner.write_isize(number);
    }

    fn write_i64(&mut self, number: i64) {
        self.flush();
        self.inner.write_i64(number);
    }
}
