// Where keys come from: a document that the caller has, or the issuer's published key set, fetched, cached and bounded.

import { KeySetError, UsageError } from './errors.js';

const WELL_KNOWN = '/.well-known/jwks.json';
/** The longest key set that is read, in bytes. */
const MAX_BYTES = 64 * 1024;
/** The longest time that a key set is kept, whatever its issuer says: a withdrawn key is gone within five minutes. */
const MAX_KEPT_MS = 5 * 60 * 1000;
/** The shortest time between two fetches, whatever tokens name and whatever the issuer answers. */
const MIN_REFETCH_MS = 30 * 1000;
const REQUEST_TIMEOUT_MS = 30 * 1000;
/** For how many issuers `publishedBy` keeps keys. */
const MAX_ISSUERS = 64;

const P256 = { name: 'ECDSA', namedCurve: 'P-256' };
const ES256 = { name: 'ECDSA', hash: 'SHA-256' };

/** Keys as they were read: the core's, and the platform's beside them. */
class ReadKeys {
  #imported = new Map();

  constructor(core, document, archive) {
    this.core = core;
    try {
      this.keys = core.Keys.parse(document, archive);
    } catch (error) {
      throw new KeySetError(`the key set is refused: ${error.message}`);
    }
  }

  has(kid) {
    return this.keys.jwk(kid) !== undefined;
  }

  /** Whether the platform finds the signature valid. Undefined where it cannot tell: then the core does the arithmetic. */
  async isSigned(token) {
    const subtle = globalThis.crypto?.subtle;
    const kid = subtle && this.core.namedKey(token);
    if (kid === undefined) return undefined;
    try {
      const key = await this.#import(subtle, kid);
      if (key === undefined) return undefined;
      const end = token.lastIndexOf('.');
      const signature = base64url(token.slice(end + 1));
      return await subtle.verify(ES256, key, signature, new TextEncoder().encode(token.slice(0, end)));
    } catch {
      return undefined;
    }
  }

  #import(subtle, kid) {
    let key = this.#imported.get(kid);
    if (key === undefined) {
      const jwk = this.keys.jwk(kid);
      if (jwk === undefined) return undefined;
      const { kty, crv, x, y } = JSON.parse(jwk);
      key = subtle.importKey('jwk', { kty, crv, x, y }, P256, false, ['verify']);
      this.#imported.set(kid, key);
    }
    return key;
  }
}

/** Keys that the caller has: a key set's text, its bytes, or the object. They do not age. */
export class KeySet {
  #document;
  #read;

  constructor(document) {
    if (typeof document === 'string') document = new TextEncoder().encode(document);
    else if (!(document instanceof Uint8Array)) document = new TextEncoder().encode(JSON.stringify(document));
    this.#document = document;
  }

  async keysFor(core) {
    this.#read ??= new ReadKeys(core, this.#document, true);
    return this.#read;
  }
}

/** The keys that an issuer publishes. They are fetched at the first use, and again when they have aged or lack a key. */
export class PublishedKeys {
  #url;
  #fetch;
  #clock;
  #kept; // { read, at, maxAgeMs }
  #failed; // { error, at }
  #fetching;

  /**
   * @param {string} issuer the issuer's address
   * @param {object} [options] `url`, where its key set is instead; `fetch` and `clock`, to replace the platform's
   */
  constructor(issuer, { url, fetch, clock = Date.now } = {}) {
    this.#url = url === undefined ? address(issuer) + WELL_KNOWN : address(url);
    this.#fetch = fetch ?? ((...request) => globalThis.fetch(...request));
    this.#clock = clock;
  }

