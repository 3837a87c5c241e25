//! Rejects flags of a feature that is off. Files and environment may have these keys, because they
//! may be intended for another daemon.

use super::error::Origin;
use super::load::Loaded;

/// Keys of a feature that other keys enable.
struct Dependent {
    keys: &'static [&'static str],
    /// The feature is on if one of these keys has a value other than `off`.
    needs: &'static [&'static str],
    off: &'static str,
    /// The feature and the remedy, for the error.
    what: &'static str,
}

const DEPENDENTS: [Dependent; 6] = [
    Dependent {
        keys: &["lease.prefer_interval"],
        needs: &["lease.prefer"],
        off: "none",
        what: "automatic handover, which is off: set lease.prefer to \"priority\"",
    },
    Dependent {
        keys: &[
            "workload.health.period",
            "workload.health.timeout",
            "workload.health.failures",
        ],
        needs: &["workload.health.url", "workload.health.command"],
        off: "",
        what: "a health check: set workload.health.url or workload.health.command",
    },
    Dependent {
        keys: &["hooks.timeout"],
        needs: &["hooks.on_lead", "hooks.on_step_down"],
        off: "",
        what: "a hook: set hooks.on_lead or hooks.on_step_down",
    },
    Dependent {
        keys: &["hooks.on_step_down_stops_workload"],
        needs: &["hooks.on_step_down"],
        off: "",
        what: "a hook: set hooks.on_step_down",
    },
    Dependent {
        keys: &["http.ready_when"],
        needs: &["http.listen"],
        off: "",
        what: "the HTTP endpoints, which are off: set http.listen",
    },
    Dependent {
        keys: &[
            "kubernetes.pod_name",
            "kubernetes.pod_namespace",
            "kubernetes.pod_uid",
            "kubernetes.credentials",
            "kubernetes.label_prefix",
            "kubernetes.label_wait",
            "kubernetes.demote_others",
            "kubernetes.events",
        ],
        needs: &["kubernetes.enabled"],
        off: "off",
        what: "labels and Events, which kubernetes.enabled=off turns off: leave one of them out",
    },
];

impl Loaded {
    pub(super) fn unused_flags(&mut self) {
        for dependent in &DEPENDENTS {
            let on = |key: &&str| {
                let needed = self.setting(key);
                !needed.valid || needed.value != dependent.off
            };
            if dependent.needs.iter().any(on) {
                continue;
            }
            for key in dependent.keys {
                let setting = self.setting(key);
                if setting.valid && matches!(setting.origin, Origin::Flag(_)) {
                    self.reject(key, &format!("it applies to {}", dependent.what));
                }
            }
        }
    }
}
