//! Runs a private MongoDB deployment of mongod processes on loopback ports.

mod builder;
mod member;
mod user;

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use mongodb::Client;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use mongodb::error::ErrorKind;
use rustix::process::Signal;

use crate::wait::pause;
use crate::{Certificates, Failure, Proxy, Scratch};

pub use builder::{Host, ReplicaSetBuilder};
pub use member::Member;
pub use user::User;

/// Name of the set.
pub const SET_NAME: &str = "testbed";
/// Maximum wait for a primary. An election with default settings took 12.1 s on a busy machine.
const PRIMARY_DEADLINE: Duration = Duration::from_secs(60);
/// Timeout of `hello`. A running member answers within milliseconds, a frozen member never.
const HELLO_MAX: Duration = Duration::from_millis(500);
const POLL: Duration = Duration::from_millis(5);
/// Error code of createUser if the user exists.
const USER_EXISTS: i32 = 51003;

/// A running replica set, or a standalone mongod. Dropping this value ends the processes.
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
    name: String,
    certificates: Option<Certificates>,
    root: Option<User>,
    client: Client,
    scratch: Scratch,
}

impl ReplicaSet {
    /// Starts three members with elections after 2 s, without TLS and users. Takes about 3 s.
    ///
    /// # Panics
    /// If the set cannot be started.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// Returns a builder for another kind of set.
    pub fn builder() -> ReplicaSetBuilder {
        ReplicaSetBuilder::new()
    }

    /// Returns the connection string, with the root user if the replica set requires a login, and
    /// with the client's certificate if the set uses TLS.
    pub fn uri(&self) -> String {
        self.uri_of(self.root.as_ref())
    }

    /// Returns the connection string for a user.
    pub fn uri_for(&self, user: &User) -> String {
        self.uri_of(Some(user))
    }

    /// Returns the connection string without any credential.
    pub fn uri_without_user(&self) -> String {
        self.uri_of(None)
    }

    /// Returns the connection string of a single member (`directConnection`).
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

    /// Returns a driver client for the whole replica set, as root.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the certificates, if the set was started with TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    /// Returns the number of members.
    pub fn member_count(&self) -> usize {
        self.members.len()
    }

    /// Returns one member.
    pub fn node(&self, index: usize) -> &Member {
        &self.members[index]
    }

    /// Returns the process ids of all running members.
    pub fn pids(&self) -> Vec<u32> {
        self.members.iter().filter_map(Member::pid).collect()
    }

    /// Returns the directory that contains all data.
    pub fn directory(&self) -> &std::path::Path {
        self.scratch.path()
    }

    /// Leaves a [detached](ReplicaSetBuilder::detached) set running, with its data. The caller must
    /// end the processes.
    pub fn leave_up(mut self) {
        self.members.iter_mut().for_each(Member::leave_up);
        self.scratch.keep();
    }

    /// Starts a new proxy in front of all members; see [`Proxy::uri`].
    pub fn proxy(&self) -> Proxy {
        let ports: Vec<_> = self.members.iter().map(Member::port).collect();
        Proxy::start(&ports, self.certificates.is_some())
    }

    /// Returns the connection string through `proxy`.
    pub fn proxied_uri(&self, proxy: &Proxy) -> String {
        proxy.uri(&self.uri())
    }

    /// Waits until a member reports that it is a writable primary. Returns its index.
    ///
    /// # Panics
    /// If there is no primary for 60 s.
    pub async fn primary(&self) -> usize {
        let found = self.primary_within(PRIMARY_DEADLINE).await;
        found.unwrap_or_else(|| panic!("no primary within {PRIMARY_DEADLINE:?}"))
    }

    /// Like [`primary`](Self::primary), but returns `None` if there is no primary after `deadline`.
    pub async fn primary_within(&self, deadline: Duration) -> Option<usize> {
        let begin = Instant::now();
        loop {
            // A deposed primary may not have noticed the election yet, so select the primary of the
            // newest election.
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
            if begin.elapsed() > deadline {
                return None;
            }
            pause(begin).await;
        }
    }

    /// Kills a member (SIGKILL) and waits until the process has exited.
    pub fn kill(&self, index: usize) {
        self.members[index].kill();
    }

    /// Freezes a member (SIGSTOP).
    pub fn stop(&self, index: usize) {
        self.members[index].stop();
    }

    /// Resumes a frozen member (SIGCONT).
    pub fn cont(&self, index: usize) {
        self.members[index].signal(Signal::CONT);
    }

    /// Restarts a killed member on its old port and data, and waits until it accepts connections.
    ///
    /// # Panics
    /// If the member does not start. The message contains the end of the member's log.
    pub async fn restart(&self, index: usize) {
        self.members[index].kill();
        let started = self.members[index].start().await;
        started.unwrap_or_else(|failure| panic!("{failure}"));
    }

