//! Goal: after a candidate has begun to step down, its workload can confirm that it has finished.
//! The server accepts the confirmation only from this machine, and only with the token of the
//! ending leadership.

use std::net::SocketAddr;
use std::time::Duration;

use leasehold::admin::{BODY_BYTES_MAX, ReadyWhen};
use leasehold::election::{Input, Role, Status};
use leasehold_testbed::skip;

use crate::{leader, serve, serve_on, status, token};

#[test]
fn a_confirmation_is_accepted_only_for_the_token_that_steps_down() {
    let stopping = Status {
        stepping_down: Some(token(7)),
        ..status(Role::Stopping)
    };
    let mut served = serve(leader(Duration::from_secs(60)), ReadyWhen::Connected);
    assert_eq!(served.confirm("?token=7"), 409, "the candidate still leads");
    served.status.send_replace(stopping);
    for bad in ["", "?token=", "?token=-7", "?token=seven"] {
        assert_eq!(served.confirm(bad), 400, "{bad}");
    }
    assert_eq!(served.confirm("?token=6"), 409);
    assert_eq!(served.confirm("?token=8"), 409);
    assert!(served.inputs.try_recv().is_err());
    assert_eq!(served.confirm("?token=7"), 202);
    assert_eq!(
        served.confirm("?token=7"),
        503,
        "the queue has room for one confirmation"
    );
    let confirmed = Input::WorkloadDone { token: token(7) };
    assert_eq!(served.inputs.try_recv(), Ok(confirmed));
    let (code, _, _) = served.ask_with(
        "POST /stepped-down?token=7",
        "origin: http://evil.example\r\n",
        "",
    );
    assert_eq!(code, 403, "a request from a web page is refused");
    let long = "x".repeat(BODY_BYTES_MAX + 1);
    let (code, _, _) = served.ask_with("POST /stepped-down?token=7", "", &long);
    assert_eq!(code, 413);
}

#[test]
fn a_confirmation_from_another_machine_is_forbidden() {
    // A peer that connects from a non-loopback address of this machine counts as remote.
    let probe = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let routed = probe.connect("192.0.2.1:9");
    let outer = routed.and_then(|()| probe.local_addr());
    let outer = outer.map(|a| a.ip()).ok().filter(|ip| !ip.is_loopback());
    let Some(outer) = outer else {
        skip("this machine has no address besides loopback");
        return;
    };
    let served = serve_on(
        SocketAddr::new(outer, 0),
        status(Role::Stopping),
        ReadyWhen::Connected,
    );
    assert_eq!(served.confirm("?token=7"), 403);
    assert_eq!(served.get("/livez").0, 200);
}
