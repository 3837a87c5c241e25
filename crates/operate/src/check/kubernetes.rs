//! Checks of publishing on the pod: token, rights, policy, latency.

use std::time::Duration;

use super::report::{Check, Name, shown};
use leasehold_clock as clock;
use leasehold_config::{Config, KubernetesConfig, KubernetesEnabled, RENDER_AGAIN};
use leasehold_kubernetes::{Examiner, Refusal, Right, access, pod};
use leasehold_status::render::Identification;

/// Checks publishing; one skipped check outside of a cluster.
pub(super) async fn checks(config: Config, timeout: Duration) -> Vec<Check> {
    let kubernetes = &config.kubernetes;
    let required = match kubernetes.enabled {
        KubernetesEnabled::Off => {
            return vec![Check::skipped(Name::Pod, "kubernetes.enabled is \"off\"")];
        }
        KubernetesEnabled::On => true,
        KubernetesEnabled::Auto => false,
    };
    if let Some(rendered) = kubernetes.placement.moved() {
        return vec![Check::failed(
            Name::Pod,
            format!(
                "this pod is of {}, and the manifests were rendered for {rendered}: the admission policies do not apply to it",
                kubernetes.placement
            ),
            RENDER_AGAIN,
        )];
    }
    let absent = |missing: String| {
        vec![match required {
            true => Check::failed(
                Name::Pod,
                missing,
                "set kubernetes.enabled to \"auto\", or run in a pod with a token",
            ),
            false => Check::skipped(Name::Pod, format!("not in a Kubernetes cluster: {missing}")),
        }]
    };
    let access = match access(&kubernetes.credentials) {
        Ok(access) => access,
        Err(missing) => return absent(missing),
    };
    let pod = match pod(kubernetes, &access) {
        Ok(pod) => pod,
        Err(missing) => {
            let what = "the pod is unknown, so leasehold sets no label and reports no Events";
            return vec![Check::failed(Name::Pod, what, missing)];
        }
    };
    let who = Identification {
        lease: config.lease.name.clone(),
        identity: config.identity.clone(),
        boot_id: None,
    };
    let mut checks = vec![Check::ok(Name::Pod, pod.to_string())];
    let examiner = Examiner::new(access, pod, &kubernetes.label_prefix, &who);
    let calls = TimedRequests {
        timeout,
        took: Vec::new(),
    };
    checks.extend(calls.checks(&examiner, kubernetes).await);
    checks
}

/// Requests to the API server, and how long they took.
struct TimedRequests {
    timeout: Duration,
    took: Vec<Duration>,
}

impl TimedRequests {
    async fn checks(mut self, examiner: &Examiner, config: &KubernetesConfig) -> Vec<Check> {
        let token = match self.call(examiner.user()).await {
            Ok(user) => match user.pod {
                Some(pod) => Check::ok(Name::Token, format!("{}, bound to pod {pod}", user.name)),
                None => Check::warning(
                    Name::Token,
                    format!(
                        "{}, not bound to a pod: an admission policy cannot tell pods apart",
                        user.name
                    ),
                    "mount a projected token, as the charts do",
                ),
            },
            Err(refusal) => return vec![self.unanswered(&refusal)],
        };
        let mut checks = vec![token];
        let mut rights = vec![Right::PatchPodStatus];
        if config.events {
            rights.extend([Right::CreateEvents, Right::PatchEvents]);
        }
        if config.demote_others {
            rights.push(Right::ListPods);
        }
        let mut may_patch = false;
        for right in rights {
            let granted = self.call(examiner.grants(right)).await;
            may_patch |= right == Right::PatchPodStatus && granted == Ok(true);
            checks.push(judged(right, granted));
        }
        if may_patch {
            checks.push(self.label(examiner).await);
            checks.push(self.policy(examiner).await);
        } else {
            let why = "patch pods/status is not granted";
            checks.push(Check::skipped(Name::Label, why));
            checks.push(Check::skipped(Name::AdmissionPolicy, why));
        }
        checks.push(self.latency(config.label_wait));
        checks
    }

    async fn call<T>(
        &mut self,
        request: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let began = clock::boot_now();
        let answered = tokio::time::timeout(self.timeout, request).await;
        self.took.push(clock::boot_now().since(began));
        answered.unwrap_or_else(|_| Err(Refusal::Failed("no answer in time".to_owned())))
    }

    fn unanswered(&self, refusal: &Refusal) -> Check {
        Check::failed(
            Name::Token,
            described(refusal),
            "check the token, ca.crt and the network to the API server (kubernetes.credentials)",
        )
    }

    async fn label(&mut self, examiner: &Examiner) -> Check {
        match self.call(examiner.try_label()).await {
            Ok(()) => Check::ok(Name::Label, "a dry run of the pod's label was accepted"),
            Err(refusal) => Check::failed(
                Name::Label,
                format!("a dry run of the pod's label: {}", described(&refusal)),
                "check POD_NAME, POD_UID and the admission policies: the token must belong to this pod",
            ),
        }
    }

    async fn policy(&mut self, examiner: &Examiner) -> Check {
        let name = Name::AdmissionPolicy;
        match self.call(examiner.try_more_than_the_label()).await {
            Err(Refusal::Policy) => {
                Check::ok(name, "a dry run of another change to the pod was refused")
            }
            Ok(()) => Check::warning(
                name,
                "a dry run of another change to the pod was accepted: the token may change the status of every pod in the namespace",
                "install the ValidatingAdmissionPolicy of the chart (docs/kubernetes.md)",
            ),
            Err(Refusal::Failed(why)) => Check::skipped(name, why),
        }
    }

    /// Judges the requests, each over a connection of its own, as publishing makes them.
    fn latency(mut self, label_wait: Duration) -> Check {
        self.took.sort_unstable();
        let median = self.took.get(self.took.len() / 2).copied();
        let median = median.unwrap_or_default();
        let slowest = self.took.last().copied().unwrap_or_default();
        let detail = format!(
            "p50 {}, slowest {} of {} requests (label_wait {})",
            shown(median),
            shown(slowest),
            self.took.len(),
            shown(label_wait)
        );
        let check = match median > label_wait {
            true => Check::warning(
                Name::ApiServer,
                format!("{detail}: a step-down does not wait for the label that long"),
                "find out why the API server is slow; until then the label of a former leader is late",
            ),
            false => Check::ok(Name::ApiServer, detail),
        };
        check.millis("p50_ms", median).millis("max_ms", slowest)
    }
}

fn judged(right: Right, granted: Result<bool, Refusal>) -> Check {
    let name = Name::Access;
    let check = match granted {
        Ok(true) => Check::ok(name, "granted"),
        Ok(false) => Check::failed(
            name,
            "not granted",
            format!(
                "a Role bound to this pod's service account must allow {}",
                right.rule()
            ),
        ),
        Err(refusal) => Check::skipped(name, described(&refusal)),
    };
    check.of(right.rule())
}

fn described(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Policy => "refused by the API server".to_owned(),
        Refusal::Failed(why) => why.clone(),
    }
}
