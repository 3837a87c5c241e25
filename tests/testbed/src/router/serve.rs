//! Serves one client of a router.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::backend::Backend;
use super::{Cursor, Shared, wire};

/// Time that `mongos` waits for a shard's primary, unless the command has a shorter timeout.
const PRIMARY_MAX: Duration = Duration::from_secs(15);
const HOST_UNREACHABLE: i32 = 6;
const MAX_TIME_EXPIRED: i32 = 50;
const COMMAND_NOT_FOUND: i32 = 59;
const NO_PRIMARY: i32 = 133;
/// Fields of a member's `hello` reply that a router does not send.
const OF_MEMBERS: [&str; 14] = [
    "setName",
    "setVersion",
    "hosts",
    "passives",
    "arbiters",
    "primary",
    "me",
    "electionId",
    "lastWrite",
    "secondary",
    "isreplicaset",
    "tags",
    "topologyVersion",
    "$configServerState",
];

struct Session {
    shared: Arc<Shared>,
    backend: Backend,
}

pub(super) async fn client(mut stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let mut session = Session {
        backend: Backend::new(shared.members.clone()),
        shared,
    };
    while let Some(request) = wire::read(&mut stream).await {
        let Some(command) = wire::body(&request) else {
            return;
        };
        let answer = session.answer(&request, &command).await;
        let Some(answer) = answer else { return };
        if stream.write_all(&answer).await.is_err() {
            return;
        }
    }
}

fn error(code: i32, name: &str) -> Document {
    doc! { "ok": 0.0, "errmsg": "the simulated mongos", "code": code, "codeName": name }
}

impl Session {
    /// Answers a command. Returns `None` if the connection must be closed.
    async fn answer(&mut self, request: &[u8], command: &Document) -> Option<Vec<u8>> {
        let name = wire::name(command).to_owned();
        if ["hello", "isMaster", "ismaster"].contains(&name.as_str()) {
            let hello = self.hello(command).await;
            return wire::reply(request, &hello);
        }
        let (refused, overlays) = {
            let mut state = self.shared.state();
            state.commands.push(command.clone());
            let streams = wire::opens_change_stream(command).then_some(state.no_streams);
            (streams.flatten(), state.overlays.clone())
        };
        if let Some((code, name)) = refused {
            return wire::reply(request, &error(code, name));
        }
        if name.starts_with("replSet") {
            return wire::reply(request, &error(COMMAND_NOT_FOUND, "CommandNotFound"));
        }
        let answer = match self.pass(request, command).await {
            Ok(answer) => answer,
            Err(error) => return wire::reply(request, &error),
        };
        let overlays: Vec<_> = overlays.iter().filter(|(of, _)| *of == name).collect();
        if overlays.is_empty() {
            return Some(answer);
        }
        let mut reply = wire::body(&answer)?;
        for (_, fields) in overlays {
            overlay(&mut reply, fields);
        }
        wire::reply(request, &reply)
    }

    /// Describes a router, with the versions of the members behind it.
    async fn hello(&mut self, command: &Document) -> Document {
        // A driver that sends the newest topologyVersion waits for a change, which never happens.
        let patience = command.get("maxAwaitTimeMS").and_then(millis);
        if let (Some(patience), true) = (patience, command.contains_key("topologyVersion")) {
            tokio::time::sleep(patience).await;
        }
        let mut reply = Document::new();
        for member in self.shared.members.clone() {
            if let Some(hello) = self.backend.hello(member).await {
                reply = hello;
                break;
            }
        }
        for field in OF_MEMBERS {
            reply.remove(field);
        }
        reply.insert("msg", "isdbgrid");
        reply.insert("helloOk", true);
        reply.insert("ok", 1.0);
        let writable = match wire::name(command) {
            "hello" => "isWritablePrimary",
            _ => "ismaster",
        };
        reply.remove("isWritablePrimary");
        reply.insert(writable, true);
        let version = doc! { "processId": ObjectId::from_bytes([7; 12]), "counter": 0_i64 };
        reply.insert("topologyVersion", version);
        let overlays = self.shared.state().overlays.clone();
        for (_, fields) in overlays.iter().filter(|(of, _)| *of == "hello") {
            overlay(&mut reply, fields);
        }
        reply
    }

