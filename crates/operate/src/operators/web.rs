//! `leasehold web`: a live page of all leases and locks of the collection, and their metrics. All
//! browsers share one view of the collection.

mod access;
mod board;
mod feed;
mod guesses;
mod metrics;
mod page;
mod silent;
mod site;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{info, warn};

use self::access::VisitorAccess;
use self::board::{Link, LinkState, Snapshot};
use self::metrics::Exporter;
pub(super) use self::metrics::NamePattern;
use self::silent::SilentLeases;
use self::site::{Offer, Shared, Web};
use super::arguments::WebArgs;
use super::observed::StallDetector;
use super::{REMINDED_AFTER, Session, system};
use leasehold_clock as clock;
use leasehold_host::log::millis;
use leasehold_host::signals::{Exit, Stops};
use leasehold_host::{CommandError, exit};
use leasehold_http::{AddressSetting, Bound};
use leasehold_mongodb::store::mongo::operators::{LiveView, MongoCollection, Scope, ViewEvent};

/// Maximum number of browsers. Each browser needs a connection and memory for one event, at most
/// 200 KB.
pub(super) const STREAMS_MAX: usize = 64;
/// Interval at which the server checks why the first read has not succeeded yet.
const CHECK: Duration = Duration::from_secs(1);
const LAST_EVENTS_MAX: Duration = Duration::from_secs(1);

pub(super) async fn run(session: &Session, args: WebArgs) -> Result<Exit, CommandError> {
    let mut stops = Stops::register().map_err(system("register the signal handlers"))?;
    let (name, instead) = ("--listen", "");
    let setting = AddressSetting { name, instead };
    let bound = Bound::new(args.listen, setting, STREAMS_MAX)?;
    let address = bound.address();
    let access = VisitorAccess::new(args.token_file.clone(), address.port()).await;
    let access = access.map_err(CommandError::failed(exit::CONFIGURATION, "use the token"))?;
    let (offer, kind) = match args.actions_by() {
        _ if args.metrics_only => (Offer::Metrics, "metrics, without the page"),
        Some(by) => (Offer::actions(by), ", with actions"),
        None => (Offer::Page, ", read-only"),
    };
    info!("listening on http://{address}/{kind}");
    session.collection.restarts("leasehold web");
    let board = Arc::new(watch::Sender::new(Snapshot::default()));
    // Without the page, the server does not ask candidates to report.
    let has_page = !matches!(offer, Offer::Metrics);
    let silent = has_page.then(|| SilentLeases::new(session));
    let view = session.collection.follow(Scope::All);
    let last_answer = view.last_answer();
    let names = args.metrics_names.clone();
    let exporter = Exporter::new(args.metrics_names, last_answer.clone());
    let web = Web(Arc::new(Shared {
        session: session.clone(),
        board: Arc::clone(&board),
        last_answer,
        access,
        exporter,
        offer,
    }));
    let streams = bound.streams();
    let mut serving = pin!(bound.serve(web));
    let mut exit = Exit::Code(exit::DONE);
    tokio::select! {
        () = follow(&session.collection, view, &board, &names, silent) => {}
        served = &mut serving => {
            let Err(error) = served;
            return Err(system("serve HTTP")(error));
        }
        stop = stops.next() => {
            info!(signal = %stop, "stop signal received");
            if stop.is_of_terminal() {
                exit = Exit::Signal(stop);
            }
        }
    }
    // The server keeps running while the streams send their last events.
    let closed = timeout(LAST_EVENTS_MAX, streams.close());
    tokio::select! {
        _ = closed => {}
        _ = serving => {}
    }
    Ok(exit)
}

/// Replaces a retired lease or a pruned lock with its removal, because the page and its metrics
/// omit both.
fn without_hidden(event: ViewEvent) -> ViewEvent {
    match event {
        ViewEvent::Listed { mut entries, at } => {
            entries.retain(|entry| !entry.is_hidden());
            ViewEvent::Listed { entries, at }
        }
        ViewEvent::Changed { entry, .. } if entry.is_hidden() => {
            ViewEvent::Removed { name: entry.name }
        }
        event => event,
    }
}

async fn follow(
    collection: &MongoCollection,
    mut view: LiveView,
    board: &watch::Sender<Snapshot>,
    names: &[NamePattern],
    mut silent: Option<SilentLeases>,
) {
    let last_answer = view.last_answer();
    let answered = || last_answer.at().unwrap_or_else(clock::boot_now);
    let mut logged = None;
    let (mut known, mut quiet_until) = (Link::default(), clock::boot_now());
    let mut stalls = StallDetector::new(CHECK);
    loop {
        let before = board.borrow().link.clone();
        let was_listed = board.borrow().is_listed();
        let answered_call = async {
            match &mut silent {
                Some(silent) => silent.answered().await,
                None => std::future::pending().await,
            }
        };
        let event = tokio::select! {
            event = timeout(CHECK, view.next()) => Some(event),
            (name, revision, roll) = answered_call => {
                board.send_modify(|board| board.called(&name, revision, roll, answered()));
                None
            }
        };
        if let Some(waited) = stalls.stalled() {
            // MongoDB may have answered during this time, but this process could not receive the
            // answers.
            warn!(
                waited_ms = millis(waited),
                "this process did not run (stopped or suspended), reading the collection again"
            );
            board.send_modify(|board| board.lose_sight(answered()));
            view.reopen();
            quiet_until = clock::boot_now() + collection.answers_within();
        }
        match event {
            None => continue,
            Some(Ok(None)) => return,
            Some(Ok(Some(event))) => {
                board.send_modify(|board| board.apply(without_hidden(event), answered()));
            }
            Some(Err(_)) => {
                let failure = collection.trouble();
                if let Some(failure) = failure.filter(|_| !board.borrow().is_listed()) {
                    board.send_if_modified(|board| {
                        board.lost(&failure, answered());
                        board.link != before
                    });
                }
            }
        }
        let board = board.borrow();
        if let Some(silent) = &mut silent {
            silent.call(&board);
        }
        if board.is_listed() && !was_listed {
            for name in NamePattern::unmatched(names, &board) {
                warn!(
                    name,
                    "no lease or lock matches this name in --metrics-names"
                );
            }
        }
        let link = &board.link;
        let now = clock::boot_now();
        // During an outage, the reason may change with each attempt.
        let repeats =
            logged.is_some_and(|(state, at)| state == link.state && now.since(at) < REMINDED_AFTER);
        let is_failure = matches!(link.state, LinkState::Polling | LinkState::Lost);
        if *link == known || is_failure && now < quiet_until {
            continue;
        }
        known = link.clone();
        if repeats {
            continue;
        }
        logged = Some((link.state, now));
        let why = link.why.as_ref().map(tracing::field::display);
        match link.state {
            LinkState::Connecting => {}
            LinkState::Current => info!("following the collection"),
            LinkState::Polling => warn!(why, "MongoDB reports no changes, reading at intervals"),
            LinkState::Lost => warn!(why, "MongoDB cannot be read, retrying"),
        }
    }
}
