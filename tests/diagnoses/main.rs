//! Goal: when a server, a port, a directory, a lock or an API server refuses a request, the error
//! tells an on-call engineer what failed and what to do, and contains no password (I12). Method:
//! runs a table of situations with real servers, each with a command, its exit code and its
//! expected output.

// Test code may read the clock directly.
#![allow(clippy::disallowed_methods)]
#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]
#![allow(clippy::print_stderr, reason = "the test prints a summary")]

mod api;
mod credentials;
mod lock;
mod machine;
mod parts;
mod servers;
mod situation;
mod uri;

use futures_util::{StreamExt, stream};

use parts::Parts;
use situation::Situation;

/// Number of commands that run concurrently. Most commands only wait for a timeout.
const AT_A_TIME: usize = 6;

#[tokio::test]
async fn each_refusal_names_the_object_the_component_and_the_remedy() {
    let parts = Parts::start().await;
    let mut table = servers::situations(&parts);
    table.extend(credentials::situations(&parts).await);
    table.extend(uri::situations(&parts));
    table.extend(machine::situations(&parts));
    table.extend(lock::situations(&parts).await);
    table.extend(api::situations(&parts).await);
    let mut wrong = tried(table).await;
    // The deposed server stays frozen for the remaining situations.
    parts.deposed.stop(0);
    wrong.extend(tried(servers::frozen(&parts)).await);
    parts.deposed.cont(0);
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

async fn tried(table: Vec<Situation>) -> Vec<String> {
    let names: Vec<_> = table.iter().map(|situation| situation.name).collect();
    eprintln!("{} situations: {}", names.len(), names.join(", "));
    let verdicts = table.into_iter().map(|s| async move { s.verdict().await });
    let verdicts: Vec<_> = stream::iter(verdicts)
        .buffer_unordered(AT_A_TIME)
        .collect()
        .await;
    verdicts.into_iter().flatten().collect()
}