    /// Starts a replica set on another port with a copy of a member's data, like a restored backup.
    /// The copy has this set's name and id, and is its only member. Kills the member, copies its
    /// data and restarts the member.
    ///
    /// # Panics
    /// If the copy cannot be started.
    pub async fn copy(&self, index: usize) -> Member {
        self.kill(index);
        let copy = self.members[index].copied(&self.scratch.path().join("copy"));
        self.restart(index).await;
        let copy = copy.unwrap_or_else(|failure| panic!("copy a member: {failure}"));
        let started = copy.start().await;
        started.unwrap_or_else(|failure| panic!("start a copy: {failure}"));
        let direct = format!("mongodb://{}/?directConnection=true", copy.address());
        let client = copy.client(&direct).await;
        let client = client.unwrap_or_else(|failure| panic!("connect to a copy: {failure}"));
        let admin = client.database("admin");
        let members = doc! { "_id": 0, "host": copy.address() };
        let config = doc! { "_id": &self.name, "version": 1_000, "members": [members] };
        let end = Instant::now() + PRIMARY_DEADLINE;
        loop {
            // The server refuses the reconfiguration until it has read the copied configuration.
            let reconfig = doc! { "replSetReconfig": &config, "force": true };
            let _ = admin.run_command(reconfig).await;
            let hello = admin.run_command(doc! { "hello": 1 }).await;
            if hello.is_ok_and(|hello| hello.get_bool("isWritablePrimary").unwrap_or(false)) {
                return copy;
            }
            assert!(Instant::now() < end, "the copy has no primary");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Makes the primary step down and waits until another member is primary. Returns the old and
    /// the new primary.
    pub async fn step_down_primary(&self) -> (usize, usize) {
        let old = self.primary().await;
        let command = doc! { "replSetStepDown": 60, "secondaryCatchUpPeriodSecs": 10 };
        // The member may close the connection before it answers; the loop below checks the result.
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
    /// The driver's error.
    pub async fn command(&self, index: usize, command: Document) -> Result<Document, Failure> {
        let client = self.direct_client(index).await?;
        Ok(client.database("admin").run_command(command).await?)
    }

    /// Sets the fail point `failCommand` of a member. `settings` contains `mode`, such as `{times:
    /// 1}` or `"alwaysOn"`, and `data`, such as `{failCommands: ["update"], closeConnection: true,
    /// appName: "…"}`.
    ///
    /// # Panics
    /// If the member refuses the command.
    pub async fn fail_command(&self, index: usize, settings: Document) {
        let mut command = doc! { "configureFailPoint": "failCommand" };
        command.extend(settings);
        let done = self.command(index, command).await;
        done.unwrap_or_else(|failure| panic!("set failCommand: {failure}"));
    }

    /// Makes these commands of one application fail on a member. `how` describes the failure, such
    /// as `{errorCode: 237}`; see [`fail_command`](Self::fail_command).
    ///
    /// # Panics
    /// If the member refuses the command.
    pub async fn fail_commands_of(
        &self,
        (index, app_name): (usize, &str),
        commands: &[&str],
        mode: impl Into<Bson>,
        how: Document,
    ) {
        let mut data = doc! { "failCommands": commands, "appName": app_name };
        data.extend(how);
        let settings = doc! { "mode": mode.into(), "data": data };
        self.fail_command(index, settings).await;
    }

    /// Disables the fail point set by [`fail_command`](Self::fail_command).
    pub async fn clear_fail_point(&self, index: usize) {
        self.fail_command(index, doc! { "mode": "off" }).await;
    }

    /// Creates a user with `roles` in the database `admin`. A role is a name, such as `"read"`, or
    /// a document, such as `{role: "read", db: "app"}`.
    ///
    /// # Panics
    /// If the set refuses the command.
    pub async fn add_user(&self, name: &str, roles: Vec<Bson>) -> User {
        let user = User::with_password(name, "p@ss/word:%");
        self.create_user("admin", &user.creation(roles)).await;
        user
    }

    /// Creates a user that may only perform `actions` on one collection.
    ///
    /// # Panics
    /// If the set refuses the command.
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

    /// Grants actions on another collection to a user that [`ReplicaSet::add_user_with_actions`]
    /// created.
    ///
    /// # Panics
    /// If the set refuses the command.
    pub async fn grant(&self, name: &str, database: &str, collection: &str, actions: &[&str]) {
        let resource = doc! { "db": database, "collection": collection };
        let command = doc! {
            "grantPrivilegesToRole": format!("{name}-role"),
            "privileges": [{ "resource": resource, "actions": actions.to_vec() }],
        };
        let granted = self.client.database("admin").run_command(command).await;
        granted.unwrap_or_else(|error| panic!("grant {actions:?} to {name}: {error}"));
    }

    /// Creates the user named by the client certificate (X.509).
    ///
    /// # Panics
    /// If the set has no TLS, or refuses the command.
    pub async fn add_certificate_user(&self, roles: Vec<Bson>) -> User {
        let certificates = self
            .certificates
            .as_ref()
            .expect("the set was started with TLS");
        let user = User::with_certificate(&certificates.client_subject());
        let external = self.client.database("$external");
        let made = external.run_command(user.creation(roles.clone())).await;
        match made.map_err(|error| *error.kind) {
            Ok(_) => {}
            // Another test may have created the user, because all tests of the set share the
            // certificate.
            Err(ErrorKind::Command(error)) if error.code == USER_EXISTS => {
                let grant = doc! { "grantRolesToUser": user.name(), "roles": roles };
                let granted = external.run_command(grant).await;
                granted.unwrap_or_else(|error| panic!("grant roles: {error}"));
            }
            Err(error) => panic!("make user: {error}"),
        }
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
        let set = format!("replicaSet={}", self.name);
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

    /// Returns each member's reply to `hello`, or `None` for a member that does not answer.
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
        // Kill all members before waiting for the first, so that they exit concurrently.
        for member in self.members.iter().filter(|member| !member.stays()) {
            member.signal(Signal::KILL);
        }
    }
}
