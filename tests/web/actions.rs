//! Goal: no other web page can act on a lease, and an action has no effect if the lease's token
//! changed after the page showed it. Each action is recorded with its author.

use mongodb::bson::{Bson, doc};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::server::{LONG, Server, action, eventually, shared_stage};
use crate::silent::insert_silent;

const ALLOWED: [&str; 3] = ["--allow-actions", "--by", "ops"];

#[tokio::test]
async fn each_action_has_its_effect_and_its_author() {
    let stage = shared_stage().await;
    let _a = stage.candidate("a").leading(LONG).await;
    let b = stage.candidate("b").following("a", LONG).await;
    b.wait_stream().await;
    let lease = stage.lease();
    let server = Server::start(&stage, &ALLOWED).await;
    let done = server.act(action(lease, "step_down", 1)).await;
    let done = done.expect(200, "b leads with token 2").json();
    assert_eq!(done["leader"], json!({ "identity": "b", "token": 2 }));
    let mut transfer = action(lease, "transfer", 2);
    transfer["to"] = json!("a");
    server
        .act(transfer)
        .await
        .expect(200, "a leads with token 3");
    server
        .act(action(lease, "pause", 3))
        .await
        .expect(200, "a stepped down");
    server
        .act(action(lease, "resume", 3))
        .await
        .expect(200, " leads with token 4");
    let document = stage.stored().get().await;
    let actions = document
        .get_array("actions")
        .unwrap()
        .iter()
        .filter_map(Bson::as_document);
    let recorded: Vec<_> = actions
        .map(|action| {
            let text = |key| action.get_str(key).unwrap().to_owned();
            assert_eq!(
                (text("by"), text("reason")),
                ("ops (web)".to_owned(), "a test".to_owned())
            );
            text("action")
        })
        .collect();
    assert_eq!(recorded, ["step_down", "transfer", "pause", "resume"]);
}

#[tokio::test]
async fn an_action_on_another_token_or_of_a_wrong_form_writes_nothing() {
    let stage = shared_stage().await;
    let _a = stage.candidate("a").leading(LONG).await;
    let lease = stage.lease();
    let server = Server::start(&stage, &ALLOWED).await;
    let old = server.act(action(lease, "step_down", 0)).await;
    old.expect(409, "the token is now 1, not 0; nothing written");
    let mut nobody = action(lease, "transfer", 1);
    nobody["to"] = json!("nobody");
    let refused = server.act(nobody).await;
    let refused = refused.expect(409, "nobody is not a candidate");
    assert!(!refused.body.contains("--"), "a flag: {refused:?}");
    let mut long = action(lease, "pause", 1);
    long["reason"] = json!("x".repeat(501));
    server.act(long).await.expect(400, "reason");
    server
        .act(action(lease, "cancel", 1))
        .await
        .expect(200, "no request to cancel");
    server
        .act(action(lease, "repair", 1))
        .await
        .expect(400, "expected step_down");
    server
        .act(action(lease, "ask_candidates", 1))
        .await
        .expect(200, "1 candidate answers: a");
    server
        .act(action("none", "ask_candidates", 1))
        .await
        .expect(502, "candidates not asked");
    server
        .act(action("none", "pause", 1))
        .await
        .expect(404, "no lease is named");
    let mut more = action(lease, "pause", 1);
    more["force"] = json!(true);
    server.act(more).await.expect(400, "force");
    assert_eq!(stage.stored().get().await.get("actions"), None);
    assert_eq!(stage.stored().holder().await.as_deref(), Some("a"));
}

#[tokio::test]
async fn actions_are_refused_from_elsewhere() {
    let stage = shared_stage().await;
    let _a = stage.candidate("a").leading(LONG).await;
    let lease = stage.lease();
    let server = Server::start(&stage, &ALLOWED).await;
    let (secret, origin, host) = (server.secret().await, server.origin(), server.host());
    let (page, own) = (("X-Leasehold-Page", &*secret), ("Origin", &*origin));
    let site = |site| ("Sec-Fetch-Site", site);
    let rebound = format!("rebound.example:{}", server.port);
    let rebound_origin = format!("http://{rebound}");
    let other_port = format!("http://127.0.0.1:{}", server.port - 1);
    let body = action(lease, "step_down", 1).to_string();
    let refused: [(&[(&str, &str)], u16); 8] = [
        (&[own, site("same-origin")], 403),
        (&[own, ("X-Leasehold-Page", "wrong")], 403),
        (&[page], 403),
        (&[page, ("Origin", "http://evil.example")], 403),
        (&[page, ("Origin", &other_port)], 403),
        (&[page, ("Origin", "null")], 403),
        (&[page, own, site("cross-site")], 403),
        (
            &[page, ("Origin", &rebound_origin), ("Host", &rebound)],
            421,
        ),
    ];
    for (headers, code) in refused {
        let answer = server.request("POST", "/actions", headers, &body).await;
        assert_eq!(answer.code, code, "{headers:?}: {answer:?}");
    }
    let other = ("Host", rebound.as_str());
    assert_eq!(server.request("GET", "/", &[other], "").await.code, 421);
    assert_eq!(stage.stored().get().await.get("actions"), None);
    let all = [page, own, site("same-origin"), ("Host", &host)];
    let body = action(lease, "pause", 1).to_string();
    let answer = server.request("POST", "/actions", &all, &body).await;
    answer.expect(200, "paused");
}

#[tokio::test]
async fn without_the_flag_the_page_is_read_only() {
    let stage = shared_stage().await;
    let _a = stage.candidate("a").leading(LONG).await;
    let lease = stage.lease();
    let server = Server::start(&stage, &[]).await;
    assert_eq!(server.secret().await, "");
    server
        .act(action(lease, "pause", 1))
        .await
        .expect(403, "read-only");
    assert_eq!(stage.stored().get().await.get("actions"), None);
}

#[tokio::test]
async fn an_action_counts_until_it_ends_even_if_the_browser_has_gone() {
    let stage = shared_stage().await;
    // The holder of each lease has gone, so an action waits until its timeout.
    let leases: Vec<_> = (0..16).map(|number| format!("gone-{number}")).collect();
    for lease in &leases {
        insert_silent(&stage, lease, doc! {}).await;
    }
    let flags = [&ALLOWED[..], &["--timeout", "60s"]].concat();
    let server = Server::start(&stage, &flags).await;
    let (secret, origin, host) = (server.secret().await, server.origin(), server.host());
    let headers = format!("Host: {host}\r\nOrigin: {origin}\r\nX-Leasehold-Page: {secret}");
    for lease in &leases {
        let body = action(lease, "step_down", 3).to_string();
        let length = body.len();
        let request = format!(
            "POST /actions HTTP/1.1\r\n{headers}\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        let mut browser = TcpStream::connect(&host).await.unwrap();
        browser.write_all(request.as_bytes()).await.unwrap();
        eventually("the action has begun", async || {
            server.has_logged(&format!("\"lease\":\"{lease}\""))
        })
        .await;
    }
    let full = server.act(action("gone-0", "ask_candidates", 3)).await;
    full.expect(429, "16 actions are under way");
}
