"""Asks for a decision before an x402 client signs a payment, and sends the token with it: see ../README.md."""

import asyncio
import base64
import json
import time
import uuid
import warnings

import httpx
from x402.schemas import AbortResult

from mandate_order import order_of


class Mandate:
    """Lets an x402 client pay only what the service allows: Mandate(...).guard(client)."""

    key = "mandate"

    def __init__(self, base_url, agent_key, assets):
        self.assets, self.tokens, self.used = assets, {}, set()
        self.service = httpx.AsyncClient(base_url=base_url, headers={"authorization": f"Bearer {agent_key}"})

    def guard(self, client):
        return client.on_before_payment_creation(self.before).register_extension(self)

    async def call(self, method, path, deadline, **request):
        """One request, sent again with the same id until `deadline` if its answer is lost."""
        while True:
            try:
                answer = await self.service.request(method, path, timeout=max(0.001, deadline - time.monotonic()), **request)
                if answer.is_success:
                    return answer.json()
                if answer.is_client_error and answer.status_code != 429:
                    raise PermissionError(answer.json()["error"]["message"])
            except (httpx.TransportError, json.JSONDecodeError):
                pass
            if time.monotonic() + 0.5 >= deadline:
                raise TimeoutError("the service has not answered in time")
            await asyncio.sleep(0.5)

    async def decide(self, payment, offer):
        """The decision on one payment, a person's answer included. Waits no longer than the offer holds."""
        deadline = time.monotonic() + offer.max_timeout_seconds
        headers = {"idempotency-key": payment, "content-type": "application/json"}
        body = order_of(offer, self.assets)
        decided = await self.call("POST", "/authorizations", deadline, content=body, headers=headers)
        while decided["verdict"] == "review" and decided["mode"] != "observe":
            review = (await self.call("GET", f"/decisions/{decided['decision']}", deadline))["review"]
            if review["status"] == "approved":
                return await self.call("GET", f"/decisions/{review['decision']}", deadline)
            if review["status"] != "pending" or time.monotonic() + 0.5 >= deadline:
                return decided | {"reason": f"the review is {review['status']}"}
            await asyncio.sleep(0.5)
        return decided

    async def before(self, context):
        self.tokens.pop(id(context.payment_required), None)
        # One payment is one decision: the id is drawn anew for each, and sent again only by `call`.
        payment = f"pay_{uuid.uuid4().hex}"
        if seller := (context.payment_required.extensions or {}).get("payment-identifier"):
            seller["info"]["id"] = payment
        decided = await self.decide(payment, context.selected_requirements)
        why = f"{decided['verdict']} {decided.get('reason', '')}"
        if decided["verdict"] != "allow" and decided["mode"] != "observe":
            return AbortResult(reason=why)
        if decided["verdict"] != "allow":
            return warnings.warn(f"observe mode: {why}; paid without a token")
        payload = decided["verdict_token"].split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        if claims["exp"] <= time.time() or claims["nonce"] in self.used:
            return AbortResult(reason="the allow has expired, or this process has paid by it before")
        self.used.add(claims["nonce"])
        self.tokens[id(context.payment_required)] = decided["verdict_token"]

    def enrich_payment_payload(self, payload, required):
        token = self.tokens.pop(id(required), None)
        mandate = {"mandate": {"info": {"token": token}}} if token else {}
        return payload.model_copy(update={"extensions": (payload.extensions or {}) | mandate})
