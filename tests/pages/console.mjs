// What people do in the console, in a real browser with a virtual authenticator: node console.mjs PLAYWRIGHT AXE CONSOLE
// SCREENSHOTS < scene
//
// CONSOLE is the address of an environment's console. Standard input is JSON: `link` registers a passkey; `api`, `agent` and
// `organization` are the API's address and two keys of it; `mandate` is the one that governs the agent. Prints what was found
// as one JSON object; throws where a page is wrong.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { call as send, passkey, review as reviewed, start } from './browser.mjs';

const [playwright, axe, place, screenshots] = process.argv.slice(2);
const { link, api, agent, organization, mandate } = JSON.parse(readFileSync(0, 'utf8'));
const origin = new URL(place).origin;
const browser = await start({ playwright, axe, screenshots, allowed: [`${origin}/`, 'about:blank'], secret: link.split('#')[1] });
const found = {};
let person;

/** A POST to the API. */
const call = (key, path, body) => send(api, key, path, body);

/** A review that waits. */
const waiting = (amount, recipient) => reviewed(api, agent, amount, recipient);

/** A passkey for a tab: a new one, or the person's. */
const withPasskey = (tab) => passkey(tab, person?.credentials);

/** A tab of the person, signed in. */
async function signedIn(path, options = {}) {
  const { expected, ...context } = options;
  const opened = await browser.open('about:blank', { expected, storageState: person.state, ...context });
  const key = await withPasskey(opened.tab);
  await opened.tab.goto(`${place}/${path}`);
  return { ...opened, key };
}

/** By the operator's link a passkey is registered; opening the link uses nothing up. */
async function enrolment() {
  for (let scanner = 0; scanner < 2; scanner++) {
    const { close } = await browser.open(link);
    await close();
  }
  // ES256 is the one algorithm that is accepted; the browser names another that most devices have.
  const { tab, close } = await browser.open('about:blank', { expected: /pubKeyCredParams/ });
  const key = await withPasskey(tab);
  await tab.goto(link);
  await tab.fill('#label', ' ');
  await tab.click('#enrol button');
  await tab.getByText('The name of this passkey is empty.').waitFor();
  assert.deepEqual(await key.credentials(), []);
  await tab.fill('#label', 'Laptop ');
  await tab.click('#enrol button');
  await tab.waitForURL(`${place}/`);
  assert.equal(await tab.locator('h1').innerText(), 'Reviews');
  assert.equal(await tab.locator('#count').innerText(), 'Nothing waits for an answer.');
  person = { credentials: await key.credentials(), state: await tab.context().storageState() };
  const [cookie] = person.state.cookies;
  assert.deepEqual([cookie.httpOnly, cookie.sameSite, cookie.path], [true, 'Lax', '/']);
  await close();
  const used = await browser.open('about:blank', { expected: /status of 400/ });
  await withPasskey(used.tab);
  await used.tab.goto(link);
  await used.tab.click('#enrol button');
  await used.tab.locator('#message:not([hidden])').waitFor();
  assert.match(await used.tab.locator('#message').innerText(), /^the enrolment link was used/);
  await used.close();
}

/** A link from a notice leads to the sign-in, and then to the review. */
async function notice() {
  const review = await waiting(201);
  const { tab, close } = await browser.open('about:blank');
  await withPasskey(tab);
  await tab.goto(`${place}/reviews/${review}`);
  assert.equal(await tab.locator('h1').innerText(), 'Sign in');
  await tab.click('#sign-in button');
  await tab.waitForURL(`${place}/reviews/${review}`);
  assert.equal(await tab.locator('h1').innerText(), '201 USD');
  await tab.click('#sign-out button');
  await tab.waitForURL(`${place}/sign-in`);
  await tab.goto(`${place}/decisions?verdict=denials&agent=`);
  assert.equal(await tab.locator('h1').innerText(), 'Sign in');
  await tab.click('#sign-in button');
  await tab.waitForURL(`${place}/decisions?verdict=denials&agent=`);
  await close();
}

