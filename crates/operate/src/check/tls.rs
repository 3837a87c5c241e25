//! Checks of the certificates of servers and of this client.

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;

use super::Installation;
use super::report::{Check, Finding};
use leasehold_clock as clock;
use leasehold_mongodb::store::Failure;
use leasehold_mongodb::store::mongo::probe::{Certificates, SeedList};

/// A certificate should be renewed this long before it expires.
const RENEWED_BEFORE: Duration = Duration::from_secs(14 * 24 * 3600);
const DAY: u64 = 24 * 3600;

pub(super) async fn checks(
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
        Check::new("tls", server(&certificates, connected)).of(member)
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

fn server(certificates: &Certificates, connected: Result<SystemTime, Failure>) -> Finding {
    match connected {
        _ if !certificates.are_verified => Finding::warning(
            "certificates are not verified (tlsAllowInvalidCertificates)",
            "remove that option, and name the authority with tlsCAFile",
        ),
        Ok(until) => {
            let remedy = "renew the server's certificate and its chain";
            validity(until, clock::wall_now(), remedy)
        }
        Err(failure) => match failure.detail.split_once(": ") {
            Some((why, remedy)) => Finding::failed(format!("{}: {why}", failure.kind), remedy),
            None => failure.into(),
        },
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

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::super::report::CheckResult;
    use super::*;

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
