//! `leasehold leases`: lists every lease of the collection once. With `--watch`, it shows a live
//! table on a terminal, and otherwise prints one JSON line per change.

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
use super::observed::{Evidence, Followed, Observed, ObservedDocument};
use super::render::{self, short};
use super::roll_call::{ANSWER_MAX, OpenRollCall, Roll, Rolls};
use super::{Session, say};
use crate::table::{Row, Style, color, lines, size, text};
use leasehold_cli::{answer, unwritable};
use leasehold_clock as clock;
use leasehold_core::election::ResourceName;
use leasehold_host::signals::{Exit, Resizes, StopSignal, Stops};
use leasehold_host::{CommandError, exit};
use leasehold_mongodb::store::mongo::operators::{LISTED_MAX, Scope, ViewEvent};

/// Maximum number of leases whose candidates are asked.
const CALLS_MAX: usize = 16;
/// Minimum time between two frames, so that frequent changes do not flood the terminal.
const FRAME_MIN: Duration = Duration::from_millis(200);
/// Maximum time between two frames, so that the column RENEWED advances.
const FRAME_MAX: Duration = Duration::from_secs(1);

/// Lists the leases once each holder has renewed, after `observe` at the latest.
pub(super) async fn run(session: &Session, observe: Duration) -> Result<Exit, CommandError> {
    let mut followed = session.follow(Scope::Leases, "list the leases").await?;
    let rolls = await_renewals(session, &mut followed, &Scope::Leases, observe, true).await;
    let (observed, now) = (followed.observed, clock::boot_now());
    if observed.documents().count() == LISTED_MAX {
        say(&format!("only the first {LISTED_MAX} leases are listed"));
    }
    let answered = if session.json {
        let leases = observed.documents();
        let list: Value = leases
            .map(|seen| render::object(seen, rolls.get(&seen.entry.name), now))
            .collect();
        format!("{list:#}\n")
    } else if observed.one().is_none() {
        "no leases\n".to_owned()
    } else {
        text(&render::rows(&observed, &rolls, now), color())
    };
    answer(answered.as_bytes())?;
    Ok(exit::DONE.into())
}

/// Waits until each holder has renewed, or for `observe`. Reads the documents before a holder is
/// reported as expired, because the stream may be stale. With `ask`, asks the candidates of silent
/// holders meanwhile, and returns their answers.
pub(super) async fn await_renewals(
    session: &Session,
    followed: &mut Followed,
    scope: &Scope,
    observe: Duration,
    ask: bool,
) -> Rolls {
    let begun = clock::boot_now();
    if followed.observed.is_complete() {
        return Rolls::new();
    }
    if observe.is_zero() {
        let why = Some("--observe 0s".to_owned()).filter(|_| ask);
        return match why {
            Some(_) => call_silent(session, &followed.observed, why).await.1,
            None => Rolls::new(),
        };
    }
    if io::stderr().is_terminal() {
        say(&format!(
            "waiting for renewals for up to {} (--observe 0s: do not wait)",
            short(observe)
        ));
    }
    let (mut calls, mut rolls) = match ask {
        true => call_silent(session, &followed.observed, None).await,
        false => <_>::default(),
    };
    let until = match calls.is_empty() {
        true => begun + observe,
        false => begun + observe.max(ANSWER_MAX),
    };
    while !followed.observed.is_complete() && followed.advance(until).await {
        calls
            .iter_mut()
            .for_each(|call| call.collect(&followed.observed));
    }
    for call in calls {
        let name = call.name().to_owned();
        rolls.insert(name, Roll::Answered(call.end(session).await));
    }
    let now = clock::boot_now();
    let observed = &mut followed.observed;
    if observed.documents().any(|seen| seen.has_expired(now)) {
        let listed = session.collection.list(scope).await;
        let at = clock::boot_now();
        observed.apply(match listed {
            Ok(entries) => ViewEvent::Listed { entries, at },
            Err(failure) => ViewEvent::Failed(failure),
        });
    }
    rolls
}

