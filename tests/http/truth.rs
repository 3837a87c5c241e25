//! Tests that every answer is true at some instant during the request (I4).

use std::thread;
use std::time::Duration;

use leasehold::admin::ReadyWhen;
use leasehold::clock::{boot_now, wall_now};
use leasehold::election::{Role, Session, Status};
use leasehold::publish::StoreError;
use leasehold_testbed::assert_contains;

use crate::{held_by, leader, serve, status};

#[test]
fn i4_leader_returns_503_after_the_deadline_without_any_event() {
    let served = serve(leader(Duration::from_secs(3)), ReadyWhen::Connected);
    let (code, body) = served.get("/leader");
    assert_eq!(code, 200, "{body}");
    let value: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&value["leader"], &value["token"]),
        (&true.into(), &7.into())
    );
    assert!(value["valid_for_ms"].as_u64().unwrap() <= 3000);
    assert_eq!(served.get("/").1, "{\"name\":\"me\"}\n");

    let deadline = served.status.borrow().authority.unwrap().valid_until;
    while boot_now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
    let (code, body) = served.get("/leader");
    assert_eq!(code, 503);
    assert_eq!(
        body,
        "{\"leader\":false,\"token\":null,\"valid_for_ms\":null}\n"
    );
    assert_eq!(served.get("/").1, "{\"name\":\"\"}\n");
    let value: serde_json::Value = serde_json::from_str(&served.get("/status").1).unwrap();
    assert_eq!(
        (&value["role"], &value["leader"]),
        (&"follower".into(), &false.into())
    );
    let (code, metrics) = served.get("/metrics");
    assert_eq!(code, 200);
    assert_contains(&metrics, "leasehold_leader{lease=\"orders\"} 0\n");
}

#[test]
fn status_contains_the_mongodb_connection() {
    let served = serve(leader(Duration::from_secs(60)), ReadyWhen::Connected);
    let (code, head, body) = served.ask_with("GET /status", "", "");
    assert_eq!(code, 200);
    assert!(head.contains("content-type: application/json"), "{head}");
    assert!(head.contains("cache-control: no-store"), "{head}");
    let value: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(value["store"]["set"], "rs0");
    assert_eq!(value["store"]["database"], "leasehold");
    assert_eq!(value["store"]["collection"], "leases");
    assert_eq!(
        (&value["token"], &value["boot_id"]),
        (&7.into(), &"b1".into())
    );
}

#[test]
fn livez_and_readyz_report_liveness_and_readiness() {
    let served = serve(
        Status::initial(Session::from_bytes([1; 16]), boot_now()),
        ReadyWhen::Connected,
    );
    assert_eq!(served.get("/livez").0, 200);
    assert_eq!(served.get("/readyz").0, 503);
    served.status.send_replace(status(Role::Follower));
    assert_eq!(served.get("/readyz").0, 200);

    let served = serve(status(Role::Follower), ReadyWhen::Leader);
    assert_eq!(served.get("/readyz").0, 503);
    served.status.send_replace(leader(Duration::from_secs(60)));
    assert_eq!(served.get("/readyz").0, 200);
}

#[test]
fn readiness_shows_since_when_mongodb_fails() {
    let served = serve(status(Role::Follower), ReadyWhen::Connected);
    let connected = (200, "ok; connected to MongoDB\n".to_owned());
    assert_eq!(served.get("/readyz"), connected);
    let outage = Duration::from_secs(90);
    served.store_error.send_replace(Some(StoreError {
        message: "no primary".to_owned(),
        since: boot_now() - outage,
    }));
    let began = wall_now() - outage;
    let (code, body) = served.get("/readyz");
    assert_eq!(code, 200, "MongoDB was reached once");
    let date = body.strip_prefix("ok; MongoDB has been failing since ");
    let (date, rest) = date.and_then(|rest| rest.split_once(' ')).expect(&body);
    let date = humantime::parse_rfc3339(date).expect(date);
    let difference = date
        .duration_since(began)
        .unwrap_or_else(|error| error.duration());
    assert!(difference < Duration::from_secs(5), "{body}");
    let age = rest
        .strip_prefix("(1m3")
        .and_then(|rest| rest.strip_suffix("s ago): no primary\n"));
    assert!(age.is_some_and(|seconds| seconds < "5"), "{body}");
    served.store_error.send_replace(None);
    assert_eq!(served.get("/readyz"), connected);
}

#[test]
fn the_response_never_names_us_as_leader_without_authority() {
    let stopping = Status {
        holder: held_by("me", Duration::from_secs(60)),
        ..status(Role::Stopping)
    };
    let served = serve(stopping, ReadyWhen::Connected);
    assert_eq!(served.get("/").1, "{\"name\":\"\"}\n");
    assert!(!served.get("/metrics").1.contains("leasehold_holder_info{"));
    let follower = Status {
        holder: held_by("other", Duration::from_secs(60)),
        ..status(Role::Follower)
    };
    served.status.send_replace(follower);
    assert_eq!(served.get("/").1, "{\"name\":\"other\"}\n");
    let metrics = served.get("/metrics").1;
    let info = "leasehold_holder_info{identity=\"other\",lease=\"orders\"} 1\n";
    assert!(metrics.contains(info), "{metrics}");
}
