//! Simulates hosts as network namespaces on one bridge, and cuts or delays their traffic.
//!
//! A cut is a netfilter rule that drops packets, so connections are neither closed nor reset. Many
//! kernels lack netem, so a forwarder adds the delays. Connections from hosts to members, and
//! between members, are redirected through the forwarder.
//!
//! The process that creates the network must be alone in its namespaces; see [`UNSHARE`].

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::forwarder::{Forwarder, Route, Weather};
use crate::{Failure, Host};

/// The `unshare` arguments that run a program in its own namespaces. Append the program and its
/// arguments. When the program ends, no process, address or mount remains.
pub const UNSHARE: [&str; 7] = [
    "--net",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--",
];

/// Returns a command that runs `program` in its own namespaces ([`UNSHARE`]). The namespaces also
/// end when the thread that starts the command ends.
pub fn alone(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "unshare"]);
    command.args(UNSHARE).arg(program);
    command
}

/// First port of the forwarder. Each route has its own port.
const FORWARDER_PORT: u16 = 40_000;

/// A host in the simulated network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// The host of a member of the set.
    Member(usize),
    /// The host of a candidate or a job loop.
    Client(usize),
    /// The host of the API server.
    Server,
}

impl Node {
    /// Returns the name of the network namespace.
    pub fn namespace(self) -> String {
        match self {
            Self::Member(number) => format!("m{number}"),
            Self::Client(number) => format!("c{number}"),
            Self::Server => "s".to_owned(),
        }
    }

    fn address(self) -> Ipv4Addr {
        match self {
            Self::Member(number) => Ipv4Addr::new(10, 77, 1, octet(number)),
            Self::Client(number) => Ipv4Addr::new(10, 77, 2, octet(number)),
            Self::Server => Ipv4Addr::new(10, 77, 3, 1),
        }
    }

    /// Returns the network namespace of this node and its address.
    pub fn host(self) -> Host {
        Host {
            namespace: self.namespace(),
            address: self.address(),
        }
    }
}

fn octet(number: usize) -> u8 {
    u8::try_from(number + 1).expect("few hosts")
}

/// Address of this process on the bridge.
const HERE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// The hosts and their traffic.
#[derive(Debug)]
pub struct Network {
    members: usize,
    clients: usize,
    routes: Vec<(Node, Route)>,
    /// Pairs of hosts; packets from the first to the second are dropped. Each cut adds its pairs,
    /// so a pair may occur more than once.
    cuts: Mutex<Vec<(Node, Node)>>,
    forwarder: Option<Forwarder>,
}

