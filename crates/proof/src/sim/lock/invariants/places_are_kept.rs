//! An entry stays for its minimum hold even if the work or the process has ended. The minimum hold
//! is measured in true time from the acquiring write.

use std::time::Duration;

use super::{Violation, explain};

/// Checks that an acquired entry was not released early. `taken` is the time from the acquiring
/// write to the release.
pub(crate) fn check(taken: Duration, min_hold: Duration) -> Option<Violation> {
    explain(taken >= min_hold, "places are kept", || {
        format!("released after {taken:?}, before the minimum hold of {min_hold:?}")
    })
}

#[test]
fn a_place_that_is_given_up_early_is_found() {
    let least = Duration::from_secs(55);
    assert_eq!(check(least, least), None);
    assert!(check(least - Duration::from_nanos(1), least).is_some());
}
