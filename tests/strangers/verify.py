"""Verifies a token with PyJWT: verify.py KEY_SET_URL ISSUER TOKEN EARLY_SECONDS.

Prints the claims, or the name of the exception. EARLY_SECONDS brings the token's expiry forward: PyJWT asks the clock.
"""

import json
import sys

import jwt

key_set_url, issuer, token, early_seconds = sys.argv[1:]
early = int(early_seconds)
try:
    key = jwt.PyJWKClient(key_set_url).get_signing_key_from_jwt(token)
    claims = jwt.decode(
        token,
        key,
        algorithms=["ES256"],
        issuer=issuer,
        leeway=-early,
        options={"require": ["iss", "jti", "iat", "exp"], "verify_iat": early == 0},
    )
except jwt.PyJWTError as error:
    print(type(error).__name__)
    sys.exit(1)
print(json.dumps(claims))
