// The page in one file: the core's bytes are inside it.

import core from '../lib/core_bg.wasm';
import { useCore } from '../lib/index.js';
import './verify.js';

useCore(() => core);
