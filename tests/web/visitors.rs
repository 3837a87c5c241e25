//! Goal: on any address other than loopback, only visitors with the token of `--token-file` get
//! data.

use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use leasehold_testbed::{HungDisk, skip};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::server::{Events, LONG, Server, eventually, run, shared_stage};

pub(crate) fn token(directory: &Path, token: &str, mode: u32) -> PathBuf {
    let path = directory.join("token");
    fs::write(&path, token).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

#[tokio::test]
async fn a_token_is_required_and_can_be_exchanged_for_a_session() {
    let stage = shared_stage().await;
    let directory = tempfile::tempdir().unwrap();
    let path = token(directory.path(), "s3cret\n", 0o600);
    let server = Server::start(&stage, &["--token-file", path.to_str().unwrap()]).await;
    for path in ["/events", "/document?name=x", "/logout"] {
        assert_eq!(server.get(path).await.code, 401, "{path}");
    }
    assert_eq!(server.get("/livez").await.code, 200);
    let first = server.get("/").await;
    assert!(
        first.code == 303 && first.head.contains("location: /login"),
        "{first:?}"
    );
    let bearer = ("Authorization", "Bearer s3cret");
    assert_eq!(server.request("GET", "/", &[bearer], "").await.code, 200);
    let wrong = ("Authorization", "Bearer s3cre");
    assert_eq!(
        server.request("GET", "/events", &[wrong], "").await.code,
        401
    );

    let origin = server.origin();
    let own = ("Origin", origin.as_str());
    let log_in = async |headers: &[_], token: &str| {
        let body = format!("token={token}");
        server.request("POST", "/login", headers, &body).await
    };
    assert_eq!(log_in(&[own], "wrong").await.code, 401);
    assert_eq!(
        log_in(&[("Origin", "http://evil.example")], "s3cret")
            .await
            .code,
        403
    );
    let entered = log_in(&[own], "s3cret").await;
    assert_eq!(entered.code, 303);
    let (_, cookie) = entered.head.split_once("set-cookie: ").expect("a cookie");
    let cookie = cookie.lines().next().unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"));
    let pair = cookie.split(';').next().unwrap().to_owned();
    let header = format!("Cookie: {pair}\r\n");
    let mut events = Events::open(&server, &header).await;
    assert_eq!(events.code, 200);
    events.next().await;

    // Changing the token ends all sessions and their streams.
    token(directory.path(), "another", 0o600);
    events.ended().await;
    assert_eq!(Events::open(&server, &header).await.code, 401);
    assert_eq!(log_in(&[own], "s3cret").await.code, 401);
    assert_eq!(log_in(&[own], "another").await.code, 303);
    // If the token file is unusable, the server refuses all visitors.
    token(directory.path(), "another", 0o644);
    eventually("no visitor is admitted", async || {
        log_in(&[own], "another").await.code == 401
    })
    .await;
}

#[tokio::test]
async fn slow_visitors_keep_no_other_from_logging_in() {
    let stage = shared_stage().await;
    let directory = tempfile::tempdir().unwrap();
    let path = token(directory.path(), "s3cret", 0o600);
    let server = Server::start(&stage, &["--token-file", path.to_str().unwrap()]).await;
    let (host, origin) = (server.host(), server.origin());
    let mut slow = Vec::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(&host).await.unwrap();
        let head = format!(
            "POST /login HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n\
             Content-Length: 12\r\nExpect: 100-continue\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // The server sends 100 Continue when it starts to read the body.
        let mut asked = [0; 12];
        stream.read_exact(&mut asked).await.unwrap();
        assert_eq!(&asked, b"HTTP/1.1 100");
        slow.push(stream);
    }
    let own = ("Origin", origin.as_str());
    let begun = Instant::now();
    let entered = server
        .request("POST", "/login", &[own], "token=s3cret")
        .await;
    assert_eq!(entered.code, 303);
    // The server waits 5 s for a body.
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(2500), "{took:?}");
}

