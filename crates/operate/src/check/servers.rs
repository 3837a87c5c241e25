//! Checks of the way to MongoDB: names, servers, certificates, login, and the kind of deployment.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;

use super::report::{Check, Name, shown};
use super::{NOT_REACHED, tls, within};
use leasehold_clock as clock;
use leasehold_mongodb::store::mongo::probe::{
    DeploymentKind, Description, Login, Product, SeedList, ServerState, StoreProbe, lacks_right,
    refuses_login, refuses_tls, resolve,
};
use leasehold_mongodb::store::{Failure, RetryPolicy};
use leasehold_status::directory::{DEPLOYMENT_FILE, recorded_deployment};

/// Interval between attempts to reach a primary.
const RETRY: Duration = Duration::from_millis(250);
/// Interval between reads of the states of servers, which monitors keep.
const POLL: Duration = Duration::from_millis(20);
/// The first version with the change streams that candidates open.
const VERSION_MIN: (u32, u32) = (4, 4);
/// Time for a look-up of a name above which a nameserver does not answer.
const SLOW_MIN: Duration = Duration::from_secs(1);
const NO_CLIENT: &str = "the TLS configuration is refused, see tls";
/// The remedy for slow look-ups, which each new connection repeats.
const NAMESERVERS: &str = "check the nameservers of this host (/etc/resolv.conf)";
/// Fewest data-bearing members for a set to survive losing one.
const MEMBERS_MIN: usize = 3;

/// Returns the checks, and the description of the deployment if its primary was reached.
pub(super) async fn checks(
    store: &StoreProbe,
    directory: &Path,
    timeout: Duration,
) -> (Vec<Check>, Option<Description>) {
    let seeds = match within(timeout, store.seeds()).await {
        Ok(seeds) => seeds,
        Err(failure) => return (unresolved(&failure), None),
    };
    let addresses = seeds.addresses();
    let names = addresses.iter().map(|address| resolution(address, timeout));
    let (mut checks, reached) = tokio::join!(join_all(names), reach(store, timeout));
    let members = match &reached {
        Ok(description) if !description.members.is_empty() => {
            let arbiters = description.arbiters.iter();
            description
                .members
                .iter()
                .chain(arbiters)
                .cloned()
                .collect()
        }
        Ok(_) | Err(_) => addresses,
    };
    let has_client = !reached.as_ref().err().is_some_and(refuses_tls);
    let states = async {
        match has_client {
            true => states(store, &members, timeout).await,
            false => BTreeMap::new(),
        }
    };
    let (states, tls) = tokio::join!(states, tls::checks(&seeds, &members, timeout));
    checks.extend(members.iter().map(|member| match has_client {
        true => server(member, states.get(member)),
        false => Check::skipped(Name::Server, NO_CLIENT).of(member),
    }));
    // Servers of another set are not among the members; nor are members that the set lists under
    // another name.
    let others = states.iter().filter(|(address, state)| {
        matches!(state, ServerState::Elsewhere(_)) && !members.contains(address)
    });
    checks.extend(others.map(|(address, state)| server(address, Some(state))));
    checks.extend(tls);
    checks.push(credentials(store, reached.as_ref(), timeout).await);
    let description = reached.as_ref().ok();
    checks.push(match &reached {
        Ok(description) => deployment(description),
        // Reported above.
        Err(failure) if refuses_login(failure) => Check::skipped(Name::Deployment, NOT_REACHED),
        Err(failure) => failed(Name::Deployment, failure),
    });
    checks.push(one_deployment(store, &seeds, description, timeout).await);
    checks.push(record(directory, description));
    (checks, reached.ok())
}

fn unresolved(failure: &Failure) -> Vec<Check> {
    let skipped = [
        Name::Server,
        Name::Tls,
        Name::Credentials,
        Name::Deployment,
        Name::OneDeployment,
    ];
    let mut checks = vec![Check::failed(
        Name::Resolution,
        failure.to_string(),
        "correct the MongoDB URI, its files, or the name service",
    )];
    checks.extend(skipped.map(|name| Check::skipped(name, NOT_REACHED)));
    checks
}

async fn resolution(address: &str, timeout: Duration) -> Check {
    let name = Name::Resolution;
    if address.contains('/') {
        return Check::skipped(name, "a Unix socket").of(address);
    }
    let began = clock::boot_now();
    let resolved = tokio::time::timeout(timeout, resolve(address)).await;
    let took = clock::boot_now().since(began);
    let check = match resolved {
        Ok(Ok(found)) => {
            let found: Vec<_> = found.iter().map(ToString::to_string).collect();
            let detail = format!("{} in {}", found.join(", "), shown(took));
            let check = match took >= SLOW_MIN {
                true => Check::warning(name, detail, NAMESERVERS),
                false => Check::ok(name, detail),
            };
            check.millis("elapsed_ms", took)
        }
        Ok(Err(_)) => Check::failed(
            name,
            "the name service does not know the host",
            "correct the host in the MongoDB URI, or the name service (getent hosts NAME)",
        ),
        Err(_) => Check::failed(
            name,
            format!("no answer from the name service in {}", shown(timeout)),
            NAMESERVERS,
        ),
    };
    check.of(address)
}

