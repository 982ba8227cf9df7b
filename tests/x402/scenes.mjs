// Buyers and a seller of examples/x402 on a chain of this machine, before a real service. Prints what came of each scene.
//
//   node scenes.mjs BASE_URL ISSUER ORGANIZATION_KEY ANVIL PYTHON

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import { promisify } from "node:util";
import express from "express";
import { x402Client } from "@x402/core/client";
import { x402ResourceServer } from "@x402/core/server";
import { ExactEvmScheme as Paying } from "@x402/evm/exact/client";
import { ExactEvmScheme as Taking } from "@x402/evm/exact/server";
import { declarePaymentIdentifierExtension } from "@x402/extensions/payment-identifier";
import { wrapFetchWithPayment } from "@x402/fetch";
import { MemoryNonces } from "mandate-core";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { withMandate } from "./buyer-typescript/index.ts";
import { orderOf } from "./order.ts";
import { paymentWithMandate } from "./seller-express/index.ts";
import { NETWORK, chain } from "./chain.mjs";

const [baseUrl, issuer, organizationKey, anvil, python] = process.argv.slice(2);
const local = await chain(anvil);
const asset = local.token.toLowerCase();
const assets = { [`${NETWORK}/${asset}`]: { currency: "USDC", decimals: 6 } };
const PLACE = NETWORK.replace(":", "-");
const seller = privateKeyToAccount(generatePrivateKey()).address;

