//! Roll calls ask the candidates of a lease to report. A roll call is written to the document, but
//! changes neither the revision nor the holder.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::Session;
use super::observed::{Evidence, Observed, lease};
use super::render::{short, unclaimed};
use leasehold_cli::connecting;
use leasehold_clock as clock;
use leasehold_core::election::{BootTime, Identity, ResourceName};
use leasehold_mongodb::randomness::KernelRandomness;
use leasehold_mongodb::store::mongo::operators::{Acted, ActionId, CollectionEntry, Present};
use leasehold_mongodb::store::{Failure, RetryPolicy};

/// Time for candidates to answer. Candidates with a change stream answer within milliseconds;
/// others poll, by default each second.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Time for candidates to answer while a person waits for a list. Candidates that poll at the
/// default interval, with its jitter, answer in time.
pub(super) const ANSWER_SOON: Duration = Duration::from_millis(1_500);
/// Time before the first read of the answers. The time doubles before each further read.
const READ_AFTER: Duration = Duration::from_millis(50);
pub(super) const CALLS_MAX: usize = 16;
/// Interval between roll calls of a lease in a live table.
const CALLED_AGAIN_AFTER: Duration = Duration::from_secs(30);
/// Time before a failed roll call is repeated, if another attempt may succeed.
const FAILED_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Minimum age that a live table shows for an answer.
const AGE_SHOWN_FROM: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Roll {
    Answered(Vec<Present>),
    /// Earlier answers, and their age.
    Earlier(Vec<Present>, Duration),
    /// Contains the reason why the candidates were not asked.
    NotCalled(String),
    /// The candidates were not asked. The lease has been free for this long, so apparently none is
    /// running: a running candidate would have acquired it.
    Unclaimed(Duration),
}

/// Selects leases whose candidates are asked. Leases with a renewing holder are never selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    None,
    /// All leases without a renewing holder, except free leases that a running candidate would have
    /// acquired long ago.
    IfUnclear,
    All,
}

pub(crate) type Rolls = BTreeMap<String, Roll>;

impl Roll {
    pub(super) fn words(&self) -> String {
        match self {
            Self::NotCalled(why) => format!("candidates not asked: {why}"),
            Self::Unclaimed(free) => {
                format!("free for {}; no candidate acquires it", short(*free))
            }
            Self::Earlier(present, age) => {
                let answered = Self::Answered(present.clone()).words();
                format!("{answered} ({} ago)", short(*age))
            }
            Self::Answered(present) => match present.as_slice() {
                [] => "no candidate answers".to_owned(),
                [_] => format!("1 candidate answers: {}", names(present)),
                several => format!("{} candidates answer: {}", several.len(), names(present)),
            },
        }
    }

    fn aged(self, age: Duration) -> Self {
        match self {
            Self::Answered(present) if age >= AGE_SHOWN_FROM => Self::Earlier(present, age),
            other => other,
        }
    }

    /// Returns the reason why the candidates were not asked, if MongoDB refused the roll call.
    pub(super) fn refused(&self) -> Option<String> {
        match self {
            Self::NotCalled(why) => Some(why.clone()),
            Self::Answered(_) | Self::Earlier(..) | Self::Unclaimed(_) => None,
        }
    }

    pub(super) fn add_to(&self, object: &mut Value) {
        let candidate = |it: &Present| {
            let identity = it.identity.as_str();
            let token = it.leads_with.map(|token| token.get());
            json!({
                "identity": identity, "version": it.version, "healthy": it.healthy, "token": token,
            })
        };
        match self {
            Self::Answered(present) | Self::Earlier(present, _) => {
                object["candidates"] = present.iter().map(candidate).collect();
            }
            Self::NotCalled(why) => object["candidates_not_asked"] = why.as_str().into(),
            Self::Unclaimed(_) => object["candidates_not_asked"] = self.words().into(),
        }
    }
}

pub(super) fn names(present: &[Present]) -> String {
    let names = present.iter().map(|candidate| match candidate.healthy {
        Some(false) => format!("{} (unhealthy)", candidate.identity),
        Some(true) | None => candidate.identity.to_string(),
    });
    match present {
        [] => "none".to_owned(),
        _ => names.collect::<Vec<_>>().join(", "),
    }
}

