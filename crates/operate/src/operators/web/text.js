
// Texts about documents. These functions do not access the page.

const collator = new Intl.Collator("en", { numeric: true });
const MISDATED_MS = 4000; // Like the server, distrusts a date in the future after this time without a renewal.
const UNCLAIMED_MS = 10_000; // A free lease counts as unclaimed after this time.
// From the best state to the worst.
const STATES = ["kept", "held", "free", "paused", "unknown", "late", "foreign", "silent", "expired"];
let clockAhead = 0; // The server's wall clock minus this browser's wall clock.
let storeAhead = 0; // MongoDB's clock minus the server's wall clock.
let outage = null; // The last period without current data: { from, to } on this page's clock.

// Formats milliseconds with at most two units, and with tenths of a second below ten seconds.
function duration(ms) {
  if (!Number.isFinite(ms) || ms < 0) return "–";
  if (ms < 9950) return `${(ms / 1000).toFixed(1)}s`;
  const seconds = Math.floor(ms / 1000);
  const two = (first, unit, second, lesser) => first + unit + (second ? second + lesser : "");
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3600) return two(Math.floor(seconds / 60), "m", seconds % 60, "s");
  if (seconds < 86400) return two(Math.floor(seconds / 3600), "h", Math.floor(seconds / 60) % 60, "m");
  return two(Math.floor(seconds / 86400), "d", Math.floor(seconds / 3600) % 24, "h");
}

// The server's wall-clock time at an instant of this page's clock.
const wall = (now) => Date.now() + clockAhead - (performance.now() - now);

// Time since a date in a document. The date's clock may differ from the server's clock.
const since = (date, now) => (date ? Math.max(0, wall(now) - Date.parse(date)) : NaN);

// True if a date is so far in the future that the clocks differ.
const isAhead = (date, now) => Boolean(date) && Date.parse(date) - wall(now) >= 1000;

// Duration of a hold so far: until now, or until the last renewal if the holder is gone.
function heldFor(entry, at, now) {
  const held = since(entry.since, now);
  if (!isGone(holderState(entry, at, now))) return held;
  const written = entry.renewal_seen ? silence(entry, at, now) : since(entry.renewed_at, now);
  return Number.isNaN(written) ? NaN : Math.max(0, held - written);
}

const utc = (ms) => `${new Date(ms).toISOString().slice(11, 19)} UTC`;

// Formats a date with its age. Omits the day if the date is today.
function dated(date, now) {
  if (!date || !Date.parse(date)) return "–";
  const [at, today] = [new Date(date).toISOString(), new Date(wall(now)).toISOString()];
  const day = at.slice(0, 10) === today.slice(0, 10) ? "" : `${at.slice(0, 10)} `;
  const ahead = Date.parse(date) - wall(now);
  return `${day}${utc(Date.parse(date))} (${isAhead(date, now) ? `in ${duration(ahead)}` : `${duration(since(date, now))} ago`})`;
}

// Time since the last renewal. `at` is the instant at which this page received `silent_ms`.
function silence(entry, at, now) {
  return entry && entry.silent_ms != null ? entry.silent_ms + Math.max(0, now - at) : NaN;
}

// Remaining minimum hold after the work has ended, on MongoDB's clock; negative once the minimum
// hold is over.
function rest(entry, now) {
  return entry.over ? Date.parse(entry.kept_until) - wall(now) - storeAhead : NaN;
}

const isKept = (entry, now) => rest(entry, now) > 0;

// True if the work and the minimum hold of a holder have ended, so that others may acquire the lock.
const isEnded = (entry, now) => Boolean(entry.over) && !isKept(entry, now);

// The holders whose work or minimum hold has not ended.
function holdersOf(doc, now) {
  if (doc.kind !== "lock") return doc.holder ? [doc.holder] : [];
  return doc.holders.filter((entry) => !isEnded(entry, now));
}

// Number of holders of a lock; `doc.holders` may be incomplete.
function holdersTotal(doc, now) {
  return doc.holders_total - doc.holders.filter((entry) => isEnded(entry, now)).length;
}

// True if the holder was not silent before the last outage, and its next renewal may not be due yet.
function isAwaited(entry, now) {
  if (!outage || outage.to == null || now - outage.to > entry.lease_duration_ms / 4) return false;
  return wall(outage.from) - Date.parse(entry.renewed_at) < entry.lease_duration_ms;
}

