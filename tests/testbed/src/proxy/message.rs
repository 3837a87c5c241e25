//! Reads MongoDB messages for the proxy, which uses only their length and bytes.

use tokio::io::{AsyncRead, AsyncReadExt};

/// The server's own limit on the length of a message (`maxMessageSizeBytes`).
const MESSAGE_MAX_BYTES: usize = 48_000_000;
/// Length of the header: the message's length, its id, the id of the answered request, and the
/// operation code.
const HEADER_BYTES: usize = 16;

/// The pieces in which the proxy forwards a stream.
#[derive(Debug)]
pub(super) enum Framing {
    /// The proxy reads whole messages, so it also finds an address that is split across two reads.
    Messages(Vec<Rewrite>),
    /// The proxy passes bytes as they arrive, because the stream is encrypted.
    None,
}

impl Framing {
    /// Reads the next piece. Returns `None` if the stream ends, even within a piece.
    pub(super) async fn read<R: AsyncRead + Unpin>(&self, stream: &mut R) -> Option<Vec<u8>> {
        match self {
            Self::Messages(_) => {
                let mut message = vec![0; 4];
                stream.read_exact(&mut message).await.ok()?;
                let length = u32::from_le_bytes(message[..4].try_into().ok()?);
                let length = usize::try_from(length).ok()?;
                if !(HEADER_BYTES..=MESSAGE_MAX_BYTES).contains(&length) {
                    return None;
                }
                message.resize(length, 0);
                stream.read_exact(&mut message[4..]).await.ok()?;
                Some(message)
            }
            Self::None => {
                let mut bytes = vec![0; 64 * 1024];
                let length = stream
                    .read(&mut bytes)
                    .await
                    .ok()
                    .filter(|length| *length > 0)?;
                bytes.truncate(length);
                Some(bytes)
            }
        }
    }

    pub(super) fn rewrite(&self, message: &mut [u8]) {
        match self {
            Self::Messages(rewrites) => {
                // Replace in a single pass, because a member's port may be another member's proxy
                // port, and each address must be replaced only once.
                let mut at = 0;
                while at < message.len() {
                    let hit = rewrites
                        .iter()
                        .find(|rewrite| message[at..].starts_with(&rewrite.from));
                    match hit {
                        Some(Rewrite { from, to }) => {
                            message[at..at + from.len()].copy_from_slice(to);
                            at += from.len();
                        }
                        None => at += 1,
                    }
                }
            }
            Self::None => {}
        }
    }
}

#[derive(Debug)]
pub(super) struct Rewrite {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Rewrite {
    /// Prepares a replacement. Panics if the lengths differ, because the message's length would
    /// then change.
    pub(super) fn new(from: &str, to: &str) -> Self {
        assert_eq!(from.len(), to.len(), "{from} cannot be rewritten to {to}");
        Self {
            from: from.into(),
            to: to.into(),
        }
    }
}

pub(super) fn contains(message: &[u8], text: &[u8]) -> bool {
    !text.is_empty() && message.windows(text.len()).any(|window| window == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER_BYTES + body.len()).unwrap();
        let mut message = length.to_le_bytes().to_vec();
        message.resize(HEADER_BYTES, 0);
        message.extend_from_slice(body);
        message
    }

    #[tokio::test]
    async fn an_address_torn_across_reads_is_rewritten() {
        let framing = Framing::Messages(vec![Rewrite::new("127.0.0.1:11111", "127.0.0.1:22222")]);
        let sent = message(b"me 127.0.0.1:11111 primary 127.0.0.1:11111 other 127.0.0.1:33333");
        let (left, right) = sent.split_at(25);
        let (mut writer, mut reader) = tokio::io::duplex(8);
        let (left, right) = (left.to_vec(), right.to_vec());
        tokio::spawn(async move {
            use tokio::io::AsyncWriteExt;
            writer.write_all(&left).await.unwrap();
            writer.write_all(&right).await.unwrap();
        });
        let mut got = framing.read(&mut reader).await.unwrap();
        framing.rewrite(&mut got);
        let wanted = message(b"me 127.0.0.1:22222 primary 127.0.0.1:22222 other 127.0.0.1:33333");
        assert_eq!(got, wanted);
        assert_eq!(framing.read(&mut reader).await, None);
    }

    #[test]
    fn addresses_that_swap_are_rewritten_once() {
        let framing = Framing::Messages(vec![
            Rewrite::new("127.0.0.1:11111", "127.0.0.1:22222"),
            Rewrite::new("127.0.0.1:22222", "127.0.0.1:11111"),
        ]);
        let mut bytes = b"127.0.0.1:11111,127.0.0.1:22222".to_vec();
        framing.rewrite(&mut bytes);
        assert_eq!(bytes, b"127.0.0.1:22222,127.0.0.1:11111");
    }

    #[tokio::test]
    async fn an_invalid_message_ends_the_stream() {
        let framing = Framing::Messages(Vec::new());
        assert_eq!(framing.read(&mut &[1_u8, 0, 0, 0, 9, 9][..]).await, None);
    }
}
