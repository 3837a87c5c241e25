//! Measures the size of the shipped binary.

use crate::launch::Setup;
use crate::report::{Bound, Row, Statistic, Unit};

pub(crate) async fn measure(setup: Setup) -> Vec<Row> {
    let metadata = std::fs::metadata(&setup.binary).expect("the binary exists");
    #[allow(clippy::cast_precision_loss)] //
    let bytes = metadata.len() as f64;
    vec![Row::new(
        "size",
        "release binary, stripped",
        Unit::Bytes,
        &[bytes],
        &[Bound::AtMost(Statistic::Max, 11e6)],
    )]
}
