
// The list of documents, kept up to date from /events.

const CONTACT_MAX_MS = 6000; // Three heartbeats.
const RETRY_MS = 1000;
const TICK_MS = 200; // Update interval of the times since renewals.
const OVERSCAN = 8; // Number of rows drawn above and below the visible rows.
const OUTAGE_SHOWN_MS = 900_000; // A past outage remains on the page for this time.
const GROUPS = { lease: "Leases", lock: "Locks", foreign: "Other documents" };
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
let tops = [0]; // Offset of each row, and of the end, from the first row in pixels.
let isOrderOld = true;
let isComplete = false; // True once this page has received the whole collection.
let sort = { key: "name", descending: false };
let only = ""; // The pressed button of the summary.
let store = null; // The server's connection to MongoDB.
let contact = performance.now();
let received = performance.now(); // Time of the last event.
let problem = "connecting to this server";
let outage = null; // The last period without current data: { from, to } on this page's clock.
const rows = new Map(); // Maps each name to its row in the page.
const heights = { row: 0, group: 0 };

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
    const waits = [...known.values()].filter(({ doc, at }) => isUnconfirmed(doc, at, now)).length;
    const polled = store && store.state === "polling";
    const holders = waits === 1 ? "1 holder" : `${waits} holders`;
    const unseen = waits && outage && !outage.isConfirmed ? ` ${holders} not yet seen renewing.` : "";
    if (outage) {
      outage.to ??= now;
      outage.isConfirmed ||= waits === 0;
    }
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
    ? `All states below are those of ${span}. Who leads or holds now is not known here. A replica that still reaches MongoDB continues: ask its own status.`
    : `There was no data from ${span} to ${utc(wall(outage.to))}. A holder is green once its renewal has been seen again.`);
}

function sortValue(name, key, now) {
  const { doc, at } = known.get(name);
  if (key === "name") return name;
  const holder = principal(doc, at, now);
  if (key === "holder") return holderName(doc, now);
  if (key === "state") return -STATES.indexOf(isUnclaimed(doc, at, now) ? "expired" : state(doc, at, now));
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
  } else if (kind && doc.kind !== kind) return false;
  return words.every((word) => text.includes(word) || found.includes(word));
}

function arrange() {
  isOrderOld = false;
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const kind = byId("kind").value;
  const now = shownNow();
  const groups = { lease: [], lock: [], foreign: [] };
  for (const [name, entry] of known) {
    if (isShown(entry, words, kind, now)) groups[entry.doc.kind].push([sortValue(name, sort.key, now), name]);
  }
  const compare = (a, b) => (typeof a === "number" ? a - b : collator.compare(a, b));
  const sign = sort.descending ? -1 : 1;
  const filled = Object.entries(groups).filter(([, values]) => values.length);
  const count = filled.reduce((sum, [, values]) => sum + values.length, 0);
  order = [];
  for (const [group, values] of filled) {
    values.sort((a, b) => sign * compare(a[0], b[0]) || collator.compare(a[1], b[1]));
    // MongoDB names cannot contain a zero byte.
    if (filled.length > 1) order.push(`\0${GROUPS[group]} (${values.length})`);
    for (const [, name] of values) order.push(name);
  }
  measure();
  const total = known.size;
  setText(byId("count"), count === total && !only && !kind ? `${total} document${total === 1 ? "" : "s"}` : `${count} of ${total}`);
  byId("documents").setAttribute("aria-rowcount", String(order.length + 1));
  const listed = store && store.listed;
  byId("nothing").hidden = count > 0 || !listed;
  byId("documents").hidden = !byId("nothing").hidden;
  const place = [store?.database, store?.collection].filter(Boolean).join(".");
  setText(byId("nothing"), total
    ? "No document matches. Clear the search, or choose another button above."
    : `The collection is empty. A lease or lock appears here as soon as its first candidate or job uses ${place}.`);
  renderSummary(now);
}

// Computes the offset of each row.
function measure() {
  const style = getComputedStyle(document.documentElement);
  heights.row = parseFloat(style.getPropertyValue("--row"));
  heights.group = parseFloat(style.getPropertyValue("--group"));
  tops = [0];
  for (const name of order) tops.push(tops.at(-1) + (name[0] === "\0" ? heights.group : heights.row));
}

