//! Goal: in a real browser, the page always indicates when its state is old, and shows each change
//! without delay.

use leasehold_testbed::DaemonTimings;
use mongodb::bson::{Bson, Document, doc};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::browser::Browser;
use crate::events::job;
use crate::look::size;
use crate::server::{LONG, Server, shared_stage};

/// Returns a JavaScript expression for the text in a column of a document's row.
pub(crate) fn cell(name: &str, column: &str) -> String {
    let name = json!(name);
    format!(
        "[...document.querySelectorAll('#rows tr')].find(row => row.dataset.name === {name})?.querySelector('td.{column}')?.textContent"
    )
}

pub(crate) fn row_class(name: &str) -> String {
    let name = json!(name);
    format!(
        "[...document.querySelectorAll('#rows tr')].find(row => row.dataset.name === {name})?.className"
    )
}

pub(crate) async fn shows(browser: &mut Browser, name: &str, column: &str, text: &str) {
    let expression = format!("{} === {}", cell(name, column), json!(text));
    browser.until(&expression).await;
}

pub(crate) async fn open_details(browser: &mut Browser, name: &str) {
    let name = json!(name);
    let click = format!(
        "[...document.querySelectorAll('#rows tr')].find(row => row.dataset.name === {name}).querySelector('button').click()"
    );
    browser.value(&click).await;
    browser
        .until("document.querySelector('#facts').children.length > 2")
        .await;
}

/// Clicks an action's button, and clicks again to confirm.
pub(crate) async fn act(browser: &mut Browser, action: &str) {
    browser
        .until(&format!(
            "document.querySelector('[data-action={action}]').disabled === false"
        ))
        .await;
    let click = format!("document.querySelector('[data-action={action}]').click()");
    browser.value(&click).await;
    let label = format!("document.querySelector('[data-action={action}]').textContent");
    let asked = browser.value(&label).await;
    assert!(asked.as_str().unwrap().ends_with(": confirm"), "{asked}");
    browser.value(&click).await;
}

#[tokio::test]
#[allow(clippy::print_stderr, reason = "the measured time is for humans")]
async fn a_handoff_is_seen_at_once_and_a_killed_leaders_silence_grows() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let b = stage.candidate("b").following("a", LONG).await;
    let c = stage.candidate("c").following("a", LONG).await;
    b.wait_stream().await;
    c.wait_stream().await;
    let lease = stage.lease();
    let server = Server::start(&stage, &["--allow-actions"]).await;
    browser.open(&server.origin()).await;
    shows(&mut browser, lease, "holder", "a").await;
    browser
        .until("document.querySelector('#connection').textContent === 'Live.'")
        .await;
    browser
        .until(&format!("{}?.endsWith(' ago')", cell(lease, "silence")))
        .await;

    // Records when the page shows another leader, on the same clock as the dates in the daemons'
    // writes.
    let watch = format!(
        "window.seen = null; new MutationObserver(() => {{ const holder = {}; \
         if (window.seen === null && holder !== 'a' && holder !== '–') window.seen = {{ at: Date.now(), holder }}; }}) \
         .observe(document.querySelector('#rows'), {{ subtree: true, childList: true, characterData: true }})",
        cell(lease, "holder")
    );
    browser.value(&watch).await;
    open_details(&mut browser, lease).await;
    let reason = "document.querySelector('#reason').value";
    browser.value(&format!("{reason} = 'patch day'")).await;
    act(&mut browser, "step_down").await;
    let seen = browser.until("window.seen").await;
    let holder = seen["holder"].as_str().unwrap().to_owned();
    assert!(holder == "b" || holder == "c", "{seen}");
    let acquired = "fetch('/document?name=' + encodeURIComponent(document.querySelector('#details-name').textContent)).then(a => a.json()).then(d => Date.parse(d.holder.since))";
    let acquired = browser.value(acquired).await.as_f64().unwrap();
    let delay = seen["at"].as_f64().unwrap() - acquired;
    eprintln!("the page showed the next leader {delay} ms after it had acquired the lease");
    // A generous limit for a busy machine. The delay is usually far below 200 ms.
    assert!((-50.0..2_000.0).contains(&delay), "{delay} ms");
    browser
        .until("document.querySelector('#outcome').textContent.includes(' leads with token 2')")
        .await;
    browser
        .until("document.querySelector('#history tbody').textContent.includes('requested')")
        .await;
    browser
        .until("document.querySelector('#operators tbody').textContent.includes('(web)patch day')")
        .await;
    assert_eq!(browser.value(reason).await, "", "of the next action");

    // Transfers the lease to a name that the user types.
    browser
        .value("document.querySelector('#to').value = 'a'")
        .await;
    act(&mut browser, "transfer").await;
    shows(&mut browser, lease, "holder", "a").await;
    browser
        .until("document.querySelector('#outcome').textContent.includes('a leads with token 3')")
        .await;
    browser.press("Escape", "").await;
    browser
        .until("document.querySelector('#details').open === false")
        .await;

    // No candidate takes over from the killed leader, so the time since its last renewal grows.
    b.kill();
    c.kill();
    a.kill();
    browser
        .until(&format!("{}?.startsWith('late')", row_class(lease)))
        .await;
    browser
        .until(&format!("{}?.startsWith('expired')", row_class(lease)))
        .await;
    browser
        .until(&format!(
            "document.querySelector('#alarm').textContent === '{lease}: expired, no candidate leads'"
        ))
        .await;
    let silence = format!("parseFloat({})", cell(lease, "silence"));
    let before = browser.value(&silence).await.as_f64().unwrap();
    browser.until(&format!("{silence} > {before}")).await;
    browser.value("document.querySelector('#kind').value = 'attention'; document.querySelector('#kind').dispatchEvent(new Event('input'))").await;
    browser
        .until("document.querySelector('#count').textContent === '1 of 1'")
        .await;
    assert_eq!(browser.problems, [""; 0]);
    browser.close().await;
}

