//! The deployment that a candidate belongs to, and connection strings that lead elsewhere.

use std::collections::BTreeSet;

use mongodb::bson::{Bson, Document, doc};
use tokio::sync::watch;

use super::connection::URI_REFUSED;
use super::display::list;
use super::publish;
use crate::store::{DeploymentId, Failure, KnownHome};

/// Returns the command that identifies a server. `$replData` requires no right, and makes a replica
/// set member add the set's id to its reply. Other servers ignore this field.
pub(super) fn question() -> Document {
    doc! { "hello": 1, "$replData": 1 }
}

/// Returns the address that a replica set member reports as its own; empty for other servers.
pub(super) fn address(hello: &Document) -> String {
    hello.get_str("me").map(canonical).unwrap_or_default()
}

pub(super) fn is_writable(hello: &Document) -> bool {
    let is = |key| matches!(hello.get_bool(key), Ok(true));
    is("isWritablePrimary") || is("ismaster")
}

/// True if another member may be the primary now or later.
pub(super) fn is_replaceable(hello: &Document) -> bool {
    let own = address(hello);
    // Members that cannot become primary are not among the hosts.
    let electable = list(hello, "hosts").iter().filter_map(Bson::as_str);
    let primary = hello.get_str("primary").ok();
    let mut others = electable.chain(primary).map(canonical);
    others.any(|member| member != own)
}

/// Returns the deployment, if the server accepts writes. `seeds` are canonical addresses.
pub(super) fn identify<'a>(
    hello: &Document,
    seeds: impl IntoIterator<Item = &'a str>,
) -> Option<DeploymentId> {
    is_writable(hello).then(|| describe(hello, seeds))
}

pub(super) fn describe<'a>(
    hello: &Document,
    seeds: impl IntoIterator<Item = &'a str>,
) -> DeploymentId {
    let set = hello.get_str("setName").ok().map(str::to_owned);
    let listed = |key| list(hello, key).iter().filter_map(Bson::as_str);
    let members: BTreeSet<_> = match &set {
        Some(_) => listed("hosts")
            .chain(listed("passives"))
            .map(canonical)
            .collect(),
        None => BTreeSet::new(),
    };
    let id = hello.get_document("$replData").ok();
    let id = id.and_then(|data| data.get_object_id("replicaSetId").ok());
    DeploymentId {
        set,
        // A member that is not initiated reports zeros.
        id: id.filter(|id| id.bytes() != [0; 12]).map(|id| id.to_hex()),
        members,
        seeds: seeds.into_iter().map(str::to_owned).collect(),
    }
}

/// Returns an address in lower case, with the brackets around IPv6 that the driver omits.
pub(super) fn canonical(address: impl ToString) -> String {
    let address = address.to_string().to_lowercase();
    match address.rsplit_once(':') {
        Some((host, port)) if host.contains(':') && !host.starts_with('[') => {
            format!("[{host}]:{port}")
        }
        Some(_) | None => address,
    }
}

#[derive(Debug, Default)]
pub(super) struct Home {
    pub(super) deployment: watch::Sender<Option<DeploymentId>>,
    known: Option<KnownHome>,
    /// A command that does not contend, so an operator can restart it to use another deployment;
    /// `None` for candidates and locks.
    pub(super) restart: Option<&'static str>,
    /// The connection string that led to the deployment; `None` until this process has reached it.
    uri: Option<String>,
    /// A string that leads to a different deployment. While this string is configured, `uri` is
    /// used instead.
    refused: Option<String>,
    /// The reason for the refusal, until a call (not only a change stream) has failed with it.
    pub(super) unreported: Option<Failure>,
    /// The client whose primary was verified; 0 if there is none.
    client: u64,
    /// The address of the verified primary; empty if the server does not report its address.
    primary: String,
    /// The verified primary's deployment while the home is unknown. The deployment becomes the home
    /// only when a call is answered, because the primary may refuse this client.
    found: Option<FoundDeployment>,
}

#[derive(Debug)]
struct FoundDeployment {
    client: u64,
    uri: String,
    deployment: DeploymentId,
}

impl Home {
    pub(super) fn new(known: Option<KnownHome>) -> Self {
        let deployment = known.as_ref().and_then(|known| known.deployment.clone());
        Self {
            deployment: watch::Sender::new(deployment),
            known,
            ..Self::default()
        }
    }

