use mongodb::bson::doc;

use super::*;

fn asked(set: Option<&str>) -> Asked {
    Asked {
        set: set.map(str::to_owned),
        hosts: vec!["a:1".to_owned(), "b:1".to_owned()],
        ..Asked::default()
    }
}

fn servers(seen: &[(&str, ServerState)]) -> ServerStates {
    let seen = seen.iter().map(|(a, s)| ((*a).to_owned(), s.clone()));
    ServerStates {
        asked: asked(Some("rs0")),
        seen: seen.collect(),
        ..ServerStates::default()
    }
}

#[test]
fn the_replies_of_servers_are_compared_with_the_connection_string() {
    let of = |reply| state_of(&reply, &asked(Some("rs0")));
    let elsewhere = |what: &str| ServerState::Elsewhere(what.to_owned());
    assert_eq!(
        of(doc! { "setName": "rs0", "isWritablePrimary": true }),
        ServerState::Writable
    );
    assert_eq!(
        of(doc! { "setName": "rsa", "isWritablePrimary": true }),
        elsewhere(r#"is in replica set "rsa", not "rs0""#)
    );
    assert_eq!(
        of(doc! { "isWritablePrimary": true }),
        elsewhere(r#"is a standalone server, not in replica set "rs0""#)
    );
    assert_eq!(
        of(doc! { "msg": "isdbgrid" }),
        elsewhere(r#"is a mongos, not in replica set "rs0""#)
    );
    let secondary = ServerState::Member("a secondary");
    assert_eq!(of(doc! { "setName": "rs0", "secondary": true }), secondary);
}

#[test]
fn a_set_that_was_not_initiated_gets_its_remedy() {
    let state = state_of(&doc! { "isreplicaset": true }, &asked(None));
    assert_eq!(
        servers(&[("a:1", state)]).no_primary().to_string(),
        "no primary: a:1 is a member of a replica set that was not initiated; run rs.initiate() on one member"
    );
}

#[test]
fn a_set_of_another_name_is_final_only_where_no_server_is_left() {
    let elsewhere = ServerState::Elsewhere(r#"is in replica set "rsa", not "rs0""#.to_owned());
    let away = ServerState::Unreachable(Failure::new("connection refused", ""));
    let one = servers(&[("a:1", elsewhere.clone()), ("b:1", away)]).no_primary();
    assert_eq!(
        one.to_string(),
        r#"no primary: a:1 is in replica set "rsa", not "rs0"; correct replicaSet or the hosts in the MongoDB URI"#
    );
    assert_eq!(
        one.retry,
        RetryPolicy::WaitForServer,
        "the unreachable server may return"
    );
    let both = servers(&[("a:1", elsewhere.clone()), ("b:1", elsewhere)]).no_primary();
    assert_eq!(both.retry, RetryPolicy::Reconfigure);
}

#[test]
fn an_equal_reason_is_stated_once() {
    let down = ServerState::Unreachable(Failure::new("no answer", "check the host"));
    let seen = [
        ("a:1", down.clone()),
        ("b:1", ServerState::Member("a secondary")),
        ("c:1", down),
    ];
    assert_eq!(
        servers(&seen).no_primary().to_string(),
        "no primary: a:1, c:1: no answer: check the host; b:1 is a secondary"
    );
}

#[test]
fn a_refused_login_is_final() {
    let refused = Failure::lasting("authentication failed", "check the password");
    let seen = [
        ("a:1", ServerState::RefusedLogin(refused.clone())),
        ("b:1", ServerState::Member("a secondary")),
    ];
    assert_eq!(servers(&seen).no_primary(), refused);
}

#[test]
fn hosts_without_an_answer_yet_are_named() {
    let failure = servers(&[]).no_primary();
    assert_eq!(
        failure.to_string(),
        "no primary: no answer from a:1, b:1: check the host, the network and any firewall \
         in between"
    );
}
