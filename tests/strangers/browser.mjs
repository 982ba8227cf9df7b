// A page of another origin, in a real browser: what it may read of the service, and what it may not.
//
//   node browser.mjs PLAYWRIGHT VERDICTS_URL API_URL < token
//
// Prints one JSON object.

import { createServer } from 'node:http';
import { readFileSync } from 'node:fs';

const [playwright, verdicts, api] = process.argv.slice(2);
const token = readFileSync(0, 'utf8').trim();
const { chromium } = await import(playwright);

const page = '<!doctype html><title>A page of another origin</title>';
const server = createServer((_, response) => response.setHeader('content-type', 'text/html').end(page));
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
});
try {
  const tab = await browser.newPage();
  await tab.goto(`http://127.0.0.1:${server.address().port}/`);
  const found = await tab.evaluate(
    async ({ verdicts, api, token }) => {
      const bytes = (text) =>
        Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (c) => c.charCodeAt(0));
      const [header, claims, signature] = token.split('.');
      const { kid } = JSON.parse(new TextDecoder().decode(bytes(header)));
      const set = await fetch(`${verdicts}/.well-known/jwks.json`);
      const { keys } = await set.json();
      const p256 = { name: 'ECDSA', namedCurve: 'P-256' };
      const key = await crypto.subtle.importKey('jwk', keys.find((key) => key.kid === kid), p256, false, ['verify']);
      const signed = new TextEncoder().encode(`${header}.${claims}`);
      const valid = await crypto.subtle.verify({ name: 'ECDSA', hash: 'SHA-256' }, key, bytes(signature), signed);
      // A header of its own makes the browser ask first.
      const again = await fetch(`${verdicts}/.well-known/jwks.json`, {
        cache: 'no-store',
        headers: { 'if-none-match': set.headers.get('etag'), 'x-page': '1' },
      });
      const contract = await fetch(`${verdicts}/openapi.yaml`);
      const unknown = await fetch(`${verdicts}/contracts/${'0'.repeat(64)}`);
      const refused = async (url, options) =>
        fetch(url, options).then((answer) => `answered ${answer.status}`, (error) => error.name);
      return {
        valid,
        again: again.status,
        contract: (await contract.text()).startsWith('openapi: 3.1'),
        unknown: [unknown.status, (await unknown.json()).error.code],
        credentials: await refused(`${verdicts}/.well-known/jwks.json`, { credentials: 'include' }),
        post: await refused(`${verdicts}/.well-known/jwks.json`, { method: 'PUT' }),
        api: await refused(`${api}/agents`),
        key: await refused(`${api}/agents`, { headers: { authorization: 'Bearer x' } }),
      };
    },
    { verdicts, api, token },
  );
  console.log(JSON.stringify(found));
} finally {
  await browser.close();
  server.close();
}
