//! Defines the checker's model: the possible steps and the properties that must hold.

use stateright::{Model, Property};

use crate::election::Operation;
use crate::election::mutation::{self, Mutation};
use crate::proof::model::election::action::Action;
use crate::proof::model::election::bounds::{Bounds, Kind, Requested};
use crate::proof::model::election::machine::{Call, Machine, Place};
use crate::proof::model::election::monitor::{Broken, Milestone};
use crate::proof::model::election::world::World;

#[derive(Debug, Clone)]
pub(crate) struct Exploration {
    pub(crate) bounds: Bounds,
    pub(crate) milestones: Vec<Milestone>,
    pub(crate) planted: Option<Mutation>,
}

impl Model for Exploration {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        mutation::with(self.planted, || vec![World::start(&self.bounds)])
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.settled() {
            actions.push(Action::Tick);
        }
        if world.store.lags() {
            actions.extend([Action::Commit, Action::RollBack]);
        }
        for (index, machine) in world.machines.iter().enumerate() {
            self.of_machine(world, index, machine, actions);
            for call in machine.calls.iter() {
                self.of_call(world, index, machine, call, actions);
            }
        }
        self.of_operators(world, actions);
        if self.has(Kind::Deletions) && world.faults_left > 0 && all_know(world) {
            actions.push(Action::Delete);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        mutation::with(self.planted, || world.after(action, &self.bounds))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("I1: at most one leads", |_, world: &World| {
                let leads = world.machines.iter().filter(|m| m.leads(world.ticks));
                leads.count() <= 1
            }),
            Property::always("I3: tokens grow, a claim leads once", |_, world: &World| {
                world.broken != Some(Broken::I3)
            }),
            Property::always(
                "I7: authority comes only from acknowledged writes, counted from when they were sent",
                |_, world: &World| world.broken != Some(Broken::I7),
            ),
            Property::always(
                "I8: a candidate takes only a free lease, an expired lease or its own lease",
                |_, world: &World| world.broken != Some(Broken::I8),
            ),
            Property::always(
                "I10: a candidate leads in time, but never while the lease is paused",
                |model: &Self, world: &World| world.quiet_ticks <= model.bounds.quiet_ticks_max,
            ),
            Property::always(
                "a candidate reports a loss only after a loss",
                |model: &Self, world: &World| {
                    let reported = world.milestone == Some(Milestone::StoreRolledBack);
                    !reported || model.has(Kind::Deletions)
                },
            ),
        ];
        properties.extend(self.milestones.iter().map(|milestone| reached(*milestone)));
        properties
    }
}

impl Exploration {
    fn has(&self, kind: Kind) -> bool {
        self.bounds.kinds.contains(&kind)
    }

    fn asks_for(&self, requested: Requested) -> bool {
        self.bounds.requested.contains(&requested)
    }

    fn of_machine(&self, world: &World, index: usize, machine: &Machine, into: &mut Vec<Action>) {
        let fault = world.faults_left > 0;
        let runs = machine.runs();
        let event = runs && !machine.events.is_empty();
        let late_event = runs && !machine.late_events.is_empty();
        let signal = runs && world.requests_left > 0 && self.asks_for(Requested::Signals);
        let gone = machine.election.is_none();
        let restart = |remembers| Action::Restart {
            candidate: index,
            remembers,
        };
        extend_by(
            into,
            [
                (machine.due(world.ticks), Action::Wake(index)),
                (event, Action::Event(index)),
                (
                    event && fault && self.has(Kind::Delays),
                    Action::DelayEvent(index),
                ),
                (late_event, Action::LateEvent(index)),
                (
                    runs && fault && self.has(Kind::Freezes),
                    Action::Freeze(index),
                ),
                (signal, Action::Shutdown(index)),
                (
                    signal && machine.leads(world.ticks),
                    Action::StepDown(index),
                ),
                (machine.frozen, Action::Thaw(index)),
                (gone, restart(true)),
                // A process that remembers nothing cannot know that the document was deleted.
                (gone && !self.has(Kind::Deletions), restart(false)),
                (
                    !gone && fault && self.has(Kind::Crashes),
                    Action::Crash(index),
                ),
            ],
        );
    }

