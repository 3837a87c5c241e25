#[cfg(proof)]
#[path = "../../../../proof/src/planted/lock/contending.rs"]
mod planted;

use super::reads::Proof;
use super::{Exchange, Holding, State, WaitingPlace};
use crate::claim::ReadInFlight;
use crate::election::{CallId, Token};
use crate::lock::claim_writes::{SentWrite, WritePurpose};
use crate::lock::view::EntryPlace;
use crate::lock::{
    End, FoundLock, Grant, LockDocument, LockNotice, LockOutcome, LockTurn, MinHold,
};

#[derive(Default)]
pub(super) enum Consequence {
    #[default]
    Unchanged,
    NoDocument,
    /// Neither this reply nor an earlier reply showed the claim.
    Absent(Proof),
    Placed(CallId, WaitingPlace, Option<Grant>),
    /// An acknowledged write acquired the lock. If `news` is true, its reply is new, and expired
    /// entries are evicted.
    Acquired {
        holding: Holding,
        news: bool,
    },
    PlaceLost,
    Duplicated,
    /// The document lost acknowledged writes. Contains its token; `None` if the document is gone.
    RolledBack(Option<Token>),
    Finished(End),
    #[cfg(proof)]
    JoinedAnew,
}

pub(super) fn read_reply(
    exchange: &mut Exchange,
    reading: ReadInFlight<()>,
    outcome: LockOutcome,
    turn: &mut LockTurn<'_>,
) -> Consequence {
    let LockOutcome::Applied(found) = outcome else {
        exchange.reads.read_at(exchange.retry(turn));
        return Consequence::Unchanged;
    };
    let rollback = exchange.view.rollback(&found);
    let proved = match (rollback, &found) {
        (Some(_), _) => reading.proves_rollback(&exchange.view),
        (None, FoundLock::Foreign(_)) => reading.proof() == Proof::Newest,
        (None, FoundLock::Lock(_) | FoundLock::Missing) => true,
    };
    if !proved {
        exchange.reads.doubt(turn.now);
        return Consequence::Unchanged;
    }
    match (rollback, found) {
        (Some(rollback), _) => Consequence::RolledBack(rollback.found),
        (None, FoundLock::Foreign(why)) => Consequence::Finished(End::Foreign { why }),
        (None, FoundLock::Missing) => {
            exchange.reads.settle();
            Consequence::NoDocument
        }
        (None, FoundLock::Lock(lock)) => {
            exchange.reads.settle();
            shown(exchange, reading.call, lock, reading.proof(), turn)
        }
    }
}

pub(super) fn late_read(
    exchange: &mut Exchange,
    call: CallId,
    outcome: LockOutcome,
    turn: &mut LockTurn<'_>,
) -> Consequence {
    if let LockOutcome::Applied(FoundLock::Lock(lock)) = outcome {
        if EntryPlace::of(exchange.writes.claim, &lock) != EntryPlace::Absent {
            return shown(exchange, call, lock, Proof::Plain, turn);
        }
        if !exchange.writes.is_present() {
            exchange.take_news(call, lock, turn);
        }
    }
    Consequence::Unchanged
}

pub(super) fn eviction_reply(
    exchange: &mut Exchange,
    call: CallId,
    outcome: LockOutcome,
    turn: &mut LockTurn<'_>,
) -> Consequence {
    match outcome {
        LockOutcome::Applied(FoundLock::Lock(lock)) => {
            return shown(exchange, call, lock, Proof::Newest, turn);
        }
        LockOutcome::Rejected => exchange.reads.fall_behind(turn.now),
        LockOutcome::Applied(_)
        | LockOutcome::PrimaryOnly
        | LockOutcome::Failed
        | LockOutcome::Unknown => {
            exchange.reads.fall_behind(exchange.retry(turn));
        }
    }
    Consequence::Unchanged
}

pub(super) fn write_reply(
    state: &mut State,
    exchange: &mut Exchange,
    write: SentWrite,
    outcome: LockOutcome,
    turn: &mut LockTurn<'_>,
) -> Consequence {
    #[cfg(proof)]
    if let Some(verdict) = planted::reply(exchange, &write, &outcome, turn) {
        return verdict;
    }
    exchange.writes.record(write.call, &outcome);
    match outcome {
        LockOutcome::Applied(FoundLock::Lock(lock)) => {
            return written(state, exchange, &write, lock, turn);
        }
        LockOutcome::Applied(FoundLock::Missing | FoundLock::Foreign(_)) => {
            exchange.reads.fall_behind(turn.now);
        }
        LockOutcome::Rejected => match write.purpose {
            WritePurpose::Join => {
                // The next read shows why the join was rejected.
                if let Some(joining) = state.joining() {
                    joining.refused += 1;
                    exchange.reads.fall_behind(turn.now);
                }
            }
            WritePurpose::Evict | WritePurpose::Keep => exchange.reads.fall_behind(turn.now),
            WritePurpose::Renew if planted!(RejectionRepeated) => {
                retry_later(state, exchange, turn);
            }
            WritePurpose::Renew if exchange.writes.sent.is_newest(write.call) => {
                exchange.stream.granted_after = None;
                exchange.reads.doubt(turn.now);
            }
            // A later renewal may have overtaken this renewal. The later renewal's reply decides.
            WritePurpose::Renew => {}
        },
        LockOutcome::Failed => retry_later(state, exchange, turn),
        LockOutcome::PrimaryOnly | LockOutcome::Unknown => {
            retry_later(state, exchange, turn);
            // A read precedes the next join, so that few joins stay unresolved if the store fails.
            if write.purpose == WritePurpose::Join && matches!(state, State::Joining(_)) {
                exchange.reads.fall_behind(exchange.retry_at);
            }
        }
    }
    Consequence::Unchanged
}