/** The queue grows by itself; by the keyboard alone a review is approved. */
async function approval() {
  const { tab, close } = await signedIn('');
  const before = await tab.locator('#queue li').count();
  const review = await waiting(300);
  await tab.locator(`[data-review="${review}"]`).waitFor();
  assert.equal(await tab.locator('#queue li').count(), before + 1);
  for (let row = 0; row <= before; row++) await tab.keyboard.press('j');
  await tab.keyboard.press('k');
  await tab.keyboard.press('j');
  assert.equal(await tab.evaluate(() => document.activeElement.closest('li').dataset.review), review);
  const focused = await waiting(250, 'vendor:other');
  await tab.locator(`[data-review="${focused}"]`).waitFor();
  assert.equal(await tab.evaluate(() => document.activeElement.closest('li').dataset.review), review, 'the focus stays');
  await tab.keyboard.press('a');
  await tab.waitForURL(`**/reviews/${review}#approve`);
  await tab.locator('#sign:not([hidden])').waitFor();
  const fields = await tab.locator('#fields').innerText();
  for (const said of ['approve', '300', 'USD', 'vendor:acme', review, 'demo', 'sandbox']) assert.ok(fields.includes(said), said);
  const statement = JSON.parse(await tab.locator('#statement').textContent());
  assert.deepEqual([statement.answer, statement.review], ['approve', review]);
  await tab.click('#confirm');
  await tab.locator('#fresh').waitFor();
  assert.equal(await tab.locator('#fresh').innerText(), 'allow');
  assert.match(await tab.locator('#state').innerText(), /^Approved by Head of IT \(person\)/);
  await close();
}

/** A denial has a reason. */
async function denial() {
  const review = await waiting(310);
  const { tab, close } = await signedIn(`reviews/${review}`);
  await tab.keyboard.press('d');
  await tab.keyboard.type('<b>not needed</b>');
  await tab.keyboard.press('Enter');
  await tab.locator('#sign:not([hidden])').waitFor();
  await tab.getByRole('button', { name: 'Cancel' }).click();
  assert.equal(await tab.evaluate(() => document.activeElement.id), 'why');
  await tab.keyboard.press('Enter');
  await tab.locator('#sign:not([hidden])').waitFor();
  await tab.click('#confirm');
  await tab.locator('#state strong').waitFor();
  await tab.getByText('Reason: <b>not needed</b>').waitFor();
  assert.match(await tab.locator('#state').innerText(), /^Denied by Head of IT/);
  await close();
  const next = await waiting(320);
  const later = await signedIn(`reviews/${next}`);
  assert.match(await later.tab.locator('main').innerText(), /310 USD to vendor:acme: <b>not needed<\/b>/);
  await later.close();
}

/** Two answer at once: the second is told who was first. */
async function race() {
  const review = await waiting(330);
  const { tab, close } = await signedIn(`reviews/${review}`);
  await tab.click('#approve button');
  await tab.locator('#sign:not([hidden])').waitFor();
  await call(organization, `/reviews/${review}/deny`, { reason: 'too late' });
  await tab.locator('#gone:not([hidden])').waitFor();
  await tab.click('#confirm');
  await tab.locator('#message:not([hidden])').waitFor();
  assert.match(await tab.locator('#message').innerText(), /^Yours came second: .*by .* \(key\)/);
  await close();
}

/** Without the user's verification nothing is answered. */
async function unverified() {
  const review = await waiting(340);
  const { tab, key, close } = await signedIn(`reviews/${review}`);
  await key.verified(false);
  await tab.click('#approve button');
  await tab.locator('#sign:not([hidden])').waitFor();
  await tab.click('#confirm');
  await tab.locator('#message:not([hidden])').waitFor();
  assert.match(await tab.locator('#message').innerText(), /^The passkey was not used/);
  await close();
}

/** A session that ends before the answer: nothing is answered, and the sign-in leads back. */
async function expired() {
  const review = await waiting(335);
  const { tab, close } = await browser.open('about:blank', { expected: /status of 401/ });
  await withPasskey(tab);
  const signIn = async () => {
    await tab.click('#sign-in button');
    await tab.waitForURL(`${place}/reviews/${review}`);
  };
  await tab.goto(`${place}/reviews/${review}`);
  await signIn();
  await tab.click('#approve button');
  await tab.locator('#sign:not([hidden])').waitFor();
  const [{ name, value }] = await tab.context().cookies();
  const headers = { 'Content-Type': 'application/json', Cookie: `${name}=${value}`, Origin: origin };
  assert.equal((await fetch(`${place}/sign-out`, { method: 'POST', headers, body: '{}' })).status, 204);
  await tab.click('#confirm');
  await tab.waitForURL(`${place}/sign-in?to=${encodeURIComponent(`reviews/${review}`)}`);
  await signIn();
  assert.match(await tab.locator('#state').innerText(), /^Waits for/);
  await close();
}