/// Asks the candidates of the leases whose holders are silent by their last write, unless there is
/// a reason not to ask.
async fn call_silent(
    session: &Session,
    observed: &Observed,
    mut why_not: Option<String>,
) -> (Vec<OpenRollCall>, Rolls) {
    let now = clock::boot_now();
    let is_silent = |seen: &&ObservedDocument| seen.evidence(now).is_some_and(|it| it.is_silent());
    let (mut calls, mut rolls) = (Vec::new(), Rolls::new());
    for seen in observed.documents().filter(is_silent) {
        // A document whose name is not valid has no candidates.
        let Ok(name) = ResourceName::new(seen.entry.name.as_str()) else {
            continue;
        };
        if why_not.is_none() && calls.len() == CALLS_MAX {
            why_not = Some(format!(
                "more than {CALLS_MAX} leases; leasehold describe asks"
            ));
        }
        if why_not.is_none() {
            match OpenRollCall::begin(session, &name).await {
                Ok(call) => {
                    calls.push(call);
                    continue;
                }
                // A missing right is missing for the other leases too.
                Err(failure) => why_not = Some(failure.to_string()),
            }
        }
        let why = why_not.clone().unwrap_or_default();
        rolls.insert(name.to_string(), Roll::NotCalled(why));
    }
    (calls, rolls)
}

/// Shows changes until the operator stops the command.
pub(super) async fn watch(session: &Session) -> Result<Exit, CommandError> {
    let mut stops = Stops::register().map_err(CommandError::failed(
        exit::CANNOT_TELL,
        "register the signal handlers",
    ))?;
    // An unreachable MongoDB is an error at the start only; later the command waits for it.
    let followed = session.follow(Scope::Leases, "list the leases").await?;
    let ended = async {
        match io::stdout().is_terminal() && !session.json {
            true => table(session, followed).await,
            false => changes(followed).await,
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

/// Waits until standard output is a pipe without a reader. A file never is.
async fn output_closed() {
    if let Ok(output) = watched_output()
        && output.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

fn watched_output() -> io::Result<AsyncFd<OwnedFd>> {
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    // The function is deprecated for types whose descriptor may change, but an `OwnedFd` keeps its
    // descriptor. The replacement is unsafe, which this crate forbids.
    #[allow(deprecated)]
    AsyncFd::with_interest(output, Interest::ERROR)
}

/// Prints one line per change until the output is closed.
async fn changes(followed: Followed) -> io::Result<Exit> {
    let (mut view, mut observed) = (followed.view, followed.observed);
    for seen in observed.documents() {
        line("present", render::object(seen, None, clock::boot_now()))?;
    }
    let mut gone = silent_leases(&observed);
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
                let before = std::mem::replace(&mut gone, silent_leases(&observed));
                let changed = before.symmetric_difference(&gone).map(|(name, _)| name);
                // Deletions are printed already.
                let changed = changed.filter(|name| observed.get(name).is_some());
                let changed: BTreeSet<_> = changed.cloned().collect();
                changed.into_iter().collect()
            }
        };
        for name in changed {
            match observed.get(&name) {
                Some(seen) => line("changed", render::object(seen, None, clock::boot_now()))?,
                None => line("removed", json!({ "lease": name }))?,
            }
        }
    }
}

/// Returns the leases whose holders seem to be gone, with their states.
fn silent_leases(observed: &Observed) -> BTreeSet<(String, &'static str)> {
    let now = clock::boot_now();
    let silent = observed.documents().filter_map(|seen| {
        let evidence = seen.evidence(now).filter(Evidence::is_silent)?;
        Some((seen.entry.name.clone(), evidence.liveness.as_str()))
    });
    silent.collect()
}

fn line(event: &str, mut object: Value) -> io::Result<()> {
    let at = humantime::format_rfc3339_millis(clock::wall_now());
    object["event"] = event.into();
    object["at"] = at.to_string().into();
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{object}")?;
    stdout.flush()
}

async fn table(session: &Session, followed: Followed) -> io::Result<Exit> {
    let (mut view, mut observed) = (followed.view, followed.observed);
    let mut screen = Screen::enter()?;
    let mut resizes = Resizes::register()?;
    let mut first_row = 0;
    let mut trouble = None;
    loop {
        draw(session, &observed, &mut first_row, trouble.as_deref())?;
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

fn draw(
    session: &Session,
    observed: &Observed,
    first_row: &mut usize,
    trouble: Option<&str>,
) -> io::Result<()> {
    let (width, height) = size();
    let info = session.collection.info().unwrap_or_default();
    let rows = render::rows(observed, &Rolls::new(), clock::boot_now());
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
