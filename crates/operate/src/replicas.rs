//! `leasehold replicas`: asks every replica of a lease, and finds out if exactly one leads.
//!
//! Asks each replica over HTTP, and not MongoDB: replicas that contend on different stores would
//! each lead on their own store, and only their own answers show that. A replica with several
//! addresses, as on a network with IPv4 and IPv6, is recognized by its session.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures_util::future::join_all;
use serde_json::json;

use crate::ask::{ReplicaStatus, ReplicaStore, status_of};
use leasehold_cli::values::{Output, between, whole};
use leasehold_cli::{answer, run_to_end};
use leasehold_clock::boot_now;
use leasehold_core::election::Role;
use leasehold_host::CommandError;
use leasehold_host::exit;

/// Time limit for resolving one name. The system's own limit may be half a minute; each nameserver
/// that does not answer takes 5 s.
const RESOLVE_MAX: Duration = Duration::from_secs(12);

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// Role of a replica that does not know the state of the lease, such as after its start.
const UNKNOWN: &str = Role::Unknown.as_str();

/// Version of the JSON output, which changes only if the meaning of a field changes.
const SCHEMA: u32 = 1;

const HELP: &str = "\
Each HOST is resolved, and all of its addresses are asked for /status: the name of a headless Service \
stands for all of its pods. It needs no configuration and no access to MongoDB.

Examples:
  leasehold replicas orders-headless:9402 --expect 2 --wait 1m
                             after a rollout
  leasehold replicas 10.0.0.1:9402 10.0.0.2:9402 --lease orders --output json

Exit codes: 0 every replica answers, one leads, and all contend for one lease on one store; 1 a check failed, with the \
reason; 64 usage.";

/// Maximum of `--wait`: a rollout that takes longer than an hour has failed.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Arguments of `leasehold replicas`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct ReplicasArgs {
    /// HTTP address of one or more replicas
    // A name stands for all of its addresses.
    #[arg(value_name = "HOST:PORT", required = true, value_parser = host_and_port)]
    replicas: Vec<String>,
    /// Name of the lease that all replicas contend for [default: any, but one lease]
    #[arg(long, value_name = "NAME")]
    lease: Option<String>,
    /// Number of replicas [default: 1 or more]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, u32::MAX))]
    expect: Option<u32>,
    /// Ask again each second for at most this time, such as 1m, until all checks pass
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true,
          default_value = "0s", value_parser = between(Duration::ZERO, WAIT_MAX))]
    wait: Duration,
    #[command(flatten)]
    output: Output,
}

