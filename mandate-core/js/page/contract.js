// The page of an escrow's contract: verifies the signed contract that came with it, and that the page shows what was signed.

import './hosted_core.js';
import { MandateError, PublishedKeys, verifyContract } from '../lib/index.js';

const meta = (name) => document.querySelector(`meta[name=${name}]`).content;
const issuer = meta('issuer');

/** What the page shows under a name. Of a time, its exact text. */
const shown = (element) => element.dateTime || element.textContent;

/** What a contract has; an arbiter is named only where there is one. */
const MEMBERS = ['state', 'buyer', 'seller', 'amount', 'currency', 'condition', 'arbiter', 'refund_after', 'contract'];

/** The names of what the page shows otherwise than it was signed, or not at all. */
function differing({ claims: { contract }, isSandbox }) {
  const isShown = (name) => document.querySelector(`[data-signed=${name}]`) !== null;
  const names = MEMBERS.filter((name) => contract[name] !== undefined && !isShown(name));
  if (!location.pathname.endsWith(`/${contract.contract}`)) names.push('address');
  if (isSandbox !== (document.querySelector('.mark') !== null)) names.push('environment');
  for (const element of document.querySelectorAll('[data-signed]')) {
    const name = element.dataset.signed;
    const signed = contract[name];
    // Of at most 15 digits, no two amounts are the same number.
    const isSame = typeof signed === 'number' ? Number(shown(element)) === signed : shown(element) === signed;
    if (!isSame) names.push(name);
  }
  const lines = document.querySelectorAll('.timeline li');
  const isSame = (line, { state, disputed, at, note }) =>
    shown(line.querySelector('time')) === at &&
    (line.querySelector('.care') !== null) === disputed &&
    line.querySelector('strong').textContent === state &&
    (line.querySelector('div')?.textContent ?? undefined) === note;
  const { history } = contract;
  if (lines.length !== history.length || !history.every((entry, place) => isSame(lines[place], entry))) names.push('history');
  return [...new Set(names)];
}

function say(tone, text) {
  const place = document.getElementById('signature');
  place.className = `note ${tone}`;
  place.textContent = text;
  place.hidden = false;
}

try {
  // The host serves its own keys beside the page; the token must name the issuer that the page names.
  const keys = new PublishedKeys(issuer, { url: `${location.origin}/.well-known/jwks.json` });
  const signed = await verifyContract(meta('contract'), { issuer, keys, environment: 'any' });
  const names = differing(signed);
  if (names.length > 0) {
    say('bad', `Do not rely on this page: it shows another ${names.join(', ')} than was signed.`);
  } else {
    const at = new Date(signed.claims.iat * 1000).toISOString().slice(0, 19).replace('T', ' ');
    say('good', `Signature checked: ${issuer} has signed what this page shows, at ${at} UTC, with the key ${signed.kid}. Compare ${location.host} with the address that the service has published.`);
  }
} catch (error) {
  if (!(error instanceof MandateError)) throw error;
  say('bad', `Do not rely on this page: ${error.message}`);
}
