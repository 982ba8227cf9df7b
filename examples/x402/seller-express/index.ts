// An Express middleware that takes an x402 payment only with a verdict that allows exactly this payment. It refuses before the
// handler runs and before anything is settled.

import { paymentMiddleware, type x402ResourceServer } from "@x402/express";
import { MandateError, verifyVerdict, type NonceStore, type TokenOptions } from "mandate-core";
import { orderOf, type Assets, type Offer } from "../order.ts";

export interface Options {
  /** The issuer of the verdicts that you trust. */
  issuer: string;
  assets: Assets;
  /** Nonces that were accepted. They must outlive the process: FileNonces, or a table of yours with a unique key. */
  nonces: NonceStore;
  environment?: TokenOptions["environment"];
  keys?: TokenOptions["keys"];
}

/** The middleware of `@x402/express` for these routes, which wants a verdict with each payment. */
export function paymentWithMandate(routes: Parameters<typeof paymentMiddleware>[0], server: x402ResourceServer, options: Options) {
  const { assets, nonces, ...trust } = options;
  const accepted = new WeakSet<object>();
  const tokenOf = (payload: any): unknown => payload.extensions?.mandate?.info?.token;
  const refuse = (check: string, message: string) => ({ abort: true as const, reason: `mandate_${check}`, message });

  server.onAfterVerify(async ({ paymentPayload, requirements, result }) => {
    if (!result.isValid) return;
    // An error that leaves a hook is only logged, and the payment would go on.
    try {
      const token = tokenOf(paymentPayload);
      if (typeof token !== "string") return refuse("missing", "the payment has no verdict: extensions.mandate.info.token");
      const { category, ...order } = orderOf(requirements as Offer, assets);
      const { claims } = await verifyVerdict(token, { ...trust, ...order, nonces: "elsewhere" });
      if (claims.request.category !== category) return refuse("category", `expected ${category}, not ${claims.request.category}`);
      // Last: a verdict that does not match is not used up.
      await verifyVerdict(token, { ...trust, ...order, nonces });
      accepted.add(paymentPayload);
    } catch (error) {
      const check = error instanceof MandateError ? error.check : undefined;
      return refuse(check ?? "refused", error instanceof Error ? error.message : String(error));
    }
  });
  // Nothing is settled that has not come this way.
  server.onBeforeSettle(async ({ paymentPayload }) => {
    if (!accepted.delete(paymentPayload)) return refuse("unverified", "the verdict was not verified");
  });
  return paymentMiddleware(routes, server);
}
