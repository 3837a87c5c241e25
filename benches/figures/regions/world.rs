//! Simulates the regions: a replica set whose members are far apart, and clients in each region.

use std::cell::Cell;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_testbed::daemon::boottime_ns;
use leasehold_testbed::forwarder::Weather;
use leasehold_testbed::network::{Network, Node};
use leasehold_testbed::{DaemonBuilder, ReplicaSet};
use mongodb::bson::{Bson, Document, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ChangeStreamEvent;
use mongodb::{Client, Collection};

use crate::floor::{seen, write};
use crate::launch::{Setup, nanos, seconds};

pub(super) const REGIONS: usize = 3;
const PREFERRED: usize = 0;
/// Maximum wait for a member with a higher priority. The member becomes the primary within seconds
/// after its return.
const SETTLED_MAX: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(100);

pub(super) struct World {
    pub(super) set: ReplicaSet,
    /// Round-trip time between any two regions.
    pub(super) round_trip: Duration,
    network: Network,
}

impl World {
    /// Starts the replica set, and delays each packet between two regions.
    pub(super) async fn start(setup: &Setup, round_trip: Duration) -> Self {
        let network = Network::new(REGIONS, REGIONS);
        let mut network = network.unwrap_or_else(|failure| panic!("{failure}"));
        let builder = ReplicaSet::builder().hosts(network.member_hosts());
        let set = setup.set_of(builder.default_election()).await;
        let ports: Vec<_> = (0..REGIONS).map(|member| set.node(member).port()).collect();
        let nodes = (0..REGIONS)
            .flat_map(|region| [Node::Member, Node::Client].map(|of| (of(region), region)));
        let nodes: Vec<_> = nodes.collect();
        let pairs = nodes.iter().flat_map(|(node, region)| {
            let others = (0..REGIONS).filter(move |member| member != region);
            others.map(|member| (*node, member))
        });
        let forwarded = network.forward(&ports, &pairs.collect::<Vec<_>>());
        forwarded.unwrap_or_else(|failure| panic!("{failure}"));
        for (node, _) in nodes {
            let latency = round_trip / 2;
            network.weather(node, Weather { latency, loss: 0.0 });
        }
        // Connections that were opened before the routes existed have no delay, so restart all
        // members.
        (0..REGIONS).for_each(|member| set.kill(member));
        join_all((0..REGIONS).map(|member| set.restart(member))).await;
        let world = Self {
            set,
            round_trip,
            network,
        };
        world.prefer().await;
        world.settled().await;
        world
    }

    async fn prefer(&self) {
        let primary = self.set.primary().await;
        let get = doc! { "replSetGetConfig": 1 };
        let answer = self.set.command(primary, get).await;
        let answer = answer.unwrap_or_else(|failure| panic!("{failure}"));
        let mut config = answer.get_document("config").expect("a config").clone();
        let version = config.get_i32("version").expect("a version");
        config.insert("version", version + 1);
        let members = config.get_array_mut("members").expect("members");
        let preferred = members[PREFERRED].as_document_mut().expect("a member");
        preferred.insert("priority", 2.0);
        let set = doc! { "replSetReconfig": config };
        let done = self.set.command(primary, set).await;
        done.unwrap_or_else(|failure| panic!("{failure}"));
    }

    /// Waits until the preferred member is the primary. Panics after [`SETTLED_MAX`].
    pub(super) async fn settled(&self) {
        let end = boottime_ns() + nanos(SETTLED_MAX);
        while self.set.primary().await != PREFERRED {
            assert!(boottime_ns() < end, "another member stays primary");
            tokio::time::sleep(POLL).await;
        }
    }

    pub(super) fn daemon(&self, setup: &Setup, lease: &str, region: usize) -> DaemonBuilder {
        let daemon = setup.daemon(lease, &format!("region-{region}"), &self.set.uri());
        daemon.host(&Node::Client(region).host())
    }

    async fn client(&self, region: usize) -> Collection<Document> {
        let route = self.network.route(Node::Client(region), PREFERRED);
        let uri = match route {
            Some(address) => format!("mongodb://{address}/?directConnection=true"),
            None => self.set.direct_uri(PREFERRED),
        };
        let client = Client::with_uri_str(uri).await;
        let client = client.expect("a valid connection string");
        client.database("leasehold").collection("floor")
    }
}

/// Connected MongoDB clients in all regions. These clients do not use leasehold.
pub(super) struct Floors {
    clients: Vec<Collection<Document>>,
    events: Vec<ChangeStream<ChangeStreamEvent<Document>>>,
    number: Cell<i64>,
}

impl Floors {
    pub(super) async fn start(world: &World) -> Self {
        let clients = join_all((0..REGIONS).map(|region| world.client(region))).await;
        let id = Bson::from(mongodb::bson::Uuid::new());
        let document = doc! { "_id": "floor", "revision": id, "number": 0_i64 };
        let created = clients[PREFERRED].insert_one(document).await;
        created.expect("the set answers");
        let mut events = Vec::new();
        for region in 0..REGIONS {
            // The stream needs its own client, because it occupies a connection.
            let matching = doc! { "$match": { "documentKey._id": "floor" } };
            let client = world.client(region).await;
            let stream = client.watch().pipeline([matching]).await;
            events.push(stream.expect("open a change stream"));
        }
        let floors = Self {
            clients,
            events,
            number: Cell::new(0),
        };
        for region in 0..REGIONS {
            floors.write(region).await;
        }
        floors
    }

    fn next(&self) -> i64 {
        self.number.replace(self.number.get() + 1) + 1
    }

    /// Returns the duration of a majority write from a region.
    pub(super) async fn write(&self, region: usize) -> f64 {
        let began_ns = boottime_ns();
        write(&self.clients[region], self.next()).await;
        seconds(began_ns, boottime_ns())
    }

    /// Measures the minimum time of a handoff between two regions: a majority write in one region,
    /// its change event in the other region, and a majority write there.
    pub(super) async fn handoff(&mut self, from: usize, to: usize) -> f64 {
        // The stream must first have delivered all earlier events.
        let (earlier, release, acquire) = (self.next(), self.next(), self.next());
        write(&self.clients[from], earlier).await;
        seen(&mut self.events[to], earlier).await;
        let began_ns = boottime_ns();
        let follow = async {
            seen(&mut self.events[to], release).await;
            write(&self.clients[to], acquire).await;
            boottime_ns()
        };
        let ((), ended_ns) = tokio::join!(write(&self.clients[from], release), follow);
        seconds(began_ns, ended_ns)
    }
}
