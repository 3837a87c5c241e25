//! `leasehold leases` and `leasehold locks`: list all leases or all locks of the collection. With
//! `--watch`, they show a live table on a terminal; elsewhere, they print one JSON line per change.

mod feed;
mod output;
mod renewal_wait;
mod screen;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::time::Duration;

use serde_json::{Value, json};

use self::feed::WatchFeed;
pub(super) use self::renewal_wait::RenewalWait;
use self::renewal_wait::{ASKING, waiting};
use self::screen::{PressedKey, Screen};
use super::observed::{Followed, Liveness, Observed, ObservedDocument, StallDetector};
use super::render::{self, short};
use super::roll_call::{ANSWER_SOON, Ask, CALLS_MAX, Roll, RollCalls, Rolls};
use super::{Session, lock_view, say};
use crate::table::{PassingLine, Row, Style, color, counted, cut, lines, size, text};
use leasehold_cli::{answer, connecting, unwritable};
use leasehold_clock as clock;
use leasehold_core::election::BootTime;
use leasehold_host::signals::{Exit, Resizes, StopSignal, Stops};
use leasehold_host::terminal::{fitted, in_background};
use leasehold_host::{CommandError, exit};
use leasehold_mongodb::store::mongo::operators::{LISTED_MAX, Scope, ViewEvent};

/// Minimum time between frames; keeps frequent changes from flooding the terminal.
const FRAME_MIN: Duration = Duration::from_millis(200);
/// Maximum time between frames; keeps the column RENEWED current.
const FRAME_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listing {
    /// Leases; includes retired leases if `all` is true.
    Leases { all: bool },
    /// Locks; includes pruned locks if `all` is true.
    Locks { all: bool },
}

impl Listing {
    /// Returns the scope, the noun for its documents, and the operation named in errors.
    const fn parts(self) -> (Scope, &'static str, &'static str) {
        match self {
            Self::Leases { .. } => (Scope::Leases, "leases", "list the leases"),
            Self::Locks { .. } => (Scope::Locks, "locks", "list the locks"),
        }
    }

    const fn noun(self) -> &'static str {
        match self {
            Self::Leases { .. } => "lease",
            Self::Locks { .. } => "lock",
        }
    }

    fn shows(self, seen: &ObservedDocument) -> bool {
        let (Self::Leases { all } | Self::Locks { all }) = self;
        all || !seen.is_hidden()
    }

    fn shown(self, observed: &Observed) -> impl Iterator<Item = &ObservedDocument> {
        observed.documents().filter(move |seen| self.shows(seen))
    }

    fn hidden(self, observed: &Observed) -> Option<String> {
        let hidden = observed.documents().count() - self.shown(observed).count();
        let what = match self {
            Self::Leases { .. } => "retired lease",
            Self::Locks { .. } => "pruned lock",
        };
        (hidden > 0).then(|| format!("{} not shown (--all)", counted(hidden, what)))
    }

    fn rows(self, observed: &Observed, rolls: &Rolls, now: BootTime) -> Vec<Row> {
        let shown = self.shown(observed);
        match self {
            Self::Leases { .. } => render::rows(shown, rolls, now),
            Self::Locks { .. } => lock_view::rows(shown, observed.store_now(now), now),
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
            Self::Locks { .. } => lock_view::object(seen, observed.store_now(now), now),
        }
    }

    fn removed(self, name: &str) -> Value {
        match self {
            Self::Leases { .. } => json!({ "lease": name }),
            Self::Locks { .. } => json!({ "lock": name }),
        }
    }
}

/// Lists the documents once the state of each holder is clear, or after `observe`.
pub(super) async fn run(
    session: &Session,
    listing: Listing,
    observe: Option<Duration>,
) -> Result<Exit, CommandError> {
    let (scope, _, doing) = listing.parts();
    let mut followed = session.follow(scope.clone(), doing).await?;
    let ask = match listing {
        Listing::Leases { .. } => Ask::IfUnclear,
        Listing::Locks { .. } => Ask::None,
    };
    let wait = RenewalWait::of_list(observe, ask);
    let rolls = await_renewals(session, &mut followed, &scope, wait).await;
    let listed = list(session, listing, &followed.observed, &rolls);
    answer(listed.as_bytes())?;
    Ok(exit::DONE.into())
}

fn list(session: &Session, listing: Listing, observed: &Observed, rolls: &Rolls) -> String {
    let ((_, noun, _), now) = (listing.parts(), clock::boot_now());
    if observed.documents().count() == LISTED_MAX {
        say(&format!("only the first {LISTED_MAX} {noun} are listed"));
    }
    if session.json {
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
        None => fitted(
            &io::stdout(),
            &format!("no {noun} in {}\n", session.place()),
        ),
        Some(_) => text(&listing.rows(observed, rolls, now), color()),
    }
}