    pub(super) fn has(&self, client: u64) -> bool {
        self.client == client
    }

    pub(super) fn verified(&self) -> Option<DeploymentId> {
        let found = self.found.as_ref().map(|found| found.deployment.clone());
        found.or_else(|| self.deployment.borrow().clone())
    }

    pub(super) fn is_new(&self, uri: &str) -> bool {
        self.uri.is_none() || self.is_refused(uri)
    }

    /// Records a report that a monitor received from a primary. A report from the verified primary
    /// updates the members. Any other primary must be verified before the driver uses it.
    pub(super) fn observe(
        &mut self,
        client: u64,
        uri: &str,
        (found, primary): (DeploymentId, &str),
    ) {
        if self.client != client {
            return;
        }
        if self.primary != primary {
            self.doubt(client);
            return;
        }
        match self.verified() {
            Some(known) if known.is_same(&found) => {
                // Replies to monitors lack the set's id.
                let id = found.id.clone().or(known.id);
                let found = DeploymentId { id, ..found };
                match &mut self.found {
                    Some(unconfirmed) => unconfirmed.deployment = found,
                    None => self.settle(client, uri, found),
                }
            }
            // A host name in the string now resolves to a different server.
            _ => self.doubt(client),
        }
    }

    /// Makes the next call of this client verify the primary again.
    pub(super) fn doubt(&mut self, client: u64) {
        if self.client == client {
            self.client = 0;
        }
    }

    /// Adopts the deployment that answered the call as the home, if there is no home yet.
    pub(super) fn answered(&mut self) {
        if let Some(found) = self.found.take() {
            self.settle(found.client, &found.uri, found.deployment);
        }
    }

    fn settle(&mut self, client: u64, uri: &str, found: DeploymentId) {
        self.found = None;
        // A host name in the string may have resolved to a different server for a while.
        self.refused.take_if(|refused| refused == uri);
        self.uri = Some(uri.to_owned());
        publish(&self.deployment, Some(found));
        self.client = client;
    }

    /// Checks a client's primary. Refuses the connection string of a different deployment.
    pub(super) fn admit(
        &mut self,
        client: u64,
        uri: &str,
        (found, primary): (DeploymentId, &str),
    ) -> Result<(), Failure> {
        primary.clone_into(&mut self.primary);
        let home = self.deployment.borrow().clone();
        match home {
            None => {
                self.client = client;
                self.refused.take_if(|refused| refused == uri);
                self.found = Some(FoundDeployment {
                    client,
                    uri: uri.to_owned(),
                    deployment: found,
                });
                Ok(())
            }
            Some(home) if home.is_same(&found) => {
                let id = found.id.clone().or(home.id);
                self.settle(client, uri, DeploymentId { id, ..found });
                Ok(())
            }
            Some(home) => self.refuse(uri, self.refusal(&home, &found)),
        }
    }

    /// Refuses this connection string. This call and the next call fail with this reason.
    pub(super) fn refuse(&mut self, uri: &str, why: Failure) -> Result<(), Failure> {
        self.refused = Some(uri.to_owned());
        self.unreported = Some(why.clone());
        Err(why)
    }

    fn refusal(&self, home: &DeploymentId, found: &DeploymentId) -> Failure {
        let ids = home.id.as_ref().zip(found.id.as_ref());
        let ids = ids.filter(|(home, found)| home != found);
        let shown = |one: &DeploymentId| match (ids, &one.id) {
            (Some(_), Some(id)) => format!("{} with id {id}", one.describe()),
            _ => one.describe(),
        };
        let belongs = match self.uri {
            None => "this candidate belongs to",
            Some(_) => "this process began with",
        };
        let restart = self.restart.map(|command| format!("restart {command}"));
        let remedy = match (&restart, &self.known) {
            (Some(restart), _) => format!("to use this deployment, {restart}"),
            (None, known) => {
                let (all, removal) = match known {
                    Some(known) => (
                        "candidates of the lease",
                        format!(", remove {} of each", known.file.display()),
                    ),
                    None => ("candidates and jobs", String::new()),
                };
                format!("to move, stop all {all}{removal}, then start them with the new string")
            }
        };
        let (leads, began) = (shown(found), shown(home));
        let why =
            format!("the connection string leads to {leads}, but {belongs} {began}: {remedy}");
        let (what, ids) = match ids {
            Some((home, found)) => ("replica set", format!(" (id {found} instead of {home})")),
            None => ("deployment", String::new()),
        };
        // The remedy comes before the ids, because a narrow table cuts off the end of the line.
        let restart = restart.map(|restart| format!(": {restart}"));
        let public = format!("another {what} answers{}{ids}", restart.unwrap_or_default());
        Failure {
            public: public.into(),
            ..Failure::lasting(URI_REFUSED, why)
        }
    }