#[tokio::test]
async fn a_wrong_token_takes_its_time_in_a_header_too() {
    let stage = shared_stage().await;
    let directory = tempfile::tempdir().unwrap();
    let path = token(directory.path(), "s3cret", 0o600);
    let server = Server::start(&stage, &["--token-file", path.to_str().unwrap()]).await;
    let begun = Instant::now();
    let wrong = ("Authorization", "Bearer s3cre");
    let answer = server.request("GET", "/events", &[wrong], "").await;
    assert_eq!(answer.code, 401);
    assert!(begun.elapsed() >= Duration::from_millis(500));
}

/// The server keeps two more connections than this: one for a probe, and one for a visitor.
const FLOOD: usize = 62;
/// The source address of the flood. All of 127.0.0.0/8 is local.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Sends wrong tokens from one address without pause, on [`FLOOD`] connections, until dropped.
struct Flood {
    _connections: JoinSet<()>,
    answers: watch::Receiver<Vec<String>>,
}

impl Flood {
    /// Starts the flood. Returns once the server has refused a wrong token.
    async fn of(server: &Server, from: Ipv4Addr) -> Self {
        let (answered, answers) = watch::channel(Vec::new());
        let mut connections = JoinSet::new();
        for _ in 0..FLOOD {
            let (host, answered) = (server.host(), answered.clone());
            connections.spawn(async move {
                loop {
                    // The server may close this connection to make room for others.
                    let head = guess(&host, from).await;
                    answered.send_modify(|answers| answers.extend(head.ok()));
                }
            });
        }
        let mut flood = Self {
            _connections: connections,
            answers,
        };
        flood.answered("HTTP/1.1 401").await;
        flood
    }

    async fn answered(&mut self, start: &str) -> String {
        let is_it = |answer: &&String| answer.starts_with(start);
        let answered = self
            .answers
            .wait_for(|all| all.iter().any(|one| is_it(&one)));
        let all = timeout(2 * LONG, answered).await.expect("an answer");
        all.unwrap().iter().find(is_it).unwrap().clone()
    }
}

/// Sends a wrong token. Returns the status line and headers of the answer.
async fn guess(host: &str, from: Ipv4Addr) -> io::Result<String> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let mut stream = socket.connect(host.parse().unwrap()).await?;
    let request = format!(
        "GET /document?name=x HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
         Authorization: Bearer wrong\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let head = answer.split_once("\r\n\r\n").map(|(head, _)| head);
    head.map(str::to_owned)
        .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

#[tokio::test]
async fn wrong_tokens_of_one_address_delay_no_other() {
    let stage = shared_stage().await;
    let directory = tempfile::tempdir().unwrap();
    let path = token(directory.path(), "s3cret", 0o600);
    let server = Server::start(&stage, &["--token-file", path.to_str().unwrap()]).await;
    let origin = server.origin();
    let _flood = Flood::of(&server, ELSEWHERE).await;
    let begun = Instant::now();
    let bearer = ("Authorization", "Bearer s3cret");
    assert_eq!(server.request("GET", "/", &[bearer], "").await.code, 200);
    let own = [("Origin", origin.as_str())];
    let entered = server.request("POST", "/login", &own, "token=s3cret");
    assert_eq!(entered.await.code, 303);
    // The limit is half of GUESS_WAIT_MAX, the longest time that a request may queue behind
    // requests with wrong tokens.
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(2500), "{took:?}");
}

#[tokio::test]
async fn an_address_that_floods_gets_429_and_keeps_its_open_stream() {
    let stage = shared_stage().await;
    let directory = tempfile::tempdir().unwrap();
    let path = token(directory.path(), "s3cret", 0o600);
    let server = Server::start(&stage, &["--token-file", path.to_str().unwrap()]).await;
    let bearer = "Authorization: Bearer s3cret\r\n";
    let mut events = Events::open(&server, bearer).await;
    events.next().await.expect("a stream");
    let mut flood = Flood::of(&server, Ipv4Addr::LOCALHOST).await;
    let refused = flood.answered("HTTP/1.1 429");
    let stays = async {
        loop {
            let before = Instant::now();
            events.next().await.expect("the stream continues");
            // After 6 s without an event, the page would consider the connection lost.
            assert!(before.elapsed() < Duration::from_secs(5));
        }
    };
    let refused = tokio::select! {
        refused = refused => refused,
        () = stays => unreachable!(),
    };
    assert!(refused.contains("\r\nretry-after: "), "{refused}");
}

