//! Renders locks as text and as JSON: holders, waiters, and minimum holds.

mod description;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::{Value, json};

use self::description::result;
use super::hinted;
use super::observed::{Evidence, Liveness, ObservedDocument, lock_of, wall};
use super::render::{ended_object, entry_object, or_dash, short, since, store_object, table};
use crate::table::{Row, Style};
use leasehold_core::election::{BootTime, WallMillis};
use leasehold_core::lock::{Entry, EntryMode};
use leasehold_host::log::millis;
use leasehold_mongodb::store::StoreInfo;
use leasehold_mongodb::store::mongo::operators::{Content, LockRecord};
use leasehold_status::dates::date;

const HEADER: [&str; 8] = [
    "LOCK", "TOKEN", "STATE", "MODE", "IDENTITY", "SINCE", "RENEWED", "NOTES",
];
/// State shown for a holder or waiter while an outage hides the true state.
const UNKNOWN: &str = Liveness::Unseen.as_str();
const PRUNED: &str = "pruned";
/// The states of holders, from the best to the worst.
const HOLDER_STATES: [&str; 7] = [
    "kept", "held", "granted", "late", UNKNOWN, "silent", "expired",
];
const SKEW_MIN: Duration = Duration::from_secs(2);

pub(super) struct ObservedLock<'a> {
    name: &'a str,
    record: &'a LockRecord,
    evidence: Vec<(&'a Entry, Option<Evidence>)>,
    store_now: Option<WallMillis>,
    now: BootTime,
    /// Time since MongoDB's last answer; `None` if the document is current.
    unanswered: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HolderState {
    /// Granted, but not yet confirmed by the new holder.
    Granted,
    Works(Liveness),
    Kept,
    Ended,
}

impl HolderState {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Works(liveness) => liveness.as_str(),
            Self::Kept => "kept",
            Self::Ended => "ended",
        }
    }
}

/// Returns the rows of locks: one row for each holder and waiter, or a single row for a free lock.
pub(super) fn rows<'a>(
    shown: impl Iterator<Item = &'a ObservedDocument>,
    store_now: Option<WallMillis>,
    now: BootTime,
) -> Vec<Row> {
    let rows = shown.flat_map(|seen| {
        if let Content::Foreign(why) = &seen.entry.content {
            let (name, why) = (seen.entry.name.as_str(), format!("not a lock: {why}"));
            let cells = [name, "-", "foreign", "-", "-", "-", "-", &why];
            return vec![Row::new(cells).styled(Style::Dim)];
        }
        let view = ObservedLock::new(seen, store_now, now);
        view.map_or_else(Vec::new, |view| view.rows())
    });
    table(HEADER, rows)
}

pub(super) fn object(
    seen: &ObservedDocument,
    store_now: Option<WallMillis>,
    now: BootTime,
) -> Value {
    match (&seen.entry.content, ObservedLock::new(seen, store_now, now)) {
        (Content::Foreign(why), _) => {
            json!({ "lock": seen.entry.name, "state": "foreign", "foreign": why })
        }
        (_, Some(view)) => view.object(),
        // The scope excludes documents that are not locks.
        (_, None) => json!({ "lock": seen.entry.name }),
    }
}

impl<'a> ObservedLock<'a> {
    /// Returns `None` for a document that is not a lock.
    pub(super) fn new(
        seen: &'a ObservedDocument,
        store_now: Option<WallMillis>,
        now: BootTime,
    ) -> Option<Self> {
        let record = lock_of(&seen.entry)?;
        let known: Vec<_> = seen.entry_evidence(now).collect();
        let entries = record.lock.holders.iter().chain(&record.lock.queue);
        let evidence = entries.map(|entry| {
            let mut of_entry = known.iter().filter(|(claim, _)| *claim == entry.claim);
            (entry, of_entry.next().map(|(_, evidence)| *evidence))
        });
        Some(Self {
            name: &seen.entry.name,
            record,
            evidence: evidence.collect(),
            store_now,
            now,
            unanswered: seen
                .silence
                .is_blind(now)
                .then(|| seen.silence.unanswered(now)),
        })
    }

