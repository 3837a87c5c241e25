//! `leasehold replicas`: asks every replica of a lease over HTTP, and checks that exactly one
//! leads. MongoDB cannot show this, because replicas with different stores could each lead on their
//! own store.

mod asking;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::json;

use self::asking::{ANSWER_MAX, EXAMPLES, host_and_port};
pub(crate) use self::asking::{NoStatus, status_of};
use crate::operators::render::{or_dash, short};
use crate::table::counted;
use leasehold_cli::values::{Output, between, whole};
use leasehold_cli::{answer, connecting, run_to_end, say};
use leasehold_clock::boot_now;
use leasehold_core::election::{ResourceName, Role};
use leasehold_host::cause::cause;
use leasehold_host::terminal::fitted;
use leasehold_host::{CommandError, exit};

/// Time limit for resolving a name. The first nameserver may time out after 5 s.
const RESOLVE_MAX: Duration = Duration::from_secs(7);
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum of `--wait`. A rollout that takes longer than an hour counts as failed.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Version of the JSON output, which changes only if the meaning of a field changes.
const SCHEMA: u32 = 1;

const HELP: &str = "\
Each HOST is resolved, and all of its addresses are asked for /status: the name of a headless Service \
stands for all of its pods. The command needs no configuration and no access to MongoDB.

Examples:
  leasehold replicas orders-headless:9402 --expect 2 --wait 1m
                             after a rollout
  leasehold replicas orders 10.0.0.1:9402 10.0.0.2:9402 --output json

Exit codes: 0 every replica answers, one leads, and all contend for one lease in one MongoDB collection; 1 a \
check failed, with the reason; 64 usage.";

/// Arguments of `leasehold replicas`.
#[derive(Debug, Args)]
#[command(after_help = HELP, override_usage = "leasehold replicas [OPTIONS] [NAME] <HOST:PORT>...")]
pub struct ReplicasArgs {
    /// HTTP address of one or more replicas
    ///
    /// A NAME before the addresses is the lease that all replicas contend for.
    // A host name means all of its addresses. The name of a lease contains no colon.
    #[arg(id = "name", value_name = "HOST:PORT", required = true,
          value_parser = name_or_address)]
    named: Vec<String>,
    /// Lease that all replicas contend for
    ///
    /// [default: any single lease]
    #[arg(long, value_name = "NAME")]
    lease: Option<String>,
    /// Number of replicas [default: 1 or more]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, u32::MAX))]
    expect: Option<u32>,
    /// Repeat the checks for at most this long
    ///
    /// Asks every second until all checks pass or this time is over. Example: 1m.
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true,
          default_value = "0s", value_parser = between(Duration::ZERO, WAIT_MAX))]
    wait: Duration,
    #[command(flatten)]
    output: Output,
}

impl ReplicasArgs {
    /// Returns the error for a missing address, and for a lease that is given twice.
    pub fn contradiction(&self) -> Option<String> {
        if self.lease.is_some() && self.name().is_some() {
            return Some("the lease is given twice: as NAME and with --lease".to_owned());
        }
        let mut replicas = self.replicas().iter();
        if let Some(unfit) = replicas.find(|it| host_and_port(it).is_err()) {
            return Some(format!(
                "invalid value '{unfit}' for '<HOST:PORT>...': expected HOST:PORT, {EXAMPLES}"
            ));
        }
        let name = self.name().filter(|_| self.replicas().is_empty())?;
        Some(format!(
            "{name} is a lease name; give at least one HOST:PORT after it, {EXAMPLES}"
        ))
    }

    fn name(&self) -> Option<&String> {
        self.named
            .first()
            .filter(|first| host_and_port(first).is_err())
    }

    fn lease(&self) -> Option<&String> {
        self.lease.as_ref().or(self.name())
    }

    fn replicas(&self) -> &[String] {
        &self.named[usize::from(self.name().is_some())..]
    }
}

