// The page: from what a person has typed to the answer. Texts reach the document as text only.

import { MandateError, PublishedKeys, checkVerdict, verifyProof } from '../lib/index.js';

const element = (id) => document.getElementById(id);
const form = element('form');
const issuers = new Map();
/** How a proof begins, and how much of a dropped file is read. */
const PROOF = 'c2sp.org/tlog-proof@v1';
const MAX_DROPPED = 100_000;
let countdown;
/** Counts the runs: an answer that came late, for what is no longer in the form, is not shown. */
let run = 0;

/** The text of a field; undefined where it is empty. */
function entered(id) {
  const text = element(id).value.trim();
  return text === '' ? undefined : text;
}

/** Of a page that a server sends: its issuer, whose keys are published beside the page. */
const ownIssuer = document.querySelector('meta[name=issuer]')?.content;

function keysOf(issuer) {
  const url = issuer === ownIssuer ? `${location.origin}/.well-known/jwks.json` : undefined;
  if (!issuers.has(issuer)) issuers.set(issuer, new PublishedKeys(issuer, { url }));
  return issuers.get(issuer);
}

async function verify() {
  const [issuer, token] = [entered('issuer') ?? '', entered('token') ?? ''];
  const report = await checkVerdict(token, {
    issuer,
    keys: keysOf(issuer),
    environment: element('sandbox').checked ? 'any' : 'production',
    amount: entered('amount'),
    currency: entered('currency'),
    recipient: entered('recipient'),
    nonces: 'elsewhere', // The page says so.
  });
  const proof = element('proof').value; // Its last line feed counts.
  if (report.error === undefined && proof.trim() !== '') await prove(report, token, proof);
  return report;
}

async function prove(report, token, proof) {
  try {
    const text = proof.endsWith('\n') ? proof : `${proof}\n`;
    const proved = await verifyProof(token, text, { logKey: entered('log-key') });
    report.checks.push({ check: 'log', status: 'passed', value: `entry ${proved.index} of ${proved.size} in ${proved.origin}` });
  } catch (error) {
    report.checks.push({ check: 'log', status: 'failed', value: error.message });
    report.error = error;
    report.answer = 'DO NOT DELIVER';
  }
}

function show(report) {
  clearInterval(countdown);
  const { answer, error, claims, checks, isSandbox } = report;
  element('who').textContent = `${entered('issuer') ?? ''} (${hostOf(entered('issuer'))})`;
  element('answer').textContent = answer;
  element('answer').className = `large ${error !== undefined ? 'bad' : answer.startsWith('MATCHES') ? 'good' : 'care'}`;
  element('reason').textContent = error?.message ?? '';
  element('mark').hidden = !isSandbox;
  element('checks').replaceChildren(...checks.filter(({ check }) => check !== 'replay').map(row));
  element('left').textContent = '';
  if (error === undefined) {
    tick(claims.exp);
    countdown = setInterval(tick, 1000, claims.exp);
  }
  element('result').hidden = false;
  element('result').scrollIntoView({ block: 'nearest' });
}

function row({ check, status, value }) {
  const [line, name, result] = ['tr', 'th', 'td'].map((tag) => document.createElement(tag));
  name.scope = 'row';
  name.textContent = check;
  result.className = status;
  result.textContent = status === 'not_compared' ? `${value} (not compared)` : value;
  line.append(name, result);
  return line;
}

/** The seconds that are left. An answer does not outlive its verdict. */
function tick(exp) {
  const seconds = Math.ceil(exp - Date.now() / 1000);
  if (seconds > 0) {
    element('left').textContent = `Valid for ${seconds} more ${seconds === 1 ? 'second' : 'seconds'}`;
    return;
  }
  clearInterval(countdown);
  element('left').textContent = '';
  element('answer').textContent = 'DO NOT DELIVER';
  element('answer').className = 'large bad';
  element('reason').textContent = 'the token has expired: ask for a new verdict';
}

function hostOf(issuer) {
  try {
    return new URL(issuer).host;
  } catch {
    return 'no address';
  }
}

function forget() {
  run += 1;
  clearInterval(countdown);
  element('result').hidden = true;
}

form.addEventListener('input', forget);
form.addEventListener('submit', async (event) => {
  event.preventDefault();
  forget();
  const mine = run;
  let report;
  try {
    report = await verify();
  } catch (error) {
    if (!(error instanceof MandateError)) throw error;
    report = { answer: 'DO NOT DELIVER', error, checks: error.checks ?? [], isSandbox: false };
  }
  if (mine === run) show(report);
});

for (const name of ['dragenter', 'dragover']) {
  document.addEventListener(name, (event) => {
    event.preventDefault();
    document.body.classList.add('dropping');
  });
}
document.addEventListener('dragleave', () => document.body.classList.remove('dropping'));
document.addEventListener('drop', async (event) => {
  event.preventDefault();
  document.body.classList.remove('dropping');
  const { files } = event.dataTransfer;
  const texts = Array.from(files, (file) => file.slice(0, MAX_DROPPED).text());
  if (files.length === 0) texts.push(event.dataTransfer.getData('text'));
  (await Promise.all(texts)).forEach(take);
  forget();
});

/** Puts what was dropped where it belongs: an order, a proof, or else a token. */
function take(text) {
  if (text.startsWith(PROOF)) {
    element('proof').value = text;
    element('more').open = true;
    return;
  }
  const order = text.trimStart().startsWith('{') ? orderOf(text) : undefined;
  if (order === undefined) element('token').value = text.trim();
  for (const [name, value] of Object.entries(order ?? {})) element(name).value = value;
}

/** The fields of an order as JSON, its amount digit by digit. Undefined: it is none. */
function orderOf(text) {
  try {
    // The text of a number, which reading it could change.
    const exact = text.replace(/("amount"\s*:\s*)(-?[0-9.eE+-]+)/, '$1"$2"');
    const { amount, currency, recipient } = JSON.parse(exact);
    const fields = Object.entries({ amount, currency, recipient }).filter(([, value]) => typeof value === 'string');
    return fields.length === 0 ? undefined : Object.fromEntries(fields);
  } catch {
    return undefined;
  }
}

if (ownIssuer !== undefined) {
  element('issuer').value = ownIssuer;
  element('issuer').readOnly = true;
  element('issuer-help').textContent = `As this page says. Compare ${location.host} with the address that the service has published.`;
}

/** A link may carry the token behind `#`, which browsers send nowhere. It leaves the address and the history at once. */
function takeFragment() {
  const fragment = new URLSearchParams(location.hash.slice(1)).get('token');
  if (fragment === null) return;
  history.replaceState(null, '', location.pathname + location.search);
  element('token').value = fragment;
  forget();
}

addEventListener('hashchange', takeFragment); // Such a link, while the page is open.
takeFragment();
