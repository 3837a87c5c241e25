//! Goal (I12): no output contains the password of a connection string, wherever the string is set
//! and whatever error occurs.

use leasehold::config::{KEYS, UriSource};

use crate::setup::{Files, PASSWORD, REQUIRED, URI, config, leasehold, refusal, sources};

/// Invalid connection strings that contain the password.
const BROKEN: [&str; 23] = [
    "hunter2",
    "mongodb://operator:hunter2@db:port",
    "mongodb://operator:hunter2/@db",
    "mongodb://operator:hunter2@x@db",
    "mongodb://operator:hunter2%@db",
    "mongodb://operator:hunter2@db/?nonsense=1",
    "mongodb://operator:hunter2@db/?proxyHost=h",
    "mongodb://operator:hunter2@db/?tls=hunter2",
    "mongodb://operator:hunter2?hunter2=1@db",
    "mongodb://operator:hunter2&hunter2=1@db/?hunter2",
    "mongodb://operator:x?y&hunter2=1@db/",
    "mongodb://operator:%68unter2%zz@db",
    "mongodb://operator:hunter2#@db",
    "mongodb://operator:hunter2[@db",
    "mongodb://operator:hunter2%2F?@db/?tls=maybe",
    "mongodb://operator:x@db/?proxyPassword=hunter2",
    "mongodb://operator:x@db/?tlsCertificateKeyFilePassword=hunter2",
    "mongodb://operator:x@db/?authMechanism=PLAIN&authMechanismProperties=TOKEN:hunter2,x",
    "mongodb://operator:x@db/?authMechanismProperties=AWS_SESSION_TOKEN:hunter2&nonsense=1",
    "mongodb://operator:x@db/?authMechanism=hunter2",
    "mongodb://operator:hunter2@db extra",
    "operator:hunter2@db",
    "postgres://operator:hunter2@db",
];

#[test]
fn i12_a_connection_string_is_masked_in_the_effective_configuration_and_in_debug() {
    let flags = [REQUIRED[0], REQUIRED[1], ("mongodb.uri", URI)];
    let sources = sources(&[], &[("LEASEHOLD_MONGODB__URI", URI)], &flags);
    let config = config(&sources);
    let UriSource::Inline(secret) = &config.mongodb.uri else {
        panic!("expected an inline string");
    };
    assert_eq!(secret.expose(), URI);
    let loaded = sources.load();
    let settings = sources.load().settings().expect("valid");
    for shown in [
        format!("{config:?}"),
        format!("{sources:?}"),
        format!("{loaded:?}"),
        format!("{settings:?}"),
    ] {
        assert!(!shown.contains(PASSWORD), "{shown}");
    }
}

#[test]
fn i12_errors_do_not_quote_invalid_connection_strings() {
    let files = Files::new();
    for uri in BROKEN {
        let flags = [REQUIRED[0], REQUIRED[1], ("mongodb.uri", uri)];
        let inline = refusal(&sources(&[], &[], &flags));
        assert!(inline.contains("mongodb.uri = ***"), "{inline}");
        assert!(inline.contains("flag --mongodb-uri"), "{inline}");

        let path = files.write("uri", uri);
        let flags = [
            REQUIRED[0],
            REQUIRED[1],
            ("mongodb.uri_file", path.to_str().expect("text")),
        ];
        let from_file = refusal(&sources(&[], &[], &flags));
        assert!(
            from_file.contains(&path.display().to_string()),
            "{from_file}"
        );
        for shown in [inline, from_file] {
            for part in [PASSWORD, "operator", "db:port"] {
                assert!(!shown.contains(part), "{part} of {uri}: {shown}");
            }
        }
    }
}

