//! The change streams of the processes. They may be late, hang, become stale, or report old
//! events.

use super::cluster::World;
use super::coverage::Hit;
use super::document::{Committed, Stored, claim_of};
use super::faults::Fault;
use super::invariants::streams_are_checked as streams;
use super::process::Class;
use crate::election::mutation::planted;
use crate::election::{Input, Lease, Watch};
use crate::proof::sim::{MS, SECOND};

#[derive(Debug, Clone)]
enum Says {
    News(Watch),
    Change(Change),
}

pub(super) type Change = Box<(Stored, Stored)>;

/// Interval at which a stream returns an empty batch. Must equal the value in
/// `store/mongo/follow.rs`.
const BEAT: u64 = 10 * SECOND;
/// Maximum delay of a stream through routers: MongoDB's default for `periodicNoopIntervalSecs`.
const LAG_MAX: u64 = 10 * SECOND;
/// Interval at which a process without hints and without a change stream tries to open one of them.
/// Must equal the value in `store/mongo/follow.rs`.
const LACKING_RETRY: u64 = 60 * SECOND;

impl World {
    pub(super) fn notify_streams(&mut self, committed: Committed) {
        let Committed {
            seq, before, after, ..
        } = committed;
        let state = &after;
        let change = Box::new((before, after.clone()));
        self.own.last_change = Some((self.now, change.clone()));
        for index in 0..self.live.len() {
            let process = self.live[index];
            let stream = &self.processes[process].stream;
            if !stream.open || stream.silent || stream.stale || stream.hints || seq < stream.from {
                continue;
            }
            self.notify_adapter(process, Says::Change(change.clone()));
            let roll = self.net.below(60);
            let late = self.net.below(20_000) * MS;
            if self.troubles(Fault::StreamStale)
                && roll < 6
                && let Some(lease) = self.old_or_mixed(roll, state)
            {
                self.coverage.hit(Hit::Fault(Fault::StreamStale));
                let says = Says::News(Watch::Changed(lease));
                self.says_at(self.now + late, process, says);
            }
        }
    }

    fn old_or_mixed(&mut self, roll: u64, state: &Stored) -> Option<Lease> {
        let newest = state.lease()?.clone();
        let count = self.own.archive.backups.len();
        let old = self.own.archive.backups[self.net.index(count)]
            .lease()?
            .clone();
        Some(match roll {
            0 | 1 => newest,
            2 | 3 => old,
            _ => Lease {
                token: newest.token,
                paused: newest.paused,
                request: newest.request,
                ..old
            },
        })
    }

    pub(super) fn notify(&mut self, process: usize, watch: Watch) {
        self.notify_adapter(process, Says::News(watch));
    }

    fn notify_adapter(&mut self, process: usize, says: Says) {
        let mut latency = self.net.between(1, 10) * MS;
        if self.processes[process].stream.late && matches!(says, Says::Change(_)) {
            latency += self.own.router_dice.below(LAG_MAX);
        }
        let stream = &mut self.processes[process].stream;
        let at = (self.now + latency).max(stream.last_at);
        stream.last_at = at;
        self.says_at(at, process, says);
    }

    fn says_at(&mut self, at: u64, process: usize, says: Says) {
        let opening = self.processes[process].stream.opening;
        self.at(at, move |world| world.stream_says(process, opening, says));
    }

    pub(super) fn opens_at(&mut self, at: u64, process: usize, opening: u64) {
        self.at(at, move |world| world.stream_opens(process, opening));
    }

    fn beats_at(&mut self, at: u64, process: usize, opening: u64) {
        self.at(at, move |world| world.stream_beats(process, opening));
    }

    fn stream_opens(&mut self, process: usize, opening: u64) {
        let p = &self.processes[process];
        if !p.alive || p.stream.opening != opening {
            return;
        }
        let machine = &self.machines[p.machine];
        if machine.cut_until > self.now || self.set.no_primary_until > self.now {
            self.stream_ends(process);
            return;
        }
        let stale = machine.stale && self.set.is_deposed_up();
        let hints = self.follows_hints(process);
        self.processes[process].hints_usable = self.finds_hints(process);
        if !hints && !self.machines[self.processes[process].machine].streams {
            return self.lacks_streams(process);
        }
        let late = !hints && self.faults.has(Fault::Routers);
        self.coverage.hit_if(late, Hit::Fault(Fault::Routers));
        let stream = &mut self.processes[process].stream;
        stream.open = true;
        stream.opened_at = self.now;
        stream.silent = false;
        stream.stale = stale;
        (stream.hints, stream.late) = (hints, late);
        // By default, a MongoDB stream begins after the primary's newest write, even if no
        // majority has that write. The adapter requests a stream that begins at the time of a
        // majority read.
        stream.from = match planted!(StreamFromItsOpening) {
            true => self.set.newest() + 1,
            false => 0,
        };
        let opened = match (hints, late) {
            (true, _) => Watch::HintsOpened,
            (false, true) if !planted!(LateStreamTrusted) => Watch::LateStreamOpened,
            (false, _) => Watch::Opened,
        };
        self.notify(process, opened);
        if !hints && !late {
            self.repeat_since_its_read(process);
        }
        self.beats_at(self.now + BEAT, process, opening);
    }

