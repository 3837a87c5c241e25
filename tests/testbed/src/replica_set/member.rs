//! Starts one mongod process, and restarts it on its old port and data.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mongodb::Client;
use rustix::process::Signal;
use tokio::net::TcpStream;

use super::Host;
use crate::process::exit_code;
use crate::{Failure, Launch, Lifetime, Process, ReservedPort, shared};

/// Maximum startup time. Startup takes 0.3 s on an idle machine, and more on a busy machine or
/// after a kill.
const START_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
/// mongod's exit code if it cannot bind its port.
const EXIT_PORT_TAKEN: i32 = 48;
/// Maximum number of ports to try before a start fails.
const PORTS_MAX: usize = 5;

#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) binary: PathBuf,
    pub(super) arguments: Vec<OsString>,
    pub(super) environment: Vec<(String, OsString)>,
    pub(super) lifetime: Lifetime,
    /// The host. `None` means loopback.
    pub(super) host: Option<Host>,
    /// The data directory. `None` means `data` in the log's directory.
    pub(super) data: Option<PathBuf>,
}

/// One member of a set.
#[derive(Debug)]
pub struct Member {
    plan: Plan,
    directory: PathBuf,
    port: ReservedPort,
    process: Mutex<Option<Arc<Process>>>,
    /// The client is recreated after each start, because a client that failed to connect waits
    /// before it tries that server again.
    client: Mutex<Option<Client>>,
    stays: bool,
}

impl Member {
    /// Starts a member. If another process binds the reserved port first, tries another port.
    pub(super) async fn launch(plan: Plan, directory: &Path) -> Result<Self, Failure> {
        for attempt in 1..=PORTS_MAX {
            let directory = directory.join(attempt.to_string());
            std::fs::create_dir_all(directory.join("data"))
                .map_err(|error| Failure::new(format!("cannot make a data directory: {error}")))?;
            let member = Self {
                plan: plan.clone(),
                directory,
                port: ReservedPort::new(),
                process: Mutex::new(None),
                client: Mutex::new(None),
                stays: false,
            };
            match member.start().await {
                Err(_) if member.exit_code() == Some(EXIT_PORT_TAKEN) => {}
                Err(failure) => return Err(failure),
                Ok(()) => return Ok(member),
            }
        }
        Err(Failure::new(format!(
            "{PORTS_MAX} ports in a row were in use by other processes"
        )))
    }

    /// Returns a new member with a copy of this member's data, without starting it.
    pub(super) fn copied(&self, directory: &Path) -> Result<Self, Failure> {
        copy_files(&self.directory.join("data"), &directory.join("data"))
            .map_err(|error| Failure::new(format!("cannot copy the data: {error}")))?;
        // Remove the lock file of the killed member.
        let _ = std::fs::remove_file(directory.join("data/mongod.lock"));
        Ok(Self {
            plan: self.plan.clone(),
            directory: directory.to_owned(),
            port: ReservedPort::new(),
            process: Mutex::new(None),
            client: Mutex::new(None),
            stays: false,
        })
    }

    /// Returns the port on which the member listens.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns host and port, as in a connection string.
    pub fn address(&self) -> String {
        format!("{}:{}", self.ip(), self.port())
    }

    fn listened(&self) -> String {
        match self.plan.arguments.iter().any(|flag| flag == "--ipv6") {
            true => format!("{},::1", self.ip()),
            false => self.ip().to_string(),
        }
    }

    fn ip(&self) -> Ipv4Addr {
        let host = self.plan.host.as_ref();
        host.map_or(Ipv4Addr::LOCALHOST, |host| host.address)
    }

    /// Returns the process id if the process is running or frozen.
    pub fn pid(&self) -> Option<u32> {
        let process = self.process()?;
        process.exit_status().is_none().then(|| process.pid())
    }

    /// Returns the member's log.
    pub fn log(&self) -> String {
        let text = std::fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Sends a signal if the process is running.
    pub fn signal(&self, signal: Signal) {
        if let Some(process) = self.process() {
            process.signal(signal);
        }
    }

    /// Freezes the process if it is running.
    pub fn stop(&self) {
        if let Some(process) = self.process() {
            process.stop();
        }
    }

    pub(super) fn leave_up(&mut self) {
        self.stays = true;
        if let Some(process) = self.process() {
            process.leave_up();
        }
    }

    pub(super) fn stays(&self) -> bool {
        self.stays
    }

    pub(super) fn kill(&self) {
        if let Some(process) = self.process() {
            process.kill();
        }
    }

    pub(super) async fn start(&self) -> Result<(), Failure> {
        self.forget_client();
        let data = || self.directory.join("data");
        let data = self.plan.data.clone().unwrap_or_else(data);
        let mut launch = Launch::new(&self.plan.binary)
            .arguments(["--port", &self.port().to_string(), "--logappend"])
            .arguments(["--bind_ip", &self.listened()])
            .arguments(["--dbpath".as_ref(), data.as_os_str()])
            .arguments(["--logpath".as_ref(), self.log_path().as_os_str()])
            .arguments(&self.plan.arguments)
            .envs(self.plan.environment.iter().cloned())
            .stderr(self.directory.join("stderr"))
            .lifetime(self.plan.lifetime);
        if let Some(host) = &self.plan.host {
            launch = launch.inside(&host.namespace);
        }
        let process = Arc::new(launch.start()?);
        *self.process.lock().expect("no holder of this lock panics") = Some(Arc::clone(&process));
        let end = Instant::now() + START_MAX;
        loop {
            if TcpStream::connect((self.ip(), self.port())).await.is_ok() {
                return Ok(());
            }
            if let Some(status) = process.exit_status() {
                let code = exit_code(status);
                return Err(Failure::new(format!(
                    "mongod exited with {code}: {}",
                    self.last_words()
                )));
            }
            if Instant::now() > end {
                return Err(Failure::new(format!(
                    "mongod not ready: {}",
                    self.last_words()
                )));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    pub(super) async fn client(&self, uri: &str) -> Result<Client, Failure> {
        if let Some(client) = self
            .client
            .lock()
            .expect("no holder of this lock panics")
            .clone()
        {
            return Ok(client);
        }
        let fresh = client(uri).await?;
        *self.client.lock().expect("no holder of this lock panics") = Some(fresh.clone());
        Ok(fresh)
    }

    pub(super) fn forget_client(&self) {
        *self.client.lock().expect("no holder of this lock panics") = None;
    }

    fn process(&self) -> Option<Arc<Process>> {
        self.process
            .lock()
            .expect("no holder of this lock panics")
            .clone()
    }

    fn exit_code(&self) -> Option<i32> {
        self.process()?.exit_status().map(exit_code)
    }

    fn log_path(&self) -> PathBuf {
        self.directory.join("mongod.log")
    }

    fn last_words(&self) -> String {
        let stderr = std::fs::read_to_string(self.directory.join("stderr")).unwrap_or_default();
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        let tail = &lines[lines.len().saturating_sub(5)..];
        format!("{stderr}\n{}", tail.join("\n"))
    }
}

/// Creates a client with short timeouts, because the fixtures poll.
pub(super) async fn client(uri: &str) -> Result<Client, Failure> {
    let quick = "serverSelectionTimeoutMS=2000&connectTimeoutMS=2000";
    shared::client(&format!("{uri}&{quick}")).await
}

fn copy_files(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let (entry, to) = entry.map(|entry| (entry.path(), to.join(entry.file_name())))?;
        match entry.is_dir() {
            true => copy_files(&entry, &to)?,
            false => std::fs::copy(entry, to).map(drop)?,
        }
    }
    Ok(())
}
