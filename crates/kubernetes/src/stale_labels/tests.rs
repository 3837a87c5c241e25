//! Goal: verify the correction of other pods' labels. Method: a function acts as the API server.
//! The function answers lists and patches, and may change the state between two requests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tower::BoxError;
use tower::util::service_fn;

use super::*;
use crate::api::{Api, ApiRetry};
use crate::request::Pod;
use crate::retry::BACKOFF_MIN;
use leasehold_core::election::Role;
use leasehold_metrics::fixture;

type Answers = dyn FnMut(&Method) -> (u16, serde_json::Value) + Send;

fn token() -> Token {
    fixture::token(7)
}

fn leader() -> Status {
    fixture::leader(7, boot_now() + Duration::from_secs(3600))
}

fn pods(names: &[&str]) -> serde_json::Value {
    let items: Vec<_> = names
        .iter()
        .map(|name| json!({ "metadata": { "name": name, "uid": name, "resourceVersion": "1" } }))
        .collect();
    json!({ "items": items })
}

/// Returns the task and a log of its requests: `GET` or `PATCH`, and the pod's name.
fn others(
    status: watch::Receiver<Status>,
    answers: Box<Answers>,
) -> (StaleLabels, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (log, answers) = (Arc::clone(&asked), Arc::new(Mutex::new(answers)));
    let api = Api::over("https://api".to_owned(), move || {
        let (log, answers) = (Arc::clone(&log), Arc::clone(&answers));
        let server = service_fn(move |request: Request<Body>| {
            let pod = request.uri().path().rsplit('/').nth(1).unwrap_or_default();
            log.lock()
                .unwrap()
                .push(format!("{} {pod}", request.method()));
            let (status, body) = answers.lock().unwrap()(request.method());
            let body = Body::from(body.to_string().into_bytes());
            let answer = Response::builder().status(status).body(body).unwrap();
            async move { Ok::<_, BoxError>(answer) }
        });
        Ok(Client::new(server, "shop"))
    });
    let (who, metrics) = (fixture::who("me"), fixture::metrics(status.clone()));
    let pod = Pod::new("me", "shop", "me").unwrap();
    let requests = Arc::new(Requests::new(api, pod, "leasehold.dev", &who));
    let stale_labels = StaleLabels::new(requests, status, metrics).unwrap();
    (stale_labels, asked)
}

fn others_while_leading(answers: Box<Answers>) -> (StaleLabels, Arc<Mutex<Vec<String>>>) {
    others(watch::channel(leader()).1, answers)
}

