use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A deployment, as its servers describe it. Candidates on different deployments would both lead.
///
/// Two descriptions belong to one replica set if they have the same name, a common member, and, as
/// far as known, the same id. The id alone does not suffice, because a copy of a set's data has the
/// id too. If all members were replaced at once, the set would look like a different set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentId {
    /// The set's name; `None` for a standalone server or the routers of a sharded cluster.
    pub set: Option<String>,
    /// The set's id in hexadecimal digits; `None` without a set, or if the servers do not report
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The members of the set in lower case; empty without a set.
    pub members: BTreeSet<String>,
    /// The servers that the connection string names, in lower case. Seeds are compared only for a
    /// deployment without a set, because a name can later resolve to a different server.
    pub seeds: BTreeSet<String>,
}

impl DeploymentId {
    /// Returns true if the servers of `found` belong to this deployment.
    pub fn is_same(&self, found: &Self) -> bool {
        match (&self.set, &found.set) {
            (Some(mine), Some(others)) => {
                mine == others
                    && !self.members.is_disjoint(&found.members)
                    && (self.id.is_none() || found.id.is_none() || self.id == found.id)
            }
            // The name may now resolve to another server, or the server may be a member that runs
            // standalone for maintenance while the other members elect a primary.
            (Some(_), None) => false,
            // A standalone server may have become a replica set since.
            (None, _) => {
                let mut mine = self.seeds.iter();
                mine.any(|server| found.members.contains(server) || found.seeds.contains(server))
            }
        }
    }

    /// Returns a description for humans, escaped for a terminal.
    pub fn describe(&self) -> String {
        let joined = |servers: &BTreeSet<String>| Vec::from_iter(servers.clone()).join(",");
        let text = match &self.set {
            Some(set) => format!("replica set {set} ({})", joined(&self.members)),
            None => joined(&self.seeds),
        };
        text.escape_debug().to_string()
    }
}

/// The deployment that one process records in a file for later processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownHome {
    /// The file. An operator who moves the lease must delete this file.
    pub file: PathBuf,
    /// The recorded deployment. Any other deployment is refused.
    pub deployment: Option<DeploymentId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn set(set: &str, members: &[&str]) -> DeploymentId {
        DeploymentId {
            set: Some(set.to_owned()),
            id: None,
            members: names(members),
            seeds: names(&["seed:1"]),
        }
    }

    fn alone(seeds: &[&str]) -> DeploymentId {
        DeploymentId {
            set: None,
            id: None,
            members: names(&[]),
            seeds: names(seeds),
        }
    }

    #[test]
    fn a_set_is_known_by_its_name_and_a_member_that_is_left() {
        let home = set("rs0", &["a:1", "b:1", "c:1"]);
        assert!(home.is_same(&set("rs0", &["c:1", "d:1", "e:1"])));
        assert!(
            !home.is_same(&set("rs0", &["d:1", "e:1", "f:1"])),
            "no former member remains, although the connection string is unchanged"
        );
        assert!(!home.is_same(&set("rs1", &["a:1", "b:1", "c:1"])));
    }

    #[test]
    fn a_set_with_another_id_is_another_set_and_a_copy_with_the_id_too() {
        let with_id = |id: &str, members| DeploymentId {
            id: Some(id.to_owned()),
            ..set("rs0", members)
        };
        let home = with_id("6b08", &["mongo-0.mongo:27017"]);
        assert!(home.is_same(&set("rs0", &["mongo-0.mongo:27017"])), "no id");
        assert!(!home.is_same(&with_id("6b09", &["mongo-0.mongo:27017"])));
        assert!(!home.is_same(&with_id("6b08", &["restored:27017"])));
    }

    #[test]
    fn without_a_set_the_servers_of_the_connection_string_count() {
        let home = alone(&["a:1", "b:1"]);
        assert!(home.is_same(&alone(&["b:1", "c:1"])));
        assert!(!home.is_same(&alone(&["c:1"])));
        assert!(
            alone(&["seed:1"]).is_same(&set("rs0", &["of-another-name:1"])),
            "the standalone server became a replica set"
        );
        assert!(home.is_same(&set("rs0", &["a:1"])));
        assert!(!home.is_same(&set("rs0", &["c:1"])));
    }

    #[test]
    fn a_set_does_not_become_a_server_without_a_set() {
        let home = set("rs0", &["a:1"]);
        assert!(!home.is_same(&alone(&["a:1"])), "the member's address");
        assert!(!home.is_same(&alone(&["seed:1"])), "the unchanged string");
    }

    #[test]
    fn names_move_no_cursor() {
        let text = set("e\u{1b}[31mvil\nERROR", &["a:1"]).describe();
        assert_eq!(text, "replica set e\\u{1b}[31mvil\\nERROR (a:1)");
    }
}
