use super::*;
use leasehold_core::election::ResourceName;
use leasehold_metrics::fixture::who;

fn api() -> Api {
    Api::over("https://api".to_owned(), || unreachable!("no request"))
}

fn requests() -> Requests {
    let who = Identification {
        lease: ResourceName::new("shop.orders").unwrap(),
        ..who("orders-0")
    };
    let pod = Pod::new("orders-0", "shop", "0d5f-1").unwrap();
    Requests::new(api(), pod, "leasehold.dev", &who)
}

fn shape(request: &Request<Vec<u8>>) -> (String, String, Value) {
    let line = format!("{} {}", request.method(), request.uri());
    let kind = request.headers().get(CONTENT_TYPE);
    let kind = kind.map_or(String::new(), |kind| kind.to_str().unwrap().to_owned());
    let body = serde_json::from_slice(request.body()).unwrap_or(Value::Null);
    (line, kind, body)
}

#[test]
fn the_label_is_a_merge_patch_on_the_status_with_the_uid() {
    let (line, kind, body) = shape(&requests().label(Label::Leader));
    let status = "/api/v1/namespaces/shop/pods/orders-0/status";
    assert_eq!(line, format!("PATCH {status}?fieldManager=leasehold"));
    assert_eq!(kind, "application/merge-patch+json");
    let labels = json!({ "leasehold.dev/shop.orders": "leader" });
    let expected = json!({ "metadata": { "uid": "0d5f-1", "labels": labels } });
    assert_eq!(
        body, expected,
        "the patch contains only the label and the uid"
    );
}

#[test]
fn leaders_are_listed_by_the_label_and_one_of_them_is_not_another() {
    let requests = requests();
    let (line, _, _) = shape(&requests.leaders());
    assert_eq!(
        line,
        "GET /api/v1/namespaces/shop/pods?limit=20&\
         labelSelector=leasehold.dev%2Fshop.orders%3Dleader"
    );
    let item =
        |name, uid| json!({ "metadata": { "name": name, "uid": uid, "resourceVersion": "7" } });
    // Pods are compared by uid and not by name, because a recreated pod has the same name.
    let list = json!({ "items": [item("orders-0", "0d5f-1"), item("orders-0", "0d5f-2"), item("orders-1", "9")] });
    let others = requests.others(list.to_string().as_bytes()).unwrap();
    let uids: Vec<_> = others.iter().map(|other| other.uid.as_str()).collect();
    assert_eq!(uids, ["0d5f-2", "9"]);
    // The API server's answer if no pod has the label.
    let none = requests.others(br#"{"metadata": {}, "items": null}"#);
    assert_eq!(none, Some(Vec::new()));
    for no_list in [&b""[..], b"{}", br#"{"items": 7}"#] {
        assert_eq!(requests.others(no_list), None);
    }

    let (line, _, body) = shape(&requests.demotion(&others[1]));
    assert!(line.starts_with("PATCH /api/v1/namespaces/shop/pods/orders-1/status?"));
    let labels = json!({ "leasehold.dev/shop.orders": "follower" });
    let metadata = json!({ "uid": "9", "resourceVersion": "7", "labels": labels });
    // The resourceVersion makes the API server reject the patch if the pod has changed.
    assert_eq!(body, json!({ "metadata": metadata }));
}

#[test]
fn a_name_that_would_make_another_url_is_refused() {
    let long = "x".repeat(254);
    let letters = ["A", "é", "-a", "a.", &long];
    let paths = ["", ".", "..", "a/b", "a?b", "a b", "..%2f"];
    for wrong in letters.into_iter().chain(paths) {
        assert!(Pod::new(wrong, "shop", "1").is_err(), "{wrong}");
        assert!(Pod::new("a", wrong, "1").is_err(), "{wrong}");
        assert!(Pod::new("a", "shop", wrong).is_err(), "{wrong}");
        // A list that contains an invalid pod name is rejected too.
        let metadata = json!({ "name": wrong, "uid": "1", "resourceVersion": "7" });
        let list = json!({ "items": [{ "metadata": metadata }] }).to_string();
        assert_eq!(requests().others(list.as_bytes()), None, "{wrong}");
    }
}

#[test]
fn names_of_events_are_names() {
    let name = |pod: &str| {
        let pod = Pod::new(pod, "shop", "1").unwrap();
        let requests = Requests::new(api(), pod, "leasehold.dev", &who("a"));
        let metadata = requests.event_metadata(u64::MAX);
        metadata["name"].as_str().unwrap().to_owned()
    };
    let random = "f".repeat(16);
    assert_eq!(name("orders-0"), format!("orders-0.{random}"));
    let longest = "x".repeat(253);
    assert_eq!(name(&longest), format!("{}.{random}", "x".repeat(236)));
    // A shortened name is valid regardless of where it was cut.
    for joint in [".", "-", "--"] {
        for length in 230..=236 {
            let pod = format!("{}{joint}{}", "x".repeat(length), "y".repeat(10));
            let name = name(&pod);
            assert!(name.len() <= 253, "{name}");
            let mut parts = name.split('.');
            assert!(
                parts.all(|part| !part.is_empty() && !part.ends_with('-')),
                "{name}"
            );
        }
    }
}
