//! Checks that all servers in the connection string belong to one deployment. Otherwise two
//! candidates could lead, each on the deployment that answered first. The client's monitors report
//! on the members of its set. Other servers are queried directly, once per `lease_duration`.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use mongodb::Client;
use mongodb::bson::Document;
use mongodb::options::{ClientOptions, SelectionCriteria, ServerAddress, ServerMonitoringMode};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::super::home::{self, canonical};
use super::super::lock;
use super::client::ConnectedClient;
use super::files::{FileReader, made};
use super::{Deployment, SendError};
use crate::store::DeploymentId;
use crate::store::kind::is_router;
use leasehold_core::election::BootTime;

pub(super) struct Seeds {
    named: Vec<(ServerAddress, String)>,
    options: ClientOptions,
    tls_files: FileReader,
    /// True if the client's monitors report on the members of its set.
    monitored: bool,
    /// The last reply of each server; `None` if an attempt failed before the first reply.
    seen: watch::Sender<BTreeMap<String, Option<HelloIdentity>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct HelloIdentity {
    deployment: DeploymentId,
    is_router: bool,
    is_writable: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Relation {
    Same,
    /// The server is not part of a deployment now, or the driver never uses it.
    Unused,
    /// Only the server's set id can decide, and the server has not reported it yet.
    Unclear,
    /// The server belongs to another deployment. Contains its description.
    Other(String),
}

impl Seeds {
    pub(super) fn of(options: &ClientOptions, monitored: bool, tls_files: FileReader) -> Self {
        let hosts = options.hosts.iter();
        Self {
            monitored,
            named: hosts.map(|host| (host.clone(), canonical(host))).collect(),
            options: options.clone(),
            tls_files,
            seen: watch::Sender::default(),
        }
    }

    fn is_of(&self, options: &ClientOptions) -> bool {
        self.options.hosts == options.hosts && self.set() == options.repl_set_name.as_deref()
    }

    fn set(&self) -> Option<&str> {
        self.options.repl_set_name.as_deref()
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = &str> {
        self.named.iter().map(|(_, address)| address.as_str())
    }

    pub(super) fn replied(&self, address: impl ToString, hello: &Document) {
        let address = canonical(address);
        let mut reply = HelloIdentity::of(hello);
        self.seen.send_if_modified(|seen| {
            let before = seen.get(&address).and_then(Option::as_ref);
            if let Some(before) = before
                && reply.deployment.id.is_none()
                && before.deployment.set == reply.deployment.set
                && before.deployment.members == reply.deployment.members
            {
                // Replies to monitors lack the set's id.
                reply.deployment.id.clone_from(&before.deployment.id);
            }
            let is_new = before != Some(&reply);
            seen.insert(address, Some(reply));
            is_new
        });
    }

    /// Notes a failed attempt, but keeps the server's earlier reply.
    pub(super) fn unreachable(&self, address: impl ToString) {
        let address = canonical(address);
        self.seen.send_if_modified(|seen| {
            let is_new = !seen.contains_key(&address);
            seen.entry(address).or_default();
            is_new
        });
    }

    fn others(&self, primary: &str) -> impl Iterator<Item = &(ServerAddress, String)> {
        let several = self.named.len() > 1;
        let named = self.named.iter();
        named.filter(move |(_, address)| several && address != primary)
    }

    fn relation(
        &self,
        address: &str,
        (home, primary): (&DeploymentId, &str),
        asked: Option<&str>,
    ) -> Option<Relation> {
        let seen = self.seen.borrow();
        let reply = seen.get(address)?.as_ref()?;
        Some(reply.relation(home, primary, asked))
    }

    fn is_unclear(&self, address: &str, home: &DeploymentId, primary: &str) -> bool {
        self.relation(address, (home, primary), self.set()) == Some(Relation::Unclear)
    }

    fn is_monitored(&self, address: &str, home: &DeploymentId) -> bool {
        self.monitored && home.members.contains(address)
    }

    /// Returns the address and description of each server of another deployment, except servers
    /// that the driver ignores ([`Relation::Unused`]).
    fn strangers(
        &self,
        home: &DeploymentId,
        primary: &str,
        asked: Option<&str>,
    ) -> impl Iterator<Item = (String, String)> {
        self.others(primary).filter_map(move |(_, address)| {
            match self.relation(address, (home, primary), asked)? {
                Relation::Other(what) => Some((address.escape_debug().to_string(), what)),
                Relation::Same | Relation::Unused | Relation::Unclear => None,
            }
        })
    }

    fn stranger(&self, home: &DeploymentId, primary: &str) -> Option<String> {
        let (address, what) = self.strangers(home, primary, self.set()).next()?;
        let home = home.describe();
        Some(format!(
            "{address} is {what}, but {primary} is part of {home}; with this string two candidates \
             can lead; to fix: remove the servers of one of them"
        ))
    }

    async fn reported(&self, addresses: &[&str]) {
        let mut seen = self.seen.subscribe();
        let all = |seen: &BTreeMap<_, _>| addresses.iter().all(|server| seen.contains_key(*server));
        let _ = seen.wait_for(all).await;
    }

    async fn ask(&self, server: &ServerAddress, deadline: BootTime) {
        match self.asked(server, deadline).await {
            Some(hello) => self.replied(server, &hello),
            None => self.unreachable(server),
        }
    }

    async fn asked(&self, server: &ServerAddress, deadline: BootTime) -> Option<Document> {
        // Tests the connection first, because the driver would retry a refused connection until the
        // deadline.
        if let ServerAddress::Tcp { .. } = server {
            let reached = TcpStream::connect(server.to_string());
            tokio::time::timeout(left(deadline), reached)
                .await
                .ok()?
                .ok()?;
        }
        let options = ClientOptions::builder()
            .hosts(vec![server.clone()])
            .direct_connection(true)
            .app_name(self.options.app_name.clone())
            .tls(self.options.tls.clone())
            .connect_timeout(left(deadline))
            .server_selection_timeout(left(deadline))
            .server_monitoring_mode(ServerMonitoringMode::Poll)
            .build();
        let client = made(options, &self.tls_files);
        let client = tokio::time::timeout(left(deadline), client).await;
        let client = client.ok()?.ok()?;
        let any = SelectionCriteria::Predicate(Arc::new(|_| true));
        let admin = client.database("admin");
        let hello = admin.run_command(home::question()).selection_criteria(any);
        let hello = tokio::time::timeout(left(deadline), hello.into_future()).await;
        tokio::spawn(async move { Client::shutdown(client).immediate(true).await });
        hello.ok()?.ok()
    }

    /// Queries servers that no monitor reports on, and servers with ambiguous reports.
    async fn ask_others(&self, home: &DeploymentId, primary: &str, deadline: BootTime) {
        let unknown = self.others(primary).filter(|(_, address)| {
            !self.is_monitored(address, home) || self.is_unclear(address, home, primary)
        });
        join_all(unknown.map(|(server, _)| self.ask(server, deadline))).await;
    }
}

impl HelloIdentity {
    fn of(hello: &Document) -> Self {
        Self {
            deployment: home::describe(hello, []),
            is_router: is_router(hello),
            is_writable: home::is_writable(hello),
        }
    }

    /// Compares a reply with the home. The driver ignores servers outside the requested set
    /// (`asked`).
    fn relation(&self, home: &DeploymentId, primary: &str, asked: Option<&str>) -> Relation {
        let mine = &self.deployment;
        let is_used = asked.is_none() || mine.set.as_deref() == asked;
        let other = |what: String| match is_used {
            true => Relation::Other(what),
            false => Relation::Unused,
        };
        match (&home.set, &mine.set) {
            (None, None) => Relation::Same,
            (Some(_), None) if self.is_router => other("a router of a sharded cluster".to_owned()),
            // The member is starting, was removed, or runs standalone for maintenance. The driver
            // never uses this member if the string names several servers.
            (Some(_), None) => Relation::Unused,
            (Some(_), Some(_)) if home.is_same(mine) => {
                let has_ids = home.id.is_some() && mine.id.is_some();
                // A member lists the primary once it has applied the newest configuration.
                match has_ids || !self.is_writable && mine.members.contains(primary) {
                    true => Relation::Same,
                    false => Relation::Unclear,
                }
            }
            (_, Some(_)) => {
                let another = if home.set == mine.set { "another " } else { "" };
                other(format!("part of {another}{}", mine.describe()))
            }
        }
    }
}

impl Deployment {
    /// A new client keeps the replies to earlier clients, because another deployment's server may
    /// answer the new client too late.
    pub(super) fn seeds_of(&self, options: &ClientOptions) -> Arc<Seeds> {
        let mut seeds = lock(&self.seeds);
        seeds.take_if(|seeds| !seeds.is_of(options));
        let seeds = seeds.get_or_insert_with(|| {
            let monitored = self.options.client.is_none();
            Arc::new(Seeds::of(options, monitored, self.tls_files.clone()))
        });
        Arc::clone(seeds)
    }

    /// Checks that all servers in the connection string belong to the deployment of its primary. If
    /// `is_new`, first waits for the servers' replies. The error describes the other deployment.
    pub(super) async fn compare(
        &self,
        seeds: &Seeds,
        (home, primary): (&DeploymentId, &str),
        is_new: bool,
    ) -> Result<(), String> {
        if is_new && seeds.others(primary).next().is_some() {
            // Replies after this deadline are compared when they arrive. The first call needs the
            // rest of the timeout.
            let deadline = leasehold_clock::boot_now() + self.connect_timeout() * 2 / 3;
            let others = seeds.others(primary).map(|(_, address)| address.as_str());
            let monitored: Vec<_> = others
                .filter(|address| seeds.is_monitored(address, home))
                .collect();
            let monitors = tokio::time::timeout(left(deadline), seeds.reported(&monitored));
            let (_, ()) = tokio::join!(monitors, seeds.ask_others(home, primary, deadline));
            // The monitors' reports lack the id of the set.
            let mut monitored = monitored.into_iter();
            if monitored.any(|address| seeds.is_unclear(address, home, primary)) {
                seeds.ask_others(home, primary, deadline).await;
            }
        }
        seeds.stranger(home, primary).map_or(Ok(()), Err)
    }

    pub(in crate::store::mongo) async fn strangers(
        self: &Arc<Self>,
        hello: &Document,
    ) -> Result<Vec<(String, String)>, SendError> {
        let seeds = self.connect().await?.seeds;
        let (home, primary) = (home::describe(hello, []), home::address(hello));
        let deadline = leasehold_clock::boot_now() + self.connect_timeout();
        let others = seeds.others(&primary);
        join_all(others.map(|(server, _)| seeds.ask(server, deadline))).await;
        Ok(seeds.strangers(&home, &primary, None).collect())
    }

    /// Repeats the comparison while the client is in use, because a server may change deployments.
    /// Ends the task of an earlier verification.
    pub(super) fn keep_comparing(self: &Arc<Self>, connection: &ConnectedClient, primary: &str) {
        let seeds = Arc::clone(&connection.seeds);
        if seeds.others(primary).next().is_none() {
            return;
        }
        let (deployment, number) = (Arc::downgrade(self), connection.number);
        let primary = primary.to_owned();
        let timings = self.timings.subscribe();
        let limit = self.connect_timeout();
        let mut seen = seeds.seen.subscribe();
        let mut comparing = JoinSet::new();
        comparing.spawn(async move {
            while let Some(home) = in_use(&deployment, number) {
                if seeds.stranger(&home, &primary).is_some() {
                    if let Some(deployment) = deployment.upgrade() {
                        // The next call verifies the primary again, and fails because of the other
                        // deployment.
                        lock(&deployment.home).doubt(number);
                        deployment.primary_changed();
                    }
                    return;
                }
                let deadline = leasehold_clock::boot_now() + limit;
                seeds.ask_others(&home, &primary, deadline).await;
                seen.mark_unchanged();
                if seeds.stranger(&home, &primary).is_none() {
                    let every = timings.borrow().lease_duration();
                    let _ = tokio::time::timeout(every, seen.changed()).await;
                }
            }
        });
        *lock(&self.comparing) = comparing;
    }
}

fn left(deadline: BootTime) -> Duration {
    deadline.since(leasehold_clock::boot_now())
}

/// Returns the verified deployment; `None` if the client was replaced or must be verified again.
fn in_use(deployment: &Weak<Deployment>, client: u64) -> Option<DeploymentId> {
    let deployment = deployment.upgrade()?;
    let current = lock(&deployment.connection).as_ref().map(|c| c.number);
    current.filter(|number| *number == client)?;
    let home = lock(&deployment.home);
    home.has(client).then(|| home.verified()).flatten()
}

#[cfg(test)]
mod tests;
