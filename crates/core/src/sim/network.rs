//! Calls in flight to the store and back, commits, and change streams.

use super::cluster::{Event, World};
use super::coverage::{Answer, Call, Hit, Landing, Path};
use super::faults::Fault;
use super::invariants::streams_are_checked as streams;
use super::process::{CALLS_MAX, Class, Driven};
use super::replica_set::{Landed, Stored};
use super::{MS, SECOND};
use crate::election::mutation::planted;
use crate::election::{CallId, Found, Input, Lease, Operation, Outcome, Watch};

/// A message of a change stream to the adapter.
#[derive(Debug, Clone)]
pub(super) enum Says {
    /// An event that is passed on without interpretation.
    News(Watch),
    /// A change of the document from the first state to the second.
    Change(Box<(Stored, Stored)>),
}

/// Interval between empty answers of a stream, as in `store/mongo/follow.rs`.
const BEAT: u64 = 10 * SECOND;

impl World {
    fn faulty(&self, fault: Fault) -> bool {
        !self.calm && self.faults.has(fault)
    }

    /// Hands a call of a process to its driver.
    pub(super) fn send(&mut self, process: usize, call: CallId, operation: Operation) {
        self.check_call(process, call, &operation);
        self.note(|| {
            format!(
                "p{process} sends #{call} {}",
                super::report::operation(&operation)
            )
        });
        self.decide(process, &operation);
        let p = &mut self.processes[process];
        if p.driver.len() >= CALLS_MAX {
            self.coverage.hit(Hit::Path(Path::TooManyCalls));
            let outcome = Outcome::Failed;
            let kind = Call::from(&operation);
            self.coverage.hit(Hit::Call(kind, Answer::Failed));
            self.processes[process].deliver(Class::Reply, Input::Reply { call, outcome });
            return;
        }
        if matches!(operation, Operation::Read { confirm: true }) {
            p.confirming = Some(call);
        }
        let adopts = matches!(operation, Operation::Renew { .. }) && !p.facts.holds;
        p.driver.push(Driven {
            call,
            kind: Call::from(&operation),
            timed_out: false,
        });
        let (machine, timeout) = (p.machine, p.operation_timeout);
        let timeout = self.stretched(machine, timeout);
        self.at(self.now + timeout, Event::TimeUp { process, call });
        // All random values are drawn regardless of the enabled faults.
        let roll = self.net.below(480);
        let (quick, slow) = (self.net.between(1, 20) * MS, self.net.below(40_000) * MS);
        let chance = self.net.roll();
        if adopts && self.faulty(Fault::Meddling) {
            self.meddle(process, chance);
        }
        let operation = Box::new(operation);
        let answer = |outcome| Event::Answer {
            process,
            call,
            outcome,
        };
        let land = |answered| Event::Land {
            process,
            call,
            operation: operation.clone(),
            answered,
        };
        let cut_until = self.machines[machine].cut_until;
        if cut_until > self.now {
            match roll % 4 {
                0 | 1 => self.at(self.now + timeout * 9 / 10, answer(Outcome::Failed)),
                2 => self.at(self.now + quick + slow, answer(Outcome::Unknown)),
                _ => {
                    // The connection survives, and its packets are retransmitted.
                    self.at(cut_until + quick, land(roll % 8 == 3));
                }
            }
            return;
        }
        let hit = |world: &mut Self, fault: Fault, from: u64, to: u64| {
            let hit = world.faulty(fault) && (from..to).contains(&roll);
            if hit {
                world.coverage.hit(Hit::Fault(fault));
            }
            hit
        };
        if hit(self, Fault::Slow, 0, 40) {
            self.at(self.now + quick + slow, land(true));
        } else if hit(self, Fault::LostBefore, 40, 52) {
            self.at(self.now + quick + slow, answer(Outcome::Unknown));
        } else if hit(self, Fault::LostAfter, 52, 64) {
            self.at(self.now + quick, land(false));
            self.at(self.now + quick + slow, answer(Outcome::Unknown));
        } else if hit(self, Fault::Duplicate, 64, 76) {
            self.at(self.now + quick, land(true));
            self.at(self.now + quick + slow, land(false));
        } else if hit(self, Fault::Late, 76, 88) {
            self.at(self.now + quick, answer(Outcome::Unknown));
            self.at(self.now + quick + slow, land(false));
        } else {
            self.at(self.now + quick, land(true));
        }
    }

