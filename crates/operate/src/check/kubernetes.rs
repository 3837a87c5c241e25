//! Checks what the daemon needs to label its pod and report Events: token, permissions, policy,
//! latency.

use std::time::Duration;

use super::report::{Check, Checked, Finding, shown};
use leasehold_clock as clock;
use leasehold_config::{Config, KubernetesConfig, KubernetesEnabled, RENDER_AGAIN};
use leasehold_kubernetes::{Access, Api, Examiner, Pod, Refusal, Right, access, pod};
use leasehold_status::render::Identification;

pub(super) async fn checks(config: Config, timeout: Duration) -> Vec<Check> {
    let kubernetes = &config.kubernetes;
    let (access, pod) = match place(kubernetes) {
        Ok(place) => place,
        Err(finding) => return vec![Check::new("pod", finding)],
    };
    let who = Identification {
        lease: config.lease.name.clone(),
        identity: config.identity.name.clone(),
        boot_id: None,
    };
    let mut checks = vec![Check::new("pod", Finding::ok(pod.to_string()))];
    let api = Api::new(access);
    let examiner = Examiner::new(api, pod, &kubernetes.label_prefix, &who);
    let took = Vec::new();
    let requests = TimedRequests { timeout, took };
    checks.extend(requests.checks(&examiner, kubernetes).await);
    checks
}

fn place(config: &KubernetesConfig) -> Result<(Access, Pod), Finding> {
    if config.enabled == KubernetesEnabled::Off {
        return Err("kubernetes.enabled is \"off\"".into());
    }
    if let Some(rendered) = config.placement.moved() {
        return Err(Finding::failed(
            format!(
                "this pod runs as {}, but the manifests were rendered for {rendered}: the admission policies do not apply to this pod",
                config.placement
            ),
            RENDER_AGAIN,
        ));
    }
    let access = access(&config.credentials).map_err(|missing| match config.enabled {
        KubernetesEnabled::On => Finding::failed(
            missing,
            "set kubernetes.enabled to \"auto\", or run in a pod with a token",
        ),
        _ => Finding::skipped(format!("not in a Kubernetes cluster: {missing}")),
    })?;
    let pod = pod(config, &access).map_err(|missing| {
        let what = "the pod is unknown, so leasehold sets no label and reports no Events";
        Finding::failed(what, missing)
    })?;
    Ok((access, pod))
}

struct TimedRequests {
    timeout: Duration,
    took: Vec<Duration>,
}

impl TimedRequests {
    async fn checks(mut self, examiner: &Examiner, config: &KubernetesConfig) -> Vec<Check> {
        let token = self.token(examiner).await;
        let is_answered = token.is_ok();
        let mut checks = vec![Check::new("token", token)];
        if !is_answered {
            return checks;
        }
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
            checks.push(Check::new("access", judged(right, granted)).of(right.rule()));
        }
        if may_patch {
            checks.push(Check::new("label", self.label(examiner).await));
            checks.push(Check::new("admission-policy", self.policy(examiner).await));
        } else {
            let why = "patch pods/status is not granted";
            checks.extend(Check::skipped(["label", "admission-policy"], why));
        }
        checks.push(Check::new("api-server", self.latency(config.label_wait)));
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

    async fn token(&mut self, examiner: &Examiner) -> Checked {
        let user = self.call(examiner.user()).await.map_err(|refusal| {
            Finding::failed(
                described(refusal),
                "check the token, ca.crt and the network to the API server (kubernetes.credentials)",
            )
        })?;
        let name = user.name;
        Ok(match user.pod {
            Some(pod) => Finding::ok(format!("{name}, bound to pod {pod}")),
            None => Finding::warning(
                format!("{name}, not bound to a pod: an admission policy cannot identify the pod"),
                "mount a projected token, as the charts do",
            ),
        })
    }

    async fn label(&mut self, examiner: &Examiner) -> Finding {
        match self.call(examiner.try_label()).await {
            Ok(()) => Finding::ok("a dry run of the pod's label was accepted"),
            Err(refusal) => Finding::failed(
                format!("a dry run of the pod's label: {}", described(refusal)),
                "check POD_NAME, POD_UID and the admission policies: the token must belong to this pod",
            ),
        }
    }

    async fn policy(&mut self, examiner: &Examiner) -> Finding {
        match self.call(examiner.try_more_than_the_label()).await {
            Err(Refusal::Policy) => {
                Finding::ok("a dry run of another change to the pod was refused")
            }
            Ok(()) => Finding::warning(
                "a dry run of another change to the pod was accepted: the token may change the status of every pod in the namespace",
                "install the ValidatingAdmissionPolicy of the chart (docs/kubernetes.md)",
            ),
            Err(Refusal::Failed(why)) => Finding::skipped(why),
        }
    }

    /// Compares the requests' latency with `label_wait`. Each request uses a new connection, as in
    /// the daemon.
    fn latency(mut self, label_wait: Duration) -> Finding {
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
        let remedy = "check the API server's latency: a step-down waits at most label_wait, so a former leader may keep its label after the step-down";
        Finding::warning_if(median > label_wait, detail, remedy)
            .millis("p50_ms", median)
            .millis("max_ms", slowest)
    }
}

fn judged(right: Right, granted: Result<bool, Refusal>) -> Finding {
    match granted {
        Ok(true) => Finding::ok("granted"),
        Ok(false) => Finding::failed(
            "not granted",
            format!(
                "a Role bound to this pod's service account must allow {}",
                right.rule()
            ),
        ),
        Err(refusal) => Finding::skipped(described(refusal)),
    }
}

fn described(refusal: Refusal) -> String {
    match refusal {
        Refusal::Policy => "refused by the API server".to_owned(),
        Refusal::Failed(why) => why,
    }
}
