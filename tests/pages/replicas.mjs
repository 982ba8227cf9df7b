// A page of the console while the server behind it dies, in a real browser: node replicas.mjs PLAYWRIGHT AXE CONSOLE SCREENSHOTS
// < scene
//
// CONSOLE is the address of an environment's console, behind which are two servers. Standard input is JSON: `link` registers a
// passkey; `api` and `agent` are the address of the second server's API and an agent's key. Prints "ready" when the first server
// is to die; throws where a page is wrong.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { passkey, review, start } from './browser.mjs';

const [playwright, axe, place, screenshots] = process.argv.slice(2);
const { link, api, agent } = JSON.parse(readFileSync(0, 'utf8'));
const allowed = [`${new URL(place).origin}/`, 'about:blank'];
const browser = await start({ playwright, axe, screenshots, allowed, secret: link.split('#')[1] });

try {
  const enrolled = await browser.open('about:blank', { expected: /pubKeyCredParams/ });
  const key = await passkey(enrolled.tab);
  await enrolled.tab.goto(link);
  await enrolled.tab.fill('#label', 'Laptop');
  await enrolled.tab.click('#enrol button');
  await enrolled.tab.waitForURL(`${place}/`);
  const credentials = await key.credentials();
  const storageState = await enrolled.tab.context().storageState();
  await enrolled.close();

  // The queue waits for news, and a statement was given: both by the first server.
  const first = await review(api, agent, 300);
  const expected = /Failed to load resource|net::ERR/;
  const [queue, one] = [await browser.open(`${place}/`, { expected, storageState }), await browser.open('about:blank', { expected, storageState })];
  await queue.tab.locator(`[data-review="${first}"]`).waitFor();
  await passkey(one.tab, credentials);
  await one.tab.goto(`${place}/reviews/${first}`);
  await one.tab.click('#approve button');
  await one.tab.locator('#sign:not([hidden])').waitFor();
  assert.equal(await queue.tab.locator('#stale').isVisible(), false);

  console.log('ready');
  await queue.tab.locator('#stale:not([hidden])').waitFor();

  // The queue goes on by itself, at the other server.
  const second = await review(api, agent, 310);
  await queue.tab.locator(`[data-review="${second}"]`).waitFor();
  assert.equal(await queue.tab.locator('#stale').isVisible(), false);
  await queue.tab.screenshot({ path: join(screenshots, 'queue.png'), fullPage: true });

  // The statement of the dead server is answered there, and the session lasts.
  await one.tab.click('#confirm');
  await one.tab.locator('#fresh').waitFor();
  assert.equal(await one.tab.locator('#fresh').innerText(), 'allow');
  assert.match(await one.tab.locator('#state').innerText(), /^Approved by Ada \(person\)/);
  await one.tab.screenshot({ path: join(screenshots, 'answered.png'), fullPage: true });
  await queue.tab.locator(`[data-review="${first}"]`).waitFor({ state: 'detached' });
  await queue.tab.reload();
  assert.equal(await queue.tab.locator('h1').innerText(), 'Reviews');
  await queue.close();
  await one.close();
} finally {
  await browser.close();
}
