//! Goal: scripts can distinguish kinds of failure by exit code, and can parse the output.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use config::{File, FileFormat, Source};

use leasehold_testbed::assert_contains;

use crate::setup::{Files, URI, leasehold};

#[test]
fn help_and_version_exit_0() {
    for arguments in [
        &["--help"][..],
        &["-h"],
        &["run", "--help"],
        &["install", "--help"],
        &["help", "status"],
    ] {
        let answer = leasehold(arguments, &[]);
        assert_eq!(answer.code, 0, "{arguments:?}");
        assert!(answer.stdout.contains("Examples"), "{}", answer.stdout);
        assert_eq!(answer.stderr, "");
    }
    let version = leasehold(&["--version"], &[]);
    assert_eq!(version.code, 0);
    assert!(version.stdout.starts_with(concat!(
        "leasehold ",
        env!("CARGO_PKG_VERSION"),
        " (revision "
    )));
}

#[test]
fn an_error_is_written_in_one_piece() {
    let (read, written) = UnixDatagram::pair().expect("sockets");
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(["config", "--config", "/nonexistent/leasehold.toml"]);
    let status = command.env_clear().stderr(OwnedFd::from(written)).status();
    assert_eq!(status.expect("it starts").code(), Some(78));
    read.set_nonblocking(true).expect("a socket");
    // A datagram is one write.
    let mut datagram = [0; 65536];
    let length = read.recv(&mut datagram).expect("an error");
    let text = String::from_utf8_lossy(&datagram[..length]);
    assert!(
        text.starts_with("leasehold: ") && text.ends_with('\n'),
        "{text}"
    );
    assert!(read.recv(&mut datagram).is_err(), "a second write");
}

#[test]
fn a_wrong_command_line_exits_64() {
    for arguments in [
        &[][..],
        &["nonsense"],
        &["run", "--nonsense"],
        &["run", "--lease"],
        &["run", "--lease", "a", "--lease", "b"],
        &["status", "--lease", "a", "b"],
        &["config", "--output", "xml"],
        &["completions", "nonsense"],
        &["install"],
    ] {
        let answer = leasehold(arguments, &[]);
        assert_eq!(answer.code, 64, "{arguments:?}: {}", answer.stderr);
        assert_eq!(answer.stdout, "", "{arguments:?}");
        assert!(
            !answer.stderr.contains('\u{1b}'),
            "no color without a terminal"
        );
    }
}

#[test]
fn a_wrong_configuration_exits_78_with_everything_on_standard_error() {
    let files = Files::new();
    let file = files.write("a.toml", "[lease]\nnmae = \"a\"\n");
    let file = file.to_str().expect("text");
    for command in ["run", "config"] {
        let arguments = [
            command,
            "--config",
            file,
            "--log-level",
            "loud",
            "--lease-retry-interval=0",
        ];
        let answer = leasehold(&arguments, &[("LEASEHOLD_HTTP__LISTEN", "x")]);
        assert_eq!(answer.code, 78, "{}", answer.stderr);
        assert_eq!(answer.stdout, "");
        for expected in [
            "leasehold: configuration refused",
            "lease.nmae",
            "--log-level",
            "--lease-retry-interval",
            "LEASEHOLD_HTTP__LISTEN",
        ] {
            assert!(
                answer.stderr.contains(expected),
                "{expected}\nnot in\n{}",
                answer.stderr
            );
        }
    }
}

#[test]
fn an_absent_uri_file_exits_78_for_run_only() {
    let arguments = |command| {
        [
            command,
            "--lease",
            "a",
            "--mongodb-uri-file",
            "/nonexistent/uri",
        ]
    };
    let run = leasehold(&arguments("run"), &[]);
    assert_eq!(run.code, 78);
    assert!(
        run.stderr
            .contains("/nonexistent/uri: there is no such file; create it"),
        "{}",
        run.stderr
    );
    assert_eq!(leasehold(&arguments("config"), &[]).code, 0);
}

