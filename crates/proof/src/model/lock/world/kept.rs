//! Checks that entries stay for their minimum hold. Time is counted in ticks from the acquiring
//! write.

use std::hash::Hasher;
use std::sync::Arc;
use std::time::Duration;

use super::World;
use crate::election::{Claim, Revision};
use crate::proof::model::canonical::Canonical;
use crate::proof::model::lock::machine::Machine;
use crate::proof::model::lock::store::lock_of;

#[derive(Debug, Clone)]
pub(crate) struct KeptPlace {
    claim: Claim,
    revision: Option<Revision>,
    /// An acquired entry must stay until this tick.
    until: u64,
    acquired: bool,
}

impl World {
    /// Records the entries that a majority has, and checks that no acquired entry was removed
    /// early.
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

    pub(super) fn place_acquired(&mut self, index: usize, claim: Claim) {
        let mut places = self.places.iter_mut();
        let min_hold = self.machines[index].seat.min_hold.get();
        if let Some(place) = places.find(|place| place.claim == claim) {
            place.acquired = true;
        } else if min_hold > Duration::ZERO {
            // A contender that follows the protocol declares its minimum hold before the work
            // begins, so an entry without a minimum hold reveals a bug.
            self.places.push(KeptPlace {
                claim,
                revision: None,
                until: self.ticks + in_ticks(&self.machines, min_hold),
                acquired: true,
            });
        }
    }

    pub(super) fn place_given_up(&mut self, claim: Claim) {
        self.places.retain(|place| place.claim != claim);
    }

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

/// Returns the number of whole ticks that the duration lasts on the fastest clock.
fn in_ticks(machines: &[Arc<Machine>], duration: Duration) -> u64 {
    let ticks = machines.iter().map(|m| m.seat.pace.milliseconds_per_tick);
    let tick = u128::from(ticks.max().unwrap_or(1));
    u64::try_from(duration.as_millis() / tick).expect("few ticks")
}
