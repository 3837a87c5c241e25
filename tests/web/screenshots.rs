//! Generates the screenshots of the documentation (`make screenshots`).

use std::fs;
use std::path::Path;

use leasehold_testbed::ReplicaSet;
use serde_json::json;

use crate::browser::Browser;
use crate::page::{cell, open_details, shows};
use crate::production::{Production, SILENT};
use crate::server::{Server, stage_of};

const BYTES_MAX: usize = 120_000;

async fn save(browser: &mut Browser, name: &str) {
    let shot = browser
        .call(
            "Page.captureScreenshot",
            json!({ "format": "webp", "quality": 80 }),
        )
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
    let set = ReplicaSet::builder().name("rs0").start().await;
    let stage = stage_of(set).in_database("shop");
    let _production = Production::of(&stage).await;
    let server = Server::start(&stage, &["--allow-actions", "--by", "olga"]).await;
    appearance(&mut browser, "light", 1280, 1300).await;
    browser.open(&server.origin()).await;
    shows(&mut browser, "mail-outbox", "state", "expired").await;
    shows(&mut browser, SILENT, "state", "silent").await;
    browser
        .until("document.querySelector('[data-only=unclaimed] b').textContent === '2'")
        .await;
    for name in ["mail-outbox", SILENT] {
        let notes = cell(name, "notes");
        let answered = format!("{notes}?.endsWith('; no candidate answers')");
        browser.until(&answered).await;
    }
    save(&mut browser, "web-light.webp").await;
    appearance(&mut browser, "light", 390, 844).await;
    browser
        .until("document.querySelector('#rows tr').offsetWidth < 390")
        .await;
    save(&mut browser, "web-phone.webp").await;
    appearance(&mut browser, "dark", 1280, 960).await;
    open_details(&mut browser, "orders").await;
    browser
        .until("document.querySelector('#history').hidden === false")
        .await;
    save(&mut browser, "web-dark.webp").await;
    browser.close().await;
}