    /// Delivers a call to the store.
    pub(super) fn land(
        &mut self,
        process: usize,
        call: CallId,
        operation: Box<Operation>,
        answered: bool,
    ) {
        let machine = self.processes[process].machine;
        let stale = self.machines[machine].stale && self.set.is_deposed_up();
        if self.never_sent.contains(&(process, call)) {
            return;
        }
        if !stale && self.set.no_primary_until > self.now {
            // Server selection waits for a primary, up to a timeout.
            let wait = self.set.no_primary_until - self.now;
            let patience = self.stretched(machine, self.processes[process].operation_timeout);
            if wait <= patience * 9 / 10 {
                let event = Event::Land {
                    process,
                    call,
                    operation,
                    answered,
                };
                self.at(self.set.no_primary_until + MS, event);
            } else if answered {
                let outcome = Outcome::Failed;
                self.never_sent.insert((process, call));
                self.at(
                    self.now + patience * 9 / 10,
                    Event::Answer {
                        process,
                        call,
                        outcome,
                    },
                );
            }
            return;
        }
        let identity = self.machines[machine].identity.clone();
        let wall = self.machines[machine].wall_skew / 1_000_000;
        let (landed, seq) = self.set.land(process, &identity, wall, &operation, stale);
        if self.processes[process].gave_up(call) {
            let landing = match &landed {
                Landed::Answered(Outcome::Applied(_)) | Landed::Waits(_, Outcome::Applied(_)) => {
                    Some(Landing::Matched)
                }
                Landed::Answered(_) | Landed::Waits(..) => Some(Landing::Refused),
                Landed::Silence => None,
            };
            if let Some(landing) = landing {
                let kind = Call::from(operation.as_ref());
                self.coverage.hit(Hit::Landed(kind, landing));
            }
        }
        if let Some(seq) = seq {
            let at = self.now.max(self.set.no_majority_until) + self.net.between(1, 8) * MS;
            self.at(at, Event::Commit(seq));
        }
        let way_back = self.net.between(1, 10) * MS;
        match landed {
            Landed::Answered(outcome) if answered => {
                let event = Event::Answer {
                    process,
                    call,
                    outcome,
                };
                self.at(self.now + way_back, event);
            }
            Landed::Waits(seq, outcome) if answered => {
                let waiting = super::replica_set::Waiting {
                    seq,
                    process,
                    call,
                    outcome,
                };
                self.set.waiting.push(waiting);
                self.acknowledge();
            }
            Landed::Silence if answered => {
                self.coverage.hit(Hit::Path(Path::DeposedSilent));
                let event = Event::Answer {
                    process,
                    call,
                    outcome: Outcome::Unknown,
                };
                self.at(self.now + way_back + 15 * SECOND, event);
            }
            Landed::Answered(_) | Landed::Waits(..) | Landed::Silence => {}
        }
    }

    fn acknowledge(&mut self) {
        if self.set.no_majority_until > self.now {
            return;
        }
        for waiting in self.set.acknowledged() {
            let event = Event::Answer {
                process: waiting.process,
                call: waiting.call,
                outcome: waiting.outcome,
            };
            let way_back = self.net.between(1, 10) * MS;
            self.at(self.now + way_back, event);
        }
    }

