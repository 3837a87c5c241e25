//! Checks of the connection to MongoDB: names, servers, certificates, login, kind of deployment.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use tokio::net::lookup_host;

use super::report::{Check, Checked, Finding, Skip, shown};
use super::{Installation, LOGIN_REFUSED, NOT_REACHED, Primary};
use leasehold_clock as clock;
use leasehold_mongodb::store::mongo::probe::{
    Certificates, Description, INITIATE, Product, SeedList, ServerState, StoreProbe, UNINITIATED,
    lacks_right, refuses_login, refuses_tls,
};
use leasehold_mongodb::store::{Failure, RetryPolicy, StoreKind};
use leasehold_status::directory::{DEPLOYMENT_FILE, recorded_deployment};

const RETRY: Duration = Duration::from_millis(250);
/// Interval between reads of the driver's server states.
const POLL: Duration = Duration::from_millis(20);
/// Oldest MongoDB version with change streams that candidates can use.
const VERSION_MIN: (u32, u32) = (4, 4);
/// A DNS look-up that takes longer indicates an unresponsive nameserver.
const SLOW_MIN: Duration = Duration::from_secs(1);
const NAMESERVERS: &str = "check the nameservers of this host (/etc/resolv.conf)";
/// Minimum number of data-bearing members for a set to survive losing one.
const MEMBERS_MIN: usize = 3;

/// A certificate should be renewed this long before it expires.
const RENEWED_BEFORE: Duration = Duration::from_secs(14 * 24 * 3600);
const DAY: u64 = 24 * 3600;

pub(super) async fn checks(
    installation: &Installation,
    directory: &Path,
) -> (Vec<Check>, Result<Description, Skip>) {
    let Installation { store, timeout, .. } = installation;
    let seeds = match installation.within(store.seeds()).await {
        Ok(seeds) => seeds,
        Err(failure) => return (unresolved(&failure), Err(NOT_REACHED)),
    };
    let addresses = &seeds.addresses;
    let names = addresses.iter().map(async |address| {
        let resolved = resolution(address, *timeout).await;
        Check::new("name-resolution", resolved).of(address)
    });
    let (mut checks, reached) = tokio::join!(join_all(names), reach(store, *timeout));
    let described = reached.iter();
    let members = described.flat_map(|set| set.members.iter().chain(&set.arbiters));
    let mut members: Vec<_> = members.cloned().collect();
    if members.is_empty() {
        members.clone_from(addresses);
    }
    let has_client = !reached.as_ref().is_err_and(refuses_tls);
    let states = async {
        match has_client {
            true => states(store, &members, *timeout).await,
            false => BTreeMap::new(),
        }
    };
    let tls = certificates(installation, &seeds, &members);
    let (states, tls) = tokio::join!(states, tls);
    checks.extend(members.iter().map(|member| {
        let finding = match has_client {
            true => server(states.get(member)),
            false => Finding::skipped("the TLS configuration is refused, see tls"),
        };
        Check::new("server", finding).of(member)
    }));
    // Servers of another set, and servers that the set lists under a different name.
    let others = states.iter().filter(|(address, state)| {
        matches!(state, ServerState::Elsewhere(_)) && !members.contains(address)
    });
    checks.extend(
        others.map(|(address, state)| Check::new("server", server(Some(state))).of(address)),
    );
    checks.extend(tls);
    let why = match &reached {
        Err(failure) if refuses_login(failure) => LOGIN_REFUSED,
        _ => NOT_REACHED,
    };
    let skipped = || Checked::Err(why.into());
    let (credentials, deployment, one_deployment) = match &reached {
        Ok(description) => (
            credentials(installation).await,
            Ok(deployment(description)),
            one_deployment(installation, &seeds, description).await,
        ),
        Err(failure) if refuses_login(failure) => {
            (Err(failure.clone().into()), skipped(), skipped())
        }
        Err(failure) => (skipped(), Err(unreached(failure, &states)), skipped()),
    };
    let reached = reached.map_err(|_| why);
    let record = record(directory, reached.as_ref().map_err(|why| *why));
    checks.extend([
        Check::new("credentials", credentials),
        Check::new("deployment", deployment),
        Check::new("one-deployment", one_deployment),
        Check::new("deployment-record", record),
    ]);
    (checks, reached)
}

