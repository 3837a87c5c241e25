//! Formats rows of measured values, and compares them with their targets.

use leasehold_testbed::timeline::{SUMMARY_HEADINGS, Table};

use crate::results::{Measured, PEERS, Values};

pub(crate) use crate::results::Unit;

/// The statistic of a series to which a target applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Statistic {
    Median,
    P99,
    Min,
    Max,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    AtMost(Statistic, f64),
    AtLeast(Statistic, f64),
}

#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) figure: &'static str,
    pub(crate) what: String,
    /// The compared system, or `None` if the figure measures only leasehold.
    pub(crate) system: Option<&'static str>,
    /// The disk. Empty until the figure is complete.
    pub(crate) disk: &'static str,
    unit: Unit,
    pub(crate) values: Option<Values>,
    /// Leasehold's median divided by this system's median.
    pub(crate) ratio: Option<f64>,
    pub(crate) target: String,
    pub(crate) verdict: &'static str,
    skipped: Option<String>,
}

impl Row {
    /// Creates a row. A series without bounds has no target.
    pub(crate) fn new(
        figure: &'static str,
        what: impl Into<String>,
        unit: Unit,
        series: &[f64],
        bounds: &[Bound],
    ) -> Self {
        let values = values(series);
        let met = |bound: &Bound| match *bound {
            Bound::AtMost(of, limit) => values.is_some_and(|v| of.of(&v) <= limit),
            Bound::AtLeast(of, limit) => values.is_some_and(|v| of.of(&v) >= limit),
        };
        let target: Vec<_> = bounds.iter().map(|bound| bound.show(unit)).collect();
        Self {
            figure,
            what: what.into(),
            system: None,
            disk: "",
            unit,
            values,
            ratio: None,
            target: target.join(", "),
            verdict: match bounds {
                [] => "",
                bounds if bounds.iter().all(met) => "met",
                _ => "MISSED",
            },
            skipped: None,
        }
    }

    pub(crate) fn failed(figure: &'static str) -> Self {
        Self {
            verdict: "FAILED",
            ..Self::new(
                figure,
                "could not be measured, see above",
                Unit::Count,
                &[],
                &[],
            )
        }
    }

    pub(crate) fn skipped(figure: &'static str, system: &'static str, why: String) -> Self {
        Self {
            skipped: Some(why),
            ..Self::new(figure, "not measured", Unit::Count, &[], &[]).of(system)
        }
    }

    pub(crate) fn of(self, system: &'static str) -> Self {
        Self {
            system: Some(system),
            ..self
        }
    }

    /// Formats the row as one line of the progress output.
    pub(crate) fn line(&self) -> String {
        let cells = SUMMARY_HEADINGS.into_iter().zip(self.cells());
        let cells: Vec<_> = cells.map(|(name, cell)| format!("{name} {cell}")).collect();
        let (figure, what) = (self.figure, self.name());
        match &self.skipped {
            Some(why) => format!("  {figure}: {what}: skipped: {why}"),
            None => format!(
                "  {figure}: {what}: {}; {}",
                cells.join(", "),
                self.result()
            ),
        }
    }

    /// True if the figure could not be measured although all its programs are available.
    pub(crate) fn is_failed(&self) -> bool {
        self.verdict == "FAILED"
    }

    pub(crate) fn unit(&self) -> Unit {
        self.unit
    }

    fn result(&self) -> String {
        match self.target.as_str() {
            "" => self.verdict.to_owned(),
            target => format!("target {target} {}", self.verdict),
        }
    }

    /// Appends the name of the compared system, if any, to the description.
    fn name(&self) -> String {
        let disk = match self.disk {
            "" | "ram" => String::new(),
            other => format!(", disk {other}"),
        };
        match self.system {
            Some(system) => format!("{system}: {}{disk}", self.what),
            None => format!("{}{disk}", self.what),
        }
    }

    fn cells(&self) -> [String; 5] {
        let Some(values) = &self.values else {
            return ["-", "-", "-", "-", "0"].map(str::to_owned);
        };
        let Values {
            n,
            p50,
            p99,
            min,
            max,
        } = *values;
        let [p50, p99, min, max] = [p50, p99, min, max].map(|value| self.unit.show(value));
        [p50, p99, min, max, n.to_string()]
    }

    fn measured(&self) -> Measured {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let round = |values: Values| Values {
            n: values.n,
            p50: significant(values.p50),
            p99: significant(values.p99),
            min: significant(values.min),
            max: significant(values.max),
        };
        Measured {
            figure: self.figure.to_owned(),
            what: self.what.clone(),
            system: self.system.unwrap_or(crate::results::OURS).to_owned(),
            disk: self.disk.to_owned(),
            unit: self.unit,
            values: self.values.map(round),
            ratio: self.ratio.map(significant),
            target: some(&self.target),
            verdict: some(&self.verdict.to_lowercase()),
            skipped: self.skipped.clone(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
}

impl Report {
    pub(crate) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    pub(crate) fn measured(&self) -> Vec<Measured> {
        self.rows.iter().map(Row::measured).collect()
    }

    /// Formats a table for a Markdown code block, of the figures that are not comparisons. Returns
    /// `None` if all figures are comparisons.
    pub(crate) fn render(&self) -> Option<String> {
        let headings = ["figure", "what"].into_iter().chain(SUMMARY_HEADINGS);
        let mut table = Table::new(headings.chain(["target", "verdict"]));
        let mut rows = self
            .rows
            .iter()
            .filter(|row| !row.figure.starts_with(PEERS))
            .peekable();
        rows.peek()?;
        for row in rows {
            let (target, verdict) = match &row.skipped {
                Some(why) => (why.clone(), "skipped".to_owned()),
                None => (row.target.clone(), row.verdict.to_owned()),
            };
            let first = [row.figure.to_owned(), row.name()];
            let last = [target, verdict];
            table.row(first.into_iter().chain(row.cells()).chain(last));
        }
        Some(table.render())
    }
}

impl Bound {
    fn show(&self, unit: Unit) -> String {
        let (statistic, sign, limit) = match *self {
            Self::AtMost(statistic, limit) => (statistic, '≤', limit),
            Self::AtLeast(statistic, limit) => (statistic, '≥', limit),
        };
        let statistic = match statistic {
            Statistic::Median => "p50",
            Statistic::P99 => "p99",
            Statistic::Min => "min",
            Statistic::Max => "max",
        };
        format!("{statistic} {sign} {}", unit.show(limit))
    }
}

impl Statistic {
    fn of(self, values: &Values) -> f64 {
        match self {
            Self::Median => values.p50,
            Self::P99 => values.p99,
            Self::Min => values.min,
            Self::Max => values.max,
        }
    }
}

/// Returns the statistics, or `None` for an empty series. With fewer than 100 values, the 99th
/// percentile is the largest value (nearest rank).
fn values(series: &[f64]) -> Option<Values> {
    let mut sorted = series.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    Some(Values {
        n: sorted.len(),
        p50: f64::midpoint(sorted[last / 2], sorted[sorted.len() / 2]),
        p99: sorted[(sorted.len() * 99).div_ceil(100) - 1],
        min: sorted[0],
        max: sorted[last],
    })
}

fn significant(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}
