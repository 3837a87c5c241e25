//! `leasehold describe`: shows a lease with its candidates, history and pending request, or a lock
//! with its holders, waiters and history.

use serde_json::Value;

use super::arguments::DescribeArgs;
use super::leases::{RenewalWait, await_renewals};
use super::lock_view::ObservedLock;
use super::observed::{Evidence, Followed, Liveness, ObservedDocument, lock_of};
use super::render::{self, ineffective, short};
use super::roll_call::{ANSWER_MAX, Ask, Roll, announced, names, roll};
use super::{OperatorError, Session, missing, say};
use crate::table::description;
use leasehold_cli::answer;
use leasehold_clock as clock;
use leasehold_core::election::BootTime;
use leasehold_core::lock::{FoundLock, LockOperation, LockOutcome};
use leasehold_host::signals::Exit;
use leasehold_host::{CommandError, exit};
use leasehold_mongodb::store::StoreInfo;
use leasehold_mongodb::store::mongo::operators::{ActionRecord, LeaseRecord, Scope};
use leasehold_status::dates::{dated, dated_by_holder};

pub(super) async fn run(session: &Session, args: DescribeArgs) -> Result<Exit, CommandError> {
    let (name, kind) = (args.document.get(), args.document.kind());
    let scope = Scope::One(name.clone());
    let mut followed = session.follow(scope.clone(), "read the document").await?;
    let entry = followed.observed.one().map(|seen| &seen.entry);
    let Some(entry) = entry else {
        return Err(missing(&session.collection, kind, name).await.into());
    };
    if let Some(stated) = entry.kind.filter(|stated| !kind.contains(stated)) {
        return Err(OperatorError::other_kind(name, stated).into());
    }
    if lock_of(entry).is_some() {
        return lock(session, &mut followed, &args).await;
    }
    session.lease(name, Some(entry)).await?;
    let called = match args.candidates {
        true => {
            let answers = followed.during(roll(session, name, ANSWER_MAX));
            Some(announced(answers, ANSWER_MAX, say).await)
        }
        false => None,
    };
    let refused = called.as_ref().and_then(Roll::refused);
    let ask = match called {
        Some(_) => Ask::None,
        None => Ask::All,
    };
    let wait = RenewalWait::of_lease(args.observe.observe, ask);
    let mut rolls = await_renewals(session, &mut followed, &scope, wait).await;
    let roll = called.or_else(|| rolls.remove(name.as_str()));
    let Some((seen, lease)) = followed.observed.lease() else {
        // After the first read, the lease was deleted or replaced by another document.
        return Err(missing(&session.collection, kind, name).await.into());
    };
    let description = LeaseDescription {
        store: session.collection.info().unwrap_or_default(),
        seen,
        lease,
        roll,
        now: clock::boot_now(),
    };
    match session.json {
        true => answer(format!("{:#}\n", description.object()).as_bytes())?,
        false => answer(description.text().as_bytes())?,
    }
    match refused {
        Some(why) => {
            let message = format!("cannot ask the candidates to report: {why}");
            Err(CommandError::new(exit::STORE_UNREACHABLE, message))
        }
        None => Ok(exit::DONE.into()),
    }
}

async fn lock(
    session: &Session,
    followed: &mut Followed,
    args: &DescribeArgs,
) -> Result<Exit, CommandError> {
    let (name, kind) = (args.document.get(), args.document.kind());
    if args.candidates {
        let message =
            format!("{name} is a lock, and only leases have candidates: leave out --candidates");
        return Err(CommandError::new(exit::CONFIGURATION, message));
    }
    let scope = Scope::One(name.clone());
    let wait = RenewalWait::of_lock(args.observe.observe);
    await_renewals(session, followed, &scope, wait).await;
    // A separate read is needed, because the view does not contain MongoDB's time.
    let read = LockOperation::Read { confirm: false };
    let read = session.collection.lock(name.clone()).perform(read).await;
    let now = clock::boot_now();
    let store_now = match read.outcome {
        LockOutcome::Applied(FoundLock::Lock(lock)) => Some(lock.store_now),
        _ => None,
    };
    let seen = followed.observed.one();
    let Some(view) = seen.and_then(|seen| ObservedLock::new(seen, store_now, now)) else {
        return Err(missing(&session.collection, kind, name).await.into());
    };
    let store = session.collection.info().unwrap_or_default();
    match session.json {
        true => answer(format!("{:#}\n", view.description_object(&store)).as_bytes())?,
        false => answer(view.description(&store).as_bytes())?,
    }
    Ok(exit::DONE.into())
}

