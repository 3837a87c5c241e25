use super::asking::foreign;
use super::*;

fn args() -> ReplicasArgs {
    ReplicasArgs {
        named: Vec::new(),
        lease: None,
        expect: None,
        wait: Duration::ZERO,
        output: Output::TEXT,
    }
}

fn replica(number: u8, leader: bool) -> Replica {
    let role = if leader { "leader" } else { "follower" };
    let store = ReplicaStore {
        kind: "replica_set".to_owned(),
        set: Some("rs0".to_owned()),
        set_id: None,
        database: "leasehold".to_owned(),
        collection: "leases".to_owned(),
    };
    Replica {
        addresses: vec![SocketAddr::from(([10, 0, 0, number], 9402))],
        state: Ok(ReplicaStatus {
            lease: "orders".to_owned(),
            identity: format!("orders-{number}"),
            session: Some(format!("session-{number}")),
            role: role.to_owned(),
            leader,
            token: Some(7),
            holder: None,
            store: Some(store),
            store_error: None,
        }),
    }
}

fn problems(replicas: &[Replica], args: &ReplicasArgs) -> Vec<String> {
    let found = found_in(replicas, args).into_iter();
    found.map(|(what, _)| what).collect()
}

/// Returns two replicas, after a change to the second replica.
fn with(change: impl FnOnce(&mut ReplicaStatus)) -> Vec<Replica> {
    let mut second = replica(2, false);
    change(second.state.as_mut().expect("a state"));
    vec![replica(1, true), second]
}

#[test]
fn one_leader_on_one_store_is_well() {
    let replicas = with(|_| {});
    let expecting = ReplicasArgs {
        expect: Some(2),
        lease: Some("orders".to_owned()),
        ..args()
    };
    assert_eq!(problems(&replicas, &args()), Vec::<String>::new());
    assert_eq!(problems(&replicas, &expecting), Vec::<String>::new());
    let round = Round {
        replicas,
        ..Round::default()
    };
    assert_eq!(
        round.text(),
        "10.0.0.1:9402  orders-1  leader token 7  orders  leasehold.leases, replica set rs0\n\
         10.0.0.2:9402  orders-2  follower  orders  leasehold.leases, replica set rs0\n\
         ok: 2 replicas, one leader: orders-1\n"
    );
}

fn answered(replica: &Replica, address: &str) -> Answered {
    (address.parse().expect("an address"), replica.state.clone())
}

#[test]
fn a_replica_with_two_addresses_is_one() {
    let (a, b) = (replica(1, true), replica(2, false));
    let answers = vec![
        answered(&a, "10.0.0.1:1"),
        answered(&b, "10.0.0.2:1"),
        answered(&a, "[fd00::1]:1"),
        answered(&b, "[fd00::2]:1"),
    ];
    let (replicas, unused) = replicas_of(answers);
    assert_eq!(unused, []);
    let expecting = ReplicasArgs {
        expect: Some(2),
        ..args()
    };
    assert_eq!(problems(&replicas, &expecting), Vec::<String>::new());
    let lines: Vec<_> = replicas.iter().map(Replica::line).collect();
    assert_eq!(
        lines,
        [
            "10.0.0.1:1, [fd00::1]:1  orders-1  leader token 7  orders  leasehold.leases, replica set rs0\n",
            "10.0.0.2:1, [fd00::2]:1  orders-2  follower  orders  leasehold.leases, replica set rs0\n",
        ]
    );
}

#[test]
fn two_leaders_of_one_session_are_two() {
    // If a running VM was cloned, two processes have one session. Daemons that report no session
    // may be different processes.
    let (a, mut twin) = (replica(1, true), replica(1, true));
    twin.state.as_mut().expect("a state").token = Some(8);
    let answers = vec![answered(&a, "10.0.0.1:1"), answered(&twin, "10.0.0.2:1")];
    let leading = ["2 replicas lead: orders-1, orders-1"];
    assert_eq!(problems(&replicas_of(answers).0, &args()), leading);
    let mut old = replica(1, true);
    old.state.as_mut().expect("a state").session = None;
    let answers = vec![answered(&old, "10.0.0.1:1"), answered(&old, "10.0.0.2:1")];
    assert_eq!(problems(&replicas_of(answers).0, &args()), leading);
}

