//! Text on the stack, for code that must not allocate.

use std::fmt;
use std::io::Write as _;

/// Returns a string padded with a filler. The last byte is always the filler.
pub(super) fn padded<const N: usize>(filler: u8, text: fmt::Arguments<'_>) -> [u8; N] {
    let mut bytes = [filler; N];
    let fits = (&mut bytes[..N - 1]).write_fmt(text).is_ok();
    debug_assert!(fits);
    bytes
}
