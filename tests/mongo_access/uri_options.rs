//! Goal: each connection string option is handled as documented, with the real parser and a real
//! server. Either the option is refused by name, or the client connects. Method: run `leasehold
//! locks` with each option of the table, under each of its names. Also run one daemon with all the
//! options that have no effect.

use std::process::{Command, Output};

use futures_util::{StreamExt, stream};
use leasehold::uri::{OPTIONS, Treatment, UriOption};
use leasehold_testbed::{DaemonTimings, ReplicaSet, SharedSet, Stage};

use crate::entrance::LONG;

const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");
const AT_A_TIME: usize = 4;
/// Options that the driver accepts only with `mongodb+srv` or with a login method that this server
/// does not offer.
const ELSEWHERE: [&str; 3] = ["authMechanism", "srvMaxHosts", "srvServiceName"];

/// A replica set with TLS but without users, because a login takes seconds on a busy machine.
static ENCRYPTED: SharedSet = SharedSet::new(|| ReplicaSet::builder().members(1).tls());

/// Returns a valid value other than the default.
fn value(option: &UriOption, set: &ReplicaSet) -> String {
    let certificates = set.certificates().expect("a set with TLS");
    match option.name {
        "appName" | "authSource" | "connect" => "direct".to_owned(),
        "authMechanism" => "SCRAM-SHA-256".to_owned(),
        "authMechanismProperties" => "SERVICE_NAME:other".to_owned(),
        "compressors" => "snappy,zlib,zstd".to_owned(),
        "directConnection" | "journal" => "false".to_owned(),
        "readConcernLevel" => "available".to_owned(),
        "readPreference" => "secondary".to_owned(),
        "readPreferenceTags" => "dc:ny,rack:1".to_owned(),
        "replicaSet" => "testbed".to_owned(),
        "serverMonitoringMode" => "poll".to_owned(),
        "tlsCAFile" => certificates.authority().display().to_string(),
        "tlsCertificateKeyFile" => certificates.client().display().to_string(),
        "uuidRepresentation" => "pythonLegacy".to_owned(),
        "w" => "0".to_owned(),
        "rejectUnauthorized"
        | "sslValidate"
        | "sslVerifyCertificate"
        | "ssl_match_hostname"
        | "checkServerIdentity" => "false".to_owned(),
        name if name.ends_with("MS") || name.starts_with("max") => "7".to_owned(),
        name if name.starts_with("proxy") || name.starts_with("srv") => "7".to_owned(),
        _ => "true".to_owned(),
    }
}

/// Returns the replica set's connection string with this option under this name. Replaces the
/// option if the string already contains it.
fn with(set: &ReplicaSet, option: &UriOption, name: &str) -> String {
    let uri = set.uri();
    let (servers, options) = uri.split_once('?').expect("options");
    let is_other = |written: &&str| {
        let (known, _) = written.split_once('=').expect("a value");
        !known.eq_ignore_ascii_case(option.name)
    };
    let others: Vec<_> = options.split('&').filter(is_other).collect();
    let (others, value) = (others.join("&"), value(option, set));
    format!("{servers}?{others}&{name}={value}")
}

async fn locks(uri: String) -> Output {
    let listed = tokio::task::spawn_blocking(move || {
        Command::new(PROGRAM)
            .args(["locks", "--mongodb-operation-timeout=5s"])
            .arg(format!("--mongodb-uri={uri}"))
            .env_clear()
            .output()
            .expect("the command starts")
    });
    listed.await.expect("no panic")
}

/// Tries an option. Returns a description if leasehold does not handle the option as documented.
async fn tried(set: &ReplicaSet, option: &'static UriOption, name: String) -> Option<String> {
    let output = locks(with(set, option, &name)).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let refused = match option.treatment {
        Treatment::Refused(why) => Some(format!("has the option {}: {why}", option.name)),
        _ if ELSEWHERE.contains(&option.name) => Some(format!("the value of {}", option.name)),
        _ => None,
    };
    let code = output.status.code();
    let is_right = match &refused {
        Some(text) => code == Some(78) && said.contains(text),
        None => code == Some(0),
    };
    (!is_right).then(|| format!("{name}: exit code {code:?}, not as {refused:?}:\n{said}"))
}

#[tokio::test]
async fn each_option_is_refused_by_name_or_the_client_connects() {
    let set = ENCRYPTED.get().await;
    let names = OPTIONS.iter().flat_map(|option| {
        let names = [option.name]
            .into_iter()
            .chain(option.aliases.iter().copied());
        names.map(move |name| (option, name))
    });
    // Option names are case-insensitive.
    let cases =
        names.flat_map(|(option, name)| [(option, name.to_owned()), (option, name.to_uppercase())]);
    let tried = cases.map(|(option, name)| tried(&set, option, name));
    let wrong: Vec<_> = stream::iter(tried)
        .buffer_unordered(AT_A_TIME)
        .collect()
        .await;
    assert!(wrong.len() > 2 * OPTIONS.len(), "{}", wrong.len());
    let wrong: Vec<_> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn a_daemon_leads_with_all_ineffective_options_and_logs_each_of_them_once() {
    let set = ENCRYPTED.get().await;
    let without_effect: Vec<_> = OPTIONS
        .iter()
        .filter(|o| {
            matches!(
                o.treatment,
                Treatment::Overridden(_) | Treatment::Ignored(_)
            )
        })
        .collect();
    let options: Vec<_> = without_effect
        .iter()
        .map(|option| {
            // Use a value other than the default.
            let name = option.name;
            match name.starts_with("tlsDisable") {
                true => format!("{name}=false"),
                false => format!("{name}={}", value(option, &set)),
            }
        })
        .collect();
    let uri = format!("{}&tlsInsecure=true&{}", set.uri(), options.join("&"));
    let stage = Stage::new(PROGRAM, set).timings(DaemonTimings::DEMO);
    let a = stage.candidate("a").uri(&uri).leading(LONG).await;
    let records = a.log_records();
    let logged = |message: &str| -> Vec<_> {
        let records = records.iter().filter(|record| record["message"] == message);
        records.cloned().collect()
    };
    let ignored = logged("connection string option ignored");
    let overridden = logged("connection string options overridden");
    assert_eq!(overridden.len(), 1, "{overridden:?}");
    for option in without_effect {
        let name = option.name;
        let lines = ignored.iter().filter(|line| line["option"] == name);
        let lines: Vec<_> = lines.collect();
        match option.treatment {
            Treatment::Ignored(why) => {
                assert_eq!(lines.len(), 1, "{name}");
                assert_eq!(lines[0]["level"], "WARN", "{name}");
                assert_eq!(lines[0]["reason"], why, "{name}");
            }
            _ => {
                assert_eq!(lines.len(), 0, "{name}");
                let all = overridden[0]["options"].as_str().expect("a text");
                assert!(all.contains(&format!("{name} (")), "{name}: {all}");
            }
        }
    }
    let risks = logged("connection string option is insecure");
    assert_eq!(risks.len(), 1, "{risks:?}");
    assert_eq!(risks[0]["option"], "tlsInsecure");
}
