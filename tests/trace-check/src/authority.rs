//! Tracks the authority of each machine over time, as computed by its replay.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::election::{Authority, BootTime, Claim as ClaimId, Identity, Token};
use leasehold_core::trace::Kind;

/// The other claims that a claim with authority excludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exclusion {
    /// All other claims (on a lease or an exclusive lock).
    All,
    /// Exclusive claims (on a shared lock).
    Writers,
    /// All claims above this number (on a lock with slots).
    Beyond(u32),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) kind: Kind,
    pub(crate) document: String,
    /// Id of the clock that the machine uses.
    pub(crate) clock: Option<String>,
    pub(crate) identity: Identity,
    pub(crate) exclusion: Exclusion,
    pub(crate) begun: BootTime,
    /// A claim whose process provably exited before this machine began.
    pub(crate) predecessor: Option<ClaimId>,
    /// The longest grace period that a command had after the authority ended.
    pub(crate) loss_grace: Duration,
}

pub(crate) struct Grants<'a> {
    pub(crate) role: &'a Role,
    pub(crate) deadlines: &'a BTreeSet<BootTime>,
}

/// A period of authority with one token.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) role: Role,
    pub(crate) machine: String,
    pub(crate) token: Token,
    /// Line number of the turn in which the claim began.
    pub(crate) line: usize,
    pub(crate) from: BootTime,
    /// End of authority: the time of the turn that ended it, or the last deadline.
    pub(crate) until: BootTime,
    pub(crate) deadline: BootTime,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Authorities {
    roles: BTreeMap<String, Role>,
    claims: Vec<Claim>,
    /// The claim of each attempt to lead, by machine and token.
    attempts: BTreeMap<(String, Token), ClaimId>,
    /// Index of the newest claim of each candidate or contender that has authority.
    current: BTreeMap<String, usize>,
    deadlines: BTreeMap<String, BTreeSet<BootTime>>,
}

impl Authorities {
    pub(crate) fn began(&mut self, machine: &str, role: Role) {
        self.roles.insert(machine.to_owned(), role);
    }

    pub(crate) fn ordered(&mut self, machine: &str, deadlines: impl IntoIterator<Item = BootTime>) {
        for deadline in deadlines {
            let known = self.deadlines.entry(machine.to_owned()).or_default();
            known.insert(deadline);
        }
    }

    pub(crate) fn reconfigured(&mut self, machine: &str, loss_grace: Duration) {
        if let Some(role) = self.roles.get_mut(machine) {
            role.loss_grace = role.loss_grace.max(loss_grace);
        }
    }

    pub(crate) fn tried(&mut self, machine: &str, attempts: &[(ClaimId, Token)]) {
        for (claim, token) in attempts {
            self.attempts.insert((machine.to_owned(), *token), *claim);
        }
    }

    pub(crate) fn turned(
        &mut self,
        machine: &str,
        line: usize,
        now: BootTime,
        authority: Option<Authority>,
    ) {
        let valid_until = authority.map(|authority| authority.valid_until);
        self.ordered(machine, valid_until);
        let current = self.current.get(machine).copied();
        if let Some(claim) = current.map(|index| &mut self.claims[index]) {
            if let Some(same) = authority.filter(|a| a.token == claim.token) {
                (claim.until, claim.deadline) = (same.valid_until, same.valid_until);
                return;
            }
            claim.until = claim.until.min(now);
            self.current.remove(machine);
        }
        let (Some(authority), Some(role)) = (authority, self.roles.get(machine)) else {
            return;
        };
        self.current.insert(machine.to_owned(), self.claims.len());
        self.claims.push(Claim {
            role: role.clone(),
            machine: machine.to_owned(),
            token: authority.token,
            line,
            from: now,
            until: authority.valid_until,
            deadline: authority.valid_until,
        });
    }

    /// Returns the deadlines of all machines in a process. The machines' ids begin with the process
    /// id.
    pub(crate) fn of_process(&self, id: u32, clock: Option<&String>) -> Vec<Grants<'_>> {
        let prefix = format!("{id}-");
        let machines = self.deadlines.range(prefix.clone()..);
        let machines = machines.take_while(|(machine, _)| machine.starts_with(&prefix));
        let grants = machines.filter_map(|(machine, deadlines)| {
            let role = self.roles.get(machine)?;
            Some(Grants { role, deadlines })
        });
        let grants = grants.filter(|grants| grants.role.clock.as_ref() == clock);
        grants.collect()
    }

    /// Returns all claims that had authority, in the order of the lines. If a successor proves that
    /// a claim's process has exited, the claim ends no later than the successor begins. A claim has
    /// several successors if one of them is killed before it records its own claim.
    pub(crate) fn claims(mut self) -> Vec<Claim> {
        let mut exited = BTreeMap::new();
        for role in self.roles.values() {
            if let Some(claim) = role.predecessor {
                let by = exited.entry(claim).or_insert(role.begun);
                *by = role.begun.min(*by);
            }
        }
        for claim in &mut self.claims {
            let id = self.attempts.get(&(claim.machine.clone(), claim.token));
            if let Some(by) = id.and_then(|id| exited.get(id)) {
                claim.until = claim.until.min(*by);
            }
        }
        self.claims
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootTime {
        BootTime::from_nanos(seconds * 1_000_000_000)
    }

    fn role(begun: u64, predecessor: Option<ClaimId>) -> Role {
        Role {
            kind: Kind::Election,
            document: "orders".to_owned(),
            clock: None,
            identity: Identity::new("a").expect("legal"),
            exclusion: Exclusion::All,
            begun: at(begun),
            predecessor,
            loss_grace: Duration::ZERO,
        }
    }

    #[test]
    fn the_first_successor_with_the_proof_ends_a_claim() {
        let (claim, token) = (ClaimId::from_bytes([1; 16]), Token::ZERO.next());
        let token = token.expect("the first token");
        let mut authorities = Authorities::default();
        authorities.began("1-0", role(0, None));
        authorities.tried("1-0", &[(claim, token)]);
        let valid_until = at(6);
        let authority = Authority { token, valid_until };
        authorities.turned("1-0", 1, at(1), Some(authority));
        authorities.began("2-0", role(2, Some(claim)));
        authorities.began("3-0", role(4, Some(claim)));
        let claims = authorities.claims();
        assert_eq!(claims.len(), 1);
        assert_eq!(claims[0].until, at(2));
    }
}
