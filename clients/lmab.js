/**
 * Client of `lmab serve` for product code, in one file without dependencies (browsers, Node 18 and later).
 *
 * `decide` never rejects and never takes longer than its deadline: after any failure it resolves to the caller's default
 * arm. Rewards wait in a queue and are sent again until the service accepts or refuses them. Both requests are
 * idempotent, so sending one twice stores it once. `src/lmab/client.py` is the same client in Python.
 *
 *     import { Client } from "./lmab.js";
 *     const client = new Client("https://lmab.example.com", { token, deadline: 200 });
 *     const { arm, fromService } = await client.decide("visit-17", 0, "tea", { allowed: ["tea", "milk"] });
 *     client.reward("visit-17", 0, 1);
 *     await client.close();
 */

const SESSIONS = 100000; // sessions with a default arm that the client remembers
const BATCH = 500; // rewards of one request; the service takes up to 1000
const SLOW = 5000; // milliseconds that a request with rewards may take: no visitor waits for it
const FIRST_PAUSE = 200, LONGEST_PAUSE = 30000; // milliseconds after a failure; each pause doubles the one before
const FAILURES = 5; // consecutive failures that open the circuit
const UNAVAILABLE = [408, 425, 429]; // statuses below 500 after which the same request can succeed later

class Refused extends Error {
  constructor(status, body) {
    super(`${status} ${body && body.code ? body.code : ""}`.trim());
    this.status = status;
  }
}

export class Client {
  /**
   * @param {string} address of the service or of the proxy in front of it
   * @param {object} [options] `token`, `experiment`, `deadline` (milliseconds of a decision) and `waiting` (rewards that
   *   may wait in the queue; the oldest ones are dropped and counted)
   */
  constructor(address, { token = "", experiment = "default", deadline = 200, waiting = 10000 } = {}) {
    if (!(deadline > 0)) throw new RangeError(`deadline must be above 0 milliseconds, got ${deadline}`);
    const folder = experiment === "default" ? "" : `/experiments/${encodeURIComponent(experiment)}`;
    this.base = `${new URL(address).href.replace(/\/+$/, "")}/v1${folder}`;
    this.headers = { "Content-Type": "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) };
    this.deadline = deadline;
    this.waiting = waiting;
    this.counts = {}; // decided, "default: FAILURE", rewards-sent, rewards-refused, rewards-dropped
    this.failures = 0;
    this.closedUntil = 0;
    this.trial = false;
    this.defaulted = new Map(); // session -> its first step with a default arm
    this.rewards = [];
    this.sending = 0;
    this.pause = 0;
    this.timer = null;
    this.stopped = false;
  }

  /**
   * Resolve to the arm of a step, or to `fallback` if the service gives none within the deadline:
   * `{arm, propensity, fromService, failure, response}`. After a default arm, the rest of the session gets default arms as
   * well, and no reward is sent from that step on. If several processes serve one session, keep `fromService` with it and
   * do not ask again once it was false.
   */
  async decide(session, step, fallback, { reward = null, ...fields } = {}) {
    const first = this.defaulted.get(session);
    if (first !== undefined && step > first) {
      if (reward !== null && step - 1 < first) this.reward(session, step - 1, reward);
      return this.#default(fallback, session, step, "earlier-failure");
    }
    let failure = this.#refusedByCircuit();
    if (!failure) {
      const [reason, response] = await this.#ask({ session, step, reward, ...fields });
      if (response) {
        this.#count("decided");
        this.defaulted.delete(session);
        return { arm: response.label, propensity: response.propensity, fromService: true, failure: "", response };
      }
      failure = reason;
    }
    if (reward !== null && step > 0) this.reward(session, step - 1, reward); // the request may not have arrived
    return this.#default(fallback, session, step, failure);
  }

  async #ask(body) {
    try {
      const response = await this.#post("/decide", body, this.deadline);
      if (response === null || typeof response !== "object" || !("label" in response) || !("propensity" in response)) {
        this.#record(false);
        return ["malformed-response", null];
      }
      this.#record(true);
      return ["", response];
    } catch (error) {
      if (error instanceof Refused) {
        this.#record(error.status < 500 && !UNAVAILABLE.includes(error.status));
        return [error.message, null];
      }
      this.#record(false);
      if (error && error.name === "AbortError") return ["timeout", null];
      return [error instanceof SyntaxError ? "malformed-response" : "connection", null];
    }
  }

