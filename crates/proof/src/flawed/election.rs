//! A candidate with a rule broken on purpose, from outside.

use std::time::Duration;

use crate::election::mutation::planted;
use crate::election::{
    BootTime, Declared, Election, Found, Input, Lease, Outcome, Randomness, Watch,
};

/// Passes an input to a candidate with this lease duration. Without a planted bug it is passed as it
/// is.
pub(crate) fn handle(
    election: &mut Election,
    own: Duration,
    now: BootTime,
    mut input: Input,
    random: &mut dyn Randomness,
) {
    let authority = election.status().authority;
    if let Some(lease) = shown(&mut input)
        && planted!(OwnDuration)
        && let Some(holder) = &mut lease.holder
    {
        holder.lease_duration = Declared::of(own);
    }
    if let Input::Reply { outcome, .. } = &mut input {
        if planted!(UnknownAsFailed) && authority.is_some() && *outcome == Outcome::Unknown {
            *outcome = Outcome::Failed;
        }
        if planted!(AcknowledgedAfterDeadline)
            && let (Some(authority), Outcome::Applied(_)) = (authority, &*outcome)
            && authority.valid_until <= now
        {
            let before = authority.valid_until - Duration::from_nanos(1);
            election.handle(before, input, random);
            input = Input::Tick;
        }
    }
    election.handle(now, input, random);
}

/// Returns the lease that an input shows.
fn shown(input: &mut Input) -> Option<&mut Lease> {
    match input {
        Input::Reply {
            outcome: Outcome::Applied(Found::Lease(lease)),
            ..
        }
        | Input::Watch(Watch::Changed(lease)) => Some(lease),
        _ => None,
    }
}
