// A status file is trusted until its deadline, and no longer.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { readStatus } from "../src/index.js";
import { AUTHORITY_MAX_NS, Daemon, LONG, boottimeNs, eventually, good, inputs, scratch } from "./testbed.js";

/** Returns a function that writes a file and reads it as a status. */
function reader(test) {
  const directory = scratch(test);
  return (text) => {
    writeFileSync(join(directory, "status.json"), text);
    return readStatus(directory);
  };
}

function notLeader(status) {
  assert.deepEqual([status.token(), status.isLeader(), status.validForMs()], [null, false, 0]);
}

test("a valid file leads", (t) => {
  const status = reader(t)(good());
  assert.deepEqual([status.token(), status.isLeader()], [7, true]);
  assert(status.validForMs() > 3_000_000 && status.validForMs() <= 3_600_000);
  assert.equal(status.document.lease, "orders");
});

test("a deadline is compared at each call, and ends the leadership early", async (t) => {
  const read = reader(t);
  let status, until;
  // A busy machine may need longer than the first deadline.
  for (let brief = 200; !status?.isLeader(); brief *= 2) {
    assert(brief < LONG, "it does not lead");
    until = boottimeNs() + brief * 1e6;
    status = read(good({ valid_until_boottime_ns: until }));
  }
  // The status is invalid at the deadline, even if the clock is about to tick.
  await eventually(() => {
    const before = boottimeNs();
    const leads = status.isLeader();
    assert(!leads || before + 10_000_000 <= until);
    return !leads;
  });
  assert(boottimeNs() + 10_000_000 >= until);
  notLeader(status);
});

test("a passed deadline is not leader", (t) => {
  notLeader(reader(t)(good({ valid_until_boottime_ns: boottimeNs() })));
});

test("a FIFO is not leader", (t) => {
  const directory = scratch(t);
  execFileSync("mkfifo", [join(directory, "status.json")]);
  // A blocking read could not be interrupted in this process, so another process reads the file.
  const script = `import { readStatus } from "./src/index.js"; console.log(readStatus("${directory}").token());`;
  const flags = ["--input-type=module", "--eval", script];
  assert.equal(execFileSync(process.execPath, flags, { encoding: "utf8", timeout: 30_000 }), "null\n");
});

test("another boot is not leader", (t) => {
  const read = reader(t);
  notLeader(read(good({ boot_id: "00000000-0000-0000-0000-000000000000" })));
  // A daemon that could not read the boot id wrote null. The reader then checks only the deadline.
  assert(read(good({ boot_id: null })).isLeader());
});

test("a boot that cannot be read now is not leader", (t) => {
  const directory = scratch(t);
  writeFileSync(join(directory, "status.json"), good());
  // Only the read of the boot id fails, because the clock also needs a descriptor.
  const script = `
    import fs from "node:fs";
    import { syncBuiltinESMExports } from "node:module";
    const read = fs.readFileSync;
    fs.readFileSync = (path, ...more) => {
      if (path === process.argv[1]) throw Object.assign(new Error("too many open files"), { code: "EMFILE" });
      return read(path, ...more);
    };
    syncBuiltinESMExports();
    const { readStatus } = await import("./src/index.js");
    console.log(readStatus("${directory}").token());`;
  const read = (fails) => {
    const flags = ["--input-type=module", "--eval", script, fails];
    return execFileSync(process.execPath, flags, { encoding: "utf8", timeout: 30_000 });
  };
  assert.equal(read("/nonexistent"), "7\n");
  assert.equal(read("/proc/sys/kernel/random/boot_id"), "null\n");
});

