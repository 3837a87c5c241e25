//! Goal: candidates with the same connection string never use two deployments, because both
//! deployments could then have a leader (I1); and no candidate refuses a set because of the set's
//! own members. Method: all combinations of replies to `hello`.

use futures_util::FutureExt;
use mongodb::bson::doc;
use mongodb::bson::oid::ObjectId;
use tokio::net::TcpSocket;

use super::*;

/// A deployment, as its writable server reports it. Some servers omit the id.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    set: Option<&'static str>,
    id: &'static str,
    members: &'static [&'static str],
    is_router: bool,
}

const SETS: [&str; 2] = ["rs0", "rs1"];
const IDS: [&str; 2] = ["6b08", "6b09"];
/// Two clusters may use equal host names. The first host is the primary.
const MEMBERS: [&[&str]; 3] = [&["m:1", "n:1"], &["m:1", "o:1"], &["p:1"]];
const ROUTER: Named = Named {
    set: None,
    id: "",
    members: &[],
    is_router: true,
};

fn all() -> Vec<Named> {
    let mut all = vec![ROUTER];
    for set in SETS {
        for id in IDS {
            all.extend(MEMBERS.map(|members| Named {
                set: Some(set),
                id,
                members,
                is_router: false,
            }));
        }
    }
    all
}

impl Named {
    fn deployment(&self, tells_id: bool) -> DeploymentId {
        DeploymentId {
            set: self.set.map(str::to_owned),
            id: (tells_id && self.set.is_some()).then(|| self.id.to_owned()),
            members: self.members.iter().map(|m| (*m).to_owned()).collect(),
            seeds: ["m:1".to_owned()].into(),
        }
    }

    fn reply(&self, tells_id: bool, is_writable: bool) -> HelloIdentity {
        HelloIdentity {
            deployment: self.deployment(tells_id),
            is_router: self.is_router,
            is_writable,
        }
    }

    fn primary(&self) -> &'static str {
        self.members.first().copied().unwrap_or("m:1")
    }

    fn is_usable(&self, asked: Option<&str>) -> bool {
        asked.is_none() || asked == self.set
    }

    fn relation(&self, other: &Self, tell_ids: [bool; 2], asked: Option<&str>) -> Relation {
        let home = self.deployment(tell_ids[0]);
        other
            .reply(tell_ids[1], true)
            .relation(&home, self.primary(), asked)
    }
}

#[test]
fn i1_candidates_with_one_string_use_one_deployment() {
    let mut compared = 0;
    for (x, y) in all()
        .iter()
        .flat_map(|x| all().into_iter().map(move |y| (x.clone(), y)))
    {
        // The servers of one set have one id. Routers report nothing that distinguishes clusters.
        if x.set.is_some() && x.set == y.set && x.id == y.id || x == y {
            continue;
        }
        for asked in [None, Some("rs0"), Some("rs1")] {
            if !x.is_usable(asked) || !y.is_usable(asked) {
                continue;
            }
            compared += 1;
            let there = x.relation(&y, [true, true], asked);
            let back = y.relation(&x, [true, true], asked);
            let refused = |relation: &Relation| matches!(relation, Relation::Other(_));
            assert!(
                refused(&there) && refused(&back),
                "{x:?} and {y:?}, {asked:?}"
            );
        }
    }
    assert_eq!(compared, 168);
}

/// Before the first call, the client requests the id from a server that has not reported it.
#[test]
fn i1_a_writable_server_without_an_id_is_never_taken_for_a_member() {
    for (x, y) in all()
        .iter()
        .flat_map(|x| all().into_iter().map(move |y| (x.clone(), y)))
    {
        for asked in [None, Some("rs0"), Some("rs1")] {
            for tell_ids in [[false, true], [true, false], [false, false]] {
                if x.set.is_none() && y.set.is_none() || !y.is_usable(asked) {
                    continue;
                }
                let relation = x.relation(&y, tell_ids, asked);
                assert_ne!(relation, Relation::Same, "{x:?} and {y:?}, {asked:?}");
            }
        }
    }
}