    /// Reports the newest change if it happened between the read that set the stream's start time
    /// and the opening of the stream.
    fn repeat_since_its_read(&mut self, process: usize) {
        let since = self
            .now
            .saturating_sub(self.own.stream_dice.between(1, 10) * MS);
        if let Some((at, change)) = self.own.last_change.clone()
            && at >= since
            && !self.processes[process].stream.stale
        {
            self.notify_adapter(process, Says::Change(change));
        }
    }

    fn stream_beats(&mut self, process: usize, opening: u64) {
        let stream = &self.processes[process].stream;
        if stream.opening == opening && stream.open && !stream.silent {
            self.notify(process, Watch::Alive);
            self.beats_at(self.now + BEAT, process, opening);
        }
    }

    /// Makes a stream stop reporting until the watcher notices.
    pub(super) fn stream_hangs(&mut self, process: usize) {
        let p = &mut self.processes[process];
        if p.stream.open {
            p.stream.silent = true;
            let opening = p.stream.opening;
            let (machine, timeout) = (p.machine, p.operation_timeout);
            let at = self.now + BEAT + self.stretched(machine, timeout);
            self.at(at, move |world| {
                let stream = &world.processes[process].stream;
                if stream.opening == opening && stream.silent {
                    world.stream_ends(process);
                }
            });
        }
    }

    /// Breaks the stream. The process opens another stream after `retry_interval`.
    pub(super) fn stream_ends(&mut self, process: usize) {
        let p = &mut self.processes[process];
        if !p.alive || !p.streams {
            return;
        }
        let opening = p.close_stream();
        let (machine, retry) = (p.machine, p.tunables.timings.retry_interval());
        self.input(process, Class::News, Input::Watch(Watch::Lost));
        let at = self.now + self.stretched(machine, retry);
        self.opens_at(at, process, opening);
    }

    fn lacks_streams(&mut self, process: usize) {
        self.input(process, Class::News, Input::Watch(Watch::Lost));
        let opening = self.processes[process].close_stream();
        self.opens_at(self.now + LACKING_RETRY, process, opening);
    }

    pub(super) fn stream_reopens(&mut self, process: usize) {
        let p = &mut self.processes[process];
        if p.stream.open && p.stream.hints && planted!(DeposedHintsKept) {
            return;
        }
        p.hearing.reopens();
        if p.streams {
            let opening = p.close_stream();
            let at = self.now + self.own.stream_dice.between(1, 10) * MS;
            self.opens_at(at, process, opening);
        }
    }

    fn stream_says(&mut self, process: usize, opening: u64, says: Says) {
        let p = &mut self.processes[process];
        if p.stream.opening == opening && !p.stream.silent {
            let kept = planted!(TokenNotCompared) || planted!(DocumentKeptOverGap);
            let mut blind = false;
            let watch = match says {
                Says::News(
                    opened @ (Watch::Opened | Watch::LateStreamOpened | Watch::HintsOpened),
                ) => {
                    p.newest = p.newest.take().filter(|_| kept);
                    p.hearing.document_seen = false;
                    opened
                }
                Says::News(watch) => watch,
                Says::Change(change) => {
                    let (before, after) = *change;
                    p.hearing.document_seen |= before.lease().is_none();
                    p.newest = changed(p.newest.take(), &before, &after);
                    blind = p.newest.is_some() && !p.hearing.document_seen;
                    p.newest.clone().map_or(Watch::Unclear, Watch::Changed)
                }
            };
            // With `TokenNotCompared`, this check is off, because the check of tokens must catch
            // that bug.
            self.found(streams::check_events(blind && !planted!(TokenNotCompared)));
            self.input(process, Class::News, Input::Watch(watch));
            self.choose_stream(process);
        }
    }
}

/// Returns the document that the adapter knows after an event, or `None` if the adapter must read
/// the document. As in MongoDB, an update contains only the changed fields. The adapter applies
/// these fields to its newest known document, as in `store/mongo/change_stream.rs`.
fn changed(newest: Option<Lease>, before: &Stored, after: &Stored) -> Option<Lease> {
    let after = after.lease()?;
    let Some(before) = before.lease() else {
        return Some(after.clone());
    };
    let mut newest = newest?;
    if claim_of(before) != claim_of(after) {
        newest.holder.clone_from(&after.holder);
    } else if let Some(holder) = &after.holder
        && (before.revision != after.revision || before.holder != after.holder)
    {
        // A renewal and an edit both set fields of the holder.
        newest.holder.as_mut()?.lease_duration = holder.lease_duration;
    }
    if before.token != after.token {
        newest.token = after.token;
    }
    if before.paused != after.paused {
        newest.paused = after.paused;
    }
    if before.request != after.request {
        newest.request.clone_from(&after.request);
    }
    if before.reserved_for != after.reserved_for {
        newest.reserved_for.clone_from(&after.reserved_for);
    }
    newest.revision = after.revision;
    Some(newest)
}
