//! Limits the number of connections. At the limit, a new connection replaces the longest-idle
//! connection of the peer with the most connections. Therefore, no peer can lock out others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::task::{AbortHandle, JoinError, JoinSet};

use super::CONNECTIONS_MAX;

/// The last use of a connection, on a logical clock that counts the uses of all connections.
#[derive(Debug, Clone)]
pub(super) struct Activity {
    uses: Arc<AtomicU64>,
    last: Arc<AtomicU64>,
    lasting: Arc<AtomicBool>,
}

/// Marks an answer as long-lived until dropped. Its connection does not count towards the limit.
#[derive(Debug)]
pub struct Lasting(Activity);

#[derive(Debug, Default)]
pub(super) struct Places {
    tasks: JoinSet<()>,
    taken: Vec<ConnectionPlace>,
    uses: Arc<AtomicU64>,
}

#[derive(Debug)]
struct ConnectionPlace {
    task: AbortHandle,
    peer: IpAddr,
    activity: Activity,
}

impl Activity {
    fn new(uses: &Arc<AtomicU64>) -> Self {
        let activity = Self {
            uses: Arc::clone(uses),
            last: Arc::default(),
            lasting: Arc::default(),
        };
        activity.used();
        activity
    }

    pub(super) fn used(&self) {
        let now = self.uses.fetch_add(1, Ordering::Relaxed);
        self.last.store(now, Ordering::Relaxed);
    }

    pub(super) fn lasts(&self) -> Lasting {
        self.lasting.store(true, Ordering::Relaxed);
        Lasting(self.clone())
    }

    pub(super) fn is_lasting(&self) -> bool {
        self.lasting.load(Ordering::Relaxed)
    }
}

impl Drop for Lasting {
    fn drop(&mut self) {
        self.0.lasting.store(false, Ordering::Relaxed);
        self.0.used();
    }
}

impl Places {
    /// Serves a connection of `peer`. Returns true if another connection was evicted to make room.
    pub(super) fn serve<F>(&mut self, peer: IpAddr, connection: impl FnOnce(Activity) -> F) -> bool
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let evicted = self.ordinary().count() >= CONNECTIONS_MAX;
        if evicted && let Some(index) = self.gives_way() {
            self.taken.swap_remove(index).task.abort();
        }
        let activity = Activity::new(&self.uses);
        self.taken.push(ConnectionPlace {
            task: self.tasks.spawn(connection(activity.clone())),
            // An IPv4 peer of an IPv6 socket has an IPv4-mapped address.
            peer: peer.to_canonical(),
            activity,
        });
        evicted
    }

    /// Waits until a connection ends; `None` if there are no connections. An error means that the
    /// connection's task panicked.
    pub(super) async fn ended(&mut self) -> Option<Result<(), JoinError>> {
        let ended = self.tasks.join_next_with_id().await?;
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, ())| *id);
        self.taken.retain(|place| place.task.id() != id);
        Some(match ended {
            Err(error) if !error.is_cancelled() => Err(error),
            Ok(_) | Err(_) => Ok(()),
        })
    }

    /// Returns the connections that have no long-lived answer, with their indices.
    fn ordinary(&self) -> impl Iterator<Item = (usize, &ConnectionPlace)> {
        let places = self.taken.iter().enumerate();
        places.filter(|(_, place)| !place.activity.is_lasting())
    }

    fn gives_way(&self) -> Option<usize> {
        // Counts every peer's connections only once, because this function runs for every new
        // connection of a flood.
        let mut places_of = HashMap::<_, usize>::new();
        for (_, place) in self.ordinary() {
            *places_of.entry(place.peer).or_default() += 1;
        }
        let choice = self.ordinary().max_by_key(|(_, place)| {
            let last = place.activity.last.load(Ordering::Relaxed);
            (places_of.get(&place.peer), std::cmp::Reverse(last))
        });
        choice.map(|(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEERS: [IpAddr; 3] = [
        IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
        IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)),
        IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 3)),
    ];

    #[tokio::test]
    async fn the_longest_idle_connection_of_the_busiest_peer_is_evicted() {
        let mut places = Places::default();
        let mut opened = Vec::new();
        let mut open = |places: &mut Places, peer: IpAddr| {
            let evicted = places.serve(peer, |activity| {
                opened.push(activity);
                std::future::pending()
            });
            (evicted, opened.clone())
        };
        open(&mut places, PEERS[0]);
        for _ in 1..CONNECTIONS_MAX {
            assert!(!open(&mut places, PEERS[1]).0);
        }
        let (_, opened_so_far) = open(&mut places, PEERS[2]);
        let of = |places: &Places, peer| places.taken.iter().filter(|p| p.peer == peer).count();
        let counts = PEERS.map(|peer| of(&places, peer));
        assert_eq!(counts, [1, CONNECTIONS_MAX - 2, 1]);
        // The first connection of the second peer was evicted. The second connection is used now,
        // so the third connection is evicted next.
        opened_so_far[2].used();
        assert!(open(&mut places, PEERS[1]).0);
        let stays = |activity: &Activity| {
            let mut places = places.taken.iter();
            places.any(|place| Arc::ptr_eq(&place.activity.last, &activity.last))
        };
        let stayed: Vec<_> = opened_so_far[..5].iter().map(stays).collect();
        assert_eq!(stayed, [true, false, true, false, true]);
    }

    #[tokio::test]
    async fn long_lived_answers_are_not_counted_or_evicted() {
        let mut places = Places::default();
        let mut lasting = Vec::new();
        let mut open = |places: &mut Places, lasts: bool| {
            places.serve(PEERS[0], |activity| {
                lasting.extend(lasts.then(|| activity.lasts()));
                std::future::pending()
            })
        };
        assert!(!open(&mut places, true));
        for _ in 0..CONNECTIONS_MAX {
            assert!(!open(&mut places, false));
        }
        assert!(open(&mut places, false));
        assert!(
            places.taken[0].activity.is_lasting(),
            "the connection was idle for the longest time"
        );
        lasting.clear();
        assert!(!places.taken[0].activity.is_lasting());
        assert_eq!(places.ordinary().count(), CONNECTIONS_MAX + 1);
    }

    #[tokio::test]
    async fn the_end_of_a_connection_frees_its_place() {
        let mut places = Places::default();
        for _ in 0..CONNECTIONS_MAX {
            places.serve(PEERS[0], |_| std::future::ready(()));
        }
        for _ in 0..CONNECTIONS_MAX {
            assert!(matches!(places.ended().await, Some(Ok(()))));
        }
        assert!(places.ended().await.is_none());
        assert!(!places.serve(PEERS[0], |_| std::future::ready(())));
    }
}
