// Verifies verdict tokens with our npm package for so many seconds: node verify_package.mjs KEY_SET TOKENS FORGED SECONDS
//
// KEY_SET, TOKENS and FORGED are files: a JWK set, tokens of one key, a line each, and one token that must be refused. Prints how
// many were verified, and the seconds and the seconds of processor time that it took.

import { webcrypto } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { KeySet, SignatureError, verifyVerdict } from '../js/mandate-core/lib/node.js'

// Global from Node 20 on; Debian 12 has Node 18.
globalThis.crypto ??= webcrypto

const [keySet, tokensFile, forgedFile, seconds] = process.argv.slice(2)
const options = {
  issuer: 'https://verdicts.example',
  keys: new KeySet(readFileSync(keySet)),
  environment: 'any',
  amount: '40.5',
  currency: 'USD',
  recipient: 'vendor:acme',
  nonces: 'elsewhere', // The libraries beside it keep none.
}
const tokens = readFileSync(tokensFile, 'utf8').split('\n').filter((line) => line !== '')
const forged = readFileSync(forgedFile, 'utf8').trim()
try {
  await verifyVerdict(forged, options)
  console.error('a forged token passes')
  process.exit(1)
} catch (error) {
  if (!(error instanceof SignatureError)) throw error
}
// One after the other: the next is begun when the one before is done.
for (const token of tokens) await verifyVerdict(token, options)
const [start, used] = [performance.now(), process.cpuUsage()]
let count = 0
while (performance.now() - start < Number(seconds) * 1000) {
  for (let n = 0; n < 256; n++) await verifyVerdict(tokens[count++ % tokens.length], options)
}
const { user, system } = process.cpuUsage(used)
console.log(count, (performance.now() - start) / 1000, (user + system) / 1e6)
