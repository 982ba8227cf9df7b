// Nonces that were accepted. A store has one method:
//
//   claim(issuer, nonce, until, now): true if the nonce was not claimed before and is now; false if it was.
//
// It may be asynchronous. Of any number of calls with one nonce exactly one gives true. An entry must be kept through `until`
// (milliseconds), and a store that cannot answer throws.

/** How many nonces a MemoryNonces keeps unless told otherwise. */
const DEFAULT_MOST = 1_000_000;
/** How often it forgets. */
const SWEEP_MS = 30 * 1000;

/** A store in memory, for one process. What was accepted shortly before a restart is accepted once more after it. */
export class MemoryNonces {
  #kept = new Map();
  #most;
  #clock;
  #sweptAt = 0;

  constructor({ most = DEFAULT_MOST, clock = Date.now } = {}) {
    this.#most = most;
    this.#clock = clock;
  }

  claim(issuer, nonce, until) {
    const name = JSON.stringify([issuer, nonce]);
    if (this.#kept.has(name)) return false;
    const now = this.#clock();
    if (this.#kept.size >= this.#most || now - this.#sweptAt >= SWEEP_MS) this.#sweep(now);
    if (this.#kept.size >= this.#most) {
      throw new Error(`the nonce store is full: it keeps at most ${this.#most}, and none of them has expired`);
    }
    // A token that is verified as of the past is remembered by the clock of today.
    this.#kept.set(name, Math.max(until, now));
    return true;
  }

  get size() {
    return this.#kept.size;
  }

  #sweep(now) {
    this.#sweptAt = now;
    for (const [name, until] of this.#kept) {
      if (until < now) this.#kept.delete(name);
    }
  }
}
