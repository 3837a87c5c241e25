//! Goal: a user that is dropped and created again stops nothing until a restart. The server logs out
//! the connections of such a user, and a driver keeps using them.
//! Method: each kind of process that stays, under one user that is dropped under it.

use std::process::{ExitStatus, Stdio};

use leasehold_testbed::{DaemonTimings, Scratch, Stage};
use mongodb::bson::doc;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::entrance::{LONG, eventually, stage};

const ACTIONS: [&str; 4] = ["find", "insert", "update", "changeStream"];

/// A command whose standard error goes into a file.
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
            child: child.expect("it starts"),
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
        exit.expect("it exits").expect("its status")
    }
}

async fn drop_user(stage: &Stage, name: &str) {
    let admin = stage.set().client().database("admin");
    let dropped = admin.run_command(doc! { "dropUser": name }).await;
    dropped.unwrap_or_else(|error| panic!("drop the user: {error}"));
}

#[tokio::test]
async fn a_user_that_is_dropped_and_created_again_stops_no_process() {
    let stage = stage().await.timings(DaemonTimings::DEFAULT);
    let set = stage.set();
    let (database, collection) = (stage.database(), stage.collection());
    let user = set
        .add_user_with_actions("dropped", database, collection, &ACTIONS)
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
        "--",
        "sh",
        "-c",
        &script,
    ];
    let mut holder = Job::start(stage.command(&uri, &job), &scratch, "holder");
    eventually("the lock is held", async || held.exists()).await;
    let job = ["lock", "job", "--identity=waiter", "--", "true"];
    let mut waiter = Job::start(stage.command(&uri, &job), &scratch, "waiter");
    waiter.logs("waiting").await;
    let mut watch = stage.command(&uri, &["leases", "--watch"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("piped")).lines();
    let mut line = async || {
        let line = tokio::time::timeout(LONG, lines.next_line()).await;
        let line = line.expect("a line in time").expect("it is read");
        line.expect("the watch goes on")
    };
    assert!(line().await.contains(r#""a""#));

    drop_user(&stage, "dropped").await;
    for daemon in [&a, &b] {
        daemon.wait_logged("authentication failed", LONG).await;
    }
    for job in [&holder, &waiter] {
        job.logs("authentication failed").await;
    }
    let role = doc! { "role": "dropped-role", "db": "admin" };
    set.add_user("dropped", vec![role.into()]).await;

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
