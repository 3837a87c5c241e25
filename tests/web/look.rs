//! Goal: a visitor sees at once what needs attention. A stopped holder never looks alive, leases
//! and locks look different, and a phone shows everything.

use leasehold_testbed::{DaemonTimings, ReplicaSet};
use mongodb::bson::{DateTime, doc};
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::page::{cell, open_details, row_class, shows};
use crate::production::{LONG_NAME, Production, SILENT};
use crate::server::{LONG, Server, shared_stage, stage_of};

/// Returns a JavaScript expression for the number on a button of the summary.
fn counted(only: &str) -> String {
    format!("document.querySelector('[data-only={only}] b').textContent")
}

pub(crate) async fn size(browser: &mut Browser, width: u32, height: u32) {
    let size =
        json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
    browser
        .call("Emulation.setDeviceMetricsOverride", size)
        .await;
}

#[tokio::test]
async fn a_phone_scrolls_in_one_direction_only() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = shared_stage().await;
    let _production = Production::of(&stage).await;
    let server = Server::start(&stage, &["--allow-actions"]).await;
    size(&mut browser, 390, 844).await;
    browser.open(&server.origin()).await;
    browser
        .until("document.querySelector('#count').textContent === '16 documents'")
        .await;
    // Three of the four groups have rows. The browser's own search finds rows outside the view.
    browser
        .until("document.querySelectorAll('#rows tr').length === 15 + 4")
        .await;
    browser
        .value("document.querySelector('#legend').open = true")
        .await;
    let fits = "document.documentElement.scrollWidth <= 390 && \
        [...document.querySelectorAll('main *')].every((one) => one.getBoundingClientRect().right <= 391)";
    assert_eq!(browser.value(fits).await, true, "the list is wider");
    let cards = "[...document.querySelectorAll('#rows tr:not(.group)')].every((row) => row.offsetWidth > 340)";
    assert_eq!(browser.value(cards).await, true, "a row is not a card");
    // No part of a card extends beyond the card.
    let inside = "[...document.querySelectorAll('#rows tr:not(.group)')].flatMap((row) => [...row.children].map((cell) => \
        [cell.getBoundingClientRect().bottom, row.getBoundingClientRect().bottom])).filter(([a, b]) => a > b)";
    assert_eq!(browser.value(inside).await, json!([]));
    let lower = "document.querySelector('#rows .calm')?.offsetHeight < parseFloat(getComputedStyle(document.documentElement).getPropertyValue('--row-height')) - 10";
    browser
        .value("scrollTo(0, document.body.scrollHeight)")
        .await;
    browser.until(lower).await;
    let hidden = "[...document.querySelectorAll('#rows .calm .notes')].filter((one) => one.textContent && one.offsetHeight < 15).length";
    assert_eq!(browser.value(hidden).await, 0, "a note is hidden");
    browser.value("scrollTo(0, 0)").await;
    browser
        .until("document.querySelector('#rows .group')?.textContent.startsWith('Attention')")
        .await;
    // iOS zooms into fields with smaller text.
    let fields = "[...document.querySelectorAll('input, select')].every((one) => parseFloat(getComputedStyle(one).fontSize) >= 16)";
    assert_eq!(browser.value(fields).await, true);
    // The whole card opens the details, and the buttons are large enough for a finger.
    let small = "[...document.querySelectorAll('#summary button, #fold, #search, #legend summary')].filter((one) => one.offsetHeight < 44).length";
    assert_eq!(browser.value(small).await, 0);
    browser
        .value("document.querySelector('#rows tr:not(.group) .notes').click()")
        .await;
    browser
        .until("document.querySelector('#details').open === true")
        .await;
    browser.press("Escape", "").await;
    for name in [LONG_NAME, SILENT, "db-migrations", "video-transcode"] {
        browser
            .value(&format!(
                "document.querySelector('#search').value = {name:?}; document.querySelector('#search').dispatchEvent(new Event('input'))"
            ))
            .await;
        let text = browser.until(&cell(name, "name")).await;
        let kinds = ["lease", "lock"].map(|kind| json!(format!("{kind} {name}")));
        assert!(kinds.contains(&text), "{text}, for a screen reader");
        open_details(&mut browser, name).await;
        browser
            .until("!document.querySelector('#span-details').hidden")
            .await;
        let fits = "document.querySelector('#details').scrollWidth <= document.querySelector('#details').clientWidth \
            && document.querySelector('#details').offsetWidth <= 390";
        assert_eq!(browser.value(fits).await, true, "{name}");
        browser.press("Escape", "").await;
        browser
            .until("document.querySelector('#details').open === false")
            .await;
    }
    assert_eq!(browser.problems, [""; 0]);
    browser.close().await;
}

