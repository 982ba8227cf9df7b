// The main job with a client that a stranger's generator has made of docs/openapi.yaml: job.js API_URL ORGANIZATION_KEY. Prints
// what was found as one JSON object.

import { createClient } from './client/client';
import {
  approveReview,
  createAgent,
  createAuthorization,
  createExport,
  createMandate,
  getDecision,
  getExport,
  listDecisions,
} from './client';

declare const process: { argv: string[] };

const [baseUrl, key] = process.argv.slice(2) as [string, string];
const as = (auth: string) => createClient({ baseUrl, auth, throwOnError: true });
const organization = as(key);

const agent = (await createAgent({ client: organization, body: { name: 'generated' }, throwOnError: true })).data;
const mandate = await createMandate({
  client: organization,
  throwOnError: true,
  body: {
    principal: 'role:head-of-it',
    agent: agent.id,
    limits: { per_transaction: 500, per_month: 2000, currency: 'USD' },
    categories: ['software'],
    review_above: 200,
    expires: '2099-12-31',
  },
});

const buyer = as(agent.agent_key);
const ask = (amount: number) =>
  createAuthorization({
    client: buyer,
    throwOnError: true,
    body: { amount, currency: 'USD', recipient: 'vendor:acme', category: 'software' },
  });
const allowed = (await ask(40.5)).data;
const waiting = (await ask(300)).data;
const approved = (await approveReview({ client: organization, path: { id: waiting.review!.id }, throwOnError: true })).data;
const decision = (await getDecision({ client: buyer, path: { id: approved.decision }, throwOnError: true })).data;
const listed = (await listDecisions({ client: organization, query: { agent: agent.id, limit: 2 }, throwOnError: true })).data;
const refused = await createAuthorization({ client: as(agent.agent_key), body: { amount: 0 } as never, throwOnError: false });

// An export's record is JSON; its content is asked for by its own type, and read as text.
const asked = (await createExport({ client: organization, body: { format: 'ndjson' }, throwOnError: true })).data;
let record = asked;
while (record.status === 'pending') {
  await new Promise((resolve) => setTimeout(resolve, 100));
  const { data } = await getExport({ client: organization, path: { id: asked.export }, throwOnError: true });
  if (typeof data === 'string') throw new Error('the record is a text');
  record = data;
}
const { data: content } = await getExport({
  client: organization,
  path: { id: asked.export },
  headers: { Accept: 'application/x-ndjson' },
  parseAs: 'text',
  throwOnError: true,
});
if (typeof content !== 'string') throw new Error('the content is no text');

console.log(
  JSON.stringify({
    mandate: mandate.data.status,
    verdicts: [allowed.verdict, waiting.verdict, approved.verdict],
    token: allowed.verdict_token?.split('.').length,
    request: decision.request,
    supersedes: decision.supersedes === waiting.decision,
    listed: listed.data.length,
    more: typeof listed.next_cursor,
    refused: refused.error?.error.code,
    export: [record.status, record.rows],
    lines: content.split('\n').filter((line) => line !== '').map((line) => Object.keys(JSON.parse(line))[0]),
  }),
);
