use mongodb::bson::{Bson, Document, doc};

use super::document::{date, number, token};
use leasehold_core::election::{IDENTITY_LENGTH_MAX, Identity, Token, WallMillis};

/// Fields of an entry and of the history: how the holder's command ended.
pub(super) const EXIT_CODE: &str = "exit_code";
pub(super) const SIGNAL: &str = "signal";
pub(super) const LEFTOVERS_STOPPED: &str = "leftovers_stopped";

/// A former holder of a lease or lock. Informational: an unreadable field is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastHolder {
    /// The holder's token.
    pub token: Option<Token>,
    /// The holder's identity.
    pub identity: Option<Identity>,
    /// The holder's slot, if the lock has slots.
    pub slot: Option<u32>,
    /// Time at which the holder joined.
    pub acquired_at: WallMillis,
    /// Time at which the holder left or was removed.
    pub ended_at: WallMillis,
    /// For a lease, the name of a [`Reason`](leasehold_core::election::Reason); for a lock,
    /// `released`, `expired` or `broken`.
    pub reason: Option<String>,
    /// For a lock, how the holder's command ended. Old versions do not record this.
    pub result: Option<CommandResult>,
}

/// How the command of a lock's holder ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandResult {
    /// The command exited.
    Exited {
        /// The exit code of the command, or of `leasehold lock` if the command was not executed, or
        /// if the lock was lost before the command ended.
        code: u8,
        /// True if processes that the command left behind were stopped, so that their work may be
        /// incomplete.
        leftovers_stopped: bool,
    },
    /// The signal that ended the command.
    Signal(i32),
}

impl CommandResult {
    pub(super) fn fields(self) -> Document {
        match self {
            Self::Exited {
                code,
                leftovers_stopped,
            } => {
                let mut fields = doc! { EXIT_CODE: i32::from(code) };
                if leftovers_stopped {
                    fields.insert(LEFTOVERS_STOPPED, true);
                }
                fields
            }
            Self::Signal(number) => doc! { SIGNAL: number },
        }
    }

    fn of(end: &Document) -> Option<Self> {
        let signal = number(end, SIGNAL).filter(|number| (1..=64).contains(number));
        let exited = || {
            Some(Self::Exited {
                code: number(end, EXIT_CODE)?,
                leftovers_stopped: end.get_bool(LEFTOVERS_STOPPED).unwrap_or(false),
            })
        };
        signal.map(Self::Signal).or_else(exited)
    }
}

pub(super) fn history(document: &Document) -> Vec<PastHolder> {
    let ends = list(document, "history")
        .iter()
        .filter_map(Bson::as_document);
    ends.map(|end| PastHolder {
        token: token(end).ok(),
        identity: end.get_str("identity").ok().map(named),
        slot: number(end, "slot"),
        acquired_at: date(end.get("acquired_at")),
        ended_at: date(end.get("ended_at")),
        reason: text(end, "reason"),
        result: CommandResult::of(end),
    })
    .collect()
}

pub(super) fn list<'a>(document: &'a Document, key: &str) -> &'a [Bson] {
    match document.get(key) {
        Some(Bson::Array(elements)) => elements,
        Some(_) | None => &[],
    }
}

/// Returns an identity for display. If the text is not a valid identity, misleading characters are
/// replaced, and a long text is cut.
pub(super) fn named(text: &str) -> Identity {
    Identity::new(shown(text))
        .or_else(|_| Identity::new("?"))
        .expect("a question mark is a legal identity")
}

/// Returns a string field, safe to show on a terminal; `None` if the field is not a string.
pub(super) fn text(document: &Document, key: &str) -> Option<String> {
    document.get_str(key).ok().map(shown)
}

pub(super) fn shown(text: &str) -> String {
    let mut shown = text.replace(misleads, "?");
    shown.truncate(shown.floor_char_boundary(IDENTITY_LENGTH_MAX));
    shown
}

/// True for characters that control a terminal, are invisible, or reorder text.
fn misleads(c: char) -> bool {
    let format = [
        '\u{200b}'..='\u{200f}',
        '\u{2028}'..='\u{202e}',
        '\u{2060}'..='\u{206f}',
    ];
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{feff}')
        || format.iter().any(|range| range.contains(&c))
}
