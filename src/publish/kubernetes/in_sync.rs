//! The gauge that says whether the label can be believed, computed at the scrape.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, Opts};
use tokio::sync::watch;

use super::upkeep::{Label, Shown};
use crate::clock::boot_now;
use crate::election::{LeaseName, Status};

/// `leasehold_label_in_sync`. There is none where there are no labels.
#[derive(Debug)]
pub struct LabelInSync {
    status: watch::Receiver<Status>,
    shown: watch::Receiver<Shown>,
    gauge: IntGauge,
}

impl LabelInSync {
    /// For the label of one lease.
    ///
    /// # Errors
    /// When the name is none of Prometheus': a bug.
    pub fn new(
        lease: &LeaseName,
        status: watch::Receiver<Status>,
        shown: watch::Receiver<Shown>,
    ) -> Result<Self, prometheus::Error> {
        let opts = Opts::new(
            "leasehold_label_in_sync",
            "1 if the last write of the pod's label was acknowledged and says what is true at the \
             time of the scrape, else 0; absent where labels are off.",
        );
        Ok(Self {
            status,
            shown,
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
        // What was shown by a task that has ended is kept by nobody.
        let kept = self.shown.has_changed().is_ok();
        let in_sync = kept && *self.shown.borrow() == Shown::Says(wanted);
        self.gauge.set(i64::from(in_sync));
        self.gauge.collect()
    }
}
