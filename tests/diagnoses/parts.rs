//! Starts the servers that all situations share.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use leasehold_testbed::{Certificates, Kubernetes, Proxy, ReplicaSet, ReservedPort};
use mongodb::bson::doc;

pub(crate) const SET: &str = "testbed";

pub(crate) struct Parts {
    /// A set that requires users and TLS client certificates.
    pub(crate) guarded: ReplicaSet,
    pub(crate) open: ReplicaSet,
    /// A standalone server whose connections are all in use.
    pub(crate) full: ReplicaSet,
    /// Connections that use up the limit of `full`.
    _filling: Vec<TcpStream>,
    pub(crate) standalone: ReplicaSet,
    /// Two standalone servers with unsuitable certificates: one with a CA certificate, the other
    /// with a client certificate.
    pub(crate) mistaken: [ReplicaSet; 2],
    /// The CA that signed both certificates.
    pub(crate) issuer: Certificates,
    /// A set whose only member has stepped down, so that the set has no primary.
    pub(crate) deposed: ReplicaSet,
    pub(crate) kubernetes: Kubernetes,
    /// A proxy in front of `open` that accepts connections but forwards nothing.
    pub(crate) holding: Proxy,
    /// A proxy in front of `open` that closes connections.
    pub(crate) cutting: Proxy,
    pub(crate) closed: ReservedPort,
    pub(crate) web: SocketAddr,
    /// Forwards to the guarded set. The set's certificate does not name this address.
    pub(crate) alias: SocketAddr,
}

impl Parts {
    pub(crate) async fn start() -> Self {
        let one = || ReplicaSet::builder().members(1);
        let guarded = one().tls().auth().client_certificates();
        let issuer = Certificates::new();
        // TLS is optional for these servers, because the testbed's own client would refuse their
        // certificates.
        let with = |certificate: PathBuf| {
            let flags: [OsString; 7] = [
                "--tlsMode".into(),
                "preferTLS".into(),
                "--tlsCAFile".into(),
                issuer.authority().into(),
                "--tlsCertificateKeyFile".into(),
                certificate.into(),
                "--tlsAllowConnectionsWithoutCertificates".into(),
            ];
            ReplicaSet::builder().standalone().flags(flags).start()
        };
        let full = ReplicaSet::builder().standalone();
        let full = full.flags(["--maxConns", "20"]).start();
        let (guarded, open, standalone, deposed, kubernetes, authority, client, full) = tokio::join!(
            guarded.start(),
            one().start(),
            ReplicaSet::builder().standalone().start(),
            one().start(),
            Kubernetes::start(),
            with(issuer.authority_as_server()),
            with(issuer.client_as_server()),
            full,
        );
        let step_down = doc! { "replSetStepDown": 600, "force": true };
        // The server may close the connection before it answers.
        let _ = deposed.command(0, step_down).await;
        let (holding, cutting) = (open.proxy(), open.proxy());
        holding.stall();
        cutting.cut();
        let alias = forward(guarded.node(0).port());
        Self {
            guarded,
            open,
            _filling: fill(full.node(0).port()),
            full,
            standalone,
            mistaken: [authority, client],
            issuer,
            deposed,
            kubernetes,
            holding,
            cutting,
            closed: ReservedPort::new(),
            web: web(),
            alias,
        }
    }
}

/// Opens connections until the server immediately closes a new connection. Returns the open
/// connections.
fn fill(port: u16) -> Vec<TcpStream> {
    use std::io::Read;
    /// Longer than a server needs to close a refused connection. If a busy server takes longer, the
    /// loop merely opens more connections.
    const CLOSED_WITHIN: Duration = Duration::from_millis(200);
    let mut kept = Vec::new();
    loop {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_read_timeout(Some(CLOSED_WITHIN)).unwrap();
        let is_open = match stream.read(&mut [0]) {
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
            Ok(_) => false,
        };
        if !is_open {
            return kept;
        }
        kept.push(stream);
    }
}

fn web() -> SocketAddr {
    use std::io::{Read, Write};
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut request = [0; 1024];
            let _ = client.read(&mut request);
            let _ = client.write_all(
                b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
            );
        }
    });
    address
}

fn forward(port: u16) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let pass = |mut from: TcpStream, mut to: TcpStream| {
        thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Both);
        });
    };
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else {
                continue;
            };
            pass(client.try_clone().unwrap(), server.try_clone().unwrap());
            pass(server, client);
        }
    });
    address
}
