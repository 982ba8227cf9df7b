// Verifies a token with the npm package jose: node - KEY_SET_URL ISSUER TOKEN EARLY_SECONDS
//
// Prints the claims, or the code of the error. EARLY_SECONDS brings the token's expiry forward.

import { webcrypto } from 'node:crypto'
import { createRemoteJWKSet, jwtVerify } from 'jose'

// Global from Node 20 on; Debian 12 has Node 18.
globalThis.crypto ??= webcrypto

const [keySetUrl, issuer, token, earlySeconds] = process.argv.slice(2)
try {
  const { payload } = await jwtVerify(token, createRemoteJWKSet(new URL(keySetUrl)), {
    algorithms: ['ES256'],
    issuer,
    currentDate: new Date(Date.now() + Number(earlySeconds) * 1000),
    requiredClaims: ['iss', 'jti', 'iat', 'exp'],
  })
  console.log(JSON.stringify(payload))
} catch (error) {
  console.log(error.code ?? error)
  process.exit(1)
}