// True if no renewal was seen although one was due, and the date of the last renewal proves nothing.
function isMisdated(entry, silent, now) {
  const isDue = silent >= Math.min(MISDATED_MS, entry.lease_duration_ms / 6);
  return !entry.renewal_seen && isDue && Date.parse(entry.renewed_at) - wall(now) > entry.lease_duration_ms / 4;
}

// State of one holder. `silent` is inferred from the holder's wall clock; `expired` was observed.
function holderState(entry, at, now) {
  if (entry.over) return isKept(entry, now) ? "kept" : "free";
  const silent = silence(entry, at, now);
  if (silent >= entry.lease_duration_ms) return "expired";
  const [written, isOld] = [entry.renewal_seen ? 0 : since(entry.renewed_at, now), (ms) => ms > entry.lease_duration_ms / 4];
  if (isOld(written) && !isOld(silent) && isAwaited(entry, now)) return "unknown";
  if (written >= entry.lease_duration_ms) return "silent";
  if (isOld(Math.max(silent, written))) return "late";
  return isMisdated(entry, silent, now) ? "unknown" : "held";
}

function renewed(entry, at, now) {
  const ms = silence(entry, at, now);
  if (Number.isNaN(ms) || entry.over) return "–"; // The entry is no longer renewed.
  if (entry.renewal_seen) return `${duration(ms)} ago`;
  const written = since(entry.renewed_at, now);
  return written + 1000 >= ms && !isAhead(entry.renewed_at, now) ? `~${duration(Math.max(written, ms))} ago` : `> ${duration(ms)}`;
}

// Applies `holders`, the renewals in the order of the document's holders.
function renew(doc, holders) {
  const entries = doc.kind === "lock" ? doc.holders : [doc.holder];
  holders.forEach(([silent_ms, renewal_seen, renewed_at], index) => {
    if (!entries[index]) return;
    Object.assign(entries[index], { silent_ms, renewal_seen });
    if (renewed_at) entries[index].renewed_at = renewed_at;
  });
}

// The holder that the list shows: the holder in the worst state, and among equals the one without a
// renewal for the longest time. If the work of all holders has ended, the holder with the longest
// remaining minimum hold.
function principal(doc, at, now) {
  const holders = holdersOf(doc, now);
  if (doc.kind !== "lock") return holders[0] || null;
  const working = holders.filter((holder) => !holder.over);
  const rank = (holder) => [
    STATES.indexOf(holderState(holder, at, now)),
    holder.over ? rest(holder, now) : silence(holder, at, now),
  ];
  const worse = (a, b) => a[0] - b[0] || a[1] - b[1];
  const all = working.length ? working : holders;
  return all.reduce((a, b) => (a && worse(rank(a), rank(b)) >= 0 ? a : b), null);
}

function state(doc, at, now) {
  if (doc.kind === "foreign") return "foreign";
  const holder = principal(doc, at, now);
  if (holder) return holderState(holder, at, now);
  return doc.paused ? "paused" : "free";
}

const isGone = (found) => found === "silent" || found === "expired";

// True if this page has observed neither a renewal nor evidence that the holder is gone.
function isUnconfirmed(doc, at, now) {
  const holder = principal(doc, at, now);
  return Boolean(holder) && !holder.renewal_seen && ["held", "unknown", "late"].includes(holderState(holder, at, now));
}

// True if no candidate has acquired a free or expired lease for a while.
function isUnclaimed(doc, at, now) {
  if (doc.kind !== "lease") return false;
  const found = state(doc, at, now);
  const ended = doc.last ? since(doc.last.ended_at, now) : Infinity;
  return found === "expired" || found === "free" && !doc.paused && !(ended < UNCLAIMED_MS);
}

// The kind of a document. A lease or lock is unreadable if it is damaged or has a newer schema.
const kindOf = (doc) => doc.unreadable || doc.kind;

const isAlarming = (doc, at, now) => Boolean(doc.unreadable) || isGone(state(doc, at, now)) || isUnclaimed(doc, at, now);

// During an outage, the note is in the past tense, like the states.
const unclaimedNote = () => `no candidate ${outage && outage.to == null ? "acquired" : "acquires"} it`;

