// What a person does on the other pages of the public listener, in a real browser: node public.mjs PLAYWRIGHT AXE ISSUER
// SCREENSHOTS < scene
//
// Standard input is JSON: `token` and its `hash`; `contract`, the address of an escrow. Prints how many pictures there are; throws where a
// page is wrong.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { proofOf, start } from './browser.mjs';

const [playwright, axe, issuer, screenshots] = process.argv.slice(2);
const { token, hash, contract } = JSON.parse(readFileSync(0, 'utf8'));
const { proof } = await proofOf(issuer, hash);
const browser = await start({ playwright, axe, screenshots, allowed: [`${issuer}/`, 'about:blank'], secret: token.split('.')[1] });
const { open, looks } = browser;
const host = new URL(issuer).host;
const contractPage = `${issuer}/contracts/${contract}`;

/** The first page says what this host is, and leads on. */
async function index() {
  const { tab, close } = await open(`${issuer}/`);
  assert.equal(await tab.locator('h1').innerText(), issuer);
  for (const [link, heading] of [['Verify a verdict', 'Verify a verdict'], ['Public log', 'Public log']]) {
    await tab.locator('main').getByRole('link', { name: link }).click();
    assert.equal(await tab.locator('h1').innerText(), heading);
    assert.equal(await tab.locator('nav [aria-current]').count(), 1);
    await tab.getByRole('link', { name: host }).click();
  }
  await tab.locator('main').getByRole('link', { name: 'API reference' }).click();
  await tab.locator('.opblock').first().waitFor();
  await tab.goBack();
  await tab.locator('main').getByRole('link', { name: 'Key set' }).click();
  assert.match(await tab.locator('body').innerText(), /"kty"/);
  await close();
}

/** By the keyboard alone: past the links of all pages, and on. */
async function keyboard() {
  const { tab, close } = await open(`${issuer}/`);
  for (const key of ['Tab', 'Enter', 'Tab', 'Enter']) await tab.keyboard.press(key);
  await tab.waitForURL('**/verify');
  await tab.goto(`${issuer}/log`);
  for (const key of ['Tab', 'Enter', 'Tab', 'Tab']) await tab.keyboard.press(key);
  await tab.keyboard.type(hash);
  await tab.keyboard.press('Enter');
  await tab.locator('#found').waitFor();
  assert.match(await tab.locator('#found').innerText(), /has it: entry \d+/);
  await close();
}

async function contracts() {
  const { tab, close } = await open(contractPage);
  await tab.locator('#signature.good').waitFor();
  assert.match(await tab.locator('#signature').innerText(), new RegExp(`^Signature checked: ${issuer} has signed .* with the key sandbox-.*${host}`));
  const rows = await tab.locator('tbody tr').allInnerTexts();
  assert.deepEqual(rows.slice(0, 5), [
    'Buyer\tagt_buyer',
    'Seller\tvendor:acme',
    'Amount\t40 USD',
    'Condition\t<b>goods</b> received & "signed"',
    'Arbiter\tO’Hara & Co',
  ]);
  assert.equal(await tab.locator('[data-signed=state]').textContent(), 'disputed');
  assert.equal(await tab.locator('.mark').innerText(), 'Sandbox: no real money');
  const history = await tab.locator('.timeline li').allInnerTexts();
  assert.deepEqual(history.map((entry) => entry.split('\n').slice(1).join(' ')), ['funded', 'delivered left at the door', 'disputed empty box']);
  await close();
  // Others have it as before.
  const forms = await Promise.all(['*/*', 'application/json', 'application/jwt'].map((accept) => fetch(contractPage, { headers: { accept } })));
  assert.deepEqual(forms.map((form) => form.headers.get('content-type')), ['application/json', 'application/json', 'application/jwt']);
}

/** A page that shows something else than was signed says so; and so does one whose token was changed. */
async function changedContracts() {
  for (const [from, to, said] of [
    ['data-signed="amount">40<', 'data-signed="amount">4000<', /another amount than was signed/],
    ['agt_buyer', 'agt_other', /another buyer than was signed/],
    ['left at the door', 'handed over', /another history than was signed/],
    [' class="care">disputed<', '>disputed<', /another history than was signed/],
    ['<p class="mark">Sandbox: no real money</p>', '', /another environment than was signed/],
    [/<tr><th scope="row">Arbiter.*\n/, '', /another arbiter than was signed/],
    [/name="contract" content="([^"]*)\.[^."]*"/, (_, signed) => `name="contract" content="${signed}.${'A'.repeat(86)}"`, /the signature does not verify/],
    [`name="issuer" content="${issuer}"`, 'name="issuer" content="https://other.example"', /the issuer must be https:\/\/other.example/],
  ]) {
    const { tab, close } = await open('about:blank');
    await tab.route(contractPage, async (route) => {
      const response = await route.fetch();
      const before = await response.text();
      const body = before.replace(from, to);
      assert.notEqual(body, before);
      await route.fulfill({ response, body });
    });
    await tab.goto(contractPage);
    await tab.locator('#signature.bad').waitFor();
    const text = await tab.locator('#signature').innerText();
    assert.match(text, /^Do not rely on this page: /);
    assert.match(text, said);
    await close();
  }
}