/// Waits until each holder has renewed, or until the holder's maximum in `wait` has passed. Ignores
/// hidden documents. Reads the documents again before reporting a holder as expired, because the
/// stream may be stale. Also asks the candidates of leases without a renewing holder, and returns
/// their answers.
pub(super) async fn await_renewals(
    session: &Session,
    followed: &mut Followed,
    scope: &Scope,
    wait: RenewalWait,
) -> Rolls {
    let begun = clock::boot_now();
    let mut calls = RollCalls::new(session, ANSWER_SOON, wait.ask, CALLS_MAX);
    if wait.doubtful.is_zero() {
        return calls.not_asked(&followed.observed);
    }
    calls.call(&followed.observed);
    let until = |observed: &Observed, rolls: &Rolls| {
        let now = clock::boot_now();
        let shown = observed.documents().filter(|seen| !seen.is_hidden());
        let until = shown.map(|seen| begun + wait.of(seen, rolls, now)).max();
        until.filter(|until| *until > now)
    };
    let waits = until(&followed.observed, &Rolls::new()).map(|until| until.since(begun));
    let waiting = waiting(waits, calls.are_under_way());
    let passing = waiting.map(|(what, limit)| {
        let limit = short(limit);
        let text = format!("{what} for up to {limit} (--observe 0s: do not wait)");
        PassingLine::new(&text)
    });
    let deadline = begun + wait.doubtful;
    let renewals = async {
        loop {
            let (until, now) = (
                until(&followed.observed, calls.answered()),
                clock::boot_now(),
            );
            // A holder may have become silent since the first read.
            calls.call(&followed.observed);
            let overdue = calls.overdue_at().unwrap_or(now).max(deadline);
            if until.is_none() && (!calls.are_under_way() || now >= overdue) {
                break;
            }
            let wakeup = until.unwrap_or(overdue).min(now + FRAME_MAX);
            tokio::select! {
                () = calls.next() => {}
                _ = followed.advance(wakeup) => {}
            }
        }
    };
    let (what, limit) = waiting.unwrap_or((ASKING, ANSWER_SOON));
    let note = |line: &str| {
        if !passing.as_ref().is_some_and(PassingLine::is_shown) {
            say(line);
        }
    };
    connecting::announced(renewals, limit, note, || what.to_owned()).await;
    let now = clock::boot_now();
    if followed
        .observed
        .documents()
        .any(|seen| seen.has_expired(now))
    {
        let listed = session.collection.list(scope).await;
        let at = clock::boot_now();
        followed.apply(match listed {
            Ok(entries) => ViewEvent::Listed { entries, at },
            Err(failure) => ViewEvent::Failed(failure),
        });
    }
    drop(passing);
    if let Some(limited) = calls.limited(&followed.observed) {
        say(&limited);
    }
    calls.end()
}