#[tokio::test]
async fn a_fifo_in_place_of_the_token_file_stalls_no_request() {
    let stage = shared_stage().await;
    let directory = tempfile::tempdir().unwrap();
    let path = token(directory.path(), "s3cret", 0o600);
    let server = Server::start(&stage, &["--token-file", path.to_str().unwrap()]).await;
    let bearer = ("Authorization", "Bearer s3cret");
    let visit = async || server.request("GET", "/", &[bearer], "").await.code;
    assert_eq!(visit().await, 200);
    fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo")
        .args(["--mode=600"])
        .arg(&path)
        .status();
    assert!(made.unwrap().success());
    assert_eq!(visit().await, 303, "no visitor is admitted");
    assert_eq!(server.get("/livez").await.code, 200);
    fs::remove_file(&path).unwrap();
    token(directory.path(), "another", 0o600);
    assert_eq!(visit().await, 303);
    token(directory.path(), "s3cret", 0o600);
    assert_eq!(visit().await, 200);
}

#[tokio::test]
async fn a_token_file_on_a_disk_that_hangs_stalls_no_request() {
    let stage = shared_stage().await;
    let directory = tempfile::tempdir().unwrap();
    let path = token(directory.path(), "s3cret", 0o600);
    let server = Server::start(&stage, &["--token-file", path.to_str().unwrap()]).await;
    let bearer = ("Authorization", "Bearer s3cret");
    let visit = async || server.request("GET", "/", &[bearer], "").await.code;
    assert_eq!(visit().await, 200);
    let mut events = Events::open(&server, "Authorization: Bearer s3cret\r\n").await;
    events.next().await.expect("a stream");
    let Some(hung) = HungDisk::over(directory.path()) else {
        skip("needs root, to mount a disk that hangs");
        return;
    };
    let others = async {
        for _ in 0..10 {
            assert_eq!(server.get("/livez").await.code, 200);
            assert_eq!(server.get("/login").await.code, 200);
        }
    };
    let visits = async { tokio::join!(visit(), visit(), visit()) };
    let (codes, ()) = tokio::join!(visits, others);
    assert_eq!(codes, (303, 303, 303), "no visitor is admitted");
    events.ended().await;
    drop(hung);
    eventually("visitors are admitted again", async || visit().await == 200).await;
}

#[tokio::test]
async fn an_address_for_others_or_a_bad_token_file_is_refused_at_the_start() {
    let stage = shared_stage().await;
    let uri = stage.set().uri();
    let directory = tempfile::tempdir().unwrap();
    let web = async |flags: &[&str]| {
        let arguments = [&["web"], flags].concat();
        run(stage.command(&uri, &arguments)).await
    };
    let (code, said) = web(&["--listen", "0.0.0.0:0"]).await;
    assert!(
        code == 64 && said.contains("give --token-file FILE"),
        "{code} {said}"
    );
    for (text, mode, why) in [("", 0o600, "it is empty"), ("x", 0o604, "chmod o=")] {
        let path = token(directory.path(), text, mode);
        let (code, said) = web(&[
            "--listen=127.0.0.1:0",
            "--token-file",
            path.to_str().unwrap(),
        ])
        .await;
        assert!(code == 78 && said.contains(why), "{code} {said}");
    }
    let (code, said) = web(&["--listen=127.0.0.1:0", "--token-file", "/nowhere/token"]).await;
    assert!(
        code == 78 && said.contains("create it with a token"),
        "{code} {said}"
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let (code, said) = web(&["--listen", &taken]).await;
    assert!(
        code == 78 && said.contains("to fix: set --listen to a free address"),
        "{code} {said}"
    );
    let (code, said) = web(&["--by", "x"]).await;
    assert!(
        code == 64 && said.contains("--allow-actions"),
        "{code} {said}"
    );
}
