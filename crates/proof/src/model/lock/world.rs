mod delivery;
mod kept;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::election::{Identity, Token};
use crate::lock::mutation::planted;
use crate::lock::{Hint, LockInput, LockOutcome, Standing};
use crate::proof::model::canonical::Canonical;
use crate::proof::model::lock::action::Action;
use crate::proof::model::lock::bounds::{Bounds, Kind};
use crate::proof::model::lock::canonical::Live;
use crate::proof::model::lock::machine::{Call, Machine, Place};
use crate::proof::model::lock::properties::Milestone;
use crate::proof::model::lock::store::{Store, lock_of};
use crate::proof::sim::lock::entries::all;
use crate::proof::sim::lock::invariants::exclusion::{self, Held};
use kept::KeptPlace;

#[derive(Debug, Clone)]
pub(crate) struct World {
    /// The canonical form contains only times relative to now, and therefore omits the ticks.
    pub(crate) ticks: u64,
    /// Number of random ids and call numbers drawn so far. The canonical form omits it.
    pub(crate) drawn: u64,
    /// States share a machine until a step changes it.
    pub(crate) machines: Vec<Arc<Machine>>,
    pub(crate) store: Store,
    pub(crate) faults_left: u8,
    pub(crate) starts_left: u8,
    pub(crate) give_ups_left: u8,
    /// Consecutive undisturbed ticks in which a running contender waits although no process with
    /// authority excludes it.
    pub(crate) idle_ticks: u8,
    pub(crate) token_held: Token,
    succeeded: bool,
    places: Vec<KeptPlace>,
    pub(crate) broken: Option<&'static str>,
    /// The milestones of the last step. The canonical form omits them.
    pub(crate) milestones: Vec<Milestone>,
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        self.canonical() == other.canonical()
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            ticks,
            drawn: _,
            machines,
            store,
            faults_left,
            starts_left,
            give_ups_left,
            idle_ticks,
            token_held,
            succeeded,
            places: _,
            broken,
            milestones: _,
        } = self;
        let live = Live::of(store, machines.iter().map(AsRef::as_ref));
        let mut canonical = Canonical::new(state);
        canonical.put(store);
        for machine in machines {
            machine.canonicalise(*ticks, &live, &mut canonical);
        }
        canonical.put(&(*faults_left, *starts_left, *give_ups_left, *idle_ticks));
        canonical.put(&(*token_held, *succeeded, *broken));
        self.put_places(&mut canonical);
    }
}

impl World {
    pub(crate) fn start(bounds: &Bounds) -> Self {
        let names = ["a", "b", "c"];
        let machine = |(name, seat): (&str, _)| {
            let identity = Identity::new(name).expect("a legal name");
            Arc::new(Machine::new(identity, seat))
        };
        let mut world = Self {
            ticks: 0,
            drawn: 0,
            machines: names
                .into_iter()
                .zip(bounds.seats.iter().copied())
                .map(machine)
                .collect(),
            store: Store::new(bounds.missing),
            faults_left: bounds.faults,
            starts_left: bounds.starts,
            give_ups_left: bounds.give_ups,
            idle_ticks: 0,
            token_held: Token::ZERO,
            succeeded: false,
            places: Vec::new(),
            broken: None,
            milestones: Vec::new(),
        };
        for index in 0..world.machines.len() {
            world.begin(index, bounds);
        }
        world
    }