#[test]
fn a_family_of_addresses_that_no_replica_uses_is_not_counted() {
    let (a, b) = (replica(1, true), replica(2, false));
    let refused = |address: &str| {
        let address: SocketAddr = address.parse().expect("an address");
        (
            address,
            Err(NoStatus::NoAnswer("connection refused".to_owned())),
        )
    };
    let answers = vec![
        answered(&a, "10.0.0.1:1"),
        answered(&b, "10.0.0.2:1"),
        refused("[fd00::1]:1"),
        refused("[fd00::2]:1"),
    ];
    let (replicas, unused) = replicas_of(answers);
    assert_eq!(problems(&replicas, &args()), Vec::<String>::new());
    assert_eq!(unused.len(), 2);
    // A replica counts as missing if it answers on none of its addresses.
    let answers = vec![
        answered(&a, "10.0.0.1:1"),
        refused("10.0.0.2:1"),
        answered(&a, "[fd00::1]:1"),
        refused("[fd00::2]:1"),
    ];
    let (replicas, _) = replicas_of(answers);
    let missing = ["2 replicas without an answer"];
    assert_eq!(problems(&replicas, &args()), missing);
}

#[test]
fn each_deviation_is_a_problem() {
    let silent = vec![
        replica(1, true),
        Replica {
            state: Err(NoStatus::NoAnswer("connection refused".to_owned())),
            ..replica(2, false)
        },
    ];
    let foreign = vec![
        replica(1, true),
        Replica {
            state: Err(foreign("SSH-2.0-OpenSSH_9.2\r\n")),
            ..replica(2, false)
        },
    ];
    let line = foreign[1].line();
    let answered = "not a leasehold daemon: it answered \"SSH-2.0-OpenSSH_9.2\" to GET /status\n";
    assert!(line.ends_with(answered), "{line}");
    let other_store = |state: &mut ReplicaStatus| {
        if let Some(store) = &mut state.store {
            store.set = Some("rs1".to_owned());
        }
    };
    let with_ids = |ids: [&str; 2]| {
        let mut replicas = vec![replica(1, true), replica(2, false)];
        for (replica, id) in replicas.iter_mut().zip(ids) {
            let state = replica.state.as_mut().expect("a state");
            state.store.as_mut().expect("a store").set_id = Some(id.to_owned());
        }
        replicas
    };
    let of_one_set = problems(&with_ids(["6b08", "6b08"]), &args());
    assert_eq!(of_one_set, Vec::<String>::new());
    for (replicas, problem) in [
        (
            with_ids(["6b08", "6b09"]),
            "different stores, so the replicas do not exclude each other: \
             leasehold.leases, replica set rs0 (id of the set: 6b08); \
             leasehold.leases, replica set rs0 (id of the set: 6b09)",
        ),
        (
            with(|state| state.leader = true),
            "2 replicas lead: orders-1, orders-2",
        ),
        (vec![replica(2, false)], "no replica leads"),
        (Vec::new(), "no replica found"),
        (silent, "1 replica without an answer"),
        (foreign, "1 address is not a leasehold daemon's"),
        (
            with(|state| state.lease = "else".to_owned()),
            "different leases: else, orders",
        ),
        (
            with(|state| state.role = "unknown".to_owned()),
            "1 replica without a known role",
        ),
        (
            with(|state| state.store = None),
            "a replica has not reached MongoDB yet",
        ),
        (
            with(other_store),
            "different stores, so the replicas do not exclude each other: leasehold.leases, replica set rs0; leasehold.leases, replica set rs1",
        ),
    ] {
        assert_eq!(problems(&replicas, &args()), [problem]);
    }
}

