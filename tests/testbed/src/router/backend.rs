//! Connects a router to the members of the set, on behalf of one client.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, doc};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::wire;

const POLL: Duration = Duration::from_millis(20);
/// Timeout of `hello`, because a frozen member does not answer.
const HELLO_MAX: Duration = Duration::from_millis(500);
/// Error codes of a member that is not, or no longer, the primary.
const NOT_PRIMARY: [i32; 5] = [10_107, 13_435, 11_602, 189, 91];

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

    /// Forwards a message to a member. Returns its reply, or `None` if the connection failed.
    ///
    /// Canceling this call closes the connection; otherwise, the next caller on the connection
    /// would receive the reply to this message.
    pub(super) async fn pass(&mut self, member: u16, message: &[u8]) -> Option<Vec<u8>> {
        let known = self.connections.remove(&member);
        let Some((connection, answer)) = exchange(known, member, message).await else {
            self.primary.take_if(|primary| *primary == member);
            return None;
        };
        self.connections.insert(member, connection);
        Some(answer)
    }

    /// Waits for a primary for at most `patience`, and returns its port.
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

    pub(super) async fn hello(&mut self, member: u16) -> Option<Document> {
        let hello = wire::command(&doc! { "hello": 1, "$db": "admin" });
        let asked = tokio::time::timeout(HELLO_MAX, self.pass(member, &hello)).await;
        wire::body(&asked.ok()??)
    }

    /// Returns true if the reply says that the member is not the primary. The router then searches
    /// for a primary before the next command.
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

/// Sends a message to a member, and reads the reply. Connects if there is no connection yet.
async fn exchange(
    known: Option<TcpStream>,
    member: u16,
    message: &[u8],
) -> Option<(TcpStream, Vec<u8>)> {
    let mut connection = match known {
        Some(connection) => connection,
        None => {
            let connection = TcpStream::connect((Ipv4Addr::LOCALHOST, member)).await;
            let connection = connection.ok()?;
            connection.set_nodelay(true).ok()?;
            connection
        }
    };
    connection.write_all(message).await.ok()?;
    let answer = wire::read(&mut connection).await?;
    Some((connection, answer))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_late_reply_is_not_mistaken_for_the_next_reply() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let member = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            let (mut first, _) = listener.accept().await.unwrap();
            let asked = wire::read(&mut first).await.unwrap();
            // This is the connection of the next search. The first search has timed out, so the
            // reply on its connection is late.
            let (mut next, _) = listener.accept().await.unwrap();
            let late = wire::reply(&asked, &doc! { "late": 1 }).unwrap();
            // The connection may be closed already.
            let _ = first.write_all(&late).await;
            loop {
                let Some(asked) = wire::read(&mut next).await else {
                    (next, _) = listener.accept().await.unwrap();
                    continue;
                };
                let reply = wire::reply(&asked, &doc! { "isWritablePrimary": true }).unwrap();
                let _ = next.write_all(&reply).await;
            }
        });
        let mut backend = Backend::new(vec![member]);
        // Shorter than the timeout for one member, so the whole search times out.
        assert_eq!(backend.primary(Duration::from_millis(50)).await, None);
        let patience = Duration::from_secs(30);
        assert_eq!(backend.primary(patience).await, Some(member));
        server.abort();
    }
}
