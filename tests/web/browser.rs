//! Drives a headless Chromium with the DevTools protocol over pipes.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use leasehold_testbed::skip;
use leasehold_testbed::wait::pause;

const PROGRAM: &str = "/usr/bin/chromium";
/// Maximum wait for an answer of the browser or a change of the page. The wait is long, because the
/// browser shares two processors with the daemons.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// The DevTools protocol uses descriptors 3 and 4. Chromium requires --no-sandbox if root starts
/// it.
const START: &str = "exec \"$0\" --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage \
    --no-first-run --disable-background-networking --disable-extensions --disable-sync \
    --hide-scrollbars --lang=en-US \
    --user-data-dir=\"$1\" --remote-debugging-pipe 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null";

pub(crate) struct Browser {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: Option<String>,
    calls: u64,
    /// Errors of the page's scripts, and violations of its content security policy.
    pub(crate) problems: Vec<String>,
    child: Child,
    _profile: TempDir,
}

impl Browser {
    /// Starts Chromium. If Chromium is not installed, returns `None` and reports the test as
    /// skipped.
    pub(crate) async fn start() -> Option<Self> {
        if !Path::new(PROGRAM).exists() {
            skip("there is no Chromium: apt-get install -y chromium");
            return None;
        }
        let profile = tempfile::tempdir().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", START, PROGRAM])
            .arg(profile.path())
            .env("HOME", profile.path())
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut browser = Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            session: None,
            calls: 0,
            problems: Vec::new(),
            child,
            _profile: profile,
        };
        let target = json!({ "url": "about:blank" });
        let target = browser.call("Target.createTarget", target).await["targetId"].take();
        let attach = json!({ "targetId": target, "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach).await;
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, json!({})).await;
        }
        Some(browser)
    }

    pub(crate) async fn call(&mut self, method: &str, parameters: Value) -> Value {
        let answer = self.answer(method, parameters).await;
        answer.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    async fn answer(&mut self, method: &str, parameters: Value) -> Result<Value, Value> {
        self.calls += 1;
        let id = self.calls;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let text = format!("{message}\0");
        self.input.write_all(text.as_bytes()).await.unwrap();
        let answered = timeout(ANSWER_MAX, async {
            loop {
                let mut text = Vec::new();
                self.output.read_until(0, &mut text).await.unwrap();
                assert!(text.pop().is_some(), "the browser has ended");
                let mut message: Value = serde_json::from_slice(&text).unwrap();
                if message["id"] == id {
                    return match message.get("error") {
                        Some(error) => Err(error.clone()),
                        None => Ok(message["result"].take()),
                    };
                }
                self.note(&message);
            }
        });
        let answered = answered.await;
        answered.unwrap_or_else(|_| panic!("no answer to {method}: {parameters}"))
    }

    fn note(&mut self, event: &Value) {
        let problem = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => &event["params"]["exceptionDetails"],
            Some("Log.entryAdded") => &event["params"]["entry"]["text"],
            _ => return,
        };
        self.problems.push(problem.to_string());
    }

    pub(crate) async fn open(&mut self, address: &str) {
        self.call("Page.navigate", json!({ "url": address })).await;
        self.until("document.readyState === 'complete'").await;
    }

    /// Evaluates an expression, which may be a promise.
    pub(crate) async fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({
            "expression": expression, "awaitPromise": true, "returnByValue": true,
        });
        let mut result = self.call("Runtime.evaluate", parameters).await;
        let failed = result.get("exceptionDetails");
        assert_eq!(failed, None, "{expression}");
        result["result"]["value"].take()
    }

    /// Evaluates an expression until its value is true. Returns the value.
    pub(crate) async fn until(&mut self, expression: &str) -> Value {
        let begin = Instant::now();
        loop {
            let parameters = json!({ "expression": expression, "returnByValue": true });
            // The evaluation fails if the browser is replacing the page.
            let result = self.answer("Runtime.evaluate", parameters).await;
            let value = &result.unwrap_or_default()["result"]["value"];
            if !matches!(value, Value::Null | Value::Bool(false)) {
                return value.clone();
            }
            if begin.elapsed() > ANSWER_MAX {
                let text = self.value("document.body.innerText").await;
                panic!("never true: {expression}, {:?}: {text}", self.problems);
            }
            pause(begin).await;
        }
    }

    pub(crate) async fn press(&mut self, key: &str, text: &str) {
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            _ => 0,
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let event = json!({
                "type": kind, "key": key, "text": text, "windowsVirtualKeyCode": code,
            });
            self.call("Input.dispatchKeyEvent", event).await;
        }
    }

    pub(crate) async fn close(mut self) {
        self.session = None;
        self.input
            .write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0")
            .await
            .unwrap();
        let ended = timeout(ANSWER_MAX, self.child.wait()).await;
        ended.expect("the browser ends").unwrap();
    }
}
