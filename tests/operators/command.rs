use std::os::unix::process::ExitStatusExt;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use leasehold_testbed::{ReplicaSet, SharedSet, Stage};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

pub(crate) use leasehold_testbed::wait::{LONG, eventually};

const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");

static SHARED: SharedSet = SharedSet::new(ReplicaSet::builder);

pub(crate) async fn shared_stage() -> Stage {
    Stage::new(PROGRAM, SHARED.get().await)
}

pub(crate) fn stage_of(set: Arc<ReplicaSet>) -> Stage {
    Stage::new(PROGRAM, set)
}

#[derive(Debug)]
pub(crate) struct Answer {
    /// The exit code, or the negated number of the signal that ended the command.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Answer {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: (output.status.code()).unwrap_or_else(|| -output.status.signal().unwrap_or(0)),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn expect(self, code: i32, parts: &[&str]) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        for part in parts {
            let printed = self.stdout.contains(part) || self.stderr.contains(part);
            assert!(printed, "{part:?} is missing: {self:?}");
        }
        self
    }
}

pub(crate) fn command(stage: &Stage, arguments: &[&str]) -> Command {
    command_with(&stage.set().uri(), stage, arguments)
}

pub(crate) fn command_with(uri: &str, stage: &Stage, arguments: &[&str]) -> Command {
    stage.command(uri, arguments)
}

pub(crate) async fn leasehold(stage: &Stage, arguments: &[&str]) -> Answer {
    run(command(stage, arguments)).await
}

pub(crate) async fn run(mut command: Command) -> Answer {
    let output = tokio::time::timeout(2 * LONG, command.output()).await;
    let output = output.unwrap_or_else(|_| panic!("{command:?} did not end"));
    Answer::of(&output.expect("the program starts"))
}

pub(crate) fn start(stage: &Stage, arguments: &[&str]) -> Child {
    start_with(&stage.set().uri(), stage, arguments)
}

pub(crate) fn start_with(uri: &str, stage: &Stage, arguments: &[&str]) -> Child {
    let mut command = command_with(uri, stage, arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the program starts")
}

pub(crate) async fn wait_stderr(child: &mut Child, text: &str) {
    let mut read = String::new();
    let found = async {
        let stderr = child.stderr.as_mut().expect("piped");
        while !read.contains(text) {
            // Read one byte at a time, so that the next reader gets the rest.
            match stderr.read_u8().await {
                Ok(byte) => read.push(char::from(byte)),
                Err(_) => return false,
            }
        }
        true
    };
    let found = tokio::time::timeout(LONG, found).await;
    assert_eq!(found, Ok(true), "{text:?} is missing: {read}");
}

pub(crate) async fn ended(child: Child) -> Answer {
    let output = tokio::time::timeout(2 * LONG, child.wait_with_output()).await;
    let output = output.expect("the command ends in time");
    Answer::of(&output.expect("wait for the child"))
}

pub(crate) async fn name(stage: &Stage) -> String {
    let document = stage.stored().get().await;
    document.get_str("_id").expect("a name").to_owned()
}

pub(crate) fn took(answer: &Answer) -> Duration {
    let milliseconds = answer.json()["took_ms"].as_f64().expect("a number");
    Duration::from_secs_f64(milliseconds / 1e3)
}
