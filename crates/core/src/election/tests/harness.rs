//! Candidates without a network: each test decides which call is answered, when, and how.

use std::collections::VecDeque;
use std::time::Duration;

pub(super) use crate::election::reference::free;
use crate::election::*;

/// A random source that counts.
pub(super) struct Counter(u128);

impl Randomness for Counter {
    fn bits(&mut self) -> u128 {
        self.0 += 1;
        // Spread over all bits, so that jitter and spread differ too.
        self.0
            .wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
    }
}

pub(super) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns the boot time `seconds` after the start of a test.
pub(super) fn at(seconds: u64) -> BootTime {
    BootTime::from_nanos(1_000_000_000_000) + Duration::from_secs(seconds)
}

pub(super) fn identity(name: &str) -> Identity {
    Identity::new(name).expect("legal")
}

pub(super) fn token(n: i64) -> Token {
    Token::new(n).expect("not negative")
}

/// The document and its history.
#[derive(Debug, Clone, Default)]
pub(super) struct Stored {
    pub(super) document: Option<Lease>,
    pub(super) history: Vec<HistoryEntry>,
}

impl Stored {
    pub(super) fn lease(&self) -> &Lease {
        self.document.as_ref().expect("a document")
    }

    pub(super) fn lease_mut(&mut self) -> &mut Lease {
        self.document.as_mut().expect("a document")
    }

    pub(super) fn apply(&mut self, by: &Identity, operation: &Operation) -> Outcome {
        if let Operation::Read { .. } = operation {
            return Outcome::Applied(reference::found(self.document.as_ref()));
        }
        let matched = reference::write(&mut self.document, by, WallMillis(0), operation);
        self.history
            .extend(reference::ends(operation).filter(|_| matched).cloned());
        reference::outcome(matched, self.document.as_ref())
    }
}

/// One candidate and the effects that it emitted.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) election: Election,
    pub(super) identity: Identity,
    random: u128,
    /// Calls that were sent and not answered yet.
    pub(super) calls: VecDeque<(CallId, Operation)>,
    /// All operations that were ever sent.
    pub(super) sent: Vec<Operation>,
    pub(super) transitions: Vec<Transition>,
    pub(super) notices: Vec<Notice>,
    pub(super) remembered: Vec<(Option<Claim>, Token, Duration)>,
    pub(super) demotions_asked: usize,
    pub(super) streams_reopened: usize,
    pub(super) orders: Vec<Order>,
    pub(super) exited: bool,
}

/// Returns the default timings without a handoff delay.
pub(super) fn tunables() -> Tunables {
    Tunables {
        timings: Timings::default(),
        handoff_delay: Duration::ZERO,
        workload_ends_first: false,
    }
}

impl Node {
    /// Starts a candidate at `now`, which sends its first read.
    pub(super) fn start(name: &str, now: BootTime) -> Self {
        Self::start_with(name, now, tunables(), Token::ZERO, None)
    }

    pub(super) fn start_with(
        name: &str,
        now: BootTime,
        tunables: Tunables,
        token_remembered: Token,
        predecessor_claim: Option<Claim>,
    ) -> Self {
        let candidate = Candidate {
            identity: identity(name),
            tunables,
            token_remembered,
            lease_longest_remembered: None,
            supervises: false,
            predecessor_claim,
        };
        Self::begin(candidate, now)
    }

    /// Starts the next process on the status directory of this one, in the same boot.
    pub(super) fn successor(&self, now: BootTime) -> Self {
        let (claim, token, lease_longest) = *self.remembered.last().expect("it remembers");
        let candidate = Candidate {
            identity: self.identity.clone(),
            tunables: tunables(),
            token_remembered: token,
            lease_longest_remembered: Some(lease_longest),
            supervises: false,
            predecessor_claim: claim,
        };
        Self::begin(candidate, now)
    }

    /// Starts a candidate that supervises its workload.
    pub(super) fn supervising(name: &str, now: BootTime) -> Self {
        let candidate = Candidate {
            identity: identity(name),
            tunables: tunables(),
            token_remembered: Token::ZERO,
            lease_longest_remembered: None,
            supervises: true,
            predecessor_claim: None,
        };
        Self::begin(candidate, now)
    }

