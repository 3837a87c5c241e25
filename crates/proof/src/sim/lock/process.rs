//! A contending process: the shipped state machine with a modelled event loop and driver.

use std::collections::VecDeque;

use super::ledger::Ledger;
use crate::election::{BootTime, Claim};
use crate::lock::{LockContender, LockInput, Options};
use crate::proof::flawed::lock as flawed;
use crate::proof::sim::driver::Driver;
use crate::proof::sim::ids::Ids;

#[derive(Clone)]
pub(super) struct Process {
    pub(super) seat: usize,
    pub(super) contender: LockContender,
    pub(super) options: Options,
    pub(super) alive: bool,
    pub(super) works: bool,
    pub(super) acquired_at: Option<u64>,
    pub(super) started_at: u64,
    pub(super) frozen_until: u64,
    /// The process has run without a pause since this true time.
    pub(super) running_since: u64,
    pub(super) inbox: VecDeque<LockInput>,
    pub(super) driver: Driver<&'static str>,
    pub(super) stream: Stream,
    pub(super) ledger: Ledger,
}

#[derive(Clone, Default)]
pub(super) struct Stream {
    pub(super) claim: Option<Claim>,
    pub(super) open: bool,
    /// The number of the current stream. The process drops events of an earlier stream.
    pub(super) opening: u64,
    pub(super) last_at: u64,
    /// The claim of the process's acknowledged join. The first stream of this claim reports every
    /// event since the join.
    pub(super) joined: Option<Claim>,
}

impl Process {
    pub(super) fn start(
        seat: usize,
        options: Options,
        now: u64,
        clock: BootTime,
        random: &mut Ids,
    ) -> Self {
        Self {
            seat,
            contender: flawed::contender(options.clone(), clock, random.at(clock)),
            alive: true,
            works: false,
            acquired_at: None,
            started_at: now,
            frozen_until: 0,
            running_since: now,
            inbox: VecDeque::new(),
            driver: Driver::new(),
            stream: Stream::default(),
            ledger: Ledger::remembering(&options.observations, options.token_remembered),
            options,
        }
    }
}