    pub(super) fn instead_of(&self, uri: String) -> String {
        match &self.uri {
            Some(home) if self.is_refused(&uri) => home.clone(),
            _ => uri,
        }
    }

    pub(super) fn is_refused(&self, uri: &str) -> bool {
        self.refused.as_deref() == Some(uri)
    }
}

#[cfg(test)]
mod tests {
    use mongodb::bson::doc;

    use super::*;

    fn set(name: &str, hosts: &[&str]) -> DeploymentId {
        let hello = doc! { "isWritablePrimary": true, "setName": name, "hosts": hosts };
        identify(&hello, []).expect("a primary")
    }

    fn known(deployment: Option<DeploymentId>) -> Option<KnownHome> {
        Some(KnownHome {
            file: "/run/leasehold/orders/deployment".into(),
            deployment,
        })
    }

    #[test]
    fn members_and_seeds_are_compared_without_case() {
        assert_eq!(set("rs0", &["A:1"]), set("rs0", &["a:1"]));
        let alone = identify(&doc! { "ismaster": true }, ["a:1"]);
        assert_eq!(alone.expect("the server accepts writes").describe(), "a:1");
    }

    #[test]
    fn a_server_that_rejects_writes_does_not_identify_its_deployment() {
        let hello = doc! { "isWritablePrimary": false, "setName": "rs0", "hosts": ["a:1"] };
        assert_eq!(identify(&hello, []), None);
    }

    #[test]
    fn only_another_electable_member_or_a_known_primary_replaces_a_server() {
        for (hello, expected) in [
            (doc! { "me": "a:1", "hosts": ["a:1", "B:1"] }, true),
            (doc! { "me": "A:1", "hosts": ["a:1"] }, false),
            (
                doc! { "me": "a:1", "hosts": ["a:1"], "passives": ["b:1"] },
                false,
            ),
            (
                doc! { "me": "b:1", "hosts": ["a:1"], "passives": ["b:1"] },
                true,
            ),
            (
                doc! { "me": "a:1", "hosts": ["a:1"], "primary": "b:1" },
                true,
            ),
            (doc! { "isreplicaset": true }, false),
        ] {
            assert_eq!(is_replaceable(&hello), expected, "{hello}");
        }
    }

    #[test]
    fn a_connection_string_that_leads_elsewhere_is_replaced_by_the_one_that_led_home() {
        let mut home = Home::new(None);
        assert!(!home.has(1), "the first client is verified too");
        home.admit(1, "first", (set("rs0", &["a:1", "b:1"]), ""))
            .unwrap();
        home.answered();
        home.admit(2, "second", (set("rs0", &["b:1", "c:1"]), ""))
            .unwrap();
        let why = home.admit(3, "elsewhere", (set("rs0", &["d:1"]), ""));
        assert_eq!(
            why.unwrap_err().detail,
            "the connection string leads to replica set rs0 (d:1), but this process began with replica set rs0 \
             (b:1,c:1): to move, stop all candidates and jobs, then start them with the new string"
        );
        assert!(home.unreported.is_some());
        assert_eq!(home.instead_of("elsewhere".to_owned()), "second");
        assert_eq!(home.instead_of("third".to_owned()), "third");
        assert!(home.has(2) && !home.has(3));
    }

    #[test]
    fn another_deployment_than_the_recorded_one_is_refused_from_the_first_client_on() {
        let mut home = Home::new(known(Some(set("rs0", &["a:1"]))));
        assert!(!home.has(1), "the client must be verified first");
        let why = home.admit(1, "elsewhere", (set("rs1", &["b:1"]), ""));
        assert_eq!(
            why.unwrap_err().detail,
            "the connection string leads to replica set rs1 (b:1), but this candidate belongs to replica set rs0 \
             (a:1): to move, stop all candidates of the lease, remove \
             /run/leasehold/orders/deployment of each, then start them with the new string"
        );
        assert_eq!(home.instead_of("elsewhere".to_owned()), "elsewhere");
        home.admit(2, "home", (set("rs0", &["a:1", "b:1"]), ""))
            .unwrap();
        assert!(home.has(2));
    }

