// Daemons and inputs for the tests. `cargo test --test clients` sets the environment.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";

import { readStatus } from "../src/index.js";

function setting(name) {
  const value = process.env[`CLIENT_TEST_${name}`];
  assert(value, `CLIENT_TEST_${name} is not set: run cargo test --test clients`);
  return value;
}

export const PROGRAM = setting("PROGRAM");
export const STORE = `--mongodb-uri-file=${setting("URI_FILE")}`;
const TIMINGS = setting("TIMINGS").split(" ");
const INPUTS = setting("INPUTS");
/** Ports that stay reserved, because a daemon that was killed starts again on its port. */
const PORTS = setting("PORTS").split(" ");
export const LONG = 60_000;

/**
 * More than the renew_deadline of the timings: after this time, a frozen daemon has no authority.
 * The file may be a renewal behind the daemon.
 */
export const AUTHORITY_MAX_NS = 5_000_000_000;

/** CLOCK_BOOTTIME, not later than now. */
export function boottimeNs() {
  return Number(readFileSync("/proc/uptime", "utf8").split(" ")[0].replace(".", "")) * 1e7;
}

/** Polls until the condition returns a true value, and returns that value. */
export async function eventually(condition) {
  for (const end = Date.now() + LONG; Date.now() < end; await sleep(5)) {
    const found = await condition();
    if (found) return found;
  }
  assert.fail("the condition does not hold");
}

export function aborted(signal) {
  return eventually(() => signal.aborted);
}

export function inputs(kind) {
  const names = readdirSync(join(INPUTS, kind)).sort();
  assert(names.length > 20, names);
  return names.map((name) => [name, readFileSync(join(INPUTS, kind, name))]);
}

/** Returns the JSON of a leader with token 7 for the next hour, with changed fields. */
export function good(changes) {
  const text = readFileSync(join(INPUTS, "good"), "utf8").trim();
  return changes ? JSON.stringify({ ...JSON.parse(text), ...changes }) : text;
}

/** Returns a directory that is removed at the end of the test. */
export function scratch(test) {
  const directory = mkdtempSync(join(tmpdir(), "leasehold-"));
  test.after(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** Returns a shell script as a program. */
export function printing(test, script) {
  const program = join(scratch(test), "leasehold");
  writeFileSync(program, `#!/bin/sh\n${script}`);
  chmodSync(program, 0o700);
  return program;
}

/** Runs a command to its end, and returns its standard output. */
export async function leasehold(...words) {
  const { stdout } = await promisify(execFile)(PROGRAM, words);
  return stdout;
}

/** A daemon that ends with the test or with this process. */
export class Daemon {
  static async start(test, lease, identity) {
    const daemon = new Daemon();
    daemon.address = `127.0.0.1:${PORTS.pop()}`;
    test.after(() => daemon.kill());
    daemon.directory = join(scratch(test), "status");
    daemon.flags = [
      ...["--pdeathsig", "KILL", PROGRAM, "run", `--lease=${lease}`, `--identity=${identity}`, STORE],
      ...[`--status-directory=${daemon.directory}`, `--http-listen=${daemon.address}`],
      ...["--lease-handoff-delay=0s", ...TIMINGS],
    ];
    daemon.start();
    return daemon;
  }

  start() {
    this.process = spawn("setpriv", this.flags, { stdio: ["ignore", "ignore", "inherit"] });
    this.exited = once(this.process, "exit");
  }

  async kill() {
    this.process.kill("SIGKILL");
    await this.exited;
  }

  signal(name) {
    assert(this.process.kill(name));
  }

  status() {
    return readStatus(this.directory);
  }

  /** Waits until the status file says leader, and returns the token. */
  leads() {
    return eventually(() => this.status().token());
  }

  follows(leader) {
    return eventually(() => {
      const { role, holder } = this.status().document;
      return role === "follower" && holder?.identity === leader;
    });
  }
}