    pub(crate) fn canonical(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// Returns true if time can pass, because no step must happen first.
    pub(crate) fn settled(&self) -> bool {
        !self.machines.iter().any(|m| m.is_prompt(self.ticks))
    }

    pub(crate) fn held(&self) -> Vec<Held> {
        let machines = self.machines.iter();
        machines.filter_map(|m| m.held(self.ticks)).collect()
    }

    /// Returns true if authority belongs to at most one exclusive contender, or only to shared
    /// contenders, or to at most N holders of N slots.
    pub(crate) fn excludes(&self) -> bool {
        exclusion::check(&self.held()).is_none()
    }

    pub(crate) fn after(&self, action: Action, bounds: &Bounds) -> Self {
        let mut next = self.clone();
        next.milestones.clear();
        next.perform(action, bounds);
        next.forget_calls();
        next.settle_notes();
        next
    }

    fn perform(&mut self, action: Action, bounds: &Bounds) {
        match action {
            Action::Tick => self.tick(bounds),
            Action::Wake(i) => self.input(i, LockInput::Tick, bounds),
            Action::Serve(i, n) => {
                let outcome = self.land(i, n);
                self.replicate(bounds);
                self.arrive(i, n, outcome, bounds);
            }
            Action::Event(i) => {
                let hint = self.machine(i).stream.events.remove(0);
                self.input(i, LockInput::Hint(hint), bounds);
            }
            Action::Delay(i, n) => {
                self.fault();
                self.place(i, n, Place::Delayed);
            }
            Action::DelayAnswer(i, n) => {
                self.fault();
                let outcome = self.land(i, n);
                self.replicate(bounds);
                self.place(i, n, Place::Answered(outcome));
            }
            Action::Duplicate(i, n) => {
                self.fault();
                self.drawn += 1;
                let copy = self.drawn;
                self.machine(i).calls.duplicate(n, copy);
                let outcome = self.land(i, n);
                self.replicate(bounds);
                self.arrive(i, n, outcome, bounds);
            }
            Action::Lag(i, n) => {
                self.fault();
                let outcome = self.land(i, n);
                if planted!(WriteConcernOne) {
                    return self.arrive(i, n, outcome, bounds);
                }
                self.place(i, n, Place::Lagging(outcome));
            }
            Action::ReadStale(i, n) => {
                self.fault();
                let previous = self.store.previous.clone();
                let outcome = LockOutcome::Applied(previous.expect("the action was possible"));
                self.arrive(i, n, outcome, bounds);
            }
            Action::Refuse(i, n) => {
                self.fault();
                self.arrive(i, n, LockOutcome::Failed, bounds);
            }
            Action::Land(i, n) => {
                self.disturb();
                let outcome = self.land(i, n);
                self.replicate(bounds);
                self.place(i, n, Place::Answered(outcome));
            }
            Action::Answer(i, n) => {
                self.disturb();
                let Place::Answered(outcome) = self.call(i, n).place else {
                    unreachable!("the action was possible");
                };
                self.arrive(i, n, outcome, bounds);
            }
            Action::TimeOut(i, n) => self.time_out(i, n, bounds),
            Action::Commit => {
                self.disturb();
                self.replicate(bounds);
            }
            Action::RollBack => self.roll_back(),
            _ => self.change_machine(action, bounds),
        }
    }

    fn change_machine(&mut self, action: Action, bounds: &Bounds) {
        match action {
            Action::DelayEvent(i) => {
                self.fault();
                let stream = &mut self.machine(i).stream;
                let hint = stream.events.remove(0);
                stream.late_events.push(hint);
            }
            Action::DuplicateEvent(i) => {
                self.fault();
                let stream = &mut self.machine(i).stream;
                let hint = stream.events.remove(0);
                stream.late_events.push(hint);
                self.input(i, LockInput::Hint(hint), bounds);
            }
            Action::LateEvent(i) => {
                self.disturb();
                let hint = self.machine(i).stream.late_events.remove(0);
                self.milestones.push(Milestone::LateEvent);
                self.input(i, LockInput::Hint(hint), bounds);
            }
            Action::EndStream(i) => {
                self.fault();
                let stream = &mut self.machine(i).stream;
                stream.open = false;
                stream.events.clear();
                self.milestones.push(Milestone::StreamEnded);
                self.input(i, LockInput::Hint(Hint::Lost), bounds);
            }
            Action::OpenStream(i) => {
                self.disturb();
                let stream = &mut self.machine(i).stream;
                stream.open = true;
                stream.events.push(Hint::Opened { since_join: false });
            }
            Action::ChangePrimary(i) => {
                self.fault();
                self.input(i, LockInput::PrimaryChanged, bounds);
            }
            Action::Kill(i) => {
                self.fault();
                self.machine(i).die();
            }
            Action::Start(i) => {
                self.disturb();
                self.starts_left -= 1;
                self.begin(i, bounds);
                self.forget_memory();
            }
            Action::Freeze(i) => {
                self.fault();
                self.machine(i).frozen = true;
            }
            Action::Thaw(i) => {
                self.disturb();
                self.machine(i).frozen = false;
            }
            Action::Finish(i) => {
                self.disturb();
                self.machine(i).works = false;
                let once = self.machines[i].seat.once;
                self.succeeded |= once;
                self.machine(i).monitor.succeeds(once);
                self.input(i, LockInput::Succeeded, bounds);
            }
            Action::GiveUp(i) => {
                self.disturb();
                self.give_ups_left -= 1;
                self.machine(i).works = false;
                if let Some(contender) = &self.machines[i].contender {
                    let (claim, standing) = (contender.claim(), contender.status().standing);
                    self.place_given_up(claim);
                    self.machine(i).monitor.gives_up(&standing);
                }
                self.input(i, LockInput::GiveUp, bounds);
            }
            other => unreachable!("{other:?} concerns a call or the store"),
        }
    }

    pub(super) fn machine(&mut self, index: usize) -> &mut Machine {
        Arc::make_mut(&mut self.machines[index])
    }

    pub(super) fn call(&self, index: usize, number: u64) -> Call {
        self.machines[index].calls.get(number).clone()
    }

    pub(super) fn place(&mut self, index: usize, number: u64, place: Place) {
        self.machine(index)
            .calls
            .change(number, |call| call.place = place);
    }

    pub(super) fn disturb(&mut self) {
        self.idle_ticks = 0;
    }

    fn fault(&mut self) {
        self.disturb();
        self.faults_left -= 1;
    }

    fn begin(&mut self, index: usize, bounds: &Bounds) {
        let (ticks, mut drawn) = (self.ticks, self.drawn);
        self.machine(index).start(ticks, &mut drawn);
        self.drawn = drawn;
        self.input(index, LockInput::Tick, bounds);
    }

    /// Clears the memory of all machines if no further process can start, so that more states are
    /// equal.
    fn forget_memory(&mut self) {
        if self.starts_left == 0 {
            for index in 0..self.machines.len() {
                self.machine(index).memory = Default::default();
            }
        }
    }

    fn tick(&mut self, bounds: &Bounds) {
        self.ticks += 1;
        self.idle_ticks = if self.is_idle() && !self.store.lags() {
            (self.idle_ticks + 1).min(bounds.idle_ticks_max + 1)
        } else {
            0
        };
    }

    /// Returns true if a contender waits, and no process with authority excludes the first waiting
    /// contender.
    fn is_idle(&self) -> bool {
        let waits = |machine: &&Arc<Machine>| {
            let standing = machine.contender.as_ref().map(|c| c.status().standing);
            let waits = matches!(standing, Some(Standing::Joining | Standing::Waiting { .. }));
            waits && machine.runs()
        };
        let waiting: Vec<_> = self.machines.iter().filter(waits).collect();
        let of = |claim| {
            let mut waiting = waiting.iter();
            waiting.find(|m| m.contender.as_ref().is_some_and(|c| c.claim() == claim))
        };
        let entries = lock_of(&self.store.committed).into_iter().flat_map(all);
        let mut queued = entries.filter_map(|entry| of(entry.claim));
        let Some(first) = queued.next().or(waiting.first()) else {
            return false;
        };
        let mut held = self.held();
        held.push(Held {
            mode: first.seat.mode,
            slot: None,
        });
        exclusion::check(&held).is_none()
    }

    fn forget_calls(&mut self) {
        let ticks = self.ticks;
        let old = |machine: &Arc<Machine>| machine.calls.iter().any(|call| !call.waiting);
        if !self.machines.iter().any(old) {
            return;
        }
        let storable = Live::storable(&self.store, self.machines.iter().map(AsRef::as_ref));
        for index in 0..self.machines.len() {
            let machine = self.machines[index].clone();
            let is_over = |call: &Call| machine.is_over(call, ticks, &storable);
            if machine.calls.iter().any(is_over) {
                self.machine(index).calls.forget(is_over);
            }
        }
    }

    fn settle_notes(&mut self) {
        for index in 0..self.machines.len() {
            let carried = |revision| self.machines.iter().any(|m| m.carries(revision));
            if let Some(settled) = self.machines[index].settled(&self.store, carried) {
                self.machine(index).monitor = settled;
            }
        }
    }

    /// Replicates the primary's writes to a majority, acknowledges the writes that waited for the
    /// majority, and sends events to the change streams.
    pub(super) fn replicate(&mut self, bounds: &Bounds) {
        if !self.store.lags() {
            return;
        }
        let remember = bounds.kinds.contains(&Kind::StaleReads) && self.faults_left > 0;
        let events = self.store.commit(remember);
        self.note_places();
        let recorded = lock_of(&self.store.committed).is_some_and(|it| !it.successes.is_empty());
        if recorded && !self.succeeded {
            self.broken = self.broken.or(Some("only successes are recorded"));
        }
        for index in 0..self.machines.len() {
            let machine = &self.machines[index];
            let stream = &machine.stream;
            let followed = |(claim, _): &&(_, Hint)| stream.open && stream.claim == Some(*claim);
            let news: Vec<_> = events.iter().filter(followed).map(|(_, h)| *h).collect();
            if !news.is_empty() || machine.calls.lag() {
                let machine = self.machine(index);
                machine.stream.events.extend(news);
                machine.calls.acknowledge();
            }
        }
    }

    fn roll_back(&mut self) {
        self.disturb();
        self.store.roll_back();
        self.milestones.push(Milestone::RollBack);
        for index in 0..self.machines.len() {
            if self.machines[index].calls.lag() {
                self.machine(index).calls.roll_back();
            }
        }
    }
}