    #[test]
    fn a_deployment_is_reported_when_found_and_when_its_members_change() {
        let mut home = Home::new(known(None));
        let mut reports = home.deployment.subscribe();
        home.admit(1, "first", (set("rs0", &["a:1"]), "")).unwrap();
        assert!(
            !reports.has_changed().unwrap(),
            "the primary may refuse this client"
        );
        home.answered();
        assert_eq!(*reports.borrow_and_update(), Some(set("rs0", &["a:1"])));
        home.observe(1, "first", (set("rs0", &["a:1"]), ""));
        assert!(!reports.has_changed().unwrap());
        home.observe(1, "first", (set("rs0", &["a:1", "b:1"]), ""));
        assert!(reports.has_changed().unwrap());
    }

    #[test]
    fn a_name_that_comes_to_stand_for_another_server_leads_nowhere() {
        let mut home = Home::new(None);
        home.admit(1, "same", (set("rs0", &["a:1"]), "")).unwrap();
        home.answered();
        assert!(home.has(1));
        home.observe(1, "same", (set("rs0", &["b:1"]), ""));
        assert!(!home.has(1), "the server must be verified again");
        home.admit(1, "same", (set("rs0", &["b:1"]), ""))
            .unwrap_err();
        assert!(!home.has(1));
        assert!(home.is_refused("same"));
        home.admit(2, "same", (set("rs0", &["a:1"]), "")).unwrap();
        assert!(home.has(2));
        assert!(!home.is_refused("same"), "the string leads home again");
    }

    #[test]
    fn a_server_that_lost_its_primary_is_queried_again() {
        let mut home = Home::new(None);
        home.admit(1, "first", (set("rs0", &["a:1"]), "")).unwrap();
        home.doubt(2);
        assert!(home.has(1));
        home.doubt(1);
        assert!(!home.has(1));
        home.admit(1, "first", (set("rs0", &["a:1"]), "")).unwrap();
        assert!(home.has(1));
    }

    #[test]
    fn the_id_of_the_set_outlives_the_reports_of_monitors_which_lack_it() {
        let with_id = |id: &str| DeploymentId {
            id: Some(id.to_owned()),
            ..set("rs0", &["a:1"])
        };
        let mut home = Home::new(None);
        home.admit(1, "first", (with_id("6b08"), "")).unwrap();
        home.observe(1, "first", (set("rs0", &["a:1", "b:1"]), ""));
        home.answered();
        home.observe(1, "first", (set("rs0", &["a:1"]), ""));
        assert_eq!(*home.deployment.subscribe().borrow(), Some(with_id("6b08")));
        home.restart = Some("leasehold web");
        let why = home.admit(2, "second", (with_id("6b09"), "")).unwrap_err();
        assert_eq!(
            why.to_string(),
            "MongoDB URI refused: the connection string leads to replica set rs0 (a:1) with id 6b09, but this \
             process began with replica set rs0 (a:1) with id 6b08: to use this deployment, restart leasehold web"
        );
        assert_eq!(
            why.summary(),
            "MongoDB URI refused: another replica set answers: restart leasehold web (id 6b09 instead of 6b08)"
        );
    }

    #[test]
    fn addresses_are_compared_in_one_form() {
        for (written, form) in [
            ("A:1", "a:1"),
            ("[::1]:27017", "[::1]:27017"),
            ("::1:27017", "[::1]:27017"),
            ("10.0.0.1:27017", "10.0.0.1:27017"),
            ("/tmp/mongodb.sock", "/tmp/mongodb.sock"),
        ] {
            assert_eq!(canonical(written), form);
        }
    }

    #[test]
    fn a_mistaken_string_that_never_answered_leaves_nothing_behind() {
        let mut home = Home::new(None);
        home.admit(1, "mistaken", (set("rs9", &["b:1"]), ""))
            .unwrap();
        home.admit(2, "corrected", (set("rs0", &["a:1"]), ""))
            .unwrap();
        home.answered();
        assert_eq!(
            *home.deployment.subscribe().borrow(),
            Some(set("rs0", &["a:1"]))
        );
    }
}
