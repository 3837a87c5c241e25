//! Replays the recorded turns of one machine.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use leasehold_core::election::{
    self, Authority, BootTime, CallId, Candidate, Claim, Election, Identity, OrderKind, Randomness,
    Token,
};
use leasehold_core::lock::{self, LockContender, LockMode};
use leasehold_core::trace::{Bits, Kind, Started, TurnRecord};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::authority::{Exclusion, Role};
use crate::calls::{Outcome, Reply};
use crate::state::Operation;

/// A state machine of the core whose trace can be replayed.
pub(crate) trait Machine: Sized + 'static {
    type Options: DeserializeOwned;
    type Input: DeserializeOwned;
    type Effect: DeserializeOwned + PartialEq + Debug;

    const KIND: Kind;

    fn create(options: Self::Options, now: BootTime, random: &mut dyn Randomness) -> Self;
    fn handle(&mut self, now: BootTime, input: Self::Input, random: &mut dyn Randomness);
    fn next_effect(&mut self) -> Option<Self::Effect>;
    fn call(effect: &Self::Effect) -> Option<(CallId, Operation)>;
    /// Returns the reply in an input, if the input is a reply to a call.
    fn reply(input: &Self::Input) -> Option<Reply>;
    /// Returns the deadline in an effect: the command's deadline for a lease, or the end of
    /// authority for a lock.
    fn deadline(effect: &Self::Effect) -> Option<BootTime>;
    /// Returns the claim and the token if an effect is an attempt to lead.
    fn attempt(effect: &Self::Effect) -> Option<(Claim, Token)>;
    /// Returns the claim of a predecessor that provably exited.
    fn predecessor(options: &Self::Options) -> Option<Claim>;
    fn identity(options: &Self::Options) -> &Identity;
    fn authority(&self, now: BootTime) -> Option<Authority>;
    fn exclusion(options: &Self::Options) -> Exclusion;
    /// Returns the command's grace period after authority ends.
    fn loss_grace(options: &Self::Options) -> Duration;
    /// Returns the new grace period, if the input changes it.
    fn changed_loss_grace(input: &Self::Input) -> Option<Duration>;
}

impl Machine for Election {
    type Options = Candidate;
    type Input = election::Input;
    type Effect = election::Effect;

    const KIND: Kind = Kind::Election;

    fn create(options: Candidate, now: BootTime, random: &mut dyn Randomness) -> Self {
        Self::new(options, now, random)
    }

    fn handle(&mut self, now: BootTime, input: Self::Input, random: &mut dyn Randomness) {
        self.handle(now, input, random);
    }

    fn next_effect(&mut self) -> Option<Self::Effect> {
        self.next_effect()
    }

    fn call(effect: &Self::Effect) -> Option<(CallId, Operation)> {
        match effect {
            election::Effect::Call { id, operation } => {
                Some((*id, Operation::Lease(operation.clone())))
            }
            _ => None,
        }
    }

    fn reply(input: &Self::Input) -> Option<Reply> {
        let election::Input::Reply { call, outcome } = input else {
            return None;
        };
        let (outcome, found) = match outcome {
            election::Outcome::Applied(found) => (Outcome::Applied, Some(found.clone().into())),
            election::Outcome::PrimaryOnly => (Outcome::PrimaryOnly, None),
            election::Outcome::Rejected => (Outcome::Rejected, None),
            election::Outcome::Failed => (Outcome::Failed, None),
            election::Outcome::Unknown => (Outcome::Unknown, None),
        };
        let call = *call;
        Some(Reply {
            call,
            outcome,
            found,
        })
    }

    fn deadline(effect: &Self::Effect) -> Option<BootTime> {
        match effect {
            election::Effect::Workload(order) => match order.kind {
                OrderKind::Start(terms) | OrderKind::Extend(terms) => Some(terms.valid_until),
                OrderKind::Stop | OrderKind::Lost { .. } => None,
            },
            _ => None,
        }
    }

    fn attempt(effect: &Self::Effect) -> Option<(Claim, Token)> {
        let election::Effect::Call { operation, .. } = effect else {
            return None;
        };
        match operation {
            election::Operation::Acquire(acquisition)
            | election::Operation::TakeOver { acquisition, .. } => {
                Some((acquisition.claim, acquisition.token))
            }
            _ => None,
        }
    }

    fn predecessor(options: &Candidate) -> Option<Claim> {
        options.predecessor_claim
    }

    fn identity(options: &Candidate) -> &Identity {
        &options.identity
    }

