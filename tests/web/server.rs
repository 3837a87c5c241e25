use std::process::Stdio;
use std::sync::{Arc, Mutex};

use leasehold_testbed::{DaemonTimings, ReplicaSet, SharedSet, Stage};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

pub(crate) use leasehold_testbed::wait::{LONG, eventually};

const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");

static SHARED: SharedSet = SharedSet::new(ReplicaSet::builder);

/// Returns a stage whose durations tolerate the load of a browser.
pub(crate) async fn shared_stage() -> Stage {
    Stage::new(PROGRAM, SHARED.get().await).timings(DaemonTimings::DEMO)
}

pub(crate) fn stage_of(set: ReplicaSet) -> Stage {
    Stage::new(PROGRAM, Arc::new(set)).timings(DaemonTimings::DEMO)
}

pub(crate) async fn run(mut command: Command) -> (i32, String) {
    let output = timeout(2 * LONG, command.output()).await;
    let output = output.expect("it ends").expect("it starts");
    let text = [output.stdout, output.stderr].concat();
    let code = output.status.code().unwrap_or(-1);
    (code, String::from_utf8_lossy(&text).into_owned())
}

pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) port: u16,
    log: Arc<Mutex<String>>,
}

impl Server {
    pub(crate) async fn start(stage: &Stage, flags: &[&str]) -> Self {
        Self::start_with(stage, &stage.set().uri(), flags).await
    }

    pub(crate) async fn start_with(stage: &Stage, uri: &str, flags: &[&str]) -> Self {
        let arguments = [&["web", "--listen", "127.0.0.1:0"], flags].concat();
        let mut command = stage.command(uri, &arguments);
        command.stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let port = loop {
            let line = lines.next_line().await.unwrap().expect("it listens");
            let line: Value = serde_json::from_str(&line).expect("a log line is JSON");
            let message = line["message"].as_str().expect("a message");
            if let Some(address) = message.strip_prefix("listening on http://127.0.0.1:") {
                let (port, _) = address.split_once('/').expect("a port");
                break port.parse().expect("a number");
            }
        };
        // The pipe must not fill up.
        let log = Arc::<Mutex<String>>::default();
        let newest = Arc::clone(&log);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                *newest.lock().unwrap() += &line;
            }
        });
        Self { child, port, log }
    }

    pub(crate) fn has_logged(&self, text: &str) -> bool {
        self.log.lock().unwrap().contains(text)
    }

    /// Returns the log of the server after this text.
    pub(crate) fn log_after(&self, text: &str) -> String {
        let log = self.log.lock().unwrap();
        let (_, after) = log.split_once(text).expect("the text is logged");
        after.to_owned()
    }

    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.host())
    }

    /// Adds the header `Host` if `headers` does not contain it.
    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            text += &format!("Host: {}\r\n", self.host());
        }
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        if method == "POST" {
            text += &format!("Content-Length: {}\r\n", body.len());
        }
        text += &format!("\r\n{body}");
        let exchange = async {
            let mut stream = TcpStream::connect(self.host()).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            answer
        };
        let answer = timeout(2 * LONG, exchange).await.expect("an answer");
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        Answer {
            code: head[9..12].parse().unwrap(),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[], "").await
    }

    /// Reads the secret from the page. The server requires it for each action.
    pub(crate) async fn secret(&self) -> String {
        let page = self.get("/").await.body;
        let (_, rest) = page.split_once("data-secret=\"").expect("a page");
        rest.split_once('"').unwrap().0.to_owned()
    }

    pub(crate) async fn act(&self, action: Value) -> Answer {
        let (secret, origin) = (self.secret().await, self.origin());
        let headers = [
            ("Origin", origin.as_str()),
            ("X-Leasehold-Page", secret.as_str()),
            ("Sec-Fetch-Site", "same-origin"),
        ];
        let body = action.to_string();
        self.request("POST", "/actions", &headers, &body).await
    }

    pub(crate) async fn events(&self) -> Events {
        let events = Events::open(self, "").await;
        assert_eq!(events.code, 200);
        events
    }

    pub(crate) async fn wait_ready(&self) {
        eventually("the server has read the collection", async || {
            self.get("/readyz").await.code == 200
        })
        .await;
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn expect(self, code: u16, part: &str) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.body.contains(part), "no {part:?} in {self:?}");
        self
    }
}

/// A stream of events, and the documents as the events describe them.
pub(crate) struct Events {
    lines: BufReader<TcpStream>,
    pub(crate) code: u16,
    pub(crate) documents: std::collections::BTreeMap<String, Value>,
}

impl Events {
    pub(crate) async fn open(server: &Server, headers: &str) -> Self {
        let mut stream = TcpStream::connect(server.host()).await.unwrap();
        let host = server.host();
        let request = format!("GET /events HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut lines = BufReader::new(stream);
        let mut first = String::new();
        lines.read_line(&mut first).await.unwrap();
        Self {
            lines,
            code: first[9..12].parse().unwrap(),
            documents: std::collections::BTreeMap::default(),
        }
    }

    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            let read = timeout(LONG, self.lines.read_line(&mut line)).await;
            if read.expect("an event or a heartbeat").unwrap_or(0) == 0 {
                return None;
            }
            if let Some(data) = line.strip_prefix("data: ") {
                let event: Value = serde_json::from_str(data.trim_end()).unwrap();
                self.apply(&event);
                return Some(event);
            }
        }
    }

    /// Waits until the server ends the stream.
    pub(crate) async fn ended(&mut self) {
        let ends = async { while self.next().await.is_some() {} };
        timeout(LONG, ends).await.expect("the stream ends");
    }

    fn apply(&mut self, event: &Value) {
        for document in event["documents"].as_array().into_iter().flatten() {
            let name = document["name"].as_str().unwrap().to_owned();
            self.documents.insert(name, document.clone());
        }
        for name in event["removed"].as_array().into_iter().flatten() {
            self.documents.remove(name.as_str().unwrap());
        }
    }

    /// Receives events until the documents or the last event satisfy a condition.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        wanted: impl Fn(&Self, &Value) -> bool,
    ) -> Value {
        let waits = async {
            loop {
                let event = self.next().await.expect("the stream continues");
                if wanted(self, &event) {
                    return event;
                }
            }
        };
        let waited = timeout(2 * LONG, waits).await;
        waited.unwrap_or_else(|_| panic!("not in time: {what}"))
    }

    pub(crate) async fn until_holder(&mut self, lease: &str, holder: &str) {
        self.until(&format!("{holder} holds {lease}"), |events, _| {
            events
                .documents
                .get(lease)
                .is_some_and(|document| document["holder"]["identity"] == *holder)
        })
        .await;
    }
}

/// Builds the request that the page sends for an action on a lease with this token.
pub(crate) fn action(name: &str, action: &str, token: i64) -> Value {
    json!({ "name": name, "action": action, "token": token, "reason": "a test" })
}
