//! Configures and starts a replica set.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use mongodb::bson::{Document, doc};
use mongodb::options::{Acknowledgment, WriteConcern};

use super::member::{self, Member, Plan};
use super::{PRIMARY_DEADLINE, ReplicaSet, SET_NAME, User, user};
use crate::wait::pause;
use crate::{Certificates, Failure, FakeClock, Lifetime, Scratch, Storage, mongod_binary, shared};

const ELECTION_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
const HEARTBEAT_DEFAULT: Duration = Duration::from_secs(2);
/// Election timeout that is short enough for tests, but long enough that a busy machine does not
/// cause elections.
const ELECTION_TIMEOUT_FAST: Duration = Duration::from_secs(2);
/// WiredTiger's settings for a small journal. By default, WiredTiger allocates three files of 100
/// MB in memory, which takes a fourth of the processor time of a start and a removal. The settings
/// replace all settings of the journal, so the first four values are mongod's.
const SMALL_JOURNAL: &str = "log=(enabled=true,remove=true,path=journal,compressor=snappy,\
    file_max=8MB,prealloc=false)";

/// Builds a set; see [`ReplicaSet::builder`].
#[derive(Debug, Clone)]
pub struct ReplicaSetBuilder {
    member_count: usize,
    standalone: bool,
    election_timeout: Duration,
    catch_up: Option<Duration>,
    tls: bool,
    client_certificates: bool,
    auth: bool,
    parameters: Vec<String>,
    flags: Vec<OsString>,
    config_server: bool,
    clocks: Vec<(usize, FakeClock)>,
    lifetime: Lifetime,
    storage: Storage,
    default_journal: bool,
    hosts: Vec<Host>,
    name: String,
    data: Option<PathBuf>,
}

/// A network namespace, and the address inside it.
#[derive(Debug, Clone)]
pub struct Host {
    /// Name of the namespace, which `ip netns add` has created.
    pub namespace: String,
    /// The address, which this process can reach.
    pub address: Ipv4Addr,
}

impl ReplicaSetBuilder {
    pub(super) fn new() -> Self {
        Self {
            member_count: 3,
            standalone: false,
            election_timeout: ELECTION_TIMEOUT_FAST,
            catch_up: None,
            tls: false,
            client_certificates: false,
            auth: false,
            parameters: Vec::new(),
            flags: Vec::new(),
            config_server: false,
            clocks: Vec::new(),
            lifetime: Lifetime::OfStarter,
            storage: Storage::Memory,
            default_journal: false,
            hosts: Vec::new(),
            name: SET_NAME.to_owned(),
            data: None,
        }
    }

    /// Starts one member on each of these hosts.
    pub fn hosts(mut self, hosts: Vec<Host>) -> Self {
        self.member_count = hosts.len();
        self.hosts = hosts;
        self
    }

    /// Sets the name of the set; [`SET_NAME`] by default.
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Keeps the only member's data in this existing directory. The log is in another directory.
    pub fn data(mut self, directory: &Path) -> Self {
        self.data = Some(directory.to_owned());
        self
    }

    /// Sets the number of members, from 1 to 5.
    pub fn members(mut self, count: usize) -> Self {
        assert!((1..=5).contains(&count), "a set of {count} members");
        self.member_count = count;
        self
    }

    /// Starts one mongod outside a replica set, without a majority or change streams.
    pub fn standalone(mut self) -> Self {
        self.standalone = true;
        self.member_count = 1;
        self
    }

    /// Sets the time until secondaries replace an unresponsive primary. The heartbeat interval is a
    /// quarter of this time, but at most 2 s.
    pub fn election_timeout(mut self, timeout: Duration) -> Self {
        self.election_timeout = timeout;
        self
    }

    /// Limits how long a new primary catches up with the other members.
    pub fn catch_up(mut self, limit: Duration) -> Self {
        self.catch_up = Some(limit);
        self
    }

    /// Uses MongoDB's default election timeout of 10 s.
    pub fn default_election(self) -> Self {
        self.election_timeout(ELECTION_TIMEOUT_DEFAULT)
    }

    /// Requires TLS. Clients need no certificate, but may use one; see [`Certificates`].
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Refuses TLS clients that have no certificate.
    pub fn client_certificates(mut self) -> Self {
        self.client_certificates = true;
        self
    }

    /// Requires clients to log in; see [`ReplicaSet::add_user`].
    pub fn auth(mut self) -> Self {
        self.auth = true;
        self
    }

