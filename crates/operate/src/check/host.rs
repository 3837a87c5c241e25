//! Checks of the configuration and of this host: status directory, port, system calls.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use super::report::{Check, Checked, Finding, shown};
use super::timings;
use crate::replicas::status_of;
use leasehold_cli::store_options::read;
use leasehold_config::{Config, Origin, Sources, UriSource, shown_path};
use leasehold_guard::prerequisites::prerequisites;
use leasehold_host::occupant::named;
use leasehold_http::{HTTP_LISTEN, cannot_listen, probe};
use leasehold_mongodb::uri::{ConnectionUri, Treatment, UriNotice};
use leasehold_status::directory::{Examined, closed_root, examine, exposure};

pub(super) async fn checks(config: &Config, sources: &Sources, directory: &Path) -> Vec<Check> {
    let uri = connection_string(&config.mongodb.uri, config.uri_origin());
    let mut checks = vec![
        Check::new("configuration", configuration(config, sources)),
        Check::new("connection-string", uri),
        Check::new("status-directory", status_directory(directory)),
        Check::new("http-port", port(config).await),
        Check::new("guard", guard()),
    ];
    checks.extend(timings::of_host());
    checks
}

/// Checks the system calls needed to run commands, hooks and health checks.
fn guard() -> Finding {
    match prerequisites() {
        Ok(()) => Finding::ok("can run and stop a command"),
        Err(missing) => Finding::failed(
            format!("cannot run a command: {}: {}", missing.call, missing.source),
            "mount /proc, and allow the call in the seccomp profile",
        ),
    }
}

fn configuration(config: &Config, sources: &Sources) -> Finding {
    let ignored = sources.ignored_variables().into_iter();
    let ignored: Vec<_> = ignored.map(|ignored| ignored.to_string()).collect();
    if !ignored.is_empty() {
        return Finding::warning(
            ignored.join("; "),
            "a configuration variable is LEASEHOLD_<SECTION>__<KEY>, with two underscores",
        );
    }
    let timings = &config.lease.timings;
    Finding::ok(format!(
        "lease {} as {}, lease_duration {}, renew_deadline {}",
        config.lease.name,
        config.identity.name,
        shown(timings.lease_duration()),
        shown(timings.renew_deadline())
    ))
}

fn connection_string(source: &UriSource, origin: Option<&Origin>) -> Checked {
    let origin = match source {
        UriSource::Inline(_) => origin.map_or_else(String::new, |it| format!("from {it}")),
        UriSource::File(path) => format!("in {}", shown_path(path)),
        UriSource::Pipe(path, _) => format!("from the pipe {}", shown_path(path)),
    };
    let uri = read(source).map_err(|why| Finding::failed(why, ""))?;
    let uri = ConnectionUri::parse(&uri).map_err(|_| {
        let detail = format!("the connection string {origin} is refused");
        Finding::failed(detail, "")
    })?;
    let detail = format!("{origin}: {}{}", uri.describe(), not_applied(uri.notices()));
    let mut notices = uri.notices().iter();
    let risk = notices.find(|notice| matches!(notice.treatment, Treatment::AppliedWithRisk(_)));
    Ok(match risk {
        Some(risk) => Finding::warning(
            format!("{detail}, {risk}"),
            format!("remove {}, and set tlsCAFile", risk.option),
        ),
        None if uri.is_direct() => Finding::warning(
            format!("{detail}, directConnection"),
            "name the replica set, and remove directConnection: it does not follow elections",
        ),
        None => Finding::ok(detail),
    })
}

fn not_applied(notices: &[UriNotice]) -> String {
    let named = |word: &str, is_listed: fn(&Treatment) -> bool| {
        let listed = notices.iter().filter(|notice| is_listed(&notice.treatment));
        let names: Vec<_> = listed.map(|notice| notice.option).collect();
        match names.is_empty() {
            true => String::new(),
            false => format!("; {word}: {}", names.join(", ")),
        }
    };
    let overridden = named("overridden", |it| matches!(it, Treatment::Overridden(_)));
    overridden + &named("ignored", |it| matches!(it, Treatment::Ignored(_)))
}