#[test]
fn the_effective_configuration_is_valid_toml_with_origins() {
    let files = Files::new();
    let file = files.write(
        "a.toml",
        "[identity]\nname = \"a \\\"quoted\\\" \\\\ name\"\n",
    );
    let path = file.to_str().expect("text");
    let variables = [
        ("LEASEHOLD_LEASE__RENEW_INTERVAL", "2s"),
        ("LEASEHOLD_MONGODB__URI", URI),
    ];
    let arguments = [
        "config",
        "--config",
        path,
        "--lease",
        "orders",
        "--workload-ends-first",
    ];
    let answer = leasehold(&arguments, &variables);
    assert_eq!(answer.code, 0, "{}", answer.stderr);
    for line in [
        "[lease]",
        "name = \"orders\" # flag --lease",
        "renew_interval = \"2s\" # environment variable LEASEHOLD_LEASE__RENEW_INTERVAL",
        "renew_deadline = \"18s\"",
        "# uri = \"***\" # environment variable LEASEHOLD_MONGODB__URI",
        "ends_first = true # flag --workload-ends-first",
        &format!("name = \"a \\\"quoted\\\" \\\\ name\" # {path}"),
    ] {
        assert!(
            answer.stdout.lines().any(|l| l == line),
            "{line}\nnot in\n{}",
            answer.stdout
        );
    }
    let directory = answer
        .stdout
        .lines()
        .find(|line| line.starts_with("directory"));
    let directory = directory.expect("the status directory");
    assert!(
        directory.starts_with("directory = \"\" # default: /") && directory.ends_with("/orders"),
        "{directory}"
    );
    let read = File::from_str(&answer.stdout, FileFormat::Toml)
        .collect()
        .expect("valid TOML");
    let identity = read["identity"].clone().into_table().expect("a section");
    assert_eq!(identity["name"].to_string(), "a \"quoted\" \\ name");
}

#[test]
fn the_effective_configuration_is_a_valid_configuration_file() {
    let files = Files::new();
    let variables = [("LEASEHOLD_MONGODB__URI", URI)];
    let first = leasehold(
        &["config", "--lease", "orders", "--http-listen", ""],
        &variables,
    );
    assert!(
        first.stdout.contains("\n# name = \""),
        "the id of a process: {}",
        first.stdout
    );
    let file = files.write("effective.toml", &first.stdout);
    let arguments = [
        "config",
        "--config",
        file.to_str().expect("text"),
        "-o",
        "json",
    ];
    let json =
        |answer: &str| serde_json::from_str::<serde_json::Value>(answer).expect("valid JSON");
    let second = leasehold(&arguments, &variables);
    assert_eq!(second.code, 0, "{}", second.stderr);
    assert_eq!(json(&second.stdout)["lease.name"]["value"], "orders");
    assert_eq!(json(&second.stdout)["mongodb.uri"]["value"], "***");
    let without = leasehold(&arguments, &[]);
    assert_eq!(json(&without.stdout)["mongodb.uri"]["value"], "");
}

#[test]
fn a_single_value_can_be_printed() {
    let ask = |key| {
        leasehold(
            &["config", "--lease", "orders", key],
            &[("LEASEHOLD_MONGODB__URI", URI)],
        )
    };
    assert_eq!(ask("lease.name").stdout, "orders\n");
    assert_eq!(ask("lease.renew_deadline").stdout, "18s\n");
    assert_eq!(ask("mongodb.uri").stdout, "***\n");
    let unknown = ask("lease.renew_dedline");
    assert_eq!(unknown.code, 64, "{}", unknown.stderr);
    assert!(
        unknown
            .stderr
            .contains("did you mean lease.renew_deadline?"),
        "{}",
        unknown.stderr
    );
}

#[test]
fn a_low_limit_of_open_files_is_reported_before_anything_fails() {
    for limit in [8, 24, 63] {
        for command in ["run --lease x --http-listen ''", "lock x -n"] {
            let script = format!(
                "ulimit -n {limit}; exec {} {command} --mongodb-uri mongodb://127.0.0.1:1/",
                env!("CARGO_BIN_EXE_leasehold")
            );
            let script = if command.starts_with("lock") {
                script + " -- true"
            } else {
                script
            };
            let output = std::process::Command::new("/bin/sh")
                .args(["-c", &script])
                .output();
            let output = output.expect("the command starts");
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(78), "{limit}: {text}");
            assert_contains(&text, &format!("limit on open files is {limit}:"));
        }
    }
}

