//! The Helm charts, judged by what people run on them: helm, kubeconform,
//! promtool, and the API server.

#![allow(
    clippy::unwrap_used,
    reason = "a fixture that fails should end its test"
)]

#[path = "chart/alerts.rs"]
mod alerts;
#[path = "chart/configuration.rs"]
mod configuration;
#[path = "chart/dashboard.rs"]
mod dashboard;
#[path = "chart/helm.rs"]
mod helm;
#[path = "chart/renders.rs"]
mod renders;
#[path = "chart/templates.rs"]
mod templates;
