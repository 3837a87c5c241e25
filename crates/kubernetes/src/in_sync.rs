use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, Opts};
use tokio::sync::watch;

use super::reconciler::{Label, LabelState};
use leasehold_clock::boot_now;
use leasehold_core::election::{ResourceName, Status};

/// The gauge `leasehold_label_in_sync`, computed at each scrape; absent if labels are disabled.
#[derive(Debug)]
pub struct LabelInSync {
    status: watch::Receiver<Status>,
    state: watch::Receiver<LabelState>,
    gauge: IntGauge,
}

impl LabelInSync {
    /// Creates the gauge for the label of one lease.
    pub fn new(
        lease: &ResourceName,
        status: watch::Receiver<Status>,
        state: watch::Receiver<LabelState>,
    ) -> Result<Self, prometheus::Error> {
        let opts = Opts::new(
            "leasehold_label_in_sync",
            "1 if the last write of the pod's label was acknowledged and is correct at the time of the scrape, else 0; absent if labels are off.",
        );
        Ok(Self {
            status,
            state,
            gauge: IntGauge::with_opts(opts.const_label("lease", lease.as_str()))?,
        })
    }
}

impl Collector for LabelInSync {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let wanted = Label::wanted(&self.status.borrow(), boot_now());
        // The label task drops the sender when it ends.
        let kept = self.state.has_changed().is_ok();
        let in_sync = kept && *self.state.borrow() == LabelState::Acknowledged(wanted);
        self.gauge.set(i64::from(in_sync));
        self.gauge.collect()
    }
}
