export { Follower, NotLeader, Term, follow } from "./events.js";
export { HeldLock, LockError, LockLost, LockNotAcquired, acquire, withLock } from "./lock.js";
export { Status, readStatus } from "./status.js";
