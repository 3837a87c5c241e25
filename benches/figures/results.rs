//! Reads and writes the file of `--output`, and generates the Markdown tables of `--table` from it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use leasehold_testbed::timeline::readable;
use serde::{Deserialize, Serialize};

/// Figures with this prefix compare leasehold with other systems.
pub(crate) const PEERS: &str = "peers_";
pub(crate) const SCHEMA: u32 = 1;
pub(crate) const OURS: &str = "leasehold";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unit {
    #[serde(rename = "s")]
    Time,
    /// Bytes, shown in MB of 10⁶ bytes, or in kB.
    #[serde(rename = "B")]
    Bytes,
    #[serde(rename = "1")]
    Count,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Values {
    pub(crate) n: usize,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) figure: String,
    pub(crate) what: String,
    pub(crate) system: String,
    pub(crate) disk: String,
    pub(crate) unit: Unit,
    /// `None` if the figure could not be measured.
    #[serde(flatten)]
    pub(crate) values: Option<Values>,
    /// Leasehold's median divided by this system's median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) verdict: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) skipped: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) schema: u32,
    pub(crate) machine: String,
    pub(crate) load: String,
    /// Either `full` or `quick`.
    pub(crate) sizes: String,
    pub(crate) versions: BTreeMap<String, String>,
    pub(crate) disks: BTreeMap<String, String>,
    pub(crate) rows: Vec<Measured>,
}

impl Unit {
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Time => {
                let sign = if value < 0.0 { "-" } else { "" };
                format!("{sign}{}", readable(Duration::from_secs_f64(value.abs())))
            }
            Self::Bytes if value < 1e5 => format!("{:.1} kB", value / 1e3),
            Self::Bytes => format!("{:.2} MB", value / 1e6),
            Self::Count if value.fract() == 0.0 => format!("{value:.0}"),
            // Shares and command counts are small, and their targets have decimals, such as 2.05.
            Self::Count if value < 10.0 => format!("{value:.2}"),
            Self::Count => format!("{value:.1}"),
        }
    }
}

impl Results {
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|error| error.to_string());
        let results = text.and_then(|text| {
            let results = serde_json::from_str(&text);
            results.map_err(|error| error.to_string())
        });
        results.map_err(|problem| format!("{}: {problem}", path.display()))
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).expect("serializable results");
        let parent = path.parent().map_or(Ok(()), fs::create_dir_all);
        let written = parent.and_then(|()| fs::write(path, text + "\n"));
        written.map_err(|error| format!("{}: {error}", path.display()))
    }

    pub(crate) fn compares(&self) -> bool {
        self.rows.iter().any(|row| row.figure.starts_with(PEERS))
    }

    pub(crate) fn tables(&self) -> String {
        let mut text = String::new();
        let versions = self.versions.iter();
        let versions: Vec<_> = versions
            .map(|(name, version)| format!("{name} {version}"))
            .collect();
        let Self { machine, load, .. } = self;
        let _ = write!(
            text,
            "{machine}; load {load} before the start; {} samples.\n{}.\n",
            self.sizes,
            versions.join(", ")
        );
        for (disk, description) in &self.disks {
            let rows: Vec<_> = self.rows.iter().filter(|row| row.disk == *disk).collect();
            let rows: Vec<_> = rows
                .into_iter()
                .filter(|row| row.figure.starts_with(PEERS))
                .collect();
            if rows.is_empty() {
                continue;
            }
            let _ = write!(
                text,
                "\nData in `{disk}`: {description}.\n\n\
                 | figure | system | p50 | p99 | N | leasehold ÷ it | target |\n\
                 | --- | --- | --- | --- | --- | --- | --- |\n"
            );
            let (mut figure, mut before) = ("", "");
            for row in rows {
                if row.figure != figure {
                    let _ = writeln!(text, "| **{}** | | | | | | |", row.figure);
                    (figure, before) = (&row.figure, "");
                }
                let what = if row.what == before { "" } else { &row.what };
                let _ = writeln!(text, "{}", row.cells(what));
                before = &row.what;
            }
        }
        text
    }
}

impl Measured {
    /// Formats a row of a table. `what` names the figure.
    fn cells(&self, what: &str) -> String {
        let (p50, p99, n) = match (&self.values, &self.skipped) {
            (Some(values), _) => {
                let p99 = (values.n > 1).then(|| self.unit.show(values.p99));
                let p50 = self.unit.show(values.p50);
                (p50, p99.unwrap_or_default(), values.n.to_string())
            }
            (None, Some(why)) => (format!("skipped: {why}"), String::new(), String::new()),
            (None, None) => ("failed".to_owned(), String::new(), String::new()),
        };
        let digits = |ratio: f64| if ratio < 0.1 { 4 } else { 2 };
        let ratio = self.ratio;
        let ratio = ratio.map(|ratio| format!("{ratio:.*}", digits(ratio)));
        let target = self.target.as_ref().map(|target| {
            let verdict = self.verdict.as_deref().unwrap_or("not measured");
            format!("{target}: {verdict}")
        });
        let (ratio, target) = (ratio.unwrap_or_default(), target.unwrap_or_default());
        let cells = [what, &self.system, &p50, &p99, &n, &ratio, &target];
        let cells = cells.map(|cell| match cell {
            "" => String::new(),
            cell => format!(" {}", cell.replace('|', "/")),
        });
        format!("|{} |", cells.join(" |"))
    }
}