/// Asks the candidates of a lease to report. Returns the answers once `complete` accepts them, or
/// after `within`.
pub(super) async fn candidates(
    session: &Session,
    name: &ResourceName,
    within: Duration,
    complete: impl Fn(&[Present]) -> bool,
) -> Result<Vec<Present>, Failure> {
    let id = ActionId::random(&mut KernelRandomness);
    candidates_with(session, name, id, within, complete).await
}

/// Asks the candidates as [`candidates`] does, and gives the roll call this id.
async fn candidates_with(
    session: &Session,
    name: &ResourceName,
    id: ActionId,
    within: Duration,
    complete: impl Fn(&[Present]) -> bool,
) -> Result<Vec<Present>, Failure> {
    let called = session.collection.call_roll(name, id).await;
    if called.outcome != Acted::Applied(()) {
        let changed = || Failure::new("the document is no longer a lease", "");
        return Err(called.failure.unwrap_or_else(changed));
    }
    let read = || session.collection.read(name.as_str());
    let present = answers(read, within, complete).await;
    // A roll call that remains in the document is harmless, because the next roll call replaces it.
    let _ = session.collection.end_roll_call(name, id).await;
    present
}

/// Collects the answers to a roll call. Fails if no answer was read and the last read failed,
/// because candidates may have answered unseen, or may have been unable to answer.
async fn answers<R: Future<Output = Result<Option<CollectionEntry>, Failure>>>(
    mut read: impl FnMut() -> R,
    within: Duration,
    complete: impl Fn(&[Present]) -> bool,
) -> Result<Vec<Present>, Failure> {
    let mut until = clock::boot_now() + within;
    let mut present: Vec<Present> = Vec::new();
    let (mut pause, mut failed) = (READ_AFTER, None);
    while !complete(&present) && clock::boot_now() < until {
        sleep(pause.min(until.since(clock::boot_now()))).await;
        pause *= 2;
        let begun = clock::boot_now();
        let read = read().await;
        // While MongoDB hangs, candidates cannot answer, so a slow read extends the deadline. A
        // failed read does not, because an outage may be long.
        if read.is_ok() {
            until = until + clock::boot_now().since(begun);
        }
        failed = read.as_ref().err().cloned();
        let entry = read.ok().flatten();
        // Another operator's roll call may have replaced this roll call. The answers to both roll
        // calls count.
        let roll_call = entry
            .as_ref()
            .and_then(|entry| lease(entry)?.roll_call.as_ref());
        for candidate in roll_call.iter().flat_map(|call| &call.present) {
            let mut known = present.iter_mut();
            match known.find(|known| known.identity == candidate.identity) {
                Some(known) => known.clone_from(candidate),
                None => present.push(candidate.clone()),
            }
        }
    }
    match failed.filter(|_| present.is_empty()) {
        Some(failure) => Err(failure),
        None => {
            present.sort_by(|a, b| a.identity.cmp(&b.identity));
            Ok(present)
        }
    }
}

/// Waits for answers. After a second, reports what the command is waiting for.
pub(super) async fn announced<T>(
    answers: impl Future<Output = T>,
    within: Duration,
    note: fn(&str),
) -> T {
    connecting::announced(answers, within, note, || "asking the candidates".to_owned()).await
}

pub(super) async fn roll(session: &Session, name: &ResourceName, within: Duration) -> Roll {
    let id = ActionId::random(&mut KernelRandomness);
    roll_with(session, name, id, within).await
}

pub(super) async fn roll_with(
    session: &Session,
    name: &ResourceName,
    id: ActionId,
    within: Duration,
) -> Roll {
    match candidates_with(session, name, id, within, |_| false).await {
        Ok(present) => Roll::Answered(present),
        Err(failure) => Roll::NotCalled(failure.to_string()),
    }
}

#[derive(Debug, Clone)]
struct LastCall {
    at: BootTime,
    again_at: BootTime,
    /// True if the holder seemed to be gone at the time of the call.
    was_silent: bool,
    standby: Option<Identity>,
}

impl LastCall {
    /// Returns true if the answers still describe a lease with this holder and standby.
    fn is_recent(&self, now: BootTime, is_silent: bool, standby: Option<&Identity>) -> bool {
        let has_changed = is_silent && !self.was_silent || self.standby.as_ref() != standby;
        now < self.again_at && !has_changed
    }
}

