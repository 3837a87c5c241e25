//! Canonical form of a state: everything except the absolute time, the values of random ids, and
//! counters.
//!
//! The state machines derive `Hash`, so their whole state passes through a `Hasher` as numbers.
//! This hasher forwards the numbers with three changes:
//!
//! - An instant (recognized by its size, because clocks begin at [`EPOCH`]) is written relative to
//!   the current time of its machine. All instants that are too far in the past to affect a
//!   decision have the same form.
//! - An id (the only value of 16 bytes that is ever hashed) is written as its index in the order of
//!   first appearance, because ids are only compared for equality.
//! - A call's number is written as [`Numbers`] describes.
//!
//! A test checks soundness: it explores without merging, and requires that the successors of states
//! with equal canonical forms have equal canonical forms.

use std::hash::{Hash, Hasher};

/// Start of every candidate's clock in nanoseconds, far above any other number.
pub(crate) const EPOCH: u64 = 1 << 60;

/// Age in nanoseconds above which all instants have the same form. Decisions depend only on shorter
/// durations, and on the ten-minute window in which the election counts repeated losses. Without
/// another fault, a run returns to a known form long before this window ends.
const PAST_MAX: u64 = 5_000_000_000;

#[derive(Debug)]
enum Numbers {
    /// Numbers are only compared for equality, so they are written as indices in the order of first
    /// appearance. A number directly before an instant is a counter, and the instant is the time at
    /// which the counter last increased. The form omits both, because no decision depends on them.
    Appearing(Vec<u64>),
    /// Numbers are compared by order, so each is written as its rank among the numbers of calls
    /// that may still be answered. Each call that is sent later has a higher number.
    Ranked(Vec<u64>),
}

pub(crate) struct Canonical<'a, H> {
    inner: &'a mut H,
    now: u64,
    ids: Vec<[u8; 16]>,
    numbers: Numbers,
    /// A number that is not written yet. The next number determines whether this number is a
    /// counter or the seconds of a duration.
    held: Option<u64>,
}

impl<'a, H: Hasher> Canonical<'a, H> {
    pub(crate) fn new(inner: &'a mut H) -> Self {
        Self {
            inner,
            now: EPOCH,
            ids: Vec::new(),
            numbers: Numbers::Appearing(Vec::new()),
            held: None,
        }
    }

    pub(crate) fn candidate(&mut self, now: u64) {
        self.flush();
        self.now = now;
        self.numbers = Numbers::Appearing(Vec::new());
    }

    /// Begins the part of the state that belongs to a lock contender, whose clock shows `now`. The
    /// store may still reply to the calls in `pending`.
    pub(crate) fn contender(&mut self, now: u64, mut pending: Vec<u64>) {
        self.flush();
        self.now = now;
        pending.sort_unstable();
        pending.dedup();
        self.numbers = Numbers::Ranked(pending);
    }

    pub(crate) fn place(&mut self, id: [u8; 16]) -> usize {
        place(&mut self.ids, id)
    }

    pub(crate) fn put(&mut self, value: &impl Hash) {
        value.hash(self);
        self.flush();
    }

    fn flush(&mut self) {
        let Some(number) = self.held.take() else {
            return;
        };
        let written = match &mut self.numbers {
            Numbers::Appearing(seen) => place(seen, number) as u64,
            Numbers::Ranked(pending) => {
                let (Ok(below) | Err(below)) = pending.binary_search(&number);
                2 * below as u64 + u64::from(pending.contains(&number))
            }
        };
        self.inner.write_u64(written);
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
            // The held number is a counter; see [`Numbers::Appearing`].
            match self.numbers {
                Numbers::Appearing(_) if self.held.take().is_some() => return,
                Numbers::Appearing(_) | Numbers::Ranked(_) => self.flush(),
            }
            let past = self.now.saturating_sub(number).min(PAST_MAX);
            let ahead = number.saturating_sub(self.now);
            self.inner.write_u64(ahead);
            self.inner.write_u64(past);
        }
    }

    fn write_u32(&mut self, number: u32) {
        // These are the nanoseconds of a duration, and the number before them is its seconds.
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
