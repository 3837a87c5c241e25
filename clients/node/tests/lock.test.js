// A lock counts as held only while `leasehold` holds it.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { LockError, LockLost, LockNotAcquired, acquire, withLock } from "../src/index.js";
import { timing } from "../src/lock.js";
import { LONG, PROGRAM, STORE, aborted, eventually, leasehold, printing } from "./testbed.js";

const OPTIONS = { program: PROGRAM, arguments: [STORE] };

function hold(name, options) {
  return acquire(name, { ...OPTIONS, ...options });
}

function refused(name, options) {
  const isRefused = (error) => error instanceof LockNotAcquired && error.code === 75 && /not acquired: held by /.test(error.message);
  return assert.rejects(hold(name, { waitMs: 0, ...options }), isRefused);
}

/** On a busy machine MongoDB may not answer within the first wait. */
async function refusedAfterAWait(name) {
  for (let waitMs = 500; waitMs < LONG; waitMs *= 2) {
    const error = await hold(name, { waitMs }).catch((error) => error);
    if (error instanceof LockNotAcquired) return;
    assert.equal(error.code, 69); // EX_UNAVAILABLE
  }
  assert.fail("the wait does not end");
}

async function waiters(name) {
  const locks = JSON.parse(await leasehold("locks", STORE, "--output=json"));
  return locks.find(({ lock }) => lock === name)?.queue.length ?? 0;
}

function broken(name) {
  return leasehold("locks", "break", name, "--force", "--yes", STORE);
}

function children() {
  const { pid } = process;
  return readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ").filter(Boolean).map(Number);
}

test.afterEach(() => {
  const left = children();
  for (const pid of left) process.kill(pid, "SIGKILL"); // A program left running would block the test runner.
  assert.deepEqual(left, [], "a process is left");
});

test("it is held during the work and released at its end", async () => {
  let after;
  const result = await withLock("node-work", OPTIONS, async (held) => {
    after = held;
    assert.deepEqual([held.name, held.token, held.slot], ["node-work", 1, null]);
    held.check();
    await refused("node-work");
    await refusedAfterAWait("node-work");
    held.check();
    return "done";
  });
  assert.equal(result, "done");
  assert(after.signal.aborted && !after.isValid());
  assert.throws(() => after.check(), LockError);
  assert(!(after.signal.reason instanceof LockLost));
  const again = await hold("node-work", { waitMs: 0 });
  assert.equal(again.token, 2);
  await again.release();
  await again.release();
});

test("an error of the work releases it", async () => {
  const failing = () => {
    throw new TypeError("failure");
  };
  await assert.rejects(withLock("node-failing", OPTIONS, failing), TypeError);
  await (await hold("node-failing", { waitMs: 0 })).release();
});

test("it is released when it is disposed of", async () => {
  const held = await hold("node-disposed");
  await held[Symbol.asyncDispose ?? Symbol.for("nodejs.asyncDispose")]();
  assert(!held.isValid());
  await (await hold("node-disposed", { waitMs: 0 })).release();
});

test("a waiter gets it", async () => {
  const held = await hold("node-waiter");
  const second = withLock("node-waiter", { ...OPTIONS, waitMs: 60_000 }, ({ token }) => token);
  await eventually(() => waiters("node-waiter"));
  await held.release();
  assert.equal(await second, 2);
});

test("slots have numbers", async () => {
  const one = await hold("node-slots", { slots: 2 });
  const other = await hold("node-slots", { slots: 2 });
  assert.deepEqual([one.slot, other.slot].sort(), [0, 1]);
  await refused("node-slots", { slots: 2 });
  await Promise.all([one.release(), other.release()]);
});

test("a negative number of slots is refused", async () => {
  const isRefused = (error) => error instanceof LockError && error.code === 64;
  await assert.rejects(hold("node-negative-slots", { slots: -1 }), isRefused);
});

test("a long wait is accepted", async () => {
  // The program accepts at most 31 days.
  const longest = 31 * 24 * 3600 * 1000;
  for (const waitMs of [longest, longest + 1, 1e12, Number.MAX_VALUE, Infinity]) {
    await (await hold("node-long-wait", { waitMs })).release();
  }
});

test("a wait that is negative or not a number is refused", async () => {
  for (const waitMs of [-1, -0.001, -Infinity, NaN, null, "30", 30n, {}]) {
    await assert.rejects(hold("node-no-wait", { waitMs }), { name: "RangeError", message: /^waitMs / }, String(waitMs));
  }
});

test("readers share it", async () => {
  const one = await hold("node-shared", { shared: true });
  const other = await hold("node-shared", { shared: true, waitMs: 0 });
  await refused("node-shared");
  await Promise.all([one.release(), other.release()]);
});

test("a broken lock is lost", async () => {
  const work = async (held) => {
    await broken("node-broken");
    await aborted(held.signal);
    assert(!held.isValid());
    assert(held.signal.reason instanceof LockLost);
    assert.throws(() => held.check(), LockLost);
  };
  const isLost = (error) => error instanceof LockLost && error.code === 76;
  await assert.rejects(withLock("node-broken", OPTIONS, work), isLost);
});