    /// Adds the writes of operators. Operators write only while a majority has every write.
    fn of_operators(&self, world: &World, into: &mut Vec<Action>) {
        let Some(lease) = &world.store.primary else {
            return;
        };
        if world.store.lags() {
            return;
        }
        if lease.paused {
            into.push(Action::Resume);
        }
        if world.requests_left == 0 {
            return;
        }
        if self.asks_for(Requested::Pauses) && !lease.paused {
            into.push(Action::Pause);
        }
        let transfers = self.asks_for(Requested::Transfers) && lease.request.is_none();
        if let (true, Some(holder)) = (transfers, &lease.holder) {
            let others = world.machines.iter().enumerate();
            let others = others.filter(|(_, machine)| machine.identity != holder.identity);
            into.extend(others.map(|(to, _)| Action::Transfer(to)));
        }
    }

    fn of_call(
        &self,
        world: &World,
        index: usize,
        machine: &Machine,
        call: &Call,
        into: &mut Vec<Action>,
    ) {
        let fault = world.faults_left > 0;
        let number = call.number;
        match call.place {
            Place::Sent => {
                into.push(Action::Serve(index, number));
                let write = !matches!(call.operation, Operation::Read { .. });
                let plain = matches!(call.operation, Operation::Read { confirm: false });
                let announced = machine.announces(&call.operation);
                let stale = self.has(Kind::StaleReads) && plain && world.store.previous.is_some();
                let faults = [
                    (self.has(Kind::Delays), Action::Delay(index, number)),
                    (self.has(Kind::Delays), Action::DelayAnswer(index, number)),
                    (
                        write && self.has(Kind::Duplicates),
                        Action::Duplicate(index, number),
                    ),
                    (
                        write && self.has(Kind::Rollbacks),
                        Action::Lag(index, number),
                    ),
                    (
                        announced && self.has(Kind::Rollbacks),
                        Action::Depose(index, number),
                    ),
                    (self.has(Kind::Refusals), Action::Refuse(index, number)),
                    (stale, Action::ReadStale(index, number)),
                ];
                extend_by(into, faults.map(|(may, action)| (may && fault, action)));
                return;
            }
            Place::Delayed => into.push(Action::Land(index, number)),
            Place::Answered(_) if machine.runs() => into.push(Action::Answer(index, number)),
            Place::Answered(_) | Place::Lagging(_) | Place::Lost => {}
        }
        if call.waiting && machine.runs() {
            into.push(Action::GiveUp(index, number));
        }
    }
}

fn extend_by<const N: usize>(into: &mut Vec<Action>, actions: [(bool, Action); N]) {
    let possible = actions.into_iter().filter(|(holds, _)| *holds);
    into.extend(possible.map(|(_, action)| action));
}

/// Returns true if every running candidate, and the status directory of every exited candidate, has
/// the stored token or a higher token.
fn all_know(world: &World) -> bool {
    let Some(lease) = &world.store.committed else {
        return false;
    };
    let knows = |machine: &Machine| match &machine.election {
        Some(election) => election.status().token_highest >= lease.token,
        None => machine.directory.token >= lease.token,
    };
    !world.store.lags() && world.machines.iter().all(|machine| knows(machine))
}

fn reached(milestone: Milestone) -> Property<Exploration> {
    macro_rules! sometimes {
        ($name:literal, $milestone:ident) => {
            Property::sometimes($name, |_, world: &World| {
                world.milestone == Some(Milestone::$milestone)
            })
        };
    }
    match milestone {
        Milestone::HandOver => sometimes!("a lease is handed over", HandOver),
        Milestone::TakeOver => sometimes!("a lease is taken over", TakeOver),
        Milestone::Adoption => sometimes!("an unknown acquisition is adopted", Adoption),
        Milestone::RollBack => sometimes!("a write is rolled back", RollBack),
        Milestone::DeadlinePassed => sometimes!("a deadline passes", DeadlinePassed),
        Milestone::RenewalRejected => sometimes!("a renewal is rejected", RenewalRejected),
        Milestone::StoreRolledBack => sometimes!(
            "a candidate notices that the store went back",
            StoreRolledBack
        ),
        Milestone::CreatedLate => sometimes!("a creation is confirmed late", CreatedLate),
        Milestone::Succession => {
            sometimes!("a process succeeds its exited predecessor", Succession)
        }
        Milestone::Transferred => sometimes!("a transfer reaches its candidate", Transferred),
        Milestone::Paused => sometimes!("a pause is applied", Paused),
        Milestone::AcquiredUnread => sometimes!(
            "a lease is acquired after an announced release",
            AcquiredUnread
        ),
        Milestone::LateExtension => sometimes!("a late answer extends authority", LateExtension),
    }
}