impl Network {
    /// Creates the hosts. This process must be alone in its network and mount namespaces.
    ///
    /// # Errors
    /// If a host cannot be created.
    pub fn new(members: usize, clients: usize) -> Result<Self, Failure> {
        ip("link set lo up")?;
        ip("link add hosts type bridge")?;
        ip(&format!("addr add {HERE}/16 dev hosts"))?;
        ip("link set hosts up")?;
        let network = Self {
            members,
            clients,
            routes: Vec::new(),
            cuts: Mutex::new(Vec::new()),
            forwarder: None,
        };
        for node in network.nodes() {
            let (name, address) = (node.namespace(), node.address());
            ip(&format!("netns add {name}"))?;
            ip(&format!(
                "link add {name} type veth peer name eth0 netns {name}"
            ))?;
            ip(&format!("link set {name} master hosts up"))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} addr add {address}/16 dev eth0"))?;
            ip(&format!("-n {name} link set eth0 up"))?;
        }
        Ok(network)
    }

    fn nodes(&self) -> Vec<Node> {
        let members = (0..self.members).map(Node::Member);
        let clients = (0..self.clients).map(Node::Client);
        members.chain(clients).chain([Node::Server]).collect()
    }

    /// Returns the hosts for the members of the replica set.
    pub fn member_hosts(&self) -> Vec<Host> {
        (0..self.members)
            .map(|number| Node::Member(number).host())
            .collect()
    }

    /// Redirects new connections through the forwarder, for each pair of a host and a member.
    /// `ports` are the members' ports.
    ///
    /// # Errors
    /// If the forwarder cannot listen, or a rule cannot be set.
    pub fn forward(&mut self, ports: &[u16], pairs: &[(Node, usize)]) -> Result<(), Failure> {
        let route = |(listen, (from, member)): (u16, &(Node, usize))| {
            let route = Route {
                listen: (HERE, listen).into(),
                target: (Node::Member(*member).address(), ports[*member]).into(),
            };
            (*from, route)
        };
        self.routes = (FORWARDER_PORT..).zip(pairs).map(route).collect();
        let routes: Vec<_> = self.routes.iter().map(|(_, route)| *route).collect();
        self.forwarder = Some(Forwarder::start(&routes)?);
        let nodes: BTreeSet<_> = pairs.iter().map(|(from, _)| *from).collect();
        nodes.into_iter().try_for_each(|node| self.apply(node))
    }

    /// Sets the delay and the loss of all routes from a host.
    pub fn weather(&self, from: Node, weather: Weather) {
        let of_host = self.routes.iter().enumerate();
        let of_host = of_host.filter(|(_, (host, _))| *host == from);
        for (index, _) in of_host {
            let forwarder = self.forwarder.iter();
            forwarder.for_each(|forwarder| forwarder.set(index, weather));
        }
    }

    /// Returns the forwarder's address for the route from `from` to a member, or `None` if there is
    /// no route.
    pub fn route(&self, from: Node, member: usize) -> Option<SocketAddr> {
        let address = Node::Member(member).address();
        let leads = |(host, route): &&(Node, Route)| *host == from && route.target.ip() == address;
        let found = self.routes.iter().find(leads);
        found.map(|(_, route)| route.listen)
    }

    /// Drops all packets in one direction, until [`mend`](Self::mend).
    ///
    /// # Errors
    /// If a rule cannot be set.
    ///
    /// # Panics
    /// If another thread panicked during a cut.
    pub fn cut(&self, pairs: &[(Node, Node)]) -> Result<(), Failure> {
        let mut cuts = self.cuts.lock().expect("no holder panics");
        cuts.extend(pairs);
        drop(cuts);
        self.apply_all(pairs)
    }

    /// Ends a cut.
    ///
    /// # Errors
    /// If a rule cannot be set.
    ///
    /// # Panics
    /// If another thread panicked during a cut.
    pub fn mend(&self, pairs: &[(Node, Node)]) -> Result<(), Failure> {
        let mut cuts = self.cuts.lock().expect("no holder panics");
        for pair in pairs {
            if let Some(index) = cuts.iter().position(|cut| cut == pair) {
                cuts.swap_remove(index);
            }
        }
        drop(cuts);
        self.apply_all(pairs)
    }

    fn apply_all(&self, pairs: &[(Node, Node)]) -> Result<(), Failure> {
        let nodes: BTreeSet<_> = pairs.iter().flat_map(|(from, to)| [*from, *to]).collect();
        nodes.into_iter().try_for_each(|node| self.apply(node))
    }

    /// Replaces the netfilter rules of a host.
    fn apply(&self, node: Node) -> Result<(), Failure> {
        let cuts = self.cuts.lock().expect("no holder panics").clone();
        let towards = cuts.iter().filter(|(from, _)| *from == node);
        let out = towards.map(|(_, to)| format!("ip daddr {} drop\n", to.address()));
        let from = cuts.iter().filter(|(_, to)| *to == node);
        // Replies through the forwarder have the forwarder's address, so match the original
        // destination.
        let into = from.map(|(from, _)| {
            let address = from.address();
            format!("ip saddr {address} drop\nct original ip daddr {address} drop\n")
        });
        let routes = self.routes.iter().filter(|(from, _)| *from == node);
        let nat = routes.map(|(_, Route { listen, target })| {
            let (address, port) = (target.ip(), target.port());
            format!("ip daddr {address} tcp dport {port} dnat to {listen}\n")
        });
        let (out, into): (String, String) = (out.collect(), into.collect());
        rules(node, &out, &into, &nat.collect::<String>())
    }
}

fn rules(node: Node, out: &str, into: &str, nat: &str) -> Result<(), Failure> {
    let text = format!(
        "table ip testbed {{}}\ndelete table ip testbed\ntable ip testbed {{\n\
         chain out {{ type filter hook output priority -300; policy accept;\n{out}}}\n\
         chain into {{ type filter hook input priority -300; policy accept;\n{into}}}\n\
         chain lead {{ type nat hook output priority -100; policy accept;\n{nat}}}\n}}\n"
    );
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &node.namespace(), "nft", "-f", "-"]);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let failed = |error| Failure::new(format!("cannot start nft: {error}"));
    let mut child = command.spawn().map_err(failed)?;
    let mut input = child.stdin.take().expect("its input is a pipe");
    let written = input.write_all(text.as_bytes());
    drop(input);
    let output = child.wait_with_output().map_err(failed)?;
    match written.is_ok() && output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(Failure::new(format!("nft: {said}\n{text}")))
        }
    }
}

/// Mounts empty directories over /dev/shm (in-memory files) and /run (names of network namespaces).
/// The mounts end with the mount namespace.
///
/// # Errors
/// If the directories cannot be mounted.
pub fn private_directories() -> Result<(), Failure> {
    for directory in ["/dev/shm", "/run"] {
        run("mount", &format!("-t tmpfs testbed {directory}"))?;
    }
    run("mkdir", "/run/netns")
}

fn ip(arguments: &str) -> Result<(), Failure> {
    run("ip", arguments)
}

fn run(program: &str, arguments: &str) -> Result<(), Failure> {
    let output = Command::new(program).args(arguments.split(' ')).output();
    let output =
        output.map_err(|error| Failure::new(format!("cannot start {program}: {error}")))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "{program} {arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        ))),
    }
}