fn unreached(failure: &Failure, states: &BTreeMap<String, ServerState>) -> Finding {
    let is_member =
        |state: &ServerState| matches!(state, ServerState::Member(_) | ServerState::Unready(_));
    let uninitiated = states
        .values()
        .any(|state| *state == ServerState::Uninitiated);
    match !states.is_empty() && states.values().all(is_member) {
        true => Finding::failed(
            failure.to_string(),
            "an election may be under way: repeat the check in 12 s; if it fails again, examine rs.status()",
        ),
        false if uninitiated => Finding::failed("no primary", INITIATE),
        false => failure.clone().into(),
    }
}

fn unresolved(failure: &Failure) -> Vec<Check> {
    let remedy = "correct the MongoDB URI, its files, or DNS";
    let finding = Finding::failed(failure.to_string(), remedy);
    let mut checks = vec![Check::new("name-resolution", finding)];
    let skipped = ["server", "tls", "credentials", "deployment"];
    checks.extend(Check::skipped(skipped, NOT_REACHED));
    checks.push(Check::new("one-deployment", Finding::skipped(NOT_REACHED)));
    checks
}

async fn resolution(address: &str, timeout: Duration) -> Checked {
    if address.contains('/') {
        return Err("a Unix socket".into());
    }
    let began = clock::boot_now();
    let resolved = tokio::time::timeout(timeout, lookup_host(address)).await;
    let took = clock::boot_now().since(began);
    let Ok(resolved) = resolved else {
        let detail = format!("no answer from DNS in {}", shown(timeout));
        return Err(Finding::failed(detail, NAMESERVERS));
    };
    let Ok(found) = resolved else {
        return Err(Finding::failed(
            "DNS does not know the host",
            "correct the host in the MongoDB URI, or the DNS record (getent hosts NAME)",
        ));
    };
    let mut found: Vec<_> = found.map(|address| address.ip().to_string()).collect();
    found.dedup();
    let detail = format!("{} in {}", found.join(", "), shown(took));
    let finding = Finding::warning_if(took >= SLOW_MIN, detail, NAMESERVERS);
    Ok(finding.millis("elapsed_ms", took))
}

/// Waits for a primary. Gives up early if a retry cannot succeed.
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
            let detail = format!(
                "none was found within {}; start or reconnect the failed servers",
                shown(timeout)
            );
            Failure::new("no primary", detail).with_retry(RetryPolicy::WaitForServer)
        })),
    }
}

/// Returns the states of the servers once each of `members` has a state, or after the timeout.
async fn states(
    store: &StoreProbe,
    members: &[String],
    timeout: Duration,
) -> BTreeMap<String, ServerState> {
    let is_known = |member| store.servers().contains_key(member);
    let known = async {
        while !members.iter().all(is_known) {
            tokio::time::sleep(POLL).await;
        }
    };
    let _ = tokio::time::timeout(timeout, known).await;
    store.servers()
}

fn server(state: Option<&ServerState>) -> Finding {
    let network = "check the host, the network and any firewall in between";
    match state {
        Some(ServerState::Writable) => Finding::ok("accepts writes"),
        Some(ServerState::Member(what)) => Finding::ok(format!("is {what}")),
        Some(ServerState::Unready(what)) => {
            Finding::warning(format!("is {what}"), "wait, or examine it with rs.status()")
        }
        Some(ServerState::Uninitiated) => Finding::failed(format!("is {UNINITIATED}"), INITIATE),
        Some(ServerState::Elsewhere(what)) => {
            Finding::failed(what, "correct replicaSet or the hosts in the MongoDB URI")
        }
        Some(ServerState::RefusedLogin(_)) => Finding::ok("reachable, and refuses the login"),
        Some(ServerState::Unreachable(failure)) => failure.clone().into(),
        None => Finding::failed("no answer", network),
    }
}

async fn certificates(
    installation: &Installation,
    seeds: &SeedList,
    members: &[String],
) -> Vec<Check> {
    let certificates = match installation.within(seeds.certificates()).await {
        Ok(Some(certificates)) => certificates,
        Ok(None) => return vec![Check::new("tls", unencrypted(members))],
        Err(failure) => return vec![Check::new("tls", Finding::from(failure))],
    };
    let servers = members.iter().map(async |member| {
        let connected = installation.within(certificates.server(member)).await;
        Check::new("tls", certificate(&certificates, connected)).of(member)
    });
    let mut checks = join_all(servers).await;
    if let Some(until) = certificates.client() {
        let remedy = "renew the certificate in tlsCertificateKeyFile";
        let finding = validity(until, clock::wall_now(), remedy);
        checks.push(Check::new("client-certificate", finding));
    }
    checks
}