  /** The keys for a token. If they lack the one it names they are fetched again, unless that was done or failed a moment ago. */
  async keysFor(core, token) {
    const kept = this.#kept;
    const keptMs = Math.max(kept?.maxAgeMs ?? 0, MIN_REFETCH_MS);
    if (kept === undefined || !isWithin(kept.at, keptMs, this.#clock())) return this.#fetched(core);
    const kid = core.namedKey(token);
    const lacksKey = kid !== undefined && !kept.read.has(kid);
    return lacksKey && !isWithin(kept.at, MIN_REFETCH_MS, this.#clock()) ? this.#fetched(core) : kept.read;
  }

  /** One fetch at a time, which serves all who wait. */
  #fetched(core) {
    if (this.#failed !== undefined && isWithin(this.#failed.at, MIN_REFETCH_MS, this.#clock())) throw this.#failed.error;
    this.#fetching ??= this.#fetchAndKeep(core).finally(() => {
      this.#fetching = undefined;
    });
    return this.#fetching;
  }

  async #fetchAndKeep(core) {
    const at = this.#clock();
    try {
      const { document, maxAgeMs } = await fetchKeySet(this.#url, this.#fetch);
      this.#kept = { read: new ReadKeys(core, document, false), at, maxAgeMs };
      this.#failed = undefined;
      return this.#kept.read;
    } catch (error) {
      this.#failed = { error, at: this.#clock() };
      throw error;
    }
  }
}

const published = new Map();

/** The keys of an issuer, which all calls share. */
export function publishedBy(issuer) {
  const keys = published.get(issuer) ?? new PublishedKeys(issuer);
  published.delete(issuer);
  published.set(issuer, keys);
  if (published.size > MAX_ISSUERS) published.delete(published.keys().next().value);
  return keys;
}

/** Whether `at` is less than `milliseconds` before `now`. After a clock was set back nothing counts as fresh. */
function isWithin(at, milliseconds, now) {
  return now >= at && now - at < milliseconds;
}

/** An address that may be reached: https anywhere, http on this machine only; without user, password, query or fragment. */
function address(text) {
  let url;
  try {
    url = new URL(text);
  } catch {
    throw new UsageError(`keys are not read from \`${text}\`: it must be a complete URL: https://, or on this machine http://`);
  }
  if (url.username !== '' || url.password !== '' || /[?#]/.test(text)) {
    throw new UsageError(`keys are not read from \`${url.host}\`: it must have no user, password, query or fragment`);
  }
  const isLocal = url.protocol === 'http:' && /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(url.hostname);
  if (url.protocol !== 'https:' && !isLocal) {
    throw new UsageError(`keys are not read from \`${text}\`: http is accepted for this machine only; use https`);
  }
  return text.replace(/\/+$/, '');
}

async function fetchKeySet(url, fetch) {
  const refused = (why, cause) => new KeySetError(`the key set cannot be fetched from ${url}: ${why}`, { cause });
  let response;
  try {
    // Neither the trust in a key set nor a cookie moves to another address.
    response = await fetch(url, {
      redirect: 'error',
      credentials: 'omit',
      cache: 'no-store',
      referrerPolicy: 'no-referrer',
      signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
    });
    if (!response.ok) throw refused(`HTTP ${response.status}`);
    const document = await bounded(response);
    if (document === undefined) throw refused(`it is longer than ${MAX_BYTES} bytes`);
    return { document, maxAgeMs: maxAgeMs(response.headers.get('cache-control') ?? '') };
  } catch (error) {
    throw error instanceof KeySetError ? error : refused(error.cause?.message ?? error.message, error);
  }
}

/** The bytes of an answer; undefined if there are more than a key set may have. */
async function bounded(response) {
  const reader = response.body.getReader();
  const bytes = new Uint8Array(MAX_BYTES);
  let length = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return bytes.slice(0, length);
    if (length + value.length > MAX_BYTES) {
      await reader.cancel();
      return undefined;
    }
    bytes.set(value, length);
    length += value.length;
  }
}

/** For how long `Cache-Control` (RFC 9111, section 5.2.2) lets an answer be kept. */
export function maxAgeMs(cacheControl) {
  const directives = cacheControl.split(',').map((directive) => directive.trim().toLowerCase());
  if (directives.includes('no-store') || directives.includes('no-cache')) return 0;
  for (const directive of directives) {
    const [, seconds] = /^max-age=(?:"(\d+)"|(\d+))$/.exec(directive)?.filter((part) => part !== undefined) ?? [];
    if (seconds !== undefined) return Math.min(Number(seconds) * 1000, MAX_KEPT_MS);
  }
  return 0;
}

function base64url(text) {
  return Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (char) => char.charCodeAt(0));
}