struct LeaseDescription<'a> {
    store: StoreInfo,
    seen: &'a ObservedDocument,
    lease: &'a LeaseRecord,
    roll: Option<Roll>,
    now: BootTime,
}

impl LeaseDescription<'_> {
    fn object(&self) -> Value {
        let mut object = render::object(self.seen, self.roll.as_ref(), self.now);
        object["store"] = render::store_object(&self.store);
        render::add_past(&mut object, self.lease);
        object
    }

    fn text(&self) -> String {
        let lease = self.lease;
        let place = render::place(&self.store);
        let mut fields = vec![("Lease", self.seen.entry.name.clone()), ("Store", place)];
        fields.extend(self.holder());
        fields.push(("Token", lease.lease.token.to_string()));
        match &self.roll {
            Some(Roll::Answered(present) | Roll::Earlier(present, _)) => {
                fields.push(("Present", names(present)))
            }
            Some(Roll::NotCalled(why)) => fields.push(("Present", format!("not asked: {why}"))),
            Some(Roll::Unclaimed(_)) | None => {}
        }
        if lease.held_by().is_some() {
            fields.push(("Standby", render::standby(lease)));
        }
        fields.push(("Paused", paused(lease)));
        if lease.is_retired() {
            let retired = lease.actions.last().map(authored).unwrap_or_default();
            let until = "the next acquisition ends the retirement";
            fields.push(("Retired", format!("yes{retired}; {until}")));
        }
        fields.push(("Request", self.request()));
        if let Some(reserved) = render::reserved(lease).filter(|_| lease.held_by().is_none()) {
            let (to, wait) = (&reserved.identity, short(reserved.duration));
            let reserved = format!("for {to}; other candidates wait for {wait}");
            fields.push(("Reserved", reserved));
        }
        let tables = [
            ("History, newest first", render::history(lease)),
            ("Actions of operators, newest first", render::actions(lease)),
        ];
        description(&fields, &tables)
    }

    fn holder(&self) -> Vec<(&'static str, String)> {
        let Some((holder, shown)) = self.lease.held_by().zip(self.lease.holder.as_ref()) else {
            let mut state = render::state(self.seen, self.lease, self.now).to_owned();
            if state == "free"
                && let Some(free) = render::unclaimed(self.lease)
            {
                state = Roll::Unclaimed(free).words();
            }
            if self.seen.silence.is_blind(self.now) {
                state += &format!("; {}", self.seen.silence.unanswered(self.now));
            }
            return vec![("Holder", "none".to_owned()), ("State", state)];
        };
        let address = shown.address.as_ref();
        let address = address.map_or_else(String::new, |address| format!(" at {address}"));
        let duration = short(holder.lease_duration.duration());
        let since = dated_by_holder(holder.acquired_at, clock::wall_now());
        let token = self.lease.holder_token().unwrap_or(self.lease.lease.token);
        let holder = format!("{}{address}, token {token}, since {since}", shown.identity);
        let mut fields = vec![("Holder", holder)];
        if let Some(evidence) = self.seen.evidence(self.now) {
            fields.push(("State", self.state(&evidence)));
            fields.push(("Renewed", self.renewed(&evidence)));
        }
        let duration = format!("{duration} (lease duration that the holder declared)");
        fields.push(("Duration", duration));
        fields
    }

    fn state(&self, evidence: &Evidence) -> String {
        let state = render::state(self.seen, self.lease, self.now);
        match evidence.liveness {
            Liveness::Renews if evidence.silence.renewal_seen => state.to_owned(),
            Liveness::Renews | Liveness::Unseen => {
                format!("{state}; {}", evidence.last_write(self.now))
            }
            Liveness::Misdated | Liveness::Late | Liveness::Silent | Liveness::Expired => {
                let expiry = evidence.expiry_of(self.lease);
                evidence.described(state, expiry, self.roll.as_ref(), self.now)
            }
        }
    }

    fn request(&self) -> String {
        let Some(request) = &self.lease.request else {
            return "none".to_owned();
        };
        let holder = self.seen.evidence(self.now);
        let effect = match (ineffective(self.lease), holder.filter(Evidence::is_silent)) {
            (Some(why), _) => format!("no effect: {why}"),
            (None, _) if render::is_done(self.lease) => {
                "done; the next acquisition removes the request".to_owned()
            }
            (None, Some(_)) => {
                let holder = self.lease.holder.as_ref();
                let holder = holder.map_or("the holder", |holder| holder.identity.as_str());
                format!("no effect unless {holder} recovers; the next leader removes the request")
            }
            (None, None) => "the holder applies it".to_owned(),
        };
        format!(
            "{} at {}{}; {effect}",
            render::request(request),
            dated(request.at, clock::wall_now()),
            ending(request.reason.as_ref())
        )
    }

    fn renewed(&self, evidence: &Evidence) -> String {
        let watched = short(evidence.silence.lasts(self.now));
        match evidence.silence.renewal_seen || evidence.is_recent() {
            true => format!("{} ago", evidence.renewed(self.now)),
            false => format!("not since this command started, {watched} ago"),
        }
    }
}

