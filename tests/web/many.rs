//! Goal: in a browser, a list of a thousand leases is fast, and all leases can be found.

use mongodb::bson::doc;
use serde_json::json;

use crate::browser::Browser;
use crate::page::cell;
use crate::production::collection;
use crate::server::{Server, run, shared_stage};

#[tokio::test]
async fn a_thousand_leases_are_searched_sorted_and_reached_by_keyboard() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = shared_stage().await;
    many(&stage, 1_000).await;
    let server = Server::start(&stage, &[]).await;
    browser.open(&server.origin()).await;
    let count = "document.querySelector('#count').textContent";
    browser
        .until(&format!("{count} === '1000 documents'"))
        .await;
    let drawn = browser
        .value("document.querySelectorAll('#rows tr').length")
        .await;
    assert!(drawn.as_u64().unwrap() < 60, "{drawn} rows are drawn");
    let row_count = "document.querySelector('#documents').getAttribute('aria-rowcount')";
    assert_eq!(browser.value(row_count).await, "1001");
    browser
        .value("scrollTo(0, document.body.scrollHeight)")
        .await;
    browser.until(&cell("lease-999", "state")).await;
    browser
        .value("document.querySelector('th[data-sort=name] button').click(); scrollTo(0, 0)")
        .await;
    browser
        .until("document.querySelector('#rows tr').dataset.name === 'lease-999'")
        .await;
    let sorted = "document.querySelector('th[data-sort=name]').getAttribute('aria-sort')";
    assert_eq!(browser.value(sorted).await, "descending");
    browser.press("/", "/").await;
    browser
        .call("Input.insertText", json!({ "text": "lease-77" }))
        .await;
    browser.until(&format!("{count} === '11 of 1000'")).await;
    // A reload keeps the search and the order.
    browser
        .value("window.before = true; location.reload()")
        .await;
    browser
        .until(&format!("!window.before && {count} === '11 of 1000'"))
        .await;
    assert_eq!(browser.value(sorted).await, "descending");
    browser
        .value("document.querySelector('#rows button').focus()")
        .await;
    browser.press("Enter", "\r").await;
    browser
        .until("document.querySelector('#details').open === true")
        .await;
    browser
        .until("document.querySelector('#details-name').textContent === 'lease-779'")
        .await;
    browser.press("Escape", "").await;
    // Headings do not count towards the limit of 300 drawn documents.
    let leases = collection(&stage);
    let most = doc! { "_id": { "$regex": "^lease-[3-9]..$" } };
    leases.delete_many(most).await.unwrap();
    leases.insert_one(doc! { "_id": "other" }).await.unwrap();
    browser
        .value("document.querySelector('#search').value = ''; document.querySelector('#search').dispatchEvent(new Event('input'))")
        .await;
    browser
        .until("document.querySelectorAll('#rows tr').length === 300 + 2")
        .await;
    assert_eq!(browser.problems, [""; 0]);
    browser.close().await;
}

/// Creates this number of free leases, `lease-0` and so on.
pub(crate) async fn many(stage: &leasehold_testbed::Stage, count: usize) {
    let uri = stage.set().uri();
    let created = ["repair", "lease-0", "--token-at-least", "1", "--create"];
    assert_eq!(run(stage.command(&uri, &created)).await.0, 0);
    let collection = collection(stage);
    let lease = collection.find_one(doc! {}).await.unwrap().unwrap();
    let leases = (1..count).map(|number| {
        let mut lease = lease.clone();
        lease.insert("_id", format!("lease-{number}"));
        lease
    });
    collection.insert_many(leases).await.unwrap();
}