function needsAttention(doc, at, now) {
  const found = state(doc, at, now);
  if (doc.unreadable || doc.paused || doc.request || isUnclaimed(doc, at, now)) return true;
  return ["late", "silent", "expired"].includes(found);
}

function holderName(doc, now, shown) {
  const first = shown || holdersOf(doc, now)[0];
  const more = doc.kind === "lock" ? holdersTotal(doc, now) - 1 : 0;
  return first ? first.identity + (more > 0 ? ` and ${more} more` : "") : "";
}

// Reasons why a holder counts as kept, silent or expired.
function evidence(doc, entry, at, now) {
  if (isKept(entry, now)) return [`kept until ${utc(Date.parse(entry.kept_until))} (${duration(rest(entry, now))} left)`];
  const ms = silence(entry, at, now);
  const found = holderState(entry, at, now);
  const write = entry.renewal_seen
    ? `last renewal seen ${duration(ms)} ago`
    : isAhead(entry.renewed_at, now)
      ? `last renewal dated ${duration(Date.parse(entry.renewed_at) - wall(now))} in the future`
      : `last renewal ${duration(since(entry.renewed_at, now))} ago by the holder's clock`;
  const asked = doc.roll_call ? [doc.roll_call] : []; // Whether candidates answer.
  if (isGone(found) && doc.paused) return [write, "no candidate takes over while the lease is paused", ...asked];
  if (found === "expired") return [write, doc.kind === "lease" ? "no candidate has taken over" : "the next waiter removes it", ...asked];
  if (found === "silent") return [write, `others take over after watching for ${duration(entry.lease_duration_ms)}`, ...asked];
  if (!entry.renewal_seen && !entry.over) return [`${write}, no renewal seen yet`];
  return [];
}

function request(doc) {
  const request = doc.request;
  if (!request) return "";
  const kind = { step_down: "step-down", transfer: `transfer to ${request.to}` }[request.kind] || "invalid request";
  const by = request.by ? ` requested by ${request.by}` : " requested";
  return request.done ? `${kind}: done` : kind + by + (request.why_not ? `, no effect: ${request.why_not}` : "");
}

// The author and the reason of a pause.
function paused(doc, now) {
  const { by, at, reason } = doc.pause || {};
  const ago = at && Date.parse(at) ? ` ${duration(since(at, now))} ago` : "";
  return `${by ? `paused by ${by}${ago}` : "paused"}${reason ? `: ${reason}` : ""}`;
}

function notes(doc, at, now) {
  if (doc.unreadable) return `unreadable ${doc.unreadable}: ${doc.foreign}`;
  if (doc.kind === "foreign") return `not a lease: ${doc.foreign}`;
  const holder = principal(doc, at, now);
  const parts = holder ? evidence(doc, holder, at, now) : [];
  if (doc.kind === "lock") {
    if (doc.slots) parts.push(`${holdersTotal(doc, now)} of ${doc.slots} slots`);
    else if (holder) parts.push(holdersOf(doc, now)[0].mode);
    const [success] = doc.successes || [];
    if (success && holder && isKept(holder, now)) parts.push(succeeded(success, now));
    if (doc.queue_total) {
      const more = doc.queue_total - doc.queue.length;
      const names = doc.queue.map((waiter) => waiter.identity).join(", ");
      parts.push(`${doc.queue_total} waiting: ${names}${more ? ` and ${more} more` : ""}`);
    }
  } else {
    if (doc.paused) parts.push(paused(doc, now));
    if (doc.request) parts.push(request(doc));
    if (doc.reserved_for && !doc.holder) parts.push(`reserved for ${doc.reserved_for.identity}`);
    if (doc.holder && doc.holder.token !== doc.token) parts.push(`token raised to ${doc.token}`);
    if (state(doc, at, now) === "free" && isUnclaimed(doc, at, now)) parts.push(unclaimedNote());
  }
  return parts.join("; ");
}

// The last holder of a free lock; its entry remains until the next acquisition.
function lastHolder(doc, now) {
  if (doc.kind !== "lock" || holdersOf(doc, now).length) return null;
  return doc.holders.reduce((a, b) => (a && !(rest(b, now) > rest(a, now)) ? a : b), null);
}

// The last success of `lock --once-per`.
function succeeded(success, now) {
  const key = success.key === "default" ? "" : ` (${success.key})`;
  return `last success${key} ${duration(Math.max(0, wall(now) + storeAhead - Date.parse(success.at)))} ago`;
}

