//! Checks each release: of a process's own claim, or of the claim of an exited process.

use super::cluster::World;
use super::invariants::{Violation, claims_lead_once, release_after_the_workload as release};
use crate::election::Claim;

impl World {
    /// Returns true if a process that made this claim is alive, even if it is frozen. Claims of a
    /// forked machine do not count, because neither twin can know of the other.
    pub(super) fn lives(&self, claim: Claim) -> bool {
        let forked = self.own.forks.iter().any(|fork| fork.has(claim));
        let makes = |p: &usize| self.processes[*p].facts.claim(claim).is_some();
        !forked && self.live.iter().any(makes)
    }

    pub(super) fn check_release(&mut self, process: usize, claim: Claim) -> Option<Violation> {
        let clock = self.clock(process);
        let child_runs = self.child_runs(process);
        let p = &mut self.processes[process];
        let now = p.facts.decided;
        let confirmed = p.facts.confirmed;
        let delay = p.facts.notice_delay(&p.tunables);
        let drained = p.facts.drain.is_some_and(|d| d.confirmed || now >= d.until);
        let published = p.published.authority.filter(|a| a.valid_until > clock);
        let published = published.and_then(|a| p.facts.of_token(a.token));
        let http_says_leader = published.is_some_and(|c| c.claim == claim);
        let boot = self.machines[p.machine].boot;
        let mut files = self.own.directories[p.directory].files.iter().flatten();
        let file_says_leader =
            files.any(|says| says.claim == claim && says.until > clock && says.boot == boot);
        if p.facts.dead == Some(claim) {
            let (begun, directory) = (p.facts.begun, p.directory);
            return release::check(release::Release {
                drained: now >= begun + delay,
                child_runs: self.orphan_runs(directory, claim),
                http_says_leader: self.lives(claim),
                file_says_leader,
                ..release::Release::default()
            });
        }
        let Some(facts) = p.facts.claim_mut(claim) else {
            return claims_lead_once::check(claims_lead_once::Use {
                ended: true,
                leads: false,
                renews: true,
            });
        };
        let sent = release::Release {
            never_led: !facts.led,
            expired: facts.until.is_some_and(|until| {
                until + delay <= now || (until <= now && confirmed == Some(facts.token))
            }),
            repeated: facts.released,
            drained,
            child_runs,
            http_says_leader,
            file_says_leader,
        };
        facts.released = true;
        facts.ended = true;
        release::check(sent)
    }
}
