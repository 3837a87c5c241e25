//! `leasehold leases`: every lease of the collection.

use std::io::{self, IsTerminal};
use std::time::Duration;

use serde_json::Value;

use super::observed::Observed;
use super::render::{self, HEADER, Instant};
use super::{Session, say};
use crate::table::{Row, Style, color, text};
use leasehold_cli::answer;
use leasehold_clock as clock;
use leasehold_host::CommandError;
use leasehold_host::exit;
use leasehold_mongodb::store::mongo::operators::{LISTED_MAX, LiveView, Scope, ViewEvent};

/// Lists the leases once a renewal of each holder was seen, after `observe` at the latest.
pub(super) async fn run(session: &Session, observe: Duration) -> Result<u8, CommandError> {
    let mut view = session.collection.follow(Scope::Leases);
    let (entries, at) = session.listed(&mut view, "list the leases").await?;
    let mut observed = Observed::default();
    observed.apply(ViewEvent::Listed { entries, at });
    await_renewals(session, &mut view, &Scope::Leases, &mut observed, observe).await;
    let now = Instant::now();
    let listed: Vec<_> = observed.documents().collect();
    if listed.len() == LISTED_MAX {
        say(&format!("only the first {LISTED_MAX} leases are listed"));
    }
    if session.json {
        let list: Vec<_> = listed
            .iter()
            .map(|seen| render::object(seen, now.boot))
            .collect();
        answer(format!("{:#}\n", Value::from(list)).as_bytes())?;
    } else if listed.is_empty() {
        answer(b"no leases\n")?;
    } else {
        let header = Row::new(HEADER).styled(Style::Header);
        let rows = listed.iter().map(|seen| render::row(seen, now));
        let rows: Vec<_> = std::iter::once(header).chain(rows).collect();
        answer(text(&rows, color()).as_bytes())?;
    }
    Ok(exit::DONE)
}

/// Waits until a renewal of each holder was seen, or for `observe`. The stream may be stale, so the
/// documents are read before a holder is reported as expired.
pub(super) async fn await_renewals(
    session: &Session,
    view: &mut LiveView,
    scope: &Scope,
    observed: &mut Observed,
    observe: Duration,
) {
    let until = clock::boot_now() + observe;
    if observed.is_complete() || observe.is_zero() {
        return;
    }
    if io::stderr().is_terminal() {
        let observe = humantime::format_duration(observe);
        say(&format!(
            "waiting for renewals for up to {observe} (--observe 0s: do not wait)"
        ));
    }
    while !observed.is_complete() {
        match session.next(view, until).await {
            Some(event) => {
                observed.apply(event);
            }
            None => break,
        }
    }
    if observed.has_expired(clock::boot_now()) {
        let event = match session.collection.list(scope).await {
            Ok(entries) => ViewEvent::Listed {
                entries,
                at: clock::boot_now(),
            },
            Err(failure) => ViewEvent::Failed(failure),
        };
        observed.apply(event);
    }
}
