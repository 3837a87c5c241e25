
// The list of documents, kept up to date from /events.

const CONTACT_MAX_MS = 6000; // Three heartbeats.
const SLEEP_MIN_MS = 2000; // A smaller difference is a correction of the wall clock.
const RETRY_MS = 1000;
const TICK_MS = 200; // Update interval of the times since renewals.
const OVERSCAN = 8; // Number of rows drawn above and below the visible rows.
const ALL_MAX = 300; // The browser's own search finds all rows of a list up to this length.
const OUTAGE_SHOWN_MS = 900_000; // A past outage remains on the page for this time.
const GROUPS = { attention: "Attention", lease: "Leases", lock: "Locks", foreign: "Other documents" };
// The filter of each summary button.
const ONLY = {
  leases: ({ doc }, found) => doc.kind === "lease" && ["held", "late"].includes(found),
  locks: ({ doc }, found) => doc.kind === "lock" && ["held", "late", "kept"].includes(found),
  silent: (_, found) => isGone(found),
  unclaimed: ({ doc, at }, _, now) => isUnclaimed(doc, at, now),
  paused: ({ doc }) => Boolean(doc.paused),
  waiting: ({ doc }) => doc.queue_total > 0,
};

const known = new Map(); // Maps each name to { doc, at, text }.
let stale = null; // Names that were not yet received again after a reset.
let order = []; // Names as shown, and the headings of groups.
let isLong = false; // True if only the rows in view are drawn.
let isUpdated = false; // True if the order has changed since the rows were drawn.
let areOthersOpen = false; // True if the rows of other documents are shown.
let tops = [0]; // Offset of each row, and of the end, from the first row in pixels.
let isOrderOld = true;
let isComplete = false; // True once this page has received the whole collection.
let sort = { key: "name", descending: false };
let only = ""; // The pressed button of the summary.
let store = null; // The server's connection to MongoDB.
let contact = performance.now();
let received = performance.now(); // Time of the last event.
let problem = "connecting to this server";
let connection = new AbortController();
let clocksDiffer = Date.now() - performance.now();
let wasStale = true;
let alarming = null; // Names of the silent, expired and unclaimed documents.
const rows = new Map(); // Maps each name to its row in the page.
const heights = { row: 0, calm: 0, gone: 0, group: 0 };

// The instant at which the shown data was last current. Times since renewals stop at this instant,
// because later renewals are not observed.
function shownNow() {
  if (store && store.old_ms != null) return received - store.old_ms;
  return problem ? contact : performance.now();
}

function trouble() {
  if (problem) return [problem, store ? performance.now() - shownNow() : null];
  if (!store || store.state === "current") return null;
  if (store.state === "lost") {
    const old = store.old_ms == null ? null : store.old_ms + performance.now() - received;
    return [`MongoDB cannot be read: ${store.why}`, old];
  }
  return store.state === "polling" ? null : ["the server is connecting to MongoDB", null];
}

function renderConnection() {
  const found = trouble();
  const line = byId("connection");
  const isOld = found !== null;
  document.body.classList.toggle("old", isOld);
  line.classList.toggle("old", isOld);
  const now = performance.now();
  if (!found) {
    if (outage) outage.to ??= now;
    const waits = [...known.values()].filter(({ doc, at }) => isUnconfirmed(doc, at, now)).length;
    const polled = store && store.state === "polling";
    const holders = waits === 1 ? "1 holder" : `${waits} holders`;
    const unseen = waits && outage && !outage.isConfirmed ? ` ${holders} not yet seen renewing.` : "";
    if (outage) outage.isConfirmed ||= waits === 0;
    line.classList.toggle("wary", Boolean(polled || unseen));
    const live = isComplete ? "Live." : "Receiving the documents.";
    setText(line, (polled ? `Polling, because MongoDB reports no changes: ${store.why}.` : live) + unseen);
    setText(byId("age"), utc(wall(now)));
  } else {
    const [why, age] = found;
    // The age is in another element, so that a screen reader announces this text only once.
    setText(line, age == null ? `No data yet: ${why}.` : `Data is stale since ${utc(wall(now - age))}: ${why}.`);
    setText(byId("age"), age == null ? "" : `${duration(age)} ago`);
    const isNew = !outage || outage.to != null;
    if (isNew && age != null && known.size) outage = { from: now - age, to: null, isConfirmed: false };
  }
  const note = byId("outage");
  note.hidden = !outage || outage.to != null && now - outage.to > OUTAGE_SHOWN_MS;
  if (note.hidden) return;
  const span = utc(wall(outage.from));
  setText(note, outage.to == null
    ? `All states below are as of ${span}. This page does not know the current leaders and holders. A replica that still reaches MongoDB continues; ask that replica for its status.`
    : `There was no data from ${span} to ${utc(wall(outage.to))}. A holder is green once its renewal has been seen again.`);
}

