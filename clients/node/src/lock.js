// Holds a lock by running `leasehold lock NAME`, which holds the lock until its standard input
// closes.

import { spawn } from "node:child_process";
import { closeSync, existsSync, openSync, readFileSync } from "node:fs";

const NOT_ACQUIRED = 75;
// Longest wait that the program `leasehold` accepts.
const WAIT_MS_MAX = 31 * 24 * 3600 * 1000;
// Exit codes with which `leasehold` confirms a release: success, or a stop signal.
const RELEASED = [0, 128 + 1, 128 + 2, 128 + 3, 128 + 15];
const LINE_MAX = 4096;
// Descriptors that a new process needs: two for each of the two streams, and two for the result of
// exec.
const SPAWN_DESCRIPTORS = 6;

/** Durations in milliseconds, which tests change. */
export const timing = {
  // `leasehold` waits for MongoDB for at most 5 s.
  release: 10_000,
  // Maximum time until the exit after SIGKILL, or after the output has ended, on busy cores.
  exit: 5_000,
  poll: 10,
};

export class LockError extends Error {
  name = "LockError";

  constructor(message, code = null) {
    super(message);
    this.code = code;
  }
}

export class LockNotAcquired extends LockError {
  name = "LockNotAcquired";
}

export class LockLost extends LockError {
  name = "LockLost";
}

/** Releases locks that were garbage-collected. */
const dropped = new FinalizationRegistry(({ program, name }) => {
  process.emitWarning(`lock ${name} was dropped without a release`);
  program.close();
});

export class HeldLock {
  #program;
  #ended = new AbortController();
  #releasing = null;

  constructor(program, { lock, token, slot = null }) {
    Object.assign(this, { name: lock, token, slot });
    this.#program = program;
    // The program must not refer to this lock before the signal is used, so that a lock without
    // other references is collected.
    const held = new WeakRef(this);
    program.exited.then((code) => held.deref()?.#end(lost(lock, code)));
    dropped.register(this, { program, name: lock }, this);
  }

  get signal() {
    // A listener of the signal, or a signal that depends on it, may be the only reference to this
    // lock.
    if (!this.#ended.signal.aborted) this.#program.held = this;
    return this.#ended.signal;
  }

  isValid() {
    // The exit event may arrive only after the current callback.
    if (!this.#ended.signal.aborted && this.#program.hasExited()) this.#end(lost(this.name, null));
    return !this.#ended.signal.aborted;
  }

  check() {
    if (!this.isValid()) throw this.#ended.signal.reason;
  }

  release() {
    this.#releasing ??= this.#release();
    return this.#releasing;
  }

  async [Symbol.asyncDispose ?? Symbol.for("nodejs.asyncDispose")]() {
    await this.release();
  }

  async #release() {
    dropped.unregister(this);
    const isLost = !this.isValid();
    this.#end(new LockError(`lock ${this.name} was released`));
    const code = await this.#program.close();
    const reported = this.#program.reported();
    if (isLost || !RELEASED.includes(reported)) throw lost(this.name, code, !isLost && reported === null);
  }

  #end(reason) {
    this.#program.held = null;
    this.#ended.abort(reason);
  }
}

function lost(name, code, isUnconfirmed = false) {
  const unconfirmed = "may still be held until it expires: leasehold did not confirm the release";
  return new LockLost(`lock ${name} ${isUnconfirmed ? unconfirmed : "was lost"}`, code);
}

/** Throws if there are too few free descriptors for a process, because Node would then leave some of
 * them open. */
function requireDescriptors() {
  const files = [];
  try {
    while (files.length < SPAWN_DESCRIPTORS) files.push(openSync("/dev/null"));
  } finally {
    for (const file of files) closeSync(file);
  }
}

/** A running `leasehold lock`. */
class Program {
  /** The lock whose signal is used. This reference keeps the lock alive until its release or loss. */
  held = null;
  #name;
  #last = "";
  #closing = null;
  /** True after the exit or the end of the output, whichever is noticed first. */
  #isOver = false;

  constructor(name, path, flags) {
    this.#name = name;
    requireDescriptors();
    // A separate session, because only this process should get Ctrl-C. The input closes when this
    // process exits.
    this.child = spawn(path, flags, { stdio: ["pipe", "pipe", "inherit"], detached: true });
    this.exited = this.#exit();
    // Without free descriptors, the streams are missing.
    this.child.stdin?.on("error", () => {}); // The program has exited.
  }

  /**
   * Resolves with the exit code after the exit and the end of the output, or after a limit. A
   * descendant may keep the output open, another part of this process may have waited for the program,
   * or the program may survive SIGKILL.
   */
  async #exit() {
    const { child } = this;
    let exit = null; // A process that a signal ended has no code.
    await new Promise((resolve) => {
      let deadline = null;
      const check = () => {
        this.#isOver = true;
        deadline ??= performance.now() + timing.exit;
        const hasEnded = !child.stdout || child.stdout.closed;
        const isComplete = hasEnded && (exit !== null || this.#state() === "");
        if (isComplete || performance.now() >= deadline) resolve();
        else setTimeout(check, timing.poll).unref();
      };
      child.on("exit", (code) => {
        exit = { code };
        check();
      });
      child.stdout?.on("close", check);
      child.on("error", (error) => {
        if (child.pid !== undefined) return; // `error` reports that a signal could not be sent.
        this.error = error;
        resolve();
      });
    });
    child.unref(); // If no exit event arrives, Node must not wait for one.
    child.stdin?.destroy();
    child.stdout?.destroy();
    return this.reported() ?? exit?.code ?? null;
  }

