//! Entries that must stay for their minimum hold, counted in ticks from the acquiring write.

use std::hash::Hasher;
use std::sync::Arc;
use std::time::Duration;

use super::World;
use crate::election::{Claim, Revision};
use crate::proof::model::canonical::Canonical;
use crate::proof::model::lock::machine::Machine;
use crate::proof::model::lock::store::lock_of;

/// A majority-committed entry with a minimum hold.
#[derive(Debug, Clone)]
pub(crate) struct KeptPlace {
    claim: Claim,
    /// Revision of the write that declared the minimum hold, if any.
    revision: Option<Revision>,
    /// Earliest tick at which an acquired entry may be given up.
    until: u64,
    acquired: bool,
}

impl World {
    /// Records the majority-committed entries, and checks that no acquired entry is given up early.
    pub(super) fn note_places(&mut self) {
        let ticks = self.ticks;
        let holders = lock_of(&self.store.committed).map_or(&[][..], |lock| &lock.holders);
        let holds = |place: &KeptPlace| holders.iter().any(|entry| entry.claim == place.claim);
        let early = |place: &KeptPlace| place.acquired && place.until > ticks && !holds(place);
        if self.places.iter().any(early) {
            self.broken = self.broken.or(Some("places are kept"));
        }
        self.places.retain(holds);
        for entry in holders {
            let known = |place: &KeptPlace| {
                place.claim == entry.claim
                    && (place.acquired || place.revision == Some(entry.revision))
            };
            if self.places.iter().any(known) || entry.min_hold == Duration::ZERO {
                continue;
            }
            let until = ticks + in_ticks(&self.machines, entry.min_hold);
            self.places.retain(|place| place.claim != entry.claim);
            self.places.push(KeptPlace {
                claim: entry.claim,
                revision: Some(entry.revision),
                until,
                acquired: false,
            });
        }
    }

    /// Records that a process with a minimum hold has acquired.
    pub(super) fn place_acquired(&mut self, index: usize, claim: Claim) {
        let mut places = self.places.iter_mut();
        let min_hold = self.machines[index].seat.min_hold.get();
        if let Some(place) = places.find(|place| place.claim == claim) {
            place.acquired = true;
        } else if min_hold > Duration::ZERO {
            // The acquiring write should have declared the minimum hold.
            self.places.push(KeptPlace {
                claim,
                revision: None,
                until: self.ticks + in_ticks(&self.machines, min_hold),
                acquired: true,
            });
        }
    }

    /// Drops the entry of a claim that was given up before its work began.
    pub(super) fn place_given_up(&mut self, claim: Claim) {
        self.places.retain(|place| place.claim != claim);
    }

    /// Writes the canonical form.
    pub(super) fn put_places<H: Hasher>(&self, to: &mut Canonical<'_, H>) {
        let places = self.places.iter().map(|place| {
            let left = place.until.saturating_sub(self.ticks);
            let left = usize::try_from(left).expect("few ticks");
            (to.place(place.claim.bytes()), left, place.acquired)
        });
        let mut places: Vec<_> = places.collect();
        places.sort_unstable();
        to.put(&places);
    }
}

/// Returns a duration in whole ticks of the fast clock, the clock that advances furthest in a tick.
fn in_ticks(machines: &[Arc<Machine>], duration: Duration) -> u64 {
    let ticks = machines.iter().map(|m| m.seat.pace.milliseconds_per_tick);
    let tick = u128::from(ticks.max().unwrap_or(1));
    u64::try_from(duration.as_millis() / tick).expect("few ticks")
}
