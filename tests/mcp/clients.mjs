// A host of a model, played by the npm clients: `sdk` speaks 2025-11-25, `client` 2026-07-28, `legacy` is the newer client
// with an older revision. Prints what the tools of `mandate mcp` have answered.
//
//   node clients.mjs WHICH COMMAND BASE_URL AGENT AGENT_KEY ORGANIZATION_KEY

import assert from "node:assert/strict";

const [which, command, baseUrl, agent, agentKey, organizationKey] = process.argv.slice(2);

/** Connects a client to a process of its own. Returns how to call a tool, and what was negotiated. */
async function connect(environment) {
  const isOld = which === "sdk";
  const [{ Client }, { StdioClientTransport }] = isOld
    ? [await import("@modelcontextprotocol/sdk/client/index.js"), await import("@modelcontextprotocol/sdk/client/stdio.js")]
    : [await import("@modelcontextprotocol/client"), await import("@modelcontextprotocol/client/stdio")];
  const options = which === "client" ? { versionNegotiation: { mode: { pin: "2026-07-28" } } } : {};
  const client = new Client({ name: "test", version: "1" }, options);
  const transport = new StdioClientTransport({ command, args: ["mcp"], env: environment, stderr: "pipe" });
  let revision;
  transport.setProtocolVersion = (version) => (revision = version);
  await client.connect(transport);
  revision ??= client.getNegotiatedProtocolVersion?.();
  // The clients hold each answer against the tool's output schema, which they know from the list.
  const { tools } = await client.listTools();
  const call = (name, args, options) => {
    const params = { name, arguments: args };
    return isOld ? client.callTool(params, undefined, options) : client.callTool(params, options);
  };
  return { client, call, tools, revision };
}

/** A request of the organization. */
async function organization(method, path) {
  const response = await fetch(`${baseUrl}${path}`, { method, headers: { authorization: `Bearer ${organizationKey}` } });
  assert.ok(response.ok, `${method} ${path}: ${response.status}`);
  return response.json();
}

const spend = (purchase, amount) => ({ purchase, amount, currency: "USD", recipient: "vendor:acme", category: "software" });
const errorOf = (result) => {
  assert.equal(result.isError, true, JSON.stringify(result));
  return JSON.parse(result.content[0].text).error.code;
};

const { client, call, tools, revision } = await connect({ MANDATE_BASE_URL: baseUrl, MANDATE_AGENT_KEY: agentKey });
const authorize = async (purchase, amount) => (await call("authorize_spend", spend(purchase, amount))).structuredContent;

// The main job, and a retry.
const first = await call("authorize_spend", spend("order-1", "40.50"));
const again = await authorize("order-1", "40.50");
const { token } = first.structuredContent;
assert.ok(!JSON.stringify(first.content).includes(token));

// A review that a person answers meanwhile.
const waiting = await authorize("order-2", "300");
await organization("POST", `/reviews/${waiting.review.id}/approve`);
const answered = await authorize("order-2", "300");
const looked = (await call("get_decision", { decision: waiting.decision })).structuredContent;

// One purchase at a time from many sides, and different ones.
const race = await Promise.all(Array.from({ length: 8 }, () => authorize("order-3", "10")));
const apart = await Promise.all(["order-4", "order-5"].map((purchase) => authorize(purchase, "10")));

// A call that is cancelled decides once, now or when it is made again.
const cancel = new AbortController();
const cancelled = call("authorize_spend", spend("order-6", "10"), { signal: cancel.signal });
cancel.abort();
await assert.rejects(cancelled);
const afterwards = await authorize("order-6", "10");

const malformed = [
  await call("authorize_spend", spend("order-7", 40.5)),
  await call("authorize_spend", { amount: "40" }),
  await call("authorize_spend", spend("x".repeat(1_000_000), "40")),
  await call("get_decision", { decision: "../agents" }),
].map(errorOf);
const conflict = errorOf(await call("authorize_spend", spend("order-1", "41")));
const unknown = await call("approve_review", {}).then(
  (result) => result.isError,
  () => "refused",
);
const denied = await authorize("order-8", "501");
const mandates = (await call("list_my_mandates", {})).structuredContent;
const usage = (await call("my_usage", {})).structuredContent;
const { data } = await organization("GET", `/decisions?agent=${agent}&limit=100`);
await client.close();

const away = await connect({ MANDATE_BASE_URL: "http://127.0.0.1:1/v1", MANDATE_AGENT_KEY: agentKey });
const unreachable = errorOf(await away.call("authorize_spend", spend("order-9", "1")));
await away.client.close();

console.log(
  JSON.stringify({
    revision,
    tools: tools.map((tool) => tool.name),
    first: [first.structuredContent.verdict, first.structuredContent.is_replayed, token.split(".").length],
    month: first.structuredContent.this_month.remaining,
    again: [again.is_replayed, again.token === token, again.decision === first.structuredContent.decision],
    waiting: [waiting.verdict, waiting.review.status, waiting.token ?? null],
    answered: [answered.verdict, answered.supersedes === waiting.decision, answered.token.split(".").length],
    looked: [looked.verdict, looked.review.status, looked.review.decision === answered.decision],
    race: [new Set(race.map((decided) => decided.decision)).size, race.filter((decided) => !decided.is_replayed).length],
    apart: [new Set(apart.map((decided) => decided.decision)).size, apart.map((decided) => decided.verdict)],
    afterwards: afterwards.verdict,
    malformed,
    conflict,
    unknown,
    denied: [denied.verdict, denied.reason, denied.token ?? null],
    mandate: mandates.mandates.map((terms) => [terms.status, terms.per_transaction, terms.review_above]),
    usage: usage.rows.map((row) => [row.currency, row.spent, row.remaining]),
    decisions: data.length,
    unreachable,
  }),
);
