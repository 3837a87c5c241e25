//! Tests the programs in docs/reading-status.md that follow `GET /events`, with streams that no
//! daemon would send. A program leads only after a complete and valid event, and only while the
//! stream is open (I4).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use futures_util::StreamExt;
use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::documented::{code_block, go_program};
use leasehold_testbed::{Launch, Process, Scratch, corpus, run, skip, throughout};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::target::eventually;

const READERS: usize = 8;
/// Time in which a deceived program would print that it leads: three of its intervals.
const WRONG_MAX: Duration = Duration::from_millis(300);
const STREAM: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const BEFORE: i64 = 5;
const HOSTILE: i64 = 9;
const AFTER: i64 = 777;

/// Replaces the placeholders in a corpus line by a deadline in an hour and this machine's boot id.
fn line(input: &[u8]) -> Vec<u8> {
    let until = (boottime_ns() + 3_600_000_000_000).to_string();
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let replaced = |input: &[u8], name: &str, value: &str| {
        let mut parts = Vec::new();
        let mut rest = input;
        while let Some(at) = rest.windows(name.len()).position(|w| w == name.as_bytes()) {
            parts.extend_from_slice(&rest[..at]);
            parts.extend_from_slice(value.as_bytes());
            rest = &rest[at + name.len()..];
        }
        parts.extend_from_slice(rest);
        parts
    };
    replaced(&replaced(input, "@UNTIL", &until), "@BOOT", boot_id.trim())
}

fn event(token: i64) -> Vec<u8> {
    let data = format!(
        r#"data: {{"schema":1,"lease":"o","identity":"{{a}}\" b","session":"s","role":"leader","leader":true,"token":{token},"valid_until":"x","valid_until_boottime_ns":@UNTIL,"boot_id":"@BOOT","holder":{{"identity":"a","token":{token}}},"transitions":1,"since":"x","reason":null,"updated_at":"x","store_error":null,"valid_for_ms":3600000,"written_boottime_ns":1,"missed":null}}"#
    );
    [b"id: s:1\n", &line(data.as_bytes())[..]].concat()
}

/// A program from the page, connected to the test's server.
struct Reader {
    listener: TcpListener,
    stream: Option<TcpStream>,
    printed: PathBuf,
    _process: Process,
    _scratch: Scratch,
}

impl Reader {
    async fn start(program: &[String]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scratch = Scratch::new();
        let printed = scratch.path().join("printed");
        let home = std::env::var_os("HOME").unwrap_or_default();
        let process = Launch::new("/bin/sh")
            .arguments(["-c", r#"exec "$0" "$@" >&2"#])
            .arguments(program)
            .argument(listener.local_addr().unwrap().to_string())
            .env("HOME", home)
            .stderr(&printed)
            .start()
            .unwrap();
        Self {
            listener,
            stream: None,
            printed,
            _process: process,
            _scratch: scratch,
        }
    }

    fn lines(&self) -> Vec<String> {
        let printed = fs::read_to_string(&self.printed).unwrap_or_default();
        printed.lines().map(str::to_owned).collect()
    }

    async fn accept(&mut self, answer: impl Fn(&str) -> Vec<u8>) {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut request).await.unwrap_or_default() == 0 {
                return;
            }
        }
        let request = String::from_utf8(request).unwrap();
        let path = request.split(' ').nth(1).unwrap_or_default();
        let _ = stream.write_all(&answer(path)).await;
        self.stream = Some(stream);
    }

    async fn send(&mut self, bytes: &[u8]) {
        if let Some(stream) = &mut self.stream {
            let _ = stream.write_all(bytes).await;
        }
    }

    /// Sends an event on the open stream, and on each new stream that the program opens, until the
    /// program has printed `line`.
    async fn send_until_said(&mut self, event: &[u8], line: &str) {
        let event = chunk(event);
        self.send(&event).await;
        let printed = self.printed.clone();
        let lines = [line];
        let mut said = std::pin::pin!(said(&printed, &lines));
        loop {
            tokio::select! {
                () = &mut said => return,
                () = self.accept(|_| [STREAM.as_bytes(), &event].concat()) => {}
            }
        }
    }

    async fn says(&self, line: &str) {
        said(&self.printed, &[line]).await;
    }

    async fn never_leads_after_it(&self, what: &str) {
        let leads = leader(HOSTILE);
        throughout(WRONG_MAX, what, async || !self.lines().contains(&leads)).await;
    }
}

async fn said(printed: &Path, expected: &[&str]) {
    let text = || fs::read_to_string(printed).unwrap_or_default();
    eventually(&format!("the program prints {expected:?}"), async || {
        text()
            .lines()
            .last()
            .is_some_and(|last| expected.contains(&last))
    })
    .await;
}

fn leader(token: i64) -> String {
    format!("leader, token {token}")
}

fn chunk(line: &[u8]) -> Vec<u8> {
    let length = format!("{:x}\r\n", line.len() + 2);
    [length.as_bytes(), line, b"\n\n\r\n"].concat()
}