#[test]
fn i12_a_connection_string_in_the_wrong_key_is_refused_and_masked() {
    for key in KEYS.iter().filter(|key| !key.secret) {
        let sources = sources(&[], &[(&key.variable(), URI)], &[]);
        let error = sources
            .load()
            .settings()
            .expect_err("an invalid value of this key");
        let shown = format!("{error}\n{error:?}");
        assert!(shown.contains(&key.variable()), "{shown}");
        assert!(shown.contains("looks like a connection string"), "{shown}");
        assert!(!shown.contains(PASSWORD), "{shown}");
    }
}

#[test]
fn i12_a_connection_string_is_masked_anywhere_in_a_file() {
    let files = Files::new();
    for (name, content) in [
        ("a.toml", format!("[mongodb]\nurl = \"{URI}\"\n")),
        ("b.toml", format!("[mongodb]\nuri = \"{URI}\n")),
        ("c.toml", format!("[mongodb]\nuri = {URI}\n")),
        ("d.toml", format!("mongodb = \"{URI}\"\n")),
        ("e.toml", format!("\"{URI}\" = 1\n")),
        ("f.toml", format!("[mongodb]\n\"{URI}\" = 1\n")),
        ("g.toml", format!("[\"{URI}\"]\nname = 1\n")),
        ("h.toml", format!("[mongodb]\nuri = [\"{URI}\"]\n")),
        ("i.toml", format!("[mongodb.uri]\nuri = \"{URI}\"\n")),
        ("j.toml", format!("[lease]\nname = {{ x = \"{URI}\" }}\n")),
        ("k.yaml", format!("mongodb: {URI}\n")),
        ("l.yaml", format!("mongodb:\n  url: {URI}\n  uri: [{URI}\n")),
        ("m.yaml", format!("{URI}\n")),
        ("n.yaml", format!("? [\"{URI}\"]\n: 1\n")),
        ("o.yaml", format!("mongodb:\n  uri: !!float {URI}\n")),
        ("p.yaml", format!("mongodb:\n  uri: \"{URI}\n  *{URI}\n")),
    ] {
        let file = files.write(name, &content);
        let error = sources(&[file], &[], &[])
            .load()
            .config()
            .expect_err("refused");
        let shown = format!("{error}\n{error:?}");
        assert!(!shown.contains(PASSWORD), "{content}: {shown}");
    }
}

#[test]
fn i12_the_binary_never_prints_a_password() {
    let files = Files::new();
    let file = files.write("a.toml", &format!("[mongodb]\nuri = \"{URI}\"\n"));
    let file = file.to_str().expect("text");
    for (arguments, variables) in [
        (vec!["config", "--config", file], vec![]),
        (vec!["config", "--config", file, "--output", "json"], vec![]),
        (vec!["config"], vec![("LEASEHOLD_MONGODB__URI", URI)]),
        (vec!["config", "--mongodb-uri", URI], vec![]),
        (vec!["config", "--lease", URI], vec![]),
        (vec!["config", "--config", URI], vec![]),
        (vec!["config", "--identity", URI], vec![("POD_NAME", URI)]),
        (vec!["config"], vec![("POD_NAME", URI)]),
        (vec!["run", "--lease", "a", "--mongodb-url", URI], vec![]),
        (vec!["run", URI], vec![]),
        (vec!["run", "--mongodb-uri", URI, "--", URI], vec![]),
        (vec!["run", "--mongodb-uri-file", URI], vec![]),
        (vec!["status", "--output", URI], vec![]),
        (vec![URI], vec![]),
    ] {
        let answer = leasehold(&arguments, &variables);
        assert!(
            !answer.stdout.contains(PASSWORD),
            "{arguments:?}: {}",
            answer.stdout
        );
        assert!(
            !answer.stderr.contains(PASSWORD),
            "{arguments:?}: {}",
            answer.stderr
        );
    }
    for broken in BROKEN {
        let answer = leasehold(&["run", "--lease", "a", "--mongodb-uri", broken], &[]);
        assert_eq!(answer.code, 78, "{}", answer.stderr);
        assert!(!answer.stderr.contains(PASSWORD), "{}", answer.stderr);
    }
}
