"""Verifies an event with PyJWT, as a webhook receiver does: verify_event.py KEY_SET_URL ISSUER TOKEN. Prints the claims."""

import json
import sys

import jwt

key_set_url, issuer, token = sys.argv[1:]
try:
    key = jwt.PyJWKClient(key_set_url).get_signing_key_from_jwt(token)
    event = jwt.decode(
        token, key, algorithms=["ES256"], issuer=issuer, options={"require": ["iss", "jti", "iat", "type", "data"]}
    )
except jwt.PyJWTError as error:
    print(type(error).__name__)
    sys.exit(1)
print(json.dumps(event))
