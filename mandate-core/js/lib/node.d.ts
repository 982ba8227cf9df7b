import type { NonceStore } from './index.js';

export * from './index.js';

/** Nonces in a directory that any number of processes of this machine share. Node only. */
export class FileNonces implements NonceStore {
  constructor(directory: string, options?: { clock?: () => number });
  claim(issuer: string, nonce: string, until: number): Promise<boolean>;
}