#[tokio::test]
async fn the_summary_counts_and_filters() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = shared_stage().await;
    let _production = Production::of(&stage).await;
    let server = Server::start(&stage, &[]).await;
    size(&mut browser, 1280, 1600).await;
    browser.open(&server.origin()).await;
    // By now, the short lease of mail-outbox has expired.
    shows(&mut browser, "mail-outbox", "state", "expired").await;
    for (only, number) in [
        ("leases", "6/10"),
        ("locks", "4/5"),
        ("silent", "2"),
        ("unclaimed", "2"),
        ("paused", "1"),
        ("waiting", "2"),
    ] {
        browser
            .until(&format!("{} === {number:?}", counted(only)))
            .await;
    }
    let labels =
        "[...document.querySelectorAll('#summary [data-only] span')].map((it) => it.textContent)";
    let labels = browser.value(labels).await;
    assert!(
        labels
            .as_array()
            .is_some_and(|it| it.contains(&json!("not acquired"))),
        "{labels}"
    );
    let groups = "[...document.querySelectorAll('#rows .group')].map((group) => group.textContent)";
    // On a busy machine, a renewal may be late.
    let grouped = json!([
        "Attention (4)",
        "Leases (6)",
        "Locks (5)",
        "Other documents (1)"
    ]);
    browser
        .until(&format!(
            "JSON.stringify({groups}) === JSON.stringify({grouped})"
        ))
        .await;
    let first = "[...document.querySelectorAll('#rows tr:not(.group)')].slice(0, 4).map((row) => row.dataset.name)";
    let worst = ["mail-outbox", "recommendations", SILENT, "ledger-export"];
    assert_eq!(browser.value(first).await, json!(worst), "the worst first");
    // The group of other documents has one row until it is opened.
    assert_eq!(
        browser.value(&row_class("schema-version")).await,
        Value::Null
    );
    let others = "document.querySelector('#rows .group button')";
    browser.value(&format!("{others}.click()")).await;
    browser.until(&row_class("schema-version")).await;
    browser
        .until(&format!("{others}.ariaExpanded === 'true'"))
        .await;
    browser.value(&format!("{others}.click()")).await;
    browser
        .until(&format!("{others}.ariaExpanded === 'false'"))
        .await;
    let headers = "[...document.querySelectorAll('#rows [role=rowheader]')].every((cell) => cell.className === 'name')";
    assert_eq!(browser.value(headers).await, true);
    let best = "document.querySelector('[data-sort=state] button').click()";
    browser.value(best).await;
    browser
        .until("document.querySelector('[data-sort=state]').getAttribute('aria-sort') === 'descending'")
        .await;
    assert_eq!(browser.value(first).await, json!(worst));
    browser
        .value("document.querySelector('[data-sort=name] button').click()")
        .await;
    assert_eq!(
        browser.value("document.title").await,
        "(3) leasehold",
        "the title counts each silent or unclaimed document once"
    );
    browser
        .value("document.querySelector('[data-only=silent]').click()")
        .await;
    browser.until("location.hash === '#?only=silent'").await;
    browser
        .until("document.querySelector('#count').textContent === '2 of 16'")
        .await;
    let pressed = "document.querySelector('[data-only=silent]').getAttribute('aria-pressed')";
    assert_eq!(browser.value(pressed).await, "true");
    // Set further filters in addition to the pressed button, because `#clear` must clear all of
    // them.
    browser.value("document.querySelector('#kind').value = 'alone'; document.querySelector('#search').value = 'orders'").await;
    browser
        .until("!document.querySelector('#nothing').hidden")
        .await;
    browser
        .value("document.querySelector('#clear').click()")
        .await;
    browser
        .until("document.querySelector('#count').textContent === '16 documents'")
        .await;

    // The list and the details show the evidence that a leader has expired.
    let class = browser.value(&row_class(SILENT)).await;
    assert!(class.as_str().unwrap().starts_with("silent"), "{class}");
    let note = browser.value(&cell(SILENT, "notes")).await;
    let note = note.as_str().unwrap().to_owned();
    assert!(note.starts_with("last renewal 6m"), "{note}");
    assert!(
        note.contains(" ago by the holder's clock; others take over after watching for "),
        "{note}"
    );
    open_details(&mut browser, SILENT).await;
    browser
        .until(
            "document.querySelector('#evidence').textContent.startsWith('silent; last renewal 6m')",
        )
        .await;
    browser.press("Escape", "").await;
    shows(
        &mut browser,
        "recommendations",
        "notes",
        "no candidate acquires it",
    )
    .await;

    let class = browser.value(&row_class("recommendations")).await;
    assert!(class.as_str().unwrap().contains(" unclaimed "), "{class}");
    let note = browser.value(&cell("ledger-export", "notes")).await;
    assert_eq!(note, "paused by olga@ops1 1h12m ago: freeze until Monday");

    // For an expired holder, the time held ends at the last renewal.
    let held = browser.value(&cell("mail-outbox", "since")).await;
    assert!(held.as_str().unwrap().starts_with("3h56m"), "{held}");
    let success = "last success 40m";
    let note = browser.value(&cell("nightly-report", "notes")).await;
    assert!(note.as_str().unwrap().contains(success), "{note}");

    // The timeline shows the former holders and the current holder, and has a label for screen
    // readers.
    let parts = "[...document.querySelectorAll('#rows tr')].find((row) => row.dataset.name === 'orders').querySelectorAll('.past .part').length";
    assert_eq!(browser.value(parts).await, 4);
    // The time before the first known holder is not shown as free.
    let before = "[...document.querySelectorAll('#rows tr')].find((row) => row.dataset.name === 'config-readers').querySelectorAll('.past .forgotten').length";
    assert_eq!(browser.value(before).await, 1);
    shows(&mut browser, "payments-eu", "notes", "no standby").await;
    let label = "[...document.querySelectorAll('#rows tr')].find((row) => row.dataset.name === 'orders').querySelector('.bar').ariaLabel";
    let label = browser.value(label).await;
    let label = label.as_str().unwrap();
    assert!(label.starts_with("orders-2 (token 9): since "), "{label}");
    assert!(
        label.contains("orders-0 (token 7): ") && label.contains(", ended: deadline"),
        "{label}"
    );
    assert_eq!(browser.problems, [""; 0]);
    browser.close().await;
}

