//! What tells one deployment from another.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A deployment as its servers describe it: two candidates of one lease on two
/// deployments both lead.
///
/// A replica set has an id that is only in its configuration, which takes more
/// rights to read than a lease needs. Its name and its members do instead: a
/// deployment is the same while the names agree and a member is left of those
/// that were known last. A set that was moved to other hosts all at once looks
/// like another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentId {
    /// `None`: a standalone server, or routers of a sharded cluster.
    pub set: Option<String>,
    /// The members of the set in lower case; none without a set.
    pub members: BTreeSet<String>,
    /// The servers that the connection string names, in lower case. They are
    /// all that a deployment without a set is known by; for a set they would
    /// be no proof, since a name can come to stand for another server.
    pub seeds: BTreeSet<String>,
}

impl DeploymentId {
    /// Whether both are the same deployment.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.set, &other.set) {
            (Some(mine), Some(others)) => {
                mine == others && !self.members.is_disjoint(&other.members)
            }
            // A server alone may have become a replica set since.
            (None, _) | (_, None) => self
                .servers()
                .any(|server| other.members.contains(server) || other.seeds.contains(server)),
        }
    }

    /// For people. The names are a server's, or a file's: nothing in them
    /// reaches a terminal as it is.
    pub fn describe(&self) -> String {
        let servers = match &self.set {
            Some(_) => &self.members,
            None => &self.seeds,
        };
        let servers: Vec<_> = servers.iter().map(String::as_str).collect();
        let servers = servers.join(",");
        let text = match &self.set {
            Some(set) => format!("replica set {set} ({servers})"),
            None => servers,
        };
        text.escape_debug().to_string()
    }

    fn servers(&self) -> impl Iterator<Item = &String> {
        self.members.iter().chain(&self.seeds)
    }
}

/// Where a candidate keeps its deployment in mind beyond the life of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownHome {
    /// The file, named to who moves: it has to be removed.
    pub file: PathBuf,
    /// What stands in it: any other deployment is refused.
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
            members: names(members),
            seeds: names(&["seed:1"]),
        }
    }

    fn alone(seeds: &[&str]) -> DeploymentId {
        DeploymentId {
            set: None,
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
            "no member is left, though the string is the same"
        );
        assert!(!home.is_same(&set("rs1", &["a:1", "b:1", "c:1"])));
    }

    #[test]
    fn without_a_set_the_servers_of_the_connection_string_count() {
        let home = alone(&["a:1", "b:1"]);
        assert!(home.is_same(&alone(&["b:1", "c:1"])));
        assert!(!home.is_same(&alone(&["c:1"])));
        assert!(
            alone(&["seed:1"]).is_same(&set("rs0", &["of-another-name:1"])),
            "it became a replica set"
        );
        assert!(home.is_same(&set("rs0", &["a:1"])));
        assert!(!home.is_same(&set("rs0", &["c:1"])));
    }

    #[test]
    fn names_move_no_cursor() {
        let text = set("e\u{1b}[31mvil\nERROR", &["a:1"]).describe();
        assert_eq!(text, "replica set e\\u{1b}[31mvil\\nERROR (a:1)");
    }
}
