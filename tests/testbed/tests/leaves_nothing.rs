//! Goal: verify that the suite's runner detects leftovers of a test. Method: use the runner to run
//! small scripts that leave something behind.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs `script` with `leaves-nothing` in a new checkout and a new home.
fn run(script: &str) -> Output {
    let place = tempfile::tempdir().expect("a directory");
    let mut command = in_place(&place, script);
    command.output().expect("the command starts")
}

fn in_place(place: &tempfile::TempDir, script: &str) -> Command {
    let checkout = place.path().join("checkout");
    let home = place.path().join("home");
    for directory in [&checkout, &home] {
        std::fs::create_dir(directory).expect("a directory");
    }
    let git = Command::new("git")
        .args(["init", "-q"])
        .arg(&checkout)
        .status();
    assert!(git.expect("git runs").success());
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("leaves-nothing"));
    command
        .args(["sh", "-c", script])
        .current_dir(&checkout)
        .env("HOME", &home)
        // From the surrounding suite, XDG_CACHE_HOME would select another cache, and CI would turn new
        // entries into failures.
        .env_remove("XDG_CACHE_HOME")
        .env_remove("CI")
        .env("LEAVES_NOTHING_WATCHES", &home);
    command
}

/// Returns true if this user may mount, as the checks of shared directories require.
fn may_mount() -> bool {
    let isolated = Command::new("unshare").args(["-m", "true"]).output();
    let may = isolated.is_ok_and(|output| output.status.success());
    if !may {
        leasehold_testbed::skip("needs root, to mount");
    }
    may
}

fn strays(script: &str) -> String {
    let output = run(script);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_command_that_cleans_up_passes() {
    let output = run("touch \"$TMPDIR/a\"; rm \"$TMPDIR/a\"");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn the_code_of_the_command_is_handed_on() {
    assert_eq!(run("exit 7").status.code(), Some(7));
}

#[test]
fn a_file_in_the_checkout_is_named() {
    assert!(strays("touch sh.stray").contains("sh.stray"));
    assert!(strays("echo '*.log' >.git/info/exclude; touch a.log").contains("a.log"));
}

#[test]
fn a_temporary_file_is_named_and_removed() {
    let output = run("touch \"$TMPDIR/forgotten\"; echo \"$TMPDIR\"");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("forgotten"));
    let place = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(!Path::new(&place).exists(), "{place} stays");
}

#[test]
fn a_temporary_file_of_leasehold_in_a_watched_directory_is_listed() {
    let place = tempfile::tempdir().expect("a directory");
    let mut command = in_place(&place, "touch \"$TMPDIR/leasehold-ports\"");
    command
        .env("TMPDIR", place.path())
        .env("LEAVES_NOTHING_WATCHES", place.path());
    let output = command.output().expect("the command starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let listed = String::from_utf8_lossy(&output.stderr);
    assert!(listed.contains("leasehold-ports (listed only)"), "{listed}");
}

#[test]
fn an_entry_in_the_home_is_named() {
    assert!(strays("touch ~/.leasehold-history").contains("in the home: .leasehold-history"));
    let below = strays("mkdir -p ~/.local/share/x && touch ~/.local/share/x/y");
    assert!(below.contains("in the home: .local/share/x/y"), "{below}");
}

#[test]
fn an_entry_in_the_real_home_is_named() {
    if !may_mount() {
        return;
    }
    for name in ["leasehold-history", "history"] {
        let script = format!("touch \"$(dirname \"$XDG_CACHE_HOME\")/{name}\"");
        assert!(strays(&script).contains(&format!("home/{name}")), "{name}");
    }
}

#[test]
fn an_entry_of_leasehold_in_a_shared_folder_is_named() {
    if !may_mount() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let script = "cd \"$(dirname \"$XDG_CACHE_HOME\")/lock\" && touch leasehold.pid other.pid";
    let mut command = in_place(&place, script);
    std::fs::create_dir(place.path().join("home/lock")).expect("a directory");
    let output = command.output().expect("the command starts");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let named = String::from_utf8_lossy(&output.stderr);
    assert!(named.contains("home/lock/leasehold.pid"), "{named}");
    // Any program may have created other.pid.
    assert!(!named.contains("other.pid"), "{named}");
}

#[test]
fn a_cache_of_another_program_is_listed() {
    if !may_mount() {
        return;
    }
    let output = run("mkdir -p \"$XDG_CACHE_HOME/font\"");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let named = String::from_utf8_lossy(&output.stderr);
    assert!(named.contains("nothing was left behind"), "{named}");
}

fn alongside_another_program(setting: impl FnOnce(&mut Command)) -> Output {
    let place = tempfile::tempdir().expect("a directory");
    let mut command = in_place(&place, "echo started; read line");
    setting(&mut command);
    let mut command = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut started = [0; 8];
    let output = command.stdout.as_mut().expect("its output");
    output.read_exact(&mut started).expect("the script starts");
    std::fs::write(place.path().join("home/leasehold-of-another"), "").expect("a file");
    drop(command.stdin.take());
    command.wait_with_output().expect("the command ends")
}

#[test]
fn an_entry_of_another_program_is_not_a_leftover() {
    let output = alongside_another_program(|_| ());
    let named = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(1),
        "read fails at the end: {named}"
    );
    assert!(named.contains("nothing was left behind"), "{named}");
}

#[test]
fn an_ordinary_user_sees_entries_of_all_programs_listed() {
    // This user may not be allowed to mount.
    let output = alongside_another_program(|command| {
        let script = command.get_program().to_owned();
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let directory = command.get_current_dir().map(ToOwned::to_owned);
        let settings: Vec<_> = command
            .get_envs()
            .map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)))
            .collect();
        *command = Command::new("setpriv");
        command
            .arg("--bounding-set=-sys_admin")
            .arg(script)
            .args(arguments);
        command.current_dir(directory.expect("the directory is set"));
        for (name, value) in settings {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
    });
    let named = String::from_utf8_lossy(&output.stderr);
    assert!(
        named.contains("leasehold-of-another (listed only)"),
        "{named}"
    );
    assert!(named.contains("nothing was left behind"), "{named}");
}

