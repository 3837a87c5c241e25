//! `leasehold leases --watch`: a live table on a terminal, and otherwise one JSON line per change.

mod screen;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use serde_json::json;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tracing::warn;

use self::screen::{PressedKey, Screen};
use super::Session;
use super::observed::{Liveness, Observed, ObservedDocument, lease};
use super::render::{self, HEADER, Instant};
use crate::table::{Row, Style, color, lines};
use leasehold_cli::unwritable;
use leasehold_clock as clock;
use leasehold_core::election::BootTime;
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
    let mut view = session.collection.follow(Scope::Leases);
    let mut observed = Observed::default();
    // At the start an unreachable MongoDB is an error, as in other commands; later the command
    // waits for it.
    let (entries, at) = session.listed(&mut view, "list the leases").await?;
    observed.apply(ViewEvent::Listed { entries, at });
    let terminal = io::stdout().is_terminal() && !session.json;
    let ended = async {
        match terminal {
            true => table(session, &mut view, &mut observed).await,
            false => changes(&mut view, &mut observed)
                .await
                .map(|()| exit::DONE.into()),
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
async fn changes(view: &mut LiveView, observed: &mut Observed) -> io::Result<()> {
    let mut liveness = BTreeMap::new();
    for seen in observed.documents() {
        line("present", seen)?;
    }
    note_expired(observed, &mut liveness);
    let mut next_check = clock::boot_now() + FRAME_MAX;
    loop {
        let left = next_check.since(clock::boot_now());
        match tokio::time::timeout(left, view.next()).await {
            Ok(None) => return Ok(()),
            Ok(Some(ViewEvent::Failed(failure) | ViewEvent::Polling(failure))) => {
                warn!(why = %failure, "MongoDB reports no changes, retrying");
                observed.apply(ViewEvent::Failed(failure));
            }
            Ok(Some(event)) => {
                for name in observed.apply(event) {
                    match observed.get(&name) {
                        Some(seen) => line("changed", seen)?,
                        None => removed(&name)?,
                    }
                }
            }
            Err(_) => {
                for name in note_expired(observed, &mut liveness) {
                    if let Some(seen) = observed.get(&name) {
                        line("changed", seen)?;
                    }
                }
                next_check = clock::boot_now() + FRAME_MAX;
            }
        }
    }
}

/// Returns the leases that have expired, or no longer are expired, since the last call.
fn note_expired(observed: &Observed, before: &mut BTreeMap<String, bool>) -> Vec<String> {
    let now = clock::boot_now();
    let expired: BTreeMap<_, _> = observed
        .documents()
        .map(|seen| {
            (
                seen.entry.name.clone(),
                liveness(seen, now) == Some(Liveness::Expired),
            )
        })
        .collect();
    let changed = |(name, expired): (&String, &bool)| {
        (before.get(name).copied().unwrap_or(false) != *expired).then(|| name.clone())
    };
    let changed = expired.iter().filter_map(changed).collect();
    *before = expired;
    changed
}

fn liveness(seen: &ObservedDocument, now: BootTime) -> Option<Liveness> {
    let duration = lease(&seen.entry)?.lease_duration()?;
    Some(seen.silence.liveness(duration, now))
}

fn line(event: &str, seen: &ObservedDocument) -> io::Result<()> {
    let now = Instant::now();
    let mut object = render::object(seen, now.boot);
    object["event"] = event.into();
    object["at"] = humantime::format_rfc3339_millis(now.wall)
        .to_string()
        .into();
    write_line(&object)
}

fn removed(name: &str) -> io::Result<()> {
    let at = humantime::format_rfc3339_millis(clock::wall_now()).to_string();
    write_line(&json!({ "lease": name, "event": "removed", "at": at }))
}

fn write_line(object: &serde_json::Value) -> io::Result<()> {
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
    let mut drawn = clock::boot_now();
    draw(session, observed, &mut first_row, trouble.as_deref())?;
    let mut dirty = false;
    loop {
        let pause = if dirty { FRAME_MIN } else { FRAME_MAX };
        let left = (drawn + pause).since(clock::boot_now());
        tokio::select! {
            event = view.next() => match event {
                None => return Ok(exit::DONE.into()),
                Some(ViewEvent::Failed(failure) | ViewEvent::Polling(failure)) => {
                    trouble = Some(failure.to_string());
                    observed.apply(ViewEvent::Failed(failure));
                    dirty = true;
                    continue;
                }
                Some(event) => {
                    if matches!(event, ViewEvent::Streaming) {
                        trouble = None;
                    }
                    observed.apply(event);
                    dirty = true;
                    continue;
                }
            },
            key = screen.key() => match key {
                PressedKey::Quit => return Ok(exit::DONE.into()),
                PressedKey::Interrupt => return Ok(Exit::Key(StopSignal::INTERRUPT)),
                PressedKey::Scroll(rows) => first_row = usize::saturating_add_signed(first_row, rows),
                PressedKey::Top => first_row = 0,
                PressedKey::Other => {}
            },
            () = resizes.next() => {}
            () = tokio::time::sleep(left) => {}
        }
        draw(session, observed, &mut first_row, trouble.as_deref())?;
        drawn = clock::boot_now();
        dirty = false;
    }
}

/// Draws one frame.
fn draw(
    session: &Session,
    observed: &Observed,
    first_row: &mut usize,
    trouble: Option<&str>,
) -> io::Result<()> {
    let now = Instant::now();
    let (width, height) = screen::size();
    let info = session.collection.info().unwrap_or_default();
    let rows: Vec<_> = observed
        .documents()
        .map(|seen| render::row(seen, now))
        .collect();
    let troubled = rows
        .iter()
        .filter(|row| matches!(row.style, Style::Warning | Style::Bad))
        .count();
    // Two lines above and one below the rows.
    let visible = height.saturating_sub(3).max(1);
    *first_row = (*first_row).min(rows.len().saturating_sub(visible));
    let total = rows.len();
    let title = format!(
        "leasehold leases  {}.{}{}  {total} leases, {troubled} need attention  {}",
        info.database,
        info.collection,
        info.set.map(|set| format!(" ({set})")).unwrap_or_default(),
        humantime::format_rfc3339_millis(now.wall),
    );
    let header = Row::new(HEADER).styled(Style::Header);
    let shown: Vec<_> = std::iter::once(header)
        .chain(rows.into_iter().skip(*first_row).take(visible))
        .collect();
    let footer = match trouble {
        Some(trouble) => format!("MongoDB reports no changes: {trouble}"),
        None if total > visible => {
            let last = (*first_row + visible).min(total);
            format!(
                "{}-{last} of {total}; arrows, PgUp and PgDn scroll, q quits",
                *first_row + 1
            )
        }
        None => "q quits".to_owned(),
    };
    let style = if trouble.is_some() {
        Style::Bad
    } else {
        Style::Dim
    };
    let mut frame = lines(&[Row::new([title])], Some(width), false);
    frame.extend(lines(&shown, Some(width), color()));
    frame.resize(height.saturating_sub(1), String::new());
    frame.extend(lines(
        &[Row::new([footer]).styled(style)],
        Some(width),
        color(),
    ));
    screen::show(&frame)
}
