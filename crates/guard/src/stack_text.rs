//! Text on the stack, for code that must not allocate.

use std::ffi::CStr;
use std::fmt::{self, Write as _};

/// A text of at most `N - 1` bytes, padded with a filler.
#[derive(Debug)]
pub(super) struct StackText<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> StackText<N> {
    pub(super) fn new(filler: u8, text: fmt::Arguments<'_>) -> Self {
        let mut written = Self {
            bytes: [filler; N],
            length: 0,
        };
        let fits = written.write_fmt(text).is_ok();
        debug_assert!(fits);
        written
    }

    pub(super) fn bytes(&self) -> [u8; N] {
        self.bytes
    }

    pub(super) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

impl<const N: usize> fmt::Write for StackText<N> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let end = self.length + part.len();
        let place = self.bytes[..N - 1].get_mut(self.length..end);
        place.ok_or(fmt::Error)?.copy_from_slice(part.as_bytes());
        self.length = end;
        Ok(())
    }
}
