//! Goal: verify that a delay has its configured length, between the configured hosts and between
//! members, and that other connections have no delay. Method: measure pings through the forwarder,
//! and from hosts in network namespaces (needs root).

#![allow(clippy::unwrap_used)] // A failed unwrap fails the test.
#![allow(clippy::disallowed_methods)] // The test measures with its own clocks.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use leasehold_testbed::forwarder::{Forwarder, Route, Weather};
use leasehold_testbed::network::{self, Network, Node, private_directories};
use leasehold_testbed::skip;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const LATENCY: Duration = Duration::from_millis(40);
const ROUND_TRIP: Duration = Duration::from_millis(80);
const PINGS: usize = 3;
/// Environment variable that marks the process inside the new namespaces.
const INSIDE: &str = "LEASEHOLD_TESTBED_INSIDE";

fn echo(listener: TcpListener) {
    for mut stream in listener.incoming().flatten() {
        stream.set_nodelay(true).unwrap();
        thread::spawn(move || {
            let mut byte = [0];
            while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
        });
    }
}

/// Connects and sends pings. Returns the time until the first reply, and the shortest round-trip
/// time of the later pings.
fn ping(address: SocketAddr) -> [Duration; 2] {
    let begin = Instant::now();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut once = || {
        stream.write_all(&[1]).unwrap();
        stream.read_exact(&mut [0]).unwrap();
    };
    once();
    let first = begin.elapsed();
    let later = (0..PINGS).map(|_| {
        let begin = Instant::now();
        once();
        begin.elapsed()
    });
    [first, later.min().unwrap()]
}

#[track_caller]
fn assert_delayed([first, min]: [Duration; 2]) {
    assert!(min >= ROUND_TRIP, "a ping took {min:?}");
    // The handshake adds another round trip.
    assert!(first >= 2 * ROUND_TRIP, "the first ping took {first:?}");
}

#[test]
fn a_ping_takes_the_round_trip_time_and_a_connection_another_one() {
    let target = TcpListener::bind("127.0.0.1:0").unwrap();
    let direct = target.local_addr().unwrap();
    thread::spawn(move || echo(target));
    // The forwarder binds its own ports, so find a free port and release it.
    let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let listen = listen.unwrap();
    let target = direct;
    let forwarder = Forwarder::start(&[Route { listen, target }]).unwrap();

    let [_, min] = ping(listen);
    assert!(min < ROUND_TRIP, "no delay is set, but a ping took {min:?}");

    forwarder.set(
        0,
        Weather {
            latency: LATENCY,
            loss: 0.0,
        },
    );
    assert_delayed(ping(listen));

    forwarder.set(
        0,
        Weather {
            latency: LATENCY,
            loss: 1.0,
        },
    );
    let retransmitted = ROUND_TRIP * 2 + Duration::from_millis(400);
    let [_, min] = ping(listen);
    assert!(min >= retransmitted, "a lossy ping took {min:?}");
}

#[test]
fn connections_of_the_hosts_that_have_a_route_are_delayed() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    if !rustix::process::geteuid().is_root() {
        return skip("needs root, for network namespaces");
    }
    let name = "connections_of_the_hosts_that_have_a_route_are_delayed";
    let status = network::alone(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .status();
    assert!(status.unwrap().success());
}

fn on<T: Send + 'static>(node: Node, work: impl FnOnce() -> T + Send + 'static) -> T {
    let path = Path::new("/run/netns").join(node.namespace());
    let (sender, result) = mpsc::channel();
    thread::spawn(move || {
        let namespace = File::open(path).unwrap();
        let network = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(namespace.as_fd(), network).unwrap();
        sender.send(work()).unwrap();
    });
    result.recv().unwrap()
}

/// Tests two regions: one has a member and a client, the other only a member.
fn inside() {
    private_directories().unwrap();
    let mut network = Network::new(2, 1).unwrap();
    let members = [0, 1].map(Node::Member);
    let addresses = members.map(|member| {
        let ip = member.host().address;
        let listener = on(member, move || TcpListener::bind((ip, 0)).unwrap());
        let address = listener.local_addr().unwrap();
        thread::spawn(move || echo(listener));
        address
    });
    let pairs = [(members[0], 1), (members[1], 0), (Node::Client(0), 1)];
    let ports = addresses.map(|address| address.port());
    network.forward(&ports, &pairs).unwrap();
    for (from, _) in pairs {
        let latency = LATENCY;
        network.weather(from, Weather { latency, loss: 0.0 });
    }

    for (from, to) in pairs {
        assert_delayed(on(from, move || ping(addresses[to])));
        let route = network.route(from, to).unwrap();
        assert_delayed(ping(route));
    }
    assert_eq!(network.route(Node::Client(0), 0), None);
    let [_, min] = on(Node::Client(0), move || ping(addresses[0]));
    assert!(min < ROUND_TRIP, "one region, but a ping took {min:?}");

    let cut = [(members[0], members[1])];
    network.cut(&cut).unwrap();
    let timeout = ROUND_TRIP * 4;
    let refused = on(members[0], move || {
        TcpStream::connect_timeout(&addresses[1], timeout).is_err()
    });
    assert!(refused, "a cut between members has no effect");
    network.mend(&cut).unwrap();
    assert_delayed(on(members[0], move || ping(addresses[1])));
}
