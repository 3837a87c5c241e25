//! Goal: one report shows an operator all mistakes, each with its key, value, origin and the
//! accepted values.

use leasehold::config::Key;
use leasehold_testbed::assert_contains;

use crate::setup::{Files, REQUIRED, refusal, refused, required_and, sources};

#[test]
fn all_mistakes_of_all_layers_are_reported_at_once() {
    let files = Files::new();
    let file = files.write(
        "bad.toml",
        "[lease]\nname = \"-a\"\nrenew_dedline = \"5s\"\nhandoff_delay = 2\n\
         [gadgets]\non_lead = \"x\"\n[monogdb]\n[workload]\nends_first = \"yes\"\n",
    );
    let origin = file.display().to_string();
    let variables = [
        ("LEASEHOLD_HTTP__LISTEN", "x:80"),
        ("LEASEHOLD_LOG__COLOUR", "1"),
    ];
    let flags = [("mongodb.heartbeat", "100ms"), ("log.level", "INFO")];
    let refused = refusal(&sources(&[file], &variables, &flags));
    for expected in [
        "11 problems".to_owned(),
        format!("lease.name = \"-a\" ({origin}): expected 1 to 63 characters"),
        format!("lease.renew_dedline ({origin}): there is no such key; did you mean lease.renew_deadline?"),
        format!("lease.handoff_delay = 2 ({origin}): expected a duration with its unit: write \"2s\""),
        format!("[gadgets] ({origin}): there is no such section; the sections are lease, identity,"),
        format!("[monogdb] ({origin}): there is no such section; did you mean mongodb?"),
        format!("workload.ends_first = \"yes\" ({origin}): expected true or false"),
        "http.listen = \"x:80\" (environment variable LEASEHOLD_HTTP__LISTEN): expected an IP".to_owned(),
        "log.colour (environment variable LEASEHOLD_LOG__COLOUR): there is no such key".to_owned(),
        "mongodb.heartbeat = \"100ms\" (flag --mongodb-heartbeat): expected a duration between 500ms and 1h".to_owned(),
        "mongodb.uri_file or mongodb.uri: required".to_owned(),
        "log.level = \"INFO\" (flag --log-level): expected one of \"error\", \"warn\"".to_owned(),
    ] {
        assert!(refused.contains(&expected), "{expected}\nnot in\n{refused}");
    }
    // An invalid value is not also reported as missing.
    assert!(!refused.contains("lease.name: required"), "{refused}");
}

#[test]
fn missing_required_values_are_reported_together() {
    let refused = refusal(&sources(&[], &[], &[]));
    assert!(refused.contains("2 problems"), "{refused}");
    assert_contains(&refused, "lease.name: required; set --lease NAME");
    assert_contains(&refused, "mongodb.uri_file or mongodb.uri: required");
    let settings = sources(&[], &[], &[]).load().settings();
    assert!(
        settings.is_ok(),
        "nothing is required to show the configuration"
    );
}

#[test]
fn errors_about_conflicting_values_name_the_keys_and_their_origins() {
    let flags = required_and(&[
        ("lease.renew_deadline", "9s"),
        ("lease.renew_interval", "8s"),
    ]);
    let variables = [("LEASEHOLD_LEASE__LEASE_DURATION", "10s")];
    let expected = [
        "lease.renew_deadline = \"9s\" (flag --lease-renew-deadline)",
        "lease.renew_interval 8s",
        "2 × mongodb.operation_timeout 3s",
        "lease.lease_duration = \"10s\" (environment variable LEASEHOLD_LEASE__LEASE_DURATION)",
        "workload.loss_grace 3s",
    ];
    refused(&sources(&[], &variables, &flags), &expected);
}

#[test]
fn a_value_that_a_stronger_layer_overrides_is_checked_too() {
    let variables = [("LEASEHOLD_LEASE__NAME", "not legal")];
    let refused = refusal(&sources(&[], &variables, &REQUIRED));
    assert!(refused.contains("LEASEHOLD_LEASE__NAME"), "{refused}");
}

#[test]
fn a_syntax_error_names_file_and_line() {
    let files = Files::new();
    for (name, content, place) in [
        (
            "a.toml",
            "[lease]\nname = \"a\"\nname = = 1\n",
            "line 3, column 8",
        ),
        (
            "b.toml",
            "[lease]\nname = \"a\"\nname = \"b\"\n",
            "line 3, column 1: this is not TOML: duplicate key",
        ),
        (
            "c.yaml",
            "lease:\n  name: [a\n",
            "in the list that begins in line 2",
        ),
        ("f.yaml", "lease:\n  name: a\n  name: b\n", "duplicate key"),
        ("d.yaml", "- a\n- b\n", "a table of sections"),
        (
            "g.conf",
            "lease:\n  name: a\n",
            "; YAML files must be named .yaml or .yml",
        ),
        (
            "e.toml",
            "[lease]\nname = 99999999999999999999\n",
            "a table of sections",
        ),
    ] {
        let file = files.write(name, content);
        let refused = refusal(&sources(std::slice::from_ref(&file), &[], &[]));
        assert_contains(&refused, &format!("{}: ", file.display()));
        assert!(refused.contains(place), "{place}: {refused}");
        // Required values do not count as missing, because the unreadable file may contain them.
        assert!(!refused.contains("required"), "{refused}");
    }
}

