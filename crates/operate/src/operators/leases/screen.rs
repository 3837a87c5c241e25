//! Controls the terminal of a live table: alternate screen, no cursor, no echo.

use std::io::{self, IsTerminal, Read};

use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr,
    tcsetattr,
};
use tokio::sync::mpsc;

use super::output;

/// Maximum number of keys in the queue. While the queue is full, the thread that reads the keys
/// waits.
const KEYS_MAX: usize = 16;
const PAGE: isize = 20;
/// Selects the alternate screen, hides the cursor, and turns off line wrap.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l\u{1b}[2J";
const LEAVE: &str = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PressedKey {
    /// q or Ctrl-D.
    Quit,
    /// Ctrl-C, which raises no signal here.
    Interrupt,
    /// Scrolls down by this number of rows; 0 for an unknown key.
    Scroll(isize),
}

/// Restores the previous state of the terminal when dropped.
pub(super) struct Screen {
    /// The keys and the previous settings; `None` if standard input is not a terminal.
    keyboard: Option<(mpsc::Receiver<PressedKey>, Termios)>,
}

impl Screen {
    pub(super) async fn enter() -> io::Result<Self> {
        let keyboard = match io::stdin().is_terminal() {
            true => Some(keyboard()?),
            false => None,
        };
        let screen = Self { keyboard };
        output::write(ENTER.to_owned()).await?;
        Ok(screen)
    }

    pub(super) async fn key(&mut self) -> PressedKey {
        match &mut self.keyboard {
            Some((keys, _)) => keys.recv().await.unwrap_or(PressedKey::Quit),
            None => std::future::pending().await,
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        output::write_last(LEAVE);
        if let Some((_, before)) = &self.keyboard {
            // `OptionalActions::Flush` would wait while the terminal accepts no output.
            let _ = tcflush(io::stdin(), QueueSelector::IFlush);
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// Turns off echo, line editing and signal keys of standard input, and reads keys. If signal keys
/// were on, Ctrl-Z would leave the shell on the alternate screen.
fn keyboard() -> io::Result<(mpsc::Receiver<PressedKey>, Termios)> {
    let before = tcgetattr(io::stdin())?;
    let mut raw = before.clone();
    let cooked = LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
    raw.local_modes.remove(cooked);
    raw.special_codes[SpecialCodeIndex::VMIN] = 1;
    raw.special_codes[SpecialCodeIndex::VTIME] = 0;
    tcsetattr(io::stdin(), OptionalActions::Flush, &raw)?;
    let (sender, keys) = mpsc::channel(KEYS_MAX);
    // A thread reads the keys, because O_NONBLOCK would affect all processes that share the
    // terminal.
    std::thread::Builder::new()
        .name("leasehold-keys".to_owned())
        .spawn(move || {
            let mut bytes = [0; 16];
            while let Ok(read) = io::stdin().lock().read(&mut bytes) {
                if sender.blocking_send(key(&bytes[..read])).is_err() || read == 0 {
                    break;
                }
            }
        })?;
    Ok((keys, before))
}

fn key(bytes: &[u8]) -> PressedKey {
    match bytes {
        // The terminal was closed.
        [] => PressedKey::Quit,
        // One read returns all keys that were pressed since the last read.
        [first, ..] if *first != 0x1b && bytes.contains(&0x03) => PressedKey::Interrupt,
        [first, ..] if *first != 0x1b && bytes.iter().any(|key| b"qQ\x04".contains(key)) => {
            PressedKey::Quit
        }
        b"\x1b[A" | b"\x1bOA" | b"k" => PressedKey::Scroll(-1),
        b"\x1b[B" | b"\x1bOB" | b"j" => PressedKey::Scroll(1),
        b"\x1b[5~" | b"b" => PressedKey::Scroll(-PAGE),
        b"\x1b[6~" | b" " => PressedKey::Scroll(PAGE),
        b"\x1b[H" | b"\x1b[1~" | b"g" => PressedKey::Scroll(isize::MIN),
        b"\x1b[F" | b"\x1b[4~" | b"G" => PressedKey::Scroll(isize::MAX),
        _ => PressedKey::Scroll(0),
    }
}

/// Overwrites the screen, because erasing it first would flicker.
pub(super) async fn show(lines: &[String]) -> io::Result<()> {
    let mut frame = String::from("\u{1b}[H");
    for (index, line) in lines.iter().enumerate() {
        if index > 0 {
            frame.push_str("\r\n");
        }
        frame.push_str(line);
        frame.push_str("\u{1b}[K");
    }
    frame.push_str("\u{1b}[J");
    output::write(frame).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_scroll_and_quit() {
        for (bytes, expected) in [
            (&b"q"[..], PressedKey::Quit),
            (b"\x04", PressedKey::Quit),
            (b"\x03", PressedKey::Interrupt),
            (b"\x1b[A", PressedKey::Scroll(-1)),
            (b"\x1b[6~", PressedKey::Scroll(PAGE)),
            (b"g", PressedKey::Scroll(isize::MIN)),
            (b"\x03\x03", PressedKey::Interrupt),
            (b"jjq", PressedKey::Quit),
            (b"x", PressedKey::Scroll(0)),
        ] {
            assert_eq!(key(bytes), expected, "{bytes:?}");
        }
    }
}
