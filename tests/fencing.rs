//! Goal: the recipes in docs/fencing.md never accept a stale token, even in a transaction that was
//! in flight when the fence was raised. Method: copies the statements and the program from the
//! page, and runs them with a real replica set.

#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold_testbed::{ReplicaSet, SharedSet};
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::Result;
use mongodb::{ClientSession, Collection, Database};

static SET: SharedSet = SharedSet::new(ReplicaSet::builder);

fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/fencing.md");
    std::fs::read_to_string(page).unwrap()
}

/// Finds the only call to this function on the page. Returns the call's arguments, with TOKEN
/// replaced by `token`.
fn arguments(function: &str, token: i64) -> Vec<Document> {
    let page = page();
    let call = format!("{function}(");
    let mut calls = page.split(&call).skip(1);
    let call = calls.next().unwrap().split("\n```").next().unwrap();
    assert!(calls.next().is_none(), "one call of {function}");
    let list = call.trim_end().strip_suffix(')').unwrap();
    let list = list.replace("TOKEN", &format!(r#"{{"$numberLong": "{token}"}}"#));
    let list: Bson = serde_json::from_str(&format!("[{list}]")).unwrap();
    let documents = list.as_array().unwrap().iter();
    documents
        .map(|document| document.as_document().unwrap().clone())
        .collect()
}

async fn database(set: &ReplicaSet) -> Database {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let database = set.client().database(&format!("fencing_{number}"));
    let made = arguments("db.fences.insertOne", 0).remove(0);
    database
        .collection("fences")
        .insert_one(made)
        .await
        .unwrap();
    let effects = database.create_collection("effects");
    effects.await.unwrap();
    database
}

/// Runs the page's update of the fence. Returns true if the fence accepted the token.
async fn fence(session: &mut ClientSession, database: &Database, token: i64) -> Result<bool> {
    let call = arguments("db.fences.updateOne", token);
    let fences: Collection<Document> = database.collection("fences");
    let update = fences.update_one(call[0].clone(), call[1].clone());
    Ok(update.session(session).await?.matched_count == 1)
}

/// Begins a transaction, runs the page's update of the fence and inserts one effect. Aborts the
/// transaction if the token is stale.
async fn begin(set: &ReplicaSet, database: &Database, token: i64) -> Result<ClientSession> {
    let mut session = set.client().start_session().await?;
    session.start_transaction().await?;
    if fence(&mut session, database, token).await? {
        let effects: Collection<Document> = database.collection("effects");
        let effect = effects.insert_one(doc! { "by": token });
        effect.session(&mut session).await?;
    } else {
        session.abort_transaction().await?;
    }
    Ok(session)
}

async fn effects(database: &Database, token: i64) -> u64 {
    let effects: Collection<Document> = database.collection("effects");
    let by = effects.count_documents(doc! { "by": token });
    by.await.unwrap()
}

#[tokio::test]
async fn a_stale_token_has_no_effect_in_a_transaction() {
    let set = SET.get().await;
    let database = database(&set).await;
    for (token, accepted) in [(33, 1), (33, 2), (34, 1), (33, 2), (34, 2)] {
        let mut session = begin(&set, &database, token).await.unwrap();
        // An aborted transaction cannot be committed.
        let _ = session.commit_transaction().await;
        assert_eq!(effects(&database, token).await, accepted, "{token}");
    }
}

/// The old holder's transaction has already passed the fence when the new holder raises it. If this
/// transaction committed, the old holder would write after the new holder.
#[tokio::test]
async fn a_transaction_in_flight_does_not_commit_after_the_fence_was_raised() {
    let set = SET.get().await;
    let database = database(&set).await;
    let mut session = begin(&set, &database, 33).await.unwrap();
    session.commit_transaction().await.unwrap();

    let mut old = begin(&set, &database, 33).await.unwrap();
    // The new transaction gets a transient error, because it conflicts with the old transaction.
    let refused = begin(&set, &database, 34).await.err().unwrap();
    assert!(
        refused.contains_label("TransientTransactionError"),
        "{refused}"
    );
    // The new transaction can begin once the old transaction has ended.
    old.abort_transaction().await.unwrap();
    let mut new = begin(&set, &database, 34).await.unwrap();
    // Conversely, the old holder cannot pass the fence while the new transaction is in flight.
    let refused = begin(&set, &database, 33).await.err().unwrap();
    assert!(
        refused.contains_label("TransientTransactionError"),
        "{refused}"
    );
    new.commit_transaction().await.unwrap();
    begin(&set, &database, 33).await.unwrap();
    assert_eq!(effects(&database, 33).await, 1);
    assert_eq!(effects(&database, 34).await, 1);
}

#[tokio::test]
async fn a_single_document_refuses_a_stale_token() {
    let set = SET.get().await;
    let database = database(&set).await;
    let invoices: Collection<Document> = database.collection("invoices");
    let id = arguments("db.invoices.updateOne", 0)[0].get("_id").cloned();
    let made = doc! { "_id": id.unwrap(), "fence": 0_i64 };
    invoices.insert_one(made).await.unwrap();
    for (token, accepted) in [(33, true), (34, true), (33, false), (34, true)] {
        let call = arguments("db.invoices.updateOne", token);
        let update = invoices.update_one(call[0].clone(), call[1].clone());
        let matched = update.await.unwrap().matched_count;
        assert_eq!(matched == 1, accepted, "{token}");
    }
}

struct Receiver {
    program: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Receiver {
    fn start() -> Self {
        let page = page();
        let program = page.split("```python\n").nth(1).unwrap();
        let program = program.split("```").next().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let mut program = Command::new("python3")
            .args(["-c", program])
            .arg(directory.path().join("store"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the page's receiver needs python3");
        let mut line = String::new();
        let output = program.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        Self {
            program,
            port: line.trim().parse().unwrap(),
            _directory: directory,
        }
    }

    fn status(&self, header: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let head = "POST /invoices/2026-17/send HTTP/1.0\r\nContent-Length: 0\r\n";
        write!(stream, "{head}{header}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

#[test]
fn an_http_receiver_refuses_a_stale_token() {
    let receiver = Receiver::start();
    let sent = page();
    let header = sent.lines().find(|line| line.starts_with("Fencing-Token:"));
    let header = |token: u32| header.unwrap().replace("=34", &format!("={token}"));
    for (header, status) in [
        (header(33), "204"),
        (header(34), "204"),
        (header(33), "412"),
        (header(34), "204"),
        ("Fencing-Token: another=1".to_owned(), "204"),
        ("X-Nothing: 1".to_owned(), "428"),
        ("Fencing-Token: nightly-report=".to_owned(), "428"),
    ] {
        assert_eq!(receiver.status(&header), status, "{header}");
    }
}
