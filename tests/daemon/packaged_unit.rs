//! Goal: the unit of the packages releases the lease of a killed daemon, so that another host leads
//! before the lease expires, and restarts the daemon; the documented unit and drop-in do too.
//! Method: a real systemd runs the unchanged unit as the packages install it, and sends the signals.
//! Other candidates run outside of this systemd.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use leasehold_testbed::documented::code_block;
use leasehold_testbed::process::write_program;
use leasehold_testbed::{Daemon, DaemonBuilder, StoredLease, Systemd, assert_contains, skip};
use serde_json::Value;

use crate::bury::NEVER_EXPIRES;
use crate::contest::{Contest, LONG, PROGRAM, eventually};

/// The identity of the unit's daemon.
const UNIT: &str = "unit";
/// Only the environment of the unit names this collection.
const COLLECTION: &str = "of_the_unit";
const SYSUSERS: &str = "/usr/lib/sysusers.d/leasehold.conf";
const CONFIGURATION: &str = "/etc/leasehold/leasehold.toml";
/// The files of the package, and where the packages install them.
const INSTALLED: [(&str, &str); 3] = [
    (
        "packaging/systemd/leasehold@.service",
        "/usr/lib/systemd/system/leasehold@.service",
    ),
    ("packaging/systemd/leasehold.sysusers.conf", SYSUSERS),
    ("packaging/leasehold.toml", CONFIGURATION),
];

/// A unit in a booted systemd, whose daemon contends for a lease that does not expire.
struct Unit {
    systemd: Systemd,
    contest: Contest,
    lease: &'static str,
    name: String,
    directory: String,
}

impl Unit {
    /// Installs the package, and configures its instance for `lease`. Returns `None` and prints a
    /// message if this user may not boot a systemd.
    async fn of_the_packages(lease: &'static str) -> Option<Self> {
        let unit = Self::boot(lease, &format!("leasehold@{lease}.service")).await?;
        let environment = format!("/etc/leasehold/{lease}.env");
        unit.systemd
            .write(&environment, 0o644, settings().join("\n"));
        Some(unit)
    }