fn unencrypted(members: &[String]) -> Finding {
    let hosts = ["127.", "localhost:", "[::1]:"];
    let is_local = |member: &String| hosts.iter().any(|host| member.starts_with(host));
    match members.iter().all(is_local) {
        true => Finding::ok("not used, over loopback"),
        false => Finding::warning(
            "not used: others on the network can read and change leases",
            "enable TLS on the servers, then add tls=true to the MongoDB URI",
        ),
    }
}

fn certificate(certificates: &Certificates, connected: Result<SystemTime, Failure>) -> Finding {
    match connected {
        _ if !certificates.are_verified => Finding::warning(
            "certificates are not verified (tlsAllowInvalidCertificates)",
            "remove that option, and name the authority with tlsCAFile",
        ),
        Ok(until) => {
            let remedy = "renew the server's certificate and its chain";
            validity(until, clock::wall_now(), remedy)
        }
        Err(failure) => failure.into(),
    }
}

fn validity(until: SystemTime, now: SystemTime, remedy: &str) -> Finding {
    let days = |duration: Duration| duration.as_secs() / DAY;
    match until.duration_since(now) {
        Ok(left) => {
            let detail = format!("the chain is valid for {} days", days(left));
            let finding = Finding::warning_if(left <= RENEWED_BEFORE, detail, remedy);
            finding.number("days", days(left))
        }
        Err(past) => {
            let days = days(past.duration());
            let detail = format!("the chain expired {days} days ago");
            Finding::failed(detail, remedy).number("days", -days.cast_signed())
        }
    }
}

async fn credentials(installation: &Installation) -> Checked {
    match installation.within(installation.store.login()).await {
        Ok(login) if login.users.is_empty() => Ok(Finding::ok(
            "no user in the URI; the permission checks show whether the server requires one",
        )),
        Ok(login) => {
            let (users, roles) = (login.users.join(", "), login.roles.join(", "));
            Ok(Finding::ok(format!("logged in as {users}, roles: {roles}")))
        }
        Err(failure) if lacks_right(&failure) => Ok(Finding::ok(
            "no user in the URI, but the server requires one: see the permission checks",
        )),
        Err(failure) => Err(failure.into()),
    }
}

fn deployment(description: &Description) -> Finding {
    let version = &description.version;
    let (members, arbiters) = (description.members.len(), description.arbiters.len());
    let numbers = description.version_numbers();
    let is_old = numbers.is_some_and(|numbers| numbers < VERSION_MIN);
    match (&description.product, &description.kind) {
        (Product::Lookalike(product), _) => Finding::failed(
            format!(
                "unsupported: {product}, which only implements MongoDB's protocol: exclusion is not promised"
            ),
            "use a MongoDB replica set: an acknowledgement from this server guarantees less than an acknowledgement from MongoDB (docs/mongodb.md)",
        ),
        (Product::Unrecognized, _) => Finding::warning(
            format!(
                "unsupported: a server of an unknown product (version {version}): exclusion is not promised"
            ),
            "use a MongoDB replica set (docs/mongodb.md)",
        ),
        (Product::MongoDb, _) if is_old => Finding::warning(
            format!(
                "MongoDB {version} is older than 4.4, the oldest supported version; followers poll"
            ),
            "upgrade MongoDB",
        ),
        (Product::MongoDb, StoreKind::Standalone) => Finding::warning(
            format!(
                "standalone server, MongoDB {version}: followers poll, and an acknowledged write is lost if this server is lost"
            ),
            "use a replica set of three members",
        ),
        (Product::MongoDb, StoreKind::Sharded) => Finding::warning(
            format!(
                "sharded cluster through routers, MongoDB {version}: not tested with real routers; change streams are late, so a handoff takes up to a renew_interval"
            ),
            "use a replica set, or hints (docs/mongodb.md)",
        ),
        (Product::MongoDb, _) => {
            let (set, is_small) = (&description.set, members < MEMBERS_MIN);
            let result = match is_small {
                true => "no leader while one data-bearing member is down",
                false => "at most one leader, even while the set elects a primary",
            };
            let detail = format!(
                "replica set {set:?}, MongoDB {version}, data-bearing members: {members}, arbiters: {arbiters}: {result}"
            );
            Finding::warning_if(is_small, detail, "use three data-bearing members")
        }
    }
}

