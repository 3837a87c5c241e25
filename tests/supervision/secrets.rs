//! Goal: a command cannot read its daemon's connection string (I12), although both run as the same
//! user. Method: the command itself tries to read the connection string.

use std::os::unix::fs::PermissionsExt;

use leasehold_testbed::{Daemon, DaemonTimings, Scratch};

use crate::contest::{Contest, PROGRAM, eventually};

/// Writes a wrapper that drops root's capability to read all processes and then runs leasehold.
fn unprivileged(place: &Scratch) -> std::path::PathBuf {
    let wrapper = place.path().join("leasehold");
    let drop = match rustix::process::geteuid().is_root() {
        true => "setpriv --bounding-set=-all --inh-caps=-all",
        false => "",
    };
    let script = format!("#!/bin/sh\nexec {drop} {PROGRAM} \"$@\"\n");
    std::fs::write(&wrapper, script).unwrap();
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&wrapper, executable).unwrap();
    wrapper
}

#[tokio::test]
async fn i12_a_command_reads_neither_environment_nor_memory_of_its_daemon_and_guard() {
    let (contest, place) = (Contest::new("secrets").await, Scratch::new());
    let seen = place.path().join("seen").display().to_string();
    // After the name, the fields are state and parent. The command can read its own files. This
    // shows that the command can read unprotected files.
    let script = format!(
        "guard=$PPID; read -r stat < /proc/$guard/stat; set -- ${{stat##*)}}; daemon=$2
        {{ for process in $$ $guard $daemon; do
            for file in environ maps fd/0; do
                if head -c 1 /proc/$process/$file > /dev/null 2>&1; then echo read; else echo refused; fi
            done
        done
        ls -l /proc/$$/fd; tr '\\0' '\\n' < /proc/$$/environ; }} > {seen}.new
        mv {seen}.new {seen}; exec sleep 60"
    );
    let uri = contest.set().uri();
    let _daemon = Daemon::builder(unprivileged(&place))
        .lease("secrets")
        .identity("a")
        .uri(&uri)
        .env("LEASEHOLD_MONGODB__URI", &uri)
        .timings(DaemonTimings::SHORT)
        .workload(["sh", "-c", &script].map(str::to_owned).to_vec())
        .start();
    let text = || std::fs::read_to_string(&seen).unwrap_or_default();
    eventually("the command has tried to read", async || !text().is_empty()).await;
    let answers = text();
    let tried: Vec<_> = answers.lines().take(9).collect();
    assert_eq!(
        tried,
        [["read"; 3], ["refused"; 3], ["refused"; 3]].concat()
    );
    assert!(answers.contains("LEASEHOLD_TOKEN="), "{answers}");
    assert!(!answers.contains("mongodb://"), "{answers}");
    assert!(!answers.contains("LEASEHOLD_MONGODB__"), "{answers}");
    // The exec specs of the command and the witness are files in memory.
    assert!(!answers.contains("memfd"), "{answers}");
}