    fn authority(&self, now: BootTime) -> Option<Authority> {
        self.status().at(now).authority
    }

    fn exclusion(_: &Candidate) -> Exclusion {
        Exclusion::All
    }

    fn loss_grace(options: &Candidate) -> Duration {
        options.tunables.timings.loss_grace()
    }

    fn changed_loss_grace(input: &Self::Input) -> Option<Duration> {
        match input {
            election::Input::Reconfigure(tunables) => Some(tunables.timings.loss_grace()),
            _ => None,
        }
    }
}

impl Machine for LockContender {
    type Options = lock::Options;
    type Input = lock::LockInput;
    type Effect = lock::LockEffect;

    const KIND: Kind = Kind::Lock;

    fn create(options: lock::Options, now: BootTime, random: &mut dyn Randomness) -> Self {
        Self::new(options, now, random)
    }

    fn handle(&mut self, now: BootTime, input: Self::Input, random: &mut dyn Randomness) {
        self.handle(now, input, random);
    }

    fn next_effect(&mut self) -> Option<Self::Effect> {
        self.next_effect()
    }

    fn call(effect: &Self::Effect) -> Option<(CallId, Operation)> {
        match effect {
            lock::LockEffect::Call { id, operation } => {
                Some((*id, Operation::Lock(operation.clone())))
            }
            _ => None,
        }
    }

    fn reply(input: &Self::Input) -> Option<Reply> {
        let lock::LockInput::Reply { call, outcome } = input else {
            return None;
        };
        let (outcome, found) = match outcome {
            lock::LockOutcome::Applied(found) => (Outcome::Applied, Some(found.clone().into())),
            lock::LockOutcome::PrimaryOnly => (Outcome::PrimaryOnly, None),
            lock::LockOutcome::Rejected => (Outcome::Rejected, None),
            lock::LockOutcome::Failed => (Outcome::Failed, None),
            lock::LockOutcome::Unknown => (Outcome::Unknown, None),
        };
        let call = *call;
        Some(Reply {
            call,
            outcome,
            found,
        })
    }

    fn deadline(_: &Self::Effect) -> Option<BootTime> {
        None
    }

    fn attempt(_: &Self::Effect) -> Option<(Claim, Token)> {
        None
    }

    fn predecessor(_: &lock::Options) -> Option<Claim> {
        None
    }

    fn identity(options: &lock::Options) -> &Identity {
        &options.identity
    }

    fn authority(&self, now: BootTime) -> Option<Authority> {
        self.authority_at(now)
    }

    fn exclusion(options: &lock::Options) -> Exclusion {
        match options.mode {
            LockMode::Exclusive => Exclusion::All,
            LockMode::Shared => Exclusion::Writers,
            LockMode::Slot(slots) => Exclusion::Beyond(slots.get()),
        }
    }

    fn loss_grace(options: &lock::Options) -> Duration {
        options.timings.loss_grace()
    }

    fn changed_loss_grace(_: &Self::Input) -> Option<Duration> {
        None
    }
}

/// A source of random bits that returns the recorded bits in order.
struct Recorded {
    bits: VecDeque<Bits>,
    exhausted: bool,
}

impl Recorded {
    fn new(bits: Vec<Bits>) -> Self {
        Self {
            bits: bits.into(),
            exhausted: false,
        }
    }

    fn all_drawn(&self) -> Result<(), String> {
        match (self.exhausted, self.bits.len()) {
            (true, _) => Err("replay: more random bits are drawn than were recorded".to_owned()),
            (false, 0) => Ok(()),
            (false, left) => Err(format!("replay: {left} recorded random bits are not drawn")),
        }
    }
}

impl Randomness for Recorded {
    fn bits(&mut self) -> u128 {
        let next = self.bits.pop_front();
        self.exhausted |= next.is_none();
        next.map_or(0, |Bits(bits)| bits)
    }
}

pub(crate) struct Turned {
    pub(crate) now: BootTime,
    pub(crate) reply: Option<Reply>,
    pub(crate) calls: Vec<(CallId, Operation)>,
    pub(crate) attempts: Vec<(Claim, Token)>,
    /// The deadlines that the turn set for a command. A turn can set deadlines without authority,
    /// because a leader that steps down keeps renewing while its command stops.
    pub(crate) deadlines: Vec<BootTime>,
    pub(crate) authority: Option<Authority>,
    pub(crate) loss_grace: Option<Duration>,
    /// The first difference between the recorded turn and the replay.
    pub(crate) difference: Option<String>,
}

pub(crate) trait Replay {
    fn turn(&mut self, turn: &Value) -> Result<Turned, String>;
}

