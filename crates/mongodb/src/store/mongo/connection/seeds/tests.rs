//! Goal: of two deployments that one connection string names, at most one is used by candidates with
//! that string (I1), and no set is refused for its own members. Method: all combinations of what
//! `hello` can report, since each candidate takes whichever primary answers first.

use super::*;

/// A deployment, as its writable server reports it. The id distinguishes the sets in this test; a
/// server may not report it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    set: Option<&'static str>,
    id: &'static str,
    members: &'static [&'static str],
    is_router: bool,
}

const SETS: [&str; 2] = ["rs0", "rs1"];
const IDS: [&str; 2] = ["6b08", "6b09"];
/// Host names may be the same in two clusters. The primary is the first one.
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

    fn reply(&self, tells_id: bool, is_writable: bool) -> Reply {
        Reply {
            deployment: self.deployment(tells_id),
            is_router: self.is_router,
            is_writable,
        }
    }

    fn primary(&self) -> &'static str {
        self.members.first().copied().unwrap_or("m:1")
    }

    /// Returns true if the driver may use this deployment with this `replicaSet`.
    fn is_usable(&self, asked: Option<&str>) -> bool {
        asked.is_none() || asked == self.set
    }

    /// Returns the relation of another deployment's writable server to this one.
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
        // One set has one id. Routers report nothing that distinguishes their clusters.
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

/// Such a server is asked for its id before the first call.
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
        // Members that have not applied the newest configuration know some of the others.
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