/// Waits for a primary, as a candidate does. A refusal that a retry does not change ends the wait.
async fn reach(store: &StoreProbe, timeout: Duration) -> Result<Description, Failure> {
    let mut last = None;
    let attempts = async {
        loop {
            match store.describe().await {
                Err(failure) if failure.retry != RetryPolicy::Reconfigure => last = Some(failure),
                described => return described,
            }
            tokio::time::sleep(RETRY).await;
        }
    };
    match tokio::time::timeout(timeout, attempts).await {
        Ok(described) => described,
        Err(_) => Err(last.unwrap_or_else(|| {
            let detail = format!("none was found within {}", shown(timeout));
            Failure::new("no primary", detail).with_retry(RetryPolicy::WaitForServer)
        })),
    }
}

/// Returns the states of the servers once each of `members` has one, or after the timeout.
async fn states(
    store: &StoreProbe,
    members: &[String],
    timeout: Duration,
) -> BTreeMap<String, ServerState> {
    let known = async {
        while !members
            .iter()
            .all(|member| store.servers().contains_key(member))
        {
            tokio::time::sleep(POLL).await;
        }
    };
    // A server without a state is reported as such.
    let _ = tokio::time::timeout(timeout, known).await;
    store.servers()
}

fn server(address: &str, state: Option<&ServerState>) -> Check {
    let name = Name::Server;
    let network = "check the host, the network and the firewalls between";
    let check = match state {
        Some(ServerState::Writable) => Check::ok(name, "accepts writes"),
        Some(ServerState::Member(what)) => Check::ok(name, format!("is {what}")),
        Some(ServerState::Unready(what)) => Check::warning(
            name,
            format!("is {what}"),
            "wait, or examine it with rs.status()",
        ),
        Some(ServerState::Elsewhere(what)) => Check::failed(
            name,
            what,
            "correct replicaSet or the hosts in the MongoDB URI",
        ),
        Some(ServerState::RefusedLogin(_)) => Check::ok(name, "answers, and refuses the login"),
        Some(ServerState::Unreachable(why)) => match why.split_once(": ") {
            Some((why, remedy)) => Check::failed(name, why, remedy),
            None => Check::failed(name, why, network),
        },
        None => Check::failed(name, "no answer", network),
    };
    check.of(address)
}

async fn credentials(
    store: &StoreProbe,
    reached: Result<&Description, &Failure>,
    timeout: Duration,
) -> Check {
    let name = Name::Credentials;
    match reached {
        Err(failure) if refuses_login(failure) => return failed(name, failure),
        Err(_) => return Check::skipped(name, NOT_REACHED),
        Ok(_) => {}
    }
    match within(timeout, store.login()).await {
        Ok(Login { users, roles: _ }) if users.is_empty() => Check::ok(
            name,
            "no login; the permissions show if the server requires one",
        ),
        Ok(Login { users, roles }) => Check::ok(
            name,
            format!(
                "logged in as {}, roles: {}",
                users.join(", "),
                roles.join(", ")
            ),
        ),
        Err(failure) if lacks_right(&failure) => {
            Check::ok(name, "no login; the server requires one")
        }
        Err(failure) => failed(name, &failure),
    }
}

/// Converts a failure; its detail is the remedy.
pub(super) fn failed(name: Name, failure: &Failure) -> Check {
    let mut short = failure.clone();
    let detail = std::mem::take(&mut short.detail);
    Check::failed(name, short.to_string(), detail.as_str())
}

fn deployment(description: &Description) -> Check {
    let name = Name::Deployment;
    let Description {
        kind,
        product,
        version,
        members,
        arbiters,
        ..
    } = description;
    match product {
        Product::Lookalike(product) => {
            return Check::failed(
                name,
                format!(
                    "unsupported: {product}, which only implements MongoDB's protocol: exclusion is not promised"
                ),
                "use a MongoDB replica set: acknowledgements of this server have another meaning (docs/mongodb.md)",
            );
        }
        Product::Unrecognized => {
            return Check::warning(
                name,
                format!(
                    "unsupported: a server that does not describe itself as MongoDB does (version {version}): exclusion is not promised"
                ),
                "use a MongoDB replica set (docs/mongodb.md)",
            );
        }
        Product::MongoDb => {}
    }
    let (data, voters) = (members.len(), arbiters.len());
    match kind {
        _ if description
            .version_numbers()
            .is_some_and(|v| v < VERSION_MIN) =>
        {
            Check::warning(
                name,
                format!(
                    "MongoDB {version} is older than 4.4, the oldest supported version; followers poll"
                ),
                "upgrade MongoDB",
            )
        }
        DeploymentKind::Standalone => Check::warning(
            name,
            format!(
                "standalone server, MongoDB {version}: followers poll, and an acknowledged write is lost if this server is lost"
            ),
            "use a replica set of three members",
        ),
        DeploymentKind::Router => Check::warning(
            name,
            format!(
                "sharded cluster through routers, MongoDB {version}: not tested with real routers; change streams are late, so a handoff takes up to a renew_interval"
            ),
            "use a replica set, or hints (docs/mongodb.md)",
        ),
        DeploymentKind::ReplicaSet(set) if data < MEMBERS_MIN => Check::warning(
            name,
            format!(
                "replica set {set:?}, MongoDB {version}, data-bearing members: {data}, arbiters: {voters}: no leader while one data-bearing member is down"
            ),
            "use three data-bearing members",
        ),
        DeploymentKind::ReplicaSet(set) => Check::ok(
            name,
            format!(
                "replica set {set:?}, MongoDB {version}, data-bearing members: {data}, arbiters: {voters}: at most one leader, across elections"
            ),
        ),
    }
}