fn status_directory(directory: &Path) -> Checked {
    let path = directory.display();
    let examined = examine(directory)?;
    let detail = match examined {
        Examined::Full => {
            let detail = format!("no storage space in {path}");
            return Err(Finding::failed(detail, "make room there"));
        }
        Examined::Missing(parent) => {
            let detail = format!("{path} can be created in {}", parent.display());
            return Ok(Finding::ok(detail));
        }
        Examined::Writable { by } if by.is_empty() => format!("{path} is writable and not in use"),
        Examined::Writable { by } if by.iter().all(|occupant| occupant.is_leasehold) => {
            format!("{path} is in use by a running leasehold: {}", named(&by))
        }
        Examined::Writable { by } => {
            return Err(Finding::warning(
                format!("{path} is in use by {}", named(&by)),
                "give each daemon a status.directory of its own",
            ));
        }
    };
    if let Some(root) = closed_root(directory) {
        let root = root.display();
        return Err(Finding::warning(
            format!("other users cannot read the status: {root} is not accessible to them"),
            format!("chmod 755 {root}"),
        ));
    }
    // In a pod, access to the directory depends on the containers' mounts.
    let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    Ok(match exposure(directory) {
        Ok(Some(why)) if !in_pod => Finding::warning(
            format!("other users can write to {path} and forge the status: {why}"),
            "chown the directory to the daemon's user, then chmod 755",
        ),
        Ok(_) | Err(_) => Finding::ok(detail),
    })
}

async fn port(config: &Config) -> Checked {
    let address = config.http.listen;
    let address = address.ok_or("http.listen is empty: there are no endpoints")?;
    let Err(error) = probe(address) else {
        return Ok(Finding::ok(format!("{address} is free")));
    };
    // The process that listens on this address may be a daemon of this lease.
    if error.kind() == io::ErrorKind::AddrInUse
        && let Ok(daemon) = status_of(reachable(address)).await
        && daemon.lease == config.lease.name.as_str()
    {
        return Ok(Finding::ok(format!(
            "{address} is in use by a running leasehold of this lease: {}",
            daemon.identity
        )));
    }
    Err(cannot_listen(address, HTTP_LISTEN, &error).into())
}

/// Returns a local address where clients can reach a listener on `address`.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_config::Secret;

    #[test]
    fn a_listener_on_all_addresses_is_asked_over_loopback() {
        let reached = |text: &str| reachable(text.parse().unwrap()).to_string();
        assert_eq!(reached("0.0.0.0:9402"), "127.0.0.1:9402");
        assert_eq!(reached("[::]:9402"), "[::1]:9402");
        assert_eq!(reached("10.1.2.3:9402"), "10.1.2.3:9402");
    }

    #[test]
    fn the_settings_of_the_connection_string_are_shown_and_its_password_is_not() {
        let uri = "mongodb://me:hunter2@a,b/?replicaSet=rs0";
        let flag = Origin::Flag("mongodb-uri".to_owned());
        let check = connection_string(&UriSource::Inline(Secret::new(uri)), Some(&flag));
        let detail = "from flag --mongodb-uri: 2 servers, replica set \"rs0\", user \"me\", no TLS";
        assert_eq!(check, Ok(Finding::ok(detail)));
    }

    #[test]
    fn options_without_an_effect_are_listed_and_one_with_a_risk_is_a_warning() {
        let of = |options: &str| {
            let uri = format!("mongodb://a/?{options}");
            let variable = Origin::Variable("LEASEHOLD_MONGODB__URI".to_owned());
            connection_string(&UriSource::Inline(Secret::new(uri)), Some(&variable))
        };
        let detail = "from environment variable LEASEHOLD_MONGODB__URI: 1 server, no replica set, \
                      no user, no TLS; overridden: retryWrites; ignored: compressors";
        let check = of("compressors=zstd&retryWrites=true&w=majority");
        assert_eq!(check, Ok(Finding::ok(detail)));
        let detail = "from environment variable LEASEHOLD_MONGODB__URI: 1 server, no replica set, \
                      no user, TLS, tlsInsecure: servers are not verified, so another machine can pose as MongoDB";
        let expected = Finding::warning(detail, "remove tlsInsecure, and set tlsCAFile");
        assert_eq!(of("tls=true&tlsInsecure=true"), Ok(expected));
    }
}
