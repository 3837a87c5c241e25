// Threads, processes, signals, cancellation and collection: a lock is held exactly as long as it is
// used.

import assert from "node:assert/strict";
import { execFileSync, fork, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, readdirSync, readlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { Worker } from "node:worker_threads";

import { LockError, LockLost, LockNotAcquired, acquire } from "../src/index.js";
import { timing } from "../src/lock.js";
import { PROGRAM, STORE, eventually, leasehold, printing, scratch } from "./testbed.js";

const OPTIONS = { program: PROGRAM, arguments: [STORE] };
/** The beginning of a program in another process or thread. */
const PROLOGUE = `
  import { writeSync } from "node:fs";
  const { LockNotAcquired, acquire } = await import(${JSON.stringify(new URL("../src/index.js", import.meta.url).href)});
  const hold = (name, options) => acquire(name, { ...${JSON.stringify(OPTIONS)}, ...options });
  const say = (text) => writeSync(1, text + "\\n");
`;

function hold(name, options) {
  return acquire(name, { ...OPTIONS, ...options });
}

async function free(name) {
  try {
    await (await hold(name, { waitMs: 0 })).release();
    return true;
  } catch (error) {
    if (error instanceof LockNotAcquired) return false;
    throw error;
  }
}

async function waiters(name) {
  const locks = JSON.parse(await leasehold("locks", STORE, "--output=json"));
  return locks.find(({ lock }) => lock === name)?.queue.length ?? 0;
}

/** Starts Node with a script, which is killed at the end of the test. Its lines can be iterated. */
function script(test, text, { flags = [], powers = [], ...options } = {}) {
  const words = [...flags, "--input-type=module", "--eval", PROLOGUE + text];
  const process = spawn("setpriv", [...powers, "--pdeathsig", "KILL", globalThis.process.execPath, ...words], {
    stdio: ["pipe", "pipe", "inherit"],
    ...options,
  });
  const exited = once(process, "exit");
  test.after(async () => {
    process.kill("SIGKILL");
    await exited;
  });
  const lines = createInterface({ input: process.stdout })[Symbol.asyncIterator]();
  return { process, exited, line: async () => (await lines.next()).value };
}

/** Returns the id of a child process; undefined if there is none. */
function childOf(pid) {
  const isChild = (child) => {
    try {
      const stat = readFileSync(`/proc/${child}/stat`, "utf8");
      return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]) === pid;
    } catch {
      return false; // The process has exited.
    }
  };
  return readdirSync("/proc").filter((name) => /^\d+$/.test(name)).find(isChild);
}

/** Returns the process id of the program that holds a lock. */
function holder(name) {
  const words = [PROGRAM, "lock", name, ""].join("\0");
  const isHolder = (pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, "utf8").startsWith(words);
    } catch {
      return false; // The process has exited.
    }
  };
  return Number(readdirSync("/proc").find((name) => /^\d+$/.test(name) && isHolder(name)));
}

test("Ctrl-C that is handled leaves the lock", async (t) => {
  const holding = script(
    t,
    `const held = await hold("node-interrupt", { arguments: ["${STORE}", "--workload-stop-grace=1ms"] });
    process.on("SIGINT", async () => {
      // The script takes longer than leasehold needs to exit without a release.
      const error = await hold("node-interrupt", { waitMs: 0 }).catch((error) => error);
      if (!(error instanceof LockNotAcquired)) throw error;
      held.check();
      await held.release();
      say("released");
      process.exit();
    });
    say("held");
    process.stdin.resume();`,
    { detached: true },
  );
  assert.equal(await holding.line(), "held");
  const session = (pid) => {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[3];
  };
  assert.notEqual(session(holder("node-interrupt")), session(holding.process.pid));
  process.kill(-holding.process.pid, "SIGINT");
  assert.equal(await holding.line(), "released");
});

test("a lock that nobody refers to is released, but not once its signal was used", async (t) => {
  const holding = script(
    t,
    `const collected = async (isCollected) => {
      do {
        // A dereferenced WeakRef keeps its object until the next timer.
        await new Promise((resolve) => setTimeout(resolve, 5));
        globalThis.gc();
      } while (!(await isCollected()));
    };
    const isFree = async (name) => {
      const again = await hold(name, { waitMs: 0 }).catch((error) => error);
      if (again instanceof LockNotAcquired) return false;
      await again.release();
      return true;
    };
    // After each use, only a listener refers to the signal.
    const uses = {
      listener: (signal) => signal.addEventListener("abort", () => say("listener")),
      property: (signal) => (signal.onabort = () => say("property")),
      any: (signal) => AbortSignal.any([signal]).addEventListener("abort", () => say("any")),
    };
    const references = [];
    const use = async (name) => {
      const held = await hold("node-only-" + name);
      uses[name](held.signal);
      references.push(new WeakRef(held));
    };
    for (const name of Object.keys(uses)) await use(name);
    const { signal } = await hold("node-signal");
    const { token } = await hold("node-dropped");
    await collected(() => isFree("node-dropped"));
    const free = [signal.aborted];
    for (const name of ["node-signal", ...Object.keys(uses).map((name) => "node-only-" + name)]) {
      free.push(await isFree(name));
    }
    say(free.some((one) => one) ? "lost" : "kept");
    // After a loss, no reference keeps the lock.
    await collected(() => references.every((reference) => reference.deref() === undefined));
    say("collected");
    process.exit();`,
    { flags: ["--expose-gc"] },
  );
  assert.equal(await holding.line(), "kept");
  for (const name of ["listener", "property", "any"]) {
    process.kill(holder(`node-only-${name}`), "SIGKILL");
    assert.equal(await holding.line(), name);
  }
  assert.equal(await holding.line(), "collected");
});

