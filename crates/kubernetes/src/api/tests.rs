//! Goal: verify the requests and the interpretation of answers. Method: a function acts as the API
//! server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use hyper::Response;
use kube::client::Body;
use leasehold_testbed::Certificates;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tower::BoxError;
use tower::util::service_fn;

use super::*;

type Asked = Arc<Mutex<Vec<Request<Body>>>>;

/// Returns an API server with a fixed answer, the log of its requests, and the number of clients
/// that were built.
fn server(
    status: u16,
    headers: &'static [(&'static str, &'static str)],
    body: &'static str,
) -> (Api, Asked, Arc<AtomicUsize>) {
    let asked = Asked::default();
    let made = Arc::new(AtomicUsize::new(0));
    let (log, count) = (Arc::clone(&asked), Arc::clone(&made));
    let api = Api::over("https://api".to_owned(), move || {
        count.fetch_add(1, Ordering::SeqCst);
        let log = Arc::clone(&log);
        let answer = service_fn(move |request: Request<Body>| {
            log.lock().unwrap().push(request);
            let mut answer = Response::builder().status(status);
            for (name, value) in headers {
                answer = answer.header(*name, *value);
            }
            let answer = answer.body(Body::from(body.as_bytes().to_vec())).unwrap();
            async move { Ok::<_, BoxError>(answer) }
        });
        Ok(Client::new(answer, "shop"))
    });
    (api, asked, made)
}

fn credentials(authority: &Certificates) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::copy(authority.authority(), directory.path().join("ca.crt")).unwrap();
    std::fs::write(directory.path().join("token"), "secret\n").unwrap();
    directory
}

fn api_at(host: &str, port: &str, credentials: &Path) -> Api {
    Api::new(Access::find(Some(host), Some(port), credentials).unwrap())
}

fn request() -> Request<Vec<u8>> {
    Request::patch("/api/v1/namespaces/shop/pods/a/status")
        .body(b"{}".to_vec())
        .unwrap()
}

async fn error(
    status: u16,
    headers: &'static [(&'static str, &'static str)],
    body: &'static str,
) -> ApiError {
    let (api, ..) = server(status, headers, body);
    api.send(request()).await.unwrap_err()
}

#[tokio::test]
async fn a_request_is_sent_once() {
    let (api, asked, _) = server(200, &[], "{}");
    assert_eq!(api.send(request()).await.unwrap(), "{}");
    let asked = asked.lock().unwrap();
    assert_eq!(
        asked.len(),
        1,
        "a single request: no read before the write, no retry"
    );
    assert_eq!(asked[0].method(), "PATCH");
}

#[tokio::test]
async fn answers_are_distinguished() {
    let uid =
        r#"{"details": {"causes": [{"reason": "FieldValueInvalid", "field": "metadata.uid"}]}}"#;
    let policy = r#"{"message": "a policy says no to metadata.uid"}"#;
    let cases = [
        (401, "", ApiRetry::Again, false),
        (403, "", ApiRetry::Person, false),
        (404, "", ApiRetry::NewPod, false),
        (409, "", ApiRetry::Again, false),
        (422, uid, ApiRetry::NewPod, false),
        (422, policy, ApiRetry::Person, false),
        (422, "no json", ApiRetry::Person, false),
        (400, "", ApiRetry::Person, false),
        (500, "", ApiRetry::Again, true),
        (504, "", ApiRetry::Again, true),
    ];
    for (status, body, retry, may_land) in cases {
        let error = error(status, &[], body).await;
        let found = (error.status, error.retry, error.may_land);
        assert_eq!(found, (Some(status), retry, may_land), "{status} {body}");
    }
}

#[tokio::test]
async fn causes_that_are_null_are_none() {
    let body = r#"{"details": {"causes": null}}"#;
    assert_eq!(error(422, &[], body).await.retry, ApiRetry::Person);
}

#[tokio::test]
async fn a_pause_is_asked_for_in_seconds() {
    let asked = error(429, &[("retry-after", "7")], "").await;
    assert_eq!(asked.retry, ApiRetry::After(Duration::from_secs(7)));
    let asked = error(503, &[("retry-after", " 2 ")], "").await;
    assert_eq!(asked.retry, ApiRetry::After(Duration::from_secs(2)));
    for dateful in [&[][..], &[("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")]] {
        assert_eq!(error(429, dateful, "").await.retry, ApiRetry::Again);
    }
}

#[tokio::test]
async fn the_servers_own_words_are_not_passed_on() {
    let secret = r#"{"message": "token abc.def is wrong"}"#;
    for status in [401, 403, 422, 500] {
        let text = format!("{:?} {0}", error(status, &[], secret).await);
        assert!(!text.contains("abc"), "{text}");
    }
}

#[tokio::test]
async fn each_request_has_a_client_of_its_own() {
    for status in [200, 401, 403] {
        let (api, _, made) = server(status, &[], "");
        for _ in 0..3 {
            let _ = api.send(request()).await;
        }
        assert_eq!(made.load(Ordering::SeqCst), 3, "{status}");
    }
}

/// The test runs on one thread: if a request read its files there, the timeouts would block too.
#[tokio::test]
async fn a_disk_that_hangs_holds_up_nothing_but_its_requests() {
    let (disk, hangs) = std::sync::mpsc::channel::<()>();
    let (hangs, reads) = (Mutex::new(hangs), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&reads);
    let api = Api::over("https://api".to_owned(), move || {
        counted.fetch_add(1, Ordering::SeqCst);
        let _ = hangs.lock().unwrap().recv();
        Err(Unusable {
            what: "the token file cannot be used",
            why: "no disk".to_owned(),
        })
    });
    for _ in 0..3 {
        let sent = api.send(request());
        tokio::time::timeout(Duration::from_millis(50), sent)
            .await
            .unwrap_err();
    }
    assert_eq!(
        reads.load(Ordering::SeqCst),
        1,
        "only one thread waits for the disk"
    );
    drop(disk);
    let error = api.send(request()).await.unwrap_err();
    assert_eq!(error.to_string(), "the token file cannot be used: no disk");
}

