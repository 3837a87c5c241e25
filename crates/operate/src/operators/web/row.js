
// The rows of the list, and the timelines.

function makeRow(name) {
  const row = document.createElement("tr");
  row.setAttribute("role", "row");
  if (name[0] === "\0") {
    const cell = element("td", name.slice(1));
    cell.colSpan = 8;
    cell.setAttribute("role", "cell");
    if (name.startsWith(`\0${GROUPS.foreign}`)) {
      const button = element("button", name.slice(1));
      button.type = "button";
      button.addEventListener("click", () => {
        areOthersOpen = !areOthersOpen;
        isOrderOld = true;
        render();
      });
      cell.replaceChildren(button);
    }
    row.className = "group";
    row.append(cell);
    return row;
  }
  const cells = ["name", "state", "holder", "number since", "number silence", "number token", "past", "notes"].map((cell) => element("td", "", cell));
  cells.forEach((cell, index) => cell.setAttribute("role", index ? "cell" : "rowheader"));
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
  const { doc, at, changed, height } = known.get(name);
  const found = state(doc, at, now);
  const holder = principal(doc, at, now);
  const said = notes(doc, at, now);
  const texts = [
    null, shownState(found), holderName(doc, now, isGone(found) ? holder : null) || "–", holder ? duration(heldFor(holder, at, now)) : "–",
    renewed(holder, at, now), doc.token == null ? "–" : String(doc.token), null, said || calmNotes(doc, now),
  ];
  const unseen = isUnconfirmed(doc, at, now) ? " unseen" : "";
  const unclaimed = found === "free" && isUnclaimed(doc, at, now) ? " unclaimed" : "";
  const className = `${found}${unseen}${unclaimed} kind-${kindOf(doc)}${height === "row" ? "" : ` ${height}`}${changed && performance.now() - changed < 1500 ? " fresh" : ""}`;
  if (row.className !== className) row.className = className;
  setText(row.firstChild.firstChild, `${kindOf(doc)} `);
  texts.forEach((text, index) => {
    if (text == null) return;
    const cell = row.children[index];
    if (cell.firstChild.textContent === text) return;
    cell.firstChild.textContent = text;
    cell.classList.toggle("none", text === "–");
    cell.title = text;
  });
  const past = (doc.past || []).map(([from, to, identity, token, reason, ended_earlier]) => ({ from, to, identity, token, reason, ended_earlier }));
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
  if (found.forgotten) parts.unshift(part(0, found.forgotten, "forgotten", "", "not recorded: before the first holder that the document keeps"));
  bar.replaceChildren(...parts);
}