    /// Commits everything up to `seq` on a majority.
    pub(super) fn commit(&mut self, seq: u64) {
        let possible_at = self.set.no_majority_until.max(self.set.no_primary_until);
        if possible_at > self.now {
            self.at(possible_at + MS, Event::Commit(seq));
            return;
        }
        for committed in self.set.commit(seq) {
            self.note(|| super::report::committed(&committed));
            self.check_commit(&committed);
            self.tell_streams(&committed.before, &committed.after);
        }
        self.acknowledge();
    }

    /// Delivers an answer to the driver.
    pub(super) fn answer(&mut self, process: usize, call: CallId, outcome: Outcome) {
        let machine = &self.machines[self.processes[process].machine];
        if machine.cut_until > self.now && outcome != Outcome::Failed {
            let at = machine.cut_until + MS;
            let outcome = if self.net.one_in(2) {
                outcome
            } else {
                Outcome::Unknown
            };
            self.at(
                at,
                Event::Answer {
                    process,
                    call,
                    outcome,
                },
            );
            return;
        }
        if let Some(driven) = self.processes[process].returned(call) {
            if let Outcome::Applied(found) = &outcome {
                self.processes[process].newest = match found {
                    Found::Lease(lease) => Some(lease.clone()),
                    Found::Missing | Found::Foreign(_) => None,
                };
                self.processes[process].hearing.document_seen = true;
            }
            if driven.timed_out {
                self.coverage.hit(Hit::Late(Answer::from(&outcome)));
            } else {
                let hit = Hit::Call(driven.kind, Answer::from(&outcome));
                self.coverage.hit(hit);
            }
            self.input(process, Class::Reply, Input::Reply { call, outcome });
        }
    }

    pub(super) fn time_up(&mut self, process: usize, call: CallId) {
        if self.is_frozen(process) && self.net.one_in(2) {
            // After a thaw, events that arrived meanwhile may be handled first.
            let at = self.thaws_at(process) + MS;
            self.at(at, Event::TimeUp { process, call });
            return;
        }
        if let Some(kind) = self.processes[process].timed_out(call) {
            let outcome = Outcome::Unknown;
            self.coverage.hit(Hit::Call(kind, Answer::Unknown));
            self.input(process, Class::Reply, Input::Reply { call, outcome });
        }
    }

    /// Sends a committed change to every open stream that still reports.
    fn tell_streams(&mut self, before: &Stored, state: &Stored) {
        for index in 0..self.live.len() {
            let process = self.live[index];
            let stream = &self.processes[process].stream;
            if !stream.open || stream.silent || stream.stale {
                continue;
            }
            let change = Box::new((before.clone(), state.clone()));
            self.tell_adapter(process, Says::Change(change));
            let roll = self.net.below(60);
            let late = self.net.below(20_000) * MS;
            if self.faulty(Fault::StreamStale)
                && roll < 6
                && let Some(lease) = self.old_or_mixed(roll, state)
            {
                self.coverage.hit(Hit::Fault(Fault::StreamStale));
                let opening = self.processes[process].stream.opening;
                let says = Box::new(Says::News(Watch::Changed(lease)));
                self.at(
                    self.now + late,
                    Event::StreamSays {
                        process,
                        opening,
                        says,
                    },
                );
            }
        }
    }

    fn old_or_mixed(&mut self, roll: u64, state: &Stored) -> Option<Lease> {
        let newest = state.lease()?.clone();
        let count = self.set.backups.len();
        let old = self.set.backups[self.net.index(count)].lease()?.clone();
        Some(match roll {
            0 | 1 => newest,
            2 | 3 => old,
            // The mixture that results from an old delta and the newest document known.
            _ => Lease {
                token: newest.token,
                paused: newest.paused,
                request: newest.request,
                ..old
            },
        })
    }

    pub(super) fn tell(&mut self, process: usize, watch: Watch) {
        self.tell_adapter(process, Says::News(watch));
    }