async fn one_deployment(
    installation: &Installation,
    seeds: &SeedList,
    description: &Description,
) -> Checked {
    let servers = seeds.addresses.len();
    if servers == 1 {
        return Ok(Finding::ok("the MongoDB URI names one server"));
    }
    let strangers = installation.within(installation.store.strangers()).await?;
    if !strangers.is_empty() {
        let each = strangers.iter().map(|(at, what)| format!("{at} is {what}"));
        let each: Vec<_> = each.collect();
        return Err(Finding::failed(
            each.join("; "),
            "remove the servers of other deployments from the MongoDB URI (docs/mongodb.md)",
        ));
    }
    let Description { kind, set, .. } = description;
    Ok(match (kind, &seeds.set) {
        (StoreKind::ReplicaSet, None) => Finding::warning(
            format!(
                "the {servers} servers that answer belong to one replica set, but the MongoDB URI does not name it"
            ),
            format!(
                "add replicaSet={set} to the MongoDB URI: servers of other sets are then never used"
            ),
        ),
        _ => Finding::ok("the servers that answer belong to one deployment"),
    })
}

/// Compares the MongoDB deployment with the deployment recorded in the status directory.
fn record(directory: &Path, description: Primary<'_>) -> Checked {
    let file = directory.join(DEPLOYMENT_FILE);
    let file = file.display();
    let recorded = recorded_deployment(directory)
        .map_err(|error| Finding::skipped(format!("cannot read {file}: {error}")))?;
    let Some(recorded) = recorded else {
        return Ok(Finding::ok(
            "no record yet: the next daemon follows the connection string",
        ));
    };
    let found = description?.id.as_ref().ok_or(NOT_REACHED)?;
    Ok(match recorded.is_same(found) {
        true => Finding::ok(format!("unchanged: {}", found.describe())),
        false => Finding::failed(
            format!(
                "the connection string leads to {}, but the candidate belongs to {}: a daemon refuses to lead there",
                found.describe(),
                recorded.describe()
            ),
            format!(
                "correct the connection string; to move, stop all candidates of the lease and remove {file}"
            ),
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::super::report::CheckResult;
    use super::*;

    fn description(kind: StoreKind, members: &[&str], arbiters: &[&str]) -> Description {
        let list = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Description {
            kind,
            set: "rs0".to_owned(),
            product: Product::MongoDb,
            version: "6.0.5".to_owned(),
            id: None,
            members: list(members),
            arbiters: list(arbiters),
        }
    }

    #[test]
    fn only_a_set_of_three_data_bearing_members_is_all_right() {
        let set = StoreKind::ReplicaSet;
        let three = description(set, &["a:1", "b:1", "c:1"], &[]);
        assert_eq!(deployment(&three).result, CheckResult::Ok);
        for other in [
            description(set, &["a:1", "b:1"], &["c:1"]),
            description(StoreKind::Standalone, &[], &[]),
            description(StoreKind::Sharded, &[], &[]),
            Description {
                version: "4.2.1".to_owned(),
                ..three.clone()
            },
            Description {
                product: Product::Unrecognized,
                ..three.clone()
            },
        ] {
            assert_eq!(deployment(&other).result, CheckResult::Warning, "{other:?}");
        }
        let lookalike = Description {
            product: Product::Lookalike("FerretDB"),
            ..three
        };
        assert_eq!(deployment(&lookalike).result, CheckResult::Failed);
    }

    #[test]
    fn certificates_are_renewed_before_they_expire() {
        let now = UNIX_EPOCH + Duration::from_secs(1000 * DAY);
        let of = |until: u64| {
            let until = UNIX_EPOCH + Duration::from_secs(until * DAY);
            validity(until, now, "").result
        };
        assert_eq!(of(1015), CheckResult::Ok);
        assert_eq!(of(1014), CheckResult::Warning);
        assert_eq!(of(999), CheckResult::Failed);
    }
}