    fn holders(&self) -> &[(&'a Entry, Option<Evidence>)] {
        &self.evidence[..self.record.lock.holders.len()]
    }

    /// Returns the holders whose work or minimum hold has not ended, each with its state and a
    /// flag. The flag is true if the holder seems to be gone.
    pub(super) fn holding(&self) -> impl Iterator<Item = (&'a Entry, HolderState, bool)> {
        self.holders().iter().filter_map(move |(entry, evidence)| {
            let state = self.state(entry, evidence.as_ref());
            let silent = evidence.as_ref().is_some_and(Evidence::is_silent);
            (state != HolderState::Ended).then_some((*entry, state, silent))
        })
    }

    fn waiters(&self) -> &[(&'a Entry, Option<Evidence>)] {
        &self.evidence[self.record.lock.holders.len()..]
    }

    fn rows(&self) -> Vec<Row> {
        let newest = self.record.lock.token;
        let row = |entry: &Entry,
                   token: String,
                   state: &str,
                   evidence: Option<&Evidence>,
                   notes: String| {
            let renewed = evidence.map(|evidence| evidence.renewed(self.now));
            Row::new([
                self.name.to_owned(),
                token,
                state.to_owned(),
                self.mode(entry),
                entry.owner.identity.to_string(),
                or_dash(since(entry.owner.acquired_at).map(short)),
                or_dash(renewed),
                notes,
            ])
        };
        let holders = self.holders().iter().map(|(entry, evidence)| {
            let state = self.state(entry, evidence.as_ref());
            let notes = self.notes(entry, state, evidence.as_ref());
            let token = entry.token.unwrap_or(newest).to_string();
            row(entry, token, state.as_str(), evidence.as_ref(), notes).styled(style(state))
        });
        let waiters = self.waiters().iter().enumerate();
        let waiters = waiters.map(|(index, (entry, evidence))| {
            let gone = evidence.as_ref().filter(|it| it.is_silent());
            let (notes, style) = match (gone, &self.unanswered) {
                (Some(_), Some(unanswered)) => (unanswered.clone(), Style::Bad),
                (Some(gone), None) => (gone.words(None, self.now), Style::Bad),
                (None, Some(unanswered)) => (unanswered.clone(), Style::Warning),
                (None, None) => (self.awaits(index), Style::Plain),
            };
            let state = self.waiter_state(evidence.as_ref());
            row(entry, "-".to_owned(), state, evidence.as_ref(), notes).styled(style)
        });
        let rows: Vec<_> = holders.chain(waiters).collect();
        match rows.is_empty() {
            true => {
                let last: Vec<_> = self
                    .last_success()
                    .into_iter()
                    .chain(self.last_end())
                    .collect();
                let (token, last) = (newest.to_string(), last.join("; "));
                let (notes, style) = match &self.unanswered {
                    _ if self.record.is_pruned() => (&last, Style::Dim),
                    Some(unanswered) => (unanswered, Style::Warning),
                    None => (&last, Style::Plain),
                };
                let state = self.lock_state();
                let free = [self.name, &token, state, "-", "-", "-", "-", notes];
                vec![Row::new(free).styled(style)]
            }
            false => rows,
        }
    }

    fn last_end(&self) -> Option<String> {
        let last = self.record.history.last()?;
        let ago = self.by_store(last.ended_at)?;
        let reason = last.reason.as_deref().unwrap_or("ended");
        let ended = format!("{reason} {} ago", short(ago));
        Some(match result(last) {
            Some(result) => format!("{ended}: {result}"),
            None => ended,
        })
    }

    fn last_success(&self) -> Option<String> {
        let dates = self.record.lock.successes.iter().map(|success| success.at);
        let ago = self.by_store(dates.max()?)?;
        Some(format!("last success {} ago", short(ago)))
    }

    fn object(&self) -> Value {
        let lock = &self.record.lock;
        let holders = self.holders().iter().map(|(entry, evidence)| {
            let state = self.state(entry, evidence.as_ref());
            let mut object = entry_object(entry);
            self.add_evidence(&mut object, entry, evidence.as_ref());
            object["state"] = state.as_str().into();
            let kept = self.kept_until(entry);
            if let Some((_, rest)) = kept.filter(|_| entry.work_done) {
                object["at_least_ms"] = millis(rest).into();
            }
            object["kept_until"] = kept.map(|(until, _)| date(until)).into();
            object
        });
        let waiters = self.waiters().iter().enumerate();
        let waiters = waiters.map(|(index, (entry, evidence))| {
            let mut object = entry_object(entry);
            self.add_evidence(&mut object, entry, evidence.as_ref());
            object["state"] = self.waiter_state(evidence.as_ref()).into();
            object["place"] = (index + 1).into();
            object["waits_for"] = self.awaits(index).into();
            object
        });
        let successes = lock.successes.iter().map(|success| {
            let age = self.by_store(success.at).map(millis);
            json!({ "key": success.key.as_str(), "at": date(success.at), "ago_ms": age })
        });
        json!({
            "lock": self.name,
            "state": self.lock_state(),
            "token": lock.token.get(),
            "slots": lock.slots,
            "holders": holders.collect::<Value>(),
            "queue": waiters.collect::<Value>(),
            "successes": successes.collect::<Value>(),
            PRUNED: self.record.is_pruned(),
        })
    }

    fn add_evidence(&self, object: &mut Value, entry: &Entry, evidence: Option<&Evidence>) {
        let by_store = self.by_store(entry.owner.renewed_at).map(millis);
        object["last_write_ago_ms"] = evidence.and_then(|it| it.last_write_ago).into();
        object["last_write_ago_by_store_ms"] = by_store.into();
        object["silent_ms"] = evidence.map(|it| millis(it.silent_for(self.now))).into();
        object["renewal_seen"] = evidence.is_some_and(|it| it.silence.renewal_seen).into();
        object["silent"] = evidence.is_some_and(Evidence::is_silent).into();
        object["expires_for_others_in_ms"] = evidence.map(|it| millis(it.expires_in)).into();
    }

    /// Returns the time since a date on MongoDB's clock.
    fn by_store(&self, at: WallMillis) -> Option<Duration> {
        let passed = self.store_now?.0.checked_sub(at.0).filter(|_| at.0 > 0)?;
        Some(Duration::from_millis(u64::try_from(passed).unwrap_or(0)))
    }

    fn kept_until(&self, entry: &Entry) -> Option<(WallMillis, Duration)> {
        let until = *self.record.kept_until.get(&entry.claim)?;
        // The end of the work is dated by MongoDB's clock, and renewals by the owner's clock.
        let now = self.store_now.filter(|_| entry.work_done);
        let rest = until.0.saturating_sub(now.unwrap_or_else(wall).0);
        let rest = Duration::from_millis(u64::try_from(rest).unwrap_or(0));
        Some((until, rest))
    }

    fn state(&self, entry: &Entry, evidence: Option<&Evidence>) -> HolderState {
        let rest = self.kept_until(entry).map(|(_, rest)| rest);
        let is_gone = evidence.is_some_and(Evidence::is_silent);
        match entry.is_confirmed() {
            _ if self.unanswered.is_some() && !is_gone => HolderState::Works(Liveness::Unseen),
            true if entry.work_done && rest.is_none_or(|rest| rest.is_zero()) => HolderState::Ended,
            true if entry.work_done => HolderState::Kept,
            true => HolderState::Works(evidence.map_or(Liveness::Renews, |it| it.liveness)),
            false => HolderState::Granted,
        }
    }

    /// Returns the state of the lock: the worst state of its holders.
    fn lock_state(&self) -> &'static str {
        let states = self.holding().map(|(_, state, _)| state.as_str());
        let rank = |state: &&str| HOLDER_STATES.iter().position(|known| known == state);
        match states.max_by_key(rank) {
            _ if self.record.is_pruned() => PRUNED,
            Some(worst) => worst,
            None if self.unanswered.is_some() => UNKNOWN,
            None => "free",
        }
    }

    fn waiter_state(&self, evidence: Option<&Evidence>) -> &'static str {
        let is_gone = evidence.is_some_and(Evidence::is_silent);
        match self.unanswered.is_some() && !is_gone {
            true => UNKNOWN,
            false => "waits",
        }
    }