function renderSummary(now) {
  const counts = { leases: 0, locks: 0, silent: 0, unclaimed: 0, paused: 0, waiting: 0 };
  const totals = { lease: 0, lock: 0, foreign: 0 };
  const isStale = known.size > 0 && trouble() !== null;
  let alarming = 0;
  for (const entry of known.values()) {
    const found = state(entry.doc, entry.at, now);
    totals[entry.doc.kind] += 1;
    for (const key in counts) counts[key] += ONLY[key](entry, found, now);
    alarming += isAlarming(entry.doc, entry.at, now);
  }
  for (const button of byId("summary").children) {
    const key = button.dataset.only;
    const of = { leases: totals.lease, locks: totals.lock }[key];
    setText(button.firstElementChild, of == null ? String(counts[key]) : `${counts[key]}/${of}`);
    const label = button.lastElementChild;
    label.dataset.is ??= label.textContent;
    setText(label, isStale ? label.dataset.was : label.dataset.is);
    button.classList.toggle("some", counts[key] > 0);
    button.setAttribute("aria-pressed", String(only === key));
  }
  const mark = isStale ? "(stale) " : alarming ? `(${alarming}) ` : "";
  if (document.title !== `${mark}leasehold`) document.title = `${mark}leasehold`;
}

function makeRow(name) {
  const row = document.createElement("tr");
  row.setAttribute("role", "row");
  if (name[0] === "\0") {
    const cell = element("td", name.slice(1));
    cell.colSpan = 8;
    cell.setAttribute("role", "rowheader");
    row.className = "group";
    row.append(cell);
    return row;
  }
  const cells = ["name", "state", "holder", "number since", "number silence", "number token", "past", "notes"].map((cell) => element("td", "", cell));
  for (const cell of cells) cell.setAttribute("role", "cell");
  const button = element("button", name);
  button.type = "button";
  button.title = name;
  button.addEventListener("click", () => openDetails(name));
  const kind = document.createElement("span");
  kind.className = "kind";
  cells[0].replaceChildren(kind, button);
  const bar = document.createElement("div");
  bar.className = "bar";
  bar.setAttribute("role", "img");
  cells[6].replaceChildren(bar);
  row.dataset.name = name;
  row.addEventListener("click", (event) => {
    if (!event.target.closest("button") && getSelection().isCollapsed) openDetails(name);
  });
  row.append(...cells);
  return row;
}

function renderRow(row, name, now) {
  const { doc, at, changed } = known.get(name);
  const found = state(doc, at, now);
  const holder = principal(doc, at, now);
  const said = notes(doc, at, now);
  const texts = [
    null, shownState(found), holderName(doc, now, isGone(found) ? holder : null) || "–", holder ? duration(heldFor(holder, at, now)) : "–",
    renewed(holder, at, now), doc.token == null ? "–" : String(doc.token), null, said || lastChange(doc, now),
  ];
  const unseen = isUnconfirmed(doc, at, now) ? " unseen" : "";
  const unclaimed = found === "free" && isUnclaimed(doc, at, now) ? " unclaimed" : "";
  const className = `${found}${unseen}${unclaimed} kind-${doc.kind}${said ? "" : " calm"}${changed && performance.now() - changed < 1500 ? " fresh" : ""}`;
  if (row.className !== className) row.className = className;
  setText(row.firstChild.firstChild, `${doc.kind} `);
  texts.forEach((text, index) => {
    if (text == null) return;
    const cell = row.children[index];
    if (cell.firstChild.textContent === text) return;
    cell.firstChild.textContent = text;
    cell.classList.toggle("none", text === "–");
    cell.title = text;
  });
  const past = (doc.past || []).map(([from, to, identity, token, reason]) => ({ from, to, identity, token, reason }));
  renderTimeline(row.children[6].firstChild, doc, past, at, now);
}

// While the data is stale, a state may be outdated.
const shownState = (found) => (trouble() ? `was ${found}` : found);

