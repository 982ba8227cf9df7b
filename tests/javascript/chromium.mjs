// All vectors in Chromium, in a page and in a worker: node chromium.mjs PLAYWRIGHT PACKAGE VECTORS. Prints one JSON object.
//
// The page's policy allows WebAssembly and nothing else that is not its own.

import { createServer } from 'node:http';
import { readFileSync } from 'node:fs';
import { extname } from 'node:path';

const [playwright, folder, vectors] = process.argv.slice(2);
const { chromium } = await import(playwright);

const POLICY =
  "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'; worker-src 'self'; " +
  "base-uri 'none'";
const TYPES = { '.js': 'text/javascript', '.mjs': 'text/javascript', '.json': 'application/json', '.wasm': 'application/wasm' };
const WORKER = `
import * as mandate from '/lib/index.js';
import { results } from '/vectors.mjs';
onmessage = async ({ data }) => postMessage(await results(mandate, data));
postMessage('ready');
`;

const server = createServer((request, response) => {
  response.setHeader('content-security-policy', POLICY);
  const type = TYPES[extname(request.url)];
  if (type === undefined) return response.setHeader('content-type', 'text/html').end('<!doctype html><title>Vectors</title>');
  response.setHeader('content-type', type);
  if (request.url === '/worker.js') return response.end(WORKER);
  if (request.url === '/vectors.mjs') return response.end(readFileSync(new URL('./vectors.mjs', import.meta.url)));
  const path = request.url.startsWith('/lib/') ? folder + request.url : vectors + request.url;
  return response.end(readFileSync(path));
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
});
try {
  const tab = await browser.newPage();
  const messages = [];
  tab.on('console', (message) => messages.push(message.text()));
  tab.on('pageerror', (error) => messages.push(String(error)));
  await tab.goto(`http://127.0.0.1:${server.address().port}/`);
  const found = await tab.evaluate(async () => {
    const names = ['verdicts', 'events', 'tokens', 'log'];
    const files = Object.fromEntries(
      await Promise.all(names.map(async (name) => [name, await (await fetch(`/${name}.json`)).json()])),
    );
    const mandate = await import('/lib/index.js');
    const { both } = await import('/vectors.mjs');
    const page = await both(mandate, files);
    const worker = await new Promise((resolve, reject) => {
      let made;
      try {
        made = new Worker('/worker.js', { type: 'module' });
      } catch (error) {
        return reject(error);
      }
      made.onerror = (event) => reject(new Error(event.message));
      made.onmessage = ({ data }) => (data === 'ready' ? made.postMessage(files) : resolve(data));
    });
    return { ...page, worker };
  });
  console.log(JSON.stringify({ ...found, messages }));
} finally {
  await browser.close();
  server.close();
}
