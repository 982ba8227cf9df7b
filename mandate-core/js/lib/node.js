// For Node: the core's bytes are read from the file beside this one.

import { readFileSync } from 'node:fs';
import { useCore } from './core_module.js';

useCore(() => readFileSync(new URL('./core_bg.wasm', import.meta.url)));

export * from './index.js';
export { FileNonces } from './file_nonces.js';
