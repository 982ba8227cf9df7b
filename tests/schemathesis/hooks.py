"""Changes valid requests before they are sent, so that they meet rules which a schema cannot express.

An agent must be registered, a mandate must not have expired, an amount has at most 15 digits, and a position in a list
must come from the server. Requests that are meant to be refused are not changed.
"""

import datetime
import itertools
import json
import os

import schemathesis

with open(os.environ["MANDATE_AGENTS"], encoding="utf-8") as file:
    AGENTS = json.load(file)

# Every agent may ask ten times a minute: they take turns, so that some verdicts are reviews.
TURNS = itertools.cycle(AGENTS["asking"])
# Every second request is within the limits of the mandate.
WITHIN = itertools.cycle((True, False))
PLACES = ("cursor", "starting_after", "ending_before")
TOMORROW = (datetime.date.today() + datetime.timedelta(days=1)).isoformat()


@schemathesis.hook
def before_call(context, case, kwargs):
    operation = case.operation.definition.raw["operationId"]
    if operation == "createAuthorization" and case.headers.get("Authorization") == f"Bearer {AGENTS['key']}":
        case.headers["Authorization"] = f"Bearer {next(TURNS)['agent_key']}"
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    if operation == "createAuthorization":
        case.body["amount"] = exact(case.body["amount"])
        if next(WITHIN):
            case.body |= {"currency": "USD", "category": "software", "amount": min(case.body["amount"], 1_000)}
    elif operation == "createMandate":
        possible(case.body)
    elif operation == "createEscrow" and AGENTS["allowed"]:
        case.body |= {"decision": AGENTS["allowed"].pop(), "refund_after": f"{TOMORROW}T00:00:00Z"}
    elif operation == "createWebhook":
        # A name that never resolves (RFC 6761, section 6.4).
        case.body["url"] = "https://hooks.invalid/mandate"
    elif operation == "getUsage" or operation.startswith("list"):
        for name in PLACES:
            case.query.pop(name, None)


def possible(mandate):
    mandate["agent"] = AGENTS["subject"]
    mandate["expires"] = max(mandate["expires"], TOMORROW)
    limits = mandate["limits"]
    for name in ("per_transaction", "per_month"):
        if name in limits:
            limits[name] = exact(limits[name])
    if "review_above" in mandate:
        mandate["review_above"] = min(exact(mandate["review_above"]), limits["per_transaction"])
    if "escrow" in mandate:
        mandate["escrow"]["required_above"] = exact(mandate["escrow"]["required_above"])


def exact(amount):
    """The amount with digits that are accepted, greater than 0."""
    return int(amount) if amount >= 1_000_000 else max(round(amount, 2), 0.01)