/// Accepts a name or an address, and a port.
fn host_and_port(text: &str) -> Result<String, String> {
    let split = text.rsplit_once(':');
    let valid = split.is_some_and(|(host, port)| {
        let bracketed = host.starts_with('[') && host.ends_with(']');
        !host.is_empty()
            && (bracketed || !host.contains(':'))
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    match valid {
        true => Ok(text.to_owned()),
        false => Err("expected HOST:PORT, such as orders-headless:9402 or [::1]:9402".to_owned()),
    }
}

/// One replica, and its answer or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Replica {
    /// All addresses of one process; never empty.
    addresses: Vec<SocketAddr>,
    state: Result<ReplicaStatus, String>,
}

/// All replicas at one instant.
#[derive(Debug, Default)]
struct Round {
    replicas: Vec<Replica>,
    /// Addresses of a family on which no replica listens, each with the error.
    unused: Vec<(SocketAddr, String)>,
    /// The problems found; empty if all is well.
    problems: Vec<String>,
}

/// Asks the replicas until all checks pass or the time is over, and prints the last answers.
///
/// # Errors
/// [`CommandError`], not yet printed. Replicas that do not agree are not an error.
pub fn run(args: &ReplicasArgs) -> Result<ExitCode, CommandError> {
    let round = run_to_end(exit::CANNOT_TELL, last_round(args))?;
    let text = match args.output.json() {
        true => round.json(),
        false => round.text(),
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
    loop {
        let round = ask_all(args).await;
        if round.problems.is_empty() || boot_now().since(begin) + PAUSE > args.wait {
            return round;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn ask_all(args: &ReplicasArgs) -> Round {
    let mut problems = Vec::new();
    let mut addresses = BTreeSet::new();
    for place in &args.replicas {
        match tokio::time::timeout(RESOLVE_MAX, tokio::net::lookup_host(place)).await {
            Ok(Ok(found)) => addresses.extend(found),
            Ok(Err(error)) => problems.push(format!("cannot resolve {place}: {error}")),
            Err(_) => problems.push(format!(
                "cannot resolve {place}: no answer within {}",
                humantime::format_duration(RESOLVE_MAX)
            )),
        }
    }
    let answers = join_all(addresses.into_iter().map(async |address| {
        let state = status_of(address).await.map_err(|error| error.to_string());
        (address, state)
    }));
    let (replicas, unused) = replicas_of(answers.await);
    problems.extend(found_in(&replicas, args));
    Round {
        replicas,
        unused,
        problems,
    }
}

/// An address, and its answer or the reason why there is none.
type Answered = (SocketAddr, Result<ReplicaStatus, String>);

/// Groups the answers by replica. If replicas answer on one address family only, returns the
/// addresses of the other family separately: a host has IPv6 addresses even if its daemon listens on
/// IPv4 alone.
fn replicas_of(answers: Vec<Answered>) -> (Vec<Replica>, Vec<(SocketAddr, String)>) {
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

/// Returns the problems of the replicas.
fn found_in(replicas: &[Replica], args: &ReplicasArgs) -> Vec<String> {
    let mut problems = Vec::new();
    let states: Vec<_> = replicas.iter().flat_map(|replica| &replica.state).collect();
    let (found, answering) = (replicas.len(), states.len());
    match args.expect {
        Some(expected) if usize::try_from(expected) != Ok(found) => {
            problems.push(format!("{} found, {expected} expected", counted(found)));
        }
        None if found == 0 => problems.push("no replica found".to_owned()),
        _ => {}
    }
    if answering < found {
        problems.push(format!("{} without an answer", counted(found - answering)));
    }
    let leases: BTreeSet<_> = states.iter().map(|state| state.lease.as_str()).collect();
    let names = joined(&leases);
    match &args.lease {
        Some(lease) if leases.iter().any(|found| found != lease) => {
            problems.push(format!("not all contend for {lease}: {names}"));
        }
        None if leases.len() > 1 => problems.push(format!("different leases: {names}")),
        _ => {}
    }
    if states.iter().any(|state| state.store.is_none()) {
        problems.push("a replica has not reached MongoDB yet".to_owned());
    }
    let unknown = states.iter().filter(|state| state.role == UNKNOWN).count();
    if unknown > 0 {
        problems.push(format!("{} without a known role", counted(unknown)));
    }
    let stores = states.iter().filter_map(|state| state.store.as_ref());
    let ids: BTreeSet<_> = stores.clone().filter_map(|s| s.set_id.as_ref()).collect();
    let names: BTreeSet<_> = stores.map(|store| store.name(ids.len() > 1)).collect();
    if names.len() > 1 {
        let names = joined(names);
        problems.push(format!(
            "different stores, so the replicas do not exclude each other: {names}"
        ));
    }
    let leaders: Vec<_> = states.iter().filter(|state| state.leader).collect();
    let names = joined(leaders.iter().map(|leader| &leader.identity));
    match leaders.len() {
        0 if answering > 0 => problems.push("no replica leads".to_owned()),
        0 | 1 => {}
        count => problems.push(format!("{count} replicas lead: {names}")),
    }
    problems
}

fn counted(count: usize) -> String {
    match count {
        1 => "1 replica".to_owned(),
        count => format!("{count} replicas"),
    }
}

fn joined(items: impl IntoIterator<Item = impl ToString>) -> String {
    let items = items.into_iter().map(|item| item.to_string());
    items.collect::<Vec<_>>().join(", ")
}

impl ReplicaStore {
    fn name(&self, with_id: bool) -> String {
        let deployment = self.set.as_ref().unwrap_or(&self.kind);
        let name = format!("{deployment}/{}.{}", self.database, self.collection);
        let id = self.set_id.as_deref().unwrap_or("not known");
        match with_id {
            true => format!("{name} (id of the set: {id})"),
            false => name,
        }
    }
}

impl Replica {
    /// Returns true if this process gave that answer. Different answers of one session come from
    /// two processes: a machine that was copied while it ran has two processes of one session.
    fn is_of(&self, answer: &Result<ReplicaStatus, String>) -> bool {
        let has_session = answer.as_ref().is_ok_and(|state| state.session.is_some());
        has_session && self.state == *answer
    }

    fn line(&self) -> String {
        let address = joined(&self.addresses);
        let state = match &self.state {
            Ok(state) => state,
            Err(why) => return format!("{address}  no answer: {why}\n"),
        };
        let token = state.token.filter(|_| state.leader);
        let token = token.map_or_else(String::new, |token| format!(" token {token}"));
        let store = state.store.as_ref();
        let store = store.map_or_else(|| "-".to_owned(), |store| store.name(false));
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
        for problem in &self.problems {
            text += &format!("failed: {problem}\n");
        }
        let mut states = self.replicas.iter().flat_map(|replica| &replica.state);
        let leader = states.find(|state| state.leader);
        if let (true, Some(leader)) = (self.problems.is_empty(), leader) {
            let count = counted(self.replicas.len());
            text += &format!("ok: {count}, one leader: {}\n", leader.identity);
        }
        // A server that is not a daemon could send anything.
        text.replace(|c: char| c.is_control() && c != '\n', "?")
    }

    fn json(&self) -> String {
        let replicas = self.replicas.iter().map(|replica| {
            json!({
                "address": replica.addresses[0], "addresses": replica.addresses,
                "state": replica.state.as_ref().ok(), "error": replica.state.as_ref().err(),
            })
        });
        let round = json!({
            "schema": SCHEMA, "ok": self.problems.is_empty(), "problems": self.problems,
            "replicas": replicas.collect::<Vec<_>>(),
        });
        format!("{round}\n")
    }
}