#[tokio::test]
async fn renewals_of_a_lock_are_seen() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = shared_stage().await;
    let uri = stage.set().uri();
    let _reader = job(&stage, &uri, "reader", &["--shared"]);
    let server = Server::start(&stage, &[]).await;
    browser.open(&server.origin()).await;
    shows(&mut browser, "job", "holder", "reader").await;
    // The time since the last renewal grows until the next renewal resets it.
    for _ in 0..2 {
        browser.value("window.most = 0").await;
        let silence = cell("job", "silence");
        // The cell is empty while the page reloads the list.
        let falls = format!(
            "(() => {{ const now = parseFloat({silence}) || 0; const before = window.most; \
             window.most = Math.max(before, now); return now > 0 && now < before - 0.5; }})()"
        );
        browser.until(&falls).await;
        let text = browser.value(&silence).await;
        assert!(text.as_str().unwrap().ends_with(" ago"), "{text}");
    }

    // A lock counts as late if one of its holders is frozen, although its other holder renews.
    let frozen = job(&stage, &uri, "frozen", &["--shared"]);
    shows(&mut browser, "job", "holder", "reader and 1 more").await;
    let class = row_class("job");
    browser
        .until(&format!("!{class}?.startsWith('late')"))
        .await;
    let pid = i32::try_from(frozen.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
    browser.until(&format!("{class}?.startsWith('late')")).await;
    let silence = format!("parseFloat({})", cell("job", "silence"));
    browser.until(&format!("{silence} > 12")).await;
    assert_eq!(browser.problems, [""; 0]);
    browser.close().await;
}

#[tokio::test]
async fn a_roll_call_is_shown_and_a_standing_request_can_be_canceled() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = shared_stage().await.timings(DaemonTimings::DEFAULT);
    let a = stage.candidate("a").leading(LONG).await;
    let b = stage.candidate("<b>").following("a", LONG).await;
    b.wait_stream().await;
    let lease = stage.lease();
    let server = Server::start(&stage, &["--allow-actions"]).await;
    browser.open(&server.origin()).await;
    shows(&mut browser, lease, "holder", "a").await;
    open_details(&mut browser, lease).await;
    let cancel = "document.querySelector('[data-action=cancel]').disabled";
    assert_eq!(browser.value(cancel).await, true, "nothing is requested");
    browser
        .value("document.querySelector('[data-action=ask_candidates]').click()")
        .await;
    let outcome = "document.querySelector('#outcome').textContent";
    browser
        .until(&format!("{outcome} === '2 candidates answer: <b>, a'"))
        .await;
    let facts = "document.querySelector('#facts').textContent";
    browser
        .until(&format!("{facts}.includes('<b>, a (as of the roll call ')"))
        .await;
    let offered = "[...document.querySelectorAll('#candidates option')].map(one => one.value)";
    assert_eq!(browser.value(offered).await, json!(["<b>"]));

    // The frozen leader does not apply the request, and there is no other candidate.
    b.kill();
    a.stop();
    act(&mut browser, "step_down").await;
    // A request without an effect is not a success.
    browser
        .until("document.querySelector('#outcome').className === 'wary'")
        .await;
    act(&mut browser, "cancel").await;
    browser
        .until("document.querySelector('#outcome').className === 'good'")
        .await;
    browser
        .until(&format!("!{facts}.includes('Request')"))
        .await;
    browser.until(cancel).await;
    let document = stage.stored().get().await;
    assert_eq!(document.get("request"), Some(&Bson::Null));
    browser
        .until("document.querySelector('#operators tbody').textContent.includes('cancel')")
        .await;
    assert_eq!(browser.problems, [""; 0]);
    browser.close().await;
}

