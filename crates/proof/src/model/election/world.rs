mod replication;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::election::{
    Effect, Found, Identity, Input, Lease, Notice, Operation, Outcome, Reason, Request,
    RequestKind, Reservation, Role, Token, Watch,
};
use crate::proof::model::canonical::Canonical;
use crate::proof::model::election::action::Action;
use crate::proof::model::election::bounds::{Bounds, RESERVATION, tunables};
use crate::proof::model::election::machine::{Call, Machine, Place, RecoveredState, draw};
use crate::proof::model::election::monitor::{Broken, Milestone, Moment, Sender};
use crate::proof::model::election::store::Store;
use crate::reference::election as reference;

#[derive(Debug, Clone)]
pub(crate) struct World {
    /// The canonical form omits the ticks, because it contains only times relative to now.
    pub(crate) ticks: u64,
    /// Number of random draws and call numbers so far. The canonical form omits it.
    pub(crate) drawn: u64,
    /// States share a machine until a step changes it.
    pub(crate) machines: Vec<Arc<Machine>>,
    pub(crate) store: Store,
    pub(crate) faults_left: u8,
    pub(crate) requests_left: u8,
    /// Consecutive undisturbed ticks in which no candidate led, or in which a candidate led
    /// although the lease was paused.
    pub(crate) quiet_ticks: u8,
    pub(crate) token_led: Token,
    pub(crate) broken: Option<Broken>,
    pub(crate) milestone: Option<Milestone>,
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
            requests_left,
            quiet_ticks,
            token_led,
            broken,
            milestone,
        } = self;
        let mut canonical = Canonical::new(state);
        canonical.put(store);
        for machine in machines {
            machine.canonicalise(*ticks, &mut canonical);
        }
        canonical.put(&(*faults_left, *requests_left, *quiet_ticks, *token_led));
        canonical.put(&(*broken, *milestone));
    }
}

impl World {
    pub(crate) fn start(bounds: &Bounds) -> Self {
        let names = ["a", "b", "c"];
        let mut world = Self {
            ticks: 0,
            drawn: 0,
            machines: names
                .into_iter()
                .zip(&bounds.candidates)
                .zip(0..)
                .map(|((name, pace), rank)| {
                    let identity = Identity::new(name).expect("a legal name");
                    let priority = bounds.prefer.then_some(rank);
                    Arc::new(Machine::new(identity, *pace, bounds, priority))
                })
                .collect(),
            store: Store::default(),
            faults_left: bounds.faults,
            requests_left: bounds.requests,
            quiet_ticks: 0,
            token_led: Token::ZERO,
            broken: None,
            milestone: None,
        };
        for candidate in 0..world.machines.len() {
            world.begin(candidate, false, bounds);
        }
        world.milestone = None;
        world
    }