    async fn pass(&mut self, request: &[u8], command: &Document) -> Result<Vec<u8>, Document> {
        let of_cursor = match wire::name(command) {
            "getMore" => command.get_i64("getMore").ok(),
            _ => None,
        };
        let known = of_cursor.and_then(|id| self.shared.state().cursors.get(&id).cloned());
        if let (Some(id), Some((due, reply))) = (of_cursor, known.as_ref().and_then(held)) {
            let reply = self.deliver((id, command), due, reply).await;
            return wire::reply(request, &reply).ok_or(reply);
        }
        let member = match &known {
            Some(cursor) => cursor.member,
            None => self.primary(command).await?,
        };
        let answer = self.backend.pass(member, request).await;
        let answer = answer.ok_or_else(|| error(HOST_UNREACHABLE, "HostUnreachable"))?;
        let Some(reply) = wire::body(&answer) else {
            return Ok(answer);
        };
        if self.backend.lost_primary(&reply) {
            // This reply would tell a driver that the router itself is not the primary, so `mongos`
            // replaces the reply with an error.
            return Err(error(HOST_UNREACHABLE, "HostUnreachable"));
        }
        if let Some(id) = wire::cursor_in(&reply) {
            let opened = wire::opens_change_stream(command);
            let cursor = Cursor {
                member,
                is_stream: known.map_or(opened, |cursor| cursor.is_stream),
                held: None,
            };
            let due = self.due(&reply).filter(|_| cursor.is_stream);
            self.shared.state().cursors.insert(id, cursor);
            if let Some(due) = due {
                let reply = self.deliver((id, command), due, reply).await;
                return wire::reply(request, &reply).ok_or(reply);
            }
        } else if let Some(id) = of_cursor {
            self.shared.state().cursors.remove(&id);
        }
        Ok(answer)
    }

    /// Returns a reply once its events are due. If the command times out earlier, holds the events
    /// and returns a reply without events.
    async fn deliver(
        &self,
        (id, command): (i64, &Document),
        due: Duration,
        reply: Document,
    ) -> Document {
        let wait = due.saturating_sub(since_1970());
        let patience = command.get("maxTimeMS").and_then(millis).unwrap_or(wait);
        tokio::time::sleep(wait.min(patience)).await;
        let mut state = self.shared.state();
        let cursor = state.cursors.get_mut(&id);
        if wait <= patience {
            if let Some(cursor) = cursor {
                cursor.held = None;
            }
            return reply;
        }
        let namespace = reply.get_document("cursor").and_then(|c| c.get_str("ns"));
        let empty = doc! { "id": id, "ns": namespace.unwrap_or_default(), "nextBatch": [] };
        if let Some(cursor) = cursor {
            cursor.held = Some((due, reply));
        }
        doc! { "cursor": empty, "ok": 1.0 }
    }

    async fn primary(&mut self, command: &Document) -> Result<u16, Document> {
        let limit = command.get("maxTimeMS").and_then(millis);
        let patience = limit.unwrap_or(PRIMARY_MAX).min(PRIMARY_MAX);
        let primary = self.backend.primary(patience).await;
        primary.ok_or_else(|| match limit {
            Some(limit) if limit <= PRIMARY_MAX => error(MAX_TIME_EXPIRED, "MaxTimeMSExpired"),
            _ => error(NO_PRIMARY, "FailedToSatisfyReadPreference"),
        })
    }

    /// Returns the first tick after the newest event in a reply, or `None` if there is no event or
    /// the tick has passed.
    fn due(&self, reply: &Document) -> Option<Duration> {
        let lag = self.shared.state().lag.as_secs();
        let happened = wire::newest_event(reply).filter(|_| lag > 0)?;
        let tick = Duration::from_secs((happened / lag + 1) * lag);
        Some(tick).filter(|tick| *tick > since_1970())
    }
}

fn held(cursor: &Cursor) -> Option<(Duration, Document)> {
    cursor.held.clone()
}

fn since_1970() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("later than 1970")
}

fn millis(value: &Bson) -> Option<Duration> {
    let millis = value.as_i64().or_else(|| value.as_i32().map(i64::from))?;
    Some(Duration::from_millis(u64::try_from(millis).ok()?))
}

fn overlay(reply: &mut Document, fields: &Document) {
    for (name, value) in fields {
        match value {
            Bson::Null => drop(reply.remove(name)),
            value => drop(reply.insert(name, value.clone())),
        }
    }
}