test("the end of a worker releases its lock, and ends its wait", async () => {
  const worker = (name) => {
    const text = `import { parentPort } from "node:worker_threads";
      ${PROLOGUE}
      const held = await hold("${name}");
      parentPort.on("message", () => held.release());
      parentPort.postMessage(held.token);`;
    return new Worker(new URL(`data:text/javascript,${encodeURIComponent(text)}`));
  };
  const holding = worker("node-worker");
  assert.deepEqual(await once(holding, "message"), [1]);
  const waiting = worker("node-worker");
  await eventually(async () => (await waiters("node-worker")) === 1);
  await waiting.terminate();
  await eventually(async () => (await waiters("node-worker")) === 0);
  assert(!(await free("node-worker")));
  await holding.terminate();
  await eventually(() => free("node-worker"));
});

test("a fork neither releases nor keeps the lock", async (t) => {
  const file = join(scratch(t), "fork.js");
  writeFileSync(file, `process.on("message", () => {});`);
  const held = await hold("node-fork");
  const child = fork(file);
  t.after(() => child.kill("SIGKILL"));
  await once(child, "spawn");
  held.check();
  await held.release();
  assert(await free("node-fork"));
  assert.equal(child.exitCode, null);
});

test("a lock ends with its process, also if a fork lives longer", async (t) => {
  const file = join(scratch(t), "fork.js");
  writeFileSync(file, `process.on("disconnect", () => setInterval(() => {}, 1000));`);
  const holding = script(
    t,
    `import { fork } from "node:child_process";
    await hold("node-killed-holder");
    say(String(fork(${JSON.stringify(file)}).pid));`,
  );
  const child = Number(await holding.line());
  t.after(() => process.kill(child, "SIGKILL"));
  assert(!(await free("node-killed-holder")));
  holding.process.kill("SIGKILL");
  await eventually(() => free("node-killed-holder"));
  process.kill(child, 0);
});

test("a wait ends with its process", async (t) => {
  const held = await hold("node-orphan");
  const waiting = script(t, `await hold("node-orphan");`);
  await eventually(() => waiters("node-orphan"));
  waiting.process.kill("SIGKILL");
  await eventually(async () => (await waiters("node-orphan")) === 0);
  await held.release();
});

test("the exit code is known if another part of the process waits for all children", async (t) => {
  const directory = scratch(t);
  writeFileSync(
    join(directory, "reaper.c"),
    `#define _GNU_SOURCE
    #include <errno.h>
    #include <pthread.h>
    #include <string.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void *reap(void *unused) {
      for (;;) if (waitpid(-1, 0, 0) < 0) usleep(1000);
      return unused;
    }
    __attribute__((constructor)) static void start(void) {
      pthread_t thread;
      if (!strcmp(program_invocation_short_name, "node")) pthread_create(&thread, 0, reap, 0);
    }`,
  );
  const library = join(directory, "reaper.so");
  execFileSync("cc", ["-shared", "-fPIC", "-pthread", "-o", library, join(directory, "reaper.c")]);
  const held = await hold("node-reaped");
  const waiting = script(
    t,
    `await (await hold("node-reaped-own")).release();
    const error = await hold("node-reaped", { waitMs: 0 }).catch((error) => error);
    say(error.name + " " + error.code);`,
    { env: { ...process.env, LD_PRELOAD: library } },
  );
  assert.equal(await waiting.line(), "LockNotAcquired 75");
  assert.deepEqual(await waiting.exited, [0, null]);
  await held.release();
});

test("an exit is noticed during a callback", async () => {
  const held = await hold("node-callback");
  held.check();
  process.kill(holder("node-callback"), "SIGKILL");
  const end = Date.now() + 60_000;
  while (held.isValid()) assert(Date.now() < end, "it is not noticed");
  assert.throws(() => held.check(), LockLost);
  await assert.rejects(held.release(), LockLost);
});

