//! An operator edits the document by hand. An edit sends no grant events to the contenders.

use super::network::{Write, Writer};
use super::world::World;
use crate::lock::{Entry, FoundLock, LockDocument};
use crate::proof::sim::MS;

impl World {
    pub(super) fn edited(&mut self, chance: u64) {
        match chance & 1 {
            0 => self.remove_holders(),
            _ => self.add_holder_without_slot(),
        }
    }

    pub(super) fn remove_holders(&mut self) {
        let FoundLock::Lock(lock) = self.set.primary() else {
            return;
        };
        let removed: Vec<_> = lock.holders.iter().map(|entry| entry.claim).collect();
        for process in self.live.clone() {
            if removed.contains(&self.processes[process].contender.claim()) {
                self.kill(process);
            }
        }
        self.edit("the holders are removed by hand", |lock| {
            lock.holders.clear()
        });
    }

    /// Makes the head of the queue a holder although all slots are taken. Does nothing if older
    /// contenders take part, because they do not know that a holder needs a slot.
    fn add_holder_without_slot(&mut self) {
        if self.machines.iter().any(|seat| seat.older) {
            return;
        }
        self.edit("a holder without a slot is added by hand", |lock| {
            let full = lock.slots > 0 && lock.holders.len() == lock.slots as usize;
            if let (true, Some(token)) = (full && !lock.queue.is_empty(), lock.token.next()) {
                lock.token = token;
                let head = lock.queue.remove(0);
                lock.holders.push(Entry {
                    token: Some(token),
                    ..head
                });
            }
        });
    }

    fn edit(&mut self, what: &str, change: impl FnOnce(&mut LockDocument)) {
        let write = Write {
            writer: Writer::Operator,
            at: self.now,
            granted: Vec::new(),
        };
        let edited = self.set.edit(write, |stored| {
            if let FoundLock::Lock(lock) = stored {
                change(lock);
            }
        });
        if let Some(seq) = edited {
            self.note(|| what.to_owned());
            let at = self.now.max(self.set.no_majority_until) + self.net.between(1, 8) * MS;
            self.commit_at(at, seq);
        }
    }
}
