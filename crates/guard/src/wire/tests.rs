use std::os::fd::AsFd;

use proptest::prelude::*;

use super::*;
use leasehold_core::deadline_policy::{Leftovers, Stop, StopScope};

fn any_time() -> impl Strategy<Value = BootTime> {
    any::<u64>().prop_map(BootTime::from_nanos)
}

fn arrived<R: Serialize + DeserializeOwned>(record: &R) -> Option<R> {
    decode(encode(record, &mut [0; LENGTH_MAX]).expect("the record fits"))
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
        let record = ToGuard { desired, relay, relays, dismissed: kill };
        prop_assert_eq!(arrived(&record), Some(record));
    }

    #[test]
    fn a_report_arrives_as_it_was_sent(
        stage in 0..4_usize,
        end in 0..6_usize,
        value: i32,
        code: u8,
        leader: i32,
        flags: [bool; 3],
        stopped in 0..=64_i32,
    ) {
        let [by_us, killed, lingers] = flags;
        let record = GuardReport {
            stage: [CommandStage::Starting, CommandStage::Running, CommandStage::LeaderEnded, CommandStage::Gone][stage],
            leader,
            end: [
                CommandEnd::Unknown,
                CommandEnd::Exited(code),
                CommandEnd::Signalled(value),
                CommandEnd::NotExecuted(value),
                CommandEnd::NotSpawned(value),
                CommandEnd::Refused,
            ][end],
            by_us,
            killed,
            lingers,
            stopped,
        };
        prop_assert_eq!(arrived(&record), Some(record));
    }
}

fn assert_decoded(bytes: &[u8]) {
    fn assert_sendable<R>(bytes: &[u8])
    where
        R: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
    {
        if let Some(record) = decode::<R>(bytes) {
            assert_eq!(arrived(&record), Some(record));
        }
    }
    assert_sendable::<ToGuard>(bytes);
    assert_sendable::<GuardBegin>(bytes);
    assert_sendable::<GuardStart>(bytes);
    assert_sendable::<ShimStart>(bytes);
    assert_sendable::<CommandEnd>(bytes);
    assert_sendable::<GuardReport>(bytes);
}

/// Sends bytes as one message. Asserts that the receiver accepts the message if and only if it can
/// be decoded.
fn assert_received(bytes: &[u8]) {
    let (ours, theirs) = pair().unwrap();
    let fits = bytes.len() <= LENGTH_MAX;
    send(&ours, bytes, SendFlags::NOSIGNAL).unwrap();
    let taken = take::<GuardReport>(theirs.as_fd());
    let report = decode(bytes).filter(|_| fits);
    assert_eq!(taken, report.map_or(Received::Closed, Received::Record));
    send(&ours, bytes, SendFlags::NOSIGNAL).unwrap();
    let waited = wait_with::<GuardStart>(theirs.as_fd());
    let is_start = fits && decode::<GuardStart>(bytes).is_some();
    assert_eq!(matches!(waited, Ok(Some(_))), is_start, "{waited:?}");
}

proptest! {
    #[test]
    fn a_changed_record_is_a_record_or_refused(
        code: u8,
        changes in proptest::collection::vec((0..LENGTH_MAX, any::<u8>()), 0..4),
        rest in 0..LENGTH_MAX,
    ) {
        let report = GuardReport {
            stage: CommandStage::Gone,
            leader: 4711,
            end: CommandEnd::Exited(code),
            by_us: true,
            killed: false,
            lingers: false,
            stopped: 0,
        };
        let mut bytes = [0; LENGTH_MAX];
        let mut bytes = encode(&report, &mut bytes).unwrap().to_vec();
        for (index, byte) in changes {
            let index = index % bytes.len();
            bytes[index] = byte;
        }
        bytes.truncate(rest.max(1));
        assert_decoded(&bytes);
        assert_received(&bytes);
    }

    #[test]
    fn any_bytes_are_a_record_or_refused(
        bytes in proptest::collection::vec(any::<u8>(), 1..3 * LENGTH_MAX),
    ) {
        assert_received(&bytes);
    }
}

#[test]
fn the_corpus_is_received_or_refused() {
    for bytes in crate::corpus::inputs("wire") {
        assert_received(&bytes);
        assert_decoded(&bytes);
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
        policy: PolicyOptions {
            terms,
            stop_signal: 15,
            stop_scope: StopScope::Main,
            leftovers: Leftovers {
                linger: std::time::Duration::MAX,
                grace: std::time::Duration::from_secs(3),
            },
        },
        foreground: i32::MIN,
        place: Some(ClaimPlace::OnStepDown),
        has_witness: true,
        stop_grace: std::time::Duration::MAX,
        session: BootTime::from_nanos(u64::MAX),
    };
    let (one, two) = rustix::pipe::pipe().unwrap();
    post_with(ours.as_fd(), &start, &[one.as_fd(), two.as_fd()]).unwrap();
    let shim = ShimStart {
        guard: 12,
        valid_until: BootTime::from_nanos(9),
        foreground: 0,
        place: None,
    };
    post_with(ours.as_fd(), &shim, &[]).unwrap();
    let begin = GuardBegin {
        on_terminal: true,
        has_witness: true,
    };
    post_with(ours.as_fd(), &begin, &[]).unwrap();

    let (received, [reader, writer, None]) =
        wait_with::<GuardStart>(theirs.as_fd()).unwrap().unwrap()
    else {
        panic!("three descriptors");
    };
    assert_eq!(received, start);
    let (reader, writer) = (reader.unwrap(), writer.unwrap());
    for descriptor in [&reader, &writer] {
        let flags = rustix::io::fcntl_getfd(descriptor).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC), "inherited");
    }
    rustix::io::write(&writer, b"x").unwrap();
    assert_eq!(rustix::io::read(&reader, &mut [0; 2]).unwrap(), 1);
    let (received, [none, ..]) = wait_with::<ShimStart>(theirs.as_fd()).unwrap().unwrap();
    assert_eq!((received, none.is_none()), (shim, true));
    let (received, _) = wait_with::<GuardBegin>(theirs.as_fd()).unwrap().unwrap();
    assert_eq!(received, begin);
    drop(ours);
    assert_eq!(take::<ToGuard>(theirs.as_fd()), Received::Closed);
    assert!(wait_with::<GuardBegin>(theirs.as_fd()).unwrap().is_none());
}

#[test]
fn a_full_socket_is_not_an_error_and_sent_data_is_readable_after_the_end() {
    let (ours, theirs) = pair().unwrap();
    let mut sent = 0;
    let failed = CommandEnd::NotExecuted;
    while post(ours.as_fd(), &failed(sent)).unwrap() {
        sent += 1;
    }
    assert!(sent > 10, "{sent}");
    // This side closes the socket with an unread record, so the peer's next read fails first.
    post(theirs.as_fd(), &failed(1)).unwrap();
    drop(ours);
    for expected in 0..sent {
        let record = Received::Record(failed(expected));
        assert_eq!(take::<CommandEnd>(theirs.as_fd()), record);
    }
    assert_eq!(take::<CommandEnd>(theirs.as_fd()), Received::Closed);
}
