"""Verifies verdict tokens with PyJWT for so many seconds: verify.py KEY_SET TOKENS FORGED SECONDS.

KEY_SET, TOKENS and FORGED are files: a JWK set, tokens of one key, a line each, and one token that must be refused. Prints how
many were verified, and the seconds and the seconds of processor time that it took.
"""

import json
import sys
import time

import jwt

ISSUER = "https://verdicts.example"


def verify(key, token):
    claims = jwt.decode(token, key, algorithms=["ES256"], issuer=ISSUER, options={"require": ["iss", "jti", "iat", "exp"]})
    request = claims["request"]
    if (claims["verdict"], request["amount"], request["currency"], request["recipient"]) != ("allow", 40.5, "USD", "vendor:acme"):
        raise ValueError("not what was asked for")


key_set, tokens, forged, seconds = sys.argv[1:]
with open(key_set) as file:
    key = jwt.PyJWKSet.from_dict(json.load(file)).keys[0]
with open(tokens) as file:
    tokens = file.read().split()
with open(forged) as file:
    forged = file.read().strip()
try:
    verify(key, forged)
    sys.exit("a forged token passes")
except jwt.InvalidSignatureError:
    pass
for token in tokens:
    verify(key, token)
count, start, used = 0, time.monotonic(), time.process_time()
while time.monotonic() - start < float(seconds):
    for token in tokens[:256]:
        verify(key, token)
    count += 256
    tokens = tokens[256:] + tokens[:256]
print(count, time.monotonic() - start, time.process_time() - used)
