//! The violations that the checks tolerate for a limited time. Two processes may lead after an
//! operator damaged the document or forked a machine, if no process could notice the damage or the
//! fork. `docs/verification/simulations.md` lists these cases.

use super::cluster::{Damage, Forked, Was, World};
use super::coverage::{Hit, Path};
use super::document::{Committed, Document, claim_of};
use super::observer::Knowledge;
use super::process::{LEASE_MAX, Process};
use crate::election::{Operation, Token};

impl World {
    /// Returns true if a majority had this state at some time after the process sent its last read,
    /// or after it sent the write whose reply showed this state.
    pub(super) fn was_so(&self, process: usize, found: Option<Token>) -> bool {
        let found = found.map_or(Was::Missing, Was::Token);
        let (p, facts) = (&self.processes[process], &self.processes[process].facts);
        let sent = match p.confirmed {
            true => facts.last_read_at,
            false => facts.last_read_at.min(facts.last_write_at),
        };
        let ends = self.own.was.iter().skip(1).map(|(at, _)| *at);
        let ends = ends.chain([u64::MAX]);
        let mut all = self.own.was.iter().zip(ends);
        all.any(|((_, was), end)| *was == found && end >= sent)
    }

    /// Records damage to the document by an operator. The previous holder may continue to lead, and
    /// a process that has not seen that holder cannot know of its leadership.
    pub(super) fn tolerate_the_ignorant(
        &mut self,
        committed: &Committed,
        token_before: Option<Token>,
    ) {
        let Committed { before, after, .. } = committed;
        let restored = after.lease().map(|l| self.own.archive.order(l.revision));
        // An operator who lowers the token does not change the revision. Therefore, a document with
        // the newest revision also counts as older if its token was lowered.
        let (old, new) = (before.lease(), after.lease());
        let lowered = new.is_some_and(|new| Some(new.token) < token_before);
        let order = match (&after.document, restored) {
            (Document::Missing, _) if self.own.archive.durable.is_empty() => return,
            (Document::Missing, _) => 0,
            (_, Some((Some(order), newest))) if order < newest || lowered => order,
            (Document::Lease(_) | Document::Foreign, _) => return,
        };
        // If tokens restarted after an earlier loss of data, they no longer show which state is
        // newer. The damage may then look like progress to every process.
        let reused = self.own.tokens_reused_to;
        let began_anew =
            old.is_some_and(|old| old.token < self.own.token_highest || Some(old.token) <= reused);
        let another = old
            .zip(new)
            .is_some_and(|(old, new)| new.token == old.token && claim_of(new) != claim_of(old));
        let token = match began_anew || another {
            true => Token::MAX,
            false => self.own.token_highest,
        };
        let until = self.now + LEASE_MAX.as_nanos() as u64;
        self.own.damages.push(Damage {
            until,
            token,
            order,
        });
    }

    /// Excuses, until the returned time, a claim or document whose author had only this knowledge.
    /// The author may mislead other processes, so the checks excuse those processes too.
    pub(super) fn tolerate(&mut self, knowledge: Knowledge, token: Token) -> u64 {
        let Knowledge { informed, newest } = knowledge;
        let now = self.now;
        let mut tolerated_until = 0;
        for damage in self.own.damages.iter_mut().filter(|d| d.until > now) {
            let asleep = newest > 0 && newest <= damage.order;
            if informed < damage.token || asleep {
                tolerated_until = tolerated_until.max(damage.until);
                if token >= damage.token {
                    damage.token = Token::MAX;
                }
            }
        }
        tolerated_until
    }

    /// Returns why this process releases the claim of an exited process.
    fn path_of_release(&self, releaser: &Process) -> Path {
        let machine = &self.machines[releaser.machine];
        if machine.contained && releaser.connection.is_none() && !releaser.facts.shutdown {
            return Path::ReleasedWithoutGuard;
        }
        match releaser.facts.shutdown {
            true => Path::Buried,
            false if machine.releases_predecessor => Path::ReleasedBySuccessor,
            false => Path::ReleasedByBarred,
        }
    }

    /// Tolerates a process that restarts on a forked machine before the process has noticed the
    /// fork. The claim record is valid, so the restarted process has authority up to the recorded
    /// deadline, at the same time as its twin.
    pub(super) fn tolerate_a_restarted_twin(&mut self, process: usize, operation: &Operation) {
        let p = &self.processes[process];
        let (holder, path) = match operation {
            Operation::TakeOver { acquisition, .. } => {
                let sight = p.facts.sight(acquisition.expected);
                let path = match self.is_contained(process) {
                    true => Path::LedAgainWithGuard,
                    false => Path::ProvenDead,
                };
                (sight.and_then(|s| claim_of(&s.lease)), path)
            }
            Operation::Release { claim, .. } => (Some(*claim), self.path_of_release(p)),
            _ => return,
        };
        let dead = holder.filter(|claim| p.facts.dead == Some(*claim));
        let Some(claim) = dead else { return };
        self.coverage.hit(Hit::Path(path));
        // A process that noticed another owner of its claim has removed its record.
        let twins = self.processes.iter().filter_map(|p| p.facts.claim(claim));
        if self.own.forks.iter().any(|fork| fork.has(claim))
            && let Some(deadline) = twins.map(|c| c.timings.renew_deadline()).max()
        {
            let claims = vec![(claim, self.clock(process) + deadline)];
            self.own.forks.push(Forked { claims });
        }
    }
}
