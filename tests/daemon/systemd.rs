//! Goal: the daemon notifies systemd of its readiness, its status, its liveness (watchdog) and its
//! stop, and only a configuration error delays its restart. Method: receives the notifications on a
//! datagram socket, and runs the shell command of the packaged unit, in place of systemd.

use std::os::unix::net::UnixDatagram;
use std::process::Command;

use leasehold_testbed::DaemonTimings;

use crate::command::Files;
use crate::contest::{Contest, eventually};

struct Manager {
    socket: UnixDatagram,
    messages: Vec<String>,
}

impl Manager {
    fn listen(files: &Files) -> Self {
        let socket = UnixDatagram::bind(files.path("notify")).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self {
            socket,
            messages: Vec::new(),
        }
    }

    fn receive(&mut self) -> &[String] {
        let mut buffer = [0; 4096];
        while let Ok(length) = self.socket.recv(&mut buffer) {
            let text = String::from_utf8(buffer[..length].to_vec()).unwrap();
            self.messages.extend(text.lines().map(str::to_owned));
        }
        &self.messages
    }

    /// Drains the socket, whose queue drops messages beyond about ten.
    fn drain(&mut self) -> bool {
        self.receive();
        true
    }

    fn count(&mut self, message: &str) -> usize {
        self.receive().iter().filter(|m| *m == message).count()
    }
}

#[tokio::test]
async fn systemd_is_notified_of_ready_status_watchdog_and_stopping() {
    let contest = Contest::new("systemd").await;
    let (proxy, daemon) = contest.behind_proxy(DaemonTimings::DEMO);
    proxy.cut();
    let files = Files::new();
    let mut manager = Manager::listen(&files);
    let daemon = daemon
        .env("NOTIFY_SOCKET", files.path("notify"))
        .env("WATCHDOG_USEC", "200000")
        .start();
    eventually(
        "the daemon sends watchdog pings while it waits",
        async || manager.count("WATCHDOG=1") >= 5,
    )
    .await;
    assert_eq!(manager.count("READY=1"), 0, "MongoDB was not reached");
    proxy.resume();
    eventually("the daemon leads", async || {
        manager.drain() && daemon.leads()
    })
    .await;
    eventually("the status is sent", async || {
        manager.count("STATUS=leader of systemd, token 1") == 1
    })
    .await;
    assert_eq!(manager.count("READY=1"), 1);
    let pings = manager.count("WATCHDOG=1");
    eventually("the watchdog pings continue", async || {
        manager.count("WATCHDOG=1") >= pings + 5
    })
    .await;
    assert_eq!(
        manager.count("STATUS=leader of systemd, token 1"),
        1,
        "renewals send no new status"
    );
    daemon.term();
    eventually("the daemon exits", async || {
        manager.drain() && daemon.exit_code().is_some()
    })
    .await;
    assert_eq!(daemon.exit_code(), Some(0));
    assert_eq!(manager.count("STOPPING=1"), 1);
    assert_eq!(manager.count("READY=1"), 1);
    let order: Vec<_> = manager
        .receive()
        .iter()
        .filter(|m| *m == "READY=1" || *m == "STOPPING=1")
        .collect();
    assert_eq!(order, ["READY=1", "STOPPING=1"]);
}

#[tokio::test]
async fn a_frozen_daemon_does_not_ping() {
    let contest = Contest::new("watchdog").await;
    let files = Files::new();
    let others = Files::new();
    let (mut manager, mut other) = (Manager::listen(&files), Manager::listen(&others));
    let start = |identity, files: &Files| {
        let daemon = contest
            .candidate(identity)
            .env("NOTIFY_SOCKET", files.path("notify"))
            .env("WATCHDOG_USEC", "200000");
        daemon.start()
    };
    let daemon = start("a", &files);
    let _other = start("b", &others);
    eventually("the daemon pings", async || manager.count("WATCHDOG=1") > 0).await;
    daemon.stop();
    let pings = manager.count("WATCHDOG=1");
    let begun = other.count("WATCHDOG=1");
    eventually("the watchdog pings continue", async || {
        other.count("WATCHDOG=1") >= begun + 5
    })
    .await;
    assert_eq!(manager.count("WATCHDOG=1"), pings);
}

#[test]
fn the_unit_delays_a_restart_only_after_a_configuration_error() {
    let unit = include_str!("../../packaging/systemd/leasehold@.service");
    let script = unit.split_once("ExecStopPost=sh -c '").unwrap().1;
    let script = script.split_once("'\n").unwrap().0.replace("$$", "$");
    let script = format!("sleep() {{ echo \"waits $1\"; }}; {script}");
    let after = |status: &str| {
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", &script]).env("EXIT_STATUS", status);
        let output = output.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(after("78"), "waits 10\n");
    for status in ["0", "1", "KILL"] {
        assert_eq!(after(status), "", "{status}");
    }
}