struct Replayed<M> {
    /// `None` after the machine has panicked.
    machine: Option<M>,
    /// True if a turn failed. Later turns are not compared, because they could differ for the same
    /// reason.
    failed: bool,
}

pub(crate) fn begin<M: Machine>(started: &Value) -> Result<(Box<dyn Replay>, Role), String> {
    let Started {
        document,
        clock,
        now,
        random,
        options,
        ..
    } = parse::<Started<M::Options>>(started)?;
    let mut random = Recorded::new(random);
    let role = Role {
        kind: M::KIND,
        document,
        clock,
        identity: M::identity(&options).clone(),
        exclusion: M::exclusion(&options),
        begun: now,
        predecessor: M::predecessor(&options),
        loss_grace: M::loss_grace(&options),
    };
    let machine = unwound(|| M::create(options, now, &mut random))?;
    random.all_drawn()?;
    let replayed = Replayed {
        machine: Some(machine),
        failed: false,
    };
    Ok((Box::new(replayed), role))
}

impl<M: Machine> Replay for Replayed<M> {
    fn turn(&mut self, turn: &Value) -> Result<Turned, String> {
        let TurnRecord {
            now,
            random,
            input,
            effects: recorded,
        } = parse::<TurnRecord<M::Input, M::Effect>>(turn)?;
        let mut random = Recorded::new(random);
        let reply = M::reply(&input);
        let loss_grace = M::changed_loss_grace(&input);
        let effects = self.handle(now, input, &mut random)?;
        let calls = recorded.iter().filter_map(M::call).collect();
        let attempts = recorded.iter().filter_map(M::attempt).collect();
        let deadlines = recorded.iter().filter_map(M::deadline).collect();
        let compared = random
            .all_drawn()
            .and_then(|()| compare(&recorded, &effects));
        let difference = compared.err().filter(|_| !self.failed);
        self.failed |= difference.is_some();
        Ok(Turned {
            now,
            reply,
            calls,
            attempts,
            deadlines,
            authority: self
                .machine
                .as_ref()
                .and_then(|machine| machine.authority(now)),
            loss_grace,
            difference,
        })
    }
}

impl<M: Machine> Replayed<M> {
    /// Passes an input to the machine, and returns its effects. Returns no effects after a panic,
    /// because the machine's state is lost.
    fn handle(
        &mut self,
        now: BootTime,
        input: M::Input,
        random: &mut Recorded,
    ) -> Result<Vec<M::Effect>, String> {
        let Some(mut machine) = self.machine.take() else {
            return Ok(Vec::new());
        };
        // If the machine panics, its state is lost, and `failed` stays true.
        let before = std::mem::replace(&mut self.failed, true);
        let (machine, effects) = unwound(|| {
            machine.handle(now, input, random);
            let effects = std::iter::from_fn(|| machine.next_effect()).collect();
            (machine, effects)
        })?;
        self.failed = before;
        self.machine = Some(machine);
        Ok(effects)
    }
}

/// Converts a panic to a violation. A machine panics if its caller violates the contract, as an
/// invalid record may do.
pub(crate) fn unwound<T>(step: impl FnOnce() -> T) -> Result<T, String> {
    let caught = catch_unwind(AssertUnwindSafe(step));
    caught.map_err(|panic| format!("replay: the machine panics: {}", message(&*panic)))
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let owned = || panic.downcast_ref::<String>().map(String::as_str);
    let text = panic.downcast_ref::<&str>().copied().or_else(owned);
    text.unwrap_or_default()
}

pub(crate) fn compare<E: PartialEq + Debug>(recorded: &[E], replayed: &[E]) -> Result<(), String> {
    let same = recorded.iter().zip(replayed).take_while(|(a, b)| a == b);
    let index = same.count();
    let [recorded, replayed] = [recorded, replayed].map(|effects| match effects.get(index) {
        Some(effect) => format!("{effect:?}"),
        None => "nothing".to_owned(),
    });
    match recorded == replayed && recorded == "nothing" {
        true => Ok(()),
        false => Err(format!(
            "replay: effect {index} is {recorded}, but the machine returns {replayed}"
        )),
    }
}

pub(crate) fn parse<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error| format!("not a record of a trace: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_a_machine_is_a_violation() {
        let found = unwound(|| -> u8 { panic!("call {} is unknown", 7) });
        let expected = "replay: the machine panics: call 7 is unknown";
        assert_eq!(found, Err(expected.to_owned()));
        assert_eq!(unwound(|| 7), Ok(7));
    }
}