#[tokio::test]
async fn a_leader_that_was_killed_before_does_not_look_alive() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = shared_stage().await.timings(DaemonTimings::DEFAULT);
    stage.candidate("a").leading(LONG).await.kill();
    let long_ago = DateTime::from_millis(DateTime::now().timestamp_millis() - 372_000);
    let stored = stage.stored();
    stored.set(doc! { "holder.renewed_at": long_ago }).await;
    let server = Server::start(&stage, &[]).await;
    browser.open(&server.origin()).await;
    // The server has not yet watched for a whole lease duration.
    shows(&mut browser, stage.lease(), "state", "silent").await;
    let renewed = browser.value(&cell(stage.lease(), "silence")).await;
    assert!(renewed.as_str().unwrap().starts_with("~6m"), "{renewed}");
    open_details(&mut browser, stage.lease()).await;
    let commands = "document.querySelector('#terminal ul').textContent";
    let text = browser.value(commands).await;
    assert!(!text.as_str().unwrap().contains("retire"), "{text}");
    shows(&mut browser, stage.lease(), "state", "expired").await;
    browser
        .until(&format!("{commands}.includes('leasehold leases retire ')"))
        .await;
    browser
        .until("document.querySelector('#evidence').textContent.endsWith('start a candidate, or check the log of a candidate')")
        .await;
    browser
        .until("document.querySelector('#facts').textContent.includes(', until its last renewal')")
        .await;
    browser.close().await;
}