#[test]
fn the_effective_configuration_can_be_printed_as_json_with_sources() {
    let answer = leasehold(
        &["config", "--output", "json", "--lease", "orders"],
        &[("LEASEHOLD_MONGODB__URI", URI)],
    );
    assert_eq!(answer.code, 0, "{}", answer.stderr);
    let json: serde_json::Value = serde_json::from_str(&answer.stdout).expect("valid JSON");
    assert_eq!(json["lease.name"]["value"], "orders");
    assert_eq!(json["lease.name"]["source"], "flag --lease");
    assert_eq!(json["mongodb.uri"]["value"], "***");
    assert_eq!(json["workload.ends_first"]["value"], false);
    let keys = json.as_object().expect("an object").len();
    assert_eq!(keys, leasehold::config::KEYS.len());
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let answer = leasehold(&["completions", shell], &[]);
        assert_eq!(answer.code, 0, "{shell}");
        assert!(answer.stdout.contains("lease-renew-deadline"), "{shell}");
    }
    let script = leasehold(&["completions", "bash"], &[]).stdout;
    let place = tempfile::tempdir().expect("a directory");
    std::fs::create_dir_all(place.path().join("leasehold/zz-orders")).expect("created");
    let completed = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        let script = format!(
            "{script}\nCOMP_WORDS=({line}''); COMP_CWORD={}; _leasehold leasehold {:?} {:?}; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            words.len() - 1,
            words.last().expect("a word"),
            words.iter().rev().nth(1).expect("a word"),
        );
        // The script exceeds the maximum length of an argument.
        let file = place.path().join("completed");
        std::fs::write(&file, script).expect("written");
        let output = std::process::Command::new("bash")
            .arg(file)
            .env("XDG_RUNTIME_DIR", place.path())
            .output();
        String::from_utf8(output.expect("bash").stdout).expect("text")
    };
    let levels = completed("leasehold run --log-level ");
    assert_eq!(levels, "error\nwarn\ninfo\ndebug\ntrace\n");
    // No file names are suggested where a candidate is expected.
    assert_eq!(completed("leasehold transfer a --to ").trim(), "");
    let locks = place.path().join("leasehold/.locks");
    std::fs::create_dir(&locks).expect("created");
    std::fs::write(locks.join("zz-report@0123456789abcdef"), "").expect("written");
    for (line, names) in [
        ("leasehold status zz", "zz-orders\n"),
        ("leasehold leases retire zz", "zz-orders\n"),
        ("leasehold run --lease zz", "zz-orders\n"),
        ("leasehold pause --no-wait --lease zz", "zz-orders\n"),
        ("leasehold lock zz", "zz-report\n"),
        ("leasehold lock -n --lock zz", "zz-report\n"),
        ("leasehold locks break zz", "zz-report\n"),
        ("leasehold describe zz", "zz-orders\nzz-report\n"),
    ] {
        assert_eq!(completed(line), names, "{line}");
    }
    let names = completed("leasehold describe ");
    assert!(!names.contains(".locks"), "{names}");
    let keys = completed("leasehold config ");
    assert!(
        keys.starts_with("lease.name\n") && !keys.contains('-'),
        "{keys}"
    );
    let keys = completed("leasehold config lease.renew_");
    assert_eq!(keys, "lease.renew_deadline\nlease.renew_interval\n");
    let after = completed("leasehold run -- ");
    assert!(
        !after.contains("--lease") && after.contains("cat"),
        "commands: {after}"
    );
    let script = leasehold(&["completions", "zsh"], &[]).stdout;
    for (start, kind) in [
        ("'::name -- Name of the lease:", "leases"),
        ("'::name -- Name of the lock:", "locks"),
        ("'::name -- Name of the lease or lock:", "documents"),
        ("'--lease=[", "leases"),
        ("'--lock=[", "locks"),
    ] {
        let function = format!(":_leasehold_{kind}' \\");
        let completed = script.lines().filter(|line| line.starts_with(start));
        let completed: Vec<_> = completed.map(|line| line.ends_with(&function)).collect();
        assert!(
            !completed.is_empty() && !completed.contains(&false),
            "{start}"
        );
    }
    let script = leasehold(&["completions", "fish"], &[]).stdout;
    for line in [
        "status check step-down transfer pause resume cancel repair describe\" -f -a \"(__fish_leasehold_leases)\"",
        "using_subcommand config\" -f -a \"lease.name ",
    ] {
        assert!(script.contains(line), "{line}: {script}");
    }
}
