
// The list of documents, kept up to date from /events.

const CONTACT_MAX_MS = 6000; // Three heartbeats.
const RETRY_MS = 1000;
const TICK_MS = 200; // The shown times since a renewal grow in these steps.
const ROW_PX = 40;
const OVERSCAN = 8; // Rows that are drawn above and below the rows in view.

const known = new Map(); // Name to { doc, at, text }.
let stale = null; // Names not yet received again after a reset.
let order = []; // Names as shown.
let isOrderOld = true;
let sort = { key: "name", descending: false };
let store = null; // The server's connection to MongoDB.
let contact = performance.now();
let received = performance.now(); // The last event.
let problem = "connecting to this server";
const rows = new Map(); // Name to the row in the page.

// The instant at which the shown data was current. Times since a renewal do not grow after it,
// because renewals are not observed then.
function shownNow() {
  if (problem) return contact;
  if (store && store.old_ms != null) return received - store.old_ms;
  return performance.now();
}

function trouble() {
  if (problem) return [problem, performance.now() - contact];
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
  if (!found) {
    const polled = store && store.state === "polling";
    setText(line, polled ? `Polling, because MongoDB reports no changes: ${store.why}.` : "Live.");
    return;
  }
  const [why, age] = found;
  // Without the seconds, a screen reader announces this once.
  setText(line, age == null ? `No data yet: ${why}.` : `Data is stale since ${clockTime(age)}: ${why}.`);
}

function sortValue(name, key, now) {
  const { doc, at } = known.get(name);
  const holder = principal(doc);
  if (key === "holder") return holderName(doc);
  if (key === "state") return state(doc, at, now);
  if (key === "token") return doc.token ?? -1;
  if (key === "since") return holder ? -Date.parse(holder.since) : -Infinity;
  if (key === "silence") return holder ? silence(holder, at, now) : -1;
  return name;
}

function isShown({ doc, at, text }, words, kind, now) {
  const found = state(doc, at, now);
  if (kind === "attention") {
    const quiet = ["free", "kept"].includes(found) && doc.kind === "lock";
    const calm = (found === "held" || quiet) && !doc.paused && !doc.request;
    if (calm) return false;
  } else if (kind && doc.kind !== kind) return false;
  return words.every((word) => text.includes(word) || found.includes(word));
}

function arrange() {
  isOrderOld = false;
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const kind = byId("kind").value;
  const now = shownNow();
  const values = [];
  for (const [name, entry] of known) {
    if (isShown(entry, words, kind, now)) values.push([sortValue(name, sort.key, now), name]);
  }
  const compare = (a, b) => (typeof a === "number" ? a - b : collator.compare(a, b));
  const sign = sort.descending ? -1 : 1;
  values.sort((a, b) => sign * compare(a[0], b[0]) || collator.compare(a[1], b[1]));
  order = values.map(([, name]) => name);
  const total = known.size;
  setText(byId("count"), order.length === total ? `${total} documents` : `${order.length} of ${total}`);
  byId("documents").setAttribute("aria-rowcount", String(order.length + 1));
  const listed = store && store.listed;
  byId("nothing").hidden = order.length > 0 || !listed;
  setText(byId("nothing"), total ? "No document matches." : "The collection is empty.");
}

function makeRow(name) {
  const row = document.createElement("tr");
  const cells = ["name", "state", "holder", "number", "number", "number silence", "notes", "last"].map((cell) => element("td", "", cell));
  const button = element("button", name);
  button.type = "button";
  button.addEventListener("click", () => openDetails(name));
  cells[0].replaceChildren(button);
  row.dataset.name = name;
  row.append(...cells);
  return row;
}

function renderRow(row, name, now) {
  const { doc, at, changed } = known.get(name);
  const found = state(doc, at, now);
  const holder = principal(doc);
  const texts = [
    name, found, holderName(doc) || "–", doc.token == null ? "–" : String(doc.token),
    holder ? duration(since(holder.since)) : "–", renewed(holder, at, now), notes(doc), lastChange(doc),
  ];
  const className = `${found}${changed && performance.now() - changed < 1500 ? " fresh" : ""}`;
  if (row.className !== className) row.className = className;
  texts.forEach((text, index) => {
    const cell = row.children[index];
    const inner = index === 0 ? cell.firstChild.firstChild : cell.firstChild;
    if (inner.textContent === text) return;
    inner.textContent = text;
    cell.title = text;
  });
}

// Shows the rows in view.
function renderRows() {
  const body = byId("rows");
  const top = byId("above").getBoundingClientRect().top;
  const first = Math.max(0, Math.min(Math.floor(-top / ROW_PX) - OVERSCAN, order.length - 1));
  const last = Math.min(order.length, first + Math.ceil(innerHeight / ROW_PX) + 2 * OVERSCAN);
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
    renderRow(row, name, now);
  });
  space("above", first);
  space("below", order.length - last);
}

function space(id, count) {
  const cell = byId(id).rows[0].cells[0];
  const height = `${Math.max(0, count) * ROW_PX}px`;
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
  // A page in the background draws nothing, but its title and search stay correct.
  if (document.hidden) setTimeout(draw, 0);
  else requestAnimationFrame(draw);
}

function searched(doc) {
  const names = doc.kind === "lock" ? [...doc.holders, ...doc.queue].map((entry) => entry.identity) : [holderName(doc)];
  return [doc.name, doc.kind, ...names, notes(doc)].join("\n").toLowerCase();
}

function apply(event) {
  received = performance.now();
  if (event.stopped) {
    problem = "this server has stopped";
    return;
  }
  problem = "";
  store = event.store;
  const of = [store.database, store.collection].filter(Boolean).join(".");
  setText(byId("collection"), of + (store.set ? ` (${store.set})` : ""));
  if (event.reset) stale = new Set(known.keys());
  for (const doc of event.documents) {
    const before = known.get(doc.name);
    const isHandoff = before && holderName(before.doc) !== holderName(doc);
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
      loadDetails(); // The event may lack some holders and waiters.
    }
  }
  for (const name of event.removed) known.delete(name);
  if (event.complete && stale) {
    for (const name of stale) known.delete(name);
    stale = null;
  }
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
for (const header of document.querySelectorAll("th[data-sort]")) {
  header.firstChild.addEventListener("click", () => {
    const key = header.dataset.sort;
    sort = { key, descending: sort.key === key && !sort.descending };
    for (const other of document.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", sort.descending ? "descending" : "ascending");
    isOrderOld = true;
    render();
  });
}
addEventListener("keydown", (event) => {
  if (event.key !== "/" || dialog.open || event.target.matches("input, select")) return;
  event.preventDefault();
  byId("search").focus();
});
addEventListener("scroll", render, { passive: true });
addEventListener("resize", render, { passive: true });
setInterval(() => {
  isOrderOld ||= sort.key === "silence" || sort.key === "state" || byId("kind").value === "attention";
  render();
  renderFacts();
}, TICK_MS);
follow();
