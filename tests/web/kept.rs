//! Goal: during a minimum hold after the work has ended, the page shows the holder as neither
//! expired nor renewing. The page shows the minimum hold only until it ends.

use mongodb::bson::{DateTime, Document, doc};

use crate::browser::Browser;
use crate::page::{cell, open_details, row_class, shows};
use crate::production::{ago, collection, entry, lock, with};
use crate::server::{Server, run, shared_stage};

#[tokio::test]
async fn a_minimum_hold_needs_no_attention() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = shared_stage().await;
    let uri = stage.set().uri();
    let once = ["lock", "nightly", "--identity=host", "--at-least=10m"];
    let once = [&once[..], &["--lease-duration=4s", "--", "true"]].concat();
    assert_eq!(run(stage.command(&uri, &once)).await.0, 0);
    let server = Server::start(&stage, &[]).await;
    browser.open(&server.origin()).await;
    shows(&mut browser, "nightly", "holder", "host").await;
    let kept = cell("nightly", "notes");
    browser
        .until(&format!("{kept}?.startsWith('kept until ')"))
        .await;
    // The entry is no longer renewed. A holder that is still working would count as expired after 4
    // s.
    browser.until("performance.now() > 6000").await;
    let class = browser.value(&row_class("nightly")).await;
    assert!(class.as_str().unwrap().starts_with("kept"), "{class}");
    browser.value("document.querySelector('#kind').value = 'attention'; document.querySelector('#kind').dispatchEvent(new Event('input'))").await;
    browser
        .until("document.querySelector('#count').textContent === '0 of 1'")
        .await;
    assert_eq!(browser.problems, [""; 0]);
    browser.close().await;
}

/// Returns a lock whose work ended at `over_at`, with a minimum hold of 10 minutes.
fn over(name: &str, identity: &str, over_at: DateTime) -> Document {
    let holder = entry(identity, "exclusive", Some(1), 20.0);
    let over = doc! { "at_least_ms": 600_000_i64, "over": true, "over_at": over_at };
    lock(name, 1, [vec![with(holder, over)], vec![]], &[])
}

#[tokio::test]
async fn a_lock_is_free_once_its_minimum_hold_has_passed() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = shared_stage().await;
    let (passed, lasts) = (ago(900.0), ago(300.0));
    let locks = collection(&stage);
    let both = [
        over("passed", "host-1", passed),
        over("lasts", "host-2", lasts),
    ];
    locks.insert_many(both).await.unwrap();
    // Both holds begin before the server starts.
    let server = Server::start(&stage, &[]).await;
    browser.open(&server.origin()).await;
    shows(&mut browser, "lasts", "state", "kept").await;
    let notes = cell("lasts", "notes");
    let until = lasts.timestamp_millis() + 600_000;
    let until = format!(
        "{notes}?.startsWith(`kept until ${{new Date({until}).toISOString().slice(11, 19)}} UTC (`)"
    );
    browser.until(&until).await;

    shows(&mut browser, "passed", "state", "free").await;
    for column in ["holder", "since", "silence"] {
        shows(&mut browser, "passed", column, "–").await;
    }
    let notes = browser.value(&cell("passed", "notes")).await;
    let notes = notes.as_str().unwrap();
    assert!(
        notes.starts_with("last held by host-1, ended 5m"),
        "{notes}"
    );
    let held = |text: &str| {
        format!("document.querySelector('[data-only=locks] b').textContent === '{text}'")
    };
    browser.until(&held("1/2")).await;
    open_details(&mut browser, "passed").await;
    browser
        .until("document.querySelector('#facts').textContent.startsWith('Statefree')")
        .await;
    browser
        .until("document.querySelector('#claims tbody').textContent.startsWith('endedhost-1')")
        .await;
    browser.press("Escape", "").await;

    // The minimum hold ends while the page is open.
    let ends = doc! { "$set": { "holders.0.over_at": ago(597.0) } };
    locks
        .update_one(doc! { "_id": "lasts" }, ends)
        .await
        .unwrap();
    shows(&mut browser, "lasts", "state", "free").await;
    browser.until(&held("0/2")).await;
    assert_eq!(browser.problems, [""; 0]);
    browser.close().await;
}