#[tokio::test]
async fn the_page_says_since_when_its_data_is_stale() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = shared_stage().await;
    let _a = stage.candidate("a").leading(LONG).await;
    let lease = stage.lease();
    let mut server = Server::start(&stage, &[]).await;
    browser.open(&server.origin()).await;
    shows(&mut browser, lease, "holder", "a").await;
    // Once a renewal has been seen, its age does not depend on the wall clock.
    browser
        .until(&format!(
            "/^[0-9.]+s ago$/.test({})",
            cell(lease, "silence")
        ))
        .await;
    let line = "document.querySelector('#connection').textContent";
    browser.until(&format!("{line} === 'Live.'")).await;
    server.child.kill().await.unwrap();
    browser
        .until(&format!("{line}.startsWith('Data is stale since ')"))
        .await;
    browser
        .until(&format!("{line}.includes('this server cannot be reached')"))
        .await;
    browser
        .until("document.body.classList.contains('old')")
        .await;
    browser
        .until("document.title === '(stale) leasehold'")
        .await;
    let label = "document.querySelector('[data-only=leases] span').textContent";
    assert_eq!(browser.value(label).await, "leases were held");
    // A document's details say why they show no data.
    let open = "document.querySelector('#rows .name button').click()";
    browser.value(open).await;
    let problem = "document.querySelector('#details-problem')";
    browser
        .until(&format!(
            "!{problem}.hidden && {problem}.textContent === 'No data: this server cannot be reached.'"
        ))
        .await;
    browser.press("Escape", "").await;
    // Without data, the page stops counting the time since the last renewal.
    let silence = browser.value(&cell(lease, "silence")).await;
    let unchanged = format!(
        "new Promise(done => setTimeout(() => done({}), 500))",
        cell(lease, "silence")
    );
    assert_eq!(browser.value(&unchanged).await, silence);
    browser.close().await;
}

/// Names that would do harm if the page did not show them as text.
const HOSTILE: [&str; 5] = [
    "<img src=x onerror=window.harmed=1>",
    "</script><script>window.harmed=1</script>",
    "\"'><svg onload=window.harmed=1>&amp;{{secret}}",
    "شركة abc אבג 123",
    "javascript:window.harmed=1",
];

