
// Texts of documents. These functions do not access the page.

const collator = new Intl.Collator("en", { numeric: true });

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

// Time since a date of a document; this machine's clock and the writer's may differ.
const since = (date) => (date ? Date.now() - Date.parse(date) : NaN);

// Time since the last renewal, at an instant. `at` is when this page received `silent_ms`.
function silence(entry, at, now) {
  return entry && entry.silent_ms != null ? entry.silent_ms + Math.max(0, now - at) : NaN;
}

// Rest of the minimum hold of a holder whose work has ended, at an instant.
function kept(entry, at, now) {
  return entry && entry.over ? Math.max(0, entry.at_least_ms - silence(entry, at, now)) : 0;
}

function renewed(entry, at, now) {
  const rest = kept(entry, at, now);
  if (rest > 0) return `kept until ${clockTime(-rest)}`;
  const ms = silence(entry, at, now);
  if (Number.isNaN(ms)) return "–";
  return entry.renewal_seen ? `${duration(ms)} ago` : `> ${duration(ms)}`;
}

// Applies the renewals of the holders in the list, in its order.
function renew(doc, holders) {
  const entries = doc.kind === "lock" ? doc.holders : [doc.holder];
  holders.forEach(([silent_ms, renewal_seen], index) => {
    if (entries[index]) Object.assign(entries[index], { silent_ms, renewal_seen });
  });
}

// The holder whose renewal the list shows. For a lock, it is the holder without a renewal for the
// longest time. If the work of all holders has ended, it is the holder that is kept for longest.
function principal(doc) {
  if (doc.kind !== "lock") return doc.holder || null;
  const working = doc.holders.filter((holder) => !holder.over);
  const rest = (holder) => (holder.over ? holder.at_least_ms - holder.silent_ms : holder.silent_ms);
  const all = working.length ? working : doc.holders;
  return all.reduce((a, b) => (a && rest(a) >= rest(b) ? a : b), null);
}

function state(doc, at, now) {
  const holder = principal(doc);
  if (doc.kind === "foreign") return "foreign";
  if (!holder) return doc.paused ? "paused" : "free";
  if (holder.over) return kept(holder, at, now) > 0 ? "kept" : "free";
  const silent = silence(holder, at, now);
  if (silent >= holder.lease_duration_ms) return "expired";
  return silent > holder.lease_duration_ms / 4 ? "late" : "held";
}

function holderName(doc) {
  if (doc.kind !== "lock") return doc.holder ? doc.holder.identity : "";
  if (doc.holders.length === 0) return "";
  const more = doc.holders_total - 1;
  return doc.holders[0].identity + (more > 0 ? ` and ${more} more` : "");
}

function request(doc) {
  const request = doc.request;
  if (!request) return "";
  const kind = { step_down: "step-down", transfer: `transfer to ${request.to}` }[request.kind] || "invalid request";
  const by = request.by ? ` requested by ${request.by}` : " requested";
  return kind + by + (request.why_not ? `, no effect: ${request.why_not}` : "");
}

function notes(doc) {
  if (doc.kind === "foreign") return `not a lease: ${doc.foreign}`;
  if (doc.kind === "lock") {
    const parts = ["lock"];
    if (doc.slots) parts.push(`${doc.holders_total} of ${doc.slots} slots`);
    else if (doc.holders.length) parts.push(doc.holders[0].mode);
    const more = doc.queue_total - doc.queue.length;
    if (doc.queue_total) parts.push(`queue: ${doc.queue.map((waiter) => waiter.identity).join(", ")}${more ? ` and ${more} more` : ""}`);
    return parts.join("; ");
  }
  const parts = [];
  if (doc.paused) parts.push("paused");
  if (doc.request) parts.push(request(doc));
  if (doc.reserved_for && !doc.holder) parts.push(`reserved for ${doc.reserved_for.identity}`);
  if (doc.holder && doc.holder.token !== doc.token) parts.push(`token raised to ${doc.token}`);
  return parts.join("; ");
}

function lastChange(doc) {
  const last = doc.last;
  if (!last) return "";
  return `${last.reason || "ended"}: ${last.identity || "?"}, ${duration(since(last.ended_at))} ago`;
}

// Clock time of an instant some milliseconds ago.
const clockTime = (ago) => new Date(Date.now() - ago).toLocaleTimeString();
