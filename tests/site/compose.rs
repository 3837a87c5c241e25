//! Runs the services of examples/compose without a container engine. The Compose Specification's
//! own parser reads the commands, environment, dependencies and health checks from the file. A
//! scratch directory replaces mounted paths, free loopback ports replace container ports, and
//! installed programs of the same names replace images.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold_testbed::wait::within;
use leasehold_testbed::{Launch, Process, ReservedPort, Scratch, eventually, mongod_binary, run};
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;

use crate::page::{blocks, root, text};

const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");
const REPLICAS: [&str; 3] = ["anna", "bert", "cleo"];

/// Maximum time until a service completes, longer than the first start of mongosh on a busy
/// machine.
const COMPLETES_MAX: Duration = Duration::from_secs(60);
/// Maximum time of a takeover, well above the lease duration of the profile `fast` (8 s).
const TAKEOVER_MAX: Duration = Duration::from_secs(30);

fn tools() -> BTreeMap<String, PathBuf> {
    let script = root().join("tests/testbed/fetch-compose-tools");
    let output = Command::new(script).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let output = String::from_utf8(output.stdout).unwrap();
    let tools = output.lines().filter_map(|line| line.split_once('='));
    tools
        .map(|(name, path)| (name.to_owned(), path.into()))
        .collect()
}

/// The parsed compose project, and the programs and ports that replace its containers.
struct Project {
    services: Value,
    tools: BTreeMap<String, PathBuf>,
    scratch: Scratch,
    ports: BTreeMap<String, ReservedPort>,
}

fn words(value: &Value) -> Vec<String> {
    let list = value.as_array().into_iter().flatten();
    list.map(|word| word.as_str().unwrap().to_owned()).collect()
}

impl Project {
    /// Loads the project. Panics if the parser rejects the file, or if the file refers to a missing
    /// service or volume.
    fn load() -> Self {
        let tools = tools();
        let output = Command::new(&tools["compose"])
            .args(["-format", "json"])
            .arg("compose.yaml")
            .current_dir(root().join("examples/compose"))
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let project: Value = serde_json::from_slice(&output.stdout).unwrap();
        let names = project["services"].as_object().unwrap().keys();
        let ports = names.map(|name| (name.clone(), ReservedPort::new()));
        Self {
            ports: ports.collect(),
            services: project["services"].clone(),
            tools,
            scratch: Scratch::new(),
        }
    }

    fn place(&self, name: &str) -> PathBuf {
        let place = self.scratch.path().join(name);
        fs::create_dir_all(&place).unwrap();
        place
    }

    /// Replaces mounted paths and container addresses in a word of a command or variable.
    fn local(&self, name: &str, word: &str) -> String {
        let service = &self.services[name];
        let mut word = word.to_owned();
        let mut mount = |target: &str, source: &Path| {
            word = word.replacen(target, source.to_str().unwrap(), 1);
        };
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let source = volume["source"].as_str().unwrap();
            let is_bind = volume["type"] == "bind";
            let source = if is_bind {
                PathBuf::from(source)
            } else {
                self.place(source)
            };
            mount(volume["target"].as_str().unwrap(), &source);
        }
        for target in words(&service["tmpfs"]) {
            let target = target.split(':').next().unwrap();
            mount(target, &self.place(&format!("tmpfs-{name}")));
        }
        for (other, port) in &self.ports {
            word = word.replace(
                &format!("{other}:27017"),
                &format!("127.0.0.1:{}", port.number()),
            );
        }
        word.replace("9402", &self.ports[name].number().to_string())
            .replace("0.0.0.0", "127.0.0.1")
            .replace("--bind_ip_all", "--bind_ip=127.0.0.1")
    }

    fn launch(&self, name: &str, command: &[String]) -> Launch {
        let service = &self.services[name];
        let command: Vec<_> = command.iter().map(|word| self.local(name, word)).collect();
        let program = match command[0].as_str() {
            "mongod" => mongod_binary().unwrap(),
            "mongosh" => self.tools["mongosh"].clone(),
            "python3" => PathBuf::from("/usr/bin/env"),
            other => PathBuf::from(other),
        };
        let is_python = command[0] == "python3";
        let mut launch = Launch::new(program)
            .arguments(&command[usize::from(!is_python)..])
            .stderr(self.scratch.path().join(format!("{name}.log")))
            // mongosh keeps its settings here.
            .env("HOME", self.place("home"));
        // In a container, the entry point sets the data directory, and mongod can use its default
        // port. Here, options set the directory and the port.
        if command[0] == "mongod" {
            launch = launch
                .argument(format!("--port={}", self.ports[name].number()))
                // A container has its own /tmp.
                .argument("--nounixsocket")
                .argument(format!("--dbpath={}", self.place("mongodb").display()));
        }
        for (variable, value) in service["environment"].as_object().into_iter().flatten() {
            launch = launch.env(variable, self.local(name, value.as_str().unwrap()));
        }
        launch
    }

    /// Starts a service with its entry point and command, as a container engine would.
    fn start(&self, name: &str) -> Process {
        let service = &self.services[name];
        let mut command = words(&service["entrypoint"]);
        if command.is_empty() && service["image"].as_str().unwrap().starts_with("leasehold:") {
            command.push(PROGRAM.to_owned());
        }
        command.extend(words(&service["command"]));
        self.launch(name, &command).start().unwrap()
    }

    async fn is_healthy(&self, name: &str) -> bool {
        let test = words(&self.services[name]["healthcheck"]["test"]);
        assert_eq!(test[0], "CMD", "{name}");
        let check = self.launch(name, &test[1..]).start().unwrap();
        check.wait(COMPLETES_MAX).await.unwrap().success()
    }

    /// Starts a service once its dependencies meet their conditions, as `docker compose up` does.
    async fn up(&self, name: &str, running: &mut BTreeMap<String, Process>) {
        let needs = self.services[name]["depends_on"].as_object();
        for (needed, how) in needs.into_iter().flatten() {
            if !running.contains_key(needed) {
                Box::pin(self.up(needed, running)).await;
            }
            match how["condition"].as_str().unwrap() {
                "service_completed_successfully" => {
                    let status = running[needed].wait(COMPLETES_MAX).await;
                    let success = status.is_some_and(|status| status.success());
                    assert!(success, "{needed}: {status:?}\n{}", self.log(needed));
                }
                "service_healthy" => {
                    eventually(needed, async || self.is_healthy(needed).await).await;
                }
                other => panic!("{name} needs {needed}: {other}"),
            }
        }
        running.insert(name.to_owned(), self.start(name));
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.scratch.path().join(format!("{name}.log"))).unwrap_or_default()
    }

    fn ledger(&self) -> Vec<Order> {
        let text = fs::read_to_string(self.place("ledger").join("ledger.txt")).unwrap_or_default();
        text.lines().map(Order::parse).collect()
    }
}