    /// Adds a `--setParameter`, as `name=value`, to all members.
    pub fn parameter(mut self, assignment: &str) -> Self {
        self.parameters.push(assignment.to_owned());
        self
    }

    /// Adds mongod arguments to all members. With `--ipv6`, members also listen on `::1`.
    pub fn flags<F: Into<OsString>>(mut self, flags: impl IntoIterator<Item = F>) -> Self {
        self.flags.extend(flags.into_iter().map(Into::into));
        self
    }

    /// Starts the config servers of a sharded cluster.
    pub fn config_server(mut self) -> Self {
        self.config_server = true;
        self.flags(["--configsvr"])
    }

    /// Gives one member a separate wall clock.
    pub fn clock(mut self, index: usize, clock: &FakeClock) -> Self {
        self.clocks.push((index, clock.clone()));
        self
    }

    /// Starts processes that can be left running; see [`ReplicaSet::leave_up`].
    pub fn detached(mut self) -> Self {
        self.lifetime = Lifetime::Detached;
        self
    }

    /// Sets the storage of the data; memory by default.
    pub fn storage(mut self, storage: Storage) -> Self {
        self.storage = storage;
        self
    }

    /// Keeps mongod's settings of the journal, for measurements. Other sets in memory have a small
    /// journal, which costs less time at the start.
    pub fn default_journal(mut self) -> Self {
        self.default_journal = true;
        self
    }

    /// Starts the set and waits until it has a writable primary and all other members are
    /// secondaries.
    ///
    /// # Panics
    /// If the set cannot be started.
    pub async fn start(self) -> ReplicaSet {
        self.try_start()
            .await
            .unwrap_or_else(|failure| panic!("start a replica set: {failure}"))
    }

    /// Like [`start`](Self::start), but returns errors.
    ///
    /// # Errors
    /// If the set cannot be started.
    pub async fn try_start(self) -> Result<ReplicaSet, Failure> {
        let binary = mongod_binary()?;
        let scratch = Scratch::on(self.storage)?;
        let addresses: Vec<_> = self.hosts.iter().map(|host| host.address).collect();
        let certificates = self.tls.then(|| match addresses.is_empty() {
            true => Certificates::new(),
            false => Certificates::at(&addresses),
        });
        let arguments = self.arguments(scratch.path(), certificates.as_ref());
        let launches = (0..self.member_count).map(|index| {
            let clocks = self.clocks.iter().filter(move |(of, _)| *of == index);
            let variables = clocks.flat_map(|(_, clock)| clock.variables().iter().cloned());
            let plan = Plan {
                binary: binary.clone(),
                arguments: arguments.clone(),
                environment: variables.collect(),
                lifetime: self.lifetime,
                host: self.hosts.get(index).cloned(),
                data: self.data.clone(),
            };
            let directory = scratch.path().join(format!("member-{index}"));
            async move { Member::launch(plan, &directory).await }
        });
        let members = try_join_all(launches).await?;
        // This temporary client is replaced once the set works.
        let first = &members[0];
        let direct = ["directConnection=true"];
        let first = user::uri(&first.address(), &direct, None, certificates.as_ref());
        let mut set = ReplicaSet {
            members,
            standalone: self.standalone,
            name: self.name.clone(),
            certificates,
            root: None,
            client: member::client(&first).await?,
            scratch,
        };
        if !self.standalone {
            set.command(0, self.initiation(&set)).await?;
            elect(&set, self.auth).await?;
        }
        if self.auth {
            add_root(&mut set).await?;
        }
        // Create the client only now, because a driver that connects before the election is slow to
        // notice the primary.
        set.client = shared::client(&set.uri()).await?;
        // Config servers refuse databases of users.
        if !self.config_server {
            replicate(&set).await?;
        }
        Ok(set)
    }

