// What a person does on the page that verifies, in a real browser: node verify.mjs PLAYWRIGHT AXE PAGE ISSUER SCREENSHOTS < tokens
//
// PAGE is a file or an address. Standard input is JSON: `token`, `denied`, `changed`, `hash`. Prints what was found as
// one JSON object; throws where the page is wrong.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { proofOf, start } from './browser.mjs';

const [playwright, axe, page, issuer, screenshots] = process.argv.slice(2);
const { token, denied, changed, hash } = JSON.parse(readFileSync(0, 'utf8'));
const { proof, key } = await proofOf(issuer, hash);
const own = page.startsWith('file:') ? page : `${new URL(page).origin}/`;
const browser = await start({ playwright, axe, screenshots, allowed: [own, `${issuer}/`], secret: 'eyJ' });
const open = ({ fragment = '', ...options } = {}) => browser.open(page + fragment, options);
const order = { issuer, token, amount: '40.00', currency: 'USD', recipient: 'vendor:acme', sandbox: true };
const found = {};

async function fill(tab, fields) {
  for (const [name, value] of Object.entries(fields)) {
    if (['sandbox', 'proof', 'log-key'].includes(name)) {
      if (!(await tab.locator('details').evaluate((details) => details.open))) await tab.locator('summary').click();
    }
    if (name === 'sandbox') await tab.locator('#sandbox').setChecked(value);
    else if (name !== 'issuer' || (await tab.locator('#issuer').isEditable())) await tab.fill(`#${name}`, value);
  }
}

async function answer(tab, fields) {
  await fill(tab, fields);
  await tab.click('button[type=submit]');
  await tab.locator('#result').waitFor();
  return {
    answer: await tab.locator('#answer').innerText(),
    reason: await tab.locator('#reason').textContent(),
    sandbox: await tab.locator('#mark').isVisible(),
    replay: await tab.locator('#replay').isVisible(),
    checks: await tab.locator('#checks tr').allInnerTexts(),
  };
}

async function answers() {
  const { tab, close } = await open();
  const good = await answer(tab, order);
  assert.deepEqual([good.answer, good.sandbox, good.replay], ['MATCHES THIS ORDER', true, true]);
  assert.match(await tab.locator('#who').innerText(), new RegExp(`^${issuer} \\(${new URL(issuer).host}\\)$`));
  assert.match(await tab.locator('#left').innerText(), /^Valid for \d+ more seconds$/);
  found.checks = good.checks.map((line) => line.split('\t')[0]);
  // The result of what is no longer in the form is gone.
  await tab.fill('#amount', '41');
  assert.equal(await tab.locator('#result').isVisible(), false);
  const other = await answer(tab, {});
  assert.deepEqual([other.answer, other.reason], ['DO NOT DELIVER', 'the amount must be 41; the signed one is 40']);
  const less = await answer(tab, { amount: '', currency: '' });
  assert.equal(less.answer, 'SIGNATURE VALID; NOT COMPARED: amount, currency');
  assert.equal(less.replay, true);
  const refused = await answer(tab, { ...order, sandbox: false });
  assert.match(refused.reason, /must be of the production environment/);
  for (const [text, reason] of [
    [denied, 'the verdict must be `allow`; it is `deny_limit`'],
    [changed, /^the signature does not verify/],
    ['not a token', /^the token must have 3 parts/],
    ['<img src=x onerror=alert(1)>.b.c', /^the header of the token must be base64url/],
  ]) {
    const { answer: said, reason: why } = await answer(tab, { ...order, token: text });
    assert.equal(said, 'DO NOT DELIVER');
    typeof reason === 'string' ? assert.equal(why, reason) : assert.match(why, reason);
  }
  const wrongOption = await answer(tab, { ...order, amount: '40,00' });
  assert.match(wrongOption.reason, /^amount must be/);
  await close();
}

/** With the proof that the log has the token: another check, which can fail too. */
async function proved() {
  const { tab, close } = await open();
  const good = await answer(tab, { ...order, proof, 'log-key': key.trim() });
  assert.equal(good.answer, 'MATCHES THIS ORDER', good.reason);
  assert.match(good.checks.at(-1), /^log\tentry \d+ of \d+ in /);
  const unpinned = await answer(tab, { 'log-key': '' });
  assert.equal(unpinned.answer, 'DO NOT DELIVER');
  assert.match(unpinned.reason, /^logKey or policy must be given/);
  const [first, ...rest] = proof.split('\n');
  const broken = await answer(tab, { proof: [first, ...rest.map((line) => line.replace(/^index (\d+)/, 'index 9$1'))].join('\n'), 'log-key': key.trim() });
  assert.equal(broken.answer, 'DO NOT DELIVER');
  assert.match(broken.checks.at(-1), /^log\t/);
  await close();
}

