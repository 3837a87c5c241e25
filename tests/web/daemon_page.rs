//! Goal: the page of a daemon in a real browser shows its role as it changes, and authority for no
//! longer than it lasts.

use leasehold_testbed::daemon::{boottime_ns, nanos};
use leasehold_testbed::{Daemon, DaemonTimings};
use serde_json::json;

use crate::browser::Browser;
use crate::server::{LONG, shared_stage};

/// An identity that would do harm if it were not shown as text. Other daemons display it as it is.
const HOSTILE: &str =
    "</dd></script><img src=x onerror=window.harmed=1><script>window.harmed=1</script>&amp;\"'";

async fn open(browser: &mut Browser, daemon: &Daemon) {
    let address = format!("http://127.0.0.1:{}/", daemon.port());
    browser.open(&address).await;
    shows(browser, "connection", "Live.").await;
}

/// Waits until the element `id` shows this text.
async fn shows(browser: &mut Browser, id: &str, text: &str) {
    let (id, text) = (json!(id), json!(text));
    let expression = format!("document.getElementById({id}).textContent === {text}");
    browser.until(&expression).await;
}

#[tokio::test]
async fn a_follower_becomes_the_leader_on_its_page_as_it_happens() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = shared_stage().await.timings(DaemonTimings::DEFAULT);
    let a = stage.candidate("a").leading(LONG).await;
    let b = stage.candidate("b").following("a", LONG).await;
    b.wait_stream().await;
    open(&mut browser, &b).await;
    shows(&mut browser, "role", "Follower").await;
    shows(&mut browser, "holder", "a").await;
    shows(&mut browser, "token", "none").await;
    shows(&mut browser, "left", "–").await;
    // A load of the page again would show the next state too, but nothing would be live then.
    browser.value("window.loaded = 'once'").await;
    a.term();
    shows(&mut browser, "role", "Leader").await;
    shows(&mut browser, "holder", "b").await;
    shows(&mut browser, "token", "2").await;
    shows(&mut browser, "reason", "acquired").await;
    let left = "/^[0-9.]+ s$/.test(document.getElementById('left').textContent)";
    browser.until(left).await;
    assert_eq!(browser.value("document.title").await, "orders: leader");
    assert_eq!(browser.value("document.body.className").await, "leader");
    assert_eq!(browser.value("window.loaded").await, "once");
    let color = "getComputedStyle(document.getElementById('role')).color !== getComputedStyle(document.body).color";
    assert_eq!(browser.value(color).await, true, "the style applies");
    b.term();
    let line = "document.getElementById('connection').textContent";
    browser
        .until(&format!(
            "{line} === 'Not up to date: the daemon has stopped.'"
        ))
        .await;
    shows(&mut browser, "token", "none").await;
    browser.close().await;
}

#[tokio::test]
#[allow(clippy::print_stderr, reason = "the measured time is for humans")]
async fn i4_the_page_of_a_frozen_daemon_shows_a_leader_no_longer_than_its_authority_lasts() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let b = stage.candidate("b").following("a", LONG).await;
    b.wait_stream().await;
    open(&mut browser, &a).await;
    shows(&mut browser, "role", "Leader").await;
    // The page notes the instant at which it stops showing a leader, and its view of the connection.
    browser
        .value(
            "window.turned = null; new MutationObserver(() => { \
             const text = (id) => document.getElementById(id).textContent; \
             if (window.turned === null && text('role') !== 'Leader') window.turned = { \
             at: performance.now(), role: text('role'), token: text('token'), connection: text('connection') }; }) \
             .observe(document.getElementById('role'), { childList: true, characterData: true, subtree: true })",
        )
        .await;
    a.stop();
    // No authority of a renewal that was sent before lasts longer than this.
    let frozen = boottime_ns();
    let ends = frozen + nanos(DaemonTimings::DEMO.renew_deadline);
    let page_now = browser.value("performance.now()").await.as_f64().unwrap();
    let now = boottime_ns();
    let turned = browser.until("window.turned").await;
    let turned_ns = (turned["at"].as_f64().unwrap() - page_now) * 1e6 + now as f64;
    let late_ms = (turned_ns - ends as f64) / 1e6;
    eprintln!("the page showed no leader {late_ms:.0} ms after the last possible end");
    assert_eq!(turned["role"], "Not leader");
    assert_eq!(turned["token"], "none");
    // The connection to a frozen process stays open, so the page did not turn because it is lost.
    assert_eq!(turned["connection"], "Live.");
    // Generous, since the machine is shared; the page draws every 200 ms.
    assert!(late_ms < 5_000.0, "{late_ms} ms");
    b.wait_leads(LONG).await;
    shows(&mut browser, "holder", "not known").await;
    shows(&mut browser, "left", "–").await;
    assert_eq!(browser.value("document.title").await, "orders: not leader");
    shows(
        &mut browser,
        "connection",
        "Not up to date: the daemon does not respond.",
    )
    .await;
    a.cont();
    shows(&mut browser, "connection", "Live.").await;
    shows(&mut browser, "role", "Follower").await;
    shows(&mut browser, "holder", "b").await;
    browser.close().await;
}

#[tokio::test]
async fn a_hostile_identity_does_no_harm_on_the_pages_of_daemons() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = shared_stage().await.timings(DaemonTimings::DEFAULT);
    let a = stage.candidate(HOSTILE).leading(LONG).await;
    let b = stage.candidate("b").following(HOSTILE, LONG).await;
    for daemon in [&a, &b] {
        open(&mut browser, daemon).await;
        shows(&mut browser, "holder", HOSTILE).await;
        shows(&mut browser, "candidate", daemon.identity()).await;
        let made = "document.querySelectorAll('img, main script').length";
        assert_eq!(browser.value(made).await, 0);
        let harmed = browser.value("window.harmed === undefined").await;
        assert_eq!(harmed, true);
    }
    assert_eq!(browser.problems, [""; 0]);
    browser.close().await;
}
