//! `leasehold leases`: every lease of the collection.

use std::io::{self, IsTerminal};
use std::time::Duration;

use serde_json::Value;

use super::observed::Observed;
use super::render::{self, short};
use super::{Session, say};
use crate::table::{color, text};
use leasehold_cli::answer;
use leasehold_clock as clock;
use leasehold_host::CommandError;
use leasehold_host::exit;
use leasehold_host::signals::Exit;
use leasehold_mongodb::store::mongo::operators::{LISTED_MAX, LiveView, Scope, ViewEvent};

/// Lists the leases once a renewal of each holder was seen, after `observe` at the latest.
pub(super) async fn run(session: &Session, observe: Duration) -> Result<Exit, CommandError> {
    let (mut view, mut observed) = session.follow(Scope::Leases, "list the leases").await?;
    await_renewals(session, &mut view, &Scope::Leases, &mut observed, observe).await;
    let now = clock::boot_now();
    if observed.documents().count() == LISTED_MAX {
        say(&format!("only the first {LISTED_MAX} leases are listed"));
    }
    let answered = if session.json {
        let leases = observed.documents();
        let list: Vec<_> = leases.map(|seen| render::object(seen, now)).collect();
        format!("{:#}\n", Value::from(list))
    } else if observed.one().is_none() {
        "no leases\n".to_owned()
    } else {
        text(&render::rows(&observed, now), color())
    };
    answer(answered.as_bytes())?;
    Ok(exit::DONE.into())
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
        say(&format!(
            "waiting for renewals for up to {} (--observe 0s: do not wait)",
            short(observe)
        ));
    }
    while !observed.is_complete()
        && let Some(event) = session.next(view, until).await
    {
        observed.apply(event);
    }
    let now = clock::boot_now();
    if observed.documents().any(|seen| seen.has_expired(now)) {
        let listed = session.collection.list(scope).await;
        let at = clock::boot_now();
        observed.apply(match listed {
            Ok(entries) => ViewEvent::Listed { entries, at },
            Err(failure) => ViewEvent::Failed(failure),
        });
    }
}