test("without descriptors the clock is still read", (t) => {
  const directory = scratch(t);
  writeFileSync(join(directory, "status.json"), good());
  const script = `
    import { execFileSync } from "node:child_process";
    import { openSync } from "node:fs";
    const { readStatus } = await import("./src/index.js");
    const status = readStatus("${directory}");
    status.token();
    execFileSync("prlimit", ["--pid=" + process.pid, "--nofile=200:200"]);
    for (;;) {
      try {
        openSync("/dev/null");
      } catch (error) {
        console.log(error.code, status.token(), readStatus("${directory}").token());
        process.exit();
      }
    }`;
  const flags = ["--input-type=module", "--eval", script];
  const output = execFileSync(process.execPath, flags, { encoding: "utf8", timeout: 30_000 });
  assert.equal(output, "EMFILE 7 null\n");
});

test("another time namespace is not leader", (t) => {
  const read = reader(t);
  notLeader(read(good({ time_namespace: 1 })));
  notLeader(read(good({ time_namespace: "x" })));
});

test("no file is not leader", (t) => {
  const status = readStatus(join(scratch(t), "absent"));
  notLeader(status);
  assert.deepEqual(status.document, {});
});

test("a directory or a long file is not leader", (t) => {
  const directory = scratch(t);
  const file = join(directory, "status.json");
  writeFileSync(file, good() + " ".repeat(65536));
  notLeader(readStatus(directory));
  rmSync(file);
  mkdirSync(file);
  notLeader(readStatus(directory));
});

test("a partial file is not leader", (t) => {
  const read = reader(t);
  const text = good();
  for (let length = 0; length < text.length; length++) notLeader(read(text.slice(0, length)));
});

test("hostile files are not leader", (t) => {
  const read = reader(t);
  for (const [name, text] of inputs("files")) {
    assert.equal(read(text).token(), null, `${name}: ${text.subarray(0, 150)}`);
  }
});

test("a token that a number cannot represent is not leader", (t) => {
  const read = reader(t);
  notLeader(read(good({ token: 2 ** 53 })));
  assert.equal(read(good({ token: 2 ** 53 - 1 })).token(), 2 ** 53 - 1);
});

test("another file that is mounted on the clock is not the clock", (t) => {
  const directory = scratch(t);
  writeFileSync(join(directory, "status.json"), good());
  writeFileSync(join(directory, "uptime"), "1.00 1.00\n");
  const script = `import { readStatus } from "./src/index.js"; console.log(readStatus("${directory}").token());`;
  const read = (mount) => {
    const shell = `${mount} && exec "$0" --input-type=module --eval "$1"`;
    const unshared = ["--mount", "--map-root-user", "sh", "-c", shell, process.execPath, script];
    return execFileSync("unshare", unshared, { encoding: "utf8" });
  };
  try {
    read("true");
  } catch (error) {
    return t.skip(`unshare is not permitted: ${error.message}`);
  }
  assert.equal(read("true"), "7\n");
  assert.equal(read(`mount --bind '${directory}/uptime' /proc/uptime`), "null\n");
});

test("a frozen daemon is leader until its deadline", async (t) => {
  const daemon = await Daemon.start(t, "node-frozen-file", "a");
  const token = await daemon.leads();
  daemon.signal("SIGSTOP");
  const stopped = boottimeNs();
  const frozen = daemon.status();
  const until = frozen.document.valid_until_boottime_ns;
  assert.equal(frozen.token(), token);
  await eventually(() => !daemon.status().isLeader());
  // Leadership ends at most 10 ms early, and the clock of this test is up to 10 ms behind.
  assert(boottimeNs() > until - 21_000_000);
  notLeader(frozen);
  // The file still contains leader: true.
  assert.equal(daemon.status().document.leader, true);
  await eventually(() => boottimeNs() > stopped + AUTHORITY_MAX_NS);
  daemon.signal("SIGCONT");
  await eventually(() => daemon.status().token() > token);
});

test("a follower is not leader", async (t) => {
  const a = await Daemon.start(t, "node-follower", "a");
  await a.leads();
  const b = await Daemon.start(t, "node-follower", "b");
  await b.follows("a");
  notLeader(b.status());
  assert(a.status().isLeader());
});