    async fn boot(lease: &'static str, name: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("needs root, to boot a systemd");
            return None;
        }
        let systemd = Systemd::boot(Path::new(PROGRAM)).await;
        let systemd = systemd.unwrap_or_else(|failure| panic!("{failure}"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR"));
        let manifest = fs::read_to_string(source.join("Cargo.toml")).unwrap();
        for (file, place) in INSTALLED {
            let asset = format!(r#"{{ source = "{file}", dest = "{place}", mode = "644""#);
            assert_contains(&manifest, &asset);
            systemd.write(place, 0o644, fs::read(source.join(file)).unwrap());
        }
        systemd.run(&["systemd-sysusers", SYSUSERS]);
        systemd.systemctl(&["daemon-reload"]);
        let contest = Contest::new(lease).await;
        systemd.write("/etc/leasehold/mongodb-uri", 0o600, contest.set().uri());
        Some(Self {
            systemd,
            contest,
            lease,
            name: name.to_owned(),
            directory: format!("/run/leasehold/{lease}"),
        })
    }

    /// Builds a candidate on another host.
    fn candidate(&self, identity: &str) -> DaemonBuilder {
        let candidate = self.contest.candidate_at(identity, NEVER_EXPIRES);
        candidate.flag(&format!("--mongodb-collection={COLLECTION}"))
    }

    fn stored(&self) -> StoredLease {
        let client = self.contest.set().client();
        StoredLease::new(&client, "leasehold", COLLECTION, self.lease)
    }

    fn property(&self, property: &str) -> String {
        self.systemd.property(&self.name, property)
    }

    fn status(&self) -> Option<Value> {
        let path = format!("{}/status.json", self.directory);
        let text = fs::read_to_string(self.systemd.path(&path)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Starts the unit. systemd waits until the daemon is ready.
    async fn start(&self) {
        self.systemd.systemctl(&["start", &self.name]);
        self.wait_leads_with(1).await;
    }

    async fn wait_leads_with(&self, token: i64) {
        self.wait("leads", |status| {
            status["role"] == "leader" && status["token"] == token
        })
        .await;
    }

    async fn wait(&self, what: &str, condition: impl Fn(&Value) -> bool) {
        eventually(&format!("the unit {what}"), async || {
            self.status().is_some_and(|status| condition(&status))
        })
        .await;
    }

    fn signal(&self, signal: &str) {
        let signal = format!("--signal={signal}");
        let command = ["kill", "--kill-whom=main", &signal, &self.name];
        self.systemd.systemctl(&command);
    }

    /// Kills the daemon, and waits until `standby` leads and the restarted daemon follows it.
    async fn fail_over_to(&self, standby: &Daemon) {
        self.signal("KILL");
        standby.wait_leads_with(2, LONG).await;
        let history = self.stored().history().await;
        assert_eq!(history[0].get_str("identity").unwrap(), UNIT);
        let released = format!("released lease {} (token 1)", self.lease);
        eventually("the command reports the release", async || {
            self.systemd.journal().contains(&released)
        })
        .await;
        eventually("systemd restarts the daemon", async || {
            self.property("NRestarts") == "1" && self.property("ActiveState") == "active"
        })
        .await;
        self.wait("follows", |status| {
            status["role"] == "follower" && status["holder"]["identity"] == standby.identity()
        })
        .await;
    }
}

/// Returns the environment of the unit's daemon and of `bury`.
fn settings() -> Vec<String> {
    let settings = [
        ("IDENTITY__NAME", UNIT.to_owned()),
        ("MONGODB__COLLECTION", COLLECTION.to_owned()),
        // Another daemon of this machine may use the default port.
        ("HTTP__LISTEN", String::new()),
    ];
    let settings = settings.map(|(key, value)| format!("LEASEHOLD_{key}={value}"));
    let timings = NEVER_EXPIRES.flags().into_iter().map(|flag| {
        let (flag, value) = flag.split_once('=').unwrap();
        let key = match flag.strip_prefix("--").unwrap() {
            "lease-duration" => "LEASE__LEASE_DURATION".to_owned(),
            flag => flag.replacen('-', "__", 1).replace('-', "_").to_uppercase(),
        };
        format!("LEASEHOLD_{key}={value}")
    });
    settings.into_iter().chain(timings).collect()
}

#[tokio::test]
async fn the_unit_releases_the_lease_of_a_killed_daemon_and_restarts_it() {
    let Some(unit) = Unit::of_the_packages("unit-killed").await else {
        return;
    };
    unit.start().await;
    let directory = unit.systemd.path(&unit.directory);
    let before = fs::metadata(&directory).unwrap();
    let users = fs::read_to_string(unit.systemd.path("/etc/passwd")).unwrap();
    assert_contains(&users, &format!("leasehold:x:{}:", before.uid()));
    let standby = unit.candidate("b").following(UNIT, LONG).await;
    unit.fail_over_to(&standby).await;
    let after = fs::metadata(&directory).unwrap();
    assert_eq!(after.ino(), before.ino(), "a restart keeps the directory");

    // systemd kills a daemon that does not stop within TimeoutStopSec=.
    standby.term_and_exit(LONG).await;
    unit.wait_leads_with(3).await;
    unit.signal("STOP");
    unit.systemd.systemctl(&["stop", "--no-block", &unit.name]);
    eventually("systemd stops the unit", async || {
        unit.property("SubState") == "stop-sigterm"
    })
    .await;
    assert!(unit.stored().claim().await.is_some());
    unit.signal("KILL");
    eventually("the unit has stopped", async || {
        matches!(&*unit.property("ActiveState"), "failed" | "inactive")
    })
    .await;
    assert_eq!(unit.stored().claim().await, None);
    assert!(!directory.exists(), "a stop removes the directory");
}

#[tokio::test]
async fn the_documented_drop_in_supervises_a_command_that_ends_with_a_killed_daemon() {
    let Some(unit) = Unit::of_the_packages("unit-command").await else {
        return;
    };
    let systemd = &unit.systemd;
    let page = include_str!("../../docs/packages.md");
    let edit = "$ sudo systemctl edit leasehold@orders\n";
    let (drop_in, _) = page.split_once(edit).unwrap().1.split_once("```").unwrap();
    let place = format!("/etc/systemd/system/{}.d/override.conf", unit.name);
    systemd.write(&place, 0o644, drop_in);
    systemd.write("/etc/sysusers.d/scheduler.conf", 0o644, "u scheduler -\n");
    systemd.run(&["systemd-sysusers", "scheduler.conf"]);
    // Each command holds this lock, so a second command at the same time exits.
    systemd.write("/srv/lock", 0o644, "");
    let command = |lock: &Path, report: &str| {
        let lock = lock.display();
        format!(
            "#!/bin/sh\nexec 9< {lock}\nflock --nonblock 9 || exit 99\n{report}\nexec sleep infinity\n"
        )
    };
    let ours = command(Path::new("/srv/lock"), "echo locked");
    systemd.write("/usr/local/bin/scheduler", 0o755, ours);
    systemd.systemctl(&["daemon-reload"]);
    unit.start().await;
    let runs = async |count| {
        eventually("the command of the unit runs", async || {
            systemd.journal().matches("locked\n").count() == count
        })
        .await;
    };
    runs(1).await;

    let scratch = tempfile::tempdir().unwrap();
    let [program, report] = ["program", "report"].map(|name| scratch.path().join(name));
    let theirs = format!("echo > {}", report.display());
    write_program(&program, &command(&systemd.path("/srv/lock"), &theirs));
    let standby = unit.candidate("b").workload([program.to_str().unwrap()]);
    let standby = standby.following(UNIT, LONG).await;
    unit.fail_over_to(&standby).await;
    eventually("the command of the standby runs", async || report.exists()).await;

    // The restarted daemon proves in the sandbox that the command of the killed daemon has exited.
    standby.term_and_exit(LONG).await;
    unit.wait_leads_with(3).await;
    runs(2).await;
    systemd.systemctl(&["stop", &unit.name]);
    assert_eq!(unit.stored().claim().await, None);
}

#[tokio::test]
async fn the_documented_unit_releases_the_lease_of_a_killed_daemon() {
    let Some(unit) = Unit::boot("orders", "orders.service").await else {
        return;
    };
    let page = include_str!("../../docs/operations.md");
    let (_, part) = page.split_once("\n## systemd\n").unwrap();
    let text = code_block(part, "ini");
    let place = format!("/etc/systemd/system/{}", unit.name);
    let environment = settings().join("\nEnvironment=");
    let text = format!("{text}Environment={environment}\n");
    unit.systemd.write(&place, 0o644, text);
    unit.systemd
        .run(&["ln", "--symbolic", "/usr/bin/leasehold", "/usr/local/bin/"]);
    unit.systemd.systemctl(&["daemon-reload"]);
    unit.start().await;
    let standby = unit.candidate("b").following(UNIT, LONG).await;
    unit.fail_over_to(&standby).await;
}

#[tokio::test]
async fn a_unit_of_root_whose_environment_names_the_uri_file_releases_the_lease() {
    let Some(unit) = Unit::of_the_packages("unit-root").await else {
        return;
    };
    let environment = format!("/etc/leasehold/{}.env", unit.lease);
    let mut settings = settings();
    settings.push("LEASEHOLD_MONGODB__URI_FILE=/etc/leasehold/mongodb-uri".to_owned());
    unit.systemd.write(&environment, 0o644, settings.join("\n"));
    let place = format!("/etc/systemd/system/{}.d/override.conf", unit.name);
    unit.systemd.write(&place, 0o644, "[Service]\nUser=\n");
    unit.systemd.systemctl(&["daemon-reload"]);
    unit.start().await;
    let standby = unit.candidate("b").following(UNIT, LONG).await;
    unit.fail_over_to(&standby).await;
}

#[tokio::test]
async fn a_configuration_error_delays_the_restart_after_the_attempt_to_release() {
    let Some(unit) = Unit::of_the_packages("unit-invalid").await else {
        return;
    };
    let environment = format!("/etc/leasehold/{}.env", unit.lease);
    let wrong = "LEASEHOLD_LEASE__LEASE_DURATION=never\n";
    unit.systemd.write(&environment, 0o644, wrong);
    unit.systemd.systemctl(&["start", "--no-block", &unit.name]);
    let mut commands = String::new();
    eventually("the unit waits before the restart", async || {
        commands = unit.property("ExecStopPost");
        unit.property("SubState") == "stop-post" && commands.contains("status=78")
    })
    .await;
    assert_eq!(unit.property("ExecMainStatus"), "78");
    let [bury, delay] = commands.lines().collect::<Vec<_>>()[..] else {
        panic!("two commands: {commands}")
    };
    assert_contains(bury, "leasehold bury");
    assert_contains(bury, "status=78");
    assert_contains(delay, "sleep 10");
    assert_contains(delay, "stop_time=[n/a]");
}
