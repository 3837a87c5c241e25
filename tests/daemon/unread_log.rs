//! Goal: a daemon whose log has no reader keeps renewing, counts dropped lines, and exits on
//! SIGTERM. Method: logs at level debug to a pipe with a capacity of one page. The test keeps the
//! pipe open without reading it.

use leasehold_testbed::process::write_program;
use leasehold_testbed::{Daemon, DaemonTimings, Scratch, daemon::sample};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use rustix::pipe::fcntl_setpipe_size;

use crate::contest::{Contest, LONG, PROGRAM, eventually};

async fn lost(daemon: &Daemon) -> f64 {
    let page = daemon.http("/metrics").await.map(|(_, text)| text);
    sample(&page.unwrap_or_default(), "leasehold_log_lines_lost_total").unwrap_or_default()
}

#[tokio::test]
async fn a_full_pipe_drops_lines_but_keeps_the_leadership() {
    let contest = Contest::new("unread").await;
    let scratch = Scratch::new();
    let pipe = scratch.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let reader = open(&pipe, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
    fcntl_setpipe_size(&reader, 4096).unwrap();
    let program = scratch.path().join("program");
    let script = format!("#!/bin/sh\nexec {PROGRAM} \"$@\" 2>{}\n", pipe.display());
    write_program(&program, &script);

    let daemon = Daemon::builder(&program)
        .lease("unread")
        .identity("a")
        .uri(&contest.set().uri())
        .timings(DaemonTimings::DEMO)
        .handoff_delay("0s")
        .flag("--log-level=debug")
        .leading(LONG)
        .await;
    eventually("lines were dropped", async || lost(&daemon).await > 0.0).await;
    for _ in 0..3 {
        let renewed = daemon.wait_renewal(LONG).await;
        assert_eq!(renewed["leader"], true, "{renewed}");
    }
    assert_eq!(
        daemon.status()["token"],
        1,
        "the daemon kept its leadership"
    );

    // The read frees room in the pipe, so the daemon drops no lines for a while.
    let mut page = [0; 4096];
    let read = rustix::io::read(&reader, &mut page).unwrap();
    let text = String::from_utf8_lossy(&page[..read]);
    for line in text.lines() {
        serde_json::from_str::<serde_json::Value>(line).expect(line);
    }
    assert_eq!(daemon.term_and_exit(LONG).await, 0);
    let read = rustix::io::read(&reader, &mut page).unwrap();
    let text = String::from_utf8_lossy(&page[..read]);
    assert!(text.contains("\"message\":\"stopped\""), "{text}");
}
