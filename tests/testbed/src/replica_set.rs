//! A private MongoDB deployment: mongod processes on loopback ports.

mod builder;
mod member;
mod user;

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use mongodb::Client;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use rustix::process::Signal;

use crate::{Certificates, Failure, Proxy, Scratch};

pub use builder::ReplicaSetBuilder;
pub use member::Member;
pub use user::User;

/// The set's name.
pub const SET_NAME: &str = "testbed";
/// Above what a default election was measured to take (12.1 s), on a machine
/// that is busy with other tests.
const PRIMARY_DEADLINE: Duration = Duration::from_secs(60);
/// A stopped member never answers; a running one does within milliseconds.
const HELLO_MAX: Duration = Duration::from_millis(500);
const POLL: Duration = Duration::from_millis(5);

/// A running replica set, or a standalone mongod. Ends when it is dropped.
///
/// ```no_run
/// # async fn example() {
/// let set = leasehold_testbed::ReplicaSet::start().await;
/// let old = set.primary().await;
/// set.kill(old);
/// assert_ne!(set.primary().await, old);
/// # }
/// ```
#[derive(Debug)]
pub struct ReplicaSet {
    members: Vec<Member>,
    standalone: bool,
    certificates: Option<Certificates>,
    root: Option<User>,
    client: Client,
    scratch: Scratch,
}

impl ReplicaSet {
    /// Three members, elections after 2 s, no TLS, no users. Takes some 3 s.
    ///
    /// # Panics
    /// When it cannot be started, with the reason.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// To start another kind.
    pub fn builder() -> ReplicaSetBuilder {
        ReplicaSetBuilder::new()
    }

    /// The connection string, as the root user if the set has users, and with
    /// the client's certificate if it has TLS.
    pub fn uri(&self) -> String {
        self.uri_of(self.root.as_ref())
    }

    /// The connection string for a user.
    pub fn uri_for(&self, user: &User) -> String {
        self.uri_of(Some(user))
    }

    /// The connection string without any credential.
    pub fn uri_without_user(&self) -> String {
        self.uri_of(None)
    }

    /// The connection string of one member alone (`directConnection`).
    pub fn direct_uri(&self, index: usize) -> String {
        let address = self.members[index].address();
        let tls = self.certificates.as_ref();
        user::uri(
            &address,
            &["directConnection=true"],
            self.root.as_ref(),
            tls,
        )
    }

    /// A driver's client of the whole set, as root.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The certificates, if the set was started with TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    /// How many members it has.
    pub fn member_count(&self) -> usize {
        self.members.len()
    }

    /// One member.
    pub fn node(&self, index: usize) -> &Member {
        &self.members[index]
    }

    /// The process ids of all members that run.
    pub fn pids(&self) -> Vec<u32> {
        self.members.iter().filter_map(Member::pid).collect()
    }

    /// The directory of all data.
    pub fn directory(&self) -> &std::path::Path {
        self.scratch.path()
    }

    /// Leaves a [detached](ReplicaSetBuilder::detached) set up, with its data.
    /// Whoever calls this ends the processes, by their ids.
    pub fn leave_up(mut self) {
        self.members.iter_mut().for_each(Member::leave_up);
        self.scratch.keep();
    }

    /// A new proxy in front of all members: see [`Proxy::uri`].
    pub fn proxy(&self) -> Proxy {
        let ports: Vec<_> = self.members.iter().map(Member::port).collect();
        Proxy::start(&ports, self.certificates.is_some())
    }

    /// The connection string through `proxy`.
    pub fn proxied_uri(&self, proxy: &Proxy) -> String {
        proxy.uri(&self.uri())
    }

    /// Observes the set until a member says it is a writable primary.
    ///
    /// # Panics
    /// After 60 s without one.
    pub async fn primary(&self) -> usize {
        let found = self.primary_within(PRIMARY_DEADLINE).await;
        found.unwrap_or_else(|| panic!("no primary within {PRIMARY_DEADLINE:?}"))
    }