function sortValue(name, key, now) {
  const { doc, at } = known.get(name);
  if (key === "name") return name;
  const holder = principal(doc, at, now);
  if (key === "holder") return holderName(doc, now);
  if (key === "state") return STATES.indexOf(isUnclaimed(doc, at, now) ? "expired" : state(doc, at, now));
  if (key === "token") return doc.token ?? -1;
  if (key === "since") return holder ? heldFor(holder, at, now) || 0 : -1;
  return holder ? silence(holder, at, now) : -1;
}

function isShown(entry, words, kind, now) {
  const { doc, at, text } = entry;
  const found = state(doc, at, now);
  if (only && !ONLY[only](entry, found, now)) return false;
  if (kind === "attention") {
    if (!needsAttention(doc, at, now)) return false;
  } else if (kind === "alone") {
    if (!hasNoStandby(doc)) return false;
  } else if (kind && kindOf(doc) !== kind) return false;
  return words.every((word) => text.includes(word) || found.includes(word));
}

function arrange() {
  isOrderOld = false;
  isUpdated = true;
  renderAddress(location.hash.slice(1).split("?")[0]);
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const kind = byId("kind").value;
  const now = shownNow();
  const groups = { attention: [], lease: [], lock: [], foreign: [] };
  // By default, the documents that need attention are sorted by state, the worst first.
  const isDefault = sort.key === "name" && !sort.descending;
  const orderOf = (group) => (group === "attention" && isDefault ? { key: "state", descending: true } : sort);
  for (const [name, entry] of known) {
    if (!isShown(entry, words, kind, now)) continue;
    const group = needsAttention(entry.doc, entry.at, now) ? "attention" : entry.doc.kind;
    entry.height = isGone(state(entry.doc, entry.at, now)) ? "gone" : notes(entry.doc, entry.at, now) ? "row" : "calm";
    groups[group].push([sortValue(name, orderOf(group).key, now), name]);
  }
  const compare = (a, b) => (typeof a === "number" ? a - b : collator.compare(a, b));
  const filled = Object.entries(groups).filter(([, values]) => values.length);
  const count = filled.reduce((sum, [, values]) => sum + values.length, 0);
  order = [];
  let headings = 0;
  for (const [group, values] of filled) {
    const sign = orderOf(group).descending ? -1 : 1;
    values.sort((a, b) => sign * compare(a[0], b[0]) || collator.compare(a[1], b[1]));
    // MongoDB names cannot contain a zero byte.
    if (filled.length > 1 || group === "foreign") {
      order.push(`\0${GROUPS[group]} (${values.length})`);
      headings += 1;
    }
    if (group === "foreign" && !areOthersOpen && !words.length) continue;
    for (const [, name] of values) order.push(name);
  }
  isLong = order.length - headings > ALL_MAX;
  measure();
  const total = known.size;
  setText(byId("count"), !hasData() ? "" : count === total && !only && !kind ? `${total} document${total === 1 ? "" : "s"}` : `${count} of ${total}`);
  byId("documents").setAttribute("aria-rowcount", String(order.length + 1));
  const listed = store && store.listed;
  byId("nothing").hidden = count > 0 || !listed;
  byId("documents").hidden = !byId("nothing").hidden;
  const place = [store?.database, store?.collection].filter(Boolean).join(".");
  byId("clear").hidden = total === 0;
  setText(byId("nothing").firstElementChild, total
    ? "No document matches."
    : `The collection is empty. A lease or lock appears here as soon as its first candidate or job uses ${place}.`);
  renderSummary(now);
}

