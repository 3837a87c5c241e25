//! Goal: the layer with the highest precedence wins. Unrelated environment variables are not read
//! as configuration.

use std::time::Duration;

use leasehold::config::{HealthCheck, Key, Origin, ReadyWhen, Secret, Sources, UriSource};
use tracing::level_filters::LevelFilter;

use crate::setup::{Files, REQUIRED, config, refusal, refused, required_and, sources};

fn effective(sources: &Sources, path: &str) -> (String, Origin) {
    let settings = sources.load().settings().expect("valid");
    let setting = settings
        .into_iter()
        .find(|setting| setting.key.path() == path)
        .expect("a key");
    (setting.shown().to_owned(), setting.origin)
}

#[test]
fn the_output_names_the_layer_that_wins() {
    let files = Files::new();
    let weak = files.write(
        "weak.toml",
        "[lease]\nname = \"weak\"\nhandoff_delay = \"1s\"\n",
    );
    let strong = files.write("strong.toml", "[lease]\nname = \"strong\"\n");
    let both = [weak.clone(), strong.clone()];
    let variable = [("LEASEHOLD_LEASE__NAME", "variable")];
    let flag = [("lease.name", "flag")];

    let name = |sources: &Sources| effective(sources, "lease.name");
    let of = |name: &str, origin| (name.to_owned(), origin);
    assert_eq!(name(&sources(&[], &[], &[])), of("", Origin::Default));
    assert_eq!(
        name(&sources(&both, &[], &[])),
        of("strong", Origin::File(strong))
    );
    let with_variable = name(&sources(&both, &variable, &[]));
    assert_eq!(
        with_variable,
        of(
            "variable",
            Origin::Variable("LEASEHOLD_LEASE__NAME".to_owned())
        )
    );
    let with_flag = name(&sources(&both, &variable, &flag));
    assert_eq!(with_flag, of("flag", Origin::Flag("lease".to_owned())));
    assert_eq!(
        effective(&sources(&both, &variable, &flag), "lease.handoff_delay"),
        of("1s", Origin::File(weak))
    );
}

#[test]
fn of_two_exclusive_keys_the_key_in_the_later_layer_wins() {
    let files = Files::new();
    let path = files.write("uri", "mongodb://from-file\n");
    let path = path.to_str().expect("text");
    let weak = files.write("weak.toml", &format!("[mongodb]\nuri_file = {path:?}\n"));
    let strong = files.write("strong.toml", "[mongodb]\nuri = \"mongodb://strong\"\n");
    let name = &REQUIRED[..2];
    let uri = |sources: &Sources| {
        let config = config(sources);
        config
            .mongodb
            .uri
            .read()
            .expect("there")
            .expose()
            .to_owned()
    };
    let of_file = [("LEASEHOLD_MONGODB__URI_FILE", path)];
    let inline = [name, &[("mongodb.uri", "mongodb://flag")]].concat();
    assert_eq!(uri(&sources(&[], &of_file, &inline)), "mongodb://flag");
    let of_uri = [("LEASEHOLD_MONGODB__URI", "mongodb://variable")];
    let file = [name, &[("mongodb.uri_file", path)]].concat();
    let from_file = sources(&[], &of_uri, &file);
    assert_eq!(uri(&from_file), "mongodb://from-file");
    let flag = Origin::Flag("mongodb-uri-file".to_owned());
    assert_eq!(effective(&from_file, "mongodb.uri"), (String::new(), flag));
    assert_eq!(
        uri(&sources(&[weak.clone(), strong.clone()], &[], name)),
        "mongodb://strong"
    );
    assert_eq!(
        uri(&sources(&[strong, weak], &[], name)),
        "mongodb://from-file"
    );

    let url = [("LEASEHOLD_WORKLOAD__HEALTH__URL", "http://localhost/")];
    let command = required_and(&[("workload.health.command", "/bin/check")]);
    let config = config(&sources(&[], &url, &command));
    let check = config.workload.health.check();
    assert!(matches!(check, Some(HealthCheck::Command(_))), "{check:?}");
}

