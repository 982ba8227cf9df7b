// Verifies verdict tokens with the npm package jose for so many seconds: node verify.mjs KEY_SET TOKENS FORGED SECONDS
//
// KEY_SET, TOKENS and FORGED are files: a JWK set, tokens of one key, a line each, and one token that must be refused. Prints how
// many were verified, and the seconds and the seconds of processor time that it took.

import { webcrypto } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { errors, importJWK, jwtVerify } from 'jose'

// Global from Node 20 on; Debian 12 has Node 18.
globalThis.crypto ??= webcrypto

const issuer = 'https://verdicts.example'

async function verify(key, token) {
  const { payload } = await jwtVerify(token, key, {
    algorithms: ['ES256'],
    issuer,
    requiredClaims: ['iss', 'jti', 'iat', 'exp'],
  })
  const { amount, currency, recipient } = payload.request
  if (payload.verdict !== 'allow' || amount !== 40.5 || currency !== 'USD' || recipient !== 'vendor:acme') {
    throw new Error('not what was asked for')
  }
}

const [keySet, tokensFile, forgedFile, seconds] = process.argv.slice(2)
const key = await importJWK(JSON.parse(readFileSync(keySet, 'utf8')).keys[0], 'ES256')
const tokens = readFileSync(tokensFile, 'utf8').split('\n').filter((line) => line !== '')
const forged = readFileSync(forgedFile, 'utf8').trim()
try {
  await verify(key, forged)
  console.error('a forged token passes')
  process.exit(1)
} catch (error) {
  if (!(error instanceof errors.JWSSignatureVerificationFailed)) throw error
}
// One after the other: the next is begun when the one before is done.
for (const token of tokens) await verify(key, token)
const [start, used] = [performance.now(), process.cpuUsage()]
let count = 0
while (performance.now() - start < Number(seconds) * 1000) {
  for (let n = 0; n < 256; n++) await verify(key, tokens[count++ % tokens.length])
}
const { user, system } = process.cpuUsage(used)
console.log(count, (performance.now() - start) / 1000, (user + system) / 1e6)
