//! The deployment that this process began with, and what tells it apart from
//! another one: two candidates of one lease on two deployments both lead.
//!
//! A replica set has an id that is only in its configuration, which takes more
//! rights to read than a lease needs. Its name and its members do instead: a
//! deployment is the same while the names agree and a member is left of those
//! that were known last. A set that was moved to other hosts all at once looks
//! like another one; then a restart is needed.

use std::collections::BTreeSet;

use mongodb::bson::{Bson, Document};

/// What a server says of its deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// `None`: a standalone server, or routers of a sharded cluster.
    set: Option<String>,
    /// The members; without a set, the servers that the connection string names.
    members: BTreeSet<String>,
}

impl Identity {
    /// From the reply to `hello`; `None` unless the server takes writes.
    /// `seeds` are the servers that the connection string names.
    pub(super) fn of(hello: &Document, seeds: &[String]) -> Option<Self> {
        let says = |key| matches!(hello.get_bool(key), Ok(true));
        if !says("isWritablePrimary") && !says("ismaster") {
            return None;
        }
        let set = hello.get_str("setName").ok().map(str::to_owned);
        let listed = |key| {
            let list = hello.get_array(key).map(Vec::as_slice).unwrap_or_default();
            list.iter().filter_map(Bson::as_str)
        };
        let members: BTreeSet<_> = match &set {
            Some(_) => listed("hosts")
                .chain(listed("passives"))
                .map(str::to_lowercase)
                .collect(),
            None => seeds.iter().map(|seed| seed.to_lowercase()).collect(),
        };
        Some(Self { set, members })
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        let renamed = match (&self.set, &other.set) {
            (Some(mine), Some(others)) => mine != others,
            // A server alone may have become a replica set since.
            (None, _) | (_, None) => false,
        };
        !renamed && !self.members.is_disjoint(&other.members)
    }

    /// For people.
    pub(super) fn describe(&self) -> String {
        let members: Vec<_> = self.members.iter().map(String::as_str).collect();
        let members = members.join(",");
        match &self.set {
            Some(set) => format!("replica set {set} ({members})"),
            None => members,
        }
    }
}

/// Where this process belongs.
#[derive(Debug, Default)]
pub(super) struct Home {
    identity: Option<Identity>,
    /// A connection string that leads there.
    uri: Option<String>,
    /// A connection string that leads elsewhere: it is not used.
    refused: Option<String>,
    /// Why, until a call has failed with it: who met the refusal may have been
    /// the change stream, which is opened anew without a word.
    untold: Option<String>,
    /// The client that is known to lead there.
    client: u64,
}

impl Home {
    /// Whether a client is known to lead home.
    pub(super) fn has(&self, client: u64) -> bool {
        self.identity.is_none() || self.client == client
    }

    /// What the primary of a client that leads home says. Members come and go:
    /// the newest list counts.
    pub(super) fn settle(&mut self, client: u64, uri: &str, identity: Identity) {
        if self.uri.as_deref() != Some(uri) {
            self.uri = Some(uri.to_owned());
        }
        self.identity = Some(identity);
        self.client = client;
    }

    /// A later client found a primary. Returns whether that belongs to the
    /// deployment that this process began with.
    pub(super) fn admit(&mut self, client: u64, uri: &str, identity: Identity) -> bool {
        let same = self
            .identity
            .as_ref()
            .is_none_or(|home| home.is_same(&identity));
        if same {
            self.settle(client, uri, identity);
        } else {
            self.refused = Some(uri.to_owned());
        }
        same
    }

    /// The next call is to fail with this.
    pub(super) fn is_to_be_told(&mut self, why: String) {
        self.untold = Some(why);
    }

    pub(super) fn untold(&self) -> Option<String> {
        self.untold.clone()
    }

    pub(super) fn was_told(&mut self) {
        self.untold = None;
    }

    /// The connection string to use in place of the one that is configured.
    pub(super) fn instead_of(&self, uri: String) -> String {
        match &self.uri {
            Some(home) if self.is_refused(&uri) => home.clone(),
            Some(_) | None => uri,
        }
    }

    pub(super) fn is_refused(&self, uri: &str) -> bool {
        self.refused.as_deref() == Some(uri)
    }

    /// The deployment that this process began with, for people.
    pub(super) fn describe(&self) -> String {
        self.identity
            .as_ref()
            .map(Identity::describe)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::doc;

    use super::*;

    fn set(name: &str, hosts: &[&str]) -> Identity {
        let hello = doc! { "isWritablePrimary": true, "setName": name, "hosts": hosts };
        Identity::of(&hello, &[]).expect("a primary")
    }

    fn alone(seeds: &[&str]) -> Identity {
        let seeds: Vec<_> = seeds.iter().map(|&seed| seed.to_owned()).collect();
        Identity::of(&doc! { "ismaster": true }, &seeds).expect("it takes writes")
    }

    #[test]
    fn a_set_is_known_by_its_name_and_a_member_that_is_left() {
        let home = set("rs0", &["a:1", "b:1", "c:1"]);
        assert!(home.is_same(&set("rs0", &["C:1", "d:1", "e:1"])));
        assert!(
            !home.is_same(&set("rs0", &["d:1", "e:1", "f:1"])),
            "no member is left"
        );
        assert!(!home.is_same(&set("rs1", &["a:1", "b:1", "c:1"])));
    }

    #[test]
    fn without_a_set_the_servers_of_the_connection_string_count() {
        assert!(alone(&["a:1", "b:1"]).is_same(&alone(&["b:1", "c:1"])));
        assert!(!alone(&["a:1"]).is_same(&alone(&["b:1"])));
        assert!(
            alone(&["a:1"]).is_same(&set("rs0", &["a:1"])),
            "it became a set"
        );
    }

    #[test]
    fn a_server_that_takes_no_writes_says_nothing_of_its_deployment() {
        let hello = doc! { "isWritablePrimary": false, "setName": "rs0", "hosts": ["a:1"] };
        assert_eq!(Identity::of(&hello, &[]), None);
    }

    #[test]
    fn a_connection_string_that_leads_elsewhere_is_replaced_by_the_one_that_led_home() {
        let mut home = Home::default();
        assert!(home.admit(1, "first", set("rs0", &["a:1", "b:1"])));
        assert!(home.admit(2, "second", set("rs0", &["b:1", "c:1"])));
        assert!(!home.admit(3, "elsewhere", set("rs0", &["d:1"])));
        assert_eq!(home.instead_of("elsewhere".to_owned()), "second");
        assert_eq!(home.instead_of("third".to_owned()), "third");
        assert!(home.has(2) && !home.has(3));
        assert_eq!(home.describe(), "replica set rs0 (b:1,c:1)");
    }
}
