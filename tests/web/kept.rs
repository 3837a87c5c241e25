//! Goal: the page does not show a holder as expired or as renewing if its work has ended but its
//! minimum hold has not.

use crate::browser::Browser;
use crate::page::{cell, row_class, shows};
use crate::server::{Server, run, shared_stage};

#[tokio::test]
async fn a_place_that_is_kept_needs_no_attention() {
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
    // The entry is no longer renewed. A holder that still works would count as expired after 4 s.
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