/// The roll calls for a list of leases: one roll call for each lease without a renewing holder.
pub(super) struct RollCalls {
    session: Session,
    within: Duration,
    ask: Ask,
    /// Number of roll calls that may still be made.
    left: usize,
    called: BTreeMap<String, LastCall>,
    /// Each result contains the time when the call ended. The flag is true if another attempt may
    /// succeed.
    calls: JoinSet<(String, Roll, BootTime, bool)>,
    rolls: Rolls,
    answered_at: BTreeMap<String, BootTime>,
}

impl RollCalls {
    pub(super) fn new(session: &Session, within: Duration, ask: Ask, at_most: usize) -> Self {
        Self {
            session: session.clone(),
            within,
            ask,
            left: at_most,
            called: BTreeMap::new(),
            calls: JoinSet::new(),
            rolls: Rolls::new(),
            answered_at: BTreeMap::new(),
        }
    }

    /// Forgets the answers for leases that again have a renewing holder.
    pub(super) fn forget_led(&mut self, observed: &Observed) {
        let (unled, _) = self.unled(observed);
        self.called.retain(|name, _| unled.contains(name.as_str()));
        self.rolls.retain(|name, _| unled.contains(name.as_str()));
    }

    /// Asks the candidates of leases without a renewing holder to report, unless they were asked
    /// recently. Asks again once a late holder counts as silent, because this holder may have
    /// answered the earlier roll call.
    pub(super) fn call(&mut self, observed: &Observed) {
        let now = clock::boot_now();
        let (unled, known) = self.unled(observed);
        self.rolls.extend(known);
        for name in unled {
            let seen = observed.get(name);
            let evidence = seen.and_then(|seen| seen.evidence(now));
            let is_silent = evidence.as_ref().is_some_and(Evidence::is_silent);
            let standby = seen.and_then(|seen| lease(&seen.entry)?.standby.clone());
            let is_recent = |last: &LastCall| last.is_recent(now, is_silent, standby.as_ref());
            // A document with an invalid name has no candidates.
            let Ok(asked) = ResourceName::new(name) else {
                continue;
            };
            if self.called.get(name).is_some_and(is_recent) {
                continue;
            }
            if self.left == 0 || self.calls.len() >= CALLS_MAX {
                let why = format!("more than {CALLS_MAX} leases; to ask: leasehold describe NAME");
                let roll = Roll::NotCalled(why);
                self.rolls.entry(name.to_owned()).or_insert(roll);
                continue;
            }
            self.left -= 1;
            let call = LastCall {
                at: now,
                again_at: now + CALLED_AGAIN_AFTER,
                was_silent: is_silent,
                standby,
            };
            self.called.insert(name.to_owned(), call);
            let (session, within) = (self.session.clone(), self.within);
            let answered = async move {
                let (roll, retries) = match candidates(&session, &asked, within, |_| false).await {
                    Ok(present) => (Roll::Answered(present), true),
                    Err(failure) => {
                        let retries = failure.retry != RetryPolicy::Reconfigure;
                        (Roll::NotCalled(failure.to_string()), retries)
                    }
                };
                (asked.to_string(), roll, clock::boot_now(), retries)
            };
            self.calls.spawn(answered);
        }
    }