  #default(fallback, session, step, failure) {
    this.#count(`default: ${failure}`);
    const first = Math.min(step, this.defaulted.get(session) ?? step);
    this.defaulted.delete(session); // the newest entry is the last one
    this.defaulted.set(session, first);
    if (this.defaulted.size > SESSIONS) this.defaulted.delete(this.defaulted.keys().next().value);
    return { arm: fallback, propensity: null, fromService: false, failure, response: null };
  }

  /** While the circuit is open the service is not asked; after each pause one decision tries it. */
  #refusedByCircuit() {
    if (this.failures < FAILURES) return "";
    if (Date.now() < this.closedUntil || this.trial) return "circuit-open";
    this.trial = true;
    return "";
  }

  #record(available) {
    this.trial = false;
    this.failures = available ? 0 : this.failures + 1;
    if (this.failures >= FAILURES) {
      const pause = Math.min(FIRST_PAUSE * 2 ** Math.min(this.failures - FAILURES, 30), LONGEST_PAUSE);
      this.closedUntil = Date.now() + pause;
    }
  }

  /** Send a reward in the background, again and again until the service accepts or refuses it. */
  reward(session, step, reward) {
    const first = this.defaulted.get(session);
    if (this.stopped || (first !== undefined && step >= first)) {
      this.#count("rewards-dropped");
      return;
    }
    if (this.rewards.length >= this.waiting) {
      this.rewards.shift();
      this.#count("rewards-dropped");
    }
    this.rewards.push({ session, step, reward });
    this.#schedule();
  }

  #schedule() {
    if (this.timer !== null || this.sending || this.stopped || !this.rewards.length) return;
    this.timer = setTimeout(() => {
      this.timer = null;
      this.#sendRewards();
    }, this.pause);
    if (this.timer.unref) this.timer.unref();
  }

  async #sendRewards() {
    const batch = this.rewards.splice(0, BATCH);
    this.sending = batch.length;
    const again = await this.#send(batch);
    this.sending = 0;
    const room = Math.max(this.waiting - this.rewards.length, 0);
    this.#count("rewards-dropped", Math.max(again.length - room, 0));
    this.rewards.unshift(...again.slice(0, room));
    this.pause = again.length ? Math.min(Math.max(2 * this.pause, FIRST_PAUSE), LONGEST_PAUSE) : 0;
    this.#schedule();
  }

  /** Send rewards and resolve to those to send again. The service takes all of a request or none. */
  async #send(batch) {
    try {
      await this.#post("/rewards", { rewards: batch }, SLOW);
      this.#count("rewards-sent", batch.length);
      return [];
    } catch (error) {
      const again = !(error instanceof Refused) || error.status >= 500 || [...UNAVAILABLE, 401, 403].includes(error.status);
      if (again) return batch;
      if (batch.length === 1) {
        this.#count("rewards-refused");
        return [];
      }
      const left = [];
      for (const one of batch) left.push(...(await this.#send([one])));
      return left;
    }
  }

  async #post(path, body, milliseconds) {
    const abort = new AbortController();
    const timer = setTimeout(() => abort.abort(), milliseconds);
    try {
      const options = { method: "POST", headers: this.headers, body: JSON.stringify(body), signal: abort.signal };
      const response = await fetch(this.base + path, options);
      const text = await response.text();
      if (response.status === 200) return JSON.parse(text);
      let refusal = null;
      try {
        refusal = JSON.parse(text);
      } catch {
        // a proxy answered
      }
      throw new Refused(response.status, refusal);
    } finally {
      clearTimeout(timer);
    }
  }

  #count(name, n = 1) {
    if (n) this.counts[name] = (this.counts[name] ?? 0) + n;
  }

  /** Wait until no reward is left in the queue; resolve to how many are left after the timeout in milliseconds. */
  async flush(timeout = 5000) {
    const until = Date.now() + timeout;
    while ((this.rewards.length || this.sending) && Date.now() < until) {
      this.#schedule();
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    return this.rewards.length + this.sending;
  }

  /** Send the rewards that wait, for at most `timeout` milliseconds; resolve to how many were lost. */
  async close(timeout = 5000) {
    const lost = await this.flush(timeout);
    this.stopped = true;
    if (this.timer !== null) clearTimeout(this.timer);
    return lost;
  }
}