/** A mark with these words is the first thing on a page, even on a narrow one, and has a colour of its own. */
async function marked(tab, words) {
  await tab.setViewportSize({ width: 320, height: 480 });
  const mark = tab.locator('.mark').filter({ hasText: words });
  await mark.waitFor();
  const { x, y, width, height } = await mark.boundingBox();
  assert.ok(x >= 0 && y >= 0 && x + width <= 320 && y + height <= 200, `${words}: ${x} ${y} ${width} ${height}`);
  const [own, page] = await mark.evaluate((element) => [element, document.body].map((of) => getComputedStyle(of).backgroundColor));
  assert.ok(own !== page && own !== 'rgba(0, 0, 0, 0)', `${words}: ${own} on ${page}`);
}

/** LIVE and observe mode cannot be overlooked. */
async function marks() {
  const live = await browser.open(`${origin}/production/demo/sign-in`);
  await marked(live.tab, 'LIVE: real money');
  assert.match(await live.tab.title(), /, LIVE$/);
  await live.close();
  const { tab, close } = await signedIn('');
  assert.equal(await tab.locator('.mark.observe').count(), 0);
  await call(organization, '/enforcement', { mode: 'observe' });
  await tab.reload();
  await marked(tab, 'Sandbox: no real money');
  await marked(tab, 'Observe mode: nothing is blocked');
  await call(organization, '/enforcement', { mode: 'enforce' });
  await close();
}

