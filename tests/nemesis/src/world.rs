//! Starts, stops and restarts all processes of a run on their hosts.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold_testbed::network::{Network, Node};
use leasehold_testbed::{Changes, DaemonTimings, Failure, ReplicaSet};
use mongodb::Collection;
use mongodb::bson::{Document, doc};

use crate::candidate::{Candidate, Kind, LEASE};
use crate::embedder;
use crate::fault::{Fault, Target};
use crate::job::Jobs;
use crate::residents::Residents;
use crate::rival::{Cluster, Rival};

const MEMBERS: usize = 3;
pub(crate) const LEASES: &str = "leases";
pub(crate) const LOCKS: &str = "locks";
const LOOPS: usize = 3;
/// Number of job loops for each lock of another design.
const RIVAL_LOOPS: usize = 2;
const POLL: Duration = Duration::from_millis(20);
/// Timeout of the nemesis's own MongoDB calls.
const ASK_MAX: Duration = Duration::from_secs(5);
/// Maximum wait until all candidates know the newest token.
const KNOWN_MAX: Duration = Duration::from_secs(10);
/// Additional time for a busy machine.
const BUSY: Duration = Duration::from_secs(3);

/// The timings of the leases and of MongoDB's elections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Profile {
    /// A lease of 6 s, and MongoDB elections after 2 s.
    Fast,
    /// The defaults of leasehold and of MongoDB.
    Default,
}

impl Profile {
    pub(crate) fn timings(self) -> DaemonTimings {
        match self {
            Self::Fast => DaemonTimings::DEMO,
            Self::Default => DaemonTimings::DEFAULT,
        }
    }

    /// Maximum time that a replica set needs to elect a new primary: the election timeout, up to
    /// 15% jitter, and the vote.
    pub(crate) fn election(self) -> Duration {
        match self {
            Self::Fast => Duration::from_millis(2_900),
            Self::Default => Duration::from_millis(12_100),
        }
    }
}

#[derive(Clone)]
pub(crate) struct Places {
    pub(crate) harness: PathBuf,
    pub(crate) program: PathBuf,
    pub(crate) directory: PathBuf,
    pub(crate) uri: String,
    pub(crate) uri_file: PathBuf,
    pub(crate) cluster: Option<Arc<Cluster>>,
}

impl Places {
    pub(crate) fn journal(&self, name: &str) -> PathBuf {
        self.directory.join(format!("journal-{name}"))
    }
}

pub(crate) struct Options {
    pub(crate) profile: Profile,
    pub(crate) other: Option<PathBuf>,
    pub(crate) rivals: bool,
    pub(crate) kubernetes: bool,
    pub(crate) tls: bool,
    pub(crate) etcdctl: Option<PathBuf>,
    pub(crate) elector: Option<PathBuf>,
    pub(crate) soak: bool,
}

pub(crate) struct World {
    pub(crate) profile: Profile,
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) jobs: Vec<Jobs>,
    /// Job loops with locks of other designs, [`RIVAL_LOOPS`] for each design.
    pub(crate) rivals: Vec<Jobs>,
    pub(crate) residents: Option<Residents>,
    pub(crate) set: ReplicaSet,
    pub(crate) network: Network,
    pub(crate) places: Places,
    /// Binary of another version, for upgrades and downgrades.
    pub(crate) other: Option<PathBuf>,
    pub(crate) changes: Vec<Changes>,
    /// A copy of the lease document, which faults restore.
    pub(crate) copy: Mutex<Option<Document>>,
}

