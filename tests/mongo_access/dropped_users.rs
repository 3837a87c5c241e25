//! Goal: after an operator drops and recreates a user, or revokes and restores its role, the user's
//! processes recover without a restart. The driver does not recover by itself, because the server
//! logs out the user's connections, but the driver keeps using them. Method: start each kind of
//! long-lived process, then drop its user.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_testbed::{DaemonTimings, Scratch, Stage};
use mongodb::bson::{Document, doc};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::entrance::{LONG, eventually, stage};

const ACTIONS: [&str; 4] = ["find", "insert", "update", "changeStream"];

struct Job {
    child: Child,
    log: std::path::PathBuf,
}

impl Job {
    fn start(mut command: Command, scratch: &Scratch, name: &str) -> Self {
        let log = scratch.path().join(name);
        let file = std::fs::File::create(&log).expect("a file");
        let child = command.stdout(Stdio::null()).stderr(file).spawn();
        Self {
            child: child.expect("the command starts"),
            log,
        }
    }

    async fn logs(&self, text: &str) {
        eventually(&format!("{text:?} in {:?}", self.log), async || {
            let log = std::fs::read_to_string(&self.log);
            log.expect("readable").contains(text)
        })
        .await;
    }

    async fn exits(&mut self) -> ExitStatus {
        let exit = tokio::time::timeout(LONG, self.child.wait()).await;
        exit.expect("the command exits").expect("an exit status")
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Dropped {
    User,
    Role,
}

impl Dropped {
    /// Returns the error that each long-lived process must log.
    fn shown(self) -> &'static str {
        match self {
            Self::User => "authentication failed",
            Self::Role => "not authorized (Unauthorized, code 13): user ",
        }
    }
}

async fn admin(stage: &Stage, command: Document) {
    let admin = stage.set().client().database("admin");
    let done = admin.run_command(command.clone()).await;
    done.unwrap_or_else(|error| panic!("{command}: {error}"));
}

#[tokio::test]
async fn dropping_and_recreating_a_user_stops_no_process() {
    stops_no_process("dropped", Dropped::User).await;
}

#[tokio::test]
async fn dropping_and_recreating_a_role_stops_no_process() {
    stops_no_process("powerless-for-a-while", Dropped::Role).await;
}

/// Runs the command until its last line contains `named`. On a busy machine, the first runs may
/// time out.
async fn refused(stage: &Stage, uri: &str, arguments: &[&str], named: &str) {
    eventually(&format!("{arguments:?} says {named}"), async || {
        let ran = stage.command(uri, arguments).output().await;
        let ran = ran.expect("the command starts");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(69), "{arguments:?}: {said}");
        said.lines().last().unwrap_or_default().contains(named)
    })
    .await;
}

/// The leader and the lock holder must outlast all commands that are tried while access is refused.
/// On a busy machine, these commands take more than half a minute.
const SURVIVING: DaemonTimings = DaemonTimings {
    lease_duration: Duration::from_secs(180),
    renew_deadline: Duration::from_secs(150),
    ..DaemonTimings::DEFAULT
};

async fn stops_no_process(name: &str, dropped: Dropped) {
    let stage = stage().await.timings(SURVIVING);
    let set = stage.set();
    let (database, collection) = (stage.database(), stage.collection());
    let user = set
        .add_user_with_actions(name, database, collection, &ACTIONS)
        .await;
    let uri = set.uri_for(&user);
    let a = stage.candidate("a").uri(&uri).leading(LONG).await;
    let b = stage.candidate("b").uri(&uri).following("a", LONG).await;
    b.wait_stream().await;
    let scratch = Scratch::new();
    let (held, end) = (scratch.path().join("held"), scratch.path().join("end"));
    let script = format!(
        ": > {}; while [ ! -e {} ]; do sleep 0.1; done",
        held.display(),
        end.display()
    );
    let job = [
        "lock",
        "job",
        "--identity=holder",
        "--lease-duration=180s",
        "--",
        "sh",
        "-c",
        &script,
    ];
    let mut holder = Job::start(stage.command(&uri, &job), &scratch, "holder");
    eventually("the lock is held", async || held.exists()).await;
    let job = [
        "lock",
        "job",
        "--identity=waiter",
        "--lease-duration=180s",
        "--",
        "true",
    ];
    let mut waiter = Job::start(stage.command(&uri, &job), &scratch, "waiter");
    waiter.logs("waiting").await;
    let mut watch = stage.command(&uri, &["leases", "--watch"]);
    let mut watch = watch
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("piped")).lines();
    let mut line = async || {
        let line = tokio::time::timeout(LONG, lines.next_line()).await;
        let line = line
            .expect("a line before the timeout")
            .expect("read the output");
        line.expect("the watch continues")
    };
    assert!(line().await.contains(r#""a""#));

    let role = format!("{name}-role");
    let command = match dropped {
        Dropped::User => doc! { "dropUser": name },
        Dropped::Role => doc! { "dropRole": &role },
    };
    admin(&stage, command).await;
    for daemon in [&a, &b] {
        daemon.wait_logged(dropped.shown(), LONG).await;
    }
    for job in [&holder, &waiter] {
        job.logs(dropped.shown()).await;
    }
    let commands: [&[&str]; 4] = [
        &["lock", "free", "-n", "--lease-duration=4s", "--", "true"],
        &["pause", "orders", "--timeout=20s"],
        &["leases", "--timeout=20s"],
        &["locks", "--timeout=20s"],
    ];
    let named = match dropped {
        Dropped::User => "authentication failed for user ",
        Dropped::Role => "(Unauthorized, code 13): user ",
    };
    join_all(commands.map(|arguments| refused(&stage, &uri, arguments, named))).await;
    let granted = doc! { "role": &role, "db": "admin" };
    match dropped {
        Dropped::User => drop(set.add_user(name, vec![granted.into()]).await),
        Dropped::Role => {
            let resource = doc! { "db": database, "collection": collection };
            let privileges = vec![doc! { "resource": resource, "actions": ACTIONS.to_vec() }];
            let create = doc! { "createRole": &role, "privileges": privileges, "roles": [] };
            admin(&stage, create).await;
            admin(
                &stage,
                doc! { "grantRolesToUser": name, "roles": [granted] },
            )
            .await;
        }
    }

    a.wait_renewal(LONG).await;
    assert_eq!(a.token(), Some(1), "{}", a.logs());
    b.wait_logged("MongoDB answers again", LONG).await;
    b.wait_stream().await;
    std::fs::write(&end, "").expect("written");
    assert!(holder.exits().await.success());
    assert!(waiter.exits().await.success());
    a.term();
    b.wait_leads(LONG).await;
    while !line().await.contains(r#""b""#) {}
}