    /// As [`primary`](Self::primary); `None` after `deadline` without one.
    pub async fn primary_within(&self, deadline: Duration) -> Option<usize> {
        let end = Instant::now() + deadline;
        loop {
            // A deposed primary may not know yet: the newest election counts.
            let hellos = self.hellos().await.into_iter().enumerate();
            let primaries = hellos.filter_map(|(index, hello)| {
                let hello =
                    hello.filter(|hello| hello.get_bool("isWritablePrimary").unwrap_or(false))?;
                let election = hello
                    .get_object_id("electionId")
                    .unwrap_or(ObjectId::from_bytes([0; 12]));
                Some((election, index))
            });
            if let Some((_, index)) = primaries.max() {
                return Some(index);
            }
            if Instant::now() > end {
                return None;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Ends a member with SIGKILL and waits until the process is gone.
    pub fn kill(&self, index: usize) {
        self.members[index].kill();
    }

    /// Freezes a member (SIGSTOP).
    pub fn stop(&self, index: usize) {
        self.members[index].stop();
    }

    /// Lets a frozen member go on (SIGCONT).
    pub fn cont(&self, index: usize) {
        self.members[index].signal(Signal::CONT);
    }

    /// Starts a killed member again, on its old port and data, and waits until
    /// it accepts connections.
    ///
    /// # Panics
    /// When it does not start, with the end of its log.
    pub async fn restart(&self, index: usize) {
        self.members[index].kill();
        let started = self.members[index].start().await;
        started.unwrap_or_else(|failure| panic!("{failure}"));
    }

    /// Makes the primary step down and waits until another member leads.
    /// Returns the old and the new primary.
    pub async fn step_down_primary(&self) -> (usize, usize) {
        let old = self.primary().await;
        let command = doc! { "replSetStepDown": 60, "secondaryCatchUpPeriodSecs": 10 };
        // It may close our connection before it answers; what counts is below.
        let _ = self.command(old, command).await;
        let end = Instant::now() + PRIMARY_DEADLINE;
        loop {
            let new = self.primary().await;
            if new != old {
                return (old, new);
            }
            assert!(Instant::now() < end, "member {old} did not step down");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Runs a command on the admin database of one member.
    ///
    /// # Errors
    /// Those of the driver.
    pub async fn command(&self, index: usize, command: Document) -> Result<Document, Failure> {
        let client = self.direct_client(index).await?;
        Ok(client.database("admin").run_command(command).await?)
    }

    /// Sets the fail point `failCommand` of a member. `settings` has `mode`,
    /// such as `{times: 1}` or `"alwaysOn"`, and `data`, such as
    /// `{failCommands: ["update"], closeConnection: true, appName: "…"}`.
    ///
    /// # Panics
    /// When the member refuses it.
    pub async fn fail_command(&self, index: usize, settings: Document) {
        let mut command = doc! { "configureFailPoint": "failCommand" };
        command.extend(settings);
        let done = self.command(index, command).await;
        done.unwrap_or_else(|failure| panic!("set failCommand: {failure}"));
    }

    /// Ends what [`fail_command`](Self::fail_command) set.
    pub async fn clear_fail_point(&self, index: usize) {
        self.fail_command(index, doc! { "mode": "off" }).await;
    }

    /// Makes a user with `roles` in the database `admin`: names, such as
    /// `"read"`, or documents, such as `{role: "read", db: "app"}`.
    ///
    /// # Panics
    /// When the set refuses it.
    pub async fn add_user(&self, name: &str, roles: Vec<Bson>) -> User {
        let user = User::with_password(name, "p@ss/word:%");
        self.create_user("admin", &user.creation(roles)).await;
        user
    }

    /// Makes a user who may do `actions` on one collection and nothing else.
    ///
    /// # Panics
    /// When the set refuses it.
    pub async fn add_user_with_actions(
        &self,
        name: &str,
        database: &str,
        collection: &str,
        actions: &[&str],
    ) -> User {
        let role = format!("{name}-role");
        let resource = doc! { "db": database, "collection": collection };
        let command = doc! {
            "createRole": &role,
            "privileges": [{ "resource": resource, "actions": actions.to_vec() }],
            "roles": [],
        };
        let made = self.client.database("admin").run_command(command).await;
        made.unwrap_or_else(|error| panic!("make role {role}: {error}"));
        self.add_user(name, vec![doc! { "role": role, "db": "admin" }.into()])
            .await
    }

    /// Makes the user whom the client certificate names (X.509).
    ///
    /// # Panics
    /// When the set has no TLS, or refuses it.
    pub async fn add_certificate_user(&self, roles: Vec<Bson>) -> User {
        let certificates = self
            .certificates
            .as_ref()
            .expect("the set was started with TLS");
        let user = User::with_certificate(&certificates.client_subject());
        self.create_user("$external", &user.creation(roles)).await;
        user
    }

    async fn create_user(&self, database: &str, creation: &Document) {
        let made = self
            .client
            .database(database)
            .run_command(creation.clone())
            .await;
        made.unwrap_or_else(|error| panic!("make user: {error}"));
    }

    fn uri_of(&self, user: Option<&User>) -> String {
        let addresses: Vec<_> = self.members.iter().map(Member::address).collect();
        let set = format!("replicaSet={SET_NAME}");
        let options: &[&str] = if self.standalone { &[] } else { &[&set] };
        user::uri(
            &addresses.join(","),
            options,
            user,
            self.certificates.as_ref(),
        )
    }

    async fn direct_client(&self, index: usize) -> Result<Client, Failure> {
        self.members[index].client(&self.direct_uri(index)).await
    }

    /// What each member says of itself; `None` of those that do not answer.
    async fn hellos(&self) -> Vec<Option<Document>> {
        join_all((0..self.members.len()).map(async |index| {
            self.members[index].pid()?;
            let answer = self.command(index, doc! { "hello": 1 });
            tokio::time::timeout(HELLO_MAX, answer).await.ok()?.ok()
        }))
        .await
    }
}

impl Drop for ReplicaSet {
    fn drop(&mut self) {
        // All at once: then they die side by side.
        for member in self.members.iter().filter(|member| !member.stays()) {
            member.signal(Signal::KILL);
        }
    }
}
