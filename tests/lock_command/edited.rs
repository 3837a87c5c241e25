//! Goal: operators' commands repair a document that was edited by hand, exit even if MongoDB does
//! not answer, and use a single client.

use std::sync::Arc;

use leasehold_testbed::{ReplicaSet, run};
use mongodb::bson::doc;

use crate::job::{Place, crowd};

#[test]
fn a_break_grants_a_free_lock_to_the_first_waiter() {
    let place = Place::new();
    place.store_document("edited", crowd(0, 2));
    let broken = place.run(&["locks", "break", "edited", "--force", "--yes"]);
    assert_eq!(broken.code, 0, "{broken:?}");
    assert!(broken.stdout.contains("granted to the first"), "{broken:?}");
    let listed = place.run(&["locks"]).stdout;
    assert!(listed.contains("granted"), "{listed}");
}

#[test]
fn the_list_exits_although_mongodb_does_not_answer() {
    let place = Place::new();
    assert_eq!(place.run_empty("unanswered-list", &[]).code, 0);
    let proxy = place.set.proxy();
    let uri = place.set.proxied_uri(&proxy);
    let place = place.reached_by(uri);
    proxy.hold_replies_containing("unanswered-list");
    for arguments in [
        &["locks"][..],
        &["locks", "prune", "--unused-for=0s"],
        &["locks", "break", "unanswered-list"],
    ] {
        let timeout = ["--timeout=3s"];
        let answered = place.run(&[arguments, &timeout].concat());
        answered.says(69, "no answer within ");
    }
}

#[test]
fn a_prune_of_many_locks_uses_one_client() {
    let set = run(ReplicaSet::builder().members(1).start());
    let place = Place::on(Arc::new(set));
    for number in 0..6 {
        assert_eq!(place.run_empty(&format!("idle-{number}"), &[]).code, 0);
    }
    let created = || {
        let status = run(place.set.command(0, doc! { "serverStatus": 1 })).unwrap();
        let connections = status.get_document("connections").unwrap();
        let created = connections.get("totalCreated").unwrap();
        created
            .as_i32()
            .map_or_else(|| created.as_i64().unwrap(), i64::from)
    };
    let before = created();
    let pruned = place.run(&["locks", "prune", "--unused-for=0s"]);
    assert_eq!(
        pruned.stdout.matches("pruned idle-").count(),
        6,
        "{pruned:?}"
    );
    // A client opens at least two connections, for calls and for monitoring, so six clients would
    // open at least twelve.
    let connections = created() - before;
    assert!(connections <= 6, "{connections} connections");
}