// Computes the offset of each row.
function measure() {
  const style = getComputedStyle(document.documentElement);
  for (const kind in heights) heights[kind] = parseFloat(style.getPropertyValue(`--${kind}-height`));
  tops = [0];
  const height = (name) => heights[name[0] === "\0" ? "group" : known.get(name).height];
  for (const name of order) tops.push(tops.at(-1) + height(name));
}

const hasData = () => known.size > 0 || Boolean(store && store.listed);

function renderSummary(now) {
  const counts = { leases: 0, locks: 0, silent: 0, unclaimed: 0, paused: 0, waiting: 0 };
  const totals = { lease: 0, lock: 0, foreign: 0 };
  const isStale = hasData() && trouble() !== null;
  const alarms = new Set();
  for (const [name, entry] of known) {
    const found = state(entry.doc, entry.at, now);
    totals[kindOf(entry.doc)] += 1;
    for (const key in counts) counts[key] += ONLY[key](entry, found, now);
    if (isAlarming(entry.doc, entry.at, now)) alarms.add(name);
  }
  for (const button of byId("summary").children) {
    const key = button.dataset.only;
    const of = { leases: totals.lease, locks: totals.lock }[key];
    setText(button.firstElementChild, !hasData() ? "–" : of == null ? String(counts[key]) : `${counts[key]}/${of}`);
    const label = button.lastElementChild;
    label.dataset.is ??= label.textContent;
    setText(label, isStale ? label.dataset.was : label.dataset.is);
    button.classList.toggle("some", counts[key] > 0);
    button.setAttribute("aria-pressed", String(only === key));
  }
  const mark = !hasData() ? "(no data) " : isStale ? "(stale) " : alarms.size ? `(${alarms.size}) ` : "";
  if (document.title !== `${mark}leasehold`) document.title = `${mark}leasehold`;
  if (isComplete && !isStale) announce(alarms, now);
}

// Announces the documents that have become silent, expired or unclaimed to a screen reader.
function announce(alarms, now) {
  const added = [...alarms].filter((name) => alarming && !alarming.has(name));
  alarming = alarms;
  const text = ({ doc, at }) => `${doc.name}: ${state(doc, at, now)}${isUnclaimed(doc, at, now) ? ", no candidate leads" : ""}`;
  if (added.length) setText(byId("alarm"), added.length > 3 ? `${added.length} more need attention` : added.map((name) => text(known.get(name))).join("; "));
  else if (!alarms.size) setText(byId("alarm"), "");
}

// Shows the rows in view.
function renderRows() {
  const body = byId("rows");
  const top = -byId("above").getBoundingClientRect().top;
  const below = (edge) => tops.findIndex((place) => place > edge);
  const found = below(top);
  const seen = Math.max(0, (found < 0 ? order.length : found - 1) - OVERSCAN);
  const end = below(top + innerHeight);
  const unseen = Math.min(order.length, (end < 0 ? order.length : end) + OVERSCAN);
  const [first, last] = isLong ? [seen, unseen] : [0, order.length];
  const names = order.slice(first, last);
  const wanted = new Set(names);
  for (const [name, row] of rows) {
    if (wanted.has(name)) continue;
    row.remove();
    rows.delete(name);
  }
  const now = shownNow();
  let next = body.firstChild;
  names.forEach((name, index) => {
    let row = rows.get(name);
    const isDue = isUpdated || !row || first + index >= seen && first + index < unseen;
    if (!row) rows.set(name, (row = makeRow(name)));
    if (row === next) next = next.nextSibling;
    else body.insertBefore(row, next);
    const place = String(first + index + 2);
    if (row.getAttribute("aria-rowindex") !== place) row.setAttribute("aria-rowindex", place);
    if (name[0] === "\0") row.querySelector("button")?.setAttribute("aria-expanded", String(order.at(-1) !== name));
    else if (isDue) renderRow(row, name, now);
  });
  isUpdated = false;
  space("above", tops[first]);
  space("below", tops[order.length] - tops[last]);
}

function space(id, pixels) {
  const cell = byId(id).rows[0].cells[0];
  const height = `${Math.max(0, pixels)}px`;
  if (cell.style.height !== height) cell.style.height = height;
}

