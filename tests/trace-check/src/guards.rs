//! Replays the deadline policies of guards, and compares their deadlines with their daemons'
//! authority.

use std::collections::BTreeMap;

use leasehold_core::deadline_policy::{Action, DeadlinePolicy, PolicyInput, Terms};
use leasehold_core::election::BootTime;
use leasehold_core::trace::{GuardOptions, Guarded, Kind, Started, TurnRecord};
use serde_json::Value;

use crate::Violation;
use crate::authority::{Authorities, Exclusion, Grants, Role};
use crate::replay::{compare, parse, unwound};

pub(crate) struct Guard {
    /// Number of the line that created the guard.
    line: usize,
    clock: Option<String>,
    options: GuardOptions,
    /// `None` after the policy has panicked.
    policy: Option<DeadlinePolicy>,
    /// True if a turn failed. Later turns are not compared, because they could differ for the same
    /// reason.
    failed: bool,
    given: Vec<(usize, Terms)>,
    started: Option<BootTime>,
    /// The last time at which the guard's command may have been running.
    last: BootTime,
    gone: bool,
}

impl Guard {
    pub(crate) fn begin(line: usize, started: &Value) -> Result<Self, String> {
        let Started {
            clock,
            now,
            options,
            ..
        } = parse::<Started<GuardOptions>>(started)?;
        let policy = unwound(|| DeadlinePolicy::new(options.policy))?;
        Ok(Self {
            line,
            clock,
            options,
            policy: Some(policy),
            failed: false,
            given: vec![(line, options.policy.terms)],
            started: None,
            last: now,
            gone: false,
        })
    }

    pub(crate) fn turn(&mut self, line: usize, turn: &Value) -> Result<(), String> {
        let TurnRecord {
            now,
            input,
            effects,
            ..
        } = parse::<TurnRecord<PolicyInput, Action>>(turn)?;
        if let PolicyInput::Order(order) = input {
            self.given.push((line, order.terms));
        }
        if effects.contains(&Action::Start) {
            self.started.get_or_insert(now);
        }
        if !self.gone {
            self.last = now;
        }
        self.gone |= input == PolicyInput::Gone;
        let Some(mut policy) = self.policy.take() else {
            return Ok(());
        };
        let (policy, action) = unwound(|| {
            policy.handle(now, input);
            let action = policy.next_action();
            (policy, action)
        })?;
        self.policy = Some(policy);
        let compared = compare(&effects, action.as_slice());
        let difference = compared.err().filter(|_| !self.failed);
        self.failed |= difference.is_some();
        difference.map_or(Ok(()), Err)
    }

    /// Checks the guard's deadlines, and returns the role in which the daemon ran the command.
    fn granted<'a>(&self, daemons: &[Grants<'a>]) -> Result<Option<&'a Role>, (usize, String)> {
        let GuardOptions {
            guarded, daemon, ..
        } = self.options;
        let of = |terms: &Terms| {
            let given = |daemon: &&Grants<'a>| daemon.deadlines.contains(&terms.valid_until);
            daemons.iter().find(given)
        };
        // `leasehold lock` runs only one command under a guard. This command is of the kind
        // `Other`, because no claim lock is passed to its guard.
        let is_locks = || daemons.iter().any(|of| of.role.kind == Kind::Lock);
        match guarded {
            Guarded::Command => {}
            Guarded::Other if is_locks() => {}
            Guarded::OnLead | Guarded::OnStepDown | Guarded::Other => return Ok(None),
        }
        for (line, terms) in &self.given {
            let Some(grants) = of(terms) else {
                return Err((
                    *line,
                    format!(
                        "I5: the deadline {} of a guard is not a deadline of the authority of \
                        process {daemon}",
                        terms.valid_until,
                    ),
                ));
            };
            let grace = terms.kill_at.since(terms.valid_until);
            if grace > grants.role.loss_grace {
                return Err((
                    *line,
                    format!(
                        "I5: a guard would kill its command {grace:?} after its deadline, but \
                        loss_grace is {:?}",
                        grants.role.loss_grace,
                    ),
                ));
            }
        }
        Ok(of(&self.options.policy.terms).map(|grants| grants.role))
    }

    /// Returns the period in which the command may have been running, or `None` if the command was
    /// not started. If a guard is killed, its daemon ends the command, and the trace does not show
    /// when.
    fn interval(&self) -> Option<(BootTime, BootTime)> {
        // The policy never extends a deadline that has passed, so the policy's last deadline
        // applies.
        let last = self.policy.as_ref()?.valid_until();
        let mut orders = self.given.iter().rev();
        let (_, terms) = orders.find(|(_, terms)| terms.valid_until == last)?;
        Some((self.started?, self.last.min(terms.kill_at)))
    }
}

/// Checks all guards together: each deadline must be a deadline of its daemon's authority, and
/// commands that exclude each other must not run at the same time.
pub(crate) fn check(
    guards: &BTreeMap<String, Guard>,
    authorities: &Authorities,
    some_untraced: bool,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut ran: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (id, guard) in guards {
        let daemons = authorities.of_process(guard.options.daemon, guard.clock.as_ref());
        match guard.granted(&daemons) {
            Ok(Some(role)) => {
                let document = (&role.clock, role.kind, &role.document);
                let runs = ran.entry(document).or_default();
                runs.extend(guard.interval().map(|time| (time, role, id, guard.line)));
            }
            Ok(None) => {}
            Err(_) if some_untraced && daemons.is_empty() => {}
            Err((line, what)) => violations.push(Violation { line, what }),
        }
    }
    for ((_, _, document), mut runs) in ran {
        runs.sort_by_key(|(time, ..)| *time);
        for (index, ((from, _), role, id, line)) in runs.iter().enumerate() {
            let excludes =
                |other: &Role| [role.exclusion, other.exclusion].contains(&Exclusion::All);
            let overlap = runs[..index]
                .iter()
                .find(|((_, until), other, ..)| until > from && excludes(other));
            if let Some(((_, until), _, other, _)) = overlap {
                violations.push(Violation {
                    line: *line,
                    what: format!(
                        "I5: {document}: the command of guard {id} begins at {from}, and that of \
                         {other} runs until {until}"
                    ),
                });
            }
        }
    }
    violations
}