async function organization(path, body) {
  const headers = { authorization: `Bearer ${organizationKey}`, "content-type": "application/json" };
  const answer = await fetch(baseUrl + path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
  assert.ok(answer.ok, `${path}: ${answer.status} ${await answer.clone().text()}`);
  return answer.json();
}

/** The shop: each page with its price in whole tokens, and how long its offer holds. */
const PAGES = { report: [40, 60], huge: [501, 60], slow: [300, 2], large: [300, 30], drain: [40, 60] };
const drained = { buyer: undefined };
let handled = 0;
async function shop() {
  const routes = Object.entries(PAGES).map(([page, [price, maxTimeoutSeconds]]) => {
    const amount = { amount: String(price * 1e6), asset: local.token, extra: { name: "Test Dollar", version: "1" } };
    const accepts = { scheme: "exact", network: NETWORK, payTo: seller, price: amount, maxTimeoutSeconds };
    return [`GET /${page}`, { accepts, extensions: { "payment-identifier": declarePaymentIdentifierExtension() } }];
  });
  const server = new x402ResourceServer(local.facilitator).register(NETWORK, new Taking());
  const nonces = new MemoryNonces();
  const app = express();
  app.use(paymentWithMandate(Object.fromEntries(routes), server, { issuer, assets, nonces, environment: "sandbox" }));
  app.get("/drain", async (_, answer) => {
    await local.burn(drained.buyer);
    answer.send("handled");
  });
  app.get("/:page", (_, answer) => {
    handled += 1;
    answer.send("handled");
  });
  const listener = app.listen(0, "127.0.0.1");
  await once(listener, "listening");
  return { listener, url: `http://127.0.0.1:${listener.address().port}` };
}
const { listener, url: shopUrl } = await shop();

/** An agent with a mandate, a wallet with money, and its key. */
async function agent(name, perMonth = 2000) {
  const { id, agent_key: key } = await organization("/agents", { name });
  await organization("/mandates", {
    principal: "role:lead",
    agent: id,
    limits: { per_transaction: 500, per_month: perMonth, currency: "USDC" },
    categories: [`${PLACE}.${asset}`, `${PLACE}.0xother`],
    review_above: 200,
    expires: "2099-12-31",
  });
  const privateKey = generatePrivateKey();
  const account = privateKeyToAccount(privateKey);
  await local.mint(account.address, 10_000_000_000n);
  const usage = async () => {
    const row = (await organization(`/usage?agent=${id}`)).data[0];
    return row === undefined ? [0, 0] : [row.requests, row.spent];
  };
  return { id, key, privateKey, account, usage };
}

/** An x402 client that counts what it signs. */
function paying({ account }) {
  const signed = { count: 0 };
  const signer = { ...account, signTypedData: (data) => ((signed.count += 1), account.signTypedData(data)) };
  const client = new x402Client().register(NETWORK, new Paying(signer)).setSpendControls({ allowedAssets: true });
  return { client, signed };
}

/** A buyer as the example has it. `visit` gives the status of a page, or why nothing was paid. */
function buyer(who, options = {}) {
  const { client, signed } = paying(who);
  const warned = [];
  withMandate(client, { baseUrl, agentKey: who.key, assets, warn: (text) => warned.push(text), ...options });
  return { visit: visits(client), signed, warned };
}

function visits(client, fetching = fetch) {
  const pay = wrapFetchWithPayment(fetching, client);
  return async (page) =>
    pay(`${shopUrl}/${page}`).then(
      (answer) => (answer.status === 402 ? `402 ${whyOf(answer)}` : answer.status),
      (error) => error.message.replace("Failed to create payment payload: Payment creation aborted: ", "aborted: "),
    );
}

/** Why the seller has refused a payment. */
function whyOf({ headers }) {
  const [asked, settled] = ["payment-required", "payment-response"].map((name) => headers.get(name));
  const read = (text) => JSON.parse(Buffer.from(text, "base64").toString());
  return settled ? `settling: ${read(settled).errorReason}` : read(asked).error;
}

/** A service that answers every request with this allow. */
async function answering(token) {
  const service = createServer((request, response) => {
    const answer = { decision: "dec_1", verdict: "allow", mode: "enforce", verdict_token: token };
    response.writeHead(201, { "content-type": "application/json" }).end(JSON.stringify(answer));
  }).listen(0, "127.0.0.1");
  await once(service, "listening");
  return { url: `http://127.0.0.1:${service.address().port}`, close: () => service.close() };
}

/** Before the service: the answer to the first request is lost after it was decided. */
async function losing() {
  let lost = 0;
  const proxy = createServer(async (request, response) => {
    const chunks = await request.toArray();
    const { host, connection, "content-length": length, ...headers } = request.headers;
    const body = chunks.length > 0 ? Buffer.concat(chunks) : undefined;
    const answer = await fetch(baseUrl + request.url, { method: request.method, headers, body });
    const text = await answer.text();
    if (request.method === "POST" && (lost += 1) === 1) return request.socket.destroy();
    response.writeHead(answer.status, { "content-type": "application/json" }).end(text);
  }).listen(0, "127.0.0.1");
  await once(proxy, "listening");
  return { url: `http://127.0.0.1:${proxy.address().port}`, posts: () => lost, close: () => proxy.close() };
}

/** Approves the review that an agent waits for. */
async function approve({ id }) {
  for (;;) {
    const { data } = await organization(`/decisions?agent=${id}&review=pending`);
    if (data.length > 0) return organization(`/reviews/${data[0].review.id}/approve`, {});
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const found = {};
/** What a scene has brought the seller, and what it has cost the month. */
async function scene(name, who, play) {
  const [before, seen] = [await local.balance(seller), handled];
  const outcome = await play();
  found[name] = [outcome, (await local.balance(seller)) - before, handled - seen, await who.usage()];
}

const twice = await agent("twice");
let payment;
await scene("two purchases of the same thing", twice, async () => {
  const { client } = paying(twice);
  withMandate(client, { baseUrl, agentKey: twice.key, assets });
  const watching = (input, init) => ((payment = new Request(input, init).headers.get("payment-signature") ?? payment), fetch(input, init));
  const visit = visits(client, watching);
  return [await visit("report"), await visit("report")];
});
const { extensions, accepted } = JSON.parse(Buffer.from(payment, "base64").toString());
found.sent = [
  accepted.amount,
  Object.keys(extensions).sort(),
  /^pay_[0-9a-f]{32}$/.test(extensions["payment-identifier"].info.id),
];
/** A client that pays with a token of its own choice, or none. */
const carrying = (who, token) => {
  const { client } = paying(who);
  const mandate = { info: { token } };
  const enrichPaymentPayload = async (payload) => ({ ...payload, extensions: { ...payload.extensions, mandate } });
  return visits(token ? client.registerExtension({ key: "mandate", enrichPaymentPayload }) : client);
};
const { token } = extensions.mandate.info;
await scene("a replayed token", twice, () => carrying(twice, token)("report"));
await scene("a token of another amount", twice, () => carrying(twice, token)("large"));
const other = await agent("other");
const ours = { recipient: `vendor:${PLACE}.${seller.toLowerCase()}`, category: `${PLACE}.${asset}` };
for (const [name, page, changed] of [
  ["another asset", "report", { category: `${PLACE}.0xother` }],
  ["another network", "report", { recipient: ours.recipient.replace(PLACE, "eip155-1") }],
  ["another recipient", "report", { recipient: `${ours.recipient}0` }],
  ["a denial", "huge", { amount: 501 }],
]) {
  const headers = { authorization: `Bearer ${other.key}`, "content-type": "application/json" };
  const body = JSON.stringify({ amount: 40, currency: "USDC", ...ours, ...changed });
  const asked = await fetch(`${baseUrl}/authorizations`, { method: "POST", headers, body });
  const { decision } = await asked.json();
  const { verdict_token: token } = await organization(`/decisions/${decision}`);
  await scene(`a token of ${name}`, other, () => carrying(other, token)(page));
}
await scene("no token", twice, () => carrying(twice)("report"));

const expired = ["x", Buffer.from(JSON.stringify({ exp: 1, nonce: "n_1" })).toString("base64url"), "x"].join(".");
for (const [name, given] of [["an allow that has paid before", token], ["an allow that has expired", expired]]) {
  const service = await answering(given);
  await scene(name, twice, async () => {
    const { visit, signed } = buyer(twice, { baseUrl: service.url });
    const here = [await visit("report"), await visit("report"), signed.count];
    return [here, (await inPython(twice, ["report", "report"], service.url)).outcomes];
  });
  service.close();
}

const refused = await agent("refused");
await scene("a denial", refused, async () => {
  const { visit, signed } = buyer(refused);
  return [await visit("huge"), signed.count];
});
const month = await agent("month", 50);
await scene("the month's end", month, async () => {
  const { visit, signed } = buyer(month);
  return [await visit("report"), await visit("report"), signed.count];
});
const waiting = await agent("waiting");
await scene("a review that no person answers", waiting, async () => {
  const { visit, signed } = buyer(waiting);
  return [await visit("slow"), signed.count];
});
const answered = await agent("answered");
await scene("a review that a person answers", answered, async () => {
  const { visit, signed } = buyer(answered);
  return [...(await Promise.all([visit("large"), approve(answered)])).slice(0, 1), signed.count];
});
const unlucky = await agent("unlucky");
const proxy = await losing();
await scene("a lost answer", unlucky, async () => [await buyer(unlucky, { baseUrl: proxy.url }).visit("report"), proxy.posts()]);
proxy.close();
const poor = await agent("poor");
drained.buyer = poor.account.address;
await scene("a settlement that fails", poor, () => buyer(poor).visit("drain"));
const away = await agent("away");
await scene("a service that is away", away, () => {
  const { visit, signed } = buyer(away, { baseUrl: "http://127.0.0.1:1/v1" });
  return visit("slow").then((outcome) => [outcome, signed.count]);
});

/** The buyer in Python. */
async function inPython(who, pages, base = baseUrl) {
  const args = ["buyer.py", base, who.key, who.privateKey, `${NETWORK}/${asset}`, ...pages.map((page) => `${shopUrl}/${page}`)];
  const { stdout } = await promisify(execFile)(python, args, { env: { ...process.env, PYTHONPATH: "buyer-python" } });
  return JSON.parse(stdout);
}
const snake = await agent("snake");
let orders;
await scene("in Python", snake, async () => {
  const told = await inPython(snake, ["report", "report", "huge", "slow"]);
  orders = told.orders;
  return told.outcomes;
});
const lucky = await agent("lucky");
const second = await losing();
await scene("a lost answer in Python", lucky, async () => [(await inPython(lucky, ["report"], second.url)).outcomes, second.posts()]);
second.close();
const approved = await agent("approved");
await scene("a review in Python", approved, async () => (await Promise.all([inPython(approved, ["large"]), approve(approved)]))[0].outcomes);

await organization("/enforcement", { mode: "observe" });
const observed = await agent("observed");
await scene("observe mode", observed, async () => {
  const { visit, signed, warned } = buyer(observed);
  return [await visit("huge"), signed.count, warned];
});
await scene("observe mode in Python", observed, async () => (await inPython(observed, ["huge"])).outcomes);

/** The same order in both languages. */
const ordered = (amount, decimals, scheme = "exact") => {
  try {
    const offer = { scheme, network: "eip155:1", asset: "0xAB", amount, payTo: "0xCD" };
    const order = orderOf(offer, { "eip155:1/0xab": { currency: "USDC", decimals } });
    return [order.amount, order.currency, order.recipient, order.category];
  } catch (error) {
    return error.message;
  }
};
found.orders = [ordered("40500000", 6), ordered("1", 6), ordered("123456789012345", 8), ordered("1", 18), ordered("1.5", 6)];
found.orders.push(ordered("1", 6, "batch-settlement"));
found.ordersInPython = orders;
console.log(JSON.stringify(found));
process.exit();
