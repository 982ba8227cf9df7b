// For browsers and workers. In Node, node.js is used instead, which adds a nonce store in files.

export * from './errors.js';
export { PublishedKeys, KeySet } from './key_set.js';
export { MemoryNonces } from './nonces.js';
export { checkEvent, checkVerdict, evaluate, verifyContract, verifyEvent, verifyProof, verifyVerdict } from './verify.js';
export { useCore } from './core_module.js';
