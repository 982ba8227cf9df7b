// How an x402 offer reads as an order: buyer and seller must agree to the character.

/** Tokens by `<network>/<address>`, in lower case: `eip155:8453/0x8335…`. What is not listed is not paid, nor accepted. */
export type Assets = Record<string, { currency: string; decimals: number }>;

export interface Offer {
  scheme: string;
  network: string;
  asset: string;
  amount: string;
  payTo: string;
  maxTimeoutSeconds: number;
}

export interface Order {
  amount: string;
  currency: string;
  recipient: string;
  category: string;
}

/** The most fractional digits of an amount. */
const MOST_DECIMALS = 8;

/** The order of an offer: its exact amount as text, whom it pays on which network, and in which token. */
export function orderOf(offer: Offer, assets: Assets): Order {
  // Other schemes sign more than the offer names, such as the deposit of a channel.
  if (offer.scheme !== "exact") throw new Error(`scheme ${offer.scheme} is refused: only exact signs the amount of the offer`);
  const [network, asset, payTo] = [offer.network, offer.asset, offer.payTo].map((text) => text.toLowerCase());
  if (!/^eip155:\d+$/.test(network)) throw new Error(`network ${network} is refused: only eip155 networks are known here`);
  const known = assets[`${network}/${asset}`];
  if (known === undefined) throw new Error(`asset ${asset} on ${network} is refused: it is not listed`);
  const { currency, decimals } = known;
  if (decimals > MOST_DECIMALS) {
    throw new Error(`${currency} is refused: it has ${decimals} decimals, and an amount has at most ${MOST_DECIMALS}`);
  }
  const place = network.replace(":", "-");
  return {
    amount: decimalOf(offer.amount, decimals),
    currency,
    recipient: `vendor:${place}.${payTo}`,
    category: `${place}.${asset}`,
  };
}

/** Atomic units as an exact decimal. */
export function decimalOf(atomic: string, decimals: number): string {
  if (!/^\d+$/.test(atomic)) throw new Error(`amount ${atomic} is refused: it is no number of atomic units`);
  const digits = atomic.replace(/^0+/, "").padStart(decimals + 1, "0");
  const [whole, fraction] = [digits.slice(0, digits.length - decimals), digits.slice(digits.length - decimals)];
  return fraction.replace(/0+$/, "") === "" ? whole : `${whole}.${fraction.replace(/0+$/, "")}`;
}
