//! The invariants that must hold after every step. Each file checks one invariant, or a part of it,
//! with small pure functions, and tests them on inputs written by hand. `docs/protocol.md` lists
//! the numbered invariants.

use std::time::Duration;

use crate::election::{Identity, Reservation};

pub(super) mod acquisitions_begin_clean;
pub(super) mod authority_from_acknowledged_writes;
pub(super) mod bounds;
pub(super) mod children_are_recorded;
pub(super) mod children_end_in_time;
pub(super) mod children_have_their_time;
pub(super) mod children_start_with_authority;
pub(super) mod claims_lead_once;
pub(super) mod ended_claims_are_freed;
pub(super) mod followers_write_with_cause;
pub(super) mod guards_act_in_time;
pub(super) mod healing;
pub(super) mod held_claims_are_renewed;
pub(super) mod leaders_have_guards;
pub(super) mod leaders_stop_when_they_must;
pub(super) mod leadership_ends_with_cause;
pub(super) mod notices_are_true;
pub(super) mod notifications_are_followed_up;
pub(super) mod one_child;
pub(super) mod one_child_a_token;
pub(super) mod one_leader;
pub(super) mod orphaned_children_are_stopped;
pub(super) mod preference_is_bounded;
pub(super) mod release_after_the_workload;
pub(super) mod starts_are_bounded;
pub(super) mod stops_are_bounded;
pub(super) mod streams_are_checked;
pub(super) mod surfaces_have_deadlines;
pub(super) mod takeovers_are_timely;
pub(super) mod tokens_grow;
pub(super) mod transfers_reserve;
pub(super) mod unknown_grants_nothing;
pub(super) mod wall_clocks_decide_nothing;

pub(super) use crate::proof::sim::invariants::{Violation, explain, require, violation};
pub(super) use crate::proof::sim::with;

fn reservation(name: &str, seconds: u64) -> Reservation {
    Reservation {
        identity: Identity::new(name).expect("legal"),
        duration: Duration::from_secs(seconds),
    }
}
