//! Candidates without a network. Each test decides which call is answered, when, and how.

use std::collections::VecDeque;
use std::time::Duration;

pub(super) use super::roles::*;
pub(super) use super::stored::*;
use crate::election::*;
pub(super) use crate::reference::election::free;

pub(super) struct Counter(u128);

impl Randomness for Counter {
    fn bits(&mut self) -> u128 {
        self.0 += 1;
        // The counter changes all bits, so that jitter and spread differ too.
        self.0
            .wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
    }
}

pub(super) const FILES_DEMOTED: Input = Input::Demoted {
    shown: true,
    label_pending: false,
};

pub(super) const FILES_STUCK: Input = Input::Demoted {
    shown: false,
    label_pending: false,
};

pub(super) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn at(seconds: u64) -> BootTime {
    BootTime::from_nanos(1_000_000_000_000) + Duration::from_secs(seconds)
}

pub(super) fn identity(name: &str) -> Identity {
    Identity::new(name).expect("legal")
}

pub(super) fn token(n: i64) -> Token {
    Token::new(n).expect("a number that is not negative")
}

#[derive(Clone)]
pub(super) struct Node {
    pub(super) election: Election,
    pub(super) identity: Identity,
    random: u128,
    pub(super) calls: VecDeque<(CallId, Operation)>,
    pub(super) sent: Vec<Operation>,
    pub(super) transitions: Vec<Transition>,
    pub(super) notices: Vec<Notice>,
    pub(super) remembered: Vec<(Option<Claim>, Token, Duration)>,
    pub(super) demotions_asked: usize,
    pub(super) streams_reopened: usize,
    pub(super) orders: Vec<Order>,
    pub(super) exited: bool,
}

/// Returns a candidate with an empty status directory. It does not supervise its workload and does
/// not register as the standby.
pub(super) fn candidate(name: &str) -> Candidate {
    Candidate {
        tunables: tunables(),
        stands_by: false,
        ..Candidate::new(identity(name))
    }
}

pub(super) fn tunables() -> Tunables {
    Tunables {
        handoff_delay: Duration::ZERO,
        ..Tunables::default()
    }
}

pub(super) fn start_with_token(name: &str, now: BootTime, token_remembered: Token) -> Node {
    let candidate = Candidate {
        token_remembered,
        ..candidate(name)
    };
    Node::begin(candidate, now)
}

pub(super) fn with_handoff(delay: Duration) -> Tunables {
    Tunables {
        handoff_delay: delay,
        ..tunables()
    }
}

pub(super) fn with_timings(settings: TimingSettings) -> Tunables {
    Tunables {
        timings: Timings::new(settings).expect("legal"),
        ..tunables()
    }
}

/// Returns timings with a declared lease duration of 100 s.
pub(super) fn with_long_lease() -> Tunables {
    with_timings(TimingSettings {
        lease_duration: seconds(100),
        ..TimingSettings::default()
    })
}

impl Node {
    pub(super) fn start(name: &str, now: BootTime) -> Self {
        Self::begin(candidate(name), now)
    }

    /// Starts a candidate at `now`, and answers its calls.
    pub(super) fn served(name: &str, now: BootTime, stored: &mut Stored) -> Self {
        let mut node = Self::start(name, now);
        node.serve(now, stored);
        node
    }

    /// Starts the next process that uses this candidate's status directory, in the same boot.
    pub(super) fn successor(&self, now: BootTime) -> Self {
        self.successor_with(now, tunables())
    }

    pub(super) fn successor_with(&self, now: BootTime, tunables: Tunables) -> Self {
        let (claim, token, lease_longest) = *self
            .remembered
            .last()
            .expect("the candidate has recorded its state");
        let candidate = Candidate {
            token_remembered: token,
            lease_longest_remembered: Some(lease_longest),
            predecessor_claim: claim,
            tunables,
            ..candidate(self.identity.as_str())
        };
        Self::begin(candidate, now)
    }