/** The page of another contract says that this is not its address. */
async function swappedContract() {
  const { tab, close } = await open('about:blank');
  const other = `${issuer}/contracts/${'0'.repeat(64)}`;
  await tab.route(other, async (route) => route.fulfill({ response: await route.fetch({ url: contractPage }) }));
  await tab.goto(other);
  await tab.locator('#signature.bad').waitFor();
  assert.match(await tab.locator('#signature').innerText(), /another address than was signed/);
  await close();
}

async function absentContract() {
  const { tab, close } = await open(`${issuer}/contracts/${'0'.repeat(64)}`, { expected: /status of 404/ });
  assert.equal(await tab.locator('h1').innerText(), 'There is no contract at this address');
  await close();
}

async function logs() {
  const { tab, close } = await open(`${issuer}/log`);
  // Of two witnesses one is away.
  const witnesses = await tab.locator('table').last().locator('tbody tr').allInnerTexts();
  assert.match(witnesses[0], /^w1.example\t\d+ (entry|entries), \d+ (second|minute)s? ago$/);
  assert.equal(witnesses[1], 'w2.example\tnone of the newest checkpoints');
  assert.deepEqual(await tab.locator('h2').allInnerTexts(), ['Look up a token', 'The log of production', 'The log of sandboxes, where no money is real']);
  await tab.fill('#token', `${token}\n`);
  await tab.waitForFunction((hash) => document.getElementById('hash').value === hash, hash);
  await tab.click('button[type=submit]');
  await tab.locator('#found').waitFor();
  assert.match(await tab.locator('#found').innerText(), /^The log has it: entry \d+, counted from 0, of the \d+ in the checkpoint. It is the log of sandboxes, where no money is real\./);
  const [download] = await Promise.all([tab.waitForEvent('download'), tab.getByRole('link', { name: 'The proof' }).click()]);
  assert.equal(download.suggestedFilename(), 'decision.tlog-proof');
  const [header] = readFileSync(await download.path(), 'utf8').split('\n');
  assert.equal(header, proof.split('\n')[0]);
  // What is no token has no hash, and is not sent.
  await tab.fill('#token', 'no token');
  await tab.waitForFunction(() => document.getElementById('hash').value === '');
  const before = tab.url();
  await tab.click('button[type=submit]');
  assert.equal(tab.url(), before);
  await tab.goto(`${issuer}/log?hash=${'0'.repeat(64)}`);
  assert.match(await tab.locator('#found').innerText(), /^No log has a decision/);
  await tab.goto(`${issuer}/log?hash=%3Cscript%3E`);
  assert.match(await tab.locator('#found').innerText(), /^The hash must be 64 digits/);
  await close();
}

async function reference() {
  const { tab, close } = await open(`${issuer}/reference`);
  await tab.locator('.opblock').first().waitFor();
  await tab.locator('.opblock-summary-control').first().click();
  await tab.locator('.opblock-body').first().waitFor();
  // It cannot call the API, so it asks for no key.
  assert.equal(await tab.getByRole('button', { name: 'Authorize', exact: true }).count(), 0);
  assert.equal(await tab.locator('nav [aria-current]').innerText(), 'API reference');
  assert.equal(await tab.locator('.authorize, .authorization__btn, .try-out, input[type=password]').count(), 0);
  await close();
}

/** All that is said is said without scripts too. */
async function withoutScript() {
  const read = async (address) => {
    const { tab, close } = await open(address, { javaScriptEnabled: false });
    const text = await tab.locator('body').innerText();
    await close();
    return text;
  };
  assert.match(await read(`${issuer}/`), /Public log/);
  assert.match(await read(contractPage), /delivered[\s\S]*left at the door/);
  assert.match(await read(contractPage), new RegExp(`mandate escrow contract ${contract} --issuer ${issuer} --allow-sandbox`));
  assert.match(await read(`${issuer}/log?hash=${hash}`), /has it: entry/);
  const log = await read(`${issuer}/log`);
  assert.match(log, /w1.example/);
  assert.doesNotMatch(log, /Its hash is computed in this page/);
  assert.match(await read(`${issuer}/reference`), /openapi.yaml/);
}

async function pictures() {
  await looks('index', `${issuer}/`);
  await looks('contract', contractPage, { prepare: (tab) => tab.locator('#signature.good').waitFor() });
  await looks('log', `${issuer}/log?hash=${hash}`);
  const opened = async (tab) => {
    await tab.locator('.opblock-summary-control').nth(1).click();
    await tab.locator('.opblock-body .responses-table').first().waitFor();
  };
  // Rules that the HTML of Swagger UI breaks.
  const except = ['heading-order', 'nested-interactive', 'select-name'];
  await looks('reference', `${issuer}/reference`, { prepare: opened, except });
}

try {
  await browser.run([index, keyboard, contracts, changedContracts, swappedContract, absentContract, logs, reference, withoutScript, pictures]);
  console.log(JSON.stringify({ screenshots: browser.pictures() }));
} finally {
  await browser.close();
}
