//! Describes one lock as text: its holders, waiters, successes and history.

use super::super::render::{held_for, or_dash, place, short, since, table};
use super::{ObservedLock, style};
use crate::table::{Row, Style, description};
use leasehold_core::lock::{Entry, EntryMode};
use leasehold_guard::dispositions::signal_name;
use leasehold_mongodb::store::StoreInfo;
use leasehold_mongodb::store::mongo::{CommandResult, PastHolder};
use leasehold_status::dates::date_in_seconds;

impl ObservedLock<'_> {
    pub(crate) fn description(&self, store: &StoreInfo) -> String {
        let lock = &self.record.lock;
        let (held, waiting) = (self.holding().count(), lock.queue.len());
        let and_silent = match self.holding().filter(|(.., silent)| *silent).count() {
            0 => String::new(),
            count => format!(" ({count} not renewing)"),
        };
        let is_shared = |(entry, ..): (&Entry, _, _)| entry.mode == EntryMode::Shared;
        let mut state = self.lock_state().to_owned();
        state += &match (held, lock.slots) {
            (0, _) => String::new(),
            (_, 0) if self.holding().all(is_shared) => format!(", shared by {held}{and_silent}"),
            (_, 0) => String::new(),
            (_, slots) => format!(", {held} of {slots} slots{and_silent}"),
        };
        let fields = [
            ("Lock", self.name.to_owned()),
            ("Store", place(store)),
            ("Token", lock.token.to_string()),
            ("State", format!("{state}, {waiting} waiting")),
        ];
        let successes = match lock.successes.is_empty() {
            true => "Last successes",
            false => "Last successes (--once-per)",
        };
        let tables = [
            ("Holders", self.holder_rows()),
            ("Waiters, in order", self.waiter_rows()),
            (successes, self.success_rows()),
            ("History, newest first", self.history_rows()),
        ];
        description(&fields, &tables)
    }

    fn holder_rows(&self) -> Vec<Row> {
        let rows = self.holders().iter().map(|(entry, evidence)| {
            let state = self.state(entry, evidence.as_ref());
            Row::new([
                or_dash(entry.token),
                state.as_str().to_owned(),
                self.mode(entry),
                entry.owner.identity.to_string(),
                or_dash(since(entry.owner.acquired_at).map(short)),
                self.renewed(entry, evidence.as_ref()),
                self.why(entry, state, evidence.as_ref()),
            ])
            .styled(style(state))
        });
        let header = [
            "TOKEN", "STATE", "MODE", "IDENTITY", "SINCE", "RENEWED", "WHY",
        ];
        table(header, rows)
    }

    fn waiter_rows(&self) -> Vec<Row> {
        let waiters = self.waiters().iter().enumerate();
        let rows = waiters.map(|(index, (entry, evidence))| {
            let gone = evidence.as_ref().filter(|it| it.is_silent());
            let silent = gone.map(|gone| format!("; {}", gone.words(None, self.now)));
            let cells = [
                (index + 1).to_string(),
                self.mode(entry),
                entry.owner.identity.to_string(),
                or_dash(since(entry.owner.acquired_at).map(short)),
                self.renewed(entry, evidence.as_ref()),
                self.awaits(index) + &silent.unwrap_or_default(),
            ];
            Row::new(cells).styled(if gone.is_some() {
                Style::Bad
            } else {
                Style::Plain
            })
        });
        let header = ["PLACE", "MODE", "IDENTITY", "WAITS", "RENEWED", "WHY"];
        table(header, rows)
    }

    fn success_rows(&self) -> Vec<Row> {
        if self.record.lock.successes.is_empty() {
            return vec![Row::new([
                "none recorded (only runs with --once-per are recorded)".to_owned(),
            ])];
        }
        let newest = self.record.lock.successes.iter().rev();
        let rows = newest.map(|success| {
            Row::new([
                success.key.to_string(),
                date_in_seconds(success.at),
                or_dash(self.by_store(success.at).map(short)),
            ])
        });
        table(["KEY", "AT", "AGE"], rows)
    }

    fn history_rows(&self) -> Vec<Row> {
        let rows = self.record.history.iter().rev().map(|end| {
            Row::new([
                or_dash(end.token),
                or_dash(end.identity.as_ref()),
                or_dash(end.slot),
                held_for(end),
                date_in_seconds(end.ended_at),
                or_dash(self.by_store(end.ended_at).map(short)),
                or_dash(end.reason.as_ref()),
                or_dash(result(end)),
            ])
        });
        // MongoDB's clock dates the beginning and the end of each hold.
        let header = [
            "TOKEN", "IDENTITY", "SLOT", "HELD FOR", "ENDED", "AGE", "REASON", "RESULT",
        ];
        table(header, rows)
    }
}

/// Returns how the command of a lock's holder ended: `exit 3`, `SIGKILL` or
/// `exit 0, leftovers stopped`.
pub(super) fn result(ended: &PastHolder) -> Option<String> {
    Some(match ended.result? {
        CommandResult::Exited {
            code,
            leftovers_stopped,
        } => {
            let leftovers = leftovers_stopped.then_some(", leftovers stopped");
            format!("exit {code}{}", leftovers.unwrap_or_default())
        }
        CommandResult::Signal(number) => signal_name(number),
    })
}
