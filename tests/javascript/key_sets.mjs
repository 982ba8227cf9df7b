// How the package reads key sets, and how its nonce stores answer: node key_sets.mjs PACKAGE VECTORS. Throws where it is wrong.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const [folder, vectors] = process.argv.slice(2);
const mandate = await import(`${folder}/lib/node.js`);
const { maxAgeMs } = await import(`${folder}/lib/key_set.js`);
const { FileNonces, KeySet, MemoryNonces, PublishedKeys, checkVerdict, verifyEvent, verifyVerdict } = mandate;

const { issuer, jwks, vectors: all } = JSON.parse(readFileSync(`${vectors}/verdicts.json`, 'utf8'));
const events = JSON.parse(readFileSync(`${vectors}/events.json`, 'utf8'));
const { token } = all[0];
const now = Date.parse('2026-03-01T12:00:10Z');
const order = { amount: '40.50', currency: 'USD', recipient: 'vendor:acme' };
const complete = { issuer, keys: jwks, now, environment: 'sandbox', ...order };

/** The name, the number and the check of the error that is thrown. */
async function refusal(promise) {
  const error = await promise.then(
    () => assert.fail('it was accepted'),
    (error) => error,
  );
  assert.ok(error instanceof mandate.MandateError, String(error.stack));
  return [error.name, error.exitCode, error.check];
}

async function answers() {
  const nonces = new MemoryNonces();
  const verdict = await verifyVerdict(token, { ...complete, nonces });
  assert.equal(verdict.answer, 'MATCHES THIS ORDER');
  assert.deepEqual([verdict.amount, verdict.isSandbox, verdict.claims.request.amount], ['40.5', true, 40.5]);
  assert.deepEqual(verdict.checks.map(({ check, status }) => `${check} ${status}`).slice(-6), [
    'verdict passed', 'amount passed', 'currency passed', 'recipient passed', 'mandate not_compared', 'replay passed',
  ]);
  assert.deepEqual(await refusal(verifyVerdict(token, { ...complete, nonces })), ['ReplayedError', 18, 'replay']);
  assert.equal((await verifyVerdict(token, { ...complete, nonces: 'elsewhere' })).answer, 'MATCHES THIS ORDER');
}

/** What was not compared is said, is no acceptance, and uses nothing up. */
async function lessThanAnOrder() {
  const nonces = new MemoryNonces();
  const { currency: _, ...partly } = complete;
  assert.deepEqual(await refusal(verifyVerdict(token, { ...partly, nonces })), ['NotComparedError', 26, undefined]);
  assert.equal(nonces.size, 0);
  assert.equal((await checkVerdict(token, { ...partly, nonces })).answer, 'SIGNATURE VALID; NOT COMPARED: currency, nonce');
  assert.equal((await checkVerdict(token, complete)).answer, 'SIGNATURE VALID; NOT COMPARED: nonce');
  const bare = { issuer, keys: jwks, now, environment: 'any', signatureOnly: true };
  const { answer } = await verifyVerdict(token, bare);
  assert.equal(answer, 'SIGNATURE VALID; NOT COMPARED: amount, currency, recipient, nonce');
}

async function refusals() {
  const of = (changes, text = token) => refusal(verifyVerdict(text, { ...complete, nonces: 'elsewhere', ...changes }));
  assert.deepEqual(await of({ environment: undefined }), ['SandboxError', 22, 'environment']);
  assert.deepEqual(await of({ amount: '41' }), ['MismatchError', 17, 'amount']);
  assert.deepEqual(await of({ now: now + 300_000 }), ['ExpiredError', 12, 'expiry']);
  assert.deepEqual(await of({ now: now - 60_000 }), ['NotYetValidError', 13, 'issued_at']);
  assert.deepEqual(await of({ issuer: 'https://other.example' }), ['IssuerError', 14, 'issuer']);
  assert.deepEqual(await of({}, `${token}x`), ['MalformedTokenError', 10, 'encoding']);
  assert.deepEqual(await of({}, events.vectors[0].token), ['WrongKindError', 15, 'kind']);
  assert.deepEqual(await of({ keys: { keys: [] } }), ['SignatureError', 11, 'unknown_key']);
  assert.deepEqual(await of({ keys: '{}' }), ['KeySetError', 19, undefined]);
  // An option that would not be compared as it was meant is refused before anything is checked.
  for (const wrong of [
    { amount: 40.5 }, { amount: null }, { amount: '40,50' }, { currency: 'usd' }, { recipient: 'acme' }, { ammount: '40.50' },
    { leewaySeconds: 31 }, { environment: 'live' }, { now: NaN }, { issuer: undefined },
  ]) {
    assert.deepEqual(await of(wrong), ['UsageError', 2, undefined], JSON.stringify(wrong));
  }
  assert.deepEqual(await of({}, 7), ['UsageError', 2, undefined]);
  const error = await verifyVerdict(token, { ...complete, amount: '41' }).catch((error) => error);
  assert.equal(error.message, 'the amount must be 41; the signed one is 40.5');
  assert.deepEqual(error.checks.at(-1), { check: 'amount', status: 'failed', value: error.message });
  assert.equal(error.checks.at(-2).check, 'verdict');
}

