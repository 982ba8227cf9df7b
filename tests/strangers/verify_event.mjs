// Verifies an event with the npm package jose, as a webhook receiver does: node - KEY_SET_URL ISSUER TOKEN
//
// Prints the claims, or the code of the error.

import { webcrypto } from 'node:crypto'
import { createRemoteJWKSet, jwtVerify } from 'jose'

// Global from Node 20 on; Debian 12 has Node 18.
globalThis.crypto ??= webcrypto

const [keySetUrl, issuer, token] = process.argv.slice(2)
try {
  const { payload } = await jwtVerify(token, createRemoteJWKSet(new URL(keySetUrl)), {
    algorithms: ['ES256'],
    issuer,
    requiredClaims: ['iss', 'jti', 'iat', 'type', 'data'],
  })
  console.log(JSON.stringify(payload))
} catch (error) {
  console.log(error.code ?? error)
  process.exit(1)
}
