// An event is trusted until its deadline, but only while the stream is open.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import { test } from "node:test";
import { promisify } from "node:util";

import { timing } from "../src/events.js";
import { NotLeader, follow } from "../src/index.js";
import { AUTHORITY_MAX_NS, Daemon, LONG, STORE, aborted, boottimeNs, eventually, good, inputs, leasehold } from "./testbed.js";

const STREAM = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";

/** A server of streams that a daemon never sends. */
class Server {
  static async start(test) {
    const server = new Server();
    server.connections = [];
    server.listener = createServer((connection) => server.connections.push(connection));
    server.listener.listen(0, "127.0.0.1");
    await once(server.listener, "listening");
    server.address = `127.0.0.1:${server.listener.address().port}`;
    server.streams = [];
    test.after(() => {
      for (const stream of server.streams) stream.destroy();
      server.listener.close();
    });
    return server;
  }

  async accept(answer = STREAM) {
    const stream = await eventually(() => this.connections.shift());
    this.streams.push(stream);
    stream.on("error", () => {});
    let request = "";
    stream.on("data", (text) => (request += text));
    await eventually(() => request.endsWith("\r\n\r\n"));
    stream.write(answer);
    return stream;
  }
}

function event(changes) {
  return `data: ${good(changes)}\n\n`;
}

function followed(test, address) {
  const follower = follow(address);
  test.after(() => follower.close());
  return follower;
}

function lead(follower) {
  return follower.lead({ signal: AbortSignal.timeout(LONG) });
}

/** Returns a follower that leads with token 7, its stream and its term. */
async function led(test, server) {
  const follower = followed(test, server.address);
  const stream = await server.accept(STREAM + event());
  const term = await lead(follower);
  assert.deepEqual([term.token, follower.token(), term.isValid()], [7, 7, true]);
  return { follower, stream, term };
}

async function ended(term) {
  await aborted(term.signal);
  assert(term.signal.reason instanceof NotLeader);
  assert(!term.isValid());
  assert.throws(() => term.check(), NotLeader);
}

test("hostile lines are not leader", async (t) => {
  const server = await Server.start(t);
  for (const [name, line] of inputs("lines")) {
    const { follower, stream, term } = await led(t, server);
    stream.write(Buffer.concat([line, Buffer.from("\n\n")]));
    if (line.subarray(0, 5).equals(Buffer.from("data:"))) {
      await ended(term);
      assert.equal(follower.token(), null, `${name}: ${line.subarray(0, 150)}`);
    } else {
      // The follower ignores this event and applies the next one.
      stream.write(event({ token: 8 }));
      await eventually(() => follower.token() === 8);
    }
    follower.close();
  }
});

/**
 * Sends events with later and later deadlines until the follower leads, because a busy machine may handle
 * an event only after the event's deadline. Returns the term and its deadline.
 */
async function leadsUntil(follower, stream) {
  for (let brief = 200; brief < LONG; brief *= 2) {
    const until = boottimeNs() + brief * 1e6;
    stream.write(event({ valid_until_boottime_ns: until }));
    const term = await follower.lead({ signal: AbortSignal.timeout(brief) }).catch(() => null);
    if (term) return { term, until };
  }
  assert.fail("it does not lead");
}

test("a stream that hangs ends the leadership at its deadline", async (t) => {
  const server = await Server.start(t);
  const follower = followed(t, server.address);
  const stream = await server.accept();
  const { term, until } = await leadsUntil(follower, stream);
  await ended(term);
  assert(boottimeNs() > until - 30_000_000);
  assert(!follower.isLeader());
  // A later event of the same token does not make the term valid again.
  stream.write(event());
  assert.notEqual(await lead(follower), term);
  assert(!term.isValid());
});

test("a term is over at its deadline also if no timer has run", async (t) => {
  const server = await Server.start(t);
  const follower = followed(t, server.address);
  const { term, until } = await leadsUntil(follower, await server.accept());
  while (boottimeNs() < until);
  assert.throws(() => term.check(), NotLeader);
  assert(term.signal.aborted);
});

test("an extension keeps the leadership", async (t) => {
  const server = await Server.start(t);
  for (let brief = 300; brief < LONG; brief *= 2) {
    const follower = followed(t, server.address);
    const stream = await server.accept();
    const until = boottimeNs() + brief * 1e6;
    stream.write(event({ valid_until_boottime_ns: until }));
    const term = await follower.lead({ signal: AbortSignal.timeout(brief) }).catch(() => null);
    stream.write(event());
    await eventually(() => boottimeNs() > until);
    if (term?.isValid()) return assert.equal(await lead(follower), term);
    follower.close(); // On this busy machine, the second event was read after the first deadline.
  }
  assert.fail("an extension does not keep it");
});

test("the end of a stream ends the leadership until the next event", async (t) => {
  for (const end of ["", "data: {", event({ token: 9 }).slice(0, -4), "x".repeat(70_000)]) {
    const server = await Server.start(t);
    const { follower, stream, term } = await led(t, server);
    stream.write(end);
    if (end.length < 65536) stream.end();
    await ended(term);
    assert.equal(follower.token(), null, end);
    await server.accept(STREAM + event());
    assert.equal((await lead(follower)).token, 7);
    assert(!term.isValid());
    follower.close();
  }
});