/// Checks that all servers of the connection string belong to one deployment.
async fn one_deployment(
    store: &StoreProbe,
    seeds: &SeedList,
    description: Option<&Description>,
    timeout: Duration,
) -> Check {
    let name = Name::OneDeployment;
    let Some(description) = description else {
        return Check::skipped(name, NOT_REACHED);
    };
    let servers = seeds.addresses().len();
    if servers == 1 {
        return Check::ok(name, "the MongoDB URI names one server");
    }
    let strangers = match within(timeout, store.strangers()).await {
        Ok(strangers) => strangers,
        Err(failure) => return failed(name, &failure),
    };
    if !strangers.is_empty() {
        let each = strangers.iter();
        let each: Vec<_> = each.map(|(at, what)| format!("{at} is {what}")).collect();
        return Check::failed(
            name,
            each.join("; "),
            "remove the servers of other deployments from the MongoDB URI (docs/mongodb.md)",
        );
    }
    match (&description.kind, seeds.set()) {
        (DeploymentKind::ReplicaSet(set), None) => Check::warning(
            name,
            format!(
                "the {servers} servers that answer belong to one replica set, but the MongoDB URI does not name it"
            ),
            format!(
                "add replicaSet={set} to the MongoDB URI: servers of other sets are then never used"
            ),
        ),
        _ => Check::ok(name, "the servers that answer belong to one deployment"),
    }
}

/// Compares the deployment with the candidate's, as recorded in this status directory.
fn record(directory: &Path, description: Option<&Description>) -> Check {
    let name = Name::DeploymentRecord;
    let file = directory.join(DEPLOYMENT_FILE);
    let recorded = match recorded_deployment(directory) {
        Ok(Some(recorded)) => recorded,
        Ok(None) => {
            return Check::ok(
                name,
                "none yet: the next daemon follows the connection string",
            );
        }
        Err(error) => {
            return Check::skipped(name, format!("cannot read {}: {error}", file.display()));
        }
    };
    let Some(found) = description.and_then(|description| description.id.as_ref()) else {
        return Check::skipped(name, NOT_REACHED);
    };
    match recorded.is_same(found) {
        true => Check::ok(name, format!("unchanged: {}", found.describe())),
        false => Check::failed(
            name,
            format!(
                "the connection string leads to {}, but the candidate belongs to {}: a daemon refuses to start leading there",
                found.describe(),
                recorded.describe()
            ),
            format!(
                "correct the connection string; to move, stop all candidates of the lease and remove {}",
                file.display()
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::CheckResult;
    use super::*;

    fn description(kind: DeploymentKind, members: &[&str], arbiters: &[&str]) -> Description {
        let list = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Description {
            kind,
            product: Product::MongoDb,
            version: "6.0.5".to_owned(),
            id: None,
            members: list(members),
            arbiters: list(arbiters),
        }
    }

    #[test]
    fn only_a_set_of_three_data_bearing_members_is_all_right() {
        let set = || DeploymentKind::ReplicaSet("rs0".to_owned());
        let three = description(set(), &["a:1", "b:1", "c:1"], &[]);
        assert_eq!(deployment(&three).outcome(), CheckResult::Ok);
        for other in [
            description(set(), &["a:1", "b:1"], &["c:1"]),
            description(DeploymentKind::Standalone, &[], &[]),
            description(DeploymentKind::Router, &[], &[]),
            Description {
                version: "4.2.1".to_owned(),
                ..three.clone()
            },
            Description {
                product: Product::Unrecognized,
                ..three.clone()
            },
        ] {
            assert_eq!(
                deployment(&other).outcome(),
                CheckResult::Warning,
                "{other:?}"
            );
        }
        let lookalike = Description {
            product: Product::Lookalike("FerretDB"),
            ..three
        };
        assert_eq!(deployment(&lookalike).outcome(), CheckResult::Failed);
    }
}