#[test]
fn files_that_cannot_be_read_are_named_with_the_reason() {
    let files = Files::new();
    let absent = files.path().join("absent.toml");
    let binary = files.path().join("binary.toml");
    std::fs::write(&binary, [0xff, 0x00]).expect("written");
    let endless = "/dev/zero".into();
    let nested = files.write("nested.yaml", &"- ".repeat(20_000));
    let list = [absent, binary, files.path().to_owned(), endless, nested];
    let expected = [
        "absent.toml: there is no such file",
        "binary.toml: it is not UTF-8 text",
        "is a directory",
        "/dev/zero: it is not a regular file",
        "nested.yaml: it has a line longer than 4096 bytes",
    ];
    refused(&sources(&list, &[], &[]), &expected);
}

#[test]
fn values_of_another_type_are_refused_and_not_converted() {
    let files = Files::new();
    for (line, expected) in [
        ("lease = 1", "lease = 1"),
        ("[lease]\nname = true", "lease.name = true"),
        ("[lease]\nname = [\"a\"]", "lease.name = (a list)"),
        ("[lease.name]\nx = 1", "lease.name = (a table)"),
        ("[lease]\nlease_duration = 24", "write \"24s\""),
        ("[lease]\nlease_duration = 24.5", "write \"24.5s\""),
        ("[mongodb]\noperation_timeout = 0", "between 50ms and 1h"),
        (
            "[workload]\nends_first = 1",
            "true or false, without quotes",
        ),
    ] {
        let file = files.write("a.toml", line);
        let refused = refusal(&sources(&[file], &[], &REQUIRED[1..]));
        assert!(refused.contains(expected), "{expected}\nnot in\n{refused}");
    }
    let file = files.write("a.yaml", "lease:\n  name:\n");
    let refused = refusal(&sources(&[file], &[], &REQUIRED[1..]));
    assert!(refused.contains("lease.name = (nothing)"), "{refused}");
}

#[test]
fn a_report_about_thousands_of_mistakes_shows_twenty() {
    let files = Files::new();
    let lines: String = (0..3000).map(|n| format!("key{n} = 1\n")).collect();
    let file = files.write("a.toml", &format!("[lease]\n{lines}"));
    let refused = refusal(&sources(&[file], &[], &REQUIRED));
    assert!(refused.contains("3000 problems"), "{refused}");
    assert!(refused.ends_with("\n  and 2980 more"), "{refused}");
    assert_eq!(refused.lines().count(), 22);
}

/// YAML with nine aliases on each level. A parser that expands the aliases would create 9^levels
/// copies.
fn yaml_bomb(levels: u32) -> String {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..levels {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        text += &format!("a{level}: &a{level} [{aliases}]\n");
    }
    text
}

#[test]
fn a_small_file_that_would_expand_to_gigabytes_is_refused() {
    let files = Files::new();
    let file = files.write("bomb.yaml", &yaml_bomb(11));
    assert!(std::fs::metadata(&file).expect("written").len() < 700);
    // Limits the address space to the needs of a debug build. Expanding the aliases would need 2.5
    // GB more.
    let output = std::process::Command::new("prlimit")
        .args([
            "--as=700000000",
            env!("CARGO_BIN_EXE_leasehold"),
            "config",
            "--config",
        ])
        .arg(&file)
        .output()
        .expect("prlimit, of util-linux");
    let refused = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{refused}");
    assert_contains(&refused, "bomb.yaml: it has an alias in line 2");
}

#[test]
fn a_misspelt_variable_is_named_with_the_missing_key() {
    let misspelt = [
        ("LEASEHOLD_MONGDB__URI", "mongodb://localhost"),
        ("LEASEHOLD_OTHER__URI", "mongodb://localhost"),
        ("LEASEHOLD_MONGDB__PORT", "1"),
    ];
    let sources_of_misspelt = sources(&[], &misspelt, &REQUIRED[..2]);
    assert_contains(
        &refusal(&sources_of_misspelt),
        "LEASEHOLD_MONGDB__URI has no effect: write LEASEHOLD_MONGODB__URI",
    );
    assert_eq!(sources_of_misspelt.ignored_variables().len(), 3);
    let variables = [
        ("LEASEHOLD_MONGODB_URI", "mongodb://localhost"),
        ("LEASEHOLD_LOG_LEVEL", "debug"),
    ];
    let sources = sources(&[], &variables, &REQUIRED[..2]);
    let refused = refusal(&sources);
    assert_contains(
        &refused,
        "LEASEHOLD_MONGODB_URI has no effect: write LEASEHOLD_MONGODB__URI",
    );
    let ignored: Vec<_> = sources
        .ignored_variables()
        .into_iter()
        .map(|ignored| {
            (
                ignored.name,
                ignored.meant.map_or_else(String::new, Key::path),
            )
        })
        .collect();
    let expected = [
        ("LEASEHOLD_MONGODB_URI", "mongodb.uri"),
        ("LEASEHOLD_LOG_LEVEL", "log.level"),
    ]
    .map(|(name, meant)| (name.to_owned(), meant.to_owned()));
    assert_eq!(ignored, expected);
}

#[test]
fn a_connection_string_and_a_file_with_one_are_refused_together() {
    let flags = required_and(&[("mongodb.uri_file", "/etc/uri")]);
    refused(
        &sources(&[], &[], &flags),
        &[
            "mongodb.uri_file = \"/etc/uri\"",
            "mongodb.uri is set too (flag --mongodb-uri)",
        ],
    );
    assert!(sources(&[], &[], &flags).load().settings().is_err());
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_utf_8_is_refused() {
    use std::os::unix::ffi::OsStringExt;

    let mut sources = sources(&[], &[], &REQUIRED);
    let value = std::ffi::OsString::from_vec(vec![0xff]);
    sources
        .environment
        .push(("LEASEHOLD_LOG__LEVEL".into(), value));
    let refused = refusal(&sources);
    assert_contains(&refused, "LEASEHOLD_LOG__LEVEL): expected UTF-8 text");
}