    fn arguments(&self, directory: &Path, certificates: Option<&Certificates>) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = [
            "--nounixsocket",
            "--wiredTigerCacheSizeGB",
            "0.25",
            "--setParameter",
            "enableTestCommands=1",
            "--setParameter",
            "shutdownTimeoutMillisForSignaledShutdown=100",
            // mongod would write this diagnostic data to disk every second, and no test reads it.
            "--setParameter",
            "diagnosticDataCollectionEnabled=false",
        ]
        .map(OsString::from)
        .to_vec();
        let in_memory = self.storage == Storage::Memory && self.data.is_none();
        if in_memory && !self.default_journal {
            arguments.extend(["--wiredTigerEngineConfigString", SMALL_JOURNAL].map(OsString::from));
        }
        for assignment in &self.parameters {
            arguments.extend(["--setParameter".into(), assignment.into()]);
        }
        arguments.extend(self.flags.iter().cloned());
        if !self.standalone {
            arguments.extend(["--replSet".into(), (&self.name).into()]);
        }
        if let Some(certificates) = certificates {
            arguments.extend(["--tlsMode".into(), "requireTLS".into()]);
            arguments.extend(["--tlsCAFile".into(), certificates.authority().into()]);
            arguments.extend([
                "--tlsCertificateKeyFile".into(),
                certificates.server().into(),
            ]);
            if !self.client_certificates {
                arguments.push("--tlsAllowConnectionsWithoutCertificates".into());
            }
        }
        if self.auth {
            arguments.extend(["--auth".into()]);
            if !self.standalone {
                arguments.extend(["--keyFile".into(), key_file(directory).into()]);
            }
        }
        arguments
    }

    fn initiation(&self, set: &ReplicaSet) -> Document {
        let members = set.members.iter().enumerate().map(|(index, member)| {
            doc! { "_id": i32::try_from(index).expect("at most 5"), "host": member.address() }
        });
        let heartbeat = HEARTBEAT_DEFAULT.min(self.election_timeout / 4);
        let millis =
            |duration: Duration| i64::try_from(duration.as_millis()).expect("a short time");
        let mut settings = doc! {
            "electionTimeoutMillis": millis(self.election_timeout),
            "heartbeatIntervalMillis": millis(heartbeat),
        };
        if let Some(limit) = self.catch_up {
            settings.insert("catchUpTimeoutMillis", millis(limit));
        }
        let members: Vec<_> = members.collect();
        let mut config = doc! { "_id": &self.name, "members": members, "settings": settings };
        if self.config_server {
            config.insert("configsvr", true);
        }
        doc! { "replSetInitiate": config }
    }
}

/// Waits until one member is primary and the others are secondaries. A new set would elect its
/// first primary only after an election timeout, so this function sends `replSetStepUp` to the
/// first member. With `auth`, no existing user may send this command yet, so the set has to wait.
async fn elect(set: &ReplicaSet, auth: bool) -> Result<(), Failure> {
    let begin = Instant::now();
    loop {
        let hellos = set.hellos().await;
        let are = |field| {
            let says = |hello: &&Document| hello.get_bool(field).unwrap_or(false);
            hellos.iter().flatten().filter(says).count()
        };
        let (primaries, secondaries) = (are("isWritablePrimary"), are("secondary"));
        if primaries == 1 && primaries + secondaries == set.member_count() {
            return Ok(());
        }
        if primaries == 0 && secondaries == set.member_count() && !auth {
            // The server refuses this command until all members have connected to each other.
            let _ = set.command(0, doc! { "replSetStepUp": 1 }).await;
        }
        if begin.elapsed() > PRIMARY_DEADLINE {
            return Err(Failure::new(format!(
                "no working set after {PRIMARY_DEADLINE:?}"
            )));
        }
        pause(begin).await;
    }
}

/// Waits until a majority acknowledges writes. A new set's secondaries take about a second to begin
/// replication, which would distort the tests' measurements.
async fn replicate(set: &ReplicaSet) -> Result<(), Failure> {
    let majority = WriteConcern::builder()
        .w(Acknowledgment::Majority)
        .journal(true)
        .build();
    set.client
        .database("testbed")
        .collection("ready")
        .insert_one(doc! { "ready": true })
        .write_concern(majority)
        .await?;
    Ok(())
}

/// Creates the first user, which requires no login over loopback.
async fn add_root(set: &mut ReplicaSet) -> Result<(), Failure> {
    let root = User::with_password("root", "root");
    let primary = set.primary().await;
    set.command(primary, root.creation(vec!["root".into()]))
        .await?;
    set.root = Some(root);
    // The existing clients are not logged in, so each member must create its client again.
    set.members.iter().for_each(Member::forget_client);
    Ok(())
}

fn key_file(directory: &Path) -> std::path::PathBuf {
    let path = directory.join("key");
    std::fs::write(&path, "bGVhc2Vob2xkIHRlc3RiZWQga2V5IGZpbGU=").expect("write a key file");
    // mongod refuses a key file that others can read.
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&path, mode).expect("set a file's mode");
    path
}