pub(crate) enum Edit {
    Delete,
    Replace(Document),
    /// Converts the token to this BSON type.
    Token(&'static str),
}

impl World {
    pub(crate) async fn start(
        options: Options,
        (harness, program): (PathBuf, PathBuf),
        directory: PathBuf,
    ) -> Result<Self, Failure> {
        let kinds = [
            Kind::Supervised,
            Kind::Sidecar,
            Kind::Supervised,
            Kind::Supervised,
        ];
        let Options {
            profile,
            other,
            rivals,
            kubernetes,
            tls,
            etcdctl,
            elector,
            soak,
        } = options;
        let rivals: &[Rival] = if rivals { &Rival::ALL } else { &[] };
        let own = kinds.len() + LOOPS;
        let residence = own + rivals.len() * RIVAL_LOOPS;
        let hosts = residence + usize::from(soak);
        let mut network = Network::new(MEMBERS, hosts)?;
        let builder = ReplicaSet::builder().hosts(network.member_hosts());
        let builder = match profile {
            Profile::Fast => builder,
            Profile::Default => builder.default_election(),
        };
        let builder = if tls { builder.tls() } else { builder };
        let set = builder.try_start().await?;
        let ports: Vec<_> = (0..MEMBERS).map(|member| set.node(member).port()).collect();
        let pairs = (0..hosts).flat_map(|host| (0..MEMBERS).map(move |m| (Node::Client(host), m)));
        network.forward(&ports, &pairs.collect::<Vec<_>>())?;
        let effects = set.client().database(embedder::DATABASE);
        let effect = doc! { "_id": embedder::DOCUMENT };
        effects
            .collection::<Document>(embedder::COLLECTION)
            .insert_one(effect)
            .await?;
        let mut changes = Vec::new();
        for collection in [LEASES, LOCKS] {
            let file = directory.join(format!("changes-{collection}"));
            changes.push(Changes::record(&set.uri(), "leasehold", collection, file).await);
        }
        let uri_file = directory.join("uri");
        let unwritable = |error| Failure::new(format!("cannot write {uri_file:?}: {error}"));
        std::fs::write(&uri_file, set.uri()).map_err(unwritable)?;
        let cluster = match kubernetes {
            false => None,
            true => {
                let programs = (etcdctl.as_deref(), elector.as_deref());
                let members = network.member_hosts();
                let cluster = Cluster::start(&members, Node::Server.host(), programs).await?;
                Some(Arc::new(cluster))
            }
        };
        let places = Places {
            harness,
            program,
            directory,
            uri: set.uri(),
            uri_file,
            cluster: cluster.clone(),
        };
        let timings = profile.timings();
        let namespace = match &cluster {
            None => String::new(),
            Some(cluster) => cluster.namespace().await,
        };
        let mut candidates = Vec::new();
        for (number, kind) in kinds.iter().enumerate() {
            let pod = match &cluster {
                None => None,
                Some(cluster) => Some(cluster.pod(&namespace, number).await),
            };
            candidates.push(Candidate::start(
                (number, *kind),
                timings,
                places.clone(),
                pod,
            )?);
        }
        let rivals = rivals
            .iter()
            .flat_map(|rival| [rival; RIVAL_LOOPS])
            .enumerate();
        let rivals: Vec<_> = rivals
            .map(|(number, rival)| Jobs::of_rival(*rival, own + number, timings, places.clone()))
            .collect::<Result<_, _>>()?;
        let residents = soak
            .then(|| Residents::start(residence, &places))
            .transpose()?;
        let jobs = (kinds.len()..own)
            .map(|number| Jobs::new(number, timings, places.clone()))
            .collect();
        Ok(Self {
            profile,
            candidates,
            jobs,
            rivals,
            residents,
            set,
            network,
            places,
            other,
            changes,
            copy: Mutex::default(),
        })
    }

    pub(crate) fn leader(&self) -> Option<usize> {
        self.candidates.iter().position(Candidate::leads)
    }

    /// Returns false if no candidate leads within `time`.
    pub(crate) async fn led_within(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while self.leader().is_none() {
            if Instant::now() > end {
                return false;
            }
            tokio::time::sleep(POLL).await;
        }
        true
    }

    /// Waits until all candidates know the leader.
    pub(crate) async fn known(&self) {
        let knows = |candidate: &Candidate| candidate.token_of_leader().is_some();
        let known = async || self.candidates.iter().all(knows);
        leasehold_testbed::eventually("all candidates know the leader", known).await;
    }

    /// Returns the token of the document once all candidates know it, or `None` after
    /// [`KNOWN_MAX`]. Otherwise, no fault may delete or restore the document, because a candidate
    /// that has never seen the current token could issue that token again.
    async fn known_token(&self) -> Option<i64> {
        let leases = self.documents();
        let end = Instant::now() + KNOWN_MAX;
        while Instant::now() < end {
            let read = tokio::time::timeout(ASK_MAX, leases.find_one(doc! { "_id": LEASE }));
            if let Ok(Ok(Some(found))) = read.await
                && let Ok(token) = found.get_i64("token")
            {
                let mut known = self.candidates.iter().map(Candidate::token_of_leader);
                if known.all(|known| known == Some(token)) {
                    return Some(token);
                }
            }
            tokio::time::sleep(POLL).await;
        }
        None
    }

