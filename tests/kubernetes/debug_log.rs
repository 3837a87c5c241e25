//! Goal: a debug log contains the records of the Kubernetes client libraries, but no source paths
//! of the build machine.

use crate::cluster::{LONG, in_cluster};

#[test]
fn a_debug_log_contains_no_paths_of_the_build_machine() {
    in_cluster(async |cluster| {
        let place = cluster.place("a").await;
        let daemon = cluster.candidate(&place).flag("--log-level=debug");
        let daemon = daemon.leading(LONG).await;
        cluster.wait_label("a", "leader").await;
        // Only the HTTP client logs this text, so the log contains the libraries' records.
        assert!(daemon.logged("connected to ") > 0, "{}", daemon.logs());
        for record in daemon.log_records() {
            let is_foreign = record.to_string().contains(".rs\"");
            assert!(!is_foreign && record.get("log.file").is_none(), "{record}");
        }
    });
}
