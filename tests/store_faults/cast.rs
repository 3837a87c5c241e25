//! Runs one process for each role: a leader, its follower, the holder of a lock, and a waiter. Also
//! runs short commands and checks their output.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Instant;

use leasehold_testbed::{Daemon, Scratch, Stage};
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::fixture::{LONG, POLL, eventually, leader_of};

/// Name of the lock that the holder and the waiter use.
const LOCK: &str = "held";
pub(crate) const FREE: &str = "free";

/// Texts of timeout errors, which any call may report on a busy machine.
const LATE: [&str; 3] = ["no answer", "no primary", "does not answer"];

fn is_late(text: &str) -> bool {
    LATE.iter().any(|late| text.contains(late))
}

fn says(text: &str, why: &str) -> bool {
    text.contains(why) || is_late(text)
}

pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) error: String,
}

pub(crate) async fn ran(mut command: Command) -> Ran {
    let output = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let output = output
        .spawn()
        .expect("the command starts")
        .wait_with_output();
    let output = tokio::time::timeout(LONG, output).await;
    let output = output.expect("the command ends").expect("output");
    Ran {
        code: output.status.code(),
        error: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Ran {
    /// Returns the last line, which says why the command failed.
    pub(crate) fn last(&self) -> &str {
        self.error.lines().last().unwrap_or_default()
    }

    /// Asserts that the command failed because of MongoDB. Returns true if the command's last line
    /// contains these parts, or false if the line reports a timeout.
    fn is_refused(&self, parts: &[&str]) -> bool {
        assert_eq!(self.code, Some(69), "{}", self.error);
        let named = parts.iter().all(|part| self.last().contains(part));
        assert!(named || is_late(self.last()), "{parts:?}: {}", self.error);
        named
    }
}

/// Repeats an operator's command, or `lock`, until its last line is an error that contains these
/// texts.
pub(crate) async fn refused(stage: &Stage, arguments: &[&str], parts: &[&str]) -> Ran {
    let uri = stage.set().uri();
    let end = Instant::now() + LONG;
    loop {
        let ran = ran(stage.command(&uri, arguments)).await;
        if ran.is_refused(parts) {
            return ran;
        }
        assert!(Instant::now() < end, "{arguments:?}: {}", ran.error);
    }
}

pub(crate) fn lock(stage: &Stage, name: &str, flags: &[&str]) -> Command {
    let arguments = [&["lock", name], flags, &["--", "true"]].concat();
    stage.command(&stage.set().uri(), &arguments)
}

/// Repeatedly tries to acquire a lock without waiting, until MongoDB's error contains these texts.
pub(crate) async fn lock_refused(stage: &Stage, name: &str, parts: &[&str]) {
    let arguments = ["lock", name, "--lease-duration=3s", "-n", "--", "true"];
    let _ = refused(stage, &arguments, parts).await;
}

pub(crate) struct Job {
    child: Child,
    log: PathBuf,
}

impl Job {
    /// Starts `lock` with log lines that contain all fields.
    pub(crate) fn start(mut command: Command, log: PathBuf) -> Self {
        command.env("LEASEHOLD_LOG__FORMAT", "text");
        let file = std::fs::File::create(&log).expect("a file");
        let child = command.stdout(Stdio::null()).stderr(file).spawn();
        Self {
            child: child.expect("the command starts"),
            log,
        }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("readable")
    }

    pub(crate) fn logged(&self, parts: &[&str]) -> usize {
        let has_all = |line: &&str| parts.iter().all(|part| line.contains(part));
        self.log().lines().filter(has_all).count()
    }

    pub(crate) async fn wait_logged(&self, parts: &[&str], times: usize) {
        let logged = async {
            while self.logged(parts) < times {
                tokio::time::sleep(POLL).await;
            }
        };
        let logged = tokio::time::timeout(LONG, logged).await;
        logged.unwrap_or_else(|_| panic!("not {times} × {parts:?}: {}", self.log()));
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().expect("its status").is_none()
    }

    pub(crate) async fn exits(&mut self) -> ExitStatus {
        let exit = tokio::time::timeout(LONG, self.child.wait()).await;
        exit.unwrap_or_else(|_| panic!("still running: {}", self.log()))
            .expect("its status")
    }
}

pub(crate) struct Cast {
    pub(crate) stage: Stage,
    pub(crate) leader: Daemon,
    pub(crate) follower: Daemon,
    pub(crate) holder: Job,
    pub(crate) waiter: Job,
    end: PathBuf,
    _scratch: Scratch,
}

impl Cast {
    /// Starts all processes. `lock_lease` is the lease duration of the holder and the waiter.
    pub(crate) async fn start(stage: Stage, lock_lease: &str) -> Self {
        let leader = stage.candidate("a").leading(LONG).await;
        // The follower polls, so it soon encounters a read error.
        let follower = stage.candidate("b").flag("--mongodb-watch=poll");
        let follower = follower.following("a", LONG).await;
        let scratch = Scratch::new();
        let path = |name: &str| scratch.path().join(name);
        let (held, end) = (path("held"), path("end"));
        let script = format!(
            ": > {}; while [ ! -e {} ]; do sleep 0.5; done",
            held.display(),
            end.display()
        );
        let lease = format!("--lease-duration={lock_lease}");
        let job = |identity: &str, command: &[&str]| {
            let identity = format!("--identity={identity}");
            let arguments = ["lock", LOCK, &identity, &lease, "--"];
            stage.command(&stage.set().uri(), &[&arguments[..], command].concat())
        };
        let holder = Job::start(job("holder", &["sh", "-c", &script]), path("holder"));
        eventually("the lock is held", async || held.exists()).await;
        let waiter = Job::start(job("waiter", &["true"]), path("waiter"));
        waiter.wait_logged(&["waiting for the lock"], 1).await;
        Self {
            stage,
            leader,
            follower,
            holder,
            waiter,
            end,
            _scratch: scratch,
        }
    }

    /// Waits until each process has logged an error that contains this text.
    pub(crate) async fn meet(&self, shown: &str) {
        for daemon in [&self.leader, &self.follower] {
            eventually(
                &format!("{} shows {shown}", daemon.identity()),
                async || store_error(daemon).await.contains(shown),
            )
            .await;
        }
        for job in [&self.holder, &self.waiter] {
            job.wait_logged(&["renew failed", shown], 1).await;
        }
    }

    pub(crate) async fn cannot_renew(&self) {
        for job in [&self.holder, &self.waiter] {
            let failing = ["MongoDB renew failed (attempt"];
            job.wait_logged(&failing, 1).await;
        }
    }

    /// Waits until all processes work again. The holder and the waiter must each have logged this
    /// many recoveries.
    pub(crate) async fn unharmed(&mut self, failures: usize) {
        for job in [&self.holder, &self.waiter] {
            let again = ["MongoDB answers again", "operation=renew"];
            job.wait_logged(&again, failures).await;
        }
        self.leader.wait_renewal(LONG).await;
        for daemon in [&self.leader, &self.follower] {
            no_error(daemon).await;
        }
        assert_eq!(self.leader.token(), Some(1), "{}", self.leader.logs());
        self.follower.wait_follows("a", LONG).await;
        assert!(self.holder.runs(), "{}", self.holder.log());
        assert!(self.waiter.runs(), "{}", self.waiter.log());
    }

    /// Waits until the leader has lost its lease and the holder its lock, and both have logged the
    /// reason.
    pub(crate) async fn lose(&mut self, why: &str) {
        self.leader.wait_not_leader(LONG).await;
        let lost = async || {
            let is_loss = |line: &Value| {
                let named = line["why"].as_str().is_some_and(|text| says(text, why));
                line["message"] == "role changed" && line["reason"] == "deadline" && named
            };
            self.leader.log_records().iter().any(is_loss)
        };
        eventually(&format!("the leader lost the lease because of {why}"), lost).await;
        // The last reason may be a timeout, but the log must also contain the expected reason.
        let logs = self.leader.logs();
        assert!(logs.contains(why), "the leader never logs {why}: {logs}");
        let exit = self.holder.exits().await;
        let log = self.holder.log();
        assert_eq!(exit.code(), Some(76), "{log}");
        assert!(log.contains(why), "the holder never logs {why}: {log}");
        let lost = log.lines().find(|line| line.contains("lost the lock"));
        assert!(lost.is_some_and(|line| says(line, why)), "{log}");
        assert!(self.waiter.runs(), "{}", self.waiter.log());
    }

    pub(crate) async fn recover(&mut self) {
        let leader = leader_of(&[&self.leader, &self.follower]).await;
        assert!(leader.token() > Some(1));
        for daemon in [&self.leader, &self.follower] {
            no_error(daemon).await;
        }
        let exit = self.waiter.exits().await;
        assert!(exit.success(), "{}", self.waiter.log());
        let free = ran(lock(&self.stage, FREE, &["--wait=20s"])).await;
        assert_eq!(free.code, Some(0), "{}", free.error);
    }

    pub(crate) async fn end(mut self) {
        std::fs::write(&self.end, "").expect("written");
        assert!(self.holder.exits().await.success(), "{}", self.holder.log());
        assert!(self.waiter.exits().await.success(), "{}", self.waiter.log());
    }
}

/// Returns MongoDB's error in the status, or an empty string.
pub(crate) async fn store_error(daemon: &Daemon) -> String {
    // A daemon that has just started may not listen yet.
    let Ok((_, body)) = daemon.http("/status").await else {
        return String::new();
    };
    let status: Value = serde_json::from_str(&body).expect("JSON");
    let message = status["store_error"]["message"].as_str();
    message.unwrap_or_default().to_owned()
}

async fn no_error(daemon: &Daemon) {
    eventually(
        &format!("{} shows no error", daemon.identity()),
        async || store_error(daemon).await.is_empty(),
    )
    .await;
}
