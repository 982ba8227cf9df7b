// Every vector, through the package: for each file and each vector the check that refused it, or null. The same in Node and in a
// browser, with WebCrypto and without.

export async function results(mandate, files) {
  const { verdicts, events, tokens, log } = files;
  const { checkEvent, checkVerdict, verifyProof } = mandate;
  const options = (file, vector) => ({
    issuer: vector.issuer ?? file.issuer ?? 'https://verdicts.example',
    keys: file.jwks,
    now: vector.now === undefined ? 0 : Date.parse(vector.now),
    environment: vector.environment ?? 'production',
    leewaySeconds: vector.leeway_seconds,
  });
  const order = ({ amount, currency, recipient, mandate }) => ({ amount, currency, recipient, mandate });
  const all = async (vectors, one) => {
    const found = {};
    for (const vector of vectors) found[vector.name] = (await one(vector)) ?? null;
    return found;
  };
  return {
    verdicts: await all(verdicts.vectors, async (vector) => {
      const report = await checkVerdict(vector.token, { ...options(verdicts, vector), ...order(vector) });
      // A refusal is never without the check that failed, and only what was compared is said to match.
      const last = report.checks.findLast(({ check }) => check !== 'replay');
      if (report.error === undefined ? last.status === 'failed' : report.answer !== 'DO NOT DELIVER') return 'inconsistent';
      const missing = (report.notCompared ?? []).filter((name) => name !== 'nonce');
      if (!missing.every((name) => vector[name] === undefined)) return 'says more than was compared';
      if (report.error !== undefined || vector.signature_only) return report.error?.check;
      // Rust refuses what the package reports; a mandate is compared only where one is expected.
      return missing.some((name) => name !== 'mandate') ? 'not_compared' : undefined;
    }),
    events: await all(events.vectors, async (vector) => (await checkEvent(vector.token, options(events, vector))).error?.check),
    tokens: await all(tokens.vectors, async (vector) => (await checkVerdict(vector.token, options(tokens, { environment: 'any', ...vector }))).error?.check),
    log: await all(log.proofs, (vector) =>
      verifyProof(log.token, vector.proof, { policy: log.policy }).then(
        () => null,
        (error) => error.check,
      ),
    ),
  };
}

/** The results once with WebCrypto and once by the core alone. */
export async function both(mandate, files) {
  const platform = await results(mandate, files);
  const { crypto } = globalThis;
  const hide = (value) => Object.defineProperty(globalThis, 'crypto', { value, configurable: true, writable: true });
  hide(undefined);
  try {
    return { platform, alone: await results(mandate, files) };
  } finally {
    hide(crypto);
  }
}