test("a killed program has lost its lock", async () => {
  const held = await hold("node-killed-lock");
  process.kill(children()[0], "SIGKILL");
  await aborted(held.signal);
  assert.throws(() => held.check(), LockLost);
  for (let repeated = 0; repeated < 2; repeated++) await assert.rejects(held.release(), LockLost);
});

test("the error of the work counts more than the loss", async () => {
  const work = async (held) => {
    await broken("node-both");
    await aborted(held.signal);
    throw new TypeError("failure");
  };
  await assert.rejects(withLock("node-both", OPTIONS, work), TypeError);
});

test("a loss that no check noticed is an error of the release", async () => {
  const work = async () => {
    await broken("node-unnoticed");
    await eventually(() => children().length === 0);
  };
  await assert.rejects(withLock("node-unnoticed", OPTIONS, work), LockLost);
});

test("a stop signal does not take it from the work", async (t) => {
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"]) {
    const program = printing(t, `exec '${PROGRAM}' "$@" 2> "$0.log"\n`);
    const held = await hold("node-signalled", { program });
    process.kill(children()[0], signal);
    await eventually(() => readFileSync(`${program}.log`, "utf8").includes("stop signal received"));
    await refused("node-signalled");
    held.check();
    await held.release(); // leasehold has already reported its exit code, and the signal ends it.
  }
});

test("the end of the output is the end of the lock", async (t) => {
  const { release } = timing;
  t.after(() => (timing.release = release));
  timing.release = 200;
  // Simulates another process that has the id after the exit.
  const program = printing(t, `echo '{"lock":"it","token":1}'; exec sleep 1000 >&-\n`);
  const held = await acquire("it", { program });
  const [other] = children();
  await aborted(held.signal);
  assert.throws(() => held.check(), LockLost);
  await assert.rejects(held.release(), LockLost);
  assert.deepEqual(children(), [other]);
  process.kill(other, "SIGKILL");
  await eventually(() => children().length === 0);
});

test("an exit without a report is no release", async (t) => {
  const program = printing(t, `echo '{"lock":"it","token":1}'; cat > /dev/null; exit 0\n`);
  await assert.rejects((await acquire("it", { program })).release(), /did not confirm/);
});

test("a frozen program is killed at the release", async (t) => {
  const { release } = timing;
  t.after(() => (timing.release = release));
  timing.release = 200;
  const held = await hold("node-frozen-lock");
  process.kill(children()[0], "SIGSTOP");
  await assert.rejects(held.release(), LockLost);
});

test("a wait that is ended leaves the queue", async () => {
  const held = await hold("node-ended");
  const waiting = new AbortController();
  const second = hold("node-ended", { signal: waiting.signal, waitMs: 60_000 });
  await eventually(() => waiters("node-ended"));
  waiting.abort(new Error("enough"));
  await assert.rejects(second, /enough/);
  assert.equal(await waiters("node-ended"), 0);
  await assert.rejects(hold("node-ended", { signal: waiting.signal }), /enough/);
  await held.release();
});

test("an unexpected line is not a lock", async (t) => {
  const lines = [
    "nonsense",
    "[]",
    "null",
    '{"lock":"other","token":1}',
    '{"lock":"it"}',
    '{"lock":"it","token":0}',
    '{"lock":"it","token":true}',
    '{"lock":"it","token":"1"}',
    '{"lock":"it","token":9007199254740993}',
    '{"lock":"it","token":1,"slot":0}',
  ];
  for (const line of lines) {
    const program = printing(t, `printf '%s\\n' '${line}'; cat >/dev/null\n`);
    await assert.rejects(acquire("it", { program }), /unexpected/, line);
  }
  const program = printing(t, `echo '{"lock":"it","token":1}'; cat >/dev/null; echo '{"lock":"it","exit_code":0}'\n`);
  await assert.rejects(acquire("it", { program, slots: 2 }), /unexpected/);
  await (await acquire("it", { program })).release();
});

test("an incomplete line is not a lock", async (t) => {
  const line = '{"lock":"it","token":1}';
  for (let length = 1; length <= line.length; length++) {
    const program = printing(t, `printf '%s' '${line.slice(0, length)}'\n`);
    await assert.rejects(acquire("it", { program }), /unexpected/);
  }
  const program = printing(t, "printf '%05000d' 1; exec sleep 1000\n");
  await assert.rejects(acquire("it", { program }), /unexpected/);
});

test("a program that fails is reported with its code", async () => {
  const failed = (error) => error.constructor === LockError && error.code === 64;
  await assert.rejects(acquire("it", { program: PROGRAM, arguments: ["--no-such-flag"] }), failed);
  await assert.rejects(acquire("it", { program: "/nonexistent" }), /ENOENT/);
});
