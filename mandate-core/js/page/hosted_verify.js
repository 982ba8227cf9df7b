// The page that verifies, as a server sends it.

import './hosted_core.js';
import './verify.js';