    fn mode(&self, entry: &Entry) -> String {
        match (self.record.lock.slots, entry.slot) {
            (0, _) => entry.mode.as_str().to_owned(),
            (slots, Some(slot)) => format!("slot {slot} of {slots}"),
            (slots, None) => format!("one of {slots} slots"),
        }
    }

    /// Returns `kept until TIME (in DURATION)` for a minimum hold that has not ended.
    fn keeps(&self, entry: &Entry) -> Option<String> {
        let (until, rest) = self.kept_until(entry).filter(|(_, rest)| !rest.is_zero())?;
        let until = date(until);
        let time = until.get(11..19).unwrap_or(&until);
        Some(format!("kept until {time} UTC (in {})", short(rest)))
    }

    fn notes(&self, entry: &Entry, state: HolderState, evidence: Option<&Evidence>) -> String {
        if let Some(unanswered) = &self.unanswered {
            return unanswered.clone();
        }
        let first = match state {
            HolderState::Granted => Some("not confirmed".to_owned()),
            HolderState::Works(Liveness::Misdated | Liveness::Late | Liveness::Silent) => {
                evidence.map(Evidence::expiry)
            }
            HolderState::Works(Liveness::Expired) => {
                Some("the next contender removes it".to_owned())
            }
            HolderState::Works(Liveness::Unseen) => evidence.map(|it| it.last_write(self.now)),
            HolderState::Works(_) | HolderState::Kept => None,
            HolderState::Ended => Some("the next contender removes it".to_owned()),
        };
        let dated = evidence.and_then(Evidence::dated);
        let notes = first.into_iter().chain(dated).chain(self.keeps(entry));
        notes.collect::<Vec<_>>().join("; ")
    }

