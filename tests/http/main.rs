//! Goal: every HTTP response is true at some instant during the request (I4), and no client can
//! exhaust the daemon. Method: sends raw bytes to a real listener on a loopback port.

#![allow(
    clippy::unwrap_used,
    reason = "a fixture that fails should end its test"
)]

mod bounds;
mod confirmation;
mod events;
mod stream_bounds;
mod truth;
mod wait;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use leasehold::admin::{AdminState, ReadyWhen, Streams, bind};
use leasehold::clock::boot_now;
use leasehold::election::{
    Authority, HolderView, Identity, Input, ResourceName, Role, Session, Status, StoreAnswer, Token,
};
use leasehold::publish::metrics::Metrics;
use leasehold::publish::render::Identification;
use leasehold::publish::{StoreError, StoreInfo};
use tokio::sync::{mpsc, oneshot, watch};

struct Served {
    address: SocketAddr,
    status: watch::Sender<Status>,
    inputs: mpsc::Receiver<Input>,
    store_error: watch::Sender<Option<StoreError>>,
    streams: Streams,
    /// Number of receivers of the status while no request is in progress.
    receivers: usize,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn token(n: i64) -> Token {
    Token::new(n).unwrap()
}

fn status(role: Role) -> Status {
    Status {
        role,
        store: StoreAnswer::Usable,
        token_highest: token(7),
        ..Status::initial(Session::from_bytes([1; 16]), boot_now())
    }
}

fn held_by(identity: &str, left: Duration) -> Option<HolderView> {
    Some(HolderView {
        identity: Identity::new(identity).unwrap(),
        token: token(7),
        until: boot_now() + left,
        unconfirmed: false,
    })
}

fn leader(left: Duration) -> Status {
    Status {
        authority: Some(Authority {
            token: token(7),
            valid_until: boot_now() + left,
        }),
        holder: held_by("me", left),
        ..status(Role::Leader)
    }
}

fn serve(first: Status, ready_when: ReadyWhen) -> Served {
    serve_on(([127, 0, 0, 1], 0).into(), first, ready_when)
}

fn serve_on(address: SocketAddr, first: Status, ready_when: ReadyWhen) -> Served {
    let who = Identification {
        lease: ResourceName::new("orders").unwrap(),
        identity: Identity::new("me").unwrap(),
        boot_id: Some("b1".to_owned()),
    };
    let (sender, status) = watch::channel(first);
    let (_, store) = watch::channel(Some(StoreInfo {
        set: Some("rs0".to_owned()),
        database: "leasehold".to_owned(),
        collection: "leases".to_owned(),
        ..StoreInfo::default()
    }));
    let metrics = Metrics::new(&who, status.clone(), store.clone()).unwrap();
    let (store_error, current_error) = watch::channel(None);
    let (sender_of_inputs, inputs) = mpsc::channel(1);
    let state = AdminState {
        who,
        status,
        store,
        store_error: current_error,
        metrics,
        ready_when: watch::channel(ready_when).1,
        inputs: sender_of_inputs,
    };
    let receivers = sender.receiver_count();
    let bound = bind(address).unwrap();
    let (address, streams) = (bound.address(), bound.streams());
    let (stop, stopped) = oneshot::channel();
    let thread = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            tokio::select! {
                served = bound.serve(state) => panic!("{served:?}"),
                _ = stopped => {}
            }
        });
    });
    Served {
        address,
        status: sender,
        inputs,
        store_error,
        streams,
        receivers,
        stop: Some(stop),
        thread: Some(thread),
    }
}

/// Sends bytes and reads until the server closes the connection.
fn raw(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    // A server that refuses early may close the connection before it has read the request.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error}"),
    }
    String::from_utf8(answer).unwrap()
}

impl Served {
    /// Returns the status code, the head and the body of the response.
    fn ask_with(&self, line: &str, headers: &str, body: &str) -> (u16, String, String) {
        let length = body.len();
        let answer = raw(
            self.address,
            format!(
                "{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
            )
            .as_bytes(),
        );
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let code = head[9..12].parse().unwrap();
        (code, head.to_owned(), body.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String) {
        let (code, _, body) = self.ask_with(&format!("GET {path}"), "", "");
        (code, body)
    }

    fn confirm(&self, query: &str) -> u16 {
        self.ask_with(&format!("POST /stepped-down{query}"), "", "")
            .0
    }
}