#[test]
fn a_set_is_never_refused_for_its_own_members() {
    for x in all().iter().filter(|x| x.set.is_some()) {
        // A member with an older configuration knows only some of the others.
        let older = MEMBERS
            .iter()
            .filter(|older| older.iter().any(|m| x.members.contains(m)));
        for members in older {
            let y = Named {
                members,
                ..x.clone()
            };
            for asked in [None, x.set] {
                for tell_ids in [[true, true], [true, false], [false, true], [false, false]] {
                    for is_writable in [true, false] {
                        let home = x.deployment(tell_ids[0]);
                        let reply = y.reply(tell_ids[1], is_writable);
                        let relation = reply.relation(&home, x.primary(), asked);
                        let accepted = matches!(relation, Relation::Same | Relation::Unclear);
                        assert!(accepted, "{y:?} of {x:?}, {asked:?}: {relation:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_server_that_the_driver_does_not_use_is_not_refused() {
    let alone = Named {
        is_router: false,
        ..ROUTER
    };
    for x in all().iter().filter(|x| x.set.is_some()) {
        for asked in [None, x.set] {
            assert_eq!(x.relation(&alone, [true, true], asked), Relation::Unused);
        }
        for y in all().iter().filter(|y| y.set != x.set) {
            assert_eq!(x.relation(y, [true, true], x.set), Relation::Unused);
        }
    }
}

/// The set's primary is `a:1`. Only the id distinguishes this set from other sets of this name.
const HOME: &str = "6b08f00000000000000000a1";
const ELSEWHERE: &str = "6b08f00000000000000000b2";

fn member(me: &str, set: &str, id: Option<&str>, hosts: &[&str]) -> Document {
    let mut hello = doc! {
        "setName": set, "me": me, "hosts": hosts, "isWritablePrimary": false, "secondary": true,
    };
    if let Some(id) = id {
        let id = ObjectId::parse_str(id).expect("24 digits");
        hello.insert("$replData", doc! { "replicaSetId": id });
    }
    hello
}

fn with(mut hello: Document, more: Document) -> Document {
    hello.extend(more);
    hello
}

/// The verdicts on one server of the connection string. The string either omits `replicaSet` or
/// sets it to the primary's set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judged {
    Accepted,
    /// Refused without `replicaSet`. With `replicaSet`, the driver does not use the server.
    RefusedWithoutName,
    Refused,
}

fn servers() -> Vec<(&'static str, Document, Judged)> {
    use Judged::{Accepted, Refused, RefusedWithoutName};
    let (home, elsewhere) = (Some(HOME), Some(ELSEWHERE));
    let hosts: &[&str] = &["a:1", "b:1"];
    let of_set = |me, id| with(member(me, "rs0", id, hosts), doc! { "passives": ["c:1"] });
    let primary = doc! { "isWritablePrimary": true, "secondary": false };
    let arbiter = doc! { "arbiterOnly": true, "secondary": false, "arbiters": ["d:1"] };
    let hidden = doc! { "hidden": true, "passive": true };
    vec![
        ("a secondary", of_set("b:1", home), Accepted),
        (
            "a secondary, as reported by a monitor",
            of_set("b:1", None),
            Accepted,
        ),
        ("a secondary of priority 0", of_set("c:1", home), Accepted),
        (
            "an arbiter",
            with(of_set("d:1", home), arbiter.clone()),
            Accepted,
        ),
        (
            "an arbiter without an id",
            with(of_set("d:1", None), arbiter),
            Accepted,
        ),
        (
            "a hidden member",
            with(of_set("h:1", home), hidden),
            Accepted,
        ),
        (
            "an alias of the primary",
            with(of_set("a:1", home), primary.clone()),
            Accepted,
        ),
        (
            "an alias, as reported by a monitor",
            with(of_set("a:1", None), primary.clone()),
            Accepted,
        ),
        (
            "a member with the configuration before the primary was added",
            member("b:1", "rs0", home, &["b:1", "x:1"]),
            Accepted,
        ),
        (
            "a member that is starting",
            doc! { "isreplicaset": true },
            Accepted,
        ),
        ("a standalone server", primary.clone(), Accepted),
        (
            "a router",
            with(primary.clone(), doc! { "msg": "isdbgrid" }),
            RefusedWithoutName,
        ),
        (
            "another set",
            member("e:1", "rs1", elsewhere, &["e:1"]),
            RefusedWithoutName,
        ),
        (
            "another set, with a member's address",
            member("b:1", "rs1", elsewhere, hosts),
            RefusedWithoutName,
        ),
        (
            "another set with the same name",
            member("e:1", "rs0", elsewhere, &["e:1"]),
            Refused,
        ),
        (
            "another set with the same name, without an id",
            member("e:1", "rs0", None, &["e:1"]),
            Refused,
        ),
        (
            "another set with the same name and addresses",
            with(of_set("a:1", elsewhere), primary.clone()),
            Refused,
        ),
        (
            "a secondary of another set with the same name and addresses",
            of_set("b:1", elsewhere),
            Refused,
        ),
        (
            "a restored copy with the id of the set and other members",
            with(member("e:1", "rs0", home, &["e:1"]), primary),
            Refused,
        ),
    ]
}

fn home() -> DeploymentId {
    home::describe(&member("a:1", "rs0", Some(HOME), &["a:1", "b:1"]), [])
}

fn seeds(uri: &str) -> Seeds {
    let options = ClientOptions::parse(uri).into_future().now_or_never();
    let options = options.expect("the string contains no names to look up");
    Seeds::of(
        &options.expect("the string is valid"),
        true,
        FileReader::default(),
    )
}

#[test]
fn i1_each_kind_of_server_is_judged_by_its_reply() {
    for (kind, hello, judged) in servers() {
        for asked in ["", "?replicaSet=rs0"] {
            let seeds = seeds(&format!("mongodb://a:1,N:1/{asked}"));
            assert_eq!(
                seeds.stranger(&home(), "a:1"),
                None,
                "no server has replied yet"
            );
            seeds.replied("n:1", &hello);
            let stranger = seeds.stranger(&home(), "a:1");
            let is_refused = match judged {
                Judged::Accepted => false,
                Judged::RefusedWithoutName => asked.is_empty(),
                Judged::Refused => true,
            };
            assert_eq!(
                stranger.is_some(),
                is_refused,
                "{kind}, {asked:?}: {stranger:?}"
            );
            let named = stranger.is_none_or(|why| why.to_lowercase().starts_with("n:1 is "));
            assert!(named, "{kind}: the server is not named first");
            // `strangers` also lists servers that the driver ignores.
            let found = seeds.strangers(&home(), "a:1", None).count();
            assert_eq!(found == 1, judged != Judged::Accepted, "{kind}, {asked:?}");
            // A server that becomes unreachable may return unchanged.
            seeds.unreachable("n:1");
            assert_eq!(
                seeds.stranger(&home(), "a:1").is_some(),
                is_refused,
                "{kind}"
            );
        }
    }
}

#[test]
fn servers_that_do_not_answer_or_are_not_named_are_not_judged() {
    let foreign = member("e:1", "rs1", Some(ELSEWHERE), &["e:1"]);
    let unresponsive = seeds("mongodb://a:1,n:1/");
    unresponsive.unreachable("n:1");
    assert_eq!(unresponsive.stranger(&home(), "a:1"), None);
    unresponsive.replied("n:1", &foreign);
    assert!(
        unresponsive.stranger(&home(), "a:1").is_some(),
        "the server returned as part of another deployment"
    );
    let ipv6 = seeds("mongodb://a:1,[::1]:1/");
    ipv6.replied("::1:1", &foreign);
    assert!(
        ipv6.stranger(&home(), "a:1").is_some(),
        "one address has two forms"
    );
    // If the string names only one server, there is no comparison. Servers that the string does not
    // name are not compared either.
    for uri in ["mongodb://n:1/", "mongodb://a:1,b:1/"] {
        let seeds = seeds(uri);
        seeds.replied("n:1", &foreign);
        assert_eq!(seeds.stranger(&home(), "a:1"), None, "{uri}");
    }
}

#[test]
fn a_reply_without_an_id_keeps_the_known_one_only_for_the_same_members() {
    let seeds = seeds("mongodb://a:1,b:1/");
    let hosts: &[&str] = &["a:1", "b:1"];
    seeds.replied("b:1", &member("b:1", "rs0", Some(ELSEWHERE), hosts));
    seeds.replied("b:1", &member("b:1", "rs0", None, hosts));
    assert!(
        seeds.stranger(&home(), "a:1").is_some(),
        "replies to monitors lack the id"
    );
    seeds.replied("b:1", &member("b:1", "rs0", None, &["a:1", "b:1", "c:1"]));
    assert_eq!(seeds.stranger(&home(), "a:1"), None);
}

/// The server accepts a connection late and then never replies. The listener's queue is full until
/// the client's kernel retransmits the SYN after a second.
#[tokio::test]
async fn a_server_that_is_slow_twice_is_asked_for_one_limit() {
    const LIMIT: Duration = Duration::from_secs(2);
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("an address");
    let listener = socket.listen(0).expect("it listens");
    let address = listener.local_addr().expect("bound");
    let filling = TcpStream::connect(address).await.expect("queued");
    let options = ClientOptions::builder()
        .hosts(vec![
            ServerAddress::parse(address.to_string()).expect("an address"),
        ])
        .build();
    let seeds = Seeds::of(&options, true, FileReader::default());
    let (server, canonical) = &seeds.named[0];
    let (connecting, connected) = tokio::sync::oneshot::channel();
    let accepting = tokio::spawn(async move {
        connected.await.expect("sent");
        let mut accepted = Vec::new();
        while let Ok(stream) = listener.accept().await {
            accepted.push(stream);
        }
    });
    let began = leasehold_clock::boot_now();
    let asked = async {
        seeds.ask(server, began + LIMIT).await;
        leasehold_clock::boot_now().since(began)
    };
    let freed = async {
        tokio::time::sleep(LIMIT / 10).await;
        connecting.send(()).expect("received");
    };
    let (took, ()) = tokio::join!(asked, freed);
    accepting.abort();
    drop(filling);
    assert_eq!(seeds.seen.borrow().get(canonical), Some(&None));
    assert!((LIMIT..LIMIT * 5 / 4).contains(&took), "{took:?}");
}
