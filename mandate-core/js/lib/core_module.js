// The core: mandate-core as WebAssembly. It is loaded once, at the first use.

import initialize, * as core from './core.js';

let source = () => new URL('./core_bg.wasm', import.meta.url);
let loading;

/** Takes the core from elsewhere than the file beside this one: `give` gives its bytes, a URL or a compiled module. */
export function useCore(give) {
  source = give;
  loading = undefined;
}

/** The core's functions. */
export function loadCore() {
  loading ??= load();
  return loading;
}

async function load() {
  try {
    await initialize({ module_or_path: await source() });
    return core;
  } catch (error) {
    loading = undefined; // A file that could not be fetched may be there the next time.
    throw error;
  }
}