// Draws a timeline if it has changed. With `lanePx`, the height grows with the number of lanes.
function renderTimeline(bar, doc, past, at, now, lanePx) {
  const hours = Number(byId("hours").value);
  const found = timeline(doc, past, at, now, hours);
  const texts = found.parts.map((part) => partText(part, now));
  const shape = found.parts.map((part) => [part.start.toFixed(3), part.stop.toFixed(3), part.identity, part.reason, part.isUnknown]);
  const key = JSON.stringify([shape, found.forgotten, found.lanes, hours]);
  if (bar.dataset.key === key) return;
  bar.dataset.key = key;
  bar.setAttribute("aria-label", texts.length ? texts.slice(-3).reverse().join("; ") : `no holder in the last ${hours} hours`);
  const part = (start, stop, name, text, title) => {
    const made = element("i", text, `part ${name}`);
    made.style.left = `${start * 100}%`;
    made.style.width = `${(stop - start) * 100}%`;
    made.title = title;
    return made;
  };
  if (lanePx) bar.style.height = `${lanePx * Math.max(1, found.lanes)}px`;
  const hasNames = lanePx || found.lanes === 1;
  const parts = found.parts.map((one, index) => {
    const isCut = one.to && one.reason && !one.isPlanned;
    const name = one.isUnknown ? "unknown" : `shade${one.shade}${isCut ? " cut" : ""}`;
    const made = part(one.start, one.stop, name, hasNames && !one.isUnknown ? one.identity || "" : "", texts[index]);
    made.style.top = `${(one.lane / found.lanes) * 100}%`;
    made.style.height = `${100 / found.lanes}%`;
    return made;
  });
  if (found.forgotten) parts.unshift(part(0, found.forgotten, "forgotten", "", "not recorded: the document keeps its last 20 holders"));
  bar.replaceChildren(...parts);
}

// Shows the rows in view.
function renderRows() {
  const body = byId("rows");
  const top = -byId("above").getBoundingClientRect().top;
  const below = (edge) => tops.findIndex((place) => place > edge);
  const found = below(top);
  const first = Math.max(0, (found < 0 ? order.length : found - 1) - OVERSCAN);
  const end = below(top + innerHeight);
  const last = Math.min(order.length, (end < 0 ? order.length : end) + OVERSCAN);
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
    if (!row) rows.set(name, (row = makeRow(name)));
    if (row === next) next = next.nextSibling;
    else body.insertBefore(row, next);
    const place = String(first + index + 2);
    if (row.getAttribute("aria-rowindex") !== place) row.setAttribute("aria-rowindex", place);
    if (name[0] !== "\0") renderRow(row, name, now);
  });
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
    if (isOrderOld) arrange();
    renderConnection();
    renderRows();
  };
  // A background page gets no animation frames, but its title and search must remain correct.
  if (document.hidden) setTimeout(draw, 0);
  else requestAnimationFrame(draw);
}

function searched(doc) {
  const now = performance.now();
  const names = doc.kind === "lock" ? [...doc.holders, ...doc.queue].map((entry) => entry.identity) : [holderName(doc, now)];
  return [doc.name, doc.kind, ...names, notes(doc, now, now)].join("\n").toLowerCase();
}

// Opens the details of the document in the page's URL.
function openLinked() {
  for (const name of known.keys()) {
    if (!dialog.open && location.hash === `#${encodeURIComponent(name)}`) openDetails(name);
  }
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
  if (isComplete && !wasComplete) openLinked();
  isOrderOld ||= event.documents.length > 0 || event.removed.length > 0 || event.complete && event.reset;
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
    const abort = new AbortController();
    let timer = 0;
    const alive = () => {
      clearTimeout(timer);
      timer = setTimeout(() => abort.abort(), CONTACT_MAX_MS);
    };
    alive();
    try {
      const answer = await fetch("/events", { signal: abort.signal, headers: { accept: "text/event-stream" } });
      if (answer.status === 401) location.assign("/login");
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
for (const id of ["search", "kind"]) {
  byId(id).addEventListener("input", () => {
    isOrderOld = true;
    render();
  });
}
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
  header.firstChild.addEventListener("click", () => sortBy(key, sort.key === key && !sort.descending));
}
byId("sort").addEventListener("input", () => sortBy(byId("sort").value, byId("sort").value === "silence"));
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
byId("hours").addEventListener("input", () => {
  const hours = byId("hours").value;
  setText(byId("span"), hours === "1" ? "Last hour" : `Last ${hours} hours`);
  render();
  renderFacts();
});
addEventListener("keydown", (event) => {
  if (event.key !== "/" || dialog.open || event.target.matches("input, select")) return;
  event.preventDefault();
  byId("search").focus();
});
addEventListener("hashchange", openLinked);
addEventListener("scroll", render, { passive: true });
addEventListener("resize", () => {
  measure();
  render();
}, { passive: true });
let ticks = 0;
setInterval(() => {
  ticks += 1;
  isOrderOld ||= ticks % 5 === 0; // States change with time.
  render();
  renderFacts();
}, TICK_MS);
follow();
