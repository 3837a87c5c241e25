//! Goal: a link opens the details of its lease, also after a login. The page reports if the linked
//! lease does not exist, or if a document is deleted while its details are open.

use mongodb::bson::doc;
use serde_json::json;

use crate::browser::Browser;
use crate::page::{act, shows};
use crate::production::collection;
use crate::server::{LONG, Server, shared_stage};
use crate::visitors::token;

#[tokio::test]
async fn a_link_opens_its_lease_after_the_login() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = shared_stage().await;
    let _a = stage.candidate("a").leading(LONG).await;
    let lease = stage.lease();
    let directory = tempfile::tempdir().unwrap();
    let path = token(directory.path(), "s3cret +&", 0o600);
    let flags = ["--allow-actions", "--token-file", path.to_str().unwrap()];
    let server = Server::start(&stage, &flags).await;
    browser.open(&format!("{}/#{lease}", server.origin())).await;
    let typed = "document.activeElement === document.querySelector('[name=token]')";
    for token in ["wrong", "s3cret +&"] {
        browser.until(typed).await;
        browser
            .call("Input.insertText", json!({ "text": token }))
            .await;
        browser.press("Enter", "\r").await;
        if token == "wrong" {
            browser
                .until("document.querySelector('#problem')?.textContent === 'Wrong token.'")
                .await;
        }
    }
    browser
        .until(&format!(
            "document.querySelector('#details')?.open && document.querySelector('#details-name').textContent === '{lease}'"
        ))
        .await;
    act(&mut browser, "pause").await;
    shows(&mut browser, lease, "state", "paused").await;
    browser.value("document.querySelector('#details').close(); document.querySelector('#leave button').click()").await;
    browser
        .until("document.querySelector('[name=token]') !== null")
        .await;
    browser.close().await;
}

#[tokio::test]
async fn a_missing_or_deleted_lease_is_reported() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = shared_stage().await;
    stage.candidate("a").leading(LONG).await.kill();
    let lease = stage.lease();
    let server = Server::start(&stage, &["--allow-actions"]).await;
    browser
        .open(&format!("{}/#nosuch%2F", server.origin()))
        .await;
    let missing = "document.querySelector('#missing').hidden ? '' : document.querySelector('#missing').textContent";
    browser
        .until(&format!(
            "({missing}) === 'No lease or lock is named nosuch/ (retired leases and pruned locks are not shown).'"
        ))
        .await;
    browser.value(&format!("location.hash = '#{lease}'")).await;
    browser
        .until("!document.querySelector('#actions').hidden")
        .await;
    assert_eq!(browser.value(missing).await, "");
    collection(&stage)
        .delete_one(doc! { "_id": lease })
        .await
        .unwrap();
    browser
        .until(
            "document.querySelector('#facts').textContent === 'It was retired, pruned or deleted.'",
        )
        .await;
    let sections = "[...document.querySelectorAll('dialog section, #actions, #evidence')].every((one) => one.hidden)";
    assert_eq!(browser.value(sections).await, true);
    browser.press("Escape", "").await;
    browser.until("location.hash === ''").await;
    assert_eq!(browser.value(missing).await, "");
    browser.close().await;
}
