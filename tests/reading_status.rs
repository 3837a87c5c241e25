//! Goal: a user who copies a program from docs/reading-status.md never acts on an expired status
//! file. Method: runs each program from the page on the directories of a leader and of a follower,
//! and on directories that are absent or contain a stale or torn file, or a file from another boot.

#![allow(clippy::unwrap_used, reason = "a failing fixture should fail the test")]
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use leasehold::cli::status::look;
use leasehold::clock;
use leasehold::election::{
    Authority, HolderView, Identity, ResourceName, Role, Session, Status, Token,
};
use leasehold::publish::render::{ClockPair, Identification, StatusDocument};
use leasehold_testbed::documented::{code_block, go_program};
use leasehold_testbed::without_boot_id;

fn render(status: &Status, who: &Identification, clocks: ClockPair) -> (String, String) {
    let document = StatusDocument::new(status, who, clocks);
    (document.to_json(), document.to_env())
}

/// Returns the code block in this language from the page's section on files.
fn block(language: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reading-status.md");
    let page = fs::read_to_string(page).unwrap();
    let (files, _) = page.split_once("\n## Being notified\n").unwrap();
    code_block(files, language)
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");

struct Case {
    name: &'static str,
    directory: PathBuf,
    /// Expected exit code of `leasehold status`. The page's programs exit with 1 instead of 2.
    exit_code: u8,
}

fn cases(place: &Path) -> Vec<Case> {
    let who = |boot_id: Option<String>| Identification {
        lease: ResourceName::new("orders").unwrap(),
        // The shell must preserve the quotes and must not run the command.
        identity: Identity::new("it's $(exit 3) \"me\"").unwrap(),
        boot_id,
    };
    let now = ClockPair::now();
    let hour = Duration::from_secs(3600);
    let token = Token::new(7).unwrap();
    let until = now.boot + hour;
    let leader = Status {
        role: Role::Leader,
        authority: Some(Authority {
            token,
            valid_until: until,
        }),
        holder: Some(HolderView {
            identity: who(None).identity,
            token,
            until,
            unconfirmed: false,
        }),
        ..Status::initial(Session::from_bytes([1; 16]), now.boot)
    };
    let stale = Status {
        authority: Some(Authority {
            token,
            valid_until: now.boot,
        }),
        ..leader.clone()
    };
    let follower = Status {
        role: Role::Follower,
        authority: None,
        ..leader.clone()
    };
    // The frozen daemon wrote its file before the deadline, and the test reads the file after the
    // deadline.
    let before = ClockPair {
        boot: now.boot - Duration::from_secs(5),
        ..now
    };
    // No time namespace has this inode.
    let elsewhere = ClockPair {
        time_namespace: Some(1),
        ..now
    };
    let ours = clock::boot_id().unwrap();
    let other = Some("00000000-0000-0000-0000-000000000000".to_owned());
    let mut rendered = vec![
        ("leading", 0, render(&leader, &who(ours.clone()), now)),
        (
            "leading, boot not readable",
            0,
            render(&leader, &who(None), now),
        ),
        ("stale", 1, render(&stale, &who(ours.clone()), before)),
        ("another boot", 2, render(&leader, &who(other), now)),
        ("following", 1, render(&follower, &who(ours), now)),
        ("empty files", 2, (String::new(), String::new())),
    ];
    // Kernels before 5.6 have no time namespaces.
    if fs::exists("/proc/self/ns/time").unwrap() {
        let elsewhere = render(&leader, &who(clock::boot_id().unwrap()), elsewhere);
        rendered.push(("another time namespace", 2, elsewhere));
    }
    let absent = Case {
        name: "absent",
        directory: place.join("absent"),
        exit_code: 2,
    };
    let written = rendered.into_iter().map(|(name, exit_code, (json, env))| {
        let directory = place.join(name);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("status.json"), json).unwrap();
        fs::write(directory.join("status.env"), env).unwrap();
        Case {
            name,
            directory,
            exit_code,
        }
    });
    written.chain([absent]).collect()
}

/// Asserts that a program trusts the status of a valid leader, and no other status.
fn answers_right(program: &[&str]) {
    let place = tempfile::tempdir().unwrap();
    let cases = cases(place.path());
    let leading = [program, &[cases[0].directory.to_str().unwrap()]].concat();
    if let Some(output) = without_boot_id(&leading) {
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
    for case in cases {
        let output = Command::new(program[0])
            .args(&program[1..])
            .arg(&case.directory)
            .output()
            .unwrap();
        let (expected, says) = match case.exit_code {
            0 => (0, "leader, token 7\n"),
            _ => (1, ""),
        };
        let context = format!("{}: {output:?}", case.name);
        assert_eq!(output.status.code(), Some(expected), "{context}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), says, "{context}");
        assert!(output.stderr.is_empty(), "{context}");
    }
}

#[test]
fn the_shell_program_trusts_only_the_valid_leader() {
    let place = tempfile::tempdir().unwrap();
    let script = place.path().join("leads.sh");
    fs::write(&script, block("sh")).unwrap();
    answers_right(&["sh", script.to_str().unwrap()]);
}

#[test]
fn the_python_program_trusts_only_the_valid_leader() {
    let place = tempfile::tempdir().unwrap();
    let script = place.path().join("leads.py");
    fs::write(&script, block("python")).unwrap();
    answers_right(&["python3", script.to_str().unwrap()]);
}

#[test]
fn the_go_program_trusts_only_the_valid_leader() {
    let place = tempfile::tempdir().unwrap();
    if let Some(program) = go_program(&block("go"), place.path()) {
        answers_right(&[program.to_str().unwrap()]);
    }
}

#[test]
fn the_rust_program_trusts_only_the_valid_leader() {
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("leads.rs");
    let program = place.path().join("leads");
    fs::write(&source, block("rust")).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let built = Command::new(rustc)
        .args(["--edition", "2024", "-D", "warnings", "-o"])
        .args([&program, &source])
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
    answers_right(&[program.to_str().unwrap()]);
}

#[test]
fn leasehold_status_trusts_only_the_valid_leader() {
    let place = tempfile::tempdir().unwrap();
    let leading = cases(place.path()).remove(0).directory;
    let asked = ["status", "--directory", leading.to_str().unwrap()];
    if let Some(output) = without_boot_id(&[&[PROGRAM], &asked[..]].concat()) {
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let answer = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(answer.contains("cannot read /proc/sys/"), "{answer}");
    }
    let place = tempfile::tempdir().unwrap();
    for case in cases(place.path()) {
        let judgement = look(&case.directory, Some("orders"));
        let code = judgement.verdict.exit_code();
        assert_eq!(code, case.exit_code, "{}: {:?}", case.name, judgement.why);
    }
}

/// Without the boot id, readers could not detect a status file from before a reboot.
#[test]
fn a_daemon_that_cannot_read_the_boot_id_does_not_start() {
    let place = tempfile::tempdir().unwrap();
    let directory = format!("--status-directory={}", place.path().join("d").display());
    let run = "timeout 30 \"$0\" run --lease=orders --identity=a --mongodb-uri=mongodb://127.0.0.1:1/ --http-listen= \"$1\"";
    if let Some(output) = without_boot_id(&["sh", "-c", run, PROGRAM, &directory]) {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("cannot identify the boot"), "{said}");
    }
}
