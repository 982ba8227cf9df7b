// Verification: the platform checks the signature where it can, the core everything else.

import { loadCore } from './core_module.js';
import { ExpiredError, IoError, NotComparedError, ReplayedError, UsageError, errorOf, takeOnly } from './errors.js';
import { KeySet, publishedBy } from './key_set.js';

/** What an order has. Without all of it no verdict matches an order. */
const ORDER = ['amount', 'currency', 'recipient'];
const TOKEN_OPTIONS = ['issuer', 'keys', 'now', 'leewaySeconds', 'environment', 'nonces'];
const VERDICT_OPTIONS = [...TOKEN_OPTIONS, ...ORDER, 'mandate', 'signatureOnly'];
/** The nonce is claimed elsewhere, by the caller. */
const ELSEWHERE = 'elsewhere';

/**
 * Verifies the token of a verdict that is about to be settled, and claims its nonce. Gives the report if the verdict matches the
 * order; otherwise throws the error of the check that failed, or NotComparedError.
 */
export async function verifyVerdict(token, options) {
  const report = await checkVerdict(token, options);
  if (report.error !== undefined) throw report.error;
  if (report.notCompared.length > 0 && options.signatureOnly !== true) {
    throw new NotComparedError(report.answer, { checks: report.checks });
  }
  return report;
}

/** Verifies the body of a webhook's request, and claims the event's id. Throws the error of the check that failed. */
export async function verifyEvent(token, options) {
  const report = await checkEvent(token, options);
  if (report.error !== undefined) throw report.error;
  return report;
}

/** The report on a verdict's token, for a person: as `verifyVerdict`, but a refusal is in the report as `error`. */
export async function checkVerdict(token, options) {
  takeOnly(options, VERDICT_OPTIONS);
  const checked = await check('verifyVerdict', token, options);
  const missing = ORDER.filter((name) => checked.not_compared.includes(name));
  // A verdict whose order was not compared is not used up.
  const isComplete = missing.length === 0 || options.signatureOnly === true;
  const claimed = await claimNonce(checked, options, isComplete);
  if (!claimed && options.nonces !== ELSEWHERE) missing.push('nonce');
  return reportOf(checked, () => ({
    answer: missing.length === 0 ? 'MATCHES THIS ORDER' : `SIGNATURE VALID; NOT COMPARED: ${missing.join(', ')}`,
    notCompared: missing,
    // A number of JavaScript is not for computing with money.
    amount: checked.checks.find((line) => line.check === 'amount').value,
    nonce: checked.nonce.id,
  }));
}

/** The report on an event's token: as `verifyEvent`, but a refusal is in the report as `error`. */
export async function checkEvent(token, options) {
  takeOnly(options, TOKEN_OPTIONS);
  const checked = await check('verifyEvent', token, options);
  await claimNonce(checked, options, true);
  return reportOf(checked, () => ({ answer: 'VALID', id: checked.nonce.id }));
}

/** Verifies the signed contract of an escrow, as its address gives it under `Accept: application/jwt`. */
export async function verifyContract(token, options) {
  takeOnly(options, ['issuer', 'keys', 'environment']);
  const { issuer, keys, environment = 'production' } = options;
  needText('token', token);
  needText('issuer', issuer);
  needText('environment', environment);
  const core = await loadCore();
  const read = await keySource(keys, issuer).keysFor(core, token);
  const { kid, is_sandbox: isSandbox, claims } = valueOf(
    core.verifyContract(token, read.keys, issuer, environment, await read.isSigned(token)),
  );
  return { kid, isSandbox, claims };
}

/** Verifies that the public log has the token's decision. `proof` is the text or the bytes of a `.tlog-proof`. */
export async function verifyProof(token, proof, options) {
  takeOnly(options, ['logKey', 'policy']);
  needText('token', token);
  const core = await loadCore();
  const bytes = typeof proof === 'string' ? new TextEncoder().encode(proof) : proof;
  if (!(bytes instanceof Uint8Array)) throw new UsageError('proof must be a string or a Uint8Array');
  for (const name of ['logKey', 'policy']) {
    if (options[name] !== undefined) needText(name, options[name]);
  }
  return valueOf(core.verifyProof(token, bytes, options.logKey, options.policy));
}

