//! Stored text of unknown origin, made safe to show on a terminal.

use mongodb::bson::Document;

use leasehold_core::election::{IDENTITY_LENGTH_MAX, Identity};

/// Returns an identity that is shown to humans only. An invalid one is shown as far as possible
/// instead of making the document foreign.
pub(super) fn named(text: &str) -> Identity {
    Identity::new(shown(text))
        .or_else(|_| Identity::new("?"))
        .expect("a question mark is a legal identity")
}

/// Returns a text field, safe to show on a terminal; `None` if the field is not a text.
pub(super) fn text(document: &Document, key: &str) -> Option<String> {
    document.get_str(key).ok().map(shown)
}

/// Makes stored text of unknown origin safe to show on a terminal.
pub(super) fn shown(text: &str) -> String {
    let mut shown = text.replace(misleads, "?");
    shown.truncate(shown.floor_char_boundary(IDENTITY_LENGTH_MAX));
    shown
}

/// Returns true for a character that a terminal obeys, hides, or uses to reorder others.
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
