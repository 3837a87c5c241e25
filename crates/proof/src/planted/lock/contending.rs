//! Planted bugs in the handling of a reply. `crates/core/src/lock/contender/contending.rs` includes
//! this file, which uses its private items.

use super::{Consequence, Exchange, Holding, LockOutcome, LockTurn, SentWrite, WritePurpose};

pub(super) fn reply(
    exchange: &mut Exchange,
    write: &SentWrite,
    outcome: &LockOutcome,
    turn: &LockTurn<'_>,
) -> Option<Consequence> {
    if planted!(AnchorAtReply) {
        exchange.writes.sent_again(write.call, turn.now);
    }
    if *outcome != LockOutcome::Unknown {
        return None;
    }
    if planted!(JoinedAnew) && write.purpose == WritePurpose::Join {
        return Some(Consequence::JoinedAnew);
    }
    if planted!(UnknownGrants) {
        let given = (exchange.view.marks.token_highest, Some(0));
        let calls = turn.effects.calls();
        exchange.writes.seen_present(calls);
        let timings = &exchange.options.timings;
        let holding = Holding::acquired(given, write, calls, timings);
        return Some(Consequence::Acquired {
            holding,
            news: false,
        });
    }
    None
}