#[test]
fn entries_of_leasehold_are_hidden_as_on_a_new_machine() {
    if !may_mount() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let mut command = in_place(&place, "ls \"$(dirname \"$XDG_CACHE_HOME\")\"");
    for name in ["leasehold", "other"] {
        std::fs::create_dir(place.path().join("home").join(name)).expect("a directory");
    }
    let output = command.output().expect("the command starts");
    let listing = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(listing, "other\n", "{output:?}");
}

#[test]
fn a_process_that_goes_on_is_named_and_ended() {
    // The script prints the process id, so that the test can verify that the process has ended.
    let script = "sleep 1000 & echo $!";
    let output = run(script);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let named = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(named.contains("sleep 1000"), "{named}");
    let id = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(!Path::new("/proc").join(&id).exists(), "{id} goes on");
}

#[test]
fn a_terminated_run_leaves_nothing() {
    let place = tempfile::tempdir().expect("a directory");
    // The background process is a child of the script, and has a child of its own.
    let script = "sh -c 'sleep 1000 & wait' & echo \"$TMPDIR\"; sleep 1000";
    let mut command = in_place(&place, script);
    let mut command = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut temporary = String::new();
    let mut output = BufReader::new(command.stdout.take().expect("its output"));
    output.read_line(&mut temporary).expect("the script starts");
    let id = command.id().to_string();
    let signalled = Command::new("kill").args(["-TERM", &id]).status();
    assert!(signalled.expect("kill runs").success());
    let ended = command.wait_with_output().expect("the command ends");
    let named = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(128 + 15), "{named}");
    assert!(!Path::new(temporary.trim()).exists(), "{temporary} stays");
    // Reading ends because no surviving process holds the pipe.
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("the end");
}
