// Holds a lock through `leasehold lock NAME`, which keeps it until its standard input closes.

import { spawn } from "node:child_process";

const NOT_ACQUIRED = 75;
// Codes of `leasehold` after its input was closed: done, or done after a stop signal.
const RELEASED = [0, 128 + 1, 128 + 2, 128 + 3, 128 + 15];
const LINE_MAX = 4096;

/** Durations in milliseconds, which tests change. */
export const timing = {
  // `leasehold` waits for MongoDB for at most 5 s.
  release: 10_000,
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

export class HeldLock {
  #program;
  #ended = new AbortController();
  #releasing = null;

  constructor(program, { lock, token, slot = null }) {
    Object.assign(this, { name: lock, token, slot });
    this.#program = program;
    program.exited.then((code) => this.#ended.abort(this.#lost(code)));
  }

  get signal() {
    return this.#ended.signal;
  }

  isValid() {
    return !this.signal.aborted;
  }

  check() {
    this.signal.throwIfAborted();
  }

  release() {
    this.#releasing ??= this.#release();
    return this.#releasing;
  }

  async [Symbol.asyncDispose ?? Symbol.for("nodejs.asyncDispose")]() {
    await this.release();
  }

  async #release() {
    const lost = !this.isValid();
    this.#ended.abort(new LockError(`lock ${this.name} was released`));
    const code = await this.#program.close();
    if (lost || !RELEASED.includes(code)) throw this.#lost(code);
  }

  #lost(code) {
    return new LockLost(`lock ${this.name} was lost`, code);
  }
}

/** A running `leasehold lock`. */
class Program {
  constructor(path, flags) {
    this.child = spawn(path, flags, { stdio: ["pipe", "pipe", "inherit"] });
    this.exited = new Promise((resolve) => {
      // Without a code it was ended by a signal, or not started.
      this.child.on("exit", (code) => resolve(code));
      this.child.on("error", (error) => {
        this.error = error;
        resolve(null);
      });
    });
    this.child.stdin.on("error", () => {}); // It has exited.
  }

  /** Returns the first line, incomplete if it ends or is too long. */
  firstLine() {
    const { stdout } = this.child;
    return new Promise((resolve) => {
      let text = "";
      let complete = false;
      stdout.setEncoding("utf8");
      stdout.on("data", (part) => {
        if (complete) return; // The rest is read, so that it does not block.
        text += part;
        const end = text.indexOf("\n") + 1;
        complete = end > 0 || text.length > LINE_MAX;
        if (complete) resolve(text.slice(0, end || LINE_MAX));
      });
      stdout.on("close", () => resolve(text));
      this.child.on("error", () => resolve(text));
    });
  }

  /** Closes its input, waits for its exit, and returns its code. */
  async close() {
    const timer = setTimeout(() => this.child.kill("SIGKILL"), timing.release);
    this.child.stdin.destroy();
    const code = await this.exited;
    clearTimeout(timer);
    return code;
  }
}

export async function acquire(name, options = {}) {
  const { waitMs, shared = false, slots, arguments: more = [], signal } = options;
  signal?.throwIfAborted();
  const flags = ["lock", name, ...more];
  if (waitMs !== undefined) flags.push(waitMs <= 0 ? "--no-wait" : `--wait=${Math.round(waitMs)}ms`);
  if (shared) flags.push("--shared");
  if (slots !== undefined) flags.push(`--slots=${slots}`);
  const program = new Program(options.program ?? "leasehold", flags);
  const stop = () => program.child.kill("SIGTERM"); // While it waits, it does not read its input.
  signal?.addEventListener("abort", stop);
  const line = await program.firstLine();
  signal?.removeEventListener("abort", stop);
  const held = parsed(line, name, slots);
  if (held && !signal?.aborted) return new HeldLock(program, held);
  stop();
  const code = await program.close();
  signal?.throwIfAborted();
  if (program.error) throw new LockError(`lock ${name}: ${program.error.message}`);
  if (line !== "") throw new LockError(`lock ${name}: leasehold printed an unexpected line: ${line}`);
  if (code === NOT_ACQUIRED) throw new LockNotAcquired(`lock ${name} is held by another process`, code);
  throw new LockError(`lock ${name}: leasehold exited with code ${code}`, code);
}

export async function withLock(name, options, work) {
  const held = await acquire(name, options);
  let result;
  try {
    result = await work(held);
  } catch (error) {
    // The error of the work is more informative than a loss.
    await held.release().catch(() => {});
    throw error;
  }
  await held.release();
  return result;
}

/** Returns the content of a complete line of this lock, otherwise null. */
function parsed(line, name, slots) {
  try {
    const held = JSON.parse(line.endsWith("\n") ? line : "");
    const { lock, token, slot } = held;
    const hasSlot = slots === undefined ? slot === undefined : Number.isInteger(slot);
    return lock === name && Number.isSafeInteger(token) && token > 0 && hasSlot ? held : null;
  } catch {
    return null;
  }
}
