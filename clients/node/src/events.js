// Follows `GET /events` of a daemon on this machine.

import http from "node:http";
import { BYTES_MAX, Status } from "./status.js";

/** Durations in milliseconds, which tests change. */
export const timing = {
  reconnect: 1000,
  // The daemon sends a comment after 5 s without an event.
  silence: 15_000,
  // The interval is short because timers stop while the machine is suspended.
  poll: 100,
};

export class NotLeader extends Error {
  name = "NotLeader";
}

export class Term {
  #status;
  #ended = new AbortController();
  #timer;

  constructor(token, status) {
    this.token = token;
    this.#status = status;
    this.#watch();
  }

  get signal() {
    return this.#ended.signal;
  }

  isValid() {
    if (this.#status.token() !== this.token) this.end();
    return !this.signal.aborted;
  }

  check() {
    if (!this.isValid()) throw new NotLeader(`the leadership with token ${this.token} has ended`);
  }

  /** Adopts a later status of the same leadership. Returns false for any other status. */
  extend(status) {
    if (!this.isValid() || status?.token() !== this.token) return false;
    this.#status = status;
    return true;
  }

  end() {
    clearTimeout(this.#timer);
    this.#ended.abort(new NotLeader(`the leadership with token ${this.token} has ended`));
  }

  #watch() {
    if (!this.isValid()) return;
    const pause = Math.min(timing.poll, this.#status.validForMs());
    this.#timer = setTimeout(() => this.#watch(), pause);
  }
}

export class Follower {
  #address;
  #term = null;
  #closed = new AbortController();
  #waiting = new Set();
  #request = null;
  #timer;

  constructor(address, { signal } = {}) {
    this.error = null;
    this.#address = address;
    if (signal?.aborted) return this.close();
    signal?.addEventListener("abort", () => this.close(), { once: true });
    this.#connect();
  }

  token() {
    return this.#term?.isValid() ? this.#term.token : null;
  }

  isLeader() {
    return this.token() !== null;
  }

  lead({ signal } = {}) {
    return new Promise((resolve, reject) => {
      const signals = [this.#closed.signal, ...(signal ? [signal] : [])];
      const settle = () => {
        const aborted = signals.find((one) => one.aborted);
        if (!aborted && !this.isLeader()) return;
        this.#waiting.delete(settle);
        for (const one of signals) one.removeEventListener("abort", settle);
        if (aborted) reject(aborted.reason);
        else resolve(this.#term);
      };
      this.#waiting.add(settle);
      for (const one of signals) one.addEventListener("abort", settle);
      settle();
    });
  }

  close() {
    this.#closed.abort(new Error("the follower is closed"));
    clearTimeout(this.#timer);
    this.#request?.destroy();
    this.#accept(null);
  }

  [Symbol.dispose ?? Symbol.for("nodejs.dispose")]() {
    this.close();
  }

  #connect() {
    // Ignores proxy settings of the environment and follows no redirects.
    const request = http.get(`http://${this.#address}/events`, {
      agent: new http.Agent(),
      headers: { Accept: "text/event-stream" },
      timeout: timing.silence,
    });
    this.#request = request;
    request.on("timeout", () => request.destroy(new Error("the event stream timed out")));
    request.on("error", (error) => (this.error = error)); // "close" follows.
    request.on("close", () => {
      // Without the stream, a step-down of the daemon would go unnoticed.
      this.#accept(null);
      if (this.#closed.signal.aborted) return;
      this.#timer = setTimeout(() => this.#connect(), timing.reconnect);
    });
    request.on("response", (answer) => {
      answer.on("error", (error) => (this.error = error));
      if (answer.statusCode !== 200) {
        return request.destroy(new Error(`unexpected HTTP status ${answer.statusCode}`));
      }
      answer.on("end", () => request.destroy(new Error("the stream has ended")));
      let rest = "";
      answer.setEncoding("utf8");
      answer.on("data", (text) => {
        const lines = (rest + text).split("\n");
        rest = lines.pop();
        if (lines.every((line) => this.#line(line)) && rest.length <= BYTES_MAX) return;
        request.destroy(new Error("invalid line in the event stream"));
      });
    });
  }

  /** Returns false if the line is not part of a stream of events. */
  #line(line) {
    if (!line.startsWith("data:")) return true;
    const status = new Status(line.slice("data:".length), { bootIdRequired: true });
    this.#accept(status);
    const isEvent = Object.keys(status.document).length > 0;
    if (isEvent) this.error = null;
    return isEvent;
  }

  #accept(status) {
    if (this.#closed.signal.aborted) status = null;
    if (this.#term?.extend(status)) return;
    this.#term?.end();
    const token = status?.token() ?? null;
    this.#term = token === null ? null : new Term(token, status);
    for (const settle of [...this.#waiting]) settle();
  }
}

export function follow(address, options) {
  return new Follower(address, options);
}