/// Sends a hostile line to a program once before the program leads and once while it leads.
async fn survives_line(program: &[String], input: &[u8]) {
    let name: String = input.escape_ascii().to_string().chars().take(150).collect();
    let name = format!("{program:?}: {name}");
    let hostile = line(input);
    let mut reader = Reader::start(program).await;
    reader.accept(|_| STREAM.into()).await;
    reader.send(&chunk(&hostile)).await;
    reader.never_leads_after_it(&name).await;
    let led = [event(BEFORE), event(AFTER)];
    reader.send_until_said(&led[0], &leader(BEFORE)).await;
    reader.send(&chunk(&hostile)).await;
    if input.starts_with(b"data:") {
        reader.says("not leader").await;
    }
    reader.never_leads_after_it(&name).await;
    reader.send_until_said(&led[1], &leader(AFTER)).await;
    let known = ["not leader".to_owned(), leader(BEFORE), leader(AFTER)];
    let lines = reader.lines();
    assert!(
        lines.iter().all(|line| known.contains(line)),
        "{name}: {lines:?}"
    );
}

/// Sends a response that is not an event stream, but whose body looks like an event stream. The
/// program must not lead, even if the response redirects it to a valid stream.
async fn survives_answer(program: &[String], answer: &str) {
    let mut reader = Reader::start(program).await;
    let body = String::from_utf8(event(HOSTILE)).unwrap() + "\n\n";
    let answer = answer.replace("@LENGTH", &body.len().to_string()) + &body;
    reader.accept(|_| answer.clone().into()).await;
    reader.stream = None;
    let stream = |token| [STREAM.as_bytes(), &chunk(&event(token))].concat();
    let printed = reader.printed.clone();
    let leaders = [leader(HOSTILE), leader(AFTER)];
    let leaders = leaders.each_ref().map(String::as_str);
    let mut said = std::pin::pin!(said(&printed, &leaders));
    loop {
        let next = reader.accept(|path| match path {
            "/other" => stream(HOSTILE),
            _ => stream(AFTER),
        });
        tokio::select! {
            () = &mut said => break,
            () = next => {}
        }
    }
    let lines = reader.lines();
    assert!(
        !lines.contains(&leader(HOSTILE)),
        "{program:?}: {answer}: {lines:?}"
    );
}

/// Ends or corrupts the stream of a leading program, which must then stop leading.
async fn survives_end(program: &[String], end: &[u8], closed: bool) {
    let mut reader = Reader::start(program).await;
    reader.accept(|_| STREAM.into()).await;
    reader
        .send_until_said(&event(BEFORE), &leader(BEFORE))
        .await;
    reader.send(end).await;
    if closed {
        reader.stream = None;
    }
    reader.says("not leader").await;
    reader.send_until_said(&event(AFTER), &leader(AFTER)).await;
}

async fn survives(program: Vec<String>) {
    let lines = corpus::inputs("events");
    let lines = futures_util::stream::iter(&lines);
    lines
        .for_each_concurrent(READERS, |input| survives_line(&program, input))
        .await;
    for answer in [
        "HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: @LENGTH\r\n\r\n",
        "HTTP/1.1 404 Not Found\r\nContent-Length: @LENGTH\r\n\r\n",
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: @LENGTH\r\n\r\n",
        "",
    ] {
        survives_answer(&program, answer).await;
    }
    for (end, closed) in [
        (&b"zz\r\n"[..], false),
        (b"0\r\n\r\n", false),
        (b"", true),
        (b"400\r\ndata: {", true),
    ] {
        survives_end(&program, end, closed).await;
    }
}

/// Returns the code block in this language from the page's section on events.
fn block(language: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reading-status.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, events) = page.split_once("\n## Being notified\n").unwrap();
    code_block(events, language)
}

fn script(programs: &[&str], language: &str) {
    for program in programs {
        if Command::new(program).arg("--version").output().is_err() {
            return skip(&format!("{program} is not installed"));
        }
    }
    let scratch = Scratch::new();
    let path = scratch.path().join("reader");
    fs::write(&path, block(language)).unwrap();
    let program = [programs[0], path.to_str().unwrap()];
    run(survives(program.map(str::to_owned).to_vec()));
}

#[test]
fn i4_the_bash_program_leads_only_after_valid_events() {
    script(&["bash", "curl"], "bash");
}

#[test]
fn i4_the_python_program_leads_only_after_valid_events() {
    script(&["python3"], "python");
}

#[test]
fn i4_the_node_program_leads_only_after_valid_events() {
    script(&["node"], "js");
}

#[test]
fn i4_the_go_program_leads_only_after_valid_events() {
    let scratch = Scratch::new();
    if let Some(program) = go_program(&block("go"), scratch.path()) {
        run(survives(vec![program.to_str().unwrap().to_owned()]));
    }
}