let isDue = false;
function render() {
  if (isDue) return;
  isDue = true;
  const draw = () => {
    isDue = false;
    renderConnection();
    const isStale = trouble() !== null;
    if (isOrderOld || isStale !== wasStale) arrange();
    wasStale = isStale;
    renderRows();
  };
  // A background page gets no animation frames, but its title and search must remain correct.
  if (document.hidden) setTimeout(draw, 0);
  else requestAnimationFrame(draw);
}

function searched(doc) {
  const now = performance.now();
  const names = doc.kind === "lock" ? [...doc.holders, ...doc.queue].map((entry) => entry.identity) : [holderName(doc, now)];
  return [doc.name, kindOf(doc), ...names, notes(doc, now, now)].join("\n").toLowerCase();
}

// Opens the details of the document in the page's URL.
function openLinked() {
  let [name] = location.hash.slice(1).split("?");
  try {
    name = decodeURIComponent(name);
  } catch {
    // The message shows a malformed name undecoded.
  }
  const isMissing = name !== "" && isComplete && !known.has(name);
  byId("missing").hidden = !isMissing || dialog.open;
  if (isMissing) setText(byId("missing"), `No lease or lock is named ${name} (retired leases and pruned locks are not shown).`);
  else if (known.has(name) && !(dialog.open && details.name === name)) openDetails(name);
}

function apply(event) {
  received = performance.now();
  if (event.stopped) {
    problem = "this server has stopped";
    return;
  }
  problem = "";
  store = event.store;
  if (event.now) clockAhead = Date.parse(event.now) - Date.now();
  storeAhead = store.now ? Date.parse(store.now) - Date.parse(event.now) : 0;
  const of = [store.database, store.collection].filter(Boolean).join(".");
  setText(byId("collection"), of + (store.set ? ` (${store.set})` : ""));
  const wasComplete = isComplete;
  isComplete = event.complete || isComplete && !event.reset;
  if (event.reset) stale = new Set(known.keys());
  for (const doc of event.documents) {
    const before = known.get(doc.name);
    const isHandoff = before && holderName(before.doc, received) !== holderName(doc, received);
    known.set(doc.name, { doc, at: received, text: searched(doc), changed: isHandoff ? received : before && before.changed });
    if (stale) stale.delete(doc.name);
    if (dialog.open && details.name === doc.name) loadDetails();
  }
  for (const [name, holders] of event.renewed) {
    const entry = known.get(name);
    if (!entry) continue;
    renew(entry.doc, holders);
    entry.at = received;
    if (!dialog.open || details.name !== name || !details.doc) continue;
    if (details.doc.kind === "lease") {
      renew(details.doc, holders);
      details.at = received;
    } else {
      loadDetails(); // The event may omit some holders and waiters.
    }
  }
  for (const name of event.removed) known.delete(name);
  if (event.complete && stale) {
    for (const name of stale) known.delete(name);
    stale = null;
  }
  if (isComplete && (!wasComplete || !byId("missing").hidden)) openLinked();
  const isOpen = dialog.open && (details.doc || !byId("facts").firstChild);
  if (isOpen && isComplete && !known.has(details.name)) showDeleted();
  isOrderOld ||= event.documents.length > 0 || event.removed.length > 0 || event.complete && event.reset;
}

// While a machine sleeps, performance.now() stops and Date.now() does not. The data that was received
// before is therefore older than it seems, and the connection may be lost.
function noticeSleep() {
  const slept = Date.now() - performance.now() - clocksDiffer;
  clocksDiffer += slept;
  if (slept < SLEEP_MIN_MS) return;
  contact -= slept;
  received -= slept;
  for (const entry of known.values()) entry.at -= slept;
  details.at -= slept;
  if (outage) outage.from -= slept;
  if (outage && outage.to != null) outage.to -= slept;
  problem ||= "this machine was asleep";
  connection.abort();
}

async function read(body, alive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    contact = performance.now();
    alive();
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data: ")) apply(JSON.parse(line.slice(6)));
    }
    render();
  }
}