/// Reads the time of day that follows `words` in an element. Returns the milliseconds from this
/// time until `instant`, as measured by the page.
async fn after(browser: &mut Browser, id: &str, words: &str, instant: f64) -> f64 {
    let time = format!(
        "(document.querySelector('#{id}').textContent.match(/{words} (..:..:..) UTC/) || [])[1]"
    );
    let time = browser.until(&time).await;
    let time = time.as_str().unwrap().to_owned();
    let midnight = browser.value("new Date().setUTCHours(0, 0, 0, 0)").await;
    let [hours, minutes, seconds] = [0, 3, 6].map(|at| time[at..at + 2].parse::<f64>().unwrap());
    let of_day = 1_000.0 * (3_600.0 * hours + 60.0 * minutes + seconds);
    (instant - midnight.as_f64().unwrap() - of_day).rem_euclid(86_400_000.0)
}

#[tokio::test]
async fn an_outage_begins_at_the_last_answer_of_a_server_that_hangs() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = stage_of(ReplicaSet::builder().members(1).start().await);
    let _a = stage.candidate("a").leading(LONG).await;
    let server = Server::start(&stage, &["--allow-actions"]).await;
    browser.open(&server.origin()).await;
    shows(&mut browser, stage.lease(), "state", "held").await;
    open_details(&mut browser, stage.lease()).await;
    let offered = "document.querySelectorAll('#actions button:enabled').length";
    browser.until(&format!("{offered} > 2")).await;
    let line = "document.querySelector('#connection').textContent";
    browser.until(&format!("{line} === 'Live.'")).await;
    stage.set().stop(0);
    let stopped = browser.value("Date.now()").await.as_f64().unwrap();
    browser
        .until(&format!("{line}.startsWith('Data is stale since ')"))
        .await;
    let noticed = browser.value("Date.now()").await.as_f64().unwrap() - stopped;
    // Usually 3 to 7 s; the limit allows for a busy machine.
    assert!(noticed < 12_000.0, "{noticed} ms");
    for pause in [0, 12] {
        tokio::time::sleep(std::time::Duration::from_secs(pause)).await;
        // The page shows whole seconds, and the last answer is at most 2 s older than the stop.
        for (id, words) in [("connection", "since"), ("outage", "as of")] {
            let before = after(&mut browser, id, words, stopped + 1_000.0).await;
            assert!((0.0..6_000.0).contains(&before), "{id}: {before} ms");
        }
    }
    let state = browser.value(&cell(stage.lease(), "state")).await;
    assert_eq!(state, "was held");
    assert_eq!(browser.value(offered).await, 0, "an action would fail");
    // The age of the last renewal before the outage is neither evidence that a holder is gone, nor
    // that it still holds the lease.
    let watch = format!(
        "window.wrong = []; new MutationObserver(() => {{ const found = {} + {}; if (/^silent|^held unseen.*~([2-9]|\\d\\d)/.test(found) \
         && !document.body.classList.contains('old')) window.wrong.push(found); }}) \
         .observe(document.body, {{ subtree: true, attributes: true, attributeFilter: ['class'] }})",
        row_class(stage.lease()),
        cell(stage.lease(), "renewed")
    );
    browser.value(&watch).await;
    stage.set().cont(0);
    browser
        .until(
            "document.querySelector('#outage').textContent.startsWith('There was no data from ')",
        )
        .await;
    browser
        .until(&format!(
            "/^held (?!unseen)/.test({})",
            row_class(stage.lease())
        ))
        .await;
    assert_eq!(browser.value("window.wrong").await, json!([]));
    assert_eq!(browser.problems, [""; 0]);
    browser.close().await;
}

