//! Runs helm as a user does, and parses its output.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock};

use serde_json::Value;

/// Kubernetes version that helm assumes for rendering. Injection needs at least this version.
pub(crate) const KUBERNETES: &str = "1.36.0";
pub(crate) const NAMESPACE: &str = "shop";
pub(crate) const RELEASE: &str = "orders";
/// Values files in tests/chart/values, one for each kind of installation.
pub(crate) const INSTALLATIONS: [&str; 14] = [
    "minimal",
    "everything",
    "unlabelled",
    "supervisor",
    "same-container",
    "injector",
    "web",
    "stateful-set",
    "daemon-set",
    "job",
    "cron-job",
    "leases",
    "platform",
    "routes",
];

const WORKLOADS: [&str; 5] = ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"];

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) const CHARTS: [&str; 3] = ["leasehold", "leasehold-sidecar", "leasehold-cluster"];

pub(crate) fn chart() -> PathBuf {
    root().join("charts/leasehold")
}

pub(crate) fn cluster_chart() -> PathBuf {
    root().join("charts/leasehold-cluster")
}

pub(crate) fn values(installation: &str) -> PathBuf {
    root().join(format!("tests/chart/values/{installation}.yaml"))
}

/// Returns a command for a tool that the testbed's script finds or builds.
pub(crate) fn tool(name: &str) -> Command {
    static TOOLS: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    let tools = TOOLS.get_or_init(|| {
        let script = root().join("tests/testbed/fetch-chart-tools");
        let tools = succeed(&mut Command::new(script));
        tools
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, path)| (name.to_owned(), path.to_owned()))
            .collect()
    });
    let mut command = Command::new(&tools[name]);
    // Helm caches the capabilities of API servers in its home directory.
    command.env("HOME", env!("CARGO_TARGET_TMPDIR"));
    // Helm runs over a thousand times, and spends a fifth of its processor time collecting garbage.
    command.env("GOGC", "off");
    command
}

pub(crate) fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[track_caller]
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = text(&output);
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

/// Runs `helm template` on a chart. Returns the manifests, or helm's output if it fails.
pub(crate) fn render_chart(chart: &Path, arguments: &[&str]) -> Result<String, String> {
    render_by("helm", chart, arguments)
}

pub(crate) fn render_by(version: &str, chart: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = tool(version)
        .args(["template", RELEASE])
        .arg(chart)
        .args(["--namespace", NAMESPACE, "--kube-version", KUBERNETES])
        .args(arguments)
        .output()
        .unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(text(&output))
    }
}

/// Renders the chart. Remembers the result, because many tests render the same installation.
pub(crate) fn render(installation: &str, changes: &[&str]) -> Result<String, String> {
    static RENDERED: Mutex<BTreeMap<Vec<String>, Result<String, String>>> =
        Mutex::new(BTreeMap::new());
    let file = values(installation);
    let mut arguments = vec!["--values", file.to_str().unwrap()];
    arguments.extend(changes.iter().flat_map(|change| ["--set-json", *change]));
    let key = arguments.iter().map(|argument| (*argument).to_owned());
    let key: Vec<_> = key.collect();
    let known = RENDERED.lock().unwrap().get(&key).cloned();
    known.unwrap_or_else(|| {
        let rendered = render_chart(&chart(), &arguments);
        RENDERED.lock().unwrap().insert(key, rendered.clone());
        rendered
    })
}

/// Asserts that helm refuses each mistake. Each paragraph of the text describes one mistake. The
/// paragraph's first line names an installation and a changed value, and the other lines are texts
/// that the error must contain.
#[track_caller]
pub(crate) fn refused(mistakes: &str) {
    for mistake in mistakes.trim().split("\n\n") {
        let mut lines = mistake.lines().map(str::trim);
        let case = lines.next().unwrap();
        let (installation, change) = case.split_once(": ").unwrap();
        let complaint = render(installation, &[change]);
        let complaint = complaint.expect_err(case);
        let texts: Vec<_> = lines.collect();
        assert!(!texts.is_empty(), "{case}: no text");
        for text in texts {
            assert!(complaint.contains(text), "{case}: {text}: {complaint}");
        }
    }
}

#[track_caller]
pub(crate) fn assert_selects(selector: &Value, labels: &Value) {
    let wanted = selector.as_object().unwrap();
    assert!(!wanted.is_empty());
    for (label, value) in wanted {
        assert_eq!(labels[label], *value, "{label}");
    }
}

#[derive(Debug)]
pub(crate) struct Objects(Vec<Value>);

impl Objects {
    pub(crate) fn parse(yaml: &str) -> Self {
        let objects: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
        Self(objects.into_iter().filter(|o| !o.is_null()).collect())
    }

    pub(crate) fn of(installation: &str, changes: &[&str]) -> Self {
        let rendered = render(installation, changes);
        Self::parse(&rendered.unwrap_or_else(|complaint| panic!("{complaint}")))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Value> {
        self.0.iter()
    }

    pub(crate) fn kinds(&self) -> Vec<&str> {
        self.0.iter().filter_map(|o| o["kind"].as_str()).collect()
    }

    pub(crate) fn find(&self, kind: &str) -> Option<&Value> {
        self.0.iter().find(|object| object["kind"] == kind)
    }

    /// Panics if the manifests do not contain an object of this kind.
    pub(crate) fn one(&self, kind: &str) -> &Value {
        self.find(kind)
            .unwrap_or_else(|| panic!("no {kind} among {:?}", self.kinds()))
    }

    /// Panics if the manifests do not contain an object of this kind and name.
    pub(crate) fn named(&self, kind: &str, name: &str) -> &Value {
        let mut found = self.0.iter();
        let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        found
            .find(is_it)
            .unwrap_or_else(|| panic!("no {kind} {name} among {:?}", self.kinds()))
    }

    pub(crate) fn maker(&self) -> &Value {
        let mut found = WORKLOADS.iter().filter_map(|kind| self.find(kind));
        found.next().expect("a workload")
    }

    pub(crate) fn template(&self) -> &Value {
        let spec = &self.maker()["spec"];
        match spec.get("jobTemplate") {
            Some(job) => &job["spec"]["template"],
            None => &spec["template"],
        }
    }

    pub(crate) fn pod(&self) -> &Value {
        &self.template()["spec"]
    }

    pub(crate) fn flags(&self) -> &[Value] {
        self.daemon()["args"].as_array().unwrap()
    }

    pub(crate) fn has_flag(&self, flag: &str) -> bool {
        self.flags().contains(&Value::from(flag))
    }

    pub(crate) fn sidecar(&self) -> &Value {
        let mut containers = self.pod()["initContainers"].as_array().unwrap().iter();
        let ours =
            |container: &&Value| container["name"].as_str().unwrap().starts_with("leasehold");
        containers.find(ours).expect("a container of leasehold")
    }

    pub(crate) fn workload(&self) -> &Value {
        &self.pod()["containers"][0]
    }

    /// Returns the daemon's container: the sidecar, or the workload's container in supervisor mode
    /// in one container.
    pub(crate) fn daemon(&self) -> &Value {
        self.container(|container| container["args"][0] == "run")
            .expect("a container with a daemon")
    }

    /// Returns the first container or init container with this property.
    pub(crate) fn container(&self, is_it: impl Fn(&Value) -> bool) -> Option<&Value> {
        let lists = ["initContainers", "containers"].map(|list| self.pod()[list].as_array());
        let mut all = lists.into_iter().flatten().flatten();
        all.find(|container| is_it(container))
    }
}
