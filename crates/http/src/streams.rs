//! Limits the event streams and long polls, separately from other connections, so that streams
//! never lock out a probe or a scraper. A single peer cannot lock out other peers.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::Client;
use super::places::Lasting;
use leasehold_clock::boot_now;
use leasehold_core::election::BootTime;

/// Time after which a stream may be closed if its place is needed. A client that still reads the
/// stream will reconnect; a stalled client could otherwise keep its place for hours.
const PLACE_TIME_MIN: Duration = Duration::from_secs(600);

/// The open streams. Clones share them.
#[derive(Debug, Clone)]
pub struct Streams {
    max: usize,
    open: Arc<watch::Sender<Vec<Open>>>,
    closing: Arc<watch::Sender<bool>>,
    opened: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Open {
    number: u64,
    peer: IpAddr,
    since: BootTime,
    evicted: Arc<Notify>,
}

/// Occupies a place for a stream until dropped.
#[derive(Debug)]
pub struct StreamPlace {
    streams: Streams,
    number: u64,
    closing: watch::Receiver<bool>,
    _lasting: Lasting,
}

impl Streams {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            open: Arc::new(watch::Sender::default()),
            closing: Arc::new(watch::Sender::default()),
            opened: Arc::default(),
        }
    }

    /// Ends every stream after a last event, and waits until all streams have ended. The caller
    /// limits the wait, because a client may have stopped reading.
    pub async fn close(&self) {
        self.closing.send_replace(true);
        let _ = self.open.subscribe().wait_for(Vec::is_empty).await;
    }

    /// Takes a place for a new stream. If all places are taken, calls `full`, and closes an older
    /// stream to free its place. Returns `None` if no stream may be closed, or if the server is
    /// shutting down.
    pub fn admit(&self, client: &Client, full: impl FnOnce()) -> Option<StreamPlace> {
        if *self.closing.borrow() {
            return None;
        }
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        let newcomer = Open {
            number,
            peer: client.peer.ip().to_canonical(),
            since: boot_now(),
            evicted: Arc::clone(&client.evicted),
        };
        let mut admitted = false;
        self.open.send_modify(|open| {
            if open.len() >= self.max {
                full();
                let Some(index) = gives_way(open, &newcomer) else {
                    return;
                };
                open.swap_remove(index).evicted.notify_one();
            }
            open.push(newcomer);
            admitted = true;
        });
        admitted.then(|| StreamPlace {
            streams: self.clone(),
            number,
            closing: self.closing.subscribe(),
            _lasting: client.activity.lasts(),
        })
    }
}

impl StreamPlace {
    /// Waits until the server shuts down.
    pub async fn closing(&mut self) {
        // Cannot fail, because this place keeps the sender alive.
        let _ = self.closing.wait_for(|closing| *closing).await;
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let open = &self.streams.open;
        open.send_modify(|open| open.retain(|stream| stream.number != self.number));
    }
}

/// Returns the stream to close for a new stream: the oldest stream of the peer with the most
/// streams. The stream must be old, or its peer must have clearly more streams than the newcomer's
/// peer. Otherwise, two peers could evict each other's streams in turn.
fn gives_way(open: &[Open], newcomer: &Open) -> Option<usize> {
    let streams_of = |peer| open.iter().filter(|stream| stream.peer == peer).count();
    let most_then_oldest = |index: &usize| {
        let stream = &open[*index];
        (streams_of(stream.peer), std::cmp::Reverse(stream.number))
    };
    let index = (0..open.len()).max_by_key(most_then_oldest)?;
    let stream = &open[index];
    let greedy = streams_of(stream.peer) > streams_of(newcomer.peer) + 1;
    let old = newcomer.since.since(stream.since) >= PLACE_TIME_MIN;
    (greedy || old).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(number: u64, peer: u8, since: Duration) -> Open {
        Open {
            number,
            peer: IpAddr::from([10, 0, 0, peer]),
            since: BootTime::default() + since,
            evicted: Arc::default(),
        }
    }

    /// Streams of these peers, in the order in which they were opened.
    fn streams(peers: &[u8]) -> Vec<Open> {
        let numbered = (0..).zip(peers);
        numbered
            .map(|(number, peer)| open(number, *peer, Duration::ZERO))
            .collect()
    }

    #[test]
    fn the_oldest_stream_of_a_greedy_peer_is_evicted() {
        let young = PLACE_TIME_MIN - Duration::from_millis(1);
        let taken = streams(&[1, 2, 2, 1, 2]);
        assert_eq!(gives_way(&taken, &open(9, 3, young)), Some(1));
        assert_eq!(gives_way(&taken, &open(9, 1, young)), None, "3 of 2, 2");
        assert_eq!(gives_way(&taken, &open(9, 2, young)), None);
        assert_eq!(gives_way(&[], &open(9, 1, young)), None);
    }

    #[test]
    fn an_old_stream_can_be_evicted_for_any_peer() {
        let taken = streams(&[1, 1]);
        assert_eq!(gives_way(&taken, &open(9, 1, PLACE_TIME_MIN)), Some(0));
    }
}
