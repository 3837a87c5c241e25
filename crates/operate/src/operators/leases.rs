//! `leasehold leases` and `leasehold locks`: list all leases or all locks of the collection once.
//! With `--watch`, they show a live table on a terminal, and otherwise print one JSON line per change.

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
use super::observed::{Followed, Observed, ObservedDocument};
use super::render::{self, short};
use super::roll_call::{ANSWER_MAX, OpenRollCall, Roll, Rolls};
use super::{Session, lock_view, say};
use crate::table::{Row, Style, color, lines, size, text};
use leasehold_cli::{answer, unwritable};
use leasehold_clock as clock;
use leasehold_core::election::{BootTime, Claim, ResourceName};
use leasehold_host::signals::{Exit, Resizes, StopSignal, Stops};
use leasehold_host::{CommandError, exit};
use leasehold_mongodb::store::mongo::operators::{LISTED_MAX, Scope, ViewEvent};

/// Maximum number of leases whose candidates are asked.
const CALLS_MAX: usize = 16;
/// Minimum time between two frames, so that frequent changes do not flood the terminal.
const FRAME_MIN: Duration = Duration::from_millis(200);
/// Maximum time between two frames, so that the column RENEWED advances.
const FRAME_MAX: Duration = Duration::from_secs(1);

/// The documents of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listing {
    /// Leases, with retired ones if `all` is true.
    Leases {
        all: bool,
    },
    Locks,
}

impl Listing {
    const fn scope(self) -> Scope {
        match self {
            Self::Leases { .. } => Scope::Leases,
            Self::Locks => Scope::Locks,
        }
    }

    const fn doing(self) -> &'static str {
        match self {
            Self::Leases { .. } => "list the leases",
            Self::Locks => "list the locks",
        }
    }

    const fn noun(self) -> &'static str {
        match self {
            Self::Leases { .. } => "leases",
            Self::Locks => "locks",
        }
    }

    fn shows(self, seen: &ObservedDocument) -> bool {
        self != Self::Leases { all: false } || !seen.is_retired()
    }

    fn shown(self, observed: &Observed) -> impl Iterator<Item = &ObservedDocument> {
        observed.documents().filter(move |seen| self.shows(seen))
    }

    /// Returns the note about retired leases that are not shown.
    fn hidden(self, observed: &Observed) -> Option<String> {
        let hidden = observed.documents().count() - self.shown(observed).count();
        match hidden {
            0 => None,
            1 => Some("1 retired lease not shown (--all)".to_owned()),
            hidden => Some(format!("{hidden} retired leases not shown (--all)")),
        }
    }

    fn rows(self, observed: &Observed, rolls: &Rolls, now: BootTime) -> Vec<Row> {
        let shown = self.shown(observed);
        match self {
            Self::Leases { .. } => render::rows(shown, rolls, now),
            Self::Locks => lock_view::rows(observed, now),
        }
    }

    fn object(
        self,
        observed: &Observed,
        seen: &ObservedDocument,
        roll: Option<&Roll>,
        now: BootTime,
    ) -> Value {
        match self {
            Self::Leases { .. } => render::object(seen, roll, now),
            Self::Locks => lock_view::object(seen, observed.store_now(now), now),
        }
    }

    /// Returns the line for a document that was deleted.
    fn removed(self, name: &str) -> Value {
        match self {
            Self::Leases { .. } => json!({ "lease": name }),
            Self::Locks => json!({ "lock": name }),
        }
    }
}

/// Lists the documents once each holder has renewed, after `observe` at the latest.
pub(super) async fn run(
    session: &Session,
    listing: Listing,
    observe: Duration,
) -> Result<Exit, CommandError> {
    let mut followed = session.follow(listing.scope(), listing.doing()).await?;
    let rolls = await_renewals(session, &mut followed, &listing.scope(), observe, true).await;
    let listed = list(listing, &followed.observed, &rolls, session.json);
    answer(listed.as_bytes())?;
    Ok(exit::DONE.into())
}