    fn begin(candidate: Candidate, now: BootTime) -> Self {
        let identity = candidate.identity.clone();
        // Each candidate draws from its own range.
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

    /// Makes this node draw other ids than the node that it was cloned from.
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

    /// Removes the oldest unanswered call and returns it.
    pub(super) fn take_call(&mut self) -> (CallId, Operation) {
        self.calls.pop_front().expect("a call was sent")
    }

    /// Answers all open and all following calls immediately, from the store.
    pub(super) fn serve(&mut self, now: BootTime, stored: &mut Stored) {
        for _ in 0..32 {
            let Some((id, operation)) = self.calls.pop_front() else {
                return;
            };
            let outcome = stored.apply(&self.identity, &operation);
            self.reply(now, id, outcome);
        }
        panic!("{} does not come to rest: {:?}", self.identity, self.sent);
    }

    /// Answers reads until the oldest open call is not a read.
    pub(super) fn serve_reads(&mut self, now: BootTime, stored: &mut Stored) {
        while let Some((id, operation @ Operation::Read { .. })) = self.calls.front().cloned() {
            self.calls.pop_front();
            let outcome = stored.apply(&self.identity, &operation);
            self.reply(now, id, outcome);
        }
    }

    /// Advances time to `until`, with a store that answers immediately.
    pub(super) fn run(&mut self, until: BootTime, stored: &mut Stored) {
        self.serve(self.election.status_time(), stored);
        for _ in 0..100_000 {
            match self.election.next_wakeup() {
                Some(at) if at <= until => {
                    self.tick(at);
                    self.serve(at, stored);
                }
                Some(_) | None => return,
            }
        }
        panic!("{} does not come to rest", self.identity);
    }

    /// Advances time to `until`, with `outcome` as the answer to every call.
    pub(super) fn run_cut_off(&mut self, until: BootTime, outcome: &Outcome) {
        for _ in 0..100_000 {
            while let Some((id, _)) = self.calls.pop_front() {
                let now = self.election.status_time();
                self.reply(now, id, outcome.clone());
            }
            match self.election.next_wakeup() {
                Some(at) if at <= until => self.tick(at),
                Some(_) | None => return,
            }
        }
        panic!("{} does not come to rest", self.identity);
    }

    /// Opens the change stream, so that the candidate does not poll.
    pub(super) fn open_stream(&mut self, now: BootTime, stored: &mut Stored) {
        self.input(now, Input::Watch(Watch::Opened));
        self.serve(now, stored);
    }

    pub(super) fn event(&mut self, now: BootTime, stored: &Stored) {
        self.input(now, Input::Watch(Watch::Changed(stored.lease().clone())));
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
        self.election
            .status()
            .authority
            .expect("it leads")
            .valid_until
    }

    pub(super) fn token(&self) -> Token {
        self.election.status().authority.expect("it leads").token
    }

    pub(super) fn count(&self, operation: &str) -> usize {
        self.sent.iter().filter(|o| o.as_str() == operation).count()
    }

    pub(super) fn waiting(&self) -> Vec<&'static str> {
        self.calls
            .iter()
            .map(|(_, operation)| operation.as_str())
            .collect()
    }
}

/// Returns a leader that acquired at `now`, with its stream open, and the store.
pub(super) fn leader(name: &str, now: BootTime) -> (Node, Stored) {
    leader_with(name, now, tunables())
}

pub(super) fn leader_with(name: &str, now: BootTime, tunables: Tunables) -> (Node, Stored) {
    let mut stored = Stored::default();
    let mut node = Node::start_with(name, now, tunables, Token::ZERO, None);
    node.serve(now, &mut stored);
    node.open_stream(now, &mut stored);
    assert_eq!(node.role(), Role::Leader, "{:?}", node.sent);
    (node, stored)
}

/// Returns a follower of the stored lease, with its stream open.
pub(super) fn follower(name: &str, now: BootTime, stored: &mut Stored) -> Node {
    let mut node = Node::start(name, now);
    node.serve(now, stored);
    node.open_stream(now, stored);
    assert_eq!(node.role(), Role::Follower, "{:?}", node.sent);
    node
}

impl Election {
    /// Returns the instant of the last input.
    pub(super) fn status_time(&self) -> BootTime {
        self.now
    }
}
