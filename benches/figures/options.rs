use std::path::PathBuf;

use leasehold_testbed::Storage;

use crate::launch::Setup;
use crate::results::PEERS;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Disk {
    pub(crate) name: &'static str,
    pub(crate) storage: Storage,
}

const DISKS: [Disk; 2] = [
    Disk {
        name: "ram",
        storage: Storage::Memory,
    },
    Disk {
        name: "real",
        storage: Storage::Disk,
    },
];

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) setup: Setup,
    pub(crate) disks: Vec<Disk>,
    selected: Vec<String>,
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug)]
pub(crate) enum Order {
    Measure(Options),
    Table(PathBuf),
    Help,
}

impl Options {
    /// True if the figure is selected. The comparison runs only on request, because it is slow and
    /// needs a Go toolchain.
    pub(crate) fn selects(&self, name: &str) -> bool {
        let named = |selected: &String| {
            selected == name || (selected == "peers" && name.starts_with(PEERS))
        };
        match self.selected.as_slice() {
            [] => !name.starts_with(PEERS),
            selected => selected.iter().any(named),
        }
    }

    /// True if any figure of the comparison is selected.
    pub(crate) fn compares(&self) -> bool {
        let of_peers = |selected: &String| selected.starts_with("peers");
        self.selected.iter().any(of_peers)
    }
}

impl Disk {
    pub(crate) fn setup(&self, setup: &Setup) -> Setup {
        Setup {
            storage: self.storage,
            ..setup.clone()
        }
    }
}

pub(crate) fn help(known: &[&str]) -> String {
    format!(
        "usage: cargo bench --bench figures -- [OPTION…] [FIGURE…]\n\
         \n\
         Figures: {}\n\
         `peers` stands for all figures that begin with {PEERS}: the comparison with client-go,\n\
         etcdctl and a hand-made lock. Without a name, all others are measured.\n\
         \n\
         Options:\n  \
         --quick        fewer samples\n  \
         --binary FILE  the binary to measure [default: the one of this build]\n  \
         --disk LIST    place of the stores' data: ram, real, or ram,real for both in turn [default: ram];\n                 \
         real is TMPDIR, or /var/tmp if that is in memory\n  \
         --output FILE  write all rows as JSON\n  \
         --table FILE   print the Markdown tables of such a file, and measure nothing\n  \
         --help         print this text",
        known.join(" ")
    )
}

/// Parses the arguments. The error names the mistake and its remedy.
pub(crate) fn parse(arguments: &[String], known: &[&str]) -> Result<Order, String> {
    let mut options = Options {
        setup: Setup::default(),
        disks: vec![DISKS[0]],
        selected: Vec::new(),
        output: None,
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = |what: &str| {
            let value = arguments.next();
            value.ok_or_else(|| format!("{argument} takes {what}"))
        };
        match argument.as_str() {
            // Cargo passes this flag.
            "--bench" => {}
            "--help" => return Ok(Order::Help),
            "--quick" => options.setup.quick = true,
            "--binary" => options.setup.binary = value("a file")?.into(),
            "--disk" => options.disks = disks(value("ram, real or ram,real")?)?,
            "--output" => options.output = Some(value("a file")?.into()),
            "--table" => return Ok(Order::Table(value("a file")?.into())),
            name if name == "peers" || known.contains(&name) => {
                options.selected.push(name.to_owned());
            }
            other => {
                let known = known.join(" ");
                return Err(format!(
                    "{other}: not a figure; these are: {known} peers; --help lists the options"
                ));
            }
        }
    }
    Ok(Order::Measure(options))
}

fn disks(list: &str) -> Result<Vec<Disk>, String> {
    let disk = |name: &str| {
        let found = DISKS.into_iter().find(|disk| disk.name == name);
        found.ok_or_else(|| format!("--disk {name}: not ram or real"))
    };
    list.split(',').map(disk).collect()
}