async function events_() {
  const nonces = new MemoryNonces();
  const options = { issuer, keys: events.jwks, now, environment: 'sandbox', nonces };
  const event = await verifyEvent(events.vectors[0].token, options);
  assert.deepEqual([event.answer, event.claims.type, event.id], ['VALID', 'mandate.revoked', event.claims.jti]);
  assert.deepEqual(await refusal(verifyEvent(events.vectors[0].token, options)), ['ReplayedError', 18, 'replay']);
  assert.deepEqual(await refusal(verifyEvent(token, options)), ['WrongKindError', 15, 'kind']);
}

/** A store that answers anything but yes or no lets nothing pass. */
async function brokenStores() {
  for (const claim of [() => undefined, () => 1, () => 'fresh', () => Promise.reject(new Error('down')), undefined]) {
    assert.deepEqual(await refusal(verifyVerdict(token, { ...complete, nonces: { claim } })), ['IoError', 3, 'nonce_store']);
  }
  const full = new MemoryNonces({ most: 0 });
  assert.deepEqual(await refusal(verifyVerdict(token, { ...complete, nonces: full })), ['IoError', 3, 'nonce_store']);
}

async function files() {
  const directory = join(mkdtempSync(join(tmpdir(), 'mandate-')), 'nonces');
  let time = 0;
  const store = () => new FileNonces(directory, { clock: () => time });
  const stores = Array.from({ length: 8 }, store);
  const claims = await Promise.all(stores.map((one) => one.claim('a', '1', 1000)));
  assert.equal(claims.filter((fresh) => fresh).length, 1, 'of eight at once one is fresh');
  assert.equal(await store().claim('b', '1', 1000), true);
  assert.equal(await store().claim('a', '1', 1000), false);
  const day = 24 * 3_600_000;
  time = day + 1000;
  assert.equal(await store().claim('a', '1', 1000), false);
  time = day + 1001;
  await assert.rejects(store().claim('a', '1', 1000), /forgets nonces a day after their end/);
  time = 2 * day;
  assert.equal(await store().claim('a', '2', time), true);
  assert.deepEqual(readdirSync(directory).sort(), ['48', 'mandate-nonces']);
  const other = mkdtempSync(join(tmpdir(), 'mandate-'));
  writeFileSync(join(other, '1'), 'something else');
  await assert.rejects(new FileNonces(other).claim('a', '1', 1000), /is there and not a nonce store/);
  assert.deepEqual(readdirSync(other), ['1']);
}

/** An issuer whose answers, and the time, are the test's. */
function scene(answer, options = {}) {
  const scene = { time: now, fetched: 0, answer };
  const fetch = async (url, request) => {
    scene.fetched += 1;
    assert.equal(url, `${issuer}/.well-known/jwks.json`);
    assert.deepEqual([request.redirect, request.credentials], ['error', 'omit']);
    return scene.answer();
  };
  scene.keys = new PublishedKeys(issuer, { fetch, clock: () => scene.time, ...options });
  scene.verify = (text = token) => checkVerdict(text, { ...complete, keys: scene.keys });
  return scene;
}

const document = (headers) => () => new Response(JSON.stringify(jwks), { headers });

async function fetching() {
  const fresh = scene(document({ 'cache-control': 'public, max-age=300' }));
  await Promise.all([fresh.verify(), fresh.verify(), fresh.verify()]);
  assert.equal(fresh.fetched, 1, 'all who wait are served by one fetch');
  fresh.time += 299_999;
  await fresh.verify();
  assert.equal(fresh.fetched, 1);
  fresh.time += 1;
  await fresh.verify();
  assert.equal(fresh.fetched, 2);
  fresh.time -= 1000;
  await fresh.verify();
  assert.equal(fresh.fetched, 3, 'after a clock was set back nothing is fresh');

  // A token with an invented key causes a fetch every 30 seconds at most.
  const unknown = scene(() => new Response('{"keys":[]}', { headers: { 'cache-control': 'max-age=300' } }));
  for (let n = 0; n < 3; n++) assert.equal((await unknown.verify()).error.check, 'unknown_key');
  assert.equal(unknown.fetched, 1);
  unknown.time += 30_000;
  unknown.answer = document();
  assert.equal((await unknown.verify()).error, undefined);
  assert.equal(unknown.fetched, 2);
}

async function failing() {
  const down = scene(() => new Response('no', { status: 500 }));
  for (let n = 0; n < 3; n++) assert.deepEqual(await refusal(down.verify()), ['KeySetError', 19, undefined]);
  assert.equal(down.fetched, 1, 'a failure is remembered for 30 seconds');
  down.time += 30_000;
  down.answer = document();
  assert.equal((await down.verify()).error, undefined);
  // Once the keys have aged they do not count any more.
  down.time += 30_000;
  down.answer = () => Promise.reject(new TypeError('connection refused'));
  assert.deepEqual(await refusal(down.verify()), ['KeySetError', 19, undefined]);
  const long = scene(() => new Response(`{"keys":[],"x":"${'y'.repeat(70_000)}"}`));
  await assert.rejects(long.verify(), /longer than 65536 bytes/);
  const other = scene(() => new Response('<html>'));
  await assert.rejects(other.verify(), /the key set is refused/);
}

