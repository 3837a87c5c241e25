//! Tests that slow clients, endless bodies and many connections do not exhaust the daemon's memory
//! or descriptors, delay its renewals, or starve its other clients.

use std::sync::atomic::Ordering;

use leasehold::admin::{CONNECTIONS_MAX, STREAMS_MAX};
use leasehold_testbed::hostile::{Attack, Hostile};
use leasehold_testbed::{Daemon, run, skip, wait::within};

use crate::target::{
    LONG, assert_unharmed, descriptors, eventually, forget_peak, loopback, peak, resident, stage,
};

/// Limit of the memory that clients may occupy. 64 connections and 32 streams, each with at most 48
/// KiB, need 4.5 MiB. The allocator may retain another 4.5 MiB.
const MEMORY_MAX: u64 = 9 * 1024 * 1024;
/// Limit of the descriptors that clients may occupy: one for each connection and stream, and as
/// many again for evicted connections that are still closing.
const DESCRIPTORS_MAX: usize = 2 * (CONNECTIONS_MAX + STREAMS_MAX);
/// Maximum number of bytes that the daemon may accept from a client that sends a body of 1 GiB. The
/// daemon reads no body, so only the socket buffers of both sides fill up.
const BODY_MAX: u64 = 32 * 1024 * 1024;
/// Number of renewals that a leader must complete during an attack.
const RENEWALS: f64 = 8.0;

async fn renewals(daemon: &Daemon) -> f64 {
    daemon.operations("renew", "applied").await
}

/// Returns true if the daemon answers another client during the attack. One probe may fail, because
/// the kernel drops connections while its accept queue is full. A kubelet restarts a container
/// after three failures.
async fn answers(daemon: &Daemon) -> bool {
    for _ in 0..3 {
        if daemon
            .http("/livez")
            .await
            .is_ok_and(|(code, _)| code == 200)
        {
            return true;
        }
    }
    false
}

/// Attacks a leader at full strength until it has renewed its lease [`RENEWALS`] times.
async fn withstands(attack: Attack, has_full_extent: impl Fn(&Hostile) -> bool) {
    let stage = stage().await;
    let daemon = stage.candidate("a").leading(LONG).await;
    let (pid, token) = (daemon.pid(), daemon.token().unwrap());
    assert_unharmed(&daemon, token).await;
    let transitions = daemon.status()["transitions"].clone();
    let server = loopback(daemon.port());
    let before = (resident(pid), descriptors(pid, server));
    forget_peak(pid);
    let hostile = match Hostile::start(attack, server) {
        Ok(hostile) => hostile,
        Err(failure) => return skip(&failure.to_string()),
    };
    let mut descriptors_most = 0;
    within(3 * LONG, "the attack is at full strength", async || {
        descriptors_most = descriptors_most.max(descriptors(pid, server));
        assert!(answers(&daemon).await, "{}", daemon.logs());
        has_full_extent(&hostile)
    })
    .await;
    let enough = renewals(&daemon).await + RENEWALS;
    eventually("the leader renews during the attack", async || {
        descriptors_most = descriptors_most.max(descriptors(pid, server));
        assert!(daemon.leads(), "{}", daemon.logs());
        renewals(&daemon).await >= enough
    })
    .await;
    let most = peak(pid);
    let counts = format!("{:?}", hostile.counts());
    drop(hostile);
    let taken = most.saturating_sub(before.0);
    assert!(taken <= MEMORY_MAX, "{taken} bytes; {counts}");
    let taken = descriptors_most.saturating_sub(before.1);
    assert!(taken <= DESCRIPTORS_MAX, "{taken} descriptors; {counts}");
    eventually("the descriptors are closed", async || {
        descriptors(pid, server) <= before.1
    })
    .await;
    assert_unharmed(&daemon, token).await;
    assert_eq!(daemon.status()["transitions"], transitions);
}

#[test]
fn slow_request_heads_do_not_exhaust_the_daemon() {
    const CLIENTS: usize = 500;
    run(withstands(Attack::ByteByByte(CLIENTS), |hostile| {
        // The attack opens far more connections than the server keeps, so the server must have
        // evicted most of them.
        let connections = hostile.counts().connections.load(Ordering::Relaxed);
        connections >= 4 * CLIENTS as u64
    }));
}

#[test]
fn ten_thousand_connections_do_not_exhaust_the_daemon() {
    const CONNECTIONS: usize = 10_000;
    run(withstands(Attack::Connections(CONNECTIONS), |hostile| {
        hostile.counts().connections.load(Ordering::Relaxed) >= CONNECTIONS as u64
    }));
}

#[test]
fn bodies_of_a_gibibyte_are_not_read() {
    const CLIENTS: usize = 20;
    run(withstands(Attack::Bodies(CLIENTS), |hostile| {
        let counts = hostile.counts();
        let most = counts.bytes_of_one.load(Ordering::Relaxed);
        assert!(
            most <= BODY_MAX,
            "the server accepted {most} bytes of a body"
        );
        // Waits until each client has sent a body to every path, in both encodings.
        counts.connections.load(Ordering::Relaxed) >= 10 * CLIENTS as u64
    }));
}
