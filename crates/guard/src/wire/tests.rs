use std::os::fd::AsFd;

use proptest::prelude::*;

use super::*;
use crate::claim_share::ClaimPlace;
use leasehold_core::deadline_policy::{DesiredState, Leftovers, Stop, StopScope, Terms};
use leasehold_core::election::BootTime;

fn any_time() -> impl Strategy<Value = BootTime> {
    any::<u64>().prop_map(BootTime::from_nanos)
}

proptest! {
    #[test]
    fn an_order_arrives_as_it_was_sent(
        times in [any_time(), any_time(), any_time()],
        stop in proptest::option::of(1..=64_i32),
        kill: bool,
        relay: i32,
        relays: u32,
    ) {
        let [valid_until, kill_at, stop_at] = times;
        let stop = stop.map(|signal| Stop { signal, kill_at: stop_at });
        let terms = Terms { valid_until, kill_at };
        let desired = DesiredState { stop, kill, ..DesiredState::run(terms) };
        let record = ToGuard { desired, relay, relays };
        prop_assert_eq!(decode::<ToGuard>(encode(&record)), record);
    }

    #[test]
    fn a_report_arrives_as_it_was_sent(
        stage in 0..4_usize,
        end in 0..6_usize,
        value: i32,
        leader: i32,
        flags: [bool; 4],
        stopped in 0..=64_i32,
    ) {
        let [by_us, expired, killed, lingers] = flags;
        let record = GuardReport {
            stage: [CommandStage::Starting, CommandStage::Running, CommandStage::LeaderEnded, CommandStage::Gone][stage],
            leader,
            end: [
                LeaderEnd::Unknown,
                LeaderEnd::Exited(value),
                LeaderEnd::Signalled(value),
                LeaderEnd::NotExecuted(value),
                LeaderEnd::NotSpawned(value),
                LeaderEnd::Refused,
            ][end],
            by_us,
            expired,
            killed,
            lingers,
            stopped,
        };
        prop_assert_eq!(decode::<GuardReport>(encode(&record)), record);
    }
}

/// Decodes bytes as each kind of record, and asserts that the result is a record that can be sent.
fn assert_decoded(bytes: [u8; LENGTH]) {
    fn assert_sendable<R: WireRecord + PartialEq + std::fmt::Debug>(bytes: [u8; LENGTH]) {
        let record = decode::<R>(bytes);
        assert_eq!(decode::<R>(encode(&record)), record);
    }
    assert_sendable::<ToGuard>(bytes);
    assert_sendable::<GuardBegin>(bytes);
    assert_sendable::<GuardStart>(bytes);
    assert_sendable::<ShimStart>(bytes);
    assert_sendable::<ShimFailed>(bytes);
    assert_sendable::<GuardReport>(bytes);
}

/// Sends bytes as one message, and asserts that they are a record exactly if they have its length.
fn assert_received(bytes: &[u8]) {
    let (ours, theirs) = pair().unwrap();
    let is_record = bytes.len() == LENGTH;
    send(&ours, bytes, SendFlags::NOSIGNAL).unwrap();
    let taken = take::<GuardReport>(theirs.as_fd());
    assert_eq!(matches!(taken, Received::Record(_)), is_record, "{taken:?}");
    assert!(is_record || taken == Received::Closed, "{taken:?}");
    send(&ours, bytes, SendFlags::NOSIGNAL).unwrap();
    let waited = wait_with::<GuardStart>(theirs.as_fd());
    assert_eq!(matches!(waited, Ok(Some(_))), is_record, "{waited:?}");
}

proptest! {
    #[test]
    fn any_words_are_a_record(
        words in proptest::collection::vec(prop_oneof![any::<u64>(), 0..9_u64], WORDS),
    ) {
        let mut bytes = [0; LENGTH];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        assert_decoded(bytes);
    }

    #[test]
    fn any_bytes_are_a_record_or_refused(
        bytes in proptest::collection::vec(any::<u8>(), 1..3 * LENGTH),
    ) {
        assert_received(&bytes);
    }
}

#[test]
fn the_corpus_is_received_or_refused() {
    for bytes in crate::corpus::inputs("wire") {
        assert_received(&bytes);
        if let Ok(bytes) = bytes.try_into() {
            assert_decoded(bytes);
        }
    }
}

#[test]
fn start_messages_arrive_with_their_descriptors() {
    let (ours, theirs) = pair().unwrap();
    let terms = Terms {
        valid_until: BootTime::from_nanos(7),
        kill_at: BootTime::from_nanos(u64::MAX),
    };
    let start = GuardStart {
        terms,
        stop_signal: 15,
        stop_scope: StopScope::Main,
        leftovers: Leftovers {
            linger: std::time::Duration::from_secs(10),
            grace: std::time::Duration::from_secs(3),
        },
        foreground: 4711,
        place: ClaimPlace::OnStepDown,
        claims: true,
    };
    let (one, two) = rustix::pipe::pipe().unwrap();
    post_with(ours.as_fd(), &start, &[one.as_fd(), two.as_fd()]).unwrap();
    let shim = ShimStart {
        guard: 12,
        valid_until: BootTime::from_nanos(9),
        foreground: 0,
        place: ClaimPlace::OnLead,
        claims: false,
    };
    post_with(ours.as_fd(), &shim, &[]).unwrap();
    let begin = GuardBegin { on_terminal: true };
    post_with(ours.as_fd(), &begin, &[]).unwrap();

    let (told, [reader, writer, None]) = wait_with::<GuardStart>(theirs.as_fd()).unwrap().unwrap()
    else {
        panic!("three descriptors");
    };
    assert_eq!(told, start);
    let (reader, writer) = (reader.unwrap(), writer.unwrap());
    for descriptor in [&reader, &writer] {
        let flags = rustix::io::fcntl_getfd(descriptor).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC), "inherited");
    }
    rustix::io::write(&writer, b"x").unwrap();
    assert_eq!(rustix::io::read(&reader, &mut [0; 2]).unwrap(), 1);
    let (told, [none, ..]) = wait_with::<ShimStart>(theirs.as_fd()).unwrap().unwrap();
    assert_eq!((told, none.is_none()), (shim, true));
    let (told, _) = wait_with::<GuardBegin>(theirs.as_fd()).unwrap().unwrap();
    assert_eq!(told, begin);
    drop(ours);
    assert_eq!(take::<ToGuard>(theirs.as_fd()), Received::Closed);
    assert!(wait_with::<GuardBegin>(theirs.as_fd()).unwrap().is_none());
}

#[test]
fn a_full_socket_is_not_an_error_and_sent_data_is_readable_after_the_end() {
    let (ours, theirs) = pair().unwrap();
    let mut sent = 0;
    let failed = |errno| ShimFailed {
        errno,
        unrecorded: false,
    };
    while post(ours.as_fd(), &failed(sent)).unwrap() {
        sent += 1;
    }
    assert!(sent > 10, "{sent}");
    // The socket is closed while a record of the other side is unread, so an error comes first.
    post(theirs.as_fd(), &failed(1)).unwrap();
    drop(ours);
    for expected in 0..sent {
        let record = Received::Record(failed(expected));
        assert_eq!(take::<ShimFailed>(theirs.as_fd()), record);
    }
    assert_eq!(take::<ShimFailed>(theirs.as_fd()), Received::Closed);
}
