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
    /// The members in lower case; without a set, the servers that the
    /// connection string names.
    pub members: BTreeSet<String>,
}

impl DeploymentId {
    /// Whether both are the same deployment.
    pub fn is_same(&self, other: &Self) -> bool {
        let renamed = match (&self.set, &other.set) {
            (Some(mine), Some(others)) => mine != others,
            // A server alone may have become a replica set since.
            (None, _) | (_, None) => false,
        };
        !renamed && !self.members.is_disjoint(&other.members)
    }

    /// For people.
    pub fn describe(&self) -> String {
        let members: Vec<_> = self.members.iter().map(String::as_str).collect();
        let members = members.join(",");
        match &self.set {
            Some(set) => format!("replica set {set} ({members})"),
            None => members,
        }
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

    fn id(set: Option<&str>, members: &[&str]) -> DeploymentId {
        DeploymentId {
            set: set.map(str::to_owned),
            members: members.iter().map(|&member| member.to_owned()).collect(),
        }
    }

    #[test]
    fn a_set_is_known_by_its_name_and_a_member_that_is_left() {
        let home = id(Some("rs0"), &["a:1", "b:1", "c:1"]);
        assert!(home.is_same(&id(Some("rs0"), &["c:1", "d:1", "e:1"])));
        assert!(
            !home.is_same(&id(Some("rs0"), &["d:1", "e:1", "f:1"])),
            "no member is left"
        );
        assert!(!home.is_same(&id(Some("rs1"), &["a:1", "b:1", "c:1"])));
    }

    #[test]
    fn without_a_set_the_servers_of_the_connection_string_count() {
        let home = id(None, &["a:1", "b:1"]);
        assert!(home.is_same(&id(None, &["b:1", "c:1"])));
        assert!(!home.is_same(&id(None, &["c:1"])));
        assert!(
            home.is_same(&id(Some("rs0"), &["a:1"])),
            "it became a replica set"
        );
    }
}