pub(super) async fn watch(session: &Session, listing: Listing) -> Result<Exit, CommandError> {
    let mut stops = Stops::register().map_err(CommandError::failed(
        exit::CANNOT_TELL,
        "register the signal handlers",
    ))?;
    // MongoDB must be reachable at the start. If the connection is lost later, the command waits
    // for MongoDB.
    let (scope, _, doing) = listing.parts();
    let followed = session.follow(scope, doing).await?;
    // A background job must not change the terminal's settings, because the kernel would stop the
    // job.
    let may_draw = !(io::stdin().is_terminal() && in_background(io::stdin()));
    let ended = async {
        match io::stdout().is_terminal() && !session.json && may_draw {
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
        () = output::closed() => Ok(exit::DONE.into()),
    }
}

async fn changes(listing: Listing, mut followed: Followed) -> io::Result<Exit> {
    let mut stalls = StallDetector::new(FRAME_MAX);
    let mut printed = states(&followed.observed);
    let now = clock::boot_now();
    let object = |seen| listing.object(&followed.observed, seen, None, now);
    let present: Vec<_> = listing.shown(&followed.observed).map(object).collect();
    for object in present {
        line("present", object).await?;
    }
    let mut next_check = clock::boot_now() + FRAME_MAX;
    let mut feed = WatchFeed::default();
    loop {
        let left = next_check.since(clock::boot_now());
        let event = tokio::time::timeout(left, followed.view.next()).await;
        if stalls.stalled().is_some() {
            followed.read_again();
        }
        let changed: Vec<String> = match event {
            Ok(None) => return Ok(exit::DONE.into()),
            Ok(Some(event)) => {
                feed.log(&event, clock::boot_now());
                let documents = followed.apply(event).into_iter();
                documents
                    .filter_map(|(name, differs)| differs.then_some(name))
                    .collect()
            }
            Err(_) => {
                next_check = clock::boot_now() + FRAME_MAX;
                let found = states(&followed.observed).into_iter();
                let found = found.filter(|(name, found)| {
                    let seen = followed.observed.get(name);
                    let is_shown = seen.is_some_and(|seen| listing.shows(seen));
                    is_shown && printed.get(name) != Some(found)
                });
                found.map(|(name, _)| name).collect()
            }
        };
        // A line that is delayed because the reader accepts no data shows the state from before.
        let now = clock::boot_now();
        for name in changed {
            match followed.observed.get(&name) {
                Some(seen) => {
                    line(
                        "changed",
                        listing.object(&followed.observed, seen, None, now),
                    )
                    .await?;
                    printed.extend(states_of(seen, now).map(|states| (name, states)));
                }
                None => {
                    printed.remove(&name);
                    line("removed", listing.removed(&name)).await?;
                }
            }
        }
    }
}

/// The states of a document's holders and waiters.
type HolderStates = Vec<&'static str>;

fn states(observed: &Observed) -> BTreeMap<String, HolderStates> {
    let now = clock::boot_now();
    let named = observed.documents().filter_map(|seen| {
        let states = states_of(seen, now)?;
        Some((seen.entry.name.clone(), states))
    });
    named.collect()
}

/// Returns `None` while MongoDB does not answer. The caller then keeps the previous states, because
/// an outage is not a change of the document.
fn states_of(seen: &ObservedDocument, now: BootTime) -> Option<HolderStates> {
    let holders = seen.holders(now).map(|evidence| evidence.liveness);
    let states = holders.map(|it| (it != Liveness::Unseen).then(|| it.as_str()));
    states.collect()
}

async fn line(event: &str, mut object: Value) -> io::Result<()> {
    let at = humantime::format_rfc3339_millis(clock::wall_now());
    object["event"] = event.into();
    object["at"] = at.to_string().into();
    output::write(format!("{object}\n")).await
}

async fn table(session: &Session, listing: Listing, mut followed: Followed) -> io::Result<Exit> {
    let mut screen = Screen::enter().await?;
    let mut resizes = Resizes::register()?;
    let ask = match listing {
        Listing::Leases { .. } => Ask::All,
        Listing::Locks { .. } => Ask::None,
    };
    let mut calls = RollCalls::new(session, ANSWER_SOON, ask, usize::MAX);
    let mut first_line = 0;
    let mut feed = WatchFeed::default();
    let mut stalls = StallDetector::new(FRAME_MAX);
    loop {
        if stalls.stalled().is_some() {
            followed.read_again();
        }
        let observed = &followed.observed;
        calls.forget_led(observed);
        calls.call(observed);
        let now = clock::boot_now();
        let rows = listing.rows(observed, &calls.aged(now), now);
        draw(
            session,
            listing,
            observed,
            &rows,
            &mut first_line,
            feed.trouble(),
        )
        .await?;
        let drawn = clock::boot_now();
        let mut pause = FRAME_MAX;
        loop {
            let left = (drawn + pause).since(clock::boot_now());
            tokio::select! {
                event = followed.view.next() => {
                    let Some(event) = event else {
                        return Ok(exit::DONE.into());
                    };
                    feed.apply(&event);
                    followed.apply(event);
                    pause = FRAME_MIN;
                    continue;
                }
                key = screen.key() => match key {
                    PressedKey::Quit => return Ok(exit::DONE.into()),
                    PressedKey::Interrupt => return Ok(Exit::Key(StopSignal::INTERRUPT)),
                    PressedKey::Scroll(rows) => first_line = usize::saturating_add_signed(first_line, rows),
                },
                () = resizes.next() => {}
                () = tokio::time::sleep(left) => {}
            }
            break;
        }
    }
}

async fn draw(
    session: &Session,
    listing: Listing,
    observed: &Observed,
    rows: &[Row],
    first_line: &mut usize,
    trouble: Option<&str>,
) -> io::Result<()> {
    let (width, height) = size();
    let needs_attention = |row: &&Row| matches!(row.style, Style::Warning | Style::Bad);
    let troubled = rows.iter().filter(needs_attention).count();
    let lines = lines(rows, Some(width), color());
    let (header, lines) = lines.split_at(1);
    // Three rows are reserved for the title, the header and the footer.
    let visible = height.saturating_sub(3).max(1);
    let total = lines.len();
    *first_line = (*first_line).min(total.saturating_sub(visible));
    let last_line = (*first_line + visible).min(total);
    let documents = counted(listing.shown(observed).count(), listing.noun());
    let at = humantime::format_rfc3339_seconds(clock::wall_now());
    let place = session.place();
    // The important part comes first, because a narrow terminal truncates the line.
    let needs = if troubled == 1 { "needs" } else { "need" };
    let title = format!("{documents}, {troubled} {needs} attention  {at}  {place}");
    let (footer, style) = match trouble {
        Some(trouble) => (format!("MongoDB reports no changes: {trouble}"), Style::Bad),
        None if total > visible => {
            let first = *first_line + 1;
            let keys = "arrows, PgUp and PgDn scroll, q quits";
            (
                format!("{first}-{last_line} of {total}; {keys}"),
                Style::Dim,
            )
        }
        None => ("q quits".to_owned(), Style::Dim),
    };
    let hidden = listing.hidden(observed).map(|hidden| format!("; {hidden}"));
    let footer = footer + &hidden.unwrap_or_default();
    let mut frame = vec![cut(&title, width)];
    frame.extend_from_slice(header);
    frame.extend_from_slice(&lines[*first_line..last_line]);
    frame.resize(height.saturating_sub(1), String::new());
    frame.push(style.paint(&cut(&footer, width), color()));
    screen::show(&frame).await
}
