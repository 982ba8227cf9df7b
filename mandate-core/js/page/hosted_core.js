// On a server's page: the core is beside it, at the address that the page names.

import { useCore } from '../lib/index.js';

useCore(() => new URL(document.querySelector('meta[name=core]').content, location.href));