    fn tell_adapter(&mut self, process: usize, says: Says) {
        let latency = self.net.between(1, 10) * MS;
        let stream = &mut self.processes[process].stream;
        let at = (self.now + latency).max(stream.last_at);
        stream.last_at = at;
        let opening = stream.opening;
        let says = Box::new(says);
        self.at(
            at,
            Event::StreamSays {
                process,
                opening,
                says,
            },
        );
    }

    pub(super) fn stream_opens(&mut self, process: usize, opening: u64) {
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
        let stream = &mut self.processes[process].stream;
        stream.open = true;
        stream.silent = false;
        stream.stale = stale;
        self.tell(process, Watch::Opened);
        self.at(self.now + BEAT, Event::StreamBeats { process, opening });
    }

    pub(super) fn stream_beats(&mut self, process: usize, opening: u64) {
        let stream = &self.processes[process].stream;
        if stream.opening == opening && stream.open && !stream.silent {
            self.tell(process, Watch::Alive);
            self.at(self.now + BEAT, Event::StreamBeats { process, opening });
        }
    }

    /// Lets a stream stop reporting anything, until the watcher notices.
    pub(super) fn stream_falls_silent(&mut self, process: usize) {
        let p = &mut self.processes[process];
        if p.stream.open {
            p.stream.silent = true;
            let opening = p.stream.opening;
            let (machine, timeout) = (p.machine, p.operation_timeout);
            let at = self.now + BEAT + self.stretched(machine, timeout);
            self.at(at, Event::StreamSilent { process, opening });
        }
    }

    /// Breaks the stream; another one is opened after `retry_interval`.
    pub(super) fn stream_ends(&mut self, process: usize) {
        let p = &mut self.processes[process];
        if !p.alive || !p.streams {
            return;
        }
        let opening = p.close_stream();
        let (machine, retry) = (p.machine, p.tunables.timings.retry_interval());
        self.input(process, Class::News, Input::Watch(Watch::Lost));
        let at = self.now + self.stretched(machine, retry);
        self.at(at, Event::StreamOpens { process, opening });
    }

    /// Opens another stream at the request of the process.
    pub(super) fn stream_reopens(&mut self, process: usize) {
        let p = &mut self.processes[process];
        p.hearing.reopens();
        if p.streams {
            let opening = p.close_stream();
            let at = self.now + self.stream_dice.between(1, 10) * MS;
            self.at(at, Event::StreamOpens { process, opening });
        }
    }

    pub(super) fn stream_says(&mut self, process: usize, opening: u64, says: Says) {
        let p = &mut self.processes[process];
        if p.stream.opening == opening && !p.stream.silent {
            let kept = planted!(TokenNotCompared) || planted!(DocumentKeptOverGap);
            let mut blind = false;
            let watch = match says {
                Says::News(Watch::Opened) => {
                    p.newest = p.newest.take().filter(|_| kept);
                    p.hearing.document_seen = false;
                    Watch::Opened
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
            // `TokenNotCompared` must be caught by the tokens that it hands out.
            self.found(streams::check_told(blind && !planted!(TokenNotCompared)));
            self.input(process, Class::News, Input::Watch(watch));
        }
    }
}

/// Returns the document that the adapter knows after an event; `None` if it must be read. As in
/// MongoDB, an update contains only the changed fields. As in `store/mongo/change_stream.rs`, they
/// are applied to the newest document known, whichever that is.
fn changed(newest: Option<Lease>, before: &Stored, after: &Stored) -> Option<Lease> {
    let after = after.lease()?;
    let Some(before) = before.lease() else {
        return Some(after.clone());
    };
    let mut newest = newest?;
    let claim = |lease: &Lease| lease.holder.as_ref().map(|h| h.claim);
    if claim(before) != claim(after) {
        newest.holder.clone_from(&after.holder);
    } else if let Some(holder) = &after.holder
        && (before.revision != after.revision || before.holder != after.holder)
    {
        // A renewal sets fields of the holder, and so does an edit.
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