/** The other pages, and the downloads. */
async function reading() {
  const { tab, close } = await signedIn('decisions?verdict=denials');
  assert.equal(await tab.locator('tbody tr').count(), 0);
  await tab.selectOption('#verdict', '');
  await tab.click('.filters button');
  assert.ok((await tab.locator('tbody tr').count()) >= 6);
  const [download] = await Promise.all([tab.waitForEvent('download'), tab.getByRole('button', { name: 'As CSV' }).click()]);
  const lines = readFileSync(await download.path(), 'utf8').trim().split('\r\n');
  assert.match(lines[0], /^decision,iat,sequence/);
  found.rows = lines.length - 1;
  await tab.locator('tbody a').first().click();
  await tab.getByRole('heading', { name: 'Why, rule by rule' }).waitFor();
  assert.match(await tab.getByRole('link', { name: 'Verify here' }).getAttribute('href'), /\/verify#token=eyJ/);
  for (const name of ['Usage', 'Mandates', 'Agents', 'Webhooks', 'Exports', 'People']) {
    await tab.locator('header').getByRole('link', { name }).click();
    assert.match(await tab.locator('h1').innerText(), new RegExp(`^${name}`));
    assert.equal(await tab.locator('nav [aria-current]').first().innerText(), name);
  }
  await close();
}

/** The keys are turned off, and on again: by `?`, which always answers, and by a button. */
async function keys() {
  const { tab, close } = await signedIn('');
  const dialog = tab.locator('dialog[open]');
  const turn = async (on) => {
    await dialog.waitFor();
    await tab.setChecked('#keys-on', on);
    await dialog.getByRole('button', { name: 'Close' }).click();
    await dialog.waitFor({ state: 'detached' });
  };
  const moves = async () => {
    await tab.evaluate(() => document.activeElement.blur());
    await tab.keyboard.press('j');
    return tab.evaluate(() => document.activeElement.closest('#queue li') !== null);
  };
  await tab.locator('#queue li').first().waitFor();
  await tab.keyboard.press('?');
  await turn(false);
  await tab.reload();
  assert.equal(await moves(), false);
  await tab.keyboard.press('?');
  await turn(true);
  assert.equal(await moves(), true);
  await tab.getByRole('button', { name: 'Keys' }).click();
  await turn(false);
  assert.equal(await moves(), false);
  await tab.getByRole('button', { name: 'Keys' }).click();
  await turn(true);
  await close();
}

/** The agent is stopped, also where the first response is lost: what was signed is sent again. */
async function stop() {
  const { tab, close } = await signedIn(`mandates/${mandate}`, { expected: /net::ERR_FAILED/ });
  const sent = [];
  await tab.context().route('**/answers', async (route) => {
    sent.push(route.request().postData());
    if (sent.length > 1) return route.continue();
    await route.fetch();
    return route.abort();
  });
  await tab.click('#stop button');
  await tab.locator('#sign:not([hidden])').waitFor();
  assert.match(await tab.locator('#confirm').innerText(), /^Stop agt_\w+, sandbox, with my passkey$/);
  await tab.click('#confirm');
  await tab.locator('#message:not([hidden])').waitFor();
  assert.match(await tab.locator('#message').innerText(), /^The server was not reached/);
  await tab.click('#confirm');
  await tab.locator('#status.care').waitFor();
  assert.equal(await tab.locator('#status').innerText(), 'Revoked');
  assert.deepEqual(sent, [sent[0], sent[0]]);
  const asked = await call(agent, '/authorizations', { amount: 1, currency: 'USD', recipient: 'vendor:acme', category: 'software' });
  assert.equal(asked.verdict, 'deny_revoked');
  await close();
}

/** Attacks: none gets through, whatever it tries. */
async function attacks() {
  // An agent asks 10 times a minute at most, and the walk is quick.
  const other = await call(organization, '/agents', { name: 'courier' });
  await call(organization, '/mandates', {
    principal: 'role:head-of-it', agent: other.id, limits: { per_transaction: 500, per_month: 2000, currency: 'USD' },
    categories: ['software'], review_above: 200, expires: '2099-12-31',
  });
  const review = await reviewed(api, other.agent_key, 360);
  const { tab, close } = await signedIn(`reviews/${review}`, { expected: /status of 40\d/ });
  const sent = [];
  tab.on('request', (request) => request.method() === 'POST' && sent.push({ url: request.url(), body: request.postData() }));
  const [{ name, value }] = person.state.cookies;
  const cookie = `${name}=${value}`;
  const own = { 'Content-Type': 'application/json', Cookie: cookie, Origin: origin };
  const post = async (path, body, headers = own, from = place) => {
    const response = await fetch(`${from}/${path}`, { method: 'POST', redirect: 'manual', headers, body: JSON.stringify(body) });
    return response.status;
  };
  const get = async (address, headers = {}) => (await fetch(address, { redirect: 'manual', headers })).status;

  // Without a session, and with the session of another environment or organization.
  const pages = ['', `reviews/${review}`, 'decisions', 'decisions.csv', 'decisions.ndjson', 'usage', 'mandates', `mandates/${mandate}`, 'agents', 'webhooks', 'exports', 'people'];
  for (const page of pages) {
    assert.equal(await get(`${place}/${page}`), 303, page);
    for (const other of ['production/demo', 'sandbox/other']) {
      assert.equal(await get(`${origin}/${other}/${page}`, { Cookie: cookie }), 303, `${other} ${page}`);
      const renamed = cookie.replace('sandbox-demo', other.replace('/', '-'));
      assert.equal(await get(`${origin}/${other}/${page}`, { Cookie: renamed }), 303, `renamed ${other} ${page}`);
    }
  }
  assert.equal(await get(`${place}/events`), 401);
  const anonymous = { 'Content-Type': 'application/json', Origin: origin };
  const ask = { answer: 'approve', review };
  for (const path of ['statements', 'answers', 'sign-out']) assert.equal(await post(path, ask, anonymous), 401, path);

  // From another site's page, and from none.
  for (const headers of [
    { ...own, Origin: 'https://evil.example' },
    { ...own, Origin: 'null' },
    { 'Content-Type': 'application/json', Cookie: cookie },
    { ...own, 'Sec-Fetch-Site': 'cross-site' },
    { ...own, 'Sec-Fetch-Site': 'same-site' },
  ]) {
    for (const path of ['statements', 'answers', 'sign-out', 'sign-in', 'sign-in/passkey', 'enrol', 'enrol/passkey']) {
      assert.equal(await post(path, ask, headers), 403, path);
    }
  }
  // A form of another site is no JSON; a key of the API opens nothing here, and the cookie nothing there.
  assert.equal(await post('statements', ask, { ...own, 'Content-Type': 'text/plain' }), 400);
  assert.equal(await get(`${place}/`, { Authorization: `Bearer ${organization}` }), 303);
  assert.equal(await get(`${api}/decisions`, { Cookie: cookie }), 401);

  // What was signed is good once, for what it says, in its session, and in time.
  await tab.click('#approve button');
  await tab.locator('#sign:not([hidden])').waitFor();
  await tab.click('#confirm');
  await tab.locator('#fresh').waitFor();
  const { body } = sent.find(({ url }) => url.endsWith('/answers'));
  const answer = JSON.parse(body);
  // What was sent again, as where the first response was lost, has the outcome of the first, and answers nothing again.
  assert.equal(await post('answers', answer), 200, 'sent again');
  const next = await reviewed(api, other.agent_key, 365);
  const issued = await (await fetch(`${place}/statements`, { method: 'POST', headers: own, body: JSON.stringify({ answer: 'approve', review: next }) })).json();
  assert.equal(await post('answers', { ...answer, challenge: issued.challenge }), 400, 'signed for another payment');
  assert.equal(await post('answers', { ...answer, challenge: issued.challenge }), 400, 'a statement used twice');
  assert.equal(await post('answers', { ...answer, challenge: 'A'.repeat(43) }), 400, 'an unknown challenge');
  assert.equal(await post('sign-in/passkey', answer, anonymous), 400, 'an answer is no sign-in');
  assert.equal(await post('statements', { answer: 'approve', review: 'rev_01hf7yat000000000000000007' }), 404);
  assert.equal(await post('enrol', { secret: link.split('#')[1] }, anonymous), 400, 'a link used twice');
  assert.equal(await post('enrol', { secret: 'A'.repeat(43) }, anonymous), 404, 'a guessed link');
  await close();

  // However many sign-ins are begun, the person comes in: here the listener sees no client that it could limit.
  for (let count = 0; count < 200; count++) assert.equal(await post('sign-in', {}, anonymous), 200);
  const back = await browser.open('about:blank');
  await withPasskey(back.tab);
  await back.tab.goto(`${place}/sign-in`);
  await back.tab.click('#sign-in button');
  await back.tab.waitForURL(`${place}/`);
  await back.close();
}

async function pictures() {
  const review = await waiting(350);
  const options = { storageState: person.state };
  const look = (name, path, prepare) => browser.looks(name, `${place}/${path}`, { ...options, prepare });
  await look('console-reviews', '', (tab) => tab.locator('#queue li').first().waitFor());
  await look('console-review', `reviews/${review}`);
  await look('console-answer', `reviews/${review}`, async (tab) => {
    await tab.click('#approve button');
    await tab.locator('#sign:not([hidden])').waitFor();
  });
  for (const page of ['decisions', 'usage', 'mandates', `mandates/${mandate}`, 'agents', 'webhooks', 'exports', 'people']) {
    await look(`console-${page.split('/').join('-').replace(/-mnd_.*/, '-one')}`, page);
  }
  const { tab, close } = await signedIn('decisions');
  const decision = await tab.locator('tbody a').first().getAttribute('href');
  await close();
  await browser.looks('console-decision', `${origin}${decision}`, options);
  await browser.looks('console-sign-in', `${place}/sign-in`);
  await browser.looks('console-enrol', `${place}/enrol`);
  // Those of the documents.
  for (const [name, path, height] of [['console', '', 480], ['review', `reviews/${review}`, 900]]) {
    const shown = await signedIn(path, { viewport: { width: 1000, height } });
    await shown.tab.locator('#count, #state').first().waitFor();
    await shown.tab.screenshot({ path: `${screenshots}/${name}.png` });
    await shown.close();
  }
}

try {
  await browser.run([enrolment, notice, approval, denial, race, unverified, expired, marks, reading, keys, pictures, attacks, stop]);
  console.log(JSON.stringify({ ...found, screenshots: browser.pictures() }));
} finally {
  await browser.close();
}
