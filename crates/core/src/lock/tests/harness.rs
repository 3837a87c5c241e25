//! Contenders around one document, without a network. The test decides when a call is performed,
//! and may answer a call itself.

use std::collections::VecDeque;
use std::time::Duration;

use crate::election::{BootTime, CallId, Identity, Randomness, Timings, Token, WallMillis};
use crate::lock::{
    End, FoundLock, Hint, LockContender, LockDocument, LockEffect, LockInput, LockMode, LockNotice,
    LockOperation, LockOutcome, MinHold, Observations, Options, Slots, Standing,
};
use crate::reference::lock::{self as reference, By};

struct Counter(u128);

impl Randomness for Counter {
    fn bits(&mut self) -> u128 {
        self.0 += 1;
        // The low bits differ too, because jitter is computed from them.
        self.0 << 80 | self.0
    }
}

pub(super) struct One {
    pub(super) contender: LockContender,
    identity: Identity,
    pub(super) pending: VecDeque<(CallId, LockOperation)>,
    /// All effects other than calls.
    pub(super) asked: Vec<LockEffect>,
    pub(super) sent: Vec<&'static str>,
}

pub(super) struct Fixture {
    pub(super) stored: FoundLock,
    pub(super) now: BootTime,
    pub(super) ones: Vec<One>,
    /// True if streams report grants and the head of the queue immediately.
    pub(super) streams: bool,
    random: Counter,
}

pub(super) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn slots(number: u32) -> LockMode {
    LockMode::Slot(Slots::new(number).expect("legal"))
}

