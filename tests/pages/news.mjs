// How the console's pages hear the news, in a real browser: node news.mjs PLAYWRIGHT AXE CONSOLE SCREENSHOTS < scene
//
// CONSOLE is the address of an environment's console. Standard input is JSON: `link` registers a passkey; `api`, `agent` and
// `organization` are the API's address and two keys of it. Throws where a page is wrong.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { call, passkey, review, start } from './browser.mjs';

const [playwright, axe, place, screenshots] = process.argv.slice(2);
const { link, api, agent, organization } = JSON.parse(readFileSync(0, 'utf8'));
const allowed = [`${new URL(place).origin}/`, 'about:blank'];
const browser = await start({ playwright, axe, screenshots, allowed, secret: link.split('#')[1] });
const waiting = (amount) => review(api, agent, amount);

async function enrolled() {
  const { tab, close } = await browser.open('about:blank', { expected: /pubKeyCredParams/ });
  const key = await passkey(tab);
  await tab.goto(link);
  await tab.fill('#label', 'Laptop');
  await tab.click('#enrol button');
  await tab.waitForURL(`${place}/`);
  const person = { credentials: await key.credentials(), state: await tab.context().storageState() };
  await close();
  return person;
}

/** Shows or hides a page, as a browser does with its tabs: under automation each of them counts as seen. */
async function seen(tab, state) {
  await tab.evaluate((now) => {
    Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => now });
    document.dispatchEvent(new Event('visibilitychange'));
  }, state);
}

/** A browser has six connections to an origin: with more tabs than that a page loads, and is answered. */
async function tabs() {
  const id = await waiting(311);
  const row = `[data-review="${id}"]`;
  const { tab, close } = await browser.open('about:blank', { storageState: person.state });
  await passkey(tab, person.credentials);
  await tab.goto(`${place}/reviews/${id}`);
  let last = tab;
  for (let count = 2; count <= 7; count++) {
    await seen(last, 'hidden');
    last = await tab.context().newPage();
    await last.goto(count === 7 ? `${place}/` : `${place}/reviews/${id}`);
  }
  await last.locator(row).waitFor();
  await seen(last, 'hidden');
  await seen(tab, 'visible');
  await tab.click('#approve button');
  await tab.locator('#sign:not([hidden])').waitFor();
  await tab.click('#confirm');
  await tab.locator('#fresh').waitFor();
  // A hidden page hears nothing. What it has missed, it shows when it is seen.
  await tab.waitForTimeout(2_000);
  assert.equal(await last.locator(row).count(), 1);
  await seen(last, 'visible');
  await last.locator(row).waitFor({ state: 'detached' });
  await close();
}

/** A proxy has no server for a moment: the queue says that it is not up to date, and goes on by itself. */
async function unavailable() {
  const { tab, close } = await browser.open('about:blank', { expected: /status of 502/, storageState: person.state });
  let asked = 0;
  await tab.context().route('**/events*', (route) => {
    asked += 1;
    return asked === 1 ? route.fulfill({ status: 502, body: 'Bad Gateway' }) : route.continue();
  });
  await tab.goto(`${place}/`);
  await tab.locator('#stale:not([hidden])').waitFor();
  const id = await waiting(312);
  await tab.locator(`[data-review="${id}"]`).waitFor();
  assert.equal(asked, 2);
  assert.equal(await tab.locator('#stale').isVisible(), false);
  await close();
}

/** The server cannot read the queue: the page says that it is not up to date, until it hears the queue again. */
async function unread() {
  const { tab, close } = await browser.open('about:blank', { storageState: person.state });
  await tab.addInitScript(() => {
    globalThis.EventSource = class extends EventTarget {
      constructor() {
        super();
        globalThis.stream = this;
      }

      close() {}
    };
  });
  await tab.goto(`${place}/`);
  const hear = (name, data) => tab.evaluate(([event, said]) => stream.dispatchEvent(new MessageEvent(event, { data: said })), [name, data]);
  for (const [name, isStale] of [['stale', true], ['queue', false], ['stale', true]]) {
    await hear(name, JSON.stringify({ waiting: [], total: 0, is_cut: false, mode: 'enforce' }));
    assert.equal(await tab.locator('#stale').isVisible(), isStale);
  }
  await close();
}