#[test]
fn a_pipe_is_not_read_again_by_a_reload() {
    let flags = [REQUIRED[0], REQUIRED[1], ("mongodb.uri_file", "/dev/fd/63")];
    let uri = UriSource::Pipe("/dev/fd/63".into(), Secret::new("mongodb://piped"));
    let mut sources = sources(&[], &[], &flags);
    sources.started_with = Some(uri.clone());
    assert_eq!(config(&sources).mongodb.uri, uri);
}

#[test]
fn the_defaults_are_a_valid_configuration() {
    let config = config(&sources(&[], &[], &REQUIRED));
    assert_eq!(config.lease.name.as_str(), "orders");
    assert_eq!(
        config.lease.timings,
        leasehold::election::Timings::default()
    );
    assert_eq!(config.lease.handoff_delay, Duration::from_secs(2));
    assert_eq!(config.identity.name.as_str(), "me");
    assert_eq!(config.identity.address, None);
    assert_eq!(config.mongodb.database, "leasehold");
    assert_eq!(config.mongodb.collection, "leases");
    assert_eq!(config.mongodb.heartbeat, Duration::from_secs(10));
    assert_eq!(config.status.directory, None);
    let listen = "127.0.0.1:9402".parse().expect("an address");
    assert_eq!(config.http.listen, Some(listen));
    assert_eq!(config.http.ready_when, ReadyWhen::Connected);
    assert!(!config.workload.ends_first);
    assert_eq!(config.log.level, LevelFilter::INFO);
    assert_eq!(config.log.format.json, None);
}

#[test]
fn every_value_of_a_file_is_applied() {
    let files = Files::new();
    let uri = files.write("uri", "mongodb://localhost\n");
    let file = files.write(
        "all.toml",
        &format!(
            "[lease]\nname = \"007\"\nlease_duration = \"15s\"\nrenew_deadline = \"10s\"\n\
             renew_interval = \"2s\"\nretry_interval = \"500ms\"\nhandoff_delay = \"0s\"\n\
             [identity]\nname = \"a\"\naddress = \"10.0.0.1:80\"\n\
             [mongodb]\nuri_file = {uri:?}\ndatabase = \"d\"\ncollection = \"c\"\n\
             operation_timeout = \"1s\"\nheartbeat = \"500ms\"\n\
             [status]\ndirectory = \"/tmp/s\"\n[http]\nlisten = \"\"\nready_when = \"leader\"\n\
             [workload]\nloss_grace = \"1s\"\nends_first = true\n\
             [log]\nlevel = \"trace\"\nformat = \"json\"\n"
        ),
    );
    let config = config(&sources(&[file], &[], &[]));
    assert_eq!(config.lease.name.as_str(), "007");
    assert_eq!(config.lease.handoff_delay, Duration::ZERO);
    let timings = config.lease.timings;
    assert_eq!(timings.lease_duration(), Duration::from_secs(15));
    assert_eq!(timings.renew_deadline(), Duration::from_secs(10));
    assert_eq!(timings.renew_interval(), Duration::from_secs(2));
    assert_eq!(timings.retry_interval(), Duration::from_millis(500));
    assert_eq!(timings.operation_timeout(), Duration::from_secs(1));
    assert_eq!(timings.loss_grace(), Duration::from_secs(1));
    assert_eq!(config.identity.address.as_deref(), Some("10.0.0.1:80"));
    assert_eq!(config.mongodb.uri, UriSource::File(uri));
    assert_eq!(config.mongodb.database, "d");
    assert_eq!(config.mongodb.collection, "c");
    assert_eq!(config.mongodb.heartbeat, Duration::from_millis(500));
    assert_eq!(config.status.directory.as_deref(), Some("/tmp/s".as_ref()));
    assert_eq!(config.http.listen, None);
    assert_eq!(config.http.ready_when, ReadyWhen::Leader);
    assert!(config.workload.ends_first);
    assert_eq!(config.log.level, LevelFilter::TRACE);
    assert_eq!(config.log.format.json, Some(true));
}