fn retry_later(state: &mut State, exchange: &mut Exchange, turn: &mut LockTurn<'_>) {
    exchange.pause_writes(turn);
    if let State::Waiting(waiting) = state {
        waiting.renew_due = turn.now;
    }
}

fn written(
    state: &mut State,
    exchange: &mut Exchange,
    write: &SentWrite,
    lock: LockDocument,
    turn: &mut LockTurn<'_>,
) -> Consequence {
    let call = write.call;
    let options = &exchange.options;
    let place = EntryPlace::of(exchange.writes.claim, &lock);
    // The contender's own entry, but only with the revision of this write.
    let own = place.entry().filter(|e| e.revision == write.revision);
    let Some(own) = own else {
        return shown(exchange, call, lock, Proof::Newest, turn);
    };
    let slot = own.slot;
    let lacks_slot = !options.is_served_by(slot);
    let is_declared = options.min_hold == MinHold::NONE || own.min_hold > std::time::Duration::ZERO;
    let in_time = write.sent + options.timings.renew_deadline() > turn.now;
    let calls = turn.effects.calls();
    let news = exchange.view.is_news(call);
    match (place, own.token) {
        // The document's token was lowered, so the entry's token would be issued again.
        (EntryPlace::Holder(_), Some(token)) if token > lock.token => {
            exchange.view.marks.note_document(token);
            Consequence::RolledBack(Some(lock.token))
        }
        (EntryPlace::Holder(_), Some(token)) if !lacks_slot && is_declared && in_time => {
            let holding = Holding::acquired((token, slot), write, calls, &options.timings);
            exchange.writes.seen_present(calls);
            let done_ago = exchange.options.done_ago(&lock);
            if news {
                exchange.take(call, lock, turn);
            }
            match done_ago {
                Some(ago) => Consequence::Finished(End::Skipped { ago }),
                None => Consequence::Acquired { holding, news },
            }
        }
        (EntryPlace::Holder(_), None) => {
            exchange.writes.seen_present(calls);
            turn.effects.notice(LockNotice::TokensExhausted);
            Consequence::Finished(End::TokensExhausted)
        }
        (EntryPlace::Holder(_) | EntryPlace::Queue(..) | EntryPlace::Absent, _) => {
            exchange.writes.seen_present(calls);
            if !news {
                // The view is newer than this reply, so only a read can show the position.
                exchange.reads.fall_behind(turn.now);
                return Consequence::Unchanged;
            }
            if lacks_slot && !planted!(ConfirmedWithoutPause) {
                // The entry is confirmed but has no slot, because the document was edited or an
                // older version granted the lock.
                exchange.pause_writes(turn);
            }
            let mut verdict = shown(exchange, call, lock, Proof::Newest, turn);
            if let Consequence::Placed(_, place, _) = &mut verdict {
                place.lacks_slot = lacks_slot;
            } else if let State::Waiting(waiting) = state {
                waiting.confirmed(lacks_slot);
            }
            verdict
        }
    }
}

fn shown(
    exchange: &mut Exchange,
    call: CallId,
    lock: LockDocument,
    proof: Proof,
    turn: &mut LockTurn<'_>,
) -> Consequence {
    if !exchange.view.is_news(call) {
        return Consequence::Unchanged;
    }
    let placed = |position| WaitingPlace {
        position,
        ..WaitingPlace::default()
    };
    let writes = &exchange.writes;
    let absent = writes.proves_absent(call);
    let verdict = match EntryPlace::of(writes.claim, &lock) {
        _ if lock.token < exchange.view.token() => {
            exchange.reads.doubt(turn.now);
            return Consequence::Unchanged;
        }
        EntryPlace::Absent if absent && proof.is_trusted() => Consequence::PlaceLost,
        EntryPlace::Absent if absent => {
            exchange.reads.doubt(turn.now);
            return Consequence::Unchanged;
        }
        // The call was sent before the claim was known to be stored, so the reply may predate the
        // claim.
        EntryPlace::Absent if writes.is_present() => {
            exchange.reads.again(turn.now);
            return Consequence::Unchanged;
        }
        EntryPlace::Absent => Consequence::Absent(proof),
        EntryPlace::Queue(_, entry) | EntryPlace::Holder(entry)
            if proof == Proof::Newest && !writes.sent.carried(entry.revision) =>
        {
            // This contender may have sent the revision and forgotten it.
            match writes.forgotten {
                true => Consequence::PlaceLost,
                false => Consequence::Duplicated,
            }
        }
        EntryPlace::Queue(position, _) => Consequence::Placed(call, placed(position), None),
        EntryPlace::Holder(entry) => {
            Consequence::Placed(call, WaitingPlace::GRANTED, entry.unconfirmed_grant())
        }
    };
    if let Consequence::Placed(..) = verdict {
        exchange.writes.seen_present(turn.effects.calls());
    }
    let done_ago = exchange.options.done_ago(&lock);
    exchange.take(call, lock, turn);
    match (verdict, done_ago) {
        // A recorded success stays valid, however old the reply is.
        (Consequence::Placed(..) | Consequence::Absent(_), Some(ago)) => {
            Consequence::Finished(End::Skipped { ago })
        }
        (verdict, _) => verdict,
    }
}