    fn why(&self, entry: &Entry, state: HolderState, evidence: Option<&Evidence>) -> String {
        let keeps = self.keeps(entry);
        let and_kept = |why: String| match &keeps {
            Some(keeps) => format!("{why}; {keeps}"),
            None => why,
        };
        match state {
            HolderState::Granted => "granted, not confirmed yet".to_owned(),
            HolderState::Kept => and_kept("the work has ended (--at-least)".to_owned()),
            HolderState::Ended => {
                "the work and its minimum hold have ended; the next contender removes it".to_owned()
            }
            HolderState::Works(liveness) => match evidence.filter(|it| it.is_silent()) {
                Some(gone) => {
                    let watched = match liveness {
                        Liveness::Expired => String::new(),
                        _ => format!(
                            " after watching it for {}",
                            short(entry.lease_duration.duration())
                        ),
                    };
                    // `locks break` keeps a holder until its minimum hold has ended.
                    let or_break = match &keeps {
                        Some(_) => String::new(),
                        None => format!("; to remove it: {}", self.breaking()),
                    };
                    and_kept(format!(
                        "{}; {}; the next contender removes it{watched}{or_break}",
                        liveness.as_str(),
                        gone.last_write(self.now),
                    ))
                }
                None => and_kept(match evidence {
                    Some(it) if !it.silence.renewal_seen && !it.is_recent() => {
                        it.last_write(self.now)
                    }
                    Some(it) if liveness != Liveness::Renews => it.last_write(self.now),
                    _ => "works".to_owned(),
                }),
            },
        }
    }

    fn breaking(&self) -> String {
        hinted(&format!("locks break {}", self.name))
    }

    /// Describes the holder or waiter ahead of a waiter.
    fn awaits(&self, index: usize) -> String {
        let lock = &self.record.lock;
        let named = |entry: &Entry| format!("{} ({})", entry.owner.identity, entry.mode.as_str());
        let Some(before) = index
            .checked_sub(1)
            .and_then(|before| lock.queue.get(before))
        else {
            return match lock.holders.as_slice() {
                [] => format!(
                    "not granted: the document was edited by hand; to fix: {}",
                    self.breaking()
                ),
                _ if lock.slots > 0 => format!("all {} slots are taken", lock.slots),
                [one] => format!("behind {}", named(one)),
                [first, rest @ ..] => format!("behind {} and {} more", named(first), rest.len()),
            };
        };
        match lock.queue.get(index) {
            // Shared holders acquire together.
            Some(entry) if entry.mode == EntryMode::Shared && before.mode == EntryMode::Shared => {
                format!("together with {}", named(before))
            }
            _ => format!("behind {}", named(before)),
        }
    }

    /// Returns the time since the last renewal. If the renewal's age by MongoDB's clock differs,
    /// also returns this age.
    fn renewed(&self, entry: &Entry, evidence: Option<&Evidence>) -> String {
        let Some(evidence) = evidence.filter(|it| it.liveness != Liveness::Unseen) else {
            return "-".to_owned();
        };
        let (shown, ours) = (evidence.renewed(self.now), evidence.silent_for(self.now));
        if self.unanswered.is_some() {
            return shown;
        }
        match self.by_store(entry.owner.renewed_at) {
            Some(by_store) if by_store.abs_diff(ours) >= SKEW_MIN => {
                format!("{shown} ago ({} ago by MongoDB's clock)", short(by_store))
            }
            Some(_) | None => format!("{shown} ago"),
        }
    }

    pub(super) fn description_object(&self, store: &StoreInfo) -> Value {
        let mut object = self.object();
        object["store"] = store_object(store);
        object["history"] = self.record.history.iter().map(ended_object).collect();
        object
    }
}

fn style(state: HolderState) -> Style {
    match state {
        HolderState::Works(Liveness::Silent | Liveness::Expired) => Style::Bad,
        HolderState::Works(Liveness::Misdated | Liveness::Late | Liveness::Unseen) => {
            Style::Warning
        }
        HolderState::Works(Liveness::Renews) | HolderState::Granted => Style::Plain,
        HolderState::Kept | HolderState::Ended => Style::Dim,
    }
}