/// Reading a pipe would block, and reading an endless file would take all memory.
#[tokio::test]
async fn only_regular_files_of_a_usual_size_are_credentials() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("ca.crt"), "").unwrap();
    std::fs::write(at("token"), "t").unwrap();
    let api = api_at("127.0.0.1", "1", directory.path());
    let what = async || {
        let error = api.send(request()).await.unwrap_err();
        let detail = error.detail.expect("the file and the cause");
        (error.what, detail)
    };
    for (name, expected) in [
        ("token", "the token file cannot be used"),
        ("ca.crt", "the certificate of the API server cannot be used"),
    ] {
        std::fs::remove_file(at(name)).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at(name), rustix::fs::Mode::RWXU).unwrap();
        let not_regular = format!("{}: it is not a regular file", at(name).display());
        assert_eq!(what().await, (expected, not_regular.clone()));
        std::fs::remove_file(at(name)).unwrap();
        std::os::unix::fs::symlink("/dev/zero", at(name)).unwrap();
        assert_eq!(what().await, (expected, not_regular));
        std::fs::remove_file(at(name)).unwrap();
        std::fs::write(at(name), "t").unwrap();
    }
}

#[tokio::test]
async fn an_unreadable_record_is_reported_and_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
    write("token", "t");
    write("ca.crt", "no certificate");
    let api = api_at("127.0.0.1", "1", directory.path());
    let what = async || api.send(request()).await.unwrap_err().what;
    let no_certificate = "the certificate of the API server cannot be used";
    assert_eq!(what().await, no_certificate);
    let authority = Certificates::new();
    std::fs::copy(authority.authority(), directory.path().join("ca.crt")).unwrap();
    std::fs::remove_file(directory.path().join("token")).unwrap();
    assert_eq!(what().await, "the token file cannot be used");
    for no_token in ["", " \n", "t\nt"] {
        write("token", no_token);
        let what = what().await;
        assert_eq!(what, "the token file cannot be used", "{no_token:?}");
    }
    write("token", "t\n");
    let unreachable = api.send(request()).await.unwrap_err().to_string();
    let refused = "the API server cannot be reached: connection refused";
    assert_eq!(unreachable, refused);
}

/// Starts a server at `address` with a certificate for 127.0.0.1. Returns its port and the head of
/// the only request that it answers. The head is empty if the client sent no request.
fn tls_server(authority: &Certificates, address: &str) -> (String, JoinHandle<String>) {
    let file = authority.server();
    let chain = CertificateDer::pem_file_iter(&file).unwrap();
    let key = PrivateKeyDer::from_pem_file(&file).unwrap();
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain.map(Result::unwrap).collect(), key)
        .unwrap();
    let listener = TcpListener::bind((address, 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let asked = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let session = ServerConnection::new(Arc::new(config)).unwrap();
        let mut stream = BufReader::new(StreamOwned::new(session, socket));
        let mut head = String::new();
        while stream.read_line(&mut head).is_ok_and(|read| read > 2) {}
        if !head.is_empty() {
            stream.read_exact(&mut [0; 2]).unwrap();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone";
            stream.get_mut().write_all(answer).unwrap();
        }
        head
    });
    (port, asked)
}

#[tokio::test]
async fn the_token_is_sent_only_to_a_server_of_the_authority_in_ca_crt() {
    let (ours, another) = (Certificates::new(), Certificates::new());
    let directory = credentials(&ours);
    for (authority, is_trusted) in [(&another, false), (&ours, true)] {
        let (port, asked) = tls_server(authority, "127.0.0.1");
        let api = api_at("127.0.0.1", &port, directory.path());
        let answer = api.send(request()).await;
        let asked = asked.join().unwrap();
        if is_trusted {
            assert_eq!(answer.unwrap(), "done");
            assert!(asked.starts_with("PATCH /api/v1/namespaces/shop/pods/a/status "));
            let bearer = "\r\nauthorization: Bearer secret\r\n";
            assert!(asked.contains(bearer), "{asked}");
        } else {
            let error = answer.unwrap_err();
            let why = "the certificate of the API server is not signed by an authority in ca.crt";
            assert_eq!(error.what, why);
            assert!(!error.may_land);
            assert_eq!(asked, "");
        }
    }
}

#[tokio::test]
async fn a_wrong_server_name_and_a_server_without_tls_are_distinguished() {
    let authority = Certificates::new();
    let directory = credentials(&authority);
    let what = async |host: &str, port: &str| {
        let api = api_at(host, port, directory.path());
        api.send(request()).await.unwrap_err().what
    };

    // 127.0.0.2 also reaches this server, but is not in the certificate.
    let (port, asked) = tls_server(&authority, "127.0.0.2");
    let another_name = "the certificate of the API server is for another name";
    assert_eq!(what("127.0.0.2", &port).await, another_name);
    assert_eq!(asked.join().unwrap(), "");

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let plain = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .unwrap();
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let no_tls = "the TLS handshake with the API server failed";
    assert_eq!(what("127.0.0.1", &port).await, no_tls);
    plain.join().unwrap();
}

#[tokio::test]
async fn an_answer_without_end_is_not_read_to_its_end() {
    let endless = "x".repeat(ANSWER_BYTES_MAX + 1);
    let (api, _, _) = server(200, &[], endless.leak());
    // The status shows that the request succeeded.
    assert_eq!(api.send(request()).await.unwrap(), "");
}
