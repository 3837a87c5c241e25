//! Goal: exactly one of three daemons leads, and every daemon names the leader in every output.

use leasehold_testbed::Daemon;
use leasehold_testbed::daemon::sample;
use mongodb::bson::Document;
use serde_json::{Value, json};

use crate::contest::{Contest, LONG, eventually};

#[tokio::test]
async fn i1_three_daemons_elect_one_and_all_name_it() {
    let contest = Contest::new("three").await;
    let daemons = ["a", "b", "c"].map(|identity| contest.candidate(identity).start());
    eventually("a candidate leads", async || {
        daemons.iter().any(Daemon::leads)
    })
    .await;
    for daemon in &daemons {
        daemon
            .wait_until(|status| status["holder"] != Value::Null, LONG)
            .await;
    }
    let document = contest.document().await;
    let holder = document.get_document("holder").unwrap();
    let token = document.get_i64("token").unwrap();
    assert_eq!(token, 1, "the first acquisition");
    assert_eq!(holder.get_i64("lease_duration_ms").unwrap(), 6_000);
    for daemon in &daemons {
        agrees(daemon, holder, token).await;
    }
    assert_eq!(daemons.iter().filter(|daemon| daemon.leads()).count(), 1);
}

async fn agrees(daemon: &Daemon, holder: &Document, token: i64) {
    let name = holder.get_str("identity").unwrap();
    let leads = daemon.identity() == name;
    let role = if leads { "leader" } else { "follower" };
    let mine = if leads { json!(token) } else { Value::Null };

    let file = daemon.status();
    let (code, mut http) = daemon.http_json("/status").await;
    assert_eq!(code, 200);
    for status in [&file, &http] {
        assert_eq!(status["lease"], "three", "{status}");
        assert_eq!(status["role"], role, "{status}");
        assert_eq!(status["leader"], leads, "{status}");
        assert_eq!(status["token"], mine, "{status}");
        let holder = &status["holder"];
        assert_eq!(
            (&holder["identity"], &holder["token"]),
            (&json!(name), &json!(token))
        );
        assert_eq!(status["identity"], daemon.identity());
        assert_eq!(status["valid_until_boottime_ns"].is_u64(), leads);
    }
    let id = http["store"]["set_id"].as_str().map(str::len);
    assert_eq!(id, Some(24), "the id from the set's initiation");
    http["store"].as_object_mut().unwrap().remove("set_id");
    assert_eq!(
        http["store"],
        json!({
            "kind": "replica_set", "set": "testbed", "database": "leasehold", "collection": "leases",
        })
    );

    daemon
        .wait_logged(r#""store":"replica set testbed""#, LONG)
        .await;
    let (code, body) = daemon.http_json("/leader").await;
    assert_eq!(code, if leads { 200 } else { 503 });
    assert_eq!((&body["leader"], &body["token"]), (&json!(leads), &mine));
    let (_, body) = daemon.http_json("/").await;
    assert_eq!(body, json!({ "name": name }));
    for path in ["/readyz", "/livez"] {
        assert_eq!(daemon.http(path).await.unwrap().0, 200, "{path}");
    }

    let (_, metrics) = daemon.http("/metrics").await.unwrap();
    let holder_info = format!("leasehold_holder_info{{identity=\"{name}\",lease=\"three\"}}");
    let leader = Some(if leads { 1.0 } else { 0.0 });
    for (series, value) in [
        ("leasehold_leader{lease=\"three\"}", leader),
        ("leader_election_master_status{name=\"three\"}", leader),
        ("leasehold_token{lease=\"three\"}", Some(token as f64)),
        (&holder_info, Some(1.0)),
    ] {
        assert_eq!(sample(&metrics, series), value, "{series}");
    }
}
