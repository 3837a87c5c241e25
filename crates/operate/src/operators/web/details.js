
// The details of one document, in a dialog, and the actions on it.

const ARMED_MS = 5000; // An action is confirmed by a second click within this time.
const PAGE_HEADER = "x-leasehold-page";
const secret = document.documentElement.dataset.secret;
const byId = (id) => document.getElementById(id);
const dialog = byId("details");
let disarms; // Timer that disarms the armed button, if any.
const details = { name: "", doc: null, at: 0, loading: false, again: false, failed: "" };

// Creates an element whose text direction is isolated from the surrounding text.
function element(tag, text, name) {
  const made = document.createElement(tag);
  const inner = document.createElement("bdi");
  inner.textContent = text;
  made.append(inner);
  if (name) made.className = name;
  return made;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function fill(section, rows) {
  byId(section).hidden = rows.length === 0;
  const names = [...byId(section).querySelectorAll("th")].map((header) => header.textContent);
  byId(section).querySelector("tbody").replaceChildren(
    ...rows.map((cells) => {
      const row = document.createElement("tr");
      row.append(...cells.map(([text, name], index) => {
        const cell = element("td", text, name);
        cell.dataset.label = names[index]; // A narrow page hides the header.
        return cell;
      }));
      return row;
    }),
  );
}

function openDetails(name) {
  details.name = name;
  details.doc = null;
  details.failed = "";
  byId("outcome").textContent = "";
  byId("reason").value = "";
  byId("to").value = "";
  disarm();
  setText(byId("details-name"), name);
  for (const id of ["facts", "candidates"]) byId(id).replaceChildren();
  hideSections();
  renderProblem();
  renderAddress(encodeURIComponent(name));
  if (!dialog.open) dialog.showModal();
  loadDetails();
}

// Loads the open document, and loads it again if the document changes meanwhile.
async function loadDetails() {
  if (details.loading) {
    details.again = true;
    return;
  }
  details.loading = true;
  const name = details.name;
  try {
    const signal = AbortSignal.timeout(CONTACT_MAX_MS);
    const answer = await fetch(`/document?name=${encodeURIComponent(name)}`, { signal });
    if (answer.status === 401) location.assign(`/login${location.hash}`);
    const doc = answer.ok ? await answer.json() : null;
    if (name === details.name) {
      details.failed = doc || answer.status === 404 ? "" : `this server refuses (${answer.status})`;
      if (answer.status === 404) showDeleted();
      if (doc) {
        details.doc = doc;
        details.at = performance.now();
        renderDetails();
      }
    }
  } catch (error) {
    const why = error.name === "TimeoutError" ? "this server does not answer" : "this server cannot be reached";
    if (name === details.name) details.failed = why;
  }
  renderProblem();
  details.loading = false;
  if (details.again || name !== details.name) {
    details.again = false;
    setTimeout(loadDetails, 200);
  }
}

// Shows the reason for missing or stale data inside the dialog, because the dialog covers the
// banner.
function renderProblem() {
  const found = trouble();
  const why = details.failed || (found ? found[0] : "");
  const line = byId("details-problem");
  line.hidden = !why;
  const text = found && found[1] != null ? byId("connection").textContent : `Not updated: ${why}.`;
  if (why) setText(line, details.doc ? text : `No data: ${why}.`);
}

function hideSections() {
  for (const id of ["evidence", "span-details", "actions", "claims", "terminal", "successes", "history", "operators"]) byId(id).hidden = true;
}

function showDeleted() {
  hideSections();
  dialog.className = "";
  byId("facts").replaceChildren(element("dd", "It was retired, pruned or deleted."));
  details.doc = null;
}

const parsed = (past) => ({ ...past, from: Date.parse(past.acquired_at), to: Date.parse(past.ended_at) });

function renderDetails() {
  const doc = details.doc;
  byId("actions").hidden = !secret || doc.kind !== "lease";
  renderFacts();
  const history = doc.history || [];
  const ended = [...history].reverse();
  const now = shownNow();
  fill("history", ended.map((past) => [
    [past.token == null ? "–" : String(past.token), "number"],
    [past.identity || "–"],
    // For a holder that stopped earlier, this is an upper bound.
    [(past.ended_earlier ? "< " : "") + duration(Date.parse(past.ended_at) - Date.parse(past.acquired_at)), "number"],
    [dated(past.ended_at, now)],
    [past.reason ? endReason(past) + result(past) : "–"],
  ]));
  fill("successes", (doc.successes || []).map((success) => [[success.key], [dated(success.at, now)]]));
  fill("operators", [...(doc.actions || [])].reverse().map((action) => [
    [dated(action.at, now)],
    [action.to ? `${action.action} to ${action.to}` : action.action],
    [action.token == null ? "–" : String(action.token), "number"],
    [action.by || "–"],
    [action.reason || ""],
  ]));
  const others = new Set([...(doc.candidates || []), ...(doc.standby ? [doc.standby] : []), ...history.map((past) => past.identity).filter(Boolean)]);
  if (doc.holder) others.delete(doc.holder.identity);
  byId("candidates").replaceChildren(...[...others].map((identity) => {
    const option = document.createElement("option");
    option.value = identity;
    return option;
  }));
}

// Disables the actions that are impossible now. While the data is stale, no action is possible.
function offerActions(doc) {
  const possible = { step_down: doc.holder, transfer: doc.holder, pause: !doc.paused, resume: doc.paused, cancel: doc.request, ask_candidates: true };
  for (const button of byId("actions").querySelectorAll("[data-action]")) {
    button.disabled = !possible[button.dataset.action] || button.dataset.running === "true" || trouble() !== null;
  }
}

// Shows the shell commands that apply to this document.
function renderCommands(doc) {
  const name = quoted(doc.name);
  const can = (verb) => `leasehold ${verb} ${name}`;
  const [at, now] = [details.at, shownNow()];
  let commands = [];
  const isDead = isGone(state(doc, at, now));
  if (doc.kind !== "foreign") commands = [can("describe")];
  if (doc.kind === "lease") {
    if (!secret && doc.holder && !isDead) commands.push(can("step-down"));
    if (!secret) commands.push(can(doc.paused ? "resume" : "pause"));
  }
  if (isUnclaimed(doc, at, now) && !doc.paused && !doc.request) commands.push(can("leases retire"));
  if (doc.kind === "lock" && isDead) commands.push(can("locks break"));
  const list = byId("terminal").lastElementChild;
  byId("terminal").hidden = commands.length === 0;
  if (list.dataset.shown === commands.join("\n")) return;
  list.dataset.shown = commands.join("\n");
  const place = "On a machine that reaches this collection:";
  setText(byId("terminal").querySelector("p"), secret ? place : `This page is read-only. ${place}`);
  list.replaceChildren(...commands.map((command) => {
    const item = document.createElement("li");
    item.append(element("code", command));
    return item;
  }));
}

// Shows the current state, with the current times since the last renewals.
function renderFacts() {
  const doc = details.doc;
  if (!dialog.open) return;
  renderProblem();
  if (!doc) return;
  const now = shownNow();
  const at = details.at;
  const holder = principal(doc, at, now);
  const found = state(doc, at, now);
  const unclaimed = found === "free" && isUnclaimed(doc, at, now) ? " unclaimed" : "";
  dialog.className = `${found}${isUnconfirmed(doc, at, now) ? " unseen" : ""}${unclaimed}`;
  setText(byId("details-kind"), { lease: "Lease", lock: "Lock", foreign: "Other document" }[kindOf(doc)]);
  const why = holder ? evidence(doc, holder, at, now) : [];
  offerActions(doc);
  renderCommands(doc);
  if (isUnclaimed(doc, at, now)) why.push(`${holder ? "" : `${unclaimedNote()}: `}start a candidate, or check the log of a candidate`);
  if (doc.unreadable) why.push("leasehold does not change this document: repair it, or update leasehold if the schema is newer");
  byId("evidence").hidden = why.length === 0 || found === "kept";
  setText(byId("evidence"), [shownState(found), ...why].join("; "));
  const facts = [["State", shownState(found)]];
  if (doc.kind === "foreign") facts.push(["Reason", doc.foreign]);
  else facts.push(["Token", String(doc.token)]);
  if (holder && doc.kind === "lease") {
    facts.push(
      ["Holder", holder.identity],
      ["Address", holder.address],
      ["Since", dated(holder.since, now) + (isGone(found) ? `; held for ${duration(heldFor(holder, at, now))}, until its last renewal` : "")],
      ["Renewed", renewed(holder, at, now)],
      ["Lease duration", duration(holder.lease_duration_ms)],
    );
  }
  if (doc.kind === "lease") {
    const priority = doc.standby_priority ? ` (priority ${doc.standby_priority})` : "";
    if (holder) facts.push(["Standby", doc.standby ? doc.standby + priority : "none"]);
    facts.push(["Paused", doc.paused && paused(doc, now)]);
    facts.push(["Request", doc.request && request(doc) + (doc.request.reason ? ` (${doc.request.reason})` : "")]);
    if (doc.candidates) {
      const ago = duration(doc.answered_ms + Math.max(0, now - at));
      facts.push(["Candidates", `${doc.present} (as of the roll call ${ago} ago)`]);
    }
    if (doc.reserved_for && !doc.holder) facts.push(["Reserved", `for ${doc.reserved_for.identity}`]);
  }
  if (doc.kind === "lock") {
    if (found === "kept") facts.push(["Kept", why[0].replace("kept ", "")]);
    facts.push(["Slots", doc.slots ? String(doc.slots) : "exclusive and shared"]);
    const claim = (place) => (entry) => [
      [place], [entry.identity], [entry.slot == null ? entry.mode : `slot ${entry.slot} of ${doc.slots}`], [entry.token == null ? "–" : String(entry.token), "number"],
      [duration(entry.over ? since(entry.since, now) : heldFor(entry, at, now)), "number"], [entry.over ? evidence(doc, entry, at, now)[0] || "–" : renewed(entry, at, now), "number"],
    ];
    const holds = (entry) => ({ held: "holds", free: "ended" }[holderState(entry, at, now)] || holderState(entry, at, now));
    fill("claims", [...doc.holders.map((entry) => claim(holds(entry))(entry)), ...doc.queue.map((entry, index) => claim(`waits, ${index + 1}.`)(entry))]);
  }
  const list = byId("facts");
  const shown = facts.filter(([, text]) => text);
  if (list.children.length !== shown.length * 2) {
    list.replaceChildren(...shown.flatMap(([name, text]) => [element("dt", name), element("dd", text)]));
  }
  shown.forEach(([name, text], index) => {
    setText(list.children[index * 2].firstChild, name);
    setText(list.children[index * 2 + 1].firstChild, text);
  });
  renderSpan(doc, at, now);
}

// Shows the timeline and its time axis.
function renderSpan(doc, at, now) {
  const section = byId("span-details");
  section.hidden = doc.kind === "foreign";
  const hours = Number(byId("hours").value);
  setText(section.firstElementChild, `Who held it, ${hours === 1 ? "last hour" : `last ${hours} hours`}`);
  renderTimeline(byId("timeline"), doc, (doc.history || []).map(parsed), at, now, 20);
  const end = wall(now);
  const marks = [0, 1, 2, 3].map((third) => utc(end - (hours * 3_600_000 * (3 - third)) / 3).slice(0, 5));
  const axis = byId("axis");
  if (axis.textContent !== marks.join("")) {
    axis.replaceChildren(...marks.map((mark) => Object.assign(document.createElement("li"), { textContent: mark })));
  }
}

function disarm() {
  clearTimeout(disarms);
  for (const button of byId("actions").querySelectorAll(".armed")) {
    button.classList.remove("armed");
    button.textContent = button.dataset.label;
    if (byId("outcome").className === "armed") outcome("", "");
  }
}

function outcome(text, name) {
  byId("outcome").className = name;
  setText(byId("outcome"), text);
}

// If the holder is gone, returns an answer with this page's evidence. The server's answer is based
// on a new, shorter observation.
function ownEvidence(answer, action) {
  const { doc, at } = details;
  const now = shownNow();
  if (!doc || !doc.holder || answer.result !== "under_way" || !isGone(state(doc, at, now))) return "";
  const identity = doc.holder.identity;
  const done = action === "pause" ? `Paused; ${identity} steps down` : `The request is recorded; ${identity} applies it`;
  return `${done} only if it comes back. ${identity} is ${[state(doc, at, now), ...evidence(doc, doc.holder, at, now)].join("; ")}.`;
}

// If the action needs a holder that is gone, returns a warning.
function goneHolder(action) {
  const { doc, at } = details;
  const found = state(doc, at, shownNow());
  if (!isGone(found) || !["step_down", "transfer", "pause"].includes(action)) return "";
  const effect = { pause: "No candidate takes over while the lease is paused." }[action] || "It applies the request only if it comes back.";
  return `${doc.holder.identity} is ${found}. ${effect} `;
}

async function act(button) {
  const action = button.dataset.action;
  const to = byId("to").value.trim();
  if (action === "transfer" && !to) {
    outcome("Enter the candidate to transfer to.", "bad");
    byId("to").focus();
    return;
  }
  const isHarmless = action === "ask_candidates";
  if (!isHarmless && !button.classList.contains("armed")) {
    disarm();
    button.dataset.label = button.textContent;
    button.classList.add("armed");
    button.textContent = `${button.dataset.label}: confirm`;
    outcome(`${goneHolder(action)}To confirm: press “${button.dataset.label}” again within ${ARMED_MS / 1000} s.`, "armed");
    disarms = setTimeout(disarm, ARMED_MS);
    return;
  }
  disarm();
  button.dataset.running = "true";
  button.disabled = true;
  outcome("Requested; waiting.", "");
  const asked = { name: details.name, action, token: details.doc.token, reason: byId("reason").value.trim() };
  if (action === "transfer") asked.to = to;
  try {
    const answer = await fetch("/actions", {
      method: "POST",
      headers: { "content-type": "application/json", [PAGE_HEADER]: secret },
      body: JSON.stringify(asked),
    });
    const text = await answer.text();
    let [message, name] = [text.trim(), "bad"];
    try {
      const found = JSON.parse(text);
      message = ownEvidence(found, action) || found.message;
      name = { done: "good", already: "good", under_way: "wary", unanswered: "wary" }[found.result] || "bad";
    } catch {
      // A refusal is plain text.
    }
    if (details.name === asked.name) {
      outcome(message, name);
      if (name !== "bad" && !isHarmless) byId("reason").value = "";
    }
  } catch {
    outcome("No answer from this server. The history shows if the action was carried out.", "bad");
  }
  button.dataset.running = "false";
  loadDetails();
}

dialog.addEventListener("close", () => {
  renderAddress("");
  openLinked();
});
byId("actions").addEventListener("submit", (event) => event.preventDefault());
byId("actions").addEventListener("click", (event) => {
  const button = event.target.closest("[data-action]");
  if (button) act(button);
});
