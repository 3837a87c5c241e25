//! Goal: idle daemons keep no connections to the API server open. Method: counts the connections to
//! a proxy's port in the kernel's socket table.

use crate::cluster::{LONG, eventually, in_cluster, wait_in_sync};

fn connections(port: u16) -> usize {
    const ESTABLISHED: &str = "01";
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let to = format!("0100007F:{port:04X}");
    let rows = table.lines().map(|row| row.split_whitespace().collect());
    rows.filter(|row: &Vec<&str>| row[2] == to && row[3] == ESTABLISHED)
        .count()
}

#[test]
fn a_connection_is_closed_after_its_request() {
    in_cluster(async |cluster| {
        let place = cluster.place("a").await;
        let proxy = cluster.kubernetes.proxy();
        let daemon = cluster
            .candidate_through(&place, &proxy)
            .leading(LONG)
            .await;
        cluster.wait_label("a", "leader").await;
        wait_in_sync(&daemon).await;
        let took = eventually("no connection is open", async || {
            connections(proxy.port(0)) == 0
        })
        .await;
        println!("no connection {took:?} after the label was in sync");
        // The test's own connection shows that the test reads the table correctly.
        let address = (std::net::Ipv4Addr::LOCALHOST, proxy.port(0));
        let _own = std::net::TcpStream::connect(address).unwrap();
        eventually("a connection", async || connections(proxy.port(0)) > 0).await;
        daemon.term();
        assert_eq!(daemon.wait_exit(LONG).await, 0);
    });
}