#[test]
fn a_file_with_a_yaml_extension_is_read_as_yaml() {
    let files = Files::new();
    let content = "# comment\nlease:\n  name: orders\n  handoff_delay: 0s\nworkload:\n  ends_first: true\nlog:\n";
    for name in ["a.yaml", "a.yml", "A.YML"] {
        let file = files.write(name, content);
        let config = config(&sources(&[file], &[], &REQUIRED[1..]));
        assert_eq!(config.lease.name.as_str(), "orders");
        assert_eq!(config.lease.handoff_delay, Duration::ZERO);
        assert!(config.workload.ends_first);
    }
    let file = files.write("number.yaml", "lease:\n  name: 007\n");
    let refused = refusal(&sources(&[file], &[], &REQUIRED[1..]));
    assert!(
        refused.contains("lease.name = 7") && refused.contains("in quotes"),
        "{refused}"
    );
}

#[test]
fn other_variables_are_not_configuration() {
    let noise = [
        ("LEASEHOLD_LEASE", "other"),
        ("LEASEHOLD_TOKEN", "7"),
        ("LEASEHOLD_HTTP_PORT", "tcp://10.0.0.1:80"),
        ("LEASEHOLD_PORT_9402_TCP__ADDR", "10.0.0.1"),
        ("LEASEHOLD_GADGETS__TIMEOUT", "nonsense"),
        ("LEASEHOLD__NAME", "other"),
        ("LEASEHOLD_", ""),
        ("leasehold_lease__name", "other"),
        ("XLEASEHOLD_LEASE__NAME", "other"),
    ];
    let config = config(&sources(&[], &noise, &REQUIRED));
    assert_eq!(config.lease.name.as_str(), "orders");

    for (wrong, meant) in [
        (
            "LEASEHOLD_LEASE__NAM",
            "did you mean LEASEHOLD_LEASE__NAME?",
        ),
        (
            "LEASEHOLD_LEASE__name",
            "did you mean LEASEHOLD_LEASE__NAME?",
        ),
        (
            "LEASEHOLD_LEASE__COLOUR",
            "the keys of [lease] are name, profile, lease_duration",
        ),
    ] {
        let refused = refusal(&sources(&[], &[(wrong, "x")], &REQUIRED));
        assert!(
            refused.contains(wrong) && refused.contains(meant),
            "{refused}"
        );
    }
}

#[test]
fn the_default_identity_is_the_pod_name_or_else_the_host_name() {
    let without = [REQUIRED[0], REQUIRED[2]];
    let identity = |variables: &[(&str, &str)], flags: &[(&str, &str)]| {
        let config = config(&sources(&[], variables, flags));
        config.identity.name.as_str().to_owned()
    };
    let pod = [("POD_NAME", "orders-0")];
    assert_eq!(identity(&pod, &without), "orders-0");
    assert_eq!(identity(&pod, &REQUIRED), "me");
    let process = format!("-{}", std::process::id());
    for variables in [&[][..], &[("POD_NAME", "")]] {
        let host = identity(variables, &without);
        assert!(
            host.ends_with(&process) && host.len() > process.len(),
            "{host}"
        );
    }
    refused(
        &sources(&[], &[("POD_NAME", "a\nb")], &without),
        &["identity.name = \"a\\nb\" (environment variable POD_NAME)"],
    );
}

#[test]
fn an_empty_string_unsets_the_value_of_a_weaker_layer() {
    let files = Files::new();
    let uri = files.write("uri", "mongodb://localhost");
    let file = files.write("a.toml", &format!("[mongodb]\nuri_file = {uri:?}\n"));
    let unset = [("LEASEHOLD_MONGODB__URI_FILE", "")];
    let config = config(&sources(&[file], &unset, &REQUIRED));
    assert!(matches!(config.mongodb.uri, UriSource::Inline(_)));
}

#[test]
fn files_are_read_again_by_a_reload() {
    let files = Files::new();
    let file = files.write("a.toml", "[log]\nlevel = \"info\"\n");
    let sources = sources(&[file], &[], &REQUIRED);
    let old = config(&sources);
    files.write("a.toml", "[log]\nlevel = \"debug\"\n");
    let (new, changed) = old.reload(&sources).expect("valid");
    let changed: Vec<_> = changed.into_iter().map(Key::path).collect();
    assert_eq!(changed, ["log.level"]);
    assert_eq!(new.log.level, LevelFilter::DEBUG);
}