    pub(crate) async fn residents(&self) -> Result<(), Failure> {
        match &self.residents {
            Some(residents) => residents.run().await,
            None => std::future::pending().await,
        }
    }

    /// Restarts exited processes until this future is dropped.
    pub(crate) async fn keep_up(&self) -> Result<(), Failure> {
        loop {
            for candidate in &self.candidates {
                candidate.keep_up()?;
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

impl World {
    /// Returns the maximum time until a candidate leads after the last fault was healed. In this
    /// time MongoDB elects a primary, and followers see the last write within two polls, wait a
    /// lease duration, and retry. The result includes a margin for a busy machine.
    pub(crate) fn recovery_max(&self) -> Duration {
        let timings = self.profile.timings();
        let polls = 2 * (timings.retry_interval + timings.operation_timeout);
        self.profile.election() + timings.lease_duration + timings.loss_grace + polls + BUSY
    }

    /// True if two faults must not strike together, because they have the same target, or one of
    /// them edits the document. Faults on a daemon and on its guard count as the same target,
    /// because no process can end the command while both are frozen or killed (docs/protocol.md,
    /// I5).
    pub(crate) fn together_excluded(&self, one: &Fault, other: &Fault) -> bool {
        let targets = [one, other].map(Fault::target);
        // A restored document is safe only if all candidates have seen the newest token, so no
        // other fault may cut off a candidate.
        targets[0] == targets[1] || targets.contains(&Target::Document)
    }

    /// Returns the loops of other designs that suffer the same faults as candidate or loop
    /// `number`.
    pub(crate) fn companions(&self, number: usize) -> impl Iterator<Item = &Jobs> {
        let same = move |(place, _): &(usize, &Jobs)| place % RIVAL_LOOPS == number % RIVAL_LOOPS;
        self.rivals
            .iter()
            .enumerate()
            .filter(same)
            .map(|(_, jobs)| jobs)
    }

    /// Returns the host of a candidate and the hosts of its [`companions`](Self::companions).
    pub(crate) fn hosts_alike(&self, candidate: usize) -> Vec<usize> {
        let companions = self.companions(candidate).map(Jobs::host);
        std::iter::once(candidate).chain(companions).collect()
    }

    pub(crate) async fn keep_copy(&self) {
        let leases = self.documents();
        let read = tokio::time::timeout(ASK_MAX, leases.find_one(doc! { "_id": LEASE }));
        if let Ok(Ok(found)) = read.await {
            *self.copy.lock().expect("no holder panics") = found;
        }
    }

    /// Edits the lease document. Returns true if MongoDB acknowledged the change. An unacknowledged
    /// change may still have been applied.
    pub(crate) async fn edit(&self, edit: Edit) -> bool {
        let mut filter = doc! { "_id": LEASE };
        if let Edit::Delete | Edit::Replace(_) = edit {
            let Some(token) = self.known_token().await else {
                println!(
                    "skipped: a deletion or restore, because some candidate did not know the token"
                );
                return false;
            };
            filter.insert("token", token);
        }
        self.changes[0].declare(LEASE, "a fault");
        let leases = self.documents();
        let write = async {
            match edit {
                Edit::Delete => leases.delete_one(filter).await.map(|it| it.deleted_count),
                Edit::Replace(document) => {
                    let replaced = leases.replace_one(filter, document).await;
                    replaced.map(|it| it.modified_count)
                }
                Edit::Token(conversion) => {
                    let stages = vec![doc! { "$set": { "token": { conversion: "$token" } } }];
                    let updated = leases.update_one(filter, stages).await;
                    updated.map(|it| it.modified_count)
                }
            }
        };
        let answer = tokio::time::timeout(ASK_MAX, write).await;
        if let Ok(Ok(0)) = answer {
            self.changes[0].withdraw(LEASE);
        }
        matches!(answer, Ok(Ok(_)))
    }

    fn documents(&self) -> Collection<Document> {
        self.set.client().database("leasehold").collection(LEASES)
    }

    pub(crate) fn logs(&self) -> String {
        let logs = self
            .candidates
            .iter()
            .map(|candidate| format!("-- {}\n{}", candidate.identity, candidate.log()));
        logs.collect()
    }
}