pub(super) fn options(name: &str, mode: LockMode) -> Options {
    Options {
        identity: Identity::new(name).expect("legal"),
        mode,
        timings: Timings::default(),
        non_blocking: false,
        min_hold: MinHold::NONE,
        once_per: None,
        watch_first: false,
        token_remembered: Token::ZERO,
        went_back: None,
        observations: Observations::default(),
    }
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self {
            stored: FoundLock::Missing,
            now: BootTime::from_nanos(1_000_000_000_000),
            ones: Vec::new(),
            streams: true,
            random: Counter(0),
        }
    }

    pub(super) fn empty() -> Self {
        Self {
            stored: FoundLock::Lock(LockDocument::default()),
            ..Self::new()
        }
    }

    /// Creates a lock that these contenders have joined one after another.
    pub(super) fn of<const N: usize>(names: [&str; N], mode: LockMode) -> (Self, [usize; N]) {
        let mut fixture = Self::empty();
        let ones = names.map(|name| fixture.come(name, mode));
        (fixture, ones)
    }

    pub(super) fn exclusive<const N: usize>(names: [&str; N]) -> (Self, [usize; N]) {
        Self::of(names, LockMode::Exclusive)
    }

    /// Creates an empty lock and a contender whose join is not performed yet.
    pub(super) fn entering(name: &str) -> (Self, usize) {
        let mut fixture = Self::empty();
        let one = fixture.enter(options(name, LockMode::Exclusive));
        (fixture, one)
    }

    /// Adds a contender whose first call is not performed yet.
    pub(super) fn enter(&mut self, options: Options) -> usize {
        let identity = options.identity.clone();
        let contender = LockContender::new(options, self.now, &mut self.random);
        self.ones.push(One {
            contender,
            identity,
            pending: VecDeque::new(),
            asked: Vec::new(),
            sent: Vec::new(),
        });
        let one = self.ones.len() - 1;
        self.input(one, LockInput::Tick);
        one
    }

    pub(super) fn come(&mut self, name: &str, mode: LockMode) -> usize {
        self.come_with(options(name, mode))
    }

    pub(super) fn come_with(&mut self, options: Options) -> usize {
        let one = self.enter(options);
        self.settle();
        one
    }

    pub(super) fn release(&mut self, one: usize) {
        self.input(one, LockInput::Release);
        self.settle();
    }

    pub(super) fn open_stream(&mut self, one: usize) {
        let since_join = false;
        self.input(one, LockInput::Hint(Hint::Opened { since_join }));
        self.settle();
    }

    /// Lets time pass and wakes one contender, without performing a call.
    pub(super) fn tick_after(&mut self, one: usize, passed: Duration) {
        self.now = self.now + passed;
        self.input(one, LockInput::Tick);
    }

    pub(super) fn wake(&mut self, one: usize) {
        self.now = self.ones[one]
            .contender
            .next_wakeup()
            .expect("the contender waits for an instant");
        self.input(one, LockInput::Tick);
    }

    pub(super) fn input(&mut self, one: usize, input: LockInput) {
        let One {
            contender,
            pending,
            asked,
            sent,
            ..
        } = &mut self.ones[one];
        contender.handle(self.now, input, &mut self.random);
        while let Some(effect) = contender.next_effect() {
            match effect {
                LockEffect::Call { id, operation } => {
                    sent.push(operation.as_str());
                    pending.push_back((id, operation));
                }
                other => asked.push(other),
            }
        }
    }

    pub(super) fn take(&mut self, one: usize) -> (CallId, LockOperation) {
        self.ones[one].pending.pop_front().expect("a call")
    }

    pub(super) fn store_now(&self) -> WallMillis {
        let millis = self.now.as_nanos() / 1_000_000;
        WallMillis(i64::try_from(millis).expect("small"))
    }

    pub(super) fn land(&mut self, one: usize, operation: &LockOperation) -> LockOutcome {
        let identity = self.ones[one].identity.clone();
        let by = By {
            identity: &identity,
            at: WallMillis(0),
            store_now: self.store_now(),
        };
        let next = |found: &FoundLock| match found {
            FoundLock::Lock(lock) => reference::next(lock),
            FoundLock::Missing | FoundLock::Foreign(_) => None,
        };
        let before = next(&self.stored);
        let performed = reference::apply(&mut self.stored, by, operation);
        let after = next(&self.stored).filter(|claim| Some(*claim) != before);
        if self.streams {
            for one in 0..self.ones.len() {
                let claim = self.ones[one].contender.status().claim;
                let mut granted = performed.granted.iter();
                if let Some((_, grant)) = granted.find(|(granted, _)| *granted == claim) {
                    self.input(one, LockInput::Hint(Hint::Granted(*grant)));
                }
                if after == Some(claim) {
                    self.input(one, LockInput::Hint(Hint::Next));
                }
            }
        }
        performed.outcome
    }

    pub(super) fn reply(&mut self, one: usize, call: CallId, outcome: LockOutcome) {
        self.input(one, LockInput::Reply { call, outcome });
    }

    /// Performs the oldest call, without delivering the reply.
    pub(super) fn land_next(&mut self, one: usize) -> (CallId, LockOutcome) {
        let (call, operation) = self.take(one);
        (call, self.land(one, &operation))
    }

    /// Performs the oldest call, whose reply is lost.
    pub(super) fn lose_reply(&mut self, one: usize) {
        let (call, _) = self.land_next(one);
        self.reply(one, call, LockOutcome::Unknown);
    }

    pub(super) fn perform(&mut self, one: usize) -> &'static str {
        let (call, operation) = self.take(one);
        let outcome = self.land(one, &operation);
        self.reply(one, call, outcome);
        operation.as_str()
    }

    pub(super) fn answer(&mut self, one: usize, outcome: LockOutcome) -> LockOperation {
        let (call, operation) = self.take(one);
        self.reply(one, call, outcome);
        operation
    }

    pub(super) fn settle_one(&mut self, one: usize) {
        while !self.ones[one].pending.is_empty() {
            self.perform(one);
        }
    }

    pub(super) fn settle(&mut self) {
        while let Some(one) = (0..self.ones.len()).find(|one| !self.ones[*one].pending.is_empty()) {
            self.perform(one);
        }
    }

    /// Lets time pass. The given contenders run; the others are frozen.
    pub(super) fn pass_for(&mut self, duration: Duration, running: &[usize]) {
        let until = self.now + duration;
        loop {
            let wakes = |one: &usize| {
                let at = self.ones[*one].contender.next_wakeup()?;
                Some((at, *one))
            };
            let next = running.iter().filter_map(wakes).min();
            match next.filter(|(at, _)| *at <= until) {
                Some((at, one)) => {
                    self.now = self.now.max(at);
                    self.input(one, LockInput::Tick);
                    self.settle_one(one);
                }
                None => break,
            }
        }
        self.now = until;
    }

    pub(super) fn pass(&mut self, duration: Duration) {
        let all: Vec<_> = (0..self.ones.len()).collect();
        self.pass_for(duration, &all);
    }

    pub(super) fn standing(&self, one: usize) -> Standing {
        let status = self.ones[one].contender.status();
        status.at(self.now).standing
    }

    pub(super) fn token(&self, one: usize) -> Option<i64> {
        let authority = self.ones[one].contender.authority_at(self.now);
        authority.map(|a| a.token.get())
    }

    pub(super) fn valid_until(&self, one: usize) -> Option<BootTime> {
        let authority = self.ones[one].contender.authority_at(self.now);
        authority.map(|a| a.valid_until)
    }

    pub(super) fn position(&self, one: usize) -> Option<usize> {
        match self.standing(one) {
            Standing::Waiting { position, .. } => Some(position),
            _ => None,
        }
    }

    pub(super) fn end(&self, one: usize) -> Option<End> {
        match self.standing(one) {
            Standing::Ended(end) => Some(end),
            _ => None,
        }
    }

    pub(super) fn notices(&self, one: usize) -> Vec<&LockNotice> {
        fn notice(effect: &LockEffect) -> Option<&LockNotice> {
            match effect {
                LockEffect::Notice(notice) => Some(notice),
                _ => None,
            }
        }
        self.ones[one].asked.iter().filter_map(notice).collect()
    }

    pub(super) fn watches(&self, one: usize) -> usize {
        let watch = |effect: &&LockEffect| matches!(effect, LockEffect::Watch(Some(_)));
        self.ones[one].asked.iter().filter(watch).count()
    }

    pub(super) fn document(&self) -> &LockDocument {
        match &self.stored {
            FoundLock::Lock(lock) => lock,
            other => panic!("{other:?} is not a lock"),
        }
    }

    pub(super) fn claim(&self, one: usize) -> crate::election::Claim {
        self.ones[one].contender.status().claim
    }
}
