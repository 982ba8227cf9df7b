// Asks for a decision before an x402 client signs a payment, and sends the token with the payment. ../README.md says how money,
// addresses and time are read.

import { randomUUID } from "node:crypto";
import type { x402Client } from "@x402/core/client";
import { appendPaymentIdentifierToExtensions } from "@x402/extensions/payment-identifier";
import { orderOf, type Assets, type Offer } from "../order.ts";

export interface Options {
  /** The API's base URL, which ends in /v1. */
  baseUrl: string;
  agentKey: string;
  assets: Assets;
  warn?: (message: string) => void;
}

const pause = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Lets the client pay only what the service allows. */
export function withMandate(client: x402Client, { baseUrl, agentKey, assets, warn = console.warn }: Options): x402Client {
  const tokens = new WeakMap<object, string>();
  const used = new Set<string>();

  /** One request, sent again with the same id until `deadline` if its answer is lost. */
  async function call(path: string, deadline: number, init: RequestInit = {}): Promise<any> {
    for (;;) {
      const signal = AbortSignal.timeout(Math.min(Math.max(1, deadline - Date.now()), 30_000)); // beyond 2^31 ms a timer ends at once
      const headers = { ...init.headers, authorization: `Bearer ${agentKey}`, "content-type": "application/json" };
      const answer = await fetch(baseUrl + path, { ...init, headers, signal }).catch(() => undefined);
      const body = await answer?.json().catch(() => undefined);
      if (answer?.ok && body !== undefined) return body;
      const isLost = answer === undefined || answer.status === 429 || answer.status >= 500 || body === undefined;
      if (!isLost) throw new Error(body.error?.message ?? `HTTP ${answer.status}`);
      if (Date.now() + 500 >= deadline) throw new Error("the service has not answered in time");
      await pause(500);
    }
  }

  /** The decision on one payment under `id`, a person's answer included. Waits no longer than the offer holds. */
  async function decide(id: string, offer: Offer): Promise<any> {
    const deadline = Date.now() + offer.maxTimeoutSeconds * 1000;
    const { amount, ...order } = orderOf(offer, assets);
    const body = `{"amount":${amount},${JSON.stringify(order).slice(1)}`; // exact: no number of JavaScript
    const first = await call("/authorizations", deadline, { method: "POST", body, headers: { "idempotency-key": id } });
    if (first.verdict !== "review" || first.mode === "observe") return first;
    for (;;) {
      const { review, mode } = await call(`/decisions/${first.decision}`, deadline);
      if (review.status === "approved") return call(`/decisions/${review.decision}`, deadline);
      if (review.status !== "pending") return { verdict: "review", mode, reason: `the review is ${review.status}` };
      if (Date.now() + 500 >= deadline) return { verdict: "review", mode, reason: "no person has answered while the offer holds" };
      await pause(500);
    }
  }

  client.onBeforePaymentCreation(async ({ paymentRequired, selectedRequirements }) => {
    tokens.delete(paymentRequired);
    // One payment is one decision: the id is drawn anew for each, and sent again only by `call`.
    const id = `pay_${randomUUID().replaceAll("-", "")}`;
    appendPaymentIdentifierToExtensions(paymentRequired.extensions ?? {}, id);
    const { verdict, mode, reason = "", verdict_token: token } = await decide(id, selectedRequirements as Offer);
    if (verdict !== "allow" && mode !== "observe") return { abort: true, reason: `${verdict} ${reason}` };
    if (verdict !== "allow") {
      warn(`observe mode: ${verdict} ${reason}; paid without a token`);
      return;
    }
    const { exp, nonce } = JSON.parse(Buffer.from(token.split(".")[1], "base64url").toString());
    if (exp * 1000 <= Date.now()) return { abort: true, reason: "the allow has expired" };
    if (used.has(nonce)) return { abort: true, reason: "this process has paid by this allow before" };
    used.add(nonce);
    tokens.set(paymentRequired, token);
  });
  return client.registerExtension({
    key: "mandate",
    enrichPaymentPayload: async (payload, required) => {
      const token = tokens.get(required);
      return token === undefined ? payload : { ...payload, extensions: { ...payload.extensions, mandate: { info: { token } } } };
    },
  });
}
