//! The connections of a router to the members of the set, on behalf of one client.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::Ipv4Addr;
use std::time::Duration;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, doc};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::wire;

const POLL: Duration = Duration::from_millis(20);
/// A frozen member does not answer.
const HELLO_MAX: Duration = Duration::from_millis(500);
/// Error codes of a member that is not the primary, or not any longer.
const NOT_PRIMARY: [i32; 5] = [10_107, 13_435, 11_602, 189, 91];

/// Connections to the members, by port.
#[derive(Debug)]
pub(super) struct Backend {
    members: Vec<u16>,
    connections: HashMap<u16, TcpStream>,
    primary: Option<u16>,
}

impl Backend {
    pub(super) fn new(members: Vec<u16>) -> Self {
        Self {
            members,
            connections: HashMap::new(),
            primary: None,
        }
    }

    /// Passes a message to a member; returns its reply, or `None` if the connection broke.
    pub(super) async fn pass(&mut self, member: u16, message: &[u8]) -> Option<Vec<u8>> {
        let answer = self.exchange(member, message).await;
        if answer.is_none() {
            self.connections.remove(&member);
            self.primary.take_if(|primary| *primary == member);
        }
        answer
    }

    async fn exchange(&mut self, member: u16, message: &[u8]) -> Option<Vec<u8>> {
        let connection = match self.connections.entry(member) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let address = (Ipv4Addr::LOCALHOST, member);
                let connection = TcpStream::connect(address).await.ok()?;
                connection.set_nodelay(true).ok()?;
                place.insert(connection)
            }
        };
        connection.write_all(message).await.ok()?;
        wire::read(connection).await
    }

    /// Returns the primary; waits for one until `patience` is over.
    pub(super) async fn primary(&mut self, patience: Duration) -> Option<u16> {
        if self.primary.is_some() {
            return self.primary;
        }
        let search = async {
            loop {
                let mut found = None;
                for member in self.members.clone() {
                    let Some(hello) = self.hello(member).await else {
                        continue;
                    };
                    if hello.get_bool("isWritablePrimary").unwrap_or(false) {
                        let election = hello.get_object_id("electionId");
                        let election = election.unwrap_or(ObjectId::from_bytes([0; 12]));
                        found = found.max(Some((election, member)));
                    }
                }
                match found {
                    Some((_, member)) => return member,
                    None => tokio::time::sleep(POLL).await,
                }
            }
        };
        let found = tokio::time::timeout(patience, search).await.ok();
        self.primary = found;
        found
    }

    /// Returns a member's description of itself.
    pub(super) async fn hello(&mut self, member: u16) -> Option<Document> {
        let hello = wire::command(&doc! { "hello": 1, "$db": "admin" });
        // A connection whose reply was not awaited cannot be used again.
        let asked = tokio::time::timeout(HELLO_MAX, self.pass(member, &hello)).await;
        if asked.is_err() {
            self.connections.remove(&member);
        }
        wire::body(&asked.ok()??)
    }

    /// Returns true if the reply says that the member is not the primary. Another one is then looked
    /// for before the next command.
    pub(super) fn lost_primary(&mut self, reply: &Document) -> bool {
        let code_of = |reply: &Document| reply.get_i32("code").ok();
        let concern = reply.get_document("writeConcernError").ok();
        let code = code_of(reply).or_else(|| concern.and_then(code_of));
        let lost = code.is_some_and(|code| NOT_PRIMARY.contains(&code));
        if lost {
            self.primary = None;
        }
        lost
    }
}
