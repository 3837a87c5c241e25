//! `leasehold describe`: one lease with its history, its standing request, and whether the request
//! has an effect.

use std::fmt::Write;

use serde_json::{Value, json};

use super::Session;
use super::arguments::DescribeArgs;
use super::candidates::{candidates, names};
use super::leases::await_renewals;
use super::observed::{Liveness, ObservedDocument};
use super::render::{self, ineffective, renewed, short};
use crate::table::{color, text};
use leasehold_cli::answer;
use leasehold_clock as clock;
use leasehold_core::election::BootTime;
use leasehold_host::CommandError;
use leasehold_host::exit;
use leasehold_host::signals::Exit;
use leasehold_mongodb::store::StoreInfo;
use leasehold_mongodb::store::mongo::operators::{LeaseRecord, Present, Scope};
use leasehold_status::render::date;

pub(super) async fn run(session: &Session, args: DescribeArgs) -> Result<Exit, CommandError> {
    let (name, scope) = (&args.name, Scope::One(args.name.clone()));
    let (mut view, mut observed) = session.follow(scope.clone(), "read the lease").await?;
    session
        .lease(name, observed.one().map(|seen| &seen.entry))
        .await?;
    let present = match args.candidates {
        true => Some(candidates(session, &mut view, name, |_| false).await?),
        false => None,
    };
    await_renewals(
        session,
        &mut view,
        &scope,
        &mut observed,
        args.observe.observe,
    )
    .await;
    let Some((seen, lease)) = observed.lease() else {
        // Deleted, or replaced by something else, while renewals were awaited.
        return Err(session.missing(name).await.into());
    };
    let description = LeaseDescription {
        store: session.collection.info().unwrap_or_default(),
        seen,
        lease,
        present,
        now: clock::boot_now(),
    };
    let described = match session.json {
        true => format!("{:#}\n", description.object()),
        false => description.text(),
    };
    answer(described.as_bytes())?;
    Ok(exit::DONE.into())
}

struct LeaseDescription<'a> {
    store: StoreInfo,
    seen: &'a ObservedDocument,
    lease: &'a LeaseRecord,
    /// The candidates, if they were asked.
    present: Option<Vec<Present>>,
    now: BootTime,
}

impl LeaseDescription<'_> {
    fn object(&self) -> Value {
        let mut object = render::object(self.seen, self.now);
        object["store"] = json!({
            "kind": self.store.kind.as_str(), "set": self.store.set,
            "database": self.store.database, "collection": self.store.collection,
        });
        if let Some(present) = &self.present {
            let candidate = |candidate: &Present| {
                json!({
                    "identity": candidate.identity.as_str(),
                    "version": candidate.version,
                    "healthy": candidate.healthy,
                })
            };
            object["candidates"] = present.iter().map(candidate).collect();
        }
        render::add_past(&mut object, self.lease);
        object
    }

    fn text(&self) -> String {
        let (store, lease) = (&self.store, self.lease);
        let mut fields = vec![
            ("Lease", self.seen.entry.name.clone()),
            (
                "Store",
                format!(
                    "{}.{}, {}",
                    store.database,
                    store.collection,
                    store.describe()
                ),
            ),
        ];
        fields.extend(self.holder());
        fields.push(("Token", lease.lease.token.to_string()));
        if let Some(present) = &self.present {
            fields.push(("Present", names(present)));
        }
        if lease.held_by().is_some() {
            fields.push(("Standby", render::standby(lease)));
        }
        fields.push(("Paused", paused(lease)));
        fields.push(("Request", request(lease)));
        if let Some(reserved) = render::reserved(lease).filter(|_| lease.held_by().is_none()) {
            let (to, until) = (&reserved.identity, short(reserved.duration));
            fields.push((
                "Reserved",
                format!("for {to}; other candidates wait for {until}"),
            ));
        }
        let mut described = String::new();
        for (name, value) in fields {
            let _ = writeln!(described, "{:<10} {value}", format!("{name}:"));
        }
        for (heading, rows) in [
            ("History, newest first", render::history(lease)),
            ("Actions of operators, newest first", render::actions(lease)),
        ] {
            let _ = match rows.len() {
                1 => writeln!(described, "\n{heading}: none"),
                _ => write!(described, "\n{heading}:\n{}", text(&rows, color())),
            };
        }
        described
    }

    fn holder(&self) -> Vec<(&'static str, String)> {
        let Some((holder, shown)) = self.lease.held_by().zip(self.lease.holder.as_ref()) else {
            return vec![("Holder", "none".to_owned())];
        };
        let address = shown
            .address
            .as_ref()
            .map(|address| format!(" at {address}"));
        let (silence, now) = (self.seen.silence, self.now);
        let lasts = holder.lease_duration.duration();
        let duration = short(lasts);
        let renewal = match silence.liveness(lasts, now) {
            Liveness::Expired => ": expired, another candidate may take over".to_owned(),
            Liveness::Late => format!(": late; it expires {duration} after the last one"),
            Liveness::Renews if silence.renewal_seen => String::new(),
            Liveness::Renews => ", since this command started".to_owned(),
        };
        vec![
            (
                "Holder",
                format!(
                    "{}{}, token {}, since {} (by its clock)",
                    shown.identity,
                    address.unwrap_or_default(),
                    self.lease.holder_token().unwrap_or(self.lease.lease.token),
                    date(holder.acquired_at),
                ),
            ),
            ("Renewed", format!("{}{renewal}", renewed(silence, now))),
            (
                "Duration",
                format!("{duration} (lease duration that the holder declared)"),
            ),
        ]
    }
}

/// Returns a reason as the end of a line.
fn ending(reason: Option<&String>) -> String {
    reason
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default()
}

fn paused(lease: &LeaseRecord) -> String {
    if !lease.lease.paused {
        return "no".to_owned();
    }
    let mut latest = lease.actions.iter().rev();
    let Some(pause) = latest.find(|action| action.action == "pause") else {
        return "yes".to_owned();
    };
    let (by, at) = (pause.by.as_deref().unwrap_or("?"), date(pause.at));
    format!("yes, by {by} at {at}{}", ending(pause.reason.as_ref()))
}

fn request(lease: &LeaseRecord) -> String {
    let Some(request) = &lease.request else {
        return "none".to_owned();
    };
    let effect = match ineffective(lease) {
        None => "the holder applies it".to_owned(),
        Some(why) => format!("no effect: {why}"),
    };
    format!(
        "{} at {}{}; {effect}",
        render::request(request),
        date(request.at),
        ending(request.reason.as_ref())
    )
}