/// Returns the list as text or JSON, and prints what it leaves out.
pub(super) fn list(listing: Listing, observed: &Observed, rolls: &Rolls, json: bool) -> String {
    let (noun, now) = (listing.noun(), clock::boot_now());
    if observed.documents().count() == LISTED_MAX {
        say(&format!("only the first {LISTED_MAX} {noun} are listed"));
    }
    if json {
        let object = |seen: &ObservedDocument| {
            listing.object(observed, seen, rolls.get(&seen.entry.name), now)
        };
        let list: Value = listing.shown(observed).map(object).collect();
        return format!("{list:#}\n");
    }
    if let Some(hidden) = listing.hidden(observed) {
        say(&hidden);
    }
    match listing.shown(observed).next() {
        None => format!("no {noun}\n"),
        Some(_) => text(&listing.rows(observed, rolls, now), color()),
    }
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
pub(super) async fn watch(session: &Session, listing: Listing) -> Result<Exit, CommandError> {
    let mut stops = Stops::register().map_err(CommandError::failed(
        exit::CANNOT_TELL,
        "register the signal handlers",
    ))?;
    // An unreachable MongoDB is an error at the start only; later the command waits for it.
    let followed = session.follow(listing.scope(), listing.doing()).await?;
    let ended = async {
        match io::stdout().is_terminal() && !session.json {
            true => table(session, listing, followed).await,
            false => changes(listing, followed).await,
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
async fn changes(listing: Listing, followed: Followed) -> io::Result<Exit> {
    let (mut view, mut observed) = (followed.view, followed.observed);
    for seen in listing.shown(&observed) {
        let now = clock::boot_now();
        line("present", listing.object(&observed, seen, None, now))?;
    }
    let mut gone = silent_holders(&observed);
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
                let before = std::mem::replace(&mut gone, silent_holders(&observed));
                let changed = before.symmetric_difference(&gone).map(|(name, ..)| name);
                // Deletions are printed already.
                let changed = changed.filter(|name| observed.get(name).is_some());
                let changed: BTreeSet<_> = changed.cloned().collect();
                changed.into_iter().collect()
            }
        };
        for name in changed {
            let now = clock::boot_now();
            match observed.get(&name) {
                Some(seen) => line("changed", listing.object(&observed, seen, None, now))?,
                None => line("removed", listing.removed(&name))?,
            }
        }
    }
}

/// Returns the documents whose holders seem to be gone, with the claims of a lock and the states.
fn silent_holders(observed: &Observed) -> BTreeSet<(String, Option<Claim>, &'static str)> {
    let now = clock::boot_now();
    let silent = observed.documents().flat_map(|seen| {
        let lease = seen.evidence(now).map(|evidence| (None, evidence));
        let entries = seen.entry_evidence(now);
        let all = entries.map(|(claim, evidence)| (Some(claim), evidence));
        let gone = all.chain(lease).filter(|(_, it)| it.is_silent());
        gone.map(|(claim, it)| (seen.entry.name.clone(), claim, it.liveness.as_str()))
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

async fn table(session: &Session, listing: Listing, followed: Followed) -> io::Result<Exit> {
    let (mut view, mut observed) = (followed.view, followed.observed);
    let mut screen = Screen::enter()?;
    let mut resizes = Resizes::register()?;
    let mut first_row = 0;
    let mut trouble = None;
    loop {
        draw(
            session,
            listing,
            &observed,
            &mut first_row,
            trouble.as_deref(),
        )?;
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
    listing: Listing,
    observed: &Observed,
    first_row: &mut usize,
    trouble: Option<&str>,
) -> io::Result<()> {
    let (width, height) = size();
    let info = session.collection.info().unwrap_or_default();
    let rows = listing.rows(observed, &Rolls::new(), clock::boot_now());
    let (header, rows) = rows.split_at(1);
    let needs_attention = |row: &&Row| matches!(row.style, Style::Warning | Style::Bad);
    let troubled = rows.iter().filter(needs_attention).count();
    // Two lines above and one below the rows.
    let visible = height.saturating_sub(3).max(1);
    let total = rows.len();
    *first_row = (*first_row).min(total.saturating_sub(visible));
    let last_row = (*first_row + visible).min(total);
    let (noun, documents) = (listing.noun(), listing.shown(observed).count());
    let at = humantime::format_rfc3339_seconds(clock::wall_now()).to_string();
    // A narrow terminal cuts the end of the line.
    let title = format!(
        "{documents} {noun}, {troubled} need attention  {at}  {}.{}{}",
        info.database,
        info.collection,
        info.set.map(|set| format!(" ({set})")).unwrap_or_default(),
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
    let hidden = listing.hidden(observed).map(|hidden| format!("; {hidden}"));
    let footer = footer + &hidden.unwrap_or_default();
    let footer = Row::new([footer]).styled(style);
    let shown = [header, &rows[*first_row..last_row]].concat();
    let mut frame = lines(&[Row::new([title])], Some(width), false);
    frame.extend(lines(&shown, Some(width), color()));
    frame.resize(height.saturating_sub(1), String::new());
    frame.extend(lines(&[footer], Some(width), color()));
    screen::show(&frame)
}
