//! Defines the checker's model: the possible steps, the properties that must hold, and the
//! milestones that some run must reach.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use stateright::{Model, Property};

use crate::lock::LockOperation;
use crate::lock::mutation::{self, Mutation};
use crate::proof::model::lock::action::Action;
use crate::proof::model::lock::bounds::{Bounds, Kind};
use crate::proof::model::lock::machine::{Call, Machine, Place};
use crate::proof::model::lock::world::World;

/// An event that some run must reach. An exploration without this event proves little.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Milestone {
    /// A join granted the lock to the process that sent it.
    Joined,
    /// A renewal confirmed a grant.
    Confirmed,
    /// A process had authority from a grant before it confirmed the grant.
    HeldByGrant,
    /// An eviction granted the lock to the process that sent it.
    TakenOver,
    /// A call timed out, and its late reply granted authority.
    LateAcquisition,
    Together,
    HolderSwept,
    /// A contender evicted an entry whose minimum hold had passed.
    KeptPlaceSwept,
    GranteeSwept,
    WaiterSwept,
    Skipped,
    PlaceLost,
    DeadlinePassed,
    RenewalRejected,
    RollBack,
    /// The store applied a join after its contender had left or exited.
    JoinWithoutOwner,
    LateEvent,
    StreamEnded,
}

#[derive(Debug, Clone)]
pub(crate) struct Exploration {
    pub(crate) bounds: Bounds,
    pub(crate) planted: Option<Mutation>,
    /// The milestones that some run reached, one bit each. All states share them.
    reached: Arc<AtomicU32>,
    /// True once a property was violated. The exploration then ends, because the checker reports
    /// the last violation that it finds, and the first violation has the fewest steps.
    ended: Arc<AtomicBool>,
}

impl Exploration {
    pub(crate) fn new(bounds: Bounds, planted: Option<Mutation>) -> Self {
        Self {
            bounds,
            planted,
            reached: Arc::default(),
            ended: Arc::default(),
        }
    }

    fn note(&self, world: &World) {
        let mut bits = 0;
        for milestone in &world.milestones {
            bits |= 1 << *milestone as u32;
        }
        if world.held().len() > 1 {
            bits |= 1 << Milestone::Together as u32;
        }
        self.reached.fetch_or(bits, Ordering::Relaxed);
    }

    pub(crate) fn has_reached(&self, milestone: Milestone) -> bool {
        self.reached.load(Ordering::Relaxed) & (1 << milestone as u32) != 0
    }
}

macro_rules! unbroken {
    ($($name:literal),+ $(,)?) => {
        [$(Property::always($name, |model: &Self, world: &World| {
            model.has_ended() || world.broken != Some($name)
        }),)+]
    };
}

impl Model for Exploration {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        mutation::with(self.planted, || vec![World::start(&self.bounds)])
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if self.is_broken(world) {
            self.ended.store(true, Ordering::Relaxed);
            return;
        }
        if world.settled() {
            actions.push(Action::Tick);
        }
        if world.store.lags() {
            actions.extend([Action::Commit, Action::RollBack]);
        }
        for (index, machine) in world.machines.iter().enumerate() {
            self.of_machine(world, index, machine, actions);
            self.of_stream(world, index, machine, actions);
            for call in machine.calls.iter() {
                self.of_call(world, index, machine, call, actions);
            }
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let next = mutation::with(self.planted, || world.after(action, &self.bounds));
        self.note(&next);
        Some(next)
    }

    fn within_boundary(&self, _: &World) -> bool {
        !self.has_ended()
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("exclusion", |model: &Self, world: &World| {
                model.has_ended() || world.excludes()
            }),
            Property::always("liveness", |model: &Self, world: &World| {
                model.has_ended() || world.idle_ticks <= model.bounds.idle_ticks_max
            }),
        ];
        properties.extend(unbroken![
            "I2",
            "I3",
            "I6",
            "grants are complete",
            "no entry overtakes",
            "the number of slots stays fixed",
            "each slot has one holder",
            "places are kept",
            "abandoned places are freed",
            "once per period",
            "only successes are recorded",
            "reported releases happened",
            "claims are unique",
            "bounds",
            "evictions are due",
            "ended claims stay ended",
            "read after a rejection",
            "a stored claim does not join again",
            "a join is retried until its outcome is known",
            "a place reported as lost is gone",
            "expired entries are evicted",
            "no false alarm",
        ]);
        properties
    }
}