#[test]
fn a_holder_that_does_not_lead_is_named_with_the_remedy() {
    let mut follower = replica(2, false);
    follower.state.as_mut().expect("a state").holder = Some(SeenHolder {
        identity: "orders-1".to_owned(),
        token: 7,
    });
    let silent = Replica {
        state: Err(NoStatus::NoAnswer("timed out".to_owned())),
        ..replica(1, false)
    };
    let find = "leasehold describe orders --candidates finds the cause";
    for (replicas, holder, remedy) in [
        (
            vec![follower.clone()],
            "is not among the addresses given",
            "give orders-1's address too",
        ),
        (vec![silent, follower.clone()], "did not answer here", find),
        (
            vec![replica(1, false), follower.clone()],
            "answers as follower",
            find,
        ),
    ] {
        let round = Round {
            problems: found_in(&replicas, &args()),
            replicas,
            ..Round::default()
        };
        let expected = format!(
            "failed: no replica leads; orders-2 sees orders-1 (token 7) as the holder, but orders-1 {holder}\n  \
             to fix: {remedy}\n"
        );
        assert!(round.text().ends_with(&expected), "{}", round.text());
    }
    let other = ReplicasArgs {
        lease: Some("billing".to_owned()),
        ..args()
    };
    let only = ["not all contend for billing: orders"];
    assert_eq!(problems(&[follower], &other), only);
}

#[test]
fn their_number_and_lease_can_be_required() {
    let replicas = with(|_| {});
    let more = ReplicasArgs {
        expect: Some(3),
        ..args()
    };
    assert_eq!(problems(&replicas, &more), ["2 replicas found, 3 expected"]);
    let other = ReplicasArgs {
        lease: Some("billing".to_owned()),
        ..args()
    };
    assert_eq!(
        problems(&replicas, &other),
        ["not all contend for billing: orders"]
    );
}

#[test]
fn the_remedy_of_no_leader_depends_on_its_cause() {
    let remedy = |change: fn(&mut ReplicaStatus)| {
        let mut replicas = vec![replica(1, false), replica(2, false)];
        for replica in &mut replicas {
            change(replica.state.as_mut().expect("a state"));
        }
        let (what, remedy) = found_in(&replicas, &args()).pop().expect("a problem");
        format!("{what}: {remedy}")
    };
    assert!(remedy(|_| {}).starts_with("no replica leads: leasehold describe orders"));
    assert_eq!(
        remedy(|state| state.role = "paused".to_owned()),
        "paused, so no replica leads: leasehold resume orders lets a candidate lead"
    );
    let cut_off = remedy(|state| {
        let since = "2026-01-15T08:01:30.000Z".to_owned();
        state.store_error = Some(SeenFailure { since });
    });
    assert!(cut_off.starts_with("no replica leads, because no replica reaches MongoDB: "));
    assert!(!cut_off.contains("leasehold"), "{cut_off}");
}

#[test]
fn a_lease_may_precede_the_addresses() {
    let args = |named: &[&str], lease: Option<&str>| ReplicasArgs {
        named: named.iter().map(|it| (*it).to_owned()).collect(),
        lease: lease.map(str::to_owned),
        ..args()
    };
    let both = args(&["orders", "a:1", "b:2"], None);
    assert_eq!(both.contradiction(), None);
    assert_eq!(both.lease().map(String::as_str), Some("orders"));
    assert_eq!(both.replicas(), ["a:1", "b:2"]);
    let addresses = args(&["a:1", "b:2"], None);
    assert_eq!((addresses.lease(), addresses.replicas().len()), (None, 2));
    for (named, lease) in [
        (&["orders"][..], None),
        (&["a:1", "orders"], None),
        (&["orders", "stock", "a:1"], None),
        (&["orders", "a:1"], Some("orders")),
    ] {
        assert!(args(named, lease).contradiction().is_some(), "{named:?}");
    }
}
