//! The lock's protocol alone: a contender whose client is connected already.
//! What a program around it costs is in `locks.rs`.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock;
use leasehold::election::{Identity, LeaseName, Timings, Token};
use leasehold::lock::{Effect, End, Input, LockContender, Options, Sightings, Want};
use leasehold::runner::KernelRandomness;
use leasehold::store::mongo::StoreOptions;
use leasehold::store::mongo::lock::{MongoLockStore, Told};
use leasehold::store::{News, Store};
use leasehold_testbed::daemon::boottime_ns;
use tokio::sync::mpsc;

use crate::launch::seconds;

/// Contenders for one lock, one after the other, with one client.
pub(crate) struct Warm {
    options: Options,
    store: MongoLockStore,
    /// Nobody else wants the lock, so no stream is opened and nothing comes.
    _news: mpsc::Receiver<News<Told>>,
}

impl Warm {
    pub(crate) fn new(uri: String, lock: &str) -> Self {
        let identity = Identity::new("warm").expect("a word");
        let timings = Timings::default();
        let options = StoreOptions::new(uri, identity.clone());
        let (news_sender, news) = mpsc::channel(1);
        let name = LeaseName::new(lock).expect("a word");
        let (store, _) = MongoLockStore::new(options, name, news_sender);
        let options = Options {
            identity,
            want: Want::Exclusive,
            timings,
            at_once: false,
            watch_first: false,
            token_remembered: Token::ZERO,
            sightings: Sightings::default(),
        };
        Self {
            options,
            store,
            _news: news,
        }
    }

    /// Acquires the lock and releases it: how long that takes.
    ///
    /// # Panics
    /// When somebody else has it.
    pub(crate) async fn round(&self) -> f64 {
        let began_ns = boottime_ns();
        let mut random = KernelRandomness;
        let options = self.options.clone();
        let mut contender = LockContender::new(options, clock::boot_now(), &mut random);
        let mut input = Input::Tick;
        loop {
            contender.handle(clock::boot_now(), input, &mut random);
            input = Input::Tick;
            while let Some(effect) = contender.next_effect() {
                match effect {
                    Effect::Call { id, operation } => {
                        let answer = self.store.perform(operation).await;
                        let (call, outcome) = (id, answer.outcome);
                        input = Input::Reply { call, outcome };
                    }
                    Effect::Acquired { .. } => input = Input::Release,
                    Effect::Exit(End::Released) => return seconds(began_ns, boottime_ns()),
                    Effect::Watch(None) => {}
                    other @ (Effect::Watch(_)
                    | Effect::Lost(_)
                    | Effect::Notice(_)
                    | Effect::Exit(_)) => {
                        panic!("nobody else wants it: {other:?}")
                    }
                }
            }
            // The first one of all finds no document and tries again in a moment.
            tokio::task::yield_now().await;
        }
    }
}
