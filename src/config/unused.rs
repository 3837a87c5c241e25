//! Flags that would do nothing, since what they apply to is not configured. In a
//! file or in the environment they may be meant for another daemon, and stay.

use super::error::{Origin, Problem};
use super::validate::Checked;

/// Keys that apply to something that others turn on.
struct Dependent {
    keys: &'static [&'static str],
    /// One of them has a value, or has another one than `off`.
    needs: &'static [&'static str],
    off: &'static str,
    /// What has to be configured.
    what: &'static str,
}

const DEPENDENTS: [Dependent; 4] = [
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
        what: "what kubernetes.enabled=off turns off: leave one of them out",
    },
];

impl Checked {
    /// Refuses flags without an effect.
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
                    let expected = format!("it applies to {}", dependent.what);
                    let (value, origin) = (setting.value.clone(), setting.origin.clone());
                    let problem = Problem::invalid(setting.key, &value, origin, expected);
                    self.0.problems.push(problem);
                }
            }
        }
    }
}