test("without descriptors nothing is left, and the other lock is held", async (t) => {
  const limited = script(
    t,
    `import { execFileSync } from "node:child_process";
    import { openSync, closeSync, readdirSync } from "node:fs";
    const refused = async () => {
      const error = await hold("node-descriptors", { waitMs: 0 }).catch((error) => error);
      if (!(error instanceof LockNotAcquired)) throw error;
    };
    const held = await hold("node-descriptors");
    await refused();
    const count = () => readdirSync("/proc/self/fd").length - 1;
    const before = count(); // Two of the descriptors belong to the lock.
    const limit = 200;
    execFileSync("prlimit", ["--pid=" + process.pid, "--nofile=" + limit + ":" + limit]);
    const files = [];
    for (;;) {
      try { files.push(openSync("/dev/null")); } catch (error) { if (error.code !== "EMFILE") throw error; break; }
    }
    const reasons = [];
    for (let more = 0; more < 10; more++) {
      const error = await hold("node-descriptors", { waitMs: 0 }).catch((error) => error);
      reasons.push(error.name);
      held.check();
      closeSync(files.pop());
    }
    for (const file of files) closeSync(file);
    await refused();
    held.check();
    await held.release();
    for (const end = Date.now() + 60000; count() > before - 2; ) {
      if (Date.now() > end) throw new Error(count() + " descriptors instead of " + (before - 2));
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    say(reasons.join(" "));`,
  );
  const reasons = (await limited.line())?.split(" ");
  assert.equal(reasons?.length, 10);
  assert.equal(reasons[0], "LockError");
  assert(reasons.every((name) => name === "LockError" || name === "LockNotAcquired"), reasons.join());
  assert.deepEqual(await limited.exited, [0, null]);
});

test("a release of a program that leaves its output open ends", async (t) => {
  const { release } = timing;
  t.after(() => (timing.release = release));
  timing.release = 200;
  const program = printing(t, `sleep 1000 & echo $! > "$0.pid"; echo '{"lock":"it","token":1}'; wait\n`);
  const held = await acquire("it", { program });
  const descendant = Number(readFileSync(`${program}.pid`, "utf8"));
  t.after(() => process.kill(descendant, "SIGKILL"));
  await assert.rejects(held.release(), /did not confirm/);
});

test("a program that survives SIGKILL does not delay the release", async (t) => {
  if (process.geteuid() !== 0) return t.skip("needs root, to run a program as another user");
  const stopped = `echo '{"lock":"it","token":1}'; kill -STOP $$`;
  const program = printing(t, `exec setpriv --reuid=65534 --clear-groups sh -c "$(cat "$0.sh")"\n`);
  writeFileSync(`${program}.sh`, stopped);
  const text = `
    import { timing } from ${JSON.stringify(new URL("../src/lock.js", import.meta.url).href)};
    timing.release = 200;
    const held = await acquire("it", { program: ${JSON.stringify(program)} });
    const error = await held.release().catch((error) => error);
    say(error.name + " " + error.message);`;
  // The process must not be able to signal processes of other users.
  const powerless = ["--bounding-set=-kill", "--inh-caps=-kill"];
  const releasing = script(t, text, { powers: powerless });
  const survivor = await eventually(() => childOf(releasing.process.pid));
  t.after(() => process.kill(survivor, "SIGKILL"));
  assert.match(await releasing.line(), /^LockLost .*did not confirm/);
  process.kill(survivor, 0);
  assert.deepEqual(await releasing.exited, [0, null]);
});

test("a process that has copies of the descriptors does not delay the release", async (t) => {
  const sockets = () => {
    const isSocket = (fd) => {
      try {
        return readlinkSync(`/proc/self/fd/${fd}`).startsWith("socket:");
      } catch {
        return false; // The directory's own descriptor is closed by now.
      }
    };
    return readdirSync("/proc/self/fd").filter(isSocket).map(Number);
  };
  const before = sockets();
  const held = await hold("node-copied");
  const copies = sockets().filter((fd) => !before.includes(fd));
  assert.equal(copies.length, 2);
  const copying = spawn("sleep", ["1000"], { stdio: ["ignore", "ignore", "ignore", ...copies] });
  t.after(() => copying.kill("SIGKILL"));
  await once(copying, "spawn");
  await held.release();
  assert.equal(copying.exitCode, null);
});

test("a cancelled acquire leaves no listener and no lock", async (t) => {
  const program = printing(t, `echo '{"lock":"it","token":1}'; cat > /dev/null; : > "$0.released"\n`);
  for (let repeated = 0; repeated < 10; repeated++) {
    const cancelling = new AbortController();
    const acquiring = acquire("it", { program, signal: cancelling.signal });
    cancelling.abort(new Error("enough"));
    await assert.rejects(acquiring, /enough/);
  }
  await assert.rejects(acquire("it", { program: "/nonexistent" }), LockError);
});