#[tokio::test]
async fn each_other_pod_is_patched_and_the_list_made_again() {
    let mut lists = vec![pods(&["me"]), pods(&["a", "me", "b"])];
    let answers = move |method: &Method| match *method {
        Method::GET => (200, lists.pop().unwrap()),
        _ => (200, json!({})),
    };
    let (others, asked) = others_while_leading(Box::new(answers));
    others.round(token()).await.unwrap();
    let expected = ["GET shop", "PATCH a", "PATCH b", "GET shop"];
    assert_eq!(*asked.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_pod_that_changed_meanwhile_is_listed_again() {
    let newer = json!({ "details": { "causes": [{ "field": "metadata.uid" }] } });
    for (status, body) in [(404, json!({})), (409, json!({})), (422, newer)] {
        let mut lists = vec![pods(&[]), pods(&["a"]), pods(&["a"])];
        let mut patches = vec![200, status];
        let answers = move |method: &Method| match *method {
            Method::GET => (200, lists.pop().unwrap()),
            _ => (patches.pop().unwrap(), body.clone()),
        };
        let (others, asked) = others_while_leading(Box::new(answers));
        others.round(token()).await.unwrap();
        assert_eq!(asked.lock().unwrap().len(), 5, "{status}");
    }
}

#[tokio::test]
async fn a_refused_pod_ends_the_round_after_the_other_pods() {
    for status in [403, 422] {
        let mut patches = vec![200, status];
        let answers = move |method: &Method| match *method {
            Method::GET => (200, pods(&["a", "b"])),
            _ => (patches.pop().unwrap(), json!({})),
        };
        let (others, asked) = others_while_leading(Box::new(answers));
        let refused = others.round(token()).await.unwrap_err();
        assert_eq!(
            (refused.status, refused.retry),
            (Some(status), ApiRetry::Person)
        );
        let expected = ["GET shop", "PATCH a", "PATCH b"];
        assert_eq!(*asked.lock().unwrap(), expected, "no hot loop");
    }
}

#[tokio::test]
async fn after_losing_the_lease_no_further_pod_is_patched() {
    let (status, receiver) = watch::channel(leader());
    let answers = move |method: &Method| match *method {
        Method::GET => (200, pods(&["a", "b", "c"])),
        _ => {
            status.send_replace(fixture::status(Role::Follower));
            (200, json!({}))
        }
    };
    let (others, asked) = others(receiver, Box::new(answers));
    others.round(token()).await.unwrap();
    // Pod b was not patched, because b may have become the leader in the meantime.
    assert_eq!(*asked.lock().unwrap(), ["GET shop", "PATCH a"]);
}

#[tokio::test]
async fn labels_that_keep_changing_end_a_round() {
    let answers = move |method: &Method| match *method {
        Method::GET => (200, pods(&["a"])),
        _ => (409, json!({})),
    };
    let (others, asked) = others_while_leading(Box::new(answers));
    others.round(token()).await.unwrap_err();
    assert_eq!(asked.lock().unwrap().len(), 2 * LISTS_MAX);
}

#[tokio::test]
async fn a_list_without_pods_ends_a_round() {
    let (others, asked) = others_while_leading(Box::new(|_| (200, json!({ "items": null }))));
    others.round(token()).await.unwrap();
    assert_eq!(*asked.lock().unwrap(), ["GET shop"]);
}

#[tokio::test]
async fn a_pod_whose_name_makes_no_url_is_a_failure_and_no_panic() {
    for name in ["a b", "a\n", "é", "..", ""] {
        let (others, asked) = others_while_leading(Box::new(move |_| (200, pods(&[name]))));
        others.round(token()).await.unwrap_err();
        assert_eq!(*asked.lock().unwrap(), ["GET shop"], "{name:?}");
    }
}

#[test]
fn a_pause_that_is_shorter_than_the_backoff_does_not_replace_it() {
    let mut rounds = Rounds::default();
    let asked = ApiError {
        retry: ApiRetry::After(Duration::from_secs(1)),
        ..ApiError::NO_ANSWER
    };
    let start = BootTime::from_nanos(0);
    assert_eq!(rounds.due(Some(token()), start), Some(start));
    let waits = [(); 6].map(|()| {
        rounds.failed(&asked, start, 0);
        let next = rounds.due(Some(token()), start).unwrap();
        next.since(start).as_millis()
    });
    assert_eq!(waits, [1000, 1000, 1000, 2000, 4000, 5000]);
}

#[test]
fn a_leadership_has_two_rounds_and_another_one_more() {
    let at = |seconds| BootTime::from_nanos(0) + Duration::from_secs(seconds);
    let mut rounds = Rounds::default();
    assert_eq!(rounds.due(None, at(1)), None);
    assert_eq!(rounds.due(Some(token()), at(2)), Some(at(2)));
    rounds.failed(&ApiError::NO_ANSWER, at(2), 0);
    assert_eq!(rounds.due(Some(token()), at(2)), Some(at(2) + BACKOFF_MIN));
    rounds.succeeded(at(3));
    assert_eq!(rounds.due(Some(token()), at(3)), Some(at(3) + LANDS_WITHIN));
    assert_eq!(
        rounds.due(None, at(80)),
        None,
        "the candidate does not lead"
    );
    rounds.succeeded(at(81));
    assert_eq!(rounds.due(Some(token()), at(82)), None);
    let next = token().next();
    assert_eq!(rounds.due(next, at(90)), Some(at(90)));
    let forbidden = ApiError {
        retry: ApiRetry::Person,
        ..ApiError::NO_ANSWER
    };
    rounds.failed(&forbidden, at(90), 0);
    assert_eq!(rounds.due(next, at(90)), Some(at(90) + REPAIR_INTERVAL));
}
