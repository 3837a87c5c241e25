//! Goal: verify that the runner of the suite detects leftovers of a test. Method: run it with small
//! scripts that leave something behind.

use std::path::Path;
use std::process::{Command, Output};

/// Runs `script` with `leaves-nothing` in a checkout and a home of its own.
fn run(script: &str) -> Output {
    let place = tempfile::tempdir().expect("a directory");
    let checkout = place.path().join("checkout");
    let home = place.path().join("home");
    for directory in [&checkout, &home] {
        std::fs::create_dir(directory).expect("a directory");
    }
    let git = Command::new("git")
        .args(["init", "-q"])
        .arg(&checkout)
        .status();
    assert!(git.expect("git runs").success());
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("leaves-nothing"))
        .args(["sh", "-c", script])
        .current_dir(&checkout)
        .env("HOME", &home)
        // The suite that runs this test leads to its own cache.
        .env_remove("XDG_CACHE_HOME")
        .env("LEAVES_NOTHING_WATCHES", &home)
        .output()
        .expect("it runs")
}

/// Returns the messages about leftovers of `script`.
fn strays(script: &str) -> String {
    let output = run(script);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_command_that_cleans_up_passes() {
    let output = run("touch \"$TMPDIR/a\"; rm \"$TMPDIR/a\"");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn the_code_of_the_command_is_handed_on() {
    assert_eq!(run("exit 7").status.code(), Some(7));
}

#[test]
fn a_file_in_the_checkout_is_named() {
    assert!(strays("touch sh.stray").contains("sh.stray"));
    assert!(strays("echo '*.log' >.git/info/exclude; touch a.log").contains("a.log"));
}

#[test]
fn a_temporary_file_is_named_and_removed() {
    let output = run("touch \"$TMPDIR/forgotten\"; echo \"$TMPDIR\"");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("forgotten"));
    let place = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(!Path::new(&place).exists(), "{place} stays");
}

#[test]
fn an_entry_in_the_home_is_named() {
    assert!(strays("touch ~/.leasehold-history").contains("in the home: .leasehold-history"));
    let below = strays("mkdir -p ~/.local/share/x && touch ~/.local/share/x/y");
    assert!(below.contains("in the home: .local/share/x/y"), "{below}");
}

#[test]
fn an_entry_in_the_real_home_is_named() {
    let script = "touch \"$(dirname \"$XDG_CACHE_HOME\")/leasehold-history\"";
    assert!(strays(script).contains("leasehold-history"));
}

#[test]
fn a_process_that_goes_on_is_named_and_ended() {
    // The script prints the id, so that the end of the process can be verified.
    let script = "sleep 1000 & echo $!";
    let output = run(script);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let named = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(named.contains("sleep 1000"), "{named}");
    let id = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(!Path::new("/proc").join(&id).exists(), "{id} goes on");
}
