//! Goal: a debug log shows what the libraries for the API server report, without paths of the build.

use crate::cluster::{LONG, in_cluster};

#[test]
fn a_debug_log_has_no_paths_of_the_build() {
    in_cluster(async |cluster| {
        let place = cluster.place("a").await;
        let daemon = cluster.candidate(&place).flag("--log-level=debug");
        let daemon = daemon.leading(LONG).await;
        cluster.wait_label("a", "leader").await;
        // By the HTTP client, before the first connection by TLS.
        assert!(daemon.logged("connected to ") > 0, "{}", daemon.logs());
        for record in daemon.log_records() {
            let is_foreign = record.to_string().contains(".rs\"");
            assert!(!is_foreign && record.get("log.file").is_none(), "{record}");
        }
    });
}