/// A line of the form `order 7: shipped by anna, token 2`.
#[derive(Debug, Clone, PartialEq)]
struct Order {
    number: usize,
    by: String,
    token: u64,
}

impl Order {
    fn parse(line: &str) -> Self {
        let words: Vec<_> = line
            .split([' ', ':', ','])
            .filter(|it| !it.is_empty())
            .collect();
        let ["order", number, "shipped", "by", by, "token", token] = words[..] else {
            panic!("an order in another format: {line}");
        };
        Self {
            number: number.parse().unwrap(),
            by: by.to_owned(),
            token: token.parse().unwrap(),
        }
    }
}

/// Waits for an order with this token. Returns the name of the replica that shipped the order.
async fn shipped(project: &Project, token: u64) -> String {
    let last = || project.ledger().pop().filter(|order| order.token == token);
    let what = format!("an order with token {token}: {:?}", project.log("anna"));
    within(TAKEOVER_MAX, &what, async || last().is_some()).await;
    last().unwrap().by
}

#[test]
fn one_of_the_compose_files_three_replicas_works() {
    run(async {
        let project = Project::load();
        let mut running = BTreeMap::new();
        for name in REPLICAS {
            project.up(name, &mut running).await;
        }
        for name in REPLICAS {
            eventually(name, async || project.is_healthy(name).await).await;
        }
        let first = shipped(&project, 1).await;

        // docker compose kill
        running[&first].kill();
        let second = shipped(&project, 2).await;
        assert_ne!(first, second);

        // docker compose stop
        running[&second].signal(Signal::TERM);
        let status = running[&second].wait(COMPLETES_MAX).await.unwrap();
        assert!(status.success(), "{status:?}\n{}", project.log(&second));
        let third = shipped(&project, 3).await;
        assert!(![first, second].contains(&third), "{third}");

        let leases = project.start("leasehold");
        let status = leases.wait(COMPLETES_MAX).await.unwrap();
        assert!(status.success(), "{}", project.log("leasehold"));

        let ledger = project.ledger();
        let tokens: Vec<_> = ledger.iter().map(|order| order.token).collect();
        assert!(tokens.is_sorted(), "{ledger:?}");
        assert!(
            ledger.iter().map(|order| order.number).eq(1..=ledger.len()),
            "{ledger:?}"
        );
        for pair in ledger.windows(2) {
            let same = pair[0].token == pair[1].token;
            assert_eq!(same, pair[0].by == pair[1].by, "{ledger:?}");
        }
    });
}

/// The replicas differ only in name and port, so each of them can be the leader.
#[test]
fn the_replicas_are_alike() {
    let project = Project::load();
    let [anna, bert, cleo] = REPLICAS.map(|name| {
        let mut service = project.services[name].clone();
        assert_eq!(service["environment"]["LEASEHOLD_IDENTITY__NAME"], name);
        service["environment"]["LEASEHOLD_IDENTITY__NAME"].take();
        service["ports"].take();
        service
    });
    assert_eq!((&anna, &anna), (&bert, &cleo));
}

/// The compose file mounts the program that the tutorial shows.
#[test]
fn the_tutorial_has_the_program_of_the_examples() {
    let blocks = blocks(&text("docs/tutorial.md"));
    let program = blocks
        .iter()
        .find(|block| block.file() == Some("worker.py"));
    assert_eq!(program.unwrap().text, text("examples/worker.py"));
}