#[tokio::test]
async fn hostile_names_and_identities_do_no_harm() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = shared_stage().await;
    let a = stage.candidate("a").leading(LONG).await;
    let database = stage.set().client().database(stage.database());
    let collection = database.collection::<Document>(stage.collection());
    let mut lease = collection.find_one(doc! {}).await.unwrap().unwrap();
    drop(a);
    let long = "w".repeat(253);
    let names = HOSTILE.iter().copied().chain([long.as_str()]);
    for name in names.clone() {
        let mut hostile = lease.clone();
        hostile.insert("_id", name);
        let holder = hostile.get_document_mut("holder").unwrap();
        holder.insert("identity", name);
        holder.insert("address", name);
        let mut ended = doc! { "identity": name, "reason": name, "token": 1_i64 };
        ended.insert("ended_at", mongodb::bson::DateTime::now());
        hostile.insert("history", vec![ended]);
        let action = doc! { "action": name, "by": name, "reason": name };
        hostile.insert("actions", vec![action]);
        collection.insert_one(hostile).await.unwrap();
    }
    collection
        .insert_one(doc! { "_id": "right\u{202e}to left", "x": 1 })
        .await
        .unwrap();
    lease.insert("_id", "damaged");
    lease.insert("holder", "x");
    collection.insert_one(lease).await.unwrap();
    let newer = doc! { "_id": "newer", "schema": 2, "kind": "lock" };
    collection.insert_one(newer).await.unwrap();
    let server = Server::start(&stage, &["--allow-actions"]).await;
    browser.open(&server.origin()).await;
    for name in names {
        shows(&mut browser, name, "holder", name).await;
        open_details(&mut browser, name).await;
        browser
            .until(&format!(
                "document.querySelector('#operators tbody').textContent.includes({})",
                json!(name)
            ))
            .await;
        let narrow = browser.value("document.querySelector('#details').scrollWidth <= document.querySelector('#details').clientWidth").await;
        assert_eq!(narrow, true, "{name} makes the dialog wider");
        browser.press("Escape", "").await;
        browser
            .until("document.querySelector('#details').open === false")
            .await;
    }
    // An unreadable lease or lock needs attention, and is not among the other documents.
    for (name, kind, note) in [
        (
            "damaged",
            "Lease",
            "unreadable lease: its holder is not a document",
        ),
        (
            "newer",
            "Lock",
            "unreadable lock: its schema 2 is newer than 1",
        ),
    ] {
        shows(&mut browser, name, "notes", note).await;
        open_details(&mut browser, name).await;
        let found = browser.value("document.querySelector('#details-kind').textContent + document.querySelector('#evidence').textContent").await;
        assert!(
            found
                .as_str()
                .unwrap()
                .starts_with(&format!("{kind}foreign; leasehold does not change ")),
            "{found}"
        );
        browser.press("Escape", "").await;
        browser
            .until("document.querySelector('#details').open === false")
            .await;
    }
    let others = "document.querySelector('#rows .group button').textContent";
    assert_eq!(browser.value(others).await, "Other documents (1)");
    browser
        .value("document.querySelector('#rows .group button').click()")
        .await;
    shows(
        &mut browser,
        "right?to left",
        "notes",
        "not a lease: it has no schema",
    )
    .await;
    assert_eq!(browser.value("window.harmed === undefined").await, true);
    let made = "document.querySelectorAll('#rows img, #rows svg, #rows script, dialog img, dialog svg').length";
    assert_eq!(browser.value(made).await, 0);
    for width in [390, 800, 1280] {
        size(&mut browser, width, 900).await;
        let fits = format!(
            "(() => {{ const max = (kind) => parseFloat(getComputedStyle(document.documentElement).getPropertyValue(`--${{kind}}-height`)); \
             return document.documentElement.scrollWidth <= {width} && [...document.querySelectorAll('#rows tr:not(.group)')] \
             .every((one) => one.offsetHeight <= max(one.classList.contains('gone') ? 'gone' : 'row')); }})()"
        );
        browser.until(&fits).await;
    }
    assert_eq!(browser.problems, [""; 0]);
    browser.close().await;
}

#[tokio::test]
async fn a_second_armed_action_has_the_whole_time_for_its_confirmation() {
    let Some(mut browser) = Browser::start().await else {
        return;
    };
    let stage = shared_stage().await;
    let _a = stage.candidate("a").leading(LONG).await;
    let server = Server::start(&stage, &["--allow-actions"]).await;
    browser.open(&server.origin()).await;
    shows(&mut browser, stage.lease(), "holder", "a").await;
    open_details(&mut browser, stage.lease()).await;
    // Arms one action, and 2 s later another action. Records how long the second action stays
    // armed.
    let watch = "window.stayed = null; \
        { const [first, second] = ['step_down', 'pause'].map((action) => document.querySelector(`[data-action=${action}]`)); \
          first.click(); \
          setTimeout(() => { second.click(); const armed = performance.now(); \
            new MutationObserver(() => { window.stayed ??= performance.now() - armed; }) \
              .observe(second, { attributes: true, attributeFilter: ['class'] }); }, 2000); }";
    browser.value(watch).await;
    let stayed = browser.until("window.stayed").await.as_f64().unwrap();
    assert!(stayed >= 4_900.0, "disarmed after {stayed} ms");
    browser.close().await;
}
