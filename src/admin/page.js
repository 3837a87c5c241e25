// Keeps the page up to date from /events. Without scripts, the page reloads itself.

const HEADLINES = {
  leader: "Leader",
  follower: "Follower",
  paused: "Paused",
  stopping: "Stepping down",
  unknown: "Waiting for MongoDB",
};
const SILENCE_MAX_MS = 15000; // Three heartbeats.
const RETRY_MS = 1000;

// The time since an instant, by the clock that advanced more: the first one may stop while this
// machine is suspended, and the second one can be set.
const instant = () => ({ ticks: performance.now(), date: Date.now() });
const since = (then) => Math.max(performance.now() - then.ticks, Date.now() - then.date);

let event = null; // The last event, and when it was received.
let received = null;
let daemon = null; // The daemon's clock, and an instant before it was read.
let contact = instant(); // The last event or heartbeat, or the load of this page.
let problem = "connecting";

// Changes only what differs, because a screen reader announces each change.
function show(id, text) {
  const element = document.getElementById(id);
  if (element.textContent !== text) element.textContent = text;
}

function duration(ms) {
  const total = Math.max(0, Math.floor(ms / 1000));
  const parts = [
    [Math.floor(total / 86400), "d"],
    [Math.floor(total / 3600) % 24, "h"],
    [Math.floor(total / 60) % 60, "m"],
    [total % 60, "s"],
  ];
  const shown = parts.filter(([count]) => count > 0).map(([count, unit]) => count + unit);
  return shown.join(" ") || "0s";
}

function render() {
  show("connection", problem ? `Not up to date: ${problem}.` : "Live.");
  show("contact", problem ? `Last contact ${duration(since(contact))} ago.` : "");
  document.getElementById("state").classList.toggle("old", problem !== "");
  if (!event) return;
  // The daemon's clock shows this or less, so authority never seems to last longer than it does.
  const now = daemon.ms + since(daemon.before);
  const left = event.leader ? event.valid_until_boottime_ns / 1e6 - now : 0;
  const leads = left > 0;
  const expired = event.leader && !leads;
  const role = expired ? "unknown" : event.role;
  document.body.className = role;
  document.title = `${event.lease}: ${expired ? "not leader" : role}`;
  show("role", expired ? "Not leader" : HEADLINES[role]);
  const nobody = role === "unknown" ? "not known" : "nobody";
  show("holder", expired || !event.holder ? nobody : event.holder.identity);
  show("token", leads ? String(event.token) : "none");
  show("left", leads ? `${(left / 1000).toFixed(1)} s` : "–");
  const age = Date.parse(event.updated_at) - Date.parse(event.since) + since(received);
  show("since", `${event.since} (${duration(age)} ago)`);
  show("reason", event.reason || "–");
  document.getElementById("failure").hidden = !event.store_error;
  show("error", event.store_error ? event.store_error.message : "");
}

async function read(body, asked, alive) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let first = true;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    contact = instant();
    alive();
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ")) continue;
      event = JSON.parse(line.slice(6));
      received = contact;
      if (first) daemon = { ms: event.written_boottime_ns / 1e6, before: asked };
      first = false;
      problem = event.stopped ? "the daemon has stopped" : "";
    }
    render();
  }
}

async function follow() {
  const abort = new AbortController();
  let silence;
  const alive = () => {
    clearTimeout(silence);
    silence = setTimeout(() => abort.abort(), SILENCE_MAX_MS);
  };
  alive();
  try {
    const asked = instant();
    const answer = await fetch("/events", { signal: abort.signal });
    if (!answer.ok) throw new Error(`the daemon answers ${answer.status}`);
    await read(answer.body, asked, alive);
    throw new Error("connection closed");
  } catch (error) {
    const lost = abort.signal.aborted ? "the daemon does not respond" : error.message;
    problem = event && event.stopped ? "the daemon has stopped" : lost;
  }
  clearTimeout(silence);
  render();
  setTimeout(follow, RETRY_MS);
}

setInterval(render, 200);
follow();
