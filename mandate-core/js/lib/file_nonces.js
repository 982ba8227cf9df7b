// Nonces in a directory that any number of processes of this machine share.
//
// A nonce is an empty file, in a folder for the hour of its end. The file is created so that only one process can (`wx`), and it
// and its folder are on disk before the answer is given: a process that dies after its claim leaves a used nonce.

import { createHash } from 'node:crypto';
import { mkdir, open, readdir, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';

/** Names a directory as a nonce store: nothing in any other is written or deleted. */
const MARKER = 'mandate-nonces';
const HOUR_MS = 60 * 60 * 1000;
/** How much longer than necessary a nonce is kept, so that a clock that is set back lets no replay pass. */
const GRACE_MS = 24 * HOUR_MS;

export class FileNonces {
  #directory;
  #clock;
  #opening;
  #sweptAt;

  /** @param {string} directory is created if it is not there */
  constructor(directory, { clock = Date.now } = {}) {
    this.#directory = resolve(directory);
    this.#clock = clock;
  }

  async claim(issuer, nonce, until) {
    this.#opening ??= this.#open();
    await this.#opening;
    const now = this.#clock();
    if (until + GRACE_MS < now) {
      throw new Error(`${this.#directory} forgets nonces a day after their end, so it cannot tell of ${nonce}`);
    }
    await this.#sweep(now);
    const folder = join(this.#directory, String(Math.floor(until / HOUR_MS)));
    if ((await mkdir(folder, { recursive: true })) !== undefined) await sync(this.#directory);
    const name = createHash('sha256').update(JSON.stringify([issuer, nonce])).digest('hex');
    try {
      await create(join(folder, name));
    } catch (error) {
      if (error.code === 'EEXIST') return false;
      throw error;
    }
    await sync(folder);
    return true;
  }

  async #open() {
    try {
      await mkdir(this.#directory, { recursive: true, mode: 0o700 });
      const names = await readdir(this.#directory);
      if (names.includes(MARKER)) return;
      if (names.length > 0) throw new Error(`${this.#directory} is there and not a nonce store`);
      await create(join(this.#directory, MARKER)).catch((error) => {
        if (error.code !== 'EEXIST') throw error;
      });
      await sync(this.#directory);
    } catch (error) {
      this.#opening = undefined;
      throw error;
    }
  }

  /** Deletes the folders whose nonces no verifier accepts any more. */
  async #sweep(now) {
    if (this.#sweptAt !== undefined && now - this.#sweptAt < HOUR_MS) return;
    this.#sweptAt = now;
    const names = await readdir(this.#directory);
    const old = names.filter((name) => /^\d+$/.test(name) && (Number(name) + 1) * HOUR_MS + GRACE_MS < now);
    await Promise.all(old.map((name) => rm(join(this.#directory, name), { recursive: true, force: true })));
  }
}

/** Creates a file that is not there, on disk. */
async function create(path) {
  const file = await open(path, 'wx', 0o600);
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Makes the names in a folder last. Windows has no such call. */
async function sync(folder) {
  if (process.platform === 'win32') return;
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