    pub(super) fn begin(candidate: Candidate, now: BootTime) -> Self {
        let identity = candidate.identity.clone();
        // Each candidate draws from a different range.
        let seed = identity
            .as_str()
            .bytes()
            .fold(7, |seed: u128, byte| seed * 257 + u128::from(byte))
            << 64;
        let mut random = Counter(seed);
        let election = Election::new(candidate, now, &mut random);
        let mut node = Self {
            election,
            identity,
            random: random.0,
            calls: VecDeque::new(),
            sent: Vec::new(),
            transitions: Vec::new(),
            notices: Vec::new(),
            remembered: Vec::new(),
            demotions_asked: 0,
            streams_reopened: 0,
            orders: Vec::new(),
            exited: false,
        };
        node.input(now, Input::Tick);
        node
    }

    /// Gives a clone of another node its own sequence of ids.
    pub(super) fn reseed(&mut self) {
        self.random += 1 << 48;
    }

    pub(super) fn input(&mut self, now: BootTime, input: Input) {
        let mut random = Counter(self.random);
        self.election.handle(now, input, &mut random);
        self.random = random.0;
        while let Some(effect) = self.election.next_effect() {
            match effect {
                Effect::Call { id, operation } => {
                    self.sent.push(operation.clone());
                    self.calls.push_back((id, operation));
                }
                Effect::Demote => self.demotions_asked += 1,
                Effect::ReopenStream => self.streams_reopened += 1,
                Effect::Workload(order) => self.orders.push(order),
                Effect::Remember {
                    claim,
                    token,
                    lease_longest,
                } => self.remembered.push((claim, token, lease_longest)),
                Effect::Transition(transition) => self.transitions.push(transition),
                Effect::Notice(notice) => self.notices.push(notice),
                Effect::Exit => self.exited = true,
            }
        }
    }

    pub(super) fn tick(&mut self, now: BootTime) {
        self.input(now, Input::Tick);
    }

    pub(super) fn reply(&mut self, now: BootTime, call: CallId, outcome: Outcome) {
        self.input(now, Input::Reply { call, outcome });
    }

    pub(super) fn take_call(&mut self) -> (CallId, Operation) {
        self.calls.pop_front().expect("a call was sent")
    }

    /// Applies the oldest unanswered call to the store, without delivering the reply.
    pub(super) fn perform(&mut self, stored: &mut Stored) -> (CallId, Outcome) {
        let (call, operation) = self.take_call();
        (call, stored.apply(&self.identity, &operation))
    }

    pub(super) fn answer(&mut self, now: BootTime, stored: &mut Stored) -> Operation {
        let (call, operation) = self.take_call();
        let outcome = stored.apply(&self.identity, &operation);
        self.reply(now, call, outcome);
        operation
    }

    pub(super) fn answer_with(&mut self, now: BootTime, outcome: Outcome) -> Operation {
        let (call, operation) = self.take_call();
        self.reply(now, call, outcome);
        operation
    }

    /// Applies the oldest unanswered call to the store. The candidate gets no reply.
    pub(super) fn lose_reply(&mut self, now: BootTime, stored: &mut Stored) -> Operation {
        let (call, operation) = self.take_call();
        stored.apply(&self.identity, &operation);
        self.reply(now, call, Outcome::Unknown);
        operation
    }

    /// Passes an input that ends leadership. The files are demoted immediately.
    pub(super) fn demote(&mut self, now: BootTime, input: Input) {
        self.input(now, input);
        self.input(now, FILES_DEMOTED);
    }

    /// Reports that all files are demoted, and answers the next calls.
    pub(super) fn demoted(&mut self, now: BootTime, stored: &mut Stored) {
        self.input(now, FILES_DEMOTED);
        self.serve(now, stored);
    }

    /// Passes an input that ends leadership, and answers calls up to the release.
    pub(super) fn release(&mut self, now: BootTime, input: Input, stored: &mut Stored) {
        self.input(now, input);
        self.demoted(now, stored);
    }

    pub(super) fn wake(&mut self) -> BootTime {
        let due = self
            .election
            .next_wakeup()
            .expect("the candidate waits for an instant");
        self.tick(due);
        due
    }

    /// Answers all open and all following calls immediately, from the store.
    pub(super) fn serve(&mut self, now: BootTime, stored: &mut Stored) {
        for _ in 0..32 {
            if self.calls.is_empty() {
                return;
            }
            self.answer(now, stored);
        }
        panic!("{} never stops calling: {:?}", self.identity, self.sent);
    }