/** By the keyboard alone, with the token in the fragment. */
async function keyboard() {
  const { tab, close } = await open({ fragment: `#token=${token}` });
  assert.equal(await tab.inputValue('#token'), token);
  assert.equal(new URL(tab.url()).hash, '', 'the token leaves the address');
  await tab.keyboard.press('Tab');
  // A server's page begins with a link past what all pages have.
  if (await tab.locator('.skip').count()) {
    assert.equal(await tab.evaluate(() => document.activeElement.className), 'skip');
    await tab.keyboard.press('Enter');
    await tab.keyboard.press('Tab');
  }
  assert.equal(await tab.evaluate(() => document.activeElement.id), 'issuer');
  if (await tab.locator('#issuer').isEditable()) await tab.keyboard.type(issuer);
  await tab.keyboard.press('Tab');
  for (const text of ['40', 'USD', 'vendor:acme']) {
    await tab.keyboard.press('Tab');
    await tab.keyboard.type(text);
  }
  await tab.keyboard.press('Tab');
  await tab.keyboard.press('Enter');
  await tab.keyboard.press('Tab');
  await tab.keyboard.press('Space');
  for (let fields = 0; fields < 3; fields++) await tab.keyboard.press('Tab');
  await tab.keyboard.press('Enter');
  await tab.locator('#result').waitFor();
  assert.equal(await tab.locator('#answer').innerText(), 'MATCHES THIS ORDER');
  await close();
}

/** A link with a token, opened while the page is there. */
async function linked() {
  const { tab, close } = await open();
  assert.equal((await answer(tab, order)).answer, 'MATCHES THIS ORDER');
  await tab.evaluate((text) => { location.hash = `token=${text}`; }, denied);
  await tab.waitForFunction((text) => document.getElementById('token').value === text, denied);
  assert.equal(new URL(tab.url()).hash, '', 'the token leaves the address');
  assert.equal(await tab.locator('#result').isVisible(), false);
  await close();
}

/** An answer does not outlive its verdict. */
async function late() {
  const { tab, close } = await open();
  await tab.clock.install();
  assert.equal((await answer(tab, order)).answer, 'MATCHES THIS ORDER');
  await tab.clock.fastForward(301_000);
  assert.equal(await tab.locator('#answer').innerText(), 'DO NOT DELIVER');
  assert.match(await tab.locator('#reason').innerText(), /expired/);
  await close();
}

/** A token, an order and a proof, each to its place, wherever they are dropped. */
async function dropped() {
  const { tab, close } = await open();
  await tab.evaluate((texts) => {
    const transfer = new DataTransfer();
    texts.forEach((text, n) => transfer.items.add(new File([text], `${n}.txt`)));
    document.dispatchEvent(new DragEvent('drop', { dataTransfer: transfer, bubbles: true, cancelable: true }));
  }, [`${token}\n`, '{"amount": 40.00, "currency": "USD",\n "recipient": "vendor:acme"}', proof]);
  await tab.waitForFunction((text) => document.getElementById('token').value === text, token);
  const values = await Promise.all(['amount', 'currency', 'recipient', 'proof'].map((id) => tab.inputValue(`#${id}`)));
  assert.deepEqual(values, ['40.00', 'USD', 'vendor:acme', proof]);
  assert.equal(await tab.locator('#proof').isVisible(), true);
  await close();
}

async function withoutScript() {
  const { tab, close } = await open({ javaScriptEnabled: false });
  assert.match(await tab.locator('noscript').innerText(), /mandate verify TOKEN/);
  await close();
}

async function looks() {
  const states = { matches: order, refused: { ...order, amount: '41' }, partly: { ...order, currency: '' } };
  for (const [name, fields] of Object.entries(states)) {
    await browser.looks(`verify-${name}`, page, { prepare: (tab) => answer(tab, fields) });
  }
}

/** The picture of the documents. */
async function picture() {
  const { tab, close } = await open({ colorScheme: 'light', viewport: { width: 640, height: 900 }, reducedMotion: 'reduce' });
  await fill(tab, order);
  await tab.locator('summary').click();
  await answer(tab, Object.fromEntries(Object.entries(order).filter(([name]) => name !== 'sandbox')));
  // Fewer letters make a smaller file.
  await tab.locator('#token').evaluate((field) => { field.rows = 2; });
  await tab.screenshot({ path: join(screenshots, 'picture.png'), fullPage: true });
  await close();
}

try {
  await browser.run([answers, proved, keyboard, linked, late, dropped, withoutScript, looks, picture]);
  console.log(JSON.stringify({ ...found, screenshots: browser.pictures() }));
} finally {
  await browser.close();
}
