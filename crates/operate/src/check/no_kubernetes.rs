//! Stands in for `kubernetes.rs` in a build without the feature `kubernetes`.

use std::time::Duration;

use super::report::{Check, Finding};
use leasehold_config::{Config, KubernetesEnabled};

/// Checks that nothing is required that this build lacks.
pub(super) async fn checks(config: Config, _: Duration) -> Vec<Check> {
    let without = "this binary was built without the feature kubernetes";
    let finding = match config.kubernetes.enabled {
        KubernetesEnabled::On => Finding::failed(
            without,
            "use a build that has it, or set kubernetes.enabled to \"off\"",
        ),
        KubernetesEnabled::Auto | KubernetesEnabled::Off => Finding::skipped(without),
    };
    vec![Check::new("pod", finding)]
}