const hasNoStandby = (doc) => doc.kind === "lease" && Boolean(doc.holder) && !doc.standby;

// The standby, the last success and the last holder.
function calmNotes(doc, now) {
  const parts = [];
  if (hasNoStandby(doc)) parts.push("no standby");
  else if (doc.standby) parts.push(`standby ${doc.standby}`);
  if (doc.successes?.length) parts.push(succeeded(doc.successes[0], now));
  const [ended, last] = [lastHolder(doc, now), doc.last];
  if (ended) {
    const ago = -rest(ended, now);
    parts.push(`last held by ${ended.identity}${ago >= 0 ? `, ended ${duration(ago)} ago` : ""}`);
  } else if (last) {
    parts.push(`before: ${last.identity || "?"}, ended ${duration(since(last.ended_at, now))} ago (${endReason(last) || "no reason known"}${result(last)})`);
  }
  return parts.join("; ");
}

// How the command of a lock's holder ended.
function result(past) {
  if (past.signal) return `, ${past.signal_name}`;
  if (past.exit_code == null) return "";
  return `, exit ${past.exit_code}${past.leftovers_stopped ? ", leftovers stopped" : ""}`;
}

// For a takeover, the document contains the new holder's reason.
const endReason = (past) => (past.reason === "took_over" ? "expired" : past.reason);

// Reasons of planned ends. The timeline marks all other reasons.
const PLANNED = new Set(["shutdown", "requested", "transferred", "paused", "released"]);

// The segments of a timeline that covers the last `hours`. Each segment has its position as
// fractions of the timeline, and a lane if holders overlap.
function timeline(doc, past, at, now, hours) {
  const end = wall(now);
  const begin = end - hours * 3_600_000;
  const all = past.filter((one) => one.from && one.to).map((one) => ({ ...one, isPlanned: PLANNED.has(one.reason) }));
  for (const holder of doc.kind === "lock" ? doc.holders : doc.holder ? [doc.holder] : []) {
    const from = Date.parse(holder.since);
    const found = holderState(holder, at, now);
    const known = { from, identity: holder.identity, token: holder.token, isPlanned: true };
    if (found === "free") {
      const until = Date.parse(holder.kept_until);
      if (until) all.push({ ...known, to: until });
      continue;
    }
    const last = holder.renewal_seen ? end - silence(holder, at, now) : Date.parse(holder.renewed_at);
    const until = isGone(found) ? Math.max(from, last) : end;
    all.push({ ...known, to: until, isNow: !isGone(found) });
    if (isGone(found)) all.push({ ...known, from: until, to: end, isUnknown: true });
  }
  all.sort((a, b) => a.from - b.from);
  const lanes = [];
  const shade = new Map();
  const shown = [];
  for (const one of all) {
    if (!shade.has(one.identity)) shade.set(one.identity, shade.size % 4);
    if (one.to <= begin || one.from >= end) continue;
    // The clocks of two machines may differ slightly.
    let lane = lanes.findIndex((until) => until <= one.from + 1000);
    if (lane < 0) lane = lanes.length < 4 ? lanes.length : 3;
    lanes[lane] = Math.max(lanes[lane] || 0, one.to);
    const place = (ms) => Math.min(1, Math.max(0, (ms - begin) / (end - begin)));
    shown.push({ ...one, lane, shade: shade.get(one.identity), start: place(one.from), stop: place(one.to) });
  }
  const forgotten = all.length ? Math.min(1, Math.max(0, (all[0].from - begin) / (end - begin))) : 1;
  return { parts: shown, lanes: lanes.length, forgotten };
}

function partText(part, now) {
  if (part.isUnknown) return `${part.identity}: no renewal known since ${dated(new Date(part.from).toISOString(), now)}`;
  const token = part.token == null ? "" : ` (token ${part.token})`;
  const span = part.isNow ? `since ${utc(part.from)}` : `${utc(part.from)} to ${utc(part.to)}`;
  const ended = part.reason ? `, ended: ${endReason(part)}` : "";
  return `${part.identity || "unknown"}${token}: ${span}, ${part.ended_earlier ? "< " : ""}${duration(part.to - part.from)}${ended}`;
}

// A name as a shell word.
const quoted = (name) => (/^[\w.:@/-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`);