fn ending(reason: Option<&String>) -> String {
    reason.map_or_else(String::new, |reason| format!(": {reason}"))
}

fn paused(lease: &LeaseRecord) -> String {
    match lease.lease.paused {
        true => format!("yes{}", lease.pause().map(authored).unwrap_or_default()),
        false => "no".to_owned(),
    }
}

/// Returns the author, time and reason of an action, as text to append to a line.
fn authored(action: &ActionRecord) -> String {
    let by = action.by.as_deref().unwrap_or("?");
    let at = dated(action.at, clock::wall_now());
    format!(", by {by} at {at}{}", ending(action.reason.as_ref()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_mongodb::store::Failure;
    use leasehold_mongodb::store::mongo::operators::ViewEvent;
    use mongodb::bson::{Bson, Document, Uuid, doc};

    use super::*;
    use crate::operators::observed::Observed;
    use crate::operators::observed::tests::{ago, observed};
    use crate::operators::roll_call::Rolls;

    /// Returns the state as shown in the list, in the description and in JSON, and the whole
    /// description.
    fn shown(observed: &Observed, now: BootTime) -> ([String; 3], String) {
        let (seen, lease) = observed.lease().expect("a lease");
        let listed = render::rows(observed.documents(), &Rolls::new(), now);
        let description = LeaseDescription {
            store: StoreInfo::default(),
            seen,
            lease,
            roll: None,
            now,
        };
        let text = description.text();
        let mut states = text.lines().filter_map(|line| line.strip_prefix("State:"));
        let state = states.next().expect("a state");
        let (state, _) = state.split_once(';').unwrap_or((state, ""));
        let object = description.object();
        let object = object["state"].as_str().expect("a word");
        let states = [&listed[1].cells[1], state.trim(), object];
        (states.map(str::to_owned), text)
    }

    fn ended(seconds: i64) -> Document {
        let past = doc! { "acquired_at": ago(900), "ended_at": ago(seconds) };
        doc! { "history": [past] }
    }

    fn retired(mut changes: Document) -> Document {
        let revision = Bson::from(Uuid::from_bytes([1; 16]));
        let retire = doc! { "action": "retire", "revision": revision, "at": ago(5) };
        changes.insert("actions", vec![retire]);
        changes
    }

    #[test]
    fn lists_descriptions_and_json_show_one_state() {
        for (changes, state) in [
            (doc! { "renewed_at": ago(1) }, "held"),
            (doc! { "renewed_at": ago(-60) }, "held"),
            (doc! { "renewed_at": ago(10) }, "late"),
            (doc! { "renewed_at": ago(10), "paused": true }, "late"),
            (doc! { "renewed_at": ago(60) }, "silent"),
            (doc! {}, "free"),
            (ended(5), "free"),
            (ended(372), "free for 6m12s"),
            (doc! { "paused": true }, "paused"),
            (retired(doc! {}), "retired"),
            (retired(doc! { "renewed_at": ago(60) }), "retired"),
        ] {
            let (states, text) = shown(&observed(changes), clock::boot_now());
            let [listed, described, object] = &states;
            let word = state.split(' ').next().expect("a word");
            assert_eq!([listed, object], [word; 2], "{text}");
            assert_eq!(described, state, "{text}");
            let unclaimed = text.contains(&format!("{state}; no candidate acquires it\n"));
            assert_eq!(unclaimed, state != word, "{text}");
        }
        let ahead = observed(doc! { "renewed_at": ago(-3_600) });
        let later = clock::boot_now() + Duration::from_secs(4);
        let (states, text) = shown(&ahead, later);
        assert_eq!(states, ["unknown"; 3], "{text}");
        let state = "State:     unknown; no renewal in 4s; last renewal dated ";
        assert!(text.contains(state), "{text}");
        let expired = observed(doc! { "renewed_at": ago(1) });
        let later = clock::boot_now() + Duration::from_secs(25);
        assert_eq!(shown(&expired, later).0, ["expired"; 3]);
        for changes in [doc! {}, doc! { "renewed_at": ago(1) }] {
            let mut hidden = observed(changes);
            let failed = ViewEvent::Failed(Failure::new("no answer", ""));
            hidden.apply(failed, clock::boot_now());
            let later = clock::boot_now() + Duration::from_secs(10);
            let (states, text) = shown(&hidden, later);
            assert_eq!(states, ["unknown"; 3], "{text}");
            assert!(text.contains("no answer from MongoDB for 10s\n"), "{text}");
        }
    }

    #[test]
    fn a_retired_lease_with_an_unresponsive_holder_is_shown_as_retired() {
        let observed = observed(retired(doc! { "renewed_at": ago(60) }));
        let (_, text) = shown(&observed, clock::boot_now());
        let state = "State:     retired; last renewal 1m ago by the holder's clock; the next acquisition ends the retirement\n";
        assert!(text.contains(state), "{text}");
        assert!(!text.contains("take over"), "{text}");
        assert!(text.contains("Retired:   yes, by ? at "), "{text}");
    }

    #[test]
    fn every_date_is_followed_by_its_age() {
        let revision = Bson::from(Uuid::from_bytes([1; 16]));
        let pause = doc! { "action": "pause", "revision": &revision, "at": ago(75), "by": "olga" };
        let request = doc! { "kind": "step_down", "token": 7_i64, "at": ago(75), "by": "olga" };
        let mut changes = ended(901);
        changes.extend(doc! {
            "renewed_at": ago(1), "paused": true, "actions": [pause], "request": request,
        });
        let (_, text) = shown(&observed(changes), clock::boot_now());
        for (label, age) in [
            ("Holder:    a, token 7, since ", "(15m ago by its clock)\n"),
            ("Paused:    yes, by olga at ", "(1m15s ago)\n"),
            (
                "Request:   step-down of token 7 requested by olga at ",
                "(1m15s ago); ",
            ),
        ] {
            let line = text
                .split_once(label)
                .map(|(_, rest)| rest.split_once('Z').expect(rest));
            let (date, rest) = line.unwrap_or_else(|| panic!("{label}: {text}"));
            assert_eq!(date.len(), "2026-11-22T03:00:41".len(), "{text}");
            assert!(rest.starts_with(&format!(" {age}")), "{text}");
        }
        for age in ["Z  15m1s  ", "Z  1m15s  pause"] {
            assert_eq!(text.matches(age).count(), 1, "{age}: {text}");
        }
    }
}
