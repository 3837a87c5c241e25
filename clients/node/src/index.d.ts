/// <reference lib="esnext.disposable" />

/** A snapshot of a candidate's status, with its deadline. The snapshot is invalid after the deadline,
 * and may be out of date even earlier. Read it again before each effect. */
export class Status {
  private constructor();
  /** All fields unchanged, for log messages; empty if they could not be read. The field
   * `leader` alone does not prove leadership. */
  readonly document: Readonly<Record<string, unknown>>;
  /** Returns the fencing token if the candidate leads at this instant, otherwise null. The result is
   * also null if the token is above 2^53 - 1, which a number cannot represent. */
  token(): number | null;
  /** Returns true if the candidate leads at this instant. */
  isLeader(): boolean;
  /** Returns the milliseconds until the deadline; 0 if the candidate does not lead. */
  validForMs(): number;
}

/** Reads `status.json` in a status directory. If the file is missing or damaged, the status reports
 * "not leader". */
export function readStatus(directory: string): Status;

/** The leadership has ended. */
export class NotLeader extends Error {
  readonly name: "NotLeader";
}

/** One leadership of this candidate. An ended term never becomes valid again. */
export class Term {
  private constructor();
  /** The fencing token. */
  readonly token: number;
  /** A signal that is aborted when this leadership has ended. The signal can be late, because it depends on timers.
   * `check` reads the clock. */
  readonly signal: AbortSignal;
  /** Returns true if this leadership has not ended at this instant. */
  isValid(): boolean;
  /** Throws `NotLeader` if this leadership has ended. Call it before each effect. */
  check(): void;
}

/** Reads the events of a daemon until it is closed. Events are handled between callbacks: a program whose
 * callback runs for longer than `lease.handoff_delay` notices a step-down too late. */
export class Follower {
  private constructor();
  /** Reason why the last stream ended or could not be opened, for log messages; null after an event. */
  readonly error: Error | null;
  /** Returns the fencing token if the candidate leads at this instant, otherwise null. */
  token(): number | null;
  /** Returns true if the candidate leads at this instant. */
  isLeader(): boolean;
  /** Waits until the candidate leads. Rejects with the reason of `signal`, or if the follower is
   * closed. */
  lead(options?: { signal?: AbortSignal }): Promise<Term>;
  /** Ends the stream and the current term. */
  close(): void;
  /** `close`, for `using`. */
  [Symbol.dispose](): void;
}

/** Follows the events of the daemon whose `http.listen` is `address`, such as `"127.0.0.1:9402"`.
 * The daemon must run on this machine. `signal` closes the follower. */
export function follow(address: string, options?: { signal?: AbortSignal }): Follower;

/** The lock could not be acquired: `leasehold` failed, and its error is on standard error. */
export class LockError extends Error {
  constructor(message: string, code?: number | null);
  readonly name: string;
  /** The exit code of `leasehold`; null if it has none. */
  readonly code: number | null;
}

/** Another process held the lock until the wait ended. */
export class LockNotAcquired extends LockError {
  readonly name: "LockNotAcquired";
}

/** The lock was lost. Stop the work: another process may hold the lock. */
export class LockLost extends LockError {
  readonly name: "LockLost";
}

/** A lock that this process holds. A lost or released lock never becomes valid again. The lock is
 * released if this object is garbage-collected before its `signal` was used. */
export class HeldLock {
  private constructor();
  readonly name: string;
  /** The fencing token. */
  readonly token: number;
  /** The number of the slot; null if the lock has no slots. */
  readonly slot: number | null;
  /** A signal that is aborted between callbacks, with `LockLost` when the lock is lost, and with another `LockError`
   * when the lock is released. After a use of the signal, the lock is held until its release or loss. */
  readonly signal: AbortSignal;
  /** Returns true if `leasehold` has not reported a loss, and the lock was not released. */
  isValid(): boolean;
  /** Throws the reason of `signal` unless the lock is held. Call it before each effect. */
  check(): void;
  /** Releases the lock. Rejects with `LockLost` if it was already lost, or if `leasehold` does not
   * confirm the release in time. Further calls wait for the first call and report its result. */
  release(): Promise<void>;
  /** `release`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

export interface LockOptions {
  /** Maximum time in milliseconds to wait for other holders. By default, and above 31 days, there
   * is no limit; 0 means no wait, but holders that seem to be dead are watched until they expire
   * (usually 24 s). */
  waitMs?: number;
  /** True for a shared lock. */
  shared?: boolean;
  /** Number of slots of the lock. A holder occupies one slot. */
  slots?: number;
  /** Additional flags of `leasehold lock`, such as `--mongodb-uri-file=PATH`. */
  arguments?: readonly string[];
  /** Path of the program; `leasehold` by default. */
  program?: string;
  /** Ends the wait for the lock. */
  signal?: AbortSignal;
}

/** Waits for the lock. The caller must release it. Rejects with `LockNotAcquired` if another process
 * holds the lock, and with `LockError` if `leasehold` fails. The messages of `leasehold` are on
 * standard error. */
export function acquire(name: string, options?: LockOptions): Promise<HeldLock>;

/** Acquires the lock, calls `work`, and releases the lock. Rejects with the error of `work`, or with
 * `LockLost` if the lock was lost. */
export function withLock<T>(
  name: string,
  options: LockOptions,
  work: (held: HeldLock) => T | Promise<T>,
): Promise<T>;
