//! The Helm charts, judged by what people run on them: helm, kubeconform,
//! promtool, and the API server.

#![allow(
    clippy::unwrap_used,
    reason = "a fixture that fails should end its test"
)]

#[path = "chart/alerts.rs"]
mod alerts;
#[path = "chart/cluster.rs"]
mod cluster;
#[path = "chart/configuration.rs"]
mod configuration;
#[path = "chart/dashboard.rs"]
mod dashboard;
#[path = "chart/documented.rs"]
mod documented;
#[path = "chart/end_to_end.rs"]
mod end_to_end;
#[path = "chart/event_policy.rs"]
mod event_policy;
#[path = "chart/helm.rs"]
mod helm;
#[path = "chart/injection.rs"]
mod injection;
#[path = "chart/mistakes.rs"]
mod mistakes;
#[path = "chart/names.rs"]
mod names;
#[path = "chart/policy.rs"]
mod policy;
#[path = "chart/published.rs"]
mod published;
#[path = "chart/release.rs"]
mod release;
#[path = "chart/renders.rs"]
mod renders;
#[path = "chart/supervisor.rs"]
mod supervisor;
#[path = "chart/templates.rs"]
mod templates;
