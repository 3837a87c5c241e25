//! A client process that holds a hand-made lock while a command runs. The process runs this test
//! binary (or the benchmark's) and gets its [`Order`] in an environment variable.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use leasehold_testbed::Launch;
use mongodb::Client;
use serde::{Deserialize, Serialize};

use crate::designs::{
    Counter, Design, FindAndModify, HandMade, LockedAt, Pessimistic, Terms, TtlIndex, VersionCheck,
};

const VARIABLE: &str = "HANDMADE_LOCK";
/// The test whose first call is [`act_as_client`].
const ENTRANCE: &str = "in_calm_weather::each_design_excludes";
/// Interval between attempts. Hand-made locks poll.
const POLL: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_millis(1);
pub(crate) const NOT_ACQUIRED: u8 = 75;
/// Exit code if the client no longer owned the lock at its release.
pub(crate) const NOT_OURS: u8 = 76;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) design: Design,
    pub(crate) uri: String,
    pub(crate) database: String,
    pub(crate) name: String,
    pub(crate) owner: String,
    pub(crate) life: Duration,
    /// If true, the client extends the expiry while the command runs.
    pub(crate) extend: bool,
    pub(crate) wait: Duration,
    pub(crate) command: Vec<String>,
}

impl Order {
    pub(crate) fn launch(&self) -> Launch {
        let this: PathBuf = std::env::current_exe().expect("the path of this program");
        let (name, value) = self.variable();
        Launch::new(this)
            .arguments(["--exact", ENTRANCE, "--nocapture"])
            .env(name, value)
    }

    /// Returns the name and the value of the environment variable that passes this order to a
    /// process.
    pub(crate) fn variable(&self) -> (String, String) {
        let text = serde_json::to_string(self).expect("a serializable order");
        (VARIABLE.to_owned(), text)
    }
}

/// If the environment contains an order, carries out the order and exits.
pub(crate) fn act_as_client() {
    let Ok(text) = std::env::var(VARIABLE) else {
        return;
    };
    let order: Order = serde_json::from_str(&text).expect("the variable contains an order");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a Tokio runtime starts");
    let code = runtime.block_on(carry_out(&order));
    std::process::exit(i32::from(code));
}

async fn carry_out(order: &Order) -> u8 {
    let client = Client::with_uri_str(&order.uri).await;
    let client = client.expect("a valid connection string");
    let terms = Terms {
        collection: client.database(&order.database).collection("locks"),
        name: order.name.clone(),
        owner: order.owner.clone(),
        life: order.life,
    };
    match order.design {
        Design::TtlIndex => hold(TtlIndex(terms), order).await,
        Design::LockedAt => hold(LockedAt(terms), order).await,
        Design::FindAndModify => hold(FindAndModify(terms), order).await,
        Design::Counter { slots } => hold(Counter { terms, slots }, order).await,
        Design::Pessimistic => hold(Pessimistic(terms), order).await,
        Design::VersionCheck => hold(VersionCheck { terms, version: 0 }, order).await,
    }
}

async fn hold(mut lock: impl HandMade, order: &Order) -> u8 {
    let begin = Instant::now();
    while !lock.acquire().await.expect("the set answers") {
        if begin.elapsed() > order.wait {
            return NOT_ACQUIRED;
        }
        tokio::time::sleep(POLL).await;
    }
    let mut command = Command::new(&order.command[0]);
    command.args(&order.command[1..]);
    command.env_remove(VARIABLE);
    let mut child = command.spawn().expect("the command can be started");
    let mut extended = Instant::now();
    while child.try_wait().expect("the child exits").is_none() {
        if order.extend && extended.elapsed() > order.life / 3 {
            lock.extend().await.expect("the set answers");
            extended = Instant::now();
        }
        tokio::time::sleep(LOOK).await;
    }
    if lock.release().await.expect("the set answers") {
        0
    } else {
        NOT_OURS
    }
}