fn name_or_address(text: &str) -> Result<String, String> {
    let is_name = ResourceName::new(text).is_ok();
    host_and_port(text).or_else(|error| is_name.then(|| text.to_owned()).ok_or(error))
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct ReplicaStore {
    kind: String,
    set: Option<String>,
    /// `None` for a daemon of an earlier version.
    set_id: Option<String>,
    database: String,
    collection: String,
}

/// The fields that the command needs from the answer to `GET /status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReplicaStatus {
    pub(crate) lease: String,
    pub(crate) identity: String,
    /// Id of the process, equal at all addresses of a replica; `None` for a daemon of an earlier
    /// version.
    session: Option<String>,
    role: String,
    leader: bool,
    token: Option<i64>,
    #[serde(default)]
    holder: Option<SeenHolder>,
    store: Option<ReplicaStore>,
    /// The latest MongoDB failure; `None` while MongoDB answers.
    #[serde(default, skip_serializing)]
    store_error: Option<SeenFailure>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct SeenFailure {
    since: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SeenHolder {
    identity: String,
    token: i64,
}

type FailedCheck = (String, String);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Replica {
    /// The addresses of one process; never empty.
    addresses: Vec<SocketAddr>,
    state: Result<ReplicaStatus, NoStatus>,
}

#[derive(Debug, Default)]
struct Round {
    replicas: Vec<Replica>,
    /// Addresses of an IP family that no replica listens on, each with the error.
    unused: Vec<(SocketAddr, NoStatus)>,
    problems: Vec<FailedCheck>,
}

/// Asks the replicas until all checks pass or the time limit is reached. Prints the last answers.
pub fn run(args: &ReplicasArgs) -> Result<ExitCode, CommandError> {
    let round = run_to_end(exit::CANNOT_TELL, last_round(args))?;
    let text = match args.output.json() {
        true => round.json(),
        false => fitted(&io::stdout(), &round.text()),
    };
    answer(text.as_bytes())?;
    let code = match round.problems.is_empty() {
        true => exit::DONE,
        false => exit::NEGATIVE,
    };
    Ok(ExitCode::from(code))
}

async fn last_round(args: &ReplicasArgs) -> Round {
    let begin = boot_now();
    let rounds = async {
        loop {
            let round = ask_all(args).await;
            if round.problems.is_empty() || boot_now().since(begin) + PAUSE > args.wait {
                return round;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    let is_name = |place: &String| place.parse::<SocketAddr>().is_err();
    let resolves = args.replicas().iter().any(is_name);
    let round = ANSWER_MAX
        + if resolves {
            RESOLVE_MAX
        } else {
            Duration::ZERO
        };
    let connecting = || format!("connecting to {}", joined(args.replicas()));
    connecting::announced(rounds, round.max(args.wait), say, connecting).await
}

async fn ask_all(args: &ReplicasArgs) -> Round {
    let mut problems = Vec::new();
    let mut addresses = BTreeSet::new();
    let resolve = |place| tokio::time::timeout(RESOLVE_MAX, tokio::net::lookup_host(place));
    let resolved = join_all(args.replicas().iter().map(resolve)).await;
    for (place, resolved) in args.replicas().iter().zip(resolved) {
        match resolved {
            Ok(Ok(found)) => addresses.extend(found),
            Ok(Err(error)) => {
                let what = format!("cannot resolve {place}: {}", cause(&error));
                problems.push((what, "check the name and the DNS server".to_owned()));
            }
            Err(_) => {
                let waited = short(RESOLVE_MAX);
                let what = format!("cannot resolve {place}: no answer within {waited}");
                problems.push((what, "check the DNS server".to_owned()));
            }
        }
    }
    let answers = join_all(
        addresses
            .into_iter()
            .map(async |address| (address, status_of(address).await)),
    );
    let (replicas, unused) = replicas_of(answers.await);
    problems.extend(found_in(&replicas, args));
    Round {
        replicas,
        unused,
        problems,
    }
}

type Answered = (SocketAddr, Result<ReplicaStatus, NoStatus>);

/// Groups the answers by replica. Returns addresses separately if no replica listens on their IP
/// family: a host name may have IPv6 addresses although the daemon listens only on IPv4.
fn replicas_of(answers: Vec<Answered>) -> (Vec<Replica>, Vec<(SocketAddr, NoStatus)>) {
    let answer = |is_ipv6| {
        let mut answers = answers.iter();
        answers.any(|(address, state)| address.is_ipv6() == is_ipv6 && state.is_ok())
    };
    let (on_ipv4, on_ipv6) = (answer(false), answer(true));
    let mut replicas: Vec<Replica> = Vec::new();
    let mut unused = Vec::new();
    for (address, state) in answers {
        let listens = if address.is_ipv6() { on_ipv6 } else { on_ipv4 };
        let same = replicas.iter_mut().find(|replica| replica.is_of(&state));
        match (state, same) {
            (Err(why), _) if !listens && (on_ipv4 || on_ipv6) => unused.push((address, why)),
            (Ok(_), Some(replica)) => replica.addresses.push(address),
            (state, _) => replicas.push(Replica {
                addresses: vec![address],
                state,
            }),
        }
    }
    (replicas, unused)
}

fn found_in(replicas: &[Replica], args: &ReplicasArgs) -> Vec<FailedCheck> {
    let mut problems = Vec::new();
    let mut problem = |what: String, remedy: &str| problems.push((what, remedy.to_owned()));
    let states: Vec<_> = replicas.iter().flat_map(|replica| &replica.state).collect();
    let (found, answering) = (replicas.len(), states.len());
    match args.expect {
        Some(expected) if usize::try_from(expected) != Ok(found) => problem(
            format!("{} found, {expected} expected", counted(found, "replica")),
            match usize::try_from(expected) {
                Ok(expected) if expected < found => "stop the extra replicas, or raise --expect",
                _ => {
                    "pass the addresses of all replicas, or wait for missing replicas with --wait 1m"
                }
            },
        ),
        None if found == 0 => problem(
            "no replica found".to_owned(),
            "check the name; a Service has no addresses before its pods run",
        ),
        _ => {}
    }
    let is_foreign = |replica: &&Replica| matches!(replica.state, Err(NoStatus::Foreign(_)));
    let foreign = replicas.iter().filter(is_foreign).count();
    if foreign > 0 {
        let what = match foreign {
            1 => "1 address is".to_owned(),
            several => format!("{several} addresses are"),
        };
        problem(
            format!("{what} not a leasehold daemon's"),
            "pass the host and port of the daemon's http.listen (default port 9402)",
        );
    }
    if answering + foreign < found {
        problem(
            format!(
                "{} without an answer",
                counted(found - answering - foreign, "replica")
            ),
            "check that the daemon runs, and that its http.listen accepts connections from here",
        );
    }
    let leases: BTreeSet<_> = states.iter().map(|state| state.lease.as_str()).collect();
    let names = joined(&leases);
    match args.lease() {
        Some(lease) if leases.iter().any(|found| found != lease) => problem(
            format!("not all contend for {lease}: {names}"),
            "leave out the replicas of other leases, or correct their lease.name",
        ),
        None if leases.len() > 1 => problem(
            format!("different leases: {names}"),
            "name the replicas of one lease only, or correct their lease.name",
        ),
        _ => {}
    }
    if states.iter().any(|state| state.store.is_none()) {
        problem(
            "a replica has not reached MongoDB yet".to_owned(),
            "run leasehold check on its machine to find the cause",
        );
    }
    let is_unknown = |state: &&&ReplicaStatus| state.role == Role::Unknown.as_str();
    let unknown = states.iter().filter(is_unknown).count();
    if unknown > 0 {
        problem(
            format!("{} without a known role", counted(unknown, "replica")),
            "run leasehold check on their machines: their last answer from MongoDB is older than a lease duration",
        );
    }
    let stores = states.iter().filter_map(|state| state.store.as_ref());
    let ids: BTreeSet<_> = stores.clone().filter_map(|s| s.set_id.as_ref()).collect();
    let stores: BTreeSet<_> = stores.map(|store| store.name(ids.len() > 1)).collect();
    if stores.len() > 1 {
        problem(
            format!(
                "different stores, so the replicas do not exclude each other: {}",
                Vec::from_iter(stores).join("; ")
            ),
            "give all replicas one mongodb.uri, mongodb.database and mongodb.collection",
        );
    }
    let leaders: Vec<_> = states.iter().filter(|state| state.leader).collect();
    let lease = leases.first().copied().unwrap_or("NAME");
    let is_wanted = |lease: &String| leases.contains(lease.as_str());
    let contend = args.lease().is_none_or(is_wanted);
    let is_paused = |state: &&ReplicaStatus| state.role == Role::Paused.as_str();
    match leaders.len() {
        // All replicas contend for another lease, which is already reported as a problem. The user
        // did not ask for the leader of that lease.
        0 if !contend => {}
        0 if states.iter().any(is_paused) => problem(
            "paused, so no replica leads".to_owned(),
            &format!("leasehold resume {lease} lets a candidate lead"),
        ),
        0 if answering > 0 && states.iter().all(|state| state.store_error.is_some()) => problem(
            "no replica leads, because no replica reaches MongoDB".to_owned(),
            "restore MongoDB or the network; then a candidate leads again",
        ),
        0 if answering > 0 => {
            let find = format!("leasehold describe {lease} --candidates finds the cause");
            let (holder, remedy) = seen_holder(&states, answering < found).unwrap_or_default();
            let what = format!("no replica leads{holder}");
            problem(what, &remedy.unwrap_or(find));
        }
        0 | 1 => {}
        count => problem(
            format!(
                "{count} replicas lead: {}",
                joined(leaders.iter().map(|leader| &leader.identity))
            ),
            &format!("stop all but the holder that leasehold describe {lease} shows"),
        ),
    }
    problems
}

/// Returns the holder that a replica sees, and the remedy if no address of this holder was given.
fn seen_holder(
    states: &[&ReplicaStatus],
    some_are_silent: bool,
) -> Option<(String, Option<String>)> {
    let mut seen = states.iter();
    let (state, holder) = seen.find_map(|state| Some((state, state.holder.as_ref()?)))?;
    let seen = &holder.identity;
    let mut answered = states.iter();
    let (answer, remedy) = match answered.find(|answer| answer.identity == *seen) {
        Some(answer) => (format!("answers as {}", answer.role), None),
        None if some_are_silent => ("did not answer here".to_owned(), None),
        None => (
            "is not among the addresses given".to_owned(),
            Some(format!("give {seen}'s address too")),
        ),
    };
    let (identity, token) = (&state.identity, holder.token);
    let what =
        format!("; {identity} sees {seen} (token {token}) as the holder, but {seen} {answer}");
    Some((what, remedy))
}

fn joined(items: impl IntoIterator<Item = impl ToString>) -> String {
    let items = items.into_iter().map(|item| item.to_string());
    items.collect::<Vec<_>>().join(", ")
}

impl ReplicaStore {
    fn name(&self, with_id: bool) -> String {
        let set = self.set.as_ref().map(|set| format!("replica set {set}"));
        let deployment = set.as_ref().unwrap_or(&self.kind);
        let name = format!("{}.{}, {deployment}", self.database, self.collection);
        let id = self.set_id.as_deref().unwrap_or("not known");
        match with_id {
            true => format!("{name} (id of the set: {id})"),
            false => name,
        }
    }
}

impl Replica {
    /// Returns true if this process gave that answer. If two answers have equal sessions but differ
    /// otherwise, a running VM was cloned, and two processes share the session.
    fn is_of(&self, answer: &Result<ReplicaStatus, NoStatus>) -> bool {
        let has_session = answer.as_ref().is_ok_and(|state| state.session.is_some());
        has_session && self.state == *answer
    }

    fn line(&self) -> String {
        let address = joined(&self.addresses);
        let state = match &self.state {
            Ok(state) => state,
            Err(NoStatus::NoAnswer(why)) => return format!("{address}  no answer: {why}\n"),
            Err(foreign) => return format!("{address}  {foreign}\n"),
        };
        let token = state.token.filter(|_| state.leader);
        let token = token.map_or_else(String::new, |token| format!(" token {token}"));
        let store = or_dash(state.store.as_ref().map(|store| store.name(false)));
        let (identity, role, lease) = (&state.identity, &state.role, &state.lease);
        format!("{address}  {identity}  {role}{token}  {lease}  {store}\n")
    }
}

impl Round {
    fn text(&self) -> String {
        let mut text: String = self.replicas.iter().map(Replica::line).collect();
        for (address, why) in &self.unused {
            text += &format!("{address}  not used by any replica: {why}\n");
        }
        for (problem, remedy) in &self.problems {
            text += &format!("failed: {problem}\n  to fix: {remedy}\n");
        }
        let mut states = self.replicas.iter().flat_map(|replica| &replica.state);
        let leader = states.find(|state| state.leader);
        if let (true, Some(leader)) = (self.problems.is_empty(), leader) {
            let count = counted(self.replicas.len(), "replica");
            text += &format!("ok: {count}, one leader: {}\n", leader.identity);
        }
        // Another program could answer with terminal escape sequences.
        text.replace(|c: char| c.is_control() && c != '\n', "?")
    }

    fn json(&self) -> String {
        let replicas = self.replicas.iter().map(|replica| {
            json!({
                "address": replica.addresses[0], "addresses": replica.addresses,
                "state": replica.state.as_ref().ok(),
                "error": replica.state.as_ref().err().map(ToString::to_string),
            })
        });
        let problems: Vec<_> = self.problems.iter().map(|(what, _)| what).collect();
        let round = json!({
            "schema": SCHEMA, "ok": problems.is_empty(), "problems": problems,
            "replicas": replicas.collect::<Vec<_>>(),
        });
        format!("{round}\n")
    }
}
