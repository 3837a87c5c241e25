//! No rule of the protocol can be broken on purpose in the daemon: the names
//! of the planted bugs, which a unit test binary carries, are not in it.

use std::fs;

fn names() -> Vec<String> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/election/mutation.rs");
    let text = fs::read_to_string(source).expect("the list of planted bugs");
    let (_, list) = text.split_once("mutations! {").expect("the list begins");
    let (list, _) = list.split_once("\n}").expect("the list ends");
    let lines = list.lines().map(str::trim);
    let lines = lines.filter(|line| !line.starts_with("//"));
    let name = |line: &str| Some(line.strip_suffix(':')?.to_owned());
    lines.filter_map(name).collect()
}

#[test]
fn the_daemon_carries_no_planted_bug() {
    let names = names();
    assert!(names.len() >= 20, "{names:?}");
    let daemon = fs::read(env!("CARGO_BIN_EXE_leasehold")).expect("the daemon");
    for name in names {
        let found = daemon.windows(name.len()).any(|w| w == name.as_bytes());
        assert!(!found, "{name} is in the daemon");
    }
}