  /** Returns the first line of the output, incomplete if the output ends or the line is too long. */
  firstLine() {
    const { stdout } = this.child;
    return new Promise((resolve) => {
      let text = "";
      let complete = false;
      this.child.on("error", () => resolve(text));
      stdout?.setEncoding("utf8");
      stdout?.on("data", (part) => {
        // The rest of the output is discarded, so that the program does not block.
        this.#last = (this.#last + part).slice(-LINE_MAX);
        if (complete) return;
        text += part;
        const end = text.indexOf("\n") + 1;
        complete = end > 0 || text.length > LINE_MAX;
        if (complete) resolve(text.slice(0, end || LINE_MAX));
      });
      stdout?.on("close", () => resolve(text));
    });
  }

  reported() {
    const lines = this.#last.split("\n");
    if (lines.pop() !== "") return null;
    const line = objectOf(lines.pop());
    return line?.lock === this.#name && Number.isInteger(line.exit_code) ? line.exit_code : null;
  }

  /** Returns true if the program has exited, even before the event of the exit. */
  hasExited() {
    return this.#isOver || ["", "X", "Z"].includes(this.#state());
  }

  /** Returns the state of the process: empty if there is no process, null if the state is unknown. */
  #state() {
    try {
      const stat = readFileSync(`/proc/${this.child.pid}/stat`, "latin1");
      return stat[stat.lastIndexOf(")") + 2];
    } catch (error) {
      // After any other error, such as EMFILE, only events report the exit.
      const isGone = error.code === "ESRCH" || (error.code === "ENOENT" && existsSync("/proc/self/stat"));
      return isGone ? "" : null;
    }
  }

  /**
   * Closes the input, so that the program releases the lock or leaves the queue. Waits for the exit and
   * returns the exit code.
   */
  close() {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close() {
    const kill = () => {
      this.child.kill("SIGKILL");
      this.child.stdout?.destroy(); // A descendant may keep the other end open.
    };
    const timer = setTimeout(kill, timing.release);
    // `end` shuts the socket down, because a process forked by a C library may keep copies of it
    // open.
    this.child.stdin?.end();
    const code = await this.exited;
    clearTimeout(timer);
    return code;
  }

  /** Ends a program that does not hold the lock. The program may not be `leasehold`. */
  abandon() {
    // After the exit, another process may have the id.
    if (!this.hasExited()) this.child.kill("SIGTERM");
    return this.close();
  }
}

export async function acquire(name, options = {}) {
  const { waitMs, shared = false, slots, arguments: more = [], signal } = options;
  signal?.throwIfAborted();
  const flags = ["lock", name, "--report-exit-code", ...more];
  if (waitMs !== undefined) flags.push(...waitFlags(waitMs));
  if (shared) flags.push("--shared");
  if (slots !== undefined) flags.push(`--slots=${slots}`);
  let program;
  try {
    program = new Program(name, options.program ?? "leasehold", flags);
  } catch (error) {
    throw new LockError(`lock ${name}: ${error.message}`);
  }
  const stop = () => program.abandon();
  signal?.addEventListener("abort", stop);
  const line = await program.firstLine();
  signal?.removeEventListener("abort", stop);
  const held = parsed(line, name, slots);
  if (held && !signal?.aborted) return new HeldLock(program, held);
  const code = await program.abandon();
  signal?.throwIfAborted();
  if (program.error) throw new LockError(`lock ${name}: ${program.error.message}`);
  if (line !== "" && program.reported() === null) {
    throw new LockError(`lock ${name}: leasehold printed an unexpected line: ${line}`);
  }
  // An older `leasehold` reports no error.
  const why = objectOf(line)?.error ?? `leasehold exited with code ${code}`;
  const Kind = code === NOT_ACQUIRED ? LockNotAcquired : LockError;
  throw new Kind(`lock ${name}: ${why}`, code);
}

/** Returns the flags for a maximum wait; none for a wait without a limit. */
function waitFlags(waitMs) {
  // The condition also refuses NaN, and null, which JavaScript would treat as 0.
  if (typeof waitMs !== "number" || !(waitMs >= 0)) {
    throw new RangeError(`waitMs must be a number of at least 0, not ${waitMs}`);
  }
  if (waitMs > WAIT_MS_MAX) return [];
  return [waitMs === 0 ? "--no-wait" : `--wait=${(waitMs / 1000).toFixed(3)}`];
}

export async function withLock(name, options, work) {
  const held = await acquire(name, options);
  let result;
  try {
    result = await work(held);
  } catch (error) {
    // The error of the work is more informative than the loss of the lock.
    await held.release().catch(() => {});
    throw error;
  }
  await held.release();
  return result;
}

/** Returns the content of a complete line of this lock, otherwise null. */
function parsed(line, name, slots) {
  const held = line.endsWith("\n") ? objectOf(line) : null;
  const { lock, token, slot } = held ?? {};
  const hasSlot = slots === undefined ? slot === undefined : Number.isInteger(slot);
  return lock === name && Number.isSafeInteger(token) && token > 0 && hasSlot ? held : null;
}

/** Returns the JSON object of a line, otherwise null. */
function objectOf(line) {
  try {
    const value = JSON.parse(line);
    return typeof value === "object" ? value : null;
  } catch {
    return null;
  }
}
