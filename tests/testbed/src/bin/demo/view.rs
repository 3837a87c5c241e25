//! The display of the demonstration. On a terminal, a few lines are redrawn in place; otherwise,
//! each change is appended as a new line.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use leasehold_testbed::Daemon;
use leasehold_testbed::daemon::{boottime_ns, leads};

const BAR_CELLS: usize = 20;

pub(crate) struct View {
    begin: Instant,
    terminal: bool,
    colour: bool,
    drawn: usize,
    last: String,
    lease_duration: Duration,
}

impl View {
    pub(crate) fn new(lease_duration: Duration) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self {
            begin: Instant::now(),
            terminal,
            colour,
            drawn: 0,
            last: String::new(),
            lease_duration,
        }
    }

    /// Prints a line that stays on the screen.
    pub(crate) fn say(&mut self, text: &str) {
        let elapsed = self.begin.elapsed().as_secs_f64();
        let mut out = self.over();
        let (bold, plain) = if self.colour {
            ("\x1b[1m", "\x1b[0m")
        } else {
            ("", "")
        };
        for (index, line) in text.lines().enumerate() {
            out += &match index {
                0 => format!("{elapsed:5.1} s  {bold}{line}{plain}\n"),
                _ => format!("         {line}\n"),
            };
        }
        write(&out);
    }

    pub(crate) fn show(&mut self, daemons: &[Daemon]) {
        let rows: Vec<Row> = daemons.iter().map(Row::of).collect();
        if self.terminal {
            let mut out = self.over();
            out.push('\n');
            for row in &rows {
                out += &row.drawn(self.lease_duration, self.colour);
                out.push('\n');
            }
            self.drawn = rows.len() + 1;
            write(&out);
        } else {
            let line: Vec<_> = rows.iter().map(Row::brief).collect();
            let line = line.join("   ");
            if line != self.last {
                self.say(&line);
                self.last = line;
            }
        }
    }

    /// Leaves the drawn lines on the screen.
    pub(crate) fn finish(&mut self) {
        self.drawn = 0;
    }

    fn over(&mut self) -> String {
        match std::mem::take(&mut self.drawn) {
            0 => String::new(),
            lines => format!("\x1b[{lines}A\x1b[J"),
        }
    }
}

struct Row {
    identity: String,
    role: String,
    leads: bool,
    token: Option<u64>,
    left: Duration,
}

impl Row {
    fn of(daemon: &Daemon) -> Self {
        let status = daemon.try_status().unwrap_or_default();
        let role = match daemon.exit_code() {
            Some(0) => "exited",
            Some(137) => "killed",
            Some(_) => "failed",
            None => status["role"].as_str().unwrap_or("starting"),
        };
        let until = status["valid_until_boottime_ns"].as_u64().unwrap_or(0);
        Self {
            identity: daemon.identity().to_owned(),
            role: role.to_owned(),
            // A killed daemon's file may still say leader, so only the deadline counts.
            leads: leads(&status),
            token: status["token"].as_u64(),
            left: Duration::from_nanos(until.saturating_sub(boottime_ns())),
        }
    }

    fn brief(&self) -> String {
        let token = self
            .token
            .filter(|_| self.leads)
            .map(|token| format!(" token {token}"));
        format!(
            "{} {}{}",
            self.identity,
            self.role,
            token.unwrap_or_default()
        )
    }

    fn drawn(&self, lease_duration: Duration, colour: bool) -> String {
        let Self {
            identity,
            role,
            leads,
            token,
            left,
        } = self;
        let mut line = format!(
            "  {} {identity:<10} {role:<9}",
            if *leads { '*' } else { ' ' }
        );
        if *leads {
            let share = left.as_secs_f64() / lease_duration.as_secs_f64();
            // The share of filled cells is a number from 0 to 1.
            let full = ((share * BAR_CELLS as f64).round() as usize).min(BAR_CELLS);
            let bar = "#".repeat(full) + &".".repeat(BAR_CELLS - full);
            let token = token.map_or_else(String::new, |token| token.to_string());
            line += &format!(
                " token {token:<4} authority {:4.1} s [{bar}]",
                left.as_secs_f64()
            );
        }
        let paint = match (colour, leads, role.as_str()) {
            (false, _, _) => return line,
            (true, true, _) => "\x1b[32m",
            (true, false, "killed" | "exited" | "failed") => "\x1b[2m",
            (true, false, _) => "",
        };
        format!("{paint}{line}\x1b[0m")
    }
}

fn write(text: &str) {
    // A failed write means that the reader closed our output.
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
