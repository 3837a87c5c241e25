use super::*;

fn stored() -> Document {
    let mut document = create("orders", Revision::from_bytes([1; 16]), Token::ZERO);
    document.insert(
        "holder",
        doc! {
            "identity": "a", "session": uuid([2; 16]), "claim": uuid([3; 16]),
            "acquired_at": DateTime::from_millis(5), "renewed_at": DateTime::from_millis(6),
            "lease_duration_ms": 24_000_i64,
        },
    );
    document
}

fn why_foreign(document: &Document) -> String {
    match read(document) {
        Found::Foreign(why) => why.to_string(),
        other @ (Found::Lease(_) | Found::Missing) => panic!("accepted: {other:?}"),
    }
}

#[test]
fn a_created_document_is_read_as_a_free_lease() {
    let document = create("orders", Revision::from_bytes([1; 16]), Token::ZERO);
    let lease = lease(&document).expect("ours");
    assert_eq!(
        (lease.token, lease.holder, lease.paused),
        (Token::ZERO, None, false)
    );
}

#[test]
fn a_held_lease_is_read_with_its_declared_duration() {
    let holder = lease(&stored()).expect("ours").holder.expect("held");
    assert_eq!(holder.claim, Claim::from_bytes([3; 16]));
    assert_eq!(holder.lease_duration.duration(), Duration::from_secs(24));
    assert_eq!(holder.acquired_at, WallMillis(5));
}

#[test]
fn a_holder_keeps_its_token_when_the_lease_s_token_is_raised() {
    let mut document = stored();
    document.insert("token", 4711_i64);
    for (written, read) in [
        (Bson::Int64(7), Token::new(7)),
        (Bson::Int64(-1), None),
        (Bson::String("7".to_owned()), None),
    ] {
        let holder = document.get_document_mut("holder").expect("a holder");
        holder.insert("token", written);
        let lease = lease(&document).expect("ours");
        assert_eq!(lease.token.get(), 4711);
        assert_eq!(lease.holder.expect("held").token, read);
    }
}

#[test]
fn i11_other_shapes_kinds_and_schemas_are_foreign() {
    for (key, value, why) in [
        ("schema", Bson::Int32(2), "newer"),
        ("schema", Bson::Int32(0), "not 1"),
        ("schema", Bson::String("1".to_owned()), "not 1"),
        ("kind", Bson::String("lock".to_owned()), "a lock"),
        ("kind", Bson::Int32(1), "kind"),
        ("token", Bson::Double(7.0), "token"),
        ("token", Bson::Int64(-1), "token"),
        ("revision", Bson::String("x".to_owned()), "revision"),
        ("revision", uuid([0; 16]), ""),
        ("holder", Bson::Int32(1), "holder"),
        ("holder", Bson::Document(doc! {}), "identity"),
        ("paused", Bson::Int32(1), "paused"),
        ("history", Bson::Null, "history"),
        ("history", Bson::Document(doc! {}), "history"),
    ] {
        let mut document = stored();
        document.insert(key, value);
        if !why.is_empty() {
            let text = why_foreign(&document);
            assert!(text.contains(why), "{key}: {text}");
        }
    }
    assert!(why_foreign(&doc! { "_id": "orders", "hello": 1 }).contains("schema"));
}

#[test]
fn an_int32_token_is_read() {
    let mut document = stored();
    document.insert("token", 7_i32);
    assert_eq!(lease(&document).expect("ours").token.get(), 7);
}

#[test]
fn an_invalid_request_has_no_effect() {
    for request in [
        Bson::Int32(1),
        Bson::Document(doc! { "kind": "dance", "token": 1_i64 }),
        Bson::Document(doc! { "kind": "transfer", "token": 1_i64 }),
        Bson::Document(doc! { "kind": "step_down", "token": 1.5 }),
    ] {
        let mut document = stored();
        document.insert("request", request);
        assert_eq!(lease(&document).expect("ours").request, None);
    }
}

#[test]
fn reservations_are_bounded() {
    let mut document = stored();
    document.insert("reserved_for", doc! { "identity": "b", "for_ms": i64::MAX });
    let reserved = lease(&document)
        .expect("ours")
        .reserved_for
        .expect("reserved");
    assert_eq!(reserved.duration, RESERVATION_MAX);
    document.insert("reserved_for", doc! { "identity": "b", "for_ms": -1_i64 });
    let reserved = lease(&document)
        .expect("ours")
        .reserved_for
        .expect("reserved");
    assert_eq!(reserved.duration, RESERVATION_DEFAULT);
}