    /// Answers reads until the oldest open call is not a read.
    pub(super) fn serve_reads(&mut self, now: BootTime, stored: &mut Stored) {
        while self.waiting().first() == Some(&"read") {
            self.answer(now, stored);
        }
    }

    /// Answers calls until the oldest open call is `operation`.
    pub(super) fn serve_up_to(&mut self, operation: &str, now: BootTime, stored: &mut Stored) {
        while self.waiting().first() != Some(&operation) {
            self.answer(now, stored);
        }
    }

    /// Runs all wakeups up to `until`, with a store that answers immediately.
    pub(super) fn run(&mut self, until: BootTime, stored: &mut Stored) {
        self.serve(self.now(), stored);
        for _ in 0..100_000 {
            match self.election.next_wakeup() {
                Some(at) if at <= until => {
                    self.tick(at);
                    self.serve(at, stored);
                }
                Some(_) | None => return,
            }
        }
        panic!("{} never stops calling", self.identity);
    }

    /// Runs all wakeups up to `until`, with `outcome` as the answer to every call.
    pub(super) fn run_cut_off(&mut self, until: BootTime, outcome: &Outcome) {
        for _ in 0..100_000 {
            while !self.calls.is_empty() {
                self.answer_with(self.now(), outcome.clone());
            }
            match self.election.next_wakeup() {
                Some(at) if at <= until => self.tick(at),
                Some(_) | None => return,
            }
        }
        panic!("{} never stops calling", self.identity);
    }

    /// Runs all wakeups up to `due`. Asserts that the `nth` call of the operation is sent at `due`.
    #[track_caller]
    pub(super) fn sends_nth(
        &mut self,
        nth: usize,
        operation: &str,
        due: BootTime,
        stored: &mut Stored,
    ) {
        self.run(due - millis(1), stored);
        assert_eq!(self.count(operation), nth - 1, "early: {:?}", self.sent);
        self.run(due, stored);
        assert_eq!(self.count(operation), nth, "late: {:?}", self.sent);
    }

    pub(super) fn open_stream(&mut self, now: BootTime, stored: &mut Stored) {
        self.input(now, Input::Watch(Watch::Opened));
        self.serve(now, stored);
    }

    pub(super) fn event(&mut self, now: BootTime, stored: &Stored) {
        self.input(now, Input::Watch(Watch::Changed(stored.lease().clone())));
    }

    /// Passes an event with the stored lease, and answers the calls that follow.
    pub(super) fn observe(&mut self, now: BootTime, stored: &mut Stored) {
        self.event(now, stored);
        self.serve(now, stored);
    }

    /// Passes an event without the document, and answers the read that follows.
    pub(super) fn reread(&mut self, now: BootTime, stored: &mut Stored) {
        self.input(now, Input::Watch(Watch::Unclear));
        self.serve(now, stored);
    }

    #[track_caller]
    pub(super) fn assert_role(&self, role: Role, reason: Reason) {
        assert_eq!((self.role(), self.reason()), (role, Some(reason)));
    }

    pub(super) fn now(&self) -> BootTime {
        self.election.now
    }

    pub(super) fn role(&self) -> Role {
        self.election.status().role
    }

    pub(super) fn leads(&self, now: BootTime) -> bool {
        self.election.status().leads_at(now)
    }

    pub(super) fn reason(&self) -> Option<Reason> {
        self.election.status().reason
    }

    pub(super) fn valid_until(&self) -> BootTime {
        let authority = self.election.status().authority;
        authority.expect("the candidate leads").valid_until
    }

    pub(super) fn token(&self) -> Token {
        self.election
            .status()
            .authority
            .expect("the candidate leads")
            .token
    }

    pub(super) fn times_leader(&self) -> usize {
        let led = self.transitions.iter().filter(|t| t.to == Role::Leader);
        led.count()
    }

    pub(super) fn count(&self, operation: &str) -> usize {
        self.sent.iter().filter(|o| o.as_str() == operation).count()
    }

    pub(super) fn sent_after(&self, skipped: usize) -> Vec<&'static str> {
        self.sent[skipped..].iter().map(Operation::as_str).collect()
    }

    pub(super) fn waiting(&self) -> Vec<&'static str> {
        let names = self.calls.iter().map(|(_, operation)| operation.as_str());
        names.collect()
    }
}
