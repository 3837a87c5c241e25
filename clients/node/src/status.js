// The status of a candidate, from the file `status.json` or from an event.

import { closeSync, constants, fstatSync, openSync, readFileSync, readSync, statSync } from "node:fs";
import { join } from "node:path";

const SCHEMA = 1;
// A status has at most a few KiB. A longer text is not a status.
export const BYTES_MAX = 64 * 1024;
const DEADLINE_MAX = 2 ** 63;

export class Status {
  #token = null;
  #deadline = 0;

  constructor(text, { bootIdRequired = false } = {}) {
    this.document = parsed(text) ?? {};
    const { schema, leader, token, valid_until_boottime_ns: deadline } = this.document;
    if (schema !== SCHEMA || leader !== true) return;
    // A number above 2^53 may differ from the number that the daemon wrote.
    if (!Number.isSafeInteger(token) || token < 1) return;
    if (!Number.isInteger(deadline) || deadline >= DEADLINE_MAX) return;
    if (!isThisBoot(this.document, bootIdRequired) || !isThisClock(this.document)) return;
    this.#token = token;
    this.#deadline = deadline;
  }

  token() {
    return this.validForMs() > 0 ? this.#token : null;
  }

  isLeader() {
    return this.token() !== null;
  }

  validForMs() {
    if (this.#token === null) return 0;
    return Math.max(this.#deadline - boottimeNs(), 0) / 1e6;
  }
}

export function readStatus(directory) {
  try {
    return new Status(bounded(join(directory, "status.json")));
  } catch {
    return new Status("");
  }
}

/** Returns the text of a regular file; empty if it is another kind of file or too long. */
function bounded(path) {
  // Without O_NONBLOCK, a FIFO without a writer would block.
  const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    if (!fstatSync(file).isFile()) return "";
    const bytes = Buffer.alloc(BYTES_MAX + 1);
    let length = 0;
    for (let more = -1; more !== 0 && length < bytes.length; length += more) {
      more = readSync(file, bytes, length, bytes.length - length, null);
    }
    return length <= BYTES_MAX ? bytes.toString("utf8", 0, length) : "";
  } finally {
    closeSync(file);
  }
}

function parsed(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

/**
 * Returns false if the status is from another boot, if the boot is unknown and required, or if the boot
 * could not be read at this instant.
 */
function isThisBoot({ boot_id: theirs }, required) {
  const ours = ifShown(() => readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim());
  if (theirs === undefined || ours === undefined) return false;
  return theirs === null || ours === null ? !required : theirs === ours;
}

/** Returns false if the deadline is from another time namespace, whose clock differs. */
function isThisClock({ time_namespace: theirs = null }) {
  const ours = ifShown(() => statSync("/proc/self/ns/time").ino);
  if (ours === undefined) return false;
  return theirs === null || ours === null || theirs === ours;
}

/**
 * Returns null if this system does not show the file, and undefined after another error, such as
 * EMFILE, which may be temporary.
 */
function ifShown(read) {
  try {
    return read();
  } catch (error) {
    return ["ENOENT", "EACCES", "EPERM"].includes(error.code) ? null : undefined;
  }
}

/** A descriptor of the clock. It stays open, because a new descriptor may not be available later. */
let clock = null;
const reading = Buffer.alloc(64);

function openClock() {
  const { dev } = statSync("/proc");
  const file = openSync("/proc/uptime", constants.O_RDONLY);
  if (fstatSync(file).dev === dev) return file;
  closeSync(file);
  return null;
}

/**
 * Returns an instant up to 10 ms later than CLOCK_BOOTTIME, so that leadership never ends too late.
 * Node has no function for that clock: `process.hrtime` and timers stop while the machine is
 * suspended. `/proc/uptime` shows CLOCK_BOOTTIME, truncated to hundredths of a second, and one
 * hundredth is added. After 104 days, instants in nanoseconds are rounded by up to 1024 ns, even in a
 * deadline. If lxcfs replaces the file with the shorter uptime of the container, all deadlines count
 * as past.
 */
function boottimeNs() {
  try {
    clock ??= openClock();
    const length = readSync(clock, reading, 0, reading.length, 0);
    const uptime = reading.toString("latin1", 0, length).match(/^(\d+)\.(\d\d) /);
    return (Number(uptime[1] + uptime[2]) + 1) * 1e7 + 2048;
  } catch {
    clock = null; // Another part of the program may have closed the descriptor.
    return Infinity;
  }
}
