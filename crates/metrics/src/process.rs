//! The metrics of the process.

use prometheus::core::{Collector, Desc};
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::{Counter, MetricFamily};

use leasehold_clock::cpu_time;

/// A [`ProcessCollector`] with exact CPU time. The original collector rounds CPU time down to whole
/// seconds, but a daemon uses only about 1 s in ten minutes.
pub(super) struct ProcessMetrics(ProcessCollector);

impl ProcessMetrics {
    pub(super) fn new() -> Self {
        Self(ProcessCollector::for_self())
    }
}

impl Collector for ProcessMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.0.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = self.0.collect();
        let mut rounded = families.iter_mut();
        let rounded = rounded.find(|family| family.name() == "process_cpu_seconds_total");
        for metric in rounded.into_iter().flat_map(MetricFamily::mut_metric) {
            let mut exact = Counter::default();
            exact.set_value(cpu_time().as_secs_f64());
            metric.set_counter(exact);
        }
        families
    }
}
