//! Reads and writes MongoDB messages for a router. Each message is a command or its reply.

use mongodb::bson::{Bson, Document};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The server's own limit on the length of a message (`maxMessageSizeBytes`).
const MESSAGE_MAX_BYTES: usize = 48_000_000;
const HEADER_BYTES: usize = 16;
const OP_MSG: i32 = 2013;
const OP_QUERY: i32 = 2004;
const OP_REPLY: i32 = 1;

/// Reads one message with its header. Returns `None` if the stream ends, even within a message.
pub(super) async fn read<R: AsyncRead + Unpin>(stream: &mut R) -> Option<Vec<u8>> {
    let mut message = vec![0; 4];
    stream.read_exact(&mut message).await.ok()?;
    let length = usize::try_from(number(&message, 0)?).ok()?;
    if !(HEADER_BYTES..=MESSAGE_MAX_BYTES).contains(&length) {
        return None;
    }
    message.resize(length, 0);
    stream.read_exact(&mut message[4..]).await.ok()?;
    Some(message)
}

/// Returns the command or reply in a message, or `None` for a kind of message that drivers do not
/// send.
pub(super) fn body(message: &[u8]) -> Option<Document> {
    let document = match number(message, 12)? {
        // Flags come first, then sections. Drivers send the section with the command first.
        OP_MSG if message.get(HEADER_BYTES + 4) == Some(&0) => message.get(HEADER_BYTES + 5..)?,
        OP_QUERY => {
            let after_flags = message.get(HEADER_BYTES + 4..)?;
            let name = after_flags.iter().position(|byte| *byte == 0)? + 1;
            // Number of documents to skip, and number of documents to return.
            after_flags.get(name + 8..)?
        }
        _ => return None,
    };
    Document::from_reader(document).ok()
}

pub(super) fn command(document: &Document) -> Vec<u8> {
    message(OP_MSG, (1, 0), &[0; 5], document)
}

pub(super) fn reply(request: &[u8], document: &Document) -> Option<Vec<u8>> {
    let id = number(request, 4)?;
    Some(match number(request, 12)? {
        OP_QUERY => {
            // A reply's header contains flags, a cursor id, the index of the first document, and
            // the number of documents.
            let mut before = [0; 20];
            before[16] = 1;
            message(OP_REPLY, (0, id), &before, document)
        }
        _ => message(OP_MSG, (0, id), &[0; 5], document),
    })
}

fn message(code: i32, (id, answers): (i32, i32), before: &[u8], document: &Document) -> Vec<u8> {
    let document = document.to_vec().expect("encode a document");
    let length = HEADER_BYTES + before.len() + document.len();
    let length = i32::try_from(length).expect("a short message");
    let mut message = Vec::new();
    for number in [length, id, answers, code] {
        message.extend_from_slice(&number.to_le_bytes());
    }
    message.extend_from_slice(before);
    message.extend_from_slice(&document);
    message
}

fn number(bytes: &[u8], at: usize) -> Option<i32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(i32::from_le_bytes(bytes.try_into().ok()?))
}

pub(super) fn name(command: &Document) -> &str {
    command.keys().next().map_or("", String::as_str)
}

pub(super) fn opens_change_stream(command: &Document) -> bool {
    let stages = command.get_array("pipeline").map(Vec::as_slice);
    let first = stages
        .unwrap_or_default()
        .first()
        .and_then(Bson::as_document);
    name(command) == "aggregate" && first.is_some_and(|stage| stage.contains_key("$changeStream"))
}

pub(super) fn cursor_in(reply: &Document) -> Option<i64> {
    let cursor = reply.get_document("cursor").ok()?;
    cursor.get_i64("id").ok().filter(|id| *id != 0)
}

/// Returns the cluster time of the newest event in a reply, in whole seconds, or `None` if there is
/// no event.
pub(super) fn newest_event(reply: &Document) -> Option<u64> {
    let batch = reply
        .get_document("cursor")
        .ok()?
        .get_array("nextBatch")
        .ok()?;
    let event = batch.last()?.as_document()?;
    let token = event.get_document("_id").ok()?.get_str("_data").ok()?;
    // A resume token starts with a timestamp: first its type, then its seconds.
    u64::from_str_radix(token.get(2..10)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use mongodb::bson::doc;

    use super::*;

    #[tokio::test]
    async fn commands_and_replies_are_read_back() {
        let sent = command(&doc! { "find": "leases", "$db": "x" });
        let got = read(&mut sent.as_slice()).await.expect("a message");
        let document = body(&got).expect("a command");
        assert_eq!(name(&document), "find");
        let back = reply(&got, &doc! { "ok": 1 }).expect("a reply");
        assert_eq!(body(&back), Some(doc! { "ok": 1 }));
        assert_eq!(
            number(&back, 8),
            number(&sent, 4),
            "the reply names the request"
        );
    }

    #[test]
    fn a_legacy_query_gets_a_legacy_reply() {
        let mut before = vec![0; 4];
        before.extend_from_slice(b"admin.$cmd\0");
        before.extend_from_slice(&[0; 8]);
        let query = message(OP_QUERY, (7, 0), &before, &doc! { "isMaster": 1 });
        assert_eq!(body(&query), Some(doc! { "isMaster": 1 }));
        let back = reply(&query, &doc! { "ok": 1 }).expect("a reply");
        assert_eq!(
            (number(&back, 12), number(&back, 8)),
            (Some(OP_REPLY), Some(7))
        );
        assert_eq!(
            back.len(),
            HEADER_BYTES + 20 + doc! { "ok": 1 }.to_vec().unwrap().len()
        );
    }

    #[test]
    fn the_time_of_an_event_is_in_its_token() {
        let event = doc! { "_id": { "_data": "8263F1A2B3000000012B022C0100296E5A10" } };
        let of = |batch: Vec<Document>| doc! { "cursor": { "id": 5_i64, "nextBatch": batch } };
        assert_eq!(newest_event(&of(vec![event])), Some(0x63F1_A2B3));
        assert_eq!(newest_event(&of(vec![])), None);
        assert_eq!(cursor_in(&of(vec![])), Some(5));
    }
}