impl Exploration {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn is_broken(&self, world: &World) -> bool {
        let live = world.idle_ticks <= self.bounds.idle_ticks_max;
        world.broken.is_some() || !live || !world.excludes()
    }

    fn may(&self, world: &World, kind: Kind) -> bool {
        world.faults_left > 0 && self.bounds.kinds.contains(&kind)
    }

    fn of_machine(&self, world: &World, index: usize, machine: &Machine, into: &mut Vec<Action>) {
        let runs = machine.runs();
        let gone = machine.contender.is_none();
        extend_by(
            into,
            [
                (machine.due(world.ticks), Action::Wake(index)),
                (runs && machine.works, Action::Finish(index)),
                (runs && world.give_ups_left > 0, Action::GiveUp(index)),
                (gone && world.starts_left > 0, Action::Start(index)),
                (machine.frozen, Action::Thaw(index)),
                (
                    runs && self.may(world, Kind::Freezes),
                    Action::Freeze(index),
                ),
                (!gone && self.may(world, Kind::Kills), Action::Kill(index)),
                (
                    runs && self.may(world, Kind::NewPrimaries),
                    Action::ChangePrimary(index),
                ),
            ],
        );
    }

    fn of_stream(&self, world: &World, index: usize, machine: &Machine, into: &mut Vec<Action>) {
        if !machine.runs() {
            return;
        }
        let stream = &machine.stream;
        let event = !stream.events.is_empty();
        let closed = self.bounds.streams && stream.claim.is_some() && !stream.open;
        extend_by(
            into,
            [
                (event, Action::Event(index)),
                (
                    event && self.may(world, Kind::Delays),
                    Action::DelayEvent(index),
                ),
                (
                    event && self.may(world, Kind::Duplicates),
                    Action::DuplicateEvent(index),
                ),
                (!stream.late_events.is_empty(), Action::LateEvent(index)),
                (
                    stream.open && self.may(world, Kind::LostStreams),
                    Action::EndStream(index),
                ),
                (closed, Action::OpenStream(index)),
            ],
        );
    }

    fn of_call(
        &self,
        world: &World,
        index: usize,
        machine: &Machine,
        call: &Call,
        into: &mut Vec<Action>,
    ) {
        let number = call.number;
        let of = |kind| self.may(world, kind);
        match call.place {
            Place::Sent => {
                into.push(Action::Serve(index, number));
                let write = !matches!(call.operation, LockOperation::Read { .. });
                let plain = matches!(call.operation, LockOperation::Read { confirm: false });
                let stale = plain && world.store.previous.is_some();
                extend_by(
                    into,
                    [
                        (of(Kind::Delays), Action::Delay(index, number)),
                        (of(Kind::Delays), Action::DelayAnswer(index, number)),
                        (
                            write && of(Kind::Duplicates),
                            Action::Duplicate(index, number),
                        ),
                        (write && of(Kind::Rollbacks), Action::Lag(index, number)),
                        (of(Kind::Refusals), Action::Refuse(index, number)),
                        (
                            stale && of(Kind::StaleReads),
                            Action::ReadStale(index, number),
                        ),
                    ],
                );
                return;
            }
            Place::Delayed => into.push(Action::Land(index, number)),
            Place::Answered(_) if machine.runs() => into.push(Action::Answer(index, number)),
            Place::Answered(_) | Place::Lagging(_) | Place::Lost => {}
        }
        if call.waiting && machine.runs() {
            into.push(Action::TimeOut(index, number));
        }
    }
}

fn extend_by<const N: usize>(into: &mut Vec<Action>, actions: [(bool, Action); N]) {
    let possible = actions.into_iter().filter(|(holds, _)| *holds);
    into.extend(possible.map(|(_, action)| action));
}
