//! Checks of certificates: the chain of each server, and the client's.

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;

use super::report::{Check, Name};
use super::servers::failed;
use super::within;
use leasehold_clock as clock;
use leasehold_mongodb::store::mongo::probe::{Certificates, SeedList, Validity};

/// Time before the end of a certificate in which it should be renewed.
const RENEWED_BEFORE: Duration = Duration::from_secs(14 * 24 * 3600);
const DAY: u64 = 24 * 3600;

pub(super) async fn checks(seeds: &SeedList, members: &[String], timeout: Duration) -> Vec<Check> {
    let certificates = match within(timeout, seeds.certificates()).await {
        Ok(Some(certificates)) => certificates,
        Ok(None) => return vec![unencrypted(members)],
        Err(failure) => return vec![failed(Name::Tls, &failure)],
    };
    let servers = members
        .iter()
        .map(|member| server(&certificates, member, timeout));
    let mut checks = join_all(servers).await;
    if let Some(validity) = certificates.client() {
        checks.push(judged(Name::ClientCertificate, validity, clock::wall_now()));
    }
    checks
}

fn unencrypted(members: &[String]) -> Check {
    let name = Name::Tls;
    let local = |member: &String| {
        ["127.", "localhost:", "[::1]:"]
            .iter()
            .any(|host| member.starts_with(host))
    };
    match members.iter().all(local) {
        true => Check::ok(name, "not used, over loopback"),
        false => Check::warning(
            name,
            "not used: others on the network can read and change leases",
            "enable TLS on the servers, then add tls=true to the MongoDB URI",
        ),
    }
}

async fn server(certificates: &Certificates, address: &str, timeout: Duration) -> Check {
    let connected = within(timeout, certificates.server(address)).await;
    let check = match connected {
        _ if !certificates.are_verified() => Check::warning(
            Name::Tls,
            "certificates are not verified (tlsAllowInvalidCertificates)",
            "remove that option, and name the authority with tlsCAFile",
        ),
        Ok(validity) => judged(Name::Tls, validity, clock::wall_now()),
        Err(failure) => match failure.detail.split_once(": ") {
            Some((why, remedy)) => {
                Check::failed(Name::Tls, format!("{}: {why}", failure.kind), remedy)
            }
            None => failed(Name::Tls, &failure),
        },
    };
    check.of(address)
}

fn judged(name: Name, validity: Validity, now: SystemTime) -> Check {
    let days = |left: Duration| left.as_secs() / DAY;
    let remedy = match name {
        Name::ClientCertificate => "renew the certificate in tlsCertificateKeyFile",
        _ => "renew the server's certificate and its chain",
    };
    match validity.until.duration_since(now) {
        Ok(left) => {
            let detail = format!("the chain is valid for {} days", days(left));
            let check = match left > RENEWED_BEFORE {
                true => Check::ok(name, detail),
                false => Check::warning(name, detail, remedy),
            };
            check.number("days", days(left))
        }
        Err(past) => {
            let days = days(past.duration());
            let detail = format!("the chain expired {days} days ago");
            Check::failed(name, detail, remedy).number("days", -i64::try_from(days).unwrap_or(0))
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
            judged(Name::Tls, Validity { until }, now).outcome()
        };
        assert_eq!(of(1015), CheckResult::Ok);
        assert_eq!(of(1014), CheckResult::Warning);
        assert_eq!(of(999), CheckResult::Failed);
    }
}
