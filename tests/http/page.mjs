// Runs the script of the page at an address, without a browser, and prints each text that it shows
// apart from those that change all the time.
const address = process.argv[2];
const request = fetch;
const answer = await request(`http://${address}/`, { headers: { accept: "text/html" } });
const html = await answer.text();

function element(id) {
  if (!html.includes(` id="${id}"`)) throw new Error(`the page has no ${id}`);
  let text = "";
  return {
    hidden: false,
    classList: { toggle() {} },
    get textContent() {
      return text;
    },
    set textContent(next) {
      text = next;
      if (!["left", "since", "contact"].includes(id)) console.log(`${id}: ${next}`);
    },
  };
}

const elements = new Map();
globalThis.document = {
  title: "",
  body: { className: "" },
  getElementById(id) {
    if (!elements.has(id)) elements.set(id, element(id));
    return elements.get(id);
  },
};
globalThis.fetch = (path, options) => request(`http://${address}${path}`, options);
const [, script] = html.match(/<script[^>]*>([^]*)<\/script>/);
await import(`data:text/javascript,${encodeURIComponent(script)}`);
