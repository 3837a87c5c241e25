//! Checks of the configuration and of this host: status directory, port.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use serde::Deserialize;

use super::report::{Check, Name, shown};
use crate::ask::status_of;
use leasehold_cli::store_options::read;
use leasehold_config::{Config, Sources, UriSource, shown_path};
use leasehold_guard::prerequisites::prerequisites;
use leasehold_host::occupant::named;
use leasehold_http::{HTTP_LISTEN, cannot_listen, probe};
use leasehold_mongodb::store::mongo::probe::UriSettings;
use leasehold_mongodb::uri::{Treatment, UriNotice};
use leasehold_status::directory::{Examined, closed_root, examine, exposure};

pub(super) async fn checks(config: &Config, sources: &Sources, directory: &Path) -> Vec<Check> {
    vec![
        configuration(config, sources),
        connection_string(&config.mongodb.uri),
        status_directory(directory),
        port(config).await,
        guard(),
    ]
}

/// Checks the system calls of a guard. Only `run -- CMD`, `lock -- CMD`, hooks and health commands
/// need them, and the configuration does not show whether a command follows.
fn guard() -> Check {
    match prerequisites() {
        Ok(()) => Check::ok(Name::Guard, "can run and stop a command".to_owned()),
        Err(missing) => Check::failed(
            Name::Guard,
            format!("cannot run a command: {}: {}", missing.call, missing.source),
            "mount /proc, and allow the call in the seccomp profile",
        ),
    }
}

fn configuration(config: &Config, sources: &Sources) -> Check {
    let ignored: Vec<_> = sources
        .misspelt_variables()
        .into_iter()
        .map(|(variable, meant)| format!("{variable} (write {})", meant.variable()))
        .collect();
    if !ignored.is_empty() {
        return Check::warning(
            Name::Configuration,
            format!("environment variables ignored: {}", ignored.join(", ")),
            "configuration variables have two underscores after the section",
        );
    }
    let timings = &config.lease.timings;
    Check::ok(
        Name::Configuration,
        format!(
            "lease {} as {}, lease_duration {}, renew_deadline {}",
            config.lease.name,
            config.identity,
            shown(timings.lease_duration()),
            shown(timings.renew_deadline())
        ),
    )
}

fn connection_string(source: &UriSource) -> Check {
    let origin = match source {
        UriSource::Inline(_) => "in the configuration".to_owned(),
        UriSource::File(path) => format!("in {}", shown_path(path)),
        UriSource::Pipe(path, _) => format!("from the pipe {}", shown_path(path)),
    };
    let uri = match read(source) {
        Ok(uri) => uri,
        Err(why) => return Check::failed(Name::ConnectionString, why, ""),
    };
    let Some(settings) = UriSettings::of(&uri) else {
        let why = format!("the connection string {origin} is refused");
        return Check::failed(Name::ConnectionString, why, "");
    };
    let servers = match (settings.srv, settings.hosts.len()) {
        (true, _) => format!("servers from the SRV record of {}", settings.hosts.join("")),
        (false, 1) => "1 server".to_owned(),
        (false, count) => format!("{count} servers"),
    };
    let set = match &settings.set {
        Some(set) => format!("replica set {set:?}"),
        None => "no replica set".to_owned(),
    };
    let user = match (&settings.user, settings.certificate_login) {
        (_, true) => "X.509 login".to_owned(),
        (Some(user), false) => format!("user {user:?}"),
        (None, false) => "no user".to_owned(),
    };
    let tls = if settings.tls { "TLS" } else { "no TLS" };
    let detail = format!(
        "{origin}: {servers}, {set}, {user}, {tls}{}",
        not_applied(&settings.notices)
    );
    let mut risks = settings.notices.iter();
    let risk = risks.find(|notice| matches!(notice.treatment, Treatment::AppliedWithRisk(_)));
    if let Some(risk) = risk {
        return Check::warning(
            Name::ConnectionString,
            format!("{detail}, {risk}"),
            format!("remove {}, and set tlsCAFile", risk.option),
        );
    }
    if settings.direct {
        return Check::warning(
            Name::ConnectionString,
            format!("{detail}, directConnection"),
            "remove directConnection and name the replica set: with it, elections are not followed",
        );
    }
    Check::ok(Name::ConnectionString, detail)
}

