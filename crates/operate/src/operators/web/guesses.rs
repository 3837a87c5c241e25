//! Limits the rate at which visitors can try tokens. Each peer address has its own limit, so wrong
//! tokens from one address do not delay visitors from another address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::access::Refused;

/// Maximum number of tokens that one peer can try at a time. A wrong token occupies a permit for
/// [`WRONG_TOKEN`].
const GUESSES_MAX: usize = 4;
const WRONG_TOKEN: Duration = Duration::from_millis(500);
const GUESS_WAIT_MAX: Duration = Duration::from_secs(5);
/// Maximum number of peers with their own limit. All further peers share one limit, which bounds
/// memory and the total rate (520 tokens per second).
const PEERS_MAX: usize = 64;

/// The permits of each peer; `None` stands for all peers beyond [`PEERS_MAX`].
#[derive(Debug, Default)]
pub(super) struct Guesses {
    peers: Mutex<HashMap<Option<IpAddr>, Arc<Semaphore>>>,
}

impl Guesses {
    /// Waits for a permit of this peer, then checks its token.
    pub(super) async fn check(
        &self,
        peer: IpAddr,
        is_right: impl FnOnce() -> bool,
    ) -> Result<(), Refused> {
        let permit = timeout(GUESS_WAIT_MAX, self.of(peer).acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            return Err(Refused::Busy);
        };
        if is_right() {
            return Ok(());
        }
        // A separate task holds the permit, so that a visitor cannot skip the delay by reconnecting.
        let delay = tokio::spawn(async move {
            sleep(WRONG_TOKEN).await;
            drop(permit);
        });
        let _ = delay.await;
        Err(Refused::Wrong)
    }

    fn of(&self, peer: IpAddr) -> Arc<Semaphore> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        // Drops semaphores that no permit and no waiting visitor uses.
        peers.retain(|_, guesses| Arc::strong_count(guesses) > 1);
        let peer = Some(network(peer));
        let has_own = peers.contains_key(&peer) || peers.len() < PEERS_MAX;
        let guesses = peers.entry(peer.filter(|_| has_own));
        let guesses = guesses.or_insert_with(|| Arc::new(Semaphore::new(GUESSES_MAX)));
        Arc::clone(guesses)
    }
}

/// Returns the /64 network of an IPv6 peer, because one machine can use all addresses of its
/// network. For an IPv4 peer, returns the address itself.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures_util::FutureExt;
    use tokio::sync::OwnedSemaphorePermit;

    use super::*;
    use leasehold_clock::boot_now;

    fn peer(number: usize) -> IpAddr {
        let number = u32::try_from(number).expect("a small number");
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    fn exhaust(guesses: &Guesses, peer: IpAddr) -> OwnedSemaphorePermit {
        let permits = u32::try_from(GUESSES_MAX).expect("a small number");
        let taken = guesses.of(peer).try_acquire_many_owned(permits);
        assert!(!is_free(guesses, peer));
        taken.expect("all permits are free")
    }

    fn is_free(guesses: &Guesses, peer: IpAddr) -> bool {
        guesses.of(peer).available_permits() > 0
    }

    #[tokio::test]
    async fn a_wrong_token_takes_its_time_even_if_the_visitor_does_not_wait() {
        let guesses = Guesses::default();
        let begun = boot_now();
        for _ in 0..GUESSES_MAX {
            let wrong = guesses.check(peer(1), || false).now_or_never();
            assert_eq!(wrong, None, "answered immediately");
        }
        // The next token waits for a permit instead of being refused.
        assert_eq!(guesses.check(peer(1), || true).await, Ok(()));
        assert!(boot_now().since(begun) >= WRONG_TOKEN);
    }

    #[test]
    fn tokens_delay_their_own_address_only() {
        let guesses = Guesses::default();
        let _taken = exhaust(&guesses, peer(1));
        let mapped = Ipv4Addr::from_bits(0x0a00_0001).to_ipv6_mapped();
        assert!(!is_free(&guesses, mapped.into()));
        assert!(is_free(&guesses, peer(2)));
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer() {
        let guesses = Guesses::default();
        let peer = |text: &str| text.parse().expect("an address");
        let _taken = exhaust(&guesses, peer("2001:db8::1"));
        assert!(!is_free(&guesses, peer("2001:db8::ffff:2")));
        assert!(is_free(&guesses, peer("2001:db8:0:1::1")));
    }

    #[test]
    fn peers_without_a_limit_of_their_own_share_one() {
        let guesses = Guesses::default();
        let known = || guesses.peers.lock().expect("not poisoned").len();
        let mut taken = Vec::new();
        for number in 0..=PEERS_MAX {
            taken.push(exhaust(&guesses, peer(number)));
        }
        assert!(!is_free(&guesses, peer(PEERS_MAX + 1)));
        assert_eq!(known(), PEERS_MAX + 1);
        taken.clear();
        assert!(is_free(&guesses, peer(0)));
        assert_eq!(known(), 1, "a peer whose permits are all free is forgotten");
    }
}
