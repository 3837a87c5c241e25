//! The hosts: network namespaces on one bridge, and what cuts and delays their traffic.
//!
//! Cuts are netfilter rules that drop packets, so that nothing is refused and connections stay open.
//! The kernel of many machines has no netem, so delays are made by a forwarder: the connections from
//! the daemons' hosts to the members lead through it.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use leasehold_testbed::{Failure, Host};

use crate::forwarder::{Forwarder, Route, Weather};

/// First port of the forwarder; one for each host and member.
const FORWARDER_PORT: u16 = 40_000;
/// Members have fewer.
const PORTS_PER_HOST: u16 = 10;

/// A host, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Node {
    /// The host of a member of the set.
    Member(usize),
    /// The host of a candidate or of a loop of jobs.
    Client(usize),
    /// The host of the API server.
    Server,
}

impl Node {
    pub(crate) fn namespace(self) -> String {
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

    /// Returns the host for what runs there.
    pub(crate) fn host(self) -> Host {
        Host {
            namespace: self.namespace(),
            address: self.address(),
        }
    }
}

fn octet(number: usize) -> u8 {
    u8::try_from(number + 1).expect("few hosts")
}

/// Address of this process.
const HERE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// The hosts and their traffic.
pub(crate) struct Network {
    members: usize,
    clients: usize,
    /// Ports of the members, once they are known.
    ports: Vec<u16>,
    /// Pairs whose packets in this direction are dropped; each as often as it is cut.
    cuts: Mutex<Vec<(Node, Node)>>,
    forwarder: Option<Forwarder>,
}

impl Network {
    /// Makes the hosts. This process must be alone in its network and mount namespaces.
    pub(crate) fn new(members: usize, clients: usize) -> Result<Self, Failure> {
        ip("link set lo up")?;
        ip("link add hosts type bridge")?;
        ip(&format!("addr add {HERE}/16 dev hosts"))?;
        ip("link set hosts up")?;
        let network = Self {
            members,
            clients,
            ports: Vec::new(),
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

    /// Returns the hosts for the members of the set.
    pub(crate) fn member_hosts(&self) -> Vec<Host> {
        (0..self.members)
            .map(|number| Node::Member(number).host())
            .collect()
    }

    /// Leads the connections of the clients' hosts through the forwarder.
    pub(crate) fn forward(&mut self, ports: Vec<u16>) -> Result<(), Failure> {
        self.ports = ports;
        let routes = (0..self.clients)
            .flat_map(|client| (0..self.members).map(move |member| (client, member)));
        let routes = routes.map(|(client, member)| Route {
            client,
            listen: (HERE, forwarder_port(client, member)).into(),
            target: (Node::Member(member).address(), self.ports[member]).into(),
        });
        self.forwarder = Some(Forwarder::start(routes.collect(), self.clients)?);
        (0..self.clients).try_for_each(|client| self.apply(Node::Client(client)))
    }

    /// Sets the delay and the loss between a client's host and all members.
    pub(crate) fn weather(&self, client: usize, latency: Duration, loss: f64) {
        if let Some(forwarder) = &self.forwarder {
            forwarder.set(client, Weather { latency, loss });
        }
    }

    /// Drops all packets in one direction, until [`mend`](Self::mend).
    pub(crate) fn cut(&self, pairs: &[(Node, Node)]) -> Result<(), Failure> {
        let mut cuts = self.cuts.lock().expect("no holder panics");
        cuts.extend(pairs);
        drop(cuts);
        self.apply_all(pairs)
    }

    /// Ends a cut.
    pub(crate) fn mend(&self, pairs: &[(Node, Node)]) -> Result<(), Failure> {
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

    /// Replaces the rules of a host.
    fn apply(&self, node: Node) -> Result<(), Failure> {
        let cuts = self.cuts.lock().expect("no holder panics").clone();
        let towards = cuts.iter().filter(|(from, _)| *from == node);
        let out = towards.map(|(_, to)| format!("ip daddr {} drop\n", to.address()));
        let from = cuts.iter().filter(|(_, to)| *to == node);
        // Replies through the forwarder have its address.
        let into = from.map(|(from, _)| {
            let address = from.address();
            format!("ip saddr {address} drop\nct original ip daddr {address} drop\n")
        });
        let Node::Client(client) = node else {
            return rules(
                node,
                &out.collect::<String>(),
                &into.collect::<String>(),
                "",
            );
        };
        let nat = self.ports.iter().enumerate().map(|(member, port)| {
            format!(
                "ip daddr {} tcp dport {port} dnat to {HERE}:{}\n",
                Node::Member(member).address(),
                forwarder_port(client, member),
            )
        });
        let (out, into): (String, String) = (out.collect(), into.collect());
        rules(node, &out, &into, &nat.collect::<String>())
    }
}

fn forwarder_port(client: usize, member: usize) -> u16 {
    let offset = |number: usize| u16::try_from(number).expect("few hosts");
    FORWARDER_PORT + offset(client) * PORTS_PER_HOST + offset(member)
}

fn rules(node: Node, out: &str, into: &str, nat: &str) -> Result<(), Failure> {
    let text = format!(
        "table ip nemesis {{}}\ndelete table ip nemesis\ntable ip nemesis {{\n\
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

/// Covers directories with empty ones, which end with the mount namespace: that of files in memory,
/// and that of the names of network namespaces.
pub(crate) fn private_directories() -> Result<(), Failure> {
    for directory in ["/dev/shm", "/run"] {
        run("mount", &format!("-t tmpfs nemesis {directory}"))?;
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