    /// Returns the names of the leases whose candidates must be asked, and the rolls of the leases
    /// whose candidates need not be asked.
    fn unled<'a>(&self, observed: &'a Observed) -> (BTreeSet<&'a str>, Rolls) {
        let (mut unled, mut known) = (BTreeSet::new(), Rolls::new());
        for seen in observed.unled_leases(clock::boot_now()) {
            let name = seen.entry.name.as_str();
            let free = lease(&seen.entry).and_then(unclaimed);
            match (self.ask, free) {
                (Ask::None, _) => {}
                (Ask::IfUnclear, Some(free)) => {
                    known.insert(name.to_owned(), Roll::Unclaimed(free));
                }
                (Ask::IfUnclear, None) | (Ask::All, _) => {
                    unled.insert(name);
                }
            }
        }
        (unled, known)
    }

    /// Returns a note with the number of leases whose candidates were asked, if there are more
    /// leases than permitted roll calls.
    pub(super) fn limited(&self, observed: &Observed) -> Option<String> {
        let (unled, _) = self.unled(observed);
        let mut unasked = unled.clone();
        unasked.retain(|name| !self.called.contains_key(*name));
        let (asked, all) = (unled.len() - unasked.len(), unled.len());
        (self.left == 0 && asked < all).then(|| {
            format!(
                "asked the candidates of {asked} of {all} leases without a leader; to ask for \
                 another: leasehold describe NAME"
            )
        })
    }

    /// Returns the rolls for `--observe 0s`, which asks no candidate.
    pub(super) fn not_asked(&self, observed: &Observed) -> Rolls {
        let (unled, mut rolls) = self.unled(observed);
        let why = || Roll::NotCalled("--observe 0s".to_owned());
        rolls.extend(unled.into_iter().map(|name| (name.to_owned(), why())));
        rolls
    }

    pub(super) fn are_under_way(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Waits for the next answer. Never returns if no roll call is under way.
    pub(super) async fn next(&mut self) {
        match self.calls.join_next().await {
            Some(Ok((name, roll, at, retries))) => self.put(name, roll, at, retries),
            Some(Err(_)) => {}
            None => std::future::pending().await,
        }
    }

    pub(super) fn answered(&mut self) -> &Rolls {
        while let Some(Ok((name, roll, at, retries))) = self.calls.try_join_next() {
            self.put(name, roll, at, retries);
        }
        &self.rolls
    }

    fn put(&mut self, name: String, roll: Roll, at: BootTime, retries: bool) {
        let failed = matches!(roll, Roll::NotCalled(_)) && retries;
        if let Some(last) = self.called.get_mut(&name).filter(|_| failed) {
            last.again_at = at + FAILED_AGAIN_AFTER;
        }
        self.answered_at.insert(name.clone(), at);
        self.rolls.insert(name, roll);
    }

    /// Returns the answers. An answer that is no longer recent includes its age.
    pub(super) fn aged(&mut self, now: BootTime) -> Rolls {
        self.answered();
        let aged = self.rolls.iter().map(|(name, roll)| {
            let at = self.answered_at.get(name).copied().unwrap_or(now);
            (name.clone(), roll.clone().aged(now.since(at)))
        });
        aged.collect()
    }

    /// Returns the instant at which the newest roll call begins to count as unanswered; `None`
    /// before the first roll call.
    pub(super) fn overdue_at(&self) -> Option<BootTime> {
        self.called
            .values()
            .map(|last| last.at + 2 * self.within)
            .max()
    }

    /// Returns all answers. Roll calls that are under way count as not answered.
    pub(super) fn end(mut self) -> Rolls {
        self.answered();
        let why = || Roll::NotCalled("no answer from MongoDB in time".to_owned());
        let late = self.called.into_keys();
        for name in late {
            self.rolls.entry(name).or_insert_with(why);
        }
        self.rolls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_asked_again_after_a_change_and_old_answers_show_their_age() {
        let at = |seconds: u64| BootTime::from_nanos(seconds * 1_000_000_000);
        let standby = |name| Identity::new(name).expect("an identity");
        let last = LastCall {
            at: at(100),
            again_at: at(130),
            was_silent: false,
            standby: Some(standby("b")),
        };
        assert!(last.is_recent(at(129), false, Some(&standby("b"))));
        assert!(!last.is_recent(at(130), false, Some(&standby("b"))));
        assert!(!last.is_recent(at(101), true, Some(&standby("b"))));
        assert!(!last.is_recent(at(101), false, Some(&standby("c"))));
        assert!(!last.is_recent(at(101), false, None));
        let words = |seconds| {
            let aged = Roll::Answered(Vec::new()).aged(Duration::from_secs(seconds));
            aged.words()
        };
        assert_eq!(words(1), "no candidate answers");
        assert_eq!(words(12), "no candidate answers (12s ago)");
    }

    #[tokio::test]
    async fn an_outage_during_a_roll_call_is_not_the_silence_of_the_candidates() {
        let collect = async |hangs: u64, fails: bool| {
            let mut reads = 0;
            let read = || {
                reads += 1;
                let number = reads;
                async move {
                    if number == 2 {
                        sleep(Duration::from_millis(hangs)).await;
                    }
                    match fails && number > 1 {
                        true => Err(Failure::new("no answer", "")),
                        false => Ok(None),
                    }
                }
            };
            let answered = answers(read, Duration::from_millis(250), |_| false).await;
            (answered.map_err(|failure| failure.to_string()), reads)
        };
        let failed = collect(300, true).await;
        assert_eq!(
            failed,
            (Err("no answer".to_owned()), 2),
            "not read again in the outage"
        );
        let (answered, reads) = collect(300, false).await;
        assert_eq!(
            (answered, reads),
            (Ok(Vec::new()), 3),
            "read after the hang"
        );
    }
}