async function follow() {
  for (;;) {
    const abort = connection = new AbortController();
    let timer = 0;
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(() => abort.abort(), CONTACT_MAX_MS);
    };
    alive();
    try {
      const answer = await fetch("/events", { signal: abort.signal, headers: { accept: "text/event-stream" } });
      if (answer.status === 401) location.assign(`/login${location.hash}`);
      if (answer.ok) await read(answer.body, alive);
      else problem = `this server refuses (${answer.status})`;
      problem ||= "the connection to this server was closed";
    } catch {
      problem = abort.signal.aborted ? "this server does not answer" : "this server cannot be reached";
    }
    clearTimeout(timer);
    render();
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("clear").addEventListener("click", () => {
  byId("search").value = byId("kind").value = only = "";
  isOrderOld = true;
  render();
});
for (const id of ["search", "kind"]) {
  byId(id).addEventListener("input", () => {
    isOrderOld = true;
    render();
  });
}
const isWorstLast = (key) => key === "state" || key === "silence"; // In ascending order.
function sortBy(key, descending) {
  sort = { key, descending };
  for (const header of document.querySelectorAll("th[data-sort]")) {
    if (header.dataset.sort === key) header.setAttribute("aria-sort", descending ? "descending" : "ascending");
    else header.removeAttribute("aria-sort");
  }
  byId("sort").value = key;
  isOrderOld = true;
  render();
}

for (const header of document.querySelectorAll("th[data-sort]")) {
  const key = header.dataset.sort;
  header.firstChild.addEventListener("click", () => sortBy(key, sort.key === key ? !sort.descending : isWorstLast(key)));
}
byId("sort").addEventListener("input", () => sortBy(byId("sort").value, isWorstLast(byId("sort").value)));
byId("fold").addEventListener("click", () => {
  const isOpen = byId("filters").classList.toggle("open");
  byId("fold").setAttribute("aria-expanded", String(isOpen));
});
byId("summary").addEventListener("click", (event) => {
  const button = event.target.closest("[data-only]");
  if (!button) return;
  only = only === button.dataset.only ? "" : button.dataset.only;
  isOrderOld = true;
  render();
});

// The fragment of the address contains the name of the open document, the filters and the order, so
// that a link or a reload shows them again, even after a login.
const DEFAULTS = { search: "", kind: "", hours: "6", only: "", sort: "name" };
function renderAddress(name) {
  const values = { only, sort: (sort.descending ? "-" : "") + sort.key };
  for (const id of ["search", "kind", "hours"]) values[id] = byId(id).value;
  const query = new URLSearchParams(Object.entries(values).filter(([key, value]) => value !== DEFAULTS[key]));
  const fragment = name || query.size ? `#${name}${query.size ? `?${query}` : ""}` : "";
  if (location.hash !== fragment) history.replaceState(null, "", fragment || location.pathname);
}

function readAddress() {
  const [, query] = location.hash.split("?");
  if (!query) return;
  const values = { ...DEFAULTS, ...Object.fromEntries(new URLSearchParams(query)) };
  for (const id of ["search", "kind", "hours"]) {
    byId(id).value = values[id];
    if (byId(id).selectedIndex === -1) byId(id).value = DEFAULTS[id];
  }
  only = Object.hasOwn(ONLY, values.only) ? values.only : "";
  const [, minus, key] = values.sort.match(/^(-?)(\w*)/);
  const isKnown = document.querySelector(`th[data-sort="${key}"]`) !== null;
  sortBy(isKnown ? key : DEFAULTS.sort, minus !== "");
  showHours();
}

function showHours() {
  isOrderOld = true;
  const hours = byId("hours").value;
  setText(byId("span"), hours === "1" ? "Last hour" : `Last ${hours} hours`);
  render();
  renderFacts();
}

byId("hours").addEventListener("input", showHours);

readAddress();
addEventListener("keydown", (event) => {
  if (event.key !== "/" || dialog.open || event.target.matches("input, select")) return;
  event.preventDefault();
  byId("search").focus();
});
addEventListener("hashchange", () => {
  readAddress();
  openLinked();
});
addEventListener("scroll", render, { passive: true });
addEventListener("resize", () => {
  isOrderOld = true; // The heights of the rows have changed.
  render();
}, { passive: true });
let ticks = 0;
setInterval(() => {
  ticks += 1;
  noticeSleep();
  isOrderOld ||= ticks % 5 === 0; // States change with time.
  render();
  renderFacts();
}, TICK_MS);
follow();