/// Returns the options without an effect, as the end of a list.
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

fn status_directory(directory: &Path) -> Check {
    let name = Name::StatusDirectory;
    let path = directory.display();
    let examined = match examine(directory) {
        Ok(examined) => examined,
        Err(error) => return Check::refused(name, error),
    };
    let detail = match examined {
        Examined::Full => {
            let detail = format!("no storage space in {path}");
            return Check::failed(name, detail, "make room there");
        }
        Examined::Missing(parent) => {
            return Check::ok(
                name,
                format!("{path} can be created in {}", parent.display()),
            );
        }
        Examined::Writable { by } if by.is_empty() => format!("{path} is writable and not in use"),
        Examined::Writable { by } if by.iter().all(|occupant| occupant.is_leasehold) => {
            format!("{path} is in use by a running leasehold: {}", named(&by))
        }
        Examined::Writable { by } => {
            return Check::warning(
                name,
                format!("{path} is in use by {}", named(&by)),
                "give each daemon a status.directory of its own",
            );
        }
    };
    if let Some(root) = closed_root(directory) {
        return Check::warning(
            name,
            format!(
                "other users cannot read the status: {} is closed to them",
                root.display()
            ),
            "chmod 755 that directory",
        );
    }
    // In a pod, the mounts decide which containers reach the directory.
    let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    match exposure(directory) {
        Ok(Some(why)) if !in_pod => Check::warning(
            name,
            format!("other users may write in {path} and forge the status: {why}"),
            "let it belong to the user of the daemon, with mode 0755",
        ),
        Ok(_) | Err(_) => Check::ok(name, detail),
    }
}

async fn port(config: &Config) -> Check {
    let name = Name::HttpPort;
    let Some(address) = config.http.listen else {
        return Check::skipped(name, "http.listen is empty: there are no endpoints");
    };
    let error = match probe(address) {
        Ok(()) => return Check::ok(name, format!("{address} is free")),
        Err(error) => error,
    };
    if error.kind() == io::ErrorKind::AddrInUse
        && let Some(daemon) = daemon_at(address).await
        && daemon.lease == config.lease.name.as_str()
    {
        let DaemonAtPort { identity, .. } = daemon;
        let detail =
            format!("{address} is in use by a running leasehold of this lease: {identity}");
        return Check::ok(name, detail);
    }
    Check::refused(name, cannot_listen(address, HTTP_LISTEN, &error))
}

/// The part of `/status` that identifies a daemon.
#[derive(Debug, Deserialize)]
struct DaemonAtPort {
    lease: String,
    identity: String,
}

/// Asks the process that listens on this address; `None` unless it answers like a daemon.
async fn daemon_at(address: SocketAddr) -> Option<DaemonAtPort> {
    status_of(reachable(address)).await.ok()
}

/// Returns an address that reaches a listener from this host.
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
        let check = connection_string(&UriSource::Inline(Secret::new(uri)));
        let detail = "in the configuration: 2 servers, replica set \"rs0\", user \"me\", no TLS";
        assert_eq!(check, Check::ok(Name::ConnectionString, detail));
    }

    #[test]
    fn options_without_an_effect_are_listed_and_one_with_a_risk_is_a_warning() {
        let of = |options: &str| {
            let uri = format!("mongodb://a/?{options}");
            connection_string(&UriSource::Inline(Secret::new(uri)))
        };
        let detail = "in the configuration: 1 server, no replica set, no user, no TLS; overridden: \
                      retryWrites; ignored: compressors";
        let check = of("compressors=zstd&retryWrites=true&w=majority");
        assert_eq!(check, Check::ok(Name::ConnectionString, detail));
        let detail = "in the configuration: 1 server, no replica set, no user, TLS, tlsInsecure: \
                      servers are not verified, so another machine can pose as MongoDB";
        let expected = Check::warning(
            Name::ConnectionString,
            detail,
            "remove tlsInsecure, and set tlsCAFile",
        );
        assert_eq!(of("tls=true&tlsInsecure=true"), expected);
    }
}
