//! Goal: the shipped daemon contains no planted bug. Every program with planted bugs contains a
//! marker. The daemon's binary must not contain this marker. A unit test next to the planted bugs
//! checks that the marker is present in the unit tests.

use std::fs;

fn marker() -> String {
    let source = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/crates/proof/src/planted/election.rs"
    );
    let text = fs::read_to_string(source).expect("the planted bugs");
    let (_, rest) = text
        .split_once("const MARKER: &str = \"")
        .expect("the marker");
    let (marker, _) = rest.split_once('"').expect("the marker ends");
    assert!(marker.len() > 20, "{marker}");
    marker.to_owned()
}

#[test]
fn the_daemon_contains_no_planted_bug() {
    let marker = marker();
    let daemon = fs::read(env!("CARGO_BIN_EXE_leasehold")).expect("the daemon");
    let found = daemon.windows(marker.len()).any(|w| w == marker.as_bytes());
    assert!(!found, "the daemon contains planted bugs");
}