/** Decides on a request, as the service does: an object, or its JSON text. */
export async function evaluate(question) {
  const core = await loadCore();
  return valueOf(core.evaluate(typeof question === 'string' ? question : JSON.stringify(question)));
}

/** What the core says of a token. */
async function check(how, token, options) {
  needText('token', token);
  const { issuer, keys, now = Date.now, environment = 'production', leewaySeconds } = options;
  needText('issuer', issuer);
  const core = await loadCore();
  const read = await keySource(keys, issuer).keysFor(core, token);
  const signed = await read.isSigned(token);
  const { amount, currency, recipient, mandate } = options;
  // Fetching takes a while. What counts is the time at which the verdict is used.
  const at = typeof now === 'function' ? now() : now;
  const instant = at instanceof Date ? at.getTime() : at;
  if (!Number.isFinite(instant)) throw new UsageError('now must be a Date, or milliseconds since 1970');
  const expected = JSON.stringify({
    issuer,
    now: Math.floor(instant),
    environment,
    leeway_seconds: leewaySeconds,
    amount,
    currency,
    recipient,
    mandate,
  });
  const checked = JSON.parse(core[how](token, read.keys, expected, signed));
  if (checked.error?.exit === 'Usage') throw errorOf(checked.error);
  return { ...checked, issuer, instant };
}

function keySource(keys, issuer) {
  if (keys === undefined) return publishedBy(issuer);
  return typeof keys?.keysFor === 'function' ? keys : new KeySet(keys);
}

/** Claims the nonce as the last check, and adds its line. Gives whether it was claimed. */
async function claimNonce(checked, { nonces }, isComplete) {
  if (checked.error !== undefined) return false;
  const { id, until } = checked.nonce;
  const refuse = (Kind, name, message, cause) => {
    checked.checks.push({ check: name, status: 'failed', value: message });
    checked.error = { Kind, check: name, message, cause };
    return false;
  };
  if (nonces === undefined || nonces === ELSEWHERE || !isComplete) {
    checked.checks.push({ check: 'replay', status: 'not_compared', value: id });
    return false;
  }
  if (checked.instant > until) {
    // A store may have deleted such entries, so that it could not tell a first use from a second.
    const message = 'too late to tell whether this is a replay: the token expired too long ago';
    return refuse(ExpiredError, 'expiry', message);
  }
  let isFresh;
  try {
    isFresh = await nonces.claim(checked.issuer, id, until, checked.instant);
    if (typeof isFresh !== 'boolean') throw new Error('claim must give true or false');
  } catch (error) {
    const message = `the nonce store cannot tell whether this is a replay: ${error.message}`;
    return refuse(IoError, 'nonce_store', message, error);
  }
  if (!isFresh) return refuse(ReplayedError, 'replay', `this is a replay: \`${id}\` was seen before`);
  checked.checks.push({ check: 'replay', status: 'passed', value: `${id}, seen for the first time` });
  return true;
}

/** The report as the caller gets it: what is there of a refusal, and else what `accepted` gives. */
function reportOf({ checks, is_sandbox: isSandbox, claims, error }, accepted) {
  if (error === undefined) return { checks, isSandbox, claims, ...accepted() };
  const { Kind, check, message, cause } = error;
  const details = { check, checks, cause };
  const refusal = Kind === undefined ? errorOf(error, details) : new Kind(message, details);
  return { answer: 'DO NOT DELIVER', checks, isSandbox, error: refusal };
}

function valueOf(text) {
  const { value, error } = JSON.parse(text);
  if (error !== undefined) throw errorOf(error);
  return value;
}

function needText(name, value) {
  if (typeof value !== 'string') throw new UsageError(`${name} must be a string`);
}
