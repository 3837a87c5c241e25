//! The names and numbers in files, logs, metrics and the history. Users and dashboards depend on
//! them, so a change here affects users.

use super::harness::*;
use crate::election::*;

#[test]
fn roles_and_reasons_are_closed_lists_of_words() {
    let roles = Role::ALL.map(|role| role.to_string());
    assert_eq!(roles.join(" "), "leader follower paused stopping unknown");
    let reasons = Reason::ALL.map(|reason| reason.to_string());
    assert_eq!(
        reasons.join(" "),
        "acquired took_over renewed deadline rejected requested transferred paused unhealthy \
         workload_exit workload_stuck shutdown store_went_back duplicate died"
    );
}

#[test]
fn names_and_numbers_are_shown_as_they_are() {
    let name = ResourceName::new("orders").expect("legal");
    assert_eq!([name.as_str(), &name.to_string()], ["orders"; 2]);
    let host = identity("host-1");
    assert_eq!([host.as_str(), &host.to_string()], ["host-1"; 2]);
    assert_eq!((token(7).get(), token(7).to_string().as_str()), (7, "7"));
    assert_eq!(CallId(8).to_string(), "8");
    let instant = BootTime::from_nanos(12_000_000_034);
    assert_eq!(instant.as_nanos(), 12_000_000_034);
    assert_eq!(instant.to_string(), "12.000000034s");
}

#[test]
fn a_refused_name_is_shown_with_what_would_be_accepted() {
    let refused = ResourceName::new("a b").expect_err("a blank");
    let text = refused.to_string();
    let expected = "\"a b\" is not accepted: expected 1 to 63";
    assert!(text.starts_with(expected), "{text}");
}