function places() {
  for (const place of ['https://a.example', 'https://10.0.0.1:8443/x/', 'http://127.0.0.1:8081', 'http://localhost:1', 'http://[::1]:1']) {
    new PublishedKeys(place);
  }
  for (const place of [
    'http://a.example', 'http://127.0.0.1.example', 'http://0.0.0.0', 'https://user:secret@a.example', 'https://a.example/?a=b',
    'https://a.example/#a', 'ftp://a.example', 'a.example', '/v1', '',
  ]) {
    assert.throws(() => new PublishedKeys(place), mandate.UsageError, place);
  }
  for (const [text, seconds] of [
    ['public, max-age=300', 300], ['Max-Age="5"', 5], ['max-age=99999999', 300], ['max-age=-1', 0], ['max-age=300, no-store', 0],
    ['no-cache, max-age=300', 0], ['public', 0], ['s-maxage=300', 0], ['max-age=x', 0],
  ]) {
    assert.equal(maxAgeMs(text), seconds * 1000, text);
  }
}

async function engine() {
  const question = {
    mandate: {
      principal: 'role:head-of-it', agent: 'agt_buyer', limits: { currency: 'USD', per_transaction: 500, per_month: 1000 },
      categories: ['software'], expires: '2026-12-31', review_above: 200,
    },
    basis: { spent: 700, recent_requests: 0 },
    request: { agent: 'agt_buyer', amount: 40, currency: 'USD', recipient: 'vendor:acme', category: 'software' },
    now: Date.parse('2026-06-01T12:00:00Z'),
  };
  const ask = (amount, more) => mandate.evaluate({ ...question, request: { ...question.request, amount }, ...more });
  assert.deepEqual(await ask(40), { verdict: 'allow', denials: [] });
  assert.deepEqual(await ask(201), { verdict: 'review', denials: [] });
  assert.deepEqual(await ask(201, { approval: true }), { verdict: 'allow', denials: [] });
  assert.deepEqual(await ask(301), {
    verdict: 'deny_limit', denials: ['deny_limit'], reason: 'amount 301 exceeds per_month limit 1000 (700 spent)',
  });
  const none = await ask(40, { mandate: undefined });
  assert.equal(none.verdict, 'deny_no_mandate');
  const revoked = { ...question.mandate, id: 'mnd_00000000000000000000000001', status: 'revoked', revoked_at: '2026-05-01T00:00:00Z' };
  assert.equal((await ask(40, { mandate: revoked })).reason, 'mandate mnd_00000000000000000000000001 is revoked');
  assert.deepEqual(await refusal(ask(0)), ['InvalidRequestError', 30, undefined]);
  assert.deepEqual(await refusal(mandate.evaluate('{"now":1,"now":2}')), ['InvalidRequestError', 30, undefined]);
}

async function proofs() {
  const log = JSON.parse(readFileSync(`${vectors}/log.json`, 'utf8'));
  const { proof } = log.proofs[0];
  const proved = await mandate.verifyProof(log.token, proof, { logKey: log.log_key, policy: log.policy });
  assert.deepEqual([proved.index, proved.size, proved.witnesses.length], [2, 5, 2]);
  assert.deepEqual((await mandate.verifyProof(log.token, new TextEncoder().encode(proof), { logKey: log.log_key })).witnesses, []);
  assert.deepEqual(await refusal(mandate.verifyProof('an.other.token', proof, { logKey: log.log_key })), ['NotProvedError', 51, 'root']);
  assert.deepEqual(await refusal(mandate.verifyProof(log.token, proof, {})), ['UsageError', 2, undefined]);
  assert.deepEqual(await refusal(mandate.verifyProof(log.token, proof, { logKey: 'x' })), ['UsageError', 2, undefined]);
}

/** A verdict is no contract; what is refused has the error of the check that failed. */
async function contracts() {
  const of = (changes, text = token) => refusal(mandate.verifyContract(text, { issuer, keys: jwks, environment: 'sandbox', ...changes }));
  assert.deepEqual(await of({}), ['WrongKindError', 15, 'kind']);
  assert.deepEqual(await of({ issuer: 'https://other.example' }), ['IssuerError', 14, 'issuer']);
  assert.deepEqual(await of({ environment: 'live' }), ['UsageError', 2, undefined]);
  assert.deepEqual(await of({}, `${token.split('.').slice(0, 2).join('.')}.${'A'.repeat(86)}`), ['SignatureError', 11, 'signature']);
  assert.deepEqual(await of({}, 'a.b'), ['MalformedTokenError', 10, 'parts']);
  assert.deepEqual(await of({ amount: '1' }), ['UsageError', 2, undefined]);
}

const parts = [answers, lessThanAnOrder, refusals, events_, brokenStores, files, fetching, failing, places, engine, proofs, contracts];
for (const part of parts) await part();
assert.ok(new KeySet(JSON.stringify(jwks)));
console.log(parts.length);