    pub(crate) fn canonical(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// Returns true if time can pass, because no step must happen first.
    pub(crate) fn settled(&self) -> bool {
        self.machines.iter().all(|machine| {
            let now = machine.clock(self.ticks);
            !machine.due(self.ticks)
                && !machine.calls.are_prompt(machine.frozen, |sent| sent < now)
                && (machine.frozen || machine.events.is_empty())
        })
    }

    /// Returns the state after `action`, or `None` if the action is not possible.
    pub(crate) fn after(&self, action: Action, bounds: &Bounds) -> Option<Self> {
        let mut next = self.clone();
        next.milestone = None;
        match action {
            Action::Tick => next.tick(bounds),
            Action::Wake(i) => next.input(i, Input::Tick),
            Action::Serve(i, n) => {
                let outcome = next.land(i, n);
                next.replicate(bounds);
                next.arrive(i, n, outcome);
                return Some(next);
            }
            Action::Event(i) => {
                let event = next.machine(i).events.remove(0);
                next.event(i, event);
            }
            Action::Delay(i, n) => {
                next.fault();
                next.place(i, n, Place::Delayed);
            }
            Action::DelayAnswer(i, n) => {
                next.fault();
                let outcome = next.land(i, n);
                next.replicate(bounds);
                next.place(i, n, Place::Answered(outcome));
            }
            Action::Duplicate(i, n) => {
                next.fault();
                next.drawn += 1;
                let copy = next.drawn;
                next.machine(i).calls.duplicate(n, copy);
                let outcome = next.land(i, n);
                next.replicate(bounds);
                next.arrive(i, n, outcome);
            }
            Action::Lag(i, n) => {
                next.fault();
                let announced = next.machines[i].announces(&next.call(i, n).operation);
                let outcome = next.land(i, n);
                if announced {
                    next.arrive(i, n, outcome);
                } else {
                    next.place(i, n, Place::Lagging(outcome));
                }
            }
            Action::Depose(i, n) => {
                next.fault();
                next.arrive(i, n, Outcome::PrimaryOnly);
            }
            Action::ReadStale(i, n) => {
                next.fault();
                let outcome = Outcome::Applied(reference::found(next.store.previous.as_ref()));
                next.arrive(i, n, outcome);
            }
            Action::Refuse(i, n) => {
                next.fault();
                next.arrive(i, n, Outcome::Failed);
            }
            Action::Land(i, n) => {
                next.disturb();
                let outcome = next.land(i, n);
                next.replicate(bounds);
                next.place(i, n, Place::Answered(outcome));
            }
            Action::Answer(i, n) => {
                next.disturb();
                let Place::Answered(outcome) = next.call(i, n).place else {
                    return None;
                };
                next.arrive(i, n, outcome);
            }
            Action::GiveUp(i, n) => next.give_up(i, n),
            Action::Commit => {
                next.disturb();
                next.replicate(bounds);
            }
            Action::RollBack => next.roll_back(),
            Action::DelayEvent(i) => {
                next.fault();
                let machine = next.machine(i);
                let event = machine.events.remove(0);
                machine.late_events.push(event);
            }
            Action::LateEvent(i) => {
                next.disturb();
                let event = next.machine(i).late_events.remove(0);
                next.event(i, event);
            }
            Action::Crash(i) => {
                next.fault();
                next.machine(i).die();
            }
            Action::Restart {
                candidate,
                remembers,
            } => {
                next.disturb();
                next.begin(candidate, remembers, bounds);
            }
            Action::Freeze(i) => {
                next.fault();
                next.machine(i).frozen = true;
            }
            Action::Thaw(i) => {
                next.disturb();
                next.machine(i).frozen = false;
            }
            Action::StepDown(i) => next.signal(i, Input::StepDown),
            Action::Shutdown(i) => next.signal(i, Input::Shutdown),
            Action::Pause => {
                next.requests_left -= 1;
                next.edit(bounds, |lease| lease.paused = true);
            }
            Action::Resume => next.edit(bounds, |lease| lease.paused = false),
            Action::Transfer(to) => {
                next.requests_left -= 1;
                let identity = next.machines[to].identity.clone();
                next.edit(bounds, |lease| {
                    lease.request = Some(transfer(lease.token, identity));
                });
            }
            Action::Delete => {
                next.fault();
                (next.store.primary, next.store.committed) = (None, None);
            }
        }
        next.settle_notes();
        Some(next)
    }

    fn machine(&mut self, candidate: usize) -> &mut Machine {
        Arc::make_mut(&mut self.machines[candidate])
    }

    fn call(&self, candidate: usize, number: u64) -> Call {
        self.machines[candidate].calls.get(number).clone()
    }

    fn place(&mut self, candidate: usize, number: u64, place: Place) {
        self.change_call(candidate, number, |call| call.place = place);
    }

    fn change_call(&mut self, candidate: usize, number: u64, change: impl FnOnce(&mut Call)) {
        self.machine(candidate).calls.change(number, change);
    }

    fn disturb(&mut self) {
        self.quiet_ticks = 0;
    }

    fn fault(&mut self) {
        self.disturb();
        self.faults_left -= 1;
    }

    fn signal(&mut self, candidate: usize, input: Input) {
        self.disturb();
        self.requests_left -= 1;
        self.input(candidate, input);
    }

    fn edit(&mut self, bounds: &Bounds, change: impl FnOnce(&mut Lease)) {
        self.disturb();
        self.store.edit(change);
        self.replicate(bounds);
    }

    fn begin(&mut self, candidate: usize, remembers: bool, bounds: &Bounds) {
        let (ticks, mut drawn) = (self.ticks, self.drawn);
        self.machine(candidate).start(remembers, ticks, &mut drawn);
        self.drawn = drawn;
        if bounds.streams {
            self.input(candidate, Input::Watch(Watch::Opened));
        } else {
            self.input(candidate, Input::Tick);
        }
    }

    fn tick(&mut self, bounds: &Bounds) {
        self.ticks += 1;
        let leads = self.machines.iter().any(|m| m.leads(self.ticks));
        let healthy = self.machines.iter().any(|m| m.runs());
        let as_must_be = leads != self.store.is_paused();
        self.quiet_ticks = if as_must_be || !healthy || self.store.lags() {
            0
        } else {
            (self.quiet_ticks + 1).min(bounds.quiet_ticks_max + 1)
        };
    }

    /// Delivers an answer, unless the process that sent the call has exited. A frozen process
    /// receives the answer after it thaws.
    fn arrive(&mut self, candidate: usize, number: u64, outcome: Outcome) {
        if self.machines[candidate].frozen {
            self.place(candidate, number, Place::Answered(outcome));
            self.settle_notes();
            return;
        }
        let ticks = self.ticks;
        let store = self.store.clone();
        let machine = self.machine(candidate);
        let led = machine.leads(ticks);
        let now = machine.clock(ticks);
        let call = machine.calls.take(number);
        if let Some(id) = call.id {
            let until = call.sent + tunables(machine.pace, false).timings.renew_deadline();
            let at = Moment { now, store: &store };
            machine
                .monitor
                .answered(&call.operation, until, &outcome, at);
            let before = machine.election.as_ref().map(|e| e.status().authority);
            if outcome == Outcome::PrimaryOnly {
                self.announce(candidate, &call.operation);
            }
            self.input(candidate, Input::Reply { call: id, outcome });
            let is_loss = self.milestone == Some(Milestone::StoreRolledBack);
            if is_loss && matches!(call.operation, Operation::Create { .. }) {
                self.milestone = Some(Milestone::CreatedLate);
            }
            let after = &self.machines[candidate].election;
            let after = after.as_ref().map(|e| e.status().authority);
            if matches!(call.operation, Operation::Renew { .. }) {
                let leads = self.machines[candidate].leads(ticks);
                if leads && !led {
                    self.milestone = Some(Milestone::Adoption);
                } else if leads && !call.waiting && before != after {
                    self.milestone = Some(Milestone::LateExtension);
                }
            }
        }
        self.settle_notes();
    }

    fn give_up(&mut self, candidate: usize, number: u64) {
        self.disturb();
        let id = self.call(candidate, number).id;
        self.change_call(candidate, number, |call| call.waiting = false);
        if let Some(id) = id {
            let outcome = Outcome::Unknown;
            self.input(candidate, Input::Reply { call: id, outcome });
        }
    }

    fn event(&mut self, candidate: usize, event: Watch) {
        if let Watch::Changed(lease) = &event {
            let store = self.store.clone();
            let ticks = self.ticks;
            let machine = self.machine(candidate);
            let now = machine.clock(ticks);
            let at = Moment { now, store: &store };
            machine.monitor.saw(&Found::Lease(lease.clone()), at);
        }
        self.input(candidate, Input::Watch(event));
    }

    /// Passes an input to the candidate, and carries out the effects that the candidate requests.
    fn input(&mut self, candidate: usize, input: Input) {
        let (ticks, mut drawn, mut token_led) = (self.ticks, self.drawn, self.token_led);
        let store = self.store.clone();
        let machine = Arc::make_mut(&mut self.machines[candidate]);
        let now = machine.clock(ticks);
        let Some(mut election) = machine.election.take() else {
            return;
        };
        let mut inputs = vec![input];
        let mut exited = false;
        while let Some(input) = inputs.pop() {
            election.handle(now, input, &mut draw(&mut drawn));
            while let Some(effect) = election.next_effect() {
                match effect {
                    Effect::Call { id, operation } => {
                        let at = Moment { now, store: &store };
                        let sender = Sender {
                            identity: &machine.identity,
                            session: election.status().session,
                            proven_dead: machine.proven_dead,
                        };
                        let broken = machine.monitor.sends(&operation, sender, at);
                        self.broken = self.broken.or(broken);
                        if machine.monitor.acquires_unread(&operation, at) {
                            self.milestone = Some(Milestone::AcquiredUnread);
                        }
                        machine.announce(&operation);
                        drawn += 1;
                        machine.calls.send(id, operation, now, drawn);
                    }
                    // The model delays events but never loses them, so a stream can reopen without
                    // a gap.
                    Effect::ReopenStream => inputs.push(Input::Watch(Watch::Opened)),
                    Effect::Demote => inputs.push(Input::Demoted {
                        shown: true,
                        label_pending: false,
                    }),
                    Effect::Workload(order) => unreachable!("nobody supervises: {order:?}"),
                    Effect::Remember {
                        claim,
                        token,
                        lease_longest,
                    } => {
                        machine.directory = RecoveredState {
                            claim,
                            token,
                            lease_longest: Some(lease_longest),
                        };
                    }
                    Effect::Transition(transition) => {
                        self.milestone = match (transition.to, transition.reason) {
                            // These milestones are rare, so a transition later in this step does
                            // not replace them.
                            _ if matches!(
                                self.milestone,
                                Some(Milestone::Succession | Milestone::Transferred)
                            ) =>
                            {
                                self.milestone
                            }
                            (Role::Leader, Some(Reason::TookOver)) => Some(Milestone::TakeOver),
                            (Role::Leader, Some(Reason::Acquired)) if token_led > Token::ZERO => {
                                Some(Milestone::HandOver)
                            }
                            (_, Some(Reason::Deadline)) => Some(Milestone::DeadlinePassed),
                            (_, Some(Reason::Rejected)) => Some(Milestone::RenewalRejected),
                            (_, Some(Reason::Paused)) => Some(Milestone::Paused),
                            _ => self.milestone,
                        };
                    }
                    Effect::Notice(Notice::Succeeded { .. }) => {
                        self.milestone = Some(Milestone::Succession);
                    }
                    Effect::Notice(Notice::StoreRolledBack { .. }) => {
                        self.milestone = Some(Milestone::StoreRolledBack);
                    }
                    Effect::Notice(_) => {}
                    Effect::Exit => exited = true,
                }
            }
        }
        let authority = election.status().authority;
        let authority = authority.map(|a| (a.token, a.valid_until));
        let broken = machine.monitor.leads(authority, &mut token_led);
        machine.election = Some(election);
        if exited {
            machine.die();
        }
        self.broken = self.broken.or(broken);
        (self.drawn, self.token_led) = (drawn, token_led);
    }

    fn settle_notes(&mut self) {
        for index in 0..self.machines.len() {
            let store = &self.store;
            if self.machines[index].monitor.is_stale(store) {
                Arc::make_mut(&mut self.machines[index])
                    .monitor
                    .forget(store);
            }
        }
    }
}

fn transfer(token: Token, identity: Identity) -> Request {
    let duration = RESERVATION;
    Request {
        kind: RequestKind::Transfer(Reservation { identity, duration }),
        token,
    }
}
