//! `leasehold leases --watch`: a live table on a terminal, and otherwise one JSON line per change.

mod screen;

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tracing::warn;

use self::screen::{PressedKey, Screen};
use super::Session;
use super::observed::Observed;
use super::render;
use crate::table::{Row, Style, color, lines};
use leasehold_cli::unwritable;
use leasehold_clock as clock;
use leasehold_host::CommandError;
use leasehold_host::exit;
use leasehold_host::signals::{Exit, Resizes, StopSignal, Stops};
use leasehold_mongodb::store::mongo::operators::{LiveView, Scope, ViewEvent};

/// Minimum time between two frames: a busy collection must not keep the terminal busy.
const FRAME_MIN: Duration = Duration::from_millis(200);
/// Maximum time between two frames, so that the times without a renewal advance.
const FRAME_MAX: Duration = Duration::from_secs(1);

pub(super) async fn run(session: &Session) -> Result<Exit, CommandError> {
    let mut stops = Stops::register().map_err(CommandError::failed(
        exit::CANNOT_TELL,
        "register the signal handlers",
    ))?;
    // At the start an unreachable MongoDB is an error, as in other commands; later the command
    // waits for it.
    let (mut view, mut observed) = session.follow(Scope::Leases, "list the leases").await?;
    let ended = async {
        match io::stdout().is_terminal() && !session.json {
            true => table(session, &mut view, &mut observed).await,
            false => changes(&mut view, &mut observed).await,
        }
    };
    tokio::select! {
        ended = ended => match ended {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(exit::DONE.into()),
            ended => ended.map_err(unwritable),
        },
        stop = stops.next() => Ok(stop.into()),
        () = output_closed() => Ok(exit::DONE.into()),
    }
}

/// Waits until standard output is a pipe without a reader.
async fn output_closed() {
    // For a file this never completes: no reader closes it.
    if let Ok(output) = watched_output()
        && output.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

fn watched_output() -> io::Result<AsyncFd<OwnedFd>> {
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    // The constructor is deprecated for types whose descriptor may change, but an `OwnedFd` keeps its
    // descriptor. The replacement is unsafe, which this crate forbids.
    #[allow(deprecated)]
    AsyncFd::with_interest(output, Interest::ERROR)
}

/// Prints one line per change until the output is closed.
async fn changes(view: &mut LiveView, observed: &mut Observed) -> io::Result<Exit> {
    for seen in observed.documents() {
        line("present", render::object(seen, clock::boot_now()))?;
    }
    let mut expired = expired_leases(observed);
    let mut next_check = clock::boot_now() + FRAME_MAX;
    loop {
        let left = next_check.since(clock::boot_now());
        let event = tokio::time::timeout(left, view.next()).await;
        let changed: Vec<String> = match event {
            Ok(None) => return Ok(exit::DONE.into()),
            Ok(Some(event)) => {
                if let ViewEvent::Failed(failure) | ViewEvent::Polling(failure) = &event {
                    warn!(why = %failure, "MongoDB reports no changes, retrying");
                }
                let documents = observed.apply(event).into_iter();
                documents
                    .filter_map(|(name, differs)| differs.then_some(name))
                    .collect()
            }
            Err(_) => {
                next_check = clock::boot_now() + FRAME_MAX;
                let before = std::mem::replace(&mut expired, expired_leases(observed));
                let changed = before.symmetric_difference(&expired);
                // Deletions have been printed.
                changed
                    .filter(|name| observed.get(name).is_some())
                    .cloned()
                    .collect()
            }
        };
        for name in changed {
            match observed.get(&name) {
                Some(seen) => line("changed", render::object(seen, clock::boot_now()))?,
                None => line("removed", json!({ "lease": name }))?,
            }
        }
    }
}

fn expired_leases(observed: &Observed) -> BTreeSet<String> {
    let now = clock::boot_now();
    let expired = observed.documents().filter(|seen| seen.has_expired(now));
    expired.map(|seen| seen.entry.name.clone()).collect()
}

fn line(event: &str, mut object: Value) -> io::Result<()> {
    let at = humantime::format_rfc3339_millis(clock::wall_now());
    object["event"] = event.into();
    object["at"] = at.to_string().into();
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{object}")?;
    stdout.flush()
}

/// Draws a live table until the operator quits.
async fn table(
    session: &Session,
    view: &mut LiveView,
    observed: &mut Observed,
) -> io::Result<Exit> {
    let mut screen = Screen::enter()?;
    let mut resizes = Resizes::register()?;
    let mut first_row = 0;
    let mut trouble = None;
    loop {
        draw(session, observed, &mut first_row, trouble.as_deref())?;
        let drawn = clock::boot_now();
        let mut pause = FRAME_MAX;
        loop {
            let left = (drawn + pause).since(clock::boot_now());
            tokio::select! {
                event = view.next() => {
                    let Some(event) = event else {
                        return Ok(exit::DONE.into());
                    };
                    match &event {
                        ViewEvent::Failed(failure) | ViewEvent::Polling(failure) => {
                            trouble = Some(failure.to_string());
                        }
                        ViewEvent::Streaming => trouble = None,
                        _ => {}
                    }
                    observed.apply(event);
                    pause = FRAME_MIN;
                    continue;
                }
                key = screen.key() => match key {
                    PressedKey::Quit => return Ok(exit::DONE.into()),
                    PressedKey::Interrupt => return Ok(Exit::Key(StopSignal::INTERRUPT)),
                    PressedKey::Scroll(rows) => first_row = usize::saturating_add_signed(first_row, rows),
                },
                () = resizes.next() => {}
                () = tokio::time::sleep(left) => {}
            }
            break;
        }
    }
}

/// Draws one frame.
fn draw(
    session: &Session,
    observed: &Observed,
    first_row: &mut usize,
    trouble: Option<&str>,
) -> io::Result<()> {
    let (width, height) = screen::size();
    let info = session.collection.info().unwrap_or_default();
    let rows = render::rows(observed, clock::boot_now());
    let (header, rows) = rows.split_at(1);
    let needs_attention = |row: &&Row| matches!(row.style, Style::Warning | Style::Bad);
    let troubled = rows.iter().filter(needs_attention).count();
    // Two lines above and one below the rows.
    let visible = height.saturating_sub(3).max(1);
    let total = rows.len();
    *first_row = (*first_row).min(total.saturating_sub(visible));
    let last_row = (*first_row + visible).min(total);
    let title = format!(
        "leasehold leases  {}.{}{}  {total} leases, {troubled} need attention  {}",
        info.database,
        info.collection,
        info.set.map(|set| format!(" ({set})")).unwrap_or_default(),
        humantime::format_rfc3339_millis(clock::wall_now()),
    );
    let (footer, style) = match trouble {
        Some(trouble) => (format!("MongoDB reports no changes: {trouble}"), Style::Bad),
        None if total > visible => {
            let first = *first_row + 1;
            let keys = "arrows, PgUp and PgDn scroll, q quits";
            (format!("{first}-{last_row} of {total}; {keys}"), Style::Dim)
        }
        None => ("q quits".to_owned(), Style::Dim),
    };
    let footer = Row::new([footer]).styled(style);
    let shown = [header, &rows[*first_row..last_row]].concat();
    let mut frame = lines(&[Row::new([title])], Some(width), false);
    frame.extend(lines(&shown, Some(width), color()));
    frame.resize(height.saturating_sub(1), String::new());
    frame.extend(lines(&[footer], Some(width), color()));
    screen::show(&frame)
}
