//! Situations in which a port or a directory of this machine is unavailable.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::parts::Parts;
use crate::situation::{Ending, Situation};

/// Returns a wrapper command without the capabilities that let root bypass permissions. Returns an
/// empty list if this user is not root.
pub(crate) fn without_privileges() -> Vec<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let without = "--bounding-set=-dac_override,-dac_read_search,-net_bind_service";
    vec!["setpriv", without, "--"]
}

/// Runs a program in a mount namespace in which a full file system is mounted on the first
/// argument.
const ON_A_FULL_DISK: &str = r#"
directory="$1"; shift
mount -t tmpfs -o size=4k,nr_inodes=1 full "$directory" && exec "$@"
"#;

pub(crate) fn situations(parts: &Parts) -> Vec<Situation> {
    let mut table = addresses(parts);
    table.extend(directories(parts));
    table.extend(traces(parts));
    table
}

/// leasehold must refuse to append a trace to a symbolic link or a pipe.
fn traces(parts: &Parts) -> [Situation; 2] {
    let uri = parts.open.uri();
    let run = |name: &'static str, make: &dyn Fn(&Path)| {
        let situation = Situation::run(name, &uri, "a").exits(78);
        let path = situation.path("trace");
        make(&path);
        situation
            .says(&format!("LEASEHOLD_TRACE: cannot open {path:?}: it is "))
            .env(&[("LEASEHOLD_TRACE".to_owned(), path.into())])
    };
    let link = |path: &Path| symlink("/etc/hostname", path).unwrap();
    let pipe = |path: &Path| {
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, path, mode).unwrap();
        // Without a reader, opening the pipe for writing would fail.
        let reader = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
        let reader = rustix::fs::open(path, reader, rustix::fs::Mode::empty()).unwrap();
        READERS.lock().unwrap().push(reader);
    };
    [
        run("link in place of the trace", &link).says("it is a symbolic link"),
        run("pipe in place of the trace", &pipe).says("it is not a regular file"),
    ]
}

/// The pipes' read ends, which stay open until the test exits.
static READERS: Mutex<Vec<rustix::fd::OwnedFd>> = Mutex::new(Vec::new());

fn addresses(parts: &Parts) -> Vec<Situation> {
    let uri = parts.open.uri();
    let run = |name: &'static str, address: &str| {
        let situation = Situation::run(name, &uri, "a").exits(78);
        situation.flag(&format!("--http-listen={address}"))
    };
    // Keeps the port taken until the test exits.
    static TAKEN: Mutex<Vec<TcpListener>> = Mutex::new(Vec::new());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    TAKEN.lock().unwrap().push(listener);
    let me = std::process::id();
    vec![
        run("port taken", &taken)
            .says(&format!("cannot listen on {taken}: process {me} ("))
            .says("listens there; to fix: set http.listen to a free address"),
        run("privileged port", "127.0.0.1:80")
            .by(&without_privileges())
            .says("cannot listen on 127.0.0.1:80: permission denied; to fix: give this process CAP_NET_BIND_SERVICE, or set http.listen to a port above 1023"),
        run("address of another machine", "192.0.2.1:9402")
            .says("cannot listen on 192.0.2.1:9402: it is not an address of this machine"),
        run("invalid address", "nonsense").says("http.listen"),
    ]
}

fn directories(parts: &Parts) -> Vec<Situation> {
    let uri = parts.open.uri();
    let run = |name: &'static str, make: &dyn Fn(&Path)| {
        let situation = Situation::run(name, &uri, "a").exits(78);
        let path = situation.path("status");
        make(&path);
        situation.says(&path.display().to_string())
    };
    let mode = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let below = |name: &'static str, parent: u32| {
        let situation = Situation::run(name, &uri, "a").exits(78);
        let directory = situation.path("parent");
        fs::create_dir(&directory).unwrap();
        mode(&directory, parent);
        let directory = directory.join("status").display().to_string();
        situation
            .flag(&format!("--status-directory={directory}"))
            .by(&without_privileges())
            .says(&format!("cannot create status directory {directory}: permission denied; to fix: set status.directory"))
    };
    let (second, by) = locked(run("directory of another daemon", &|_| {}), "daemon");
    let second = second
        .says(&format!(" is used by {by}"))
        .says("; to fix: stop that process");
    let (claim, by) = locked(run("claim locked by another program", &|_| {}), "claim");
    let quick = [
        "--lease-duration=3s",
        "--lease-renew-deadline=2s",
        "--lease-renew-interval=300ms",
        "--lease-retry-interval=200ms",
        "--mongodb-operation-timeout=500ms",
        "--workload-loss-grace=200ms",
    ];
    let claim = quick.iter().fold(claim, |claim, flag| claim.flag(flag));
    let claim = claim
        .says("waiting for another program to unlock the claim file of the status directory")
        .says("the claim file of status directory ")
        .says(&format!(" is locked by {by}"));
    let full = run("full disk", &|path| fs::create_dir(path).unwrap());
    let disk = full.path("status").display().to_string();
    let full = full
        .by(&[
            "unshare",
            "--mount",
            "sh",
            "-c",
            ON_A_FULL_DISK,
            "sh",
            &disk,
        ])
        .says("cannot write ")
        .says(&format!(
            " in status directory {disk}: no storage space; to fix: make room there"
        ));
    let planted = |name: &'static str, file: &'static str, plant: &dyn Fn(&Path), what: &str| {
        let make = |path: &Path| {
            fs::create_dir(path).unwrap();
            plant(&path.join(file));
        };
        run(name, &make)
            .says(&format!("cannot write {file} in status directory "))
            .says(&format!(": it is {what}; to fix: remove it"))
    };
    let link = |path: &Path| symlink("/dev/null", path).unwrap();
    let subdirectory = |path: &Path| fs::create_dir(path).unwrap();
    vec![
        planted(
            "link in place of the claim",
            "claim",
            &link,
            "a symbolic link",
        ),
        planted(
            "directory in place of the lock",
            "daemon",
            &subdirectory,
            "a directory",
        ),
        planted(
            "directory in place of the probe",
            ".probe",
            &subdirectory,
            "a directory",
        ),
        run("file in place of the directory", &|path| {
            fs::write(path, "").unwrap()
        })
        .says("cannot create status directory"),
        run("directory read-only", &|path| {
            fs::create_dir(path).unwrap();
            mode(path, 0o555);
        })
        .by(&without_privileges())
        .says("permission denied; to fix: let this user create files there"),
        below("parent without write permission", 0o555),
        below("parent without search permission", 0o000),
        second,
        claim,
        full,
    ]
}

/// Starts flock(1), which locks one of the situation's files until the test ends. Returns the name
/// of the flock(1) process, which the error must contain.
fn locked(situation: Situation, file: &str) -> (Situation, String) {
    let directory = situation.path("status");
    fs::create_dir(&directory).unwrap();
    let path = directory.join(file);
    let mut child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", "flock", "--no-fork"])
        .arg(&path)
        .args(["sh", "-c", "echo locked; exec sleep 600"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 1];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
    let by = format!("process {} (", child.id());
    (situation.keeps(Ending(child)), by)
}