#[tokio::test]
async fn without_any_data_nothing_is_counted() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = shared_stage().await;
    let uri = "mongodb://127.0.0.1:1/?replicaSet=none";
    let server = Server::start_with(&stage, uri, &[]).await;
    browser.open(&server.origin()).await;
    browser
        .until("document.title === '(no data) leasehold'")
        .await;
    let counts = "[...document.querySelectorAll('#summary b, #count')].map((one) => one.textContent).join('')";
    assert_eq!(browser.value(counts).await, "–".repeat(6));
    browser.close().await;
}

#[tokio::test]
async fn after_an_outage_a_holder_is_green_only_once_its_renewal_was_seen() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = stage_of(ReplicaSet::start().await);
    let (proxy, _) = stage.proxied();
    let a = stage.candidate("a").leading(LONG).await;
    let lease = stage.lease();
    let uri = stage.set().proxied_uri(&proxy);
    let server = Server::start_with(&stage, &uri, &[]).await;
    browser.open(&server.origin()).await;
    shows(&mut browser, lease, "state", "held").await;
    proxy.cut();
    browser
        .until(&format!("{}?.startsWith('was ')", cell(lease, "state")))
        .await;
    let line = "document.querySelector('#connection').textContent";
    browser
        .until(&format!("{line}.startsWith('Data is stale since ')"))
        .await;
    browser
        .until("document.querySelector('#outage').textContent.startsWith('All states below are as of ')")
        .await;
    // The leader renews for a while before it is killed.
    tokio::time::sleep(DaemonTimings::DEMO.lease_duration).await;
    a.kill();
    // The last renewal becomes too old to count as recent.
    tokio::time::sleep(DaemonTimings::DEMO.lease_duration / 2).await;
    let watch = format!(
        "window.green = []; new MutationObserver(() => {{ const found = {}; if (/^held|^late (?!unseen)/.test(found) \
         && !document.body.classList.contains('old')) window.green.push(found); }}) \
         .observe(document.body, {{ subtree: true, attributes: true, attributeFilter: ['class'] }})",
        row_class(lease)
    );
    browser.value(&watch).await;
    proxy.resume();
    browser
        .until(
            "document.querySelector('#outage').textContent.startsWith('There was no data from ')",
        )
        .await;
    shows(&mut browser, lease, "state", "expired").await;
    assert_eq!(browser.value("window.green").await, Value::Array(vec![]));
    assert_eq!(browser.problems, [""; 0]);
    browser.close().await;
}

#[tokio::test]
async fn after_a_machine_slept_old_states_are_not_live_and_keep_their_date() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = shared_stage().await;
    let _a = stage.candidate("a").leading(LONG).await;
    let mut server = Server::start(&stage, &[]).await;
    browser.open(&server.origin()).await;
    shows(&mut browser, stage.lease(), "state", "held").await;
    // While a machine sleeps, `performance.now()` stops and `Date.now()` does not.
    let sleep = "(() => { const now = Date.now; Date.now = () => now() + 3_600_000; })()";
    browser.value(sleep).await;
    let note = "document.querySelector('#outage').textContent";
    browser
        .until(&format!("{note}.startsWith('There was no data from ')"))
        .await;
    server.child.kill().await.unwrap();
    let line = "document.querySelector('#connection').textContent";
    browser
        .until(&format!("{line}.startsWith('Data is stale since ')"))
        .await;
    let since = format!("{line}.split(' since ')[1].split(': ')[0]");
    let before = browser.value(&since).await;
    browser.value(sleep).await;
    browser
        .until("document.querySelector('#age').textContent.startsWith('1h')")
        .await;
    assert_eq!(browser.value(&since).await, before);
    browser.close().await;
}
