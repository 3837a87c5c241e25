//! `leasehold describe`: one lease with its history, its standing request, and whether the request
//! has an effect.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::Session;
use super::candidates::{candidates, names};
use super::leases::await_renewals;
use super::observed::{Liveness, Observed, ObservedDocument, lease};
use super::render::{self, Instant, because, renewed, short};
use crate::table::{color, text};
use leasehold_cli::answer;
use leasehold_core::election::ResourceName;
use leasehold_host::CommandError;
use leasehold_host::exit;
use leasehold_mongodb::store::mongo::operators::{
    LeaseRecord, Present, RequestEffect, Scope, ViewEvent,
};
use leasehold_status::render::date;

pub(super) async fn run(
    session: &Session,
    name: &ResourceName,
    observe: Duration,
    with_candidates: bool,
) -> Result<u8, CommandError> {
    let scope = Scope::One(name.clone());
    let mut view = session.collection.follow(scope.clone());
    let (entries, at) = session.listed(&mut view, "read the lease").await?;
    session.lease(name, entries.clone()).await?;
    let mut observed = Observed::default();
    observed.apply(ViewEvent::Listed { entries, at });
    let candidates = match with_candidates {
        true => Some(candidates(session, &mut view, name, |_| false).await?),
        false => None,
    };
    await_renewals(session, &mut view, &scope, &mut observed, observe).await;
    let now = Instant::now();
    let seen = observed.get(name.as_str());
    let Some((seen, lease)) = seen.and_then(|seen| Some((seen, lease(&seen.entry)?))) else {
        // Deleted, or replaced by something else, while renewals were awaited.
        return Err(session.missing(name).await.into());
    };
    let description = match session.json {
        true => format!(
            "{:#}\n",
            object(session, seen, lease, candidates.as_deref(), now)
        ),
        false => description(session, seen, lease, candidates.as_deref(), now),
    };
    answer(description.as_bytes())?;
    Ok(exit::DONE)
}

fn object(
    session: &Session,
    seen: &ObservedDocument,
    lease: &LeaseRecord,
    candidates: Option<&[Present]>,
    now: Instant,
) -> Value {
    let mut object = render::object(seen, now.boot);
    let info = session.collection.info().unwrap_or_default();
    object["store"] = json!({
        "kind": info.kind.as_str(), "set": info.set,
        "database": info.database, "collection": info.collection,
    });
    if let Some(candidates) = candidates {
        let candidate = |candidate: &Present| {
            json!({
                "identity": candidate.identity.as_str(),
                "version": candidate.version,
                "healthy": candidate.healthy,
            })
        };
        object["candidates"] = candidates.iter().map(candidate).collect();
    }
    object["history"] = lease.history.iter().map(render::ended_object).collect();
    object["actions"] = lease.actions.iter().map(render::action_object).collect();
    object
}

fn description(
    session: &Session,
    seen: &ObservedDocument,
    lease: &LeaseRecord,
    candidates: Option<&[Present]>,
    now: Instant,
) -> String {
    let info = session.collection.info().unwrap_or_default();
    let kind = info.describe();
    let mut fields = vec![
        ("Lease", seen.entry.name.clone()),
        (
            "Store",
            format!("{}.{}, {kind}", info.database, info.collection),
        ),
    ];
    fields.extend(holder(seen, lease, now));
    fields.push(("Token", lease.lease.token.to_string()));
    if let Some(candidates) = candidates {
        fields.push(("Present", names(candidates)));
    }
    if lease.held_by().is_some() {
        fields.push(("Standby", render::standby(lease)));
    }
    fields.push(("Paused", paused(lease)));
    fields.push(("Request", request(lease)));
    if let Some(reserved) = lease
        .lease
        .reserved_for
        .as_ref()
        .filter(|reserved| lease.held_by().is_none() && !reserved.is_head_start())
    {
        let until = short(reserved.duration);
        fields.push((
            "Reserved",
            format!(
                "for {}, which others leave it to for {until}",
                reserved.identity
            ),
        ));
    }
    let mut text_of_all = String::new();
    for (name, value) in fields {
        let _ = writeln!(text_of_all, "{:<10} {value}", format!("{name}:"));
    }
    for (heading, rows) in [
        ("History, newest first", render::history(lease)),
        ("Actions of operators, newest first", render::actions(lease)),
    ] {
        let _ = match rows.len() {
            1 => writeln!(text_of_all, "\n{heading}: none"),
            _ => write!(text_of_all, "\n{heading}:\n{}", text(&rows, color())),
        };
    }
    text_of_all
}

fn holder(
    seen: &ObservedDocument,
    lease: &LeaseRecord,
    now: Instant,
) -> Vec<(&'static str, String)> {
    let Some((holder, shown)) = lease.held_by().zip(lease.holder.as_ref()) else {
        return vec![("Holder", "none".to_owned())];
    };
    let address = shown
        .address
        .as_ref()
        .map(|address| format!(" at {address}"));
    let token = lease.holder_token().unwrap_or(lease.lease.token);
    let duration = holder.lease_duration.duration();
    let renewal = renewed(seen.silence, now.boot);
    let renewal = match (
        seen.silence.liveness(duration, now.boot),
        seen.silence.renewal_seen,
    ) {
        (Liveness::Expired, _) => format!("{renewal}: expired, another candidate may take over"),
        (Liveness::Late, _) => format!(
            "{renewal}: late; it expires {} after the last one",
            short(duration)
        ),
        (Liveness::Renews, true) => renewal,
        (Liveness::Renews, false) => format!("{renewal}, since this command started"),
    };
    vec![
        (
            "Holder",
            format!(
                "{}{}, token {token}, since {} (by its clock)",
                shown.identity,
                address.unwrap_or_default(),
                date(holder.acquired_at),
            ),
        ),
        ("Renewed", renewal),
        (
            "Duration",
            format!(
                "{} (lease duration that the holder declared)",
                short(duration)
            ),
        ),
    ]
}

fn paused(lease: &LeaseRecord) -> String {
    if !lease.lease.paused {
        return "no".to_owned();
    }
    let last = lease
        .actions
        .iter()
        .rev()
        .find(|action| action.action == "pause");
    let Some(pause) = last else {
        return "yes".to_owned();
    };
    let by = pause.by.as_deref().unwrap_or("?");
    let reason = pause.reason.as_ref().map(|reason| format!(": {reason}"));
    format!(
        "yes, by {by} at {}{}",
        date(pause.at),
        reason.unwrap_or_default()
    )
}

fn request(lease: &LeaseRecord) -> String {
    let Some(request) = &lease.request else {
        return "none".to_owned();
    };
    let effect = match lease.effect() {
        Some(RequestEffect::Effective) | None => "the holder applies it".to_owned(),
        Some(effect) => format!("no effect: {}", because(effect)),
    };
    let reason = request.reason.as_ref().map(|reason| format!(": {reason}"));
    format!(
        "{} at {}{}; {effect}",
        render::request(request),
        date(request.at),
        reason.unwrap_or_default()
    )
}