/** A proxy answers a POST in its own words: the page says what to do, at the button that was used. */
async function refused() {
  const id = await waiting(313);
  const options = { expected: /status of (502|429|200)/, storageState: person.state, viewport: { width: 320, height: 568 } };
  const { tab, close } = await browser.open('about:blank', options);
  await passkey(tab, person.credentials);
  let status = 502;
  const html = { contentType: 'text/html', body: '<html><h1>no JSON</h1></html>' };
  const answer = (route) => (status === undefined ? route.continue() : route.fulfill({ status, ...html }));
  for (const path of ['statements', 'answers']) await tab.context().route(`**/${path}`, answer);
  await tab.goto(`${place}/reviews/${id}`);
  const message = tab.locator('#message:not([hidden])');
  const said = async (button, wanted) => {
    await tab.click(button);
    await message.filter({ hasText: wanted }).waitFor();
    const [over, under] = [await tab.locator(button).boundingBox(), await message.boundingBox()];
    const away = under.y - over.y - over.height;
    assert.ok(away >= 0 && away < 100 && under.y + under.height <= 568, `${button}: ${away} ${under.y}`);
  };
  await said('#approve button', /^The console cannot be reached now \(502\)\. Try again/);
  status = 429;
  await said('#approve button', /^Too many requests at once \(429\)/);
  status = 200;
  await said('#approve button', /^What came back is not from the console \(200\)/);
  status = undefined;
  await tab.click('#approve button');
  await tab.locator('#sign:not([hidden])').waitFor();
  assert.equal(await message.count(), 0);
  status = 502;
  await said('#confirm', /^The console cannot be reached now/);
  status = undefined;
  await tab.click('#confirm');
  await tab.locator('#fresh').waitFor();
  await close();
}

/** The mode is switched under an open page: it says so, and so does the button that signs. */
async function mode() {
  const id = await waiting(314);
  const { tab, close } = await browser.open('about:blank', { storageState: person.state, viewport: { width: 320, height: 568 } });
  await passkey(tab, person.credentials);
  await tab.goto(`${place}/reviews/${id}`);
  const [note, button] = [tab.locator('#switched'), tab.locator('#confirm')];
  await tab.click('#approve button');
  await button.filter({ hasText: /^Approve 314 USD to vendor:acme, sandbox, with my passkey$/ }).waitFor();
  await call(api, organization, '/enforcement', { mode: 'observe' });
  await note.filter({ hasText: 'The mode has changed.' }).waitFor();
  await button.filter({ hasText: /^Approve 314 USD to vendor:acme, sandbox, observe mode, with my passkey$/ }).waitFor();
  await call(api, organization, '/enforcement', { mode: 'enforce' });
  await note.waitFor({ state: 'hidden' });
  await tab.getByRole('button', { name: 'Cancel' }).click();
  await tab.fill('#why', 'not needed');
  await tab.click('#deny button');
  await button.filter({ hasText: /^Deny 314 USD to vendor:acme, sandbox, with my passkey$/ }).waitFor();
  await tab.context().route('**/statements', async (route) => {
    const body = (await (await route.fetch()).text()).replace('kind\\":\\"sandbox', 'kind\\":\\"production');
    await route.fulfill({ contentType: 'application/json', body });
  });
  await tab.getByRole('button', { name: 'Cancel' }).click();
  await tab.click('#deny button');
  await button.filter({ hasText: /^Deny 314 USD to vendor:acme, LIVE, with my passkey$/ }).waitFor();
  await close();
}

/** As the server tells a review that waits. */
const told = (number, role) => ({
  review: `rev_${number}`, waits_for: role, agent: 'agt_a', amount: '1', currency: 'USD', recipient: 'vendor:a', category: 'software',
  expires_at: '2099-12-31T00:00:00.000Z', mode: 'enforce',
});

/** What the page hears. */
const news = (waiting) => `retry: 500\nevent: queue\ndata: ${JSON.stringify({ waiting, total: waiting.length, is_cut: false, mode: 'enforce' })}\n\n`;

/** Rows come and go above the one that a person reads: it keeps the focus, and its place on the screen. */
async function still() {
  const { tab, close } = await browser.open('about:blank', { storageState: person.state });
  const first = Array.from({ length: 60 }, (_, number) => told(number, 'role:ops'));
  const [, gone, ...rest] = first;
  const then = [{ ...told('new', 'role:head-of-it'), mode: 'observe' }, told('newer', 'role:head-of-it'), first[0], ...rest];
  let next = false;
  await tab.context().route('**/events*', (route) => route.fulfill({ contentType: 'text/event-stream', body: news(next ? then : first) }));
  await tab.goto(`${place}/`);
  const row = tab.locator('[data-review="rev_40"]');
  await row.locator('a').focus();
  // Each of these streams ends at once, which the page says above the rows.
  const where = async () => ({ y: Math.round((await row.boundingBox()).y), scrolled: (await tab.evaluate(() => scrollY)) > 0 });
  await tab.locator('#stale:not([hidden])').waitFor();
  const before = await where();
  assert.ok(before.scrolled);
  next = true;
  await tab.locator('[data-review="rev_newer"].mine').waitFor();
  assert.deepEqual(await tab.locator('#queue .category strong').allInnerTexts(), ['observed']);
  await tab.locator(`[data-review="${gone.review}"]`).waitFor({ state: 'detached' });
  await tab.locator('#stale:not([hidden])').waitFor();
  assert.deepEqual(await where(), before);
  assert.equal(await tab.evaluate(() => document.activeElement.closest('li').dataset.review), 'rev_40');
  await close();
}

let person;
try {
  person = await enrolled();
  await browser.run([tabs, unavailable, refused, mode, unread, still]);
} finally {
  await browser.close();
}
