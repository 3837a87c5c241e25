//! The page for humans.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use leasehold::admin::ReadyWhen;
use leasehold::election::{Role, Status};
use leasehold_testbed::{Launch, Process, Scratch, assert_contains, eventually, skip};

use crate::{Served, held_by, leader, serve, status};

#[test]
fn browsers_get_a_page() {
    let served = serve(leader(Duration::from_secs(60)), ReadyWhen::Connected);
    let accept = "accept: text/html,application/xml;q=0.9,*/*;q=0.8\r\n";
    let (code, head, body) = served.ask_with("GET /", accept, "");
    assert_eq!(code, 200);
    assert_contains(&head, "content-type: text/html; charset=utf-8");
    assert_contains(&head, "content-security-policy: default-src 'none'");
    let (_, nonce) = head.split_once("script-src 'nonce-").unwrap();
    let (nonce, _) = nonce.split_once("';").unwrap();
    assert_eq!(body.matches(&format!(" nonce=\"{nonce}\"")).count(), 2);
    assert!(!head.contains("unsafe"), "{head}");
    let (_, again, _) = served.ask_with("GET /", accept, "");
    assert!(!again.contains(nonce), "a nonce is used once");
    assert_contains(&body, ">Leader</p>");
    assert_contains(&body, "<dt>Token</dt><dd id=\"token\">7</dd>");
    assert!(body.contains("rs0, leasehold.leases"), "{body}");
}

/// The script of the page, run without a browser.
struct Shown {
    printed: PathBuf,
    _process: Process,
    _scratch: Scratch,
}

impl Shown {
    fn page_of(served: &Served) -> Option<Self> {
        if Command::new("node").arg("--version").output().is_err() {
            skip("node is not installed");
            return None;
        }
        let scratch = Scratch::new();
        let printed = scratch.path().join("printed");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http/page.mjs");
        let process = Launch::new("/bin/sh")
            .arguments(["-c", r#"exec node "$@" >&2"#, "sh"])
            .argument(script)
            .argument(served.address.to_string())
            .stderr(&printed)
            .start()
            .unwrap();
        Some(Self {
            printed,
            _process: process,
            _scratch: scratch,
        })
    }

    /// Waits until the newest text in the element `id` is this one.
    async fn shows(&self, id: &str, text: &str) {
        let prefix = format!("{id}: ");
        eventually(&format!("{id} is {text:?}"), async || {
            let printed = std::fs::read_to_string(&self.printed).unwrap_or_default();
            let mut newest = printed.lines().rev();
            newest.find_map(|line| line.strip_prefix(&prefix)) == Some(text)
        })
        .await;
    }
}

#[tokio::test]
async fn the_page_follows_the_events() {
    let served = serve(leader(Duration::from_secs(60)), ReadyWhen::Connected);
    let Some(page) = Shown::page_of(&served) else {
        return;
    };
    page.shows("role", "Leader").await;
    page.shows("token", "7").await;
    page.shows("connection", "Live.").await;
    served.status.send_replace(status(Role::Stopping));
    page.shows("role", "Stepping down").await;
    page.shows("token", "none").await;
    page.shows("holder", "nobody").await;
    served.status.send_replace(Status {
        holder: held_by("<b>other</b>", Duration::from_secs(60)),
        ..status(Role::Follower)
    });
    page.shows("role", "Follower").await;
    page.shows("holder", "<b>other</b>").await;
    drop(served);
    eventually("the page says that it is out of date", async || {
        let printed = std::fs::read_to_string(&page.printed).unwrap();
        let last = printed.lines().last().unwrap();
        last.starts_with("connection: Not up to date: ")
    })
    .await;
}

#[tokio::test]
async fn i4_the_page_of_a_frozen_daemon_says_not_leader_at_the_deadline() {
    let served = serve(leader(Duration::from_secs(5)), ReadyWhen::Connected);
    let Some(page) = Shown::page_of(&served) else {
        return;
    };
    page.shows("role", "Leader").await;
    let thaw = served.freeze();
    page.shows("role", "Not leader").await;
    page.shows("token", "none").await;
    drop(thaw);
    page.shows("role", "Follower").await;
}
