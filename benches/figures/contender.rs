//! Measures only the protocol of a lock, in a contender whose client is already connected. The
//! figures of `locks.rs` also include starting a program.

use leasehold::clock;
use leasehold::election::{Identity, ResourceName, Timings, Token};
use leasehold::lock::{
    End, LockContender, LockEffect, LockInput, LockMode, MinHold, Observations, Options,
};
use leasehold::randomness::KernelRandomness;
use leasehold::store::StoreEvent;
use leasehold::store::mongo::StoreOptions;
use leasehold::store::mongo::lock::{ClaimHint, MongoLockStore};
use leasehold_testbed::daemon::boottime_ns;
use tokio::sync::mpsc;

use crate::launch::seconds;

pub(crate) struct Warm {
    options: Options,
    store: MongoLockStore,
    /// Receives no events, because without other contenders no stream is opened.
    _news: mpsc::Receiver<StoreEvent<ClaimHint>>,
}

impl Warm {
    pub(crate) fn new(uri: String, lock: &str) -> Self {
        let identity = Identity::new("warm").expect("a word");
        let timings = Timings::default();
        let options = StoreOptions::new(uri, identity.clone());
        let (news_sender, news) = mpsc::channel(1);
        let name = ResourceName::new(lock).expect("a word");
        let (store, _) = MongoLockStore::new(options, name, news_sender);
        let options = Options {
            identity,
            mode: LockMode::Exclusive,
            timings,
            min_hold: MinHold::NONE,
            once_per: None,
            non_blocking: false,
            watch_first: false,
            token_remembered: Token::ZERO,
            went_back: None,
            observations: Observations::default(),
        };
        Self {
            options,
            store,
            _news: news,
        }
    }

    /// Acquires and releases the lock. Returns the elapsed seconds. Panics if another contender
    /// holds the lock or waits for it.
    pub(crate) async fn round(&self) -> f64 {
        let began_ns = boottime_ns();
        let mut random = KernelRandomness;
        let options = self.options.clone();
        let mut contender = LockContender::new(options, clock::boot_now(), &mut random);
        let mut input = LockInput::Tick;
        loop {
            contender.handle(clock::boot_now(), input, &mut random);
            input = LockInput::Tick;
            while let Some(effect) = contender.next_effect() {
                match effect {
                    LockEffect::Call { id, operation } => {
                        let answer = self.store.perform(operation).await;
                        let (call, outcome) = (id, answer.outcome);
                        input = LockInput::Reply { call, outcome };
                    }
                    LockEffect::Acquired { .. } => input = LockInput::Release,
                    LockEffect::Exit(End::Released) => return seconds(began_ns, boottime_ns()),
                    LockEffect::Watch(None) => {}
                    other @ (LockEffect::Watch(_)
                    | LockEffect::Lost(_)
                    | LockEffect::Notice(_)
                    | LockEffect::Exit(_)) => {
                        panic!("unexpected effect without other contenders: {other:?}")
                    }
                }
            }
            // The first contender for a new lock finds no document and retries soon.
            tokio::task::yield_now().await;
        }
    }
}
