//! Generates the screenshots of the documentation (`make screenshots`).

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::browser::Browser;
use crate::page::many;
use crate::server::{LONG, Server, action, shared_stage};

const OTHERS: [(&str, &str); 4] = [
    ("billing", "billing-0"),
    ("nightly-export", "export-7f9c"),
    ("payouts", "payouts-0"),
    ("search-index", "search-1"),
];
const BYTES_MAX: usize = 150_000;

async fn save(browser: &mut Browser, name: &str) {
    let shot = browser
        .call("Page.captureScreenshot", json!({ "format": "png" }))
        .await;
    let encoded = shot["data"].as_str().unwrap();
    let image = decoded(encoded);
    assert!(image.len() < BYTES_MAX, "{name} has {} bytes", image.len());
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/images");
    fs::write(directory.join(name), image).unwrap();
}

fn decoded(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => u32::from(byte - b'A'),
        b'a'..=b'z' => u32::from(byte - b'a') + 26,
        b'0'..=b'9' => u32::from(byte - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        _ => 0,
    };
    let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
    let groups = text.as_bytes().chunks(4);
    let mut bytes: Vec<u8> = groups
        .flat_map(|group| {
            let bits = group.iter().fold(0, |bits, byte| bits << 6 | value(*byte));
            let [_, a, b, c] = bits.to_be_bytes();
            [a, b, c]
        })
        .collect();
    bytes.truncate(bytes.len() - padding);
    bytes
}

async fn appearance(browser: &mut Browser, scheme: &str, width: u32, height: u32) {
    let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
    browser.call("Emulation.setEmulatedMedia", media).await;
    let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
    browser
        .call("Emulation.setDeviceMetricsOverride", size)
        .await;
}

#[tokio::test]
#[ignore = "writes docs/images; make screenshots runs it"]
async fn of_the_page() {
    let mut browser = Browser::start().await.expect("chromium");
    let stage = shared_stage().await;
    let uri = stage.set().uri();
    let a = stage.candidate("orders-1").leading(LONG).await;
    let b = stage
        .candidate("orders-2")
        .following("orders-1", LONG)
        .await;
    b.wait_stream().await;
    let mut others = Vec::new();
    for (lease, identity) in OTHERS {
        let other = stage.candidate(identity).lease(lease);
        others.push(other.leading(LONG).await);
    }
    let lock = |identity: &str| {
        let flag = format!("--identity={identity}");
        let arguments = ["lock", "migrations", &flag, "--", "sleep", "600"];
        stage.command(&uri, &arguments).spawn().unwrap()
    };
    let server = Server::start(&stage, &["--allow-actions", "--by", "olga"]).await;
    let mut events = server.events().await;
    let _first = lock("deploy-12");
    events
        .until("held", |events, _| {
            let lock = events.documents.get("migrations");
            lock.is_some_and(|lock| lock["holders_total"] == 1)
        })
        .await;
    let _second = lock("deploy-13");
    events
        .until("queued", |events, _| {
            events.documents["migrations"]["queue_total"] == 1
        })
        .await;
    let lease = stage.lease();
    for token in 1..=3 {
        let mut asked = action(lease, "step_down", token);
        asked["reason"] = json!("node maintenance");
        server.act(asked).await.expect(200, "leads");
    }
    let mut paused = action("payouts", "pause", 1);
    paused["reason"] = json!("freeze until Monday");
    server.act(paused).await.expect(200, "paused");
    others[1].kill();
    appearance(&mut browser, "light", 1200, 380).await;
    browser.open(&server.origin()).await;
    browser
        .until("document.querySelectorAll('#rows tr.expired').length === 1")
        .await;
    save(&mut browser, "web-light.png").await;
    let details = "[...document.querySelectorAll('#rows button')].find(button => button.textContent === 'orders').click()";
    browser.value(details).await;
    browser
        .until("document.querySelector('#history').hidden === false")
        .await;
    appearance(&mut browser, "dark", 1200, 860).await;
    save(&mut browser, "web-dark.png").await;
    browser.close().await;
    drop((a, b, others));

    let stage = shared_stage().await;
    many(&stage, 1_000).await;
    let server = Server::start(&stage, &[]).await;
    let mut browser = Browser::start().await.expect("chromium");
    appearance(&mut browser, "light", 1200, 620).await;
    browser.open(&server.origin()).await;
    browser
        .until("document.querySelector('#count').textContent === '1000 documents'")
        .await;
    save(&mut browser, "web-1000.png").await;
    browser.close().await;
}