test("a silent stream is opened again", async (t) => {
  const { silence } = timing;
  t.after(() => (timing.silence = silence));
  timing.silence = 300;
  const server = await Server.start(t);
  // On a busy machine, a stream can end before its event is read.
  let token = 7;
  server.listener.on("connection", (stream) => {
    server.streams.push(stream);
    stream.on("error", () => {});
    stream.write(STREAM + event({ token: token++ }));
  });
  const follower = followed(t, server.address);
  const term = await lead(follower);
  await ended(term);
  assert((await lead(follower)).token > term.token);
  follower.close();
});

test("other answers are not leader", async (t) => {
  const server = await Server.start(t);
  const moved = `HTTP/1.1 302 Found\r\nLocation: http://${server.address}/other\r\n\r\n`;
  for (const answer of [moved, "HTTP/1.1 503 Busy\r\n\r\n", "HTTP/1.1 404 None\r\n\r\n", ""]) {
    const follower = followed(t, server.address);
    // The server leaves the stream open, so a reader that accepted the line would lead.
    await server.accept(answer + event({ token: 9 }));
    await eventually(() => follower.error instanceof Error);
    await server.accept(STREAM + event());
    assert.equal((await lead(follower)).token, 7, answer);
    assert.equal(follower.error, null);
    follower.close();
  }
});

test("an event in small parts is read", async (t) => {
  const server = await Server.start(t);
  const follower = followed(t, server.address);
  const stream = await server.accept(STREAM);
  const bytes = Buffer.from(event({ identity: "ä€𝄞" }));
  for (let at = 0; at < bytes.length; at += 7) {
    stream.write(bytes.subarray(at, at + 7));
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.equal((await lead(follower)).token, 7);
});

test("a closed follower is not leader", async (t) => {
  const closing = new AbortController();
  const server = await Server.start(t);
  const follower = follow(server.address, { signal: closing.signal });
  await server.accept(STREAM + event());
  const term = await lead(follower);
  closing.abort();
  await ended(term);
  assert.equal(follower.token(), null);
  await assert.rejects(follower.lead(), /closed/);
  await assert.rejects(follow(server.address, { signal: closing.signal }).lead(), /closed/);
});

test("the example of the page ends", async (t) => {
  const page = readFileSync("README.md", "utf8");
  const example = page.split("```js\n")[1].split("\nconst options")[0];
  assert(example.includes("127.0.0.1:9402"));
  const server = await Server.start(t);
  const imported = example.replace("127.0.0.1:9402", server.address).replace('"leasehold"', '"./src/index.js"');
  const script = `const orders = ["one", "two"];
    const act = (order, { token }) => { console.log(order, token); };
    ${imported}`;
  const flags = ["--input-type=module", "--eval", script];
  const done = promisify(execFile)(process.execPath, flags, { timeout: 30_000 });
  const [{ stdout }] = await Promise.all([done, server.accept(STREAM + event())]);
  assert.equal(stdout, "one 7\ntwo 7\n");
});

test("a wait for the leadership can be ended", async (t) => {
  const server = await Server.start(t);
  const follower = followed(t, server.address);
  await server.accept();
  const waiting = new AbortController();
  const lead = follower.lead({ signal: waiting.signal });
  waiting.abort(new Error("enough"));
  await assert.rejects(lead, /enough/);
});

test("a step-down ends the leadership", async (t) => {
  const lease = "node-step-down";
  const a = await Daemon.start(t, lease, "a");
  const followerA = followed(t, a.address);
  const term = await lead(followerA);
  assert.equal(term.token, await a.leads());
  const b = await Daemon.start(t, lease, "b");
  const followerB = followed(t, b.address);
  await b.follows("a");
  assert(!followerB.isLeader());
  await leasehold("step-down", lease, STORE, "--reason=test");
  await ended(term);
  assert((await lead(followerB)).token > term.token);
  assert(!followerA.isLeader());
});

test("the leadership of a frozen daemon ends at its deadline", async (t) => {
  const daemon = await Daemon.start(t, "node-frozen-events", "a");
  const follower = followed(t, daemon.address);
  const term = await lead(follower);
  // Events extend the leadership beyond its first deadline.
  const first = boottimeNs() + 4_600_000_000;
  await eventually(() => boottimeNs() > first);
  term.check();
  daemon.signal("SIGSTOP");
  const frozen = boottimeNs();
  const until = daemon.status().document.valid_until_boottime_ns;
  await ended(term);
  const now = boottimeNs();
  // The last event may be older than the file, by at most a second and a renewal interval.
  assert(now > until - 2_000_000_000 && now < until + 5_000_000_000, `${now} ${until}`);
  assert(!follower.isLeader());
  await eventually(() => boottimeNs() > frozen + AUTHORITY_MAX_NS);
  daemon.signal("SIGCONT");
  assert((await lead(follower)).token > term.token);
  assert(!term.isValid());
});

test("the stream of a daemon that was killed is opened again", async (t) => {
  const daemon = await Daemon.start(t, "node-killed", "a");
  const follower = followed(t, daemon.address);
  const term = await lead(follower);
  await daemon.kill();
  await ended(term);
  // The term ends with the stream, although the file is still valid.
  assert(daemon.status().isLeader());
  daemon.start();
  assert((await lead(follower)).token > term.token);
});
