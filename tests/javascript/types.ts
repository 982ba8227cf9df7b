import {
  ExpiredError,
  FileNonces,
  MandateError,
  MemoryNonces,
  PublishedKeys,
  checkVerdict,
  evaluate,
  verifyContract,
  verifyEvent,
  verifyProof,
  verifyVerdict,
  type NonceStore,
} from 'mandate-core';

const issuer = 'https://verdicts.example';

class Table implements NonceStore {
  async claim(issuer: string, nonce: string, until: number): Promise<boolean> {
    return issuer.length + nonce.length + until > 0;
  }
}

export async function settle(token: string): Promise<string> {
  const order = { issuer, amount: '40.50', currency: 'USD', recipient: 'vendor:acme' };
  try {
    const verdict = await verifyVerdict(token, { ...order, nonces: new Table() });
    await verifyVerdict(token, { ...order, nonces: new FileNonces('nonces'), keys: new PublishedKeys(issuer) });
    await verifyVerdict(token, { ...order, nonces: 'elsewhere', now: () => new Date() });
    return `${verdict.amount} ${verdict.claims.request.currency} ${verdict.nonce}`;
  } catch (error) {
    if (error instanceof ExpiredError) return 'ask for a new verdict';
    if (error instanceof MandateError) return `${error.exitCode} ${error.check ?? ''}`;
    throw error;
  }
}

export async function others(token: string): Promise<void> {
  const report = await checkVerdict(token, { issuer });
  if (report.error === undefined) console.log(report.notCompared.join());
  else console.log(report.error.message, report.checks.length);
  const event = await verifyEvent(token, { issuer, nonces: new MemoryNonces() });
  console.log(event.claims.data['id']);
  const { claims } = await verifyContract(token, { issuer, environment: 'sandbox' });
  console.log(claims.contract.state, claims.contract.history[0]?.note);
  const { size } = await verifyProof(token, 'proof', { logKey: 'key' });
  const { verdict } = await evaluate({
    basis: { spent: 0, recent_requests: 0 },
    request: { agent: 'agt_a', amount: 40.5, currency: 'USD', recipient: 'vendor:a', category: 'software' },
    now: Date.now() + size,
  });
  console.log(verdict);
}

export async function wrong(token: string): Promise<void> {
  // @ts-expect-error An amount is a string.
  await verifyVerdict(token, { issuer, amount: 40.5 });
  // @ts-expect-error The issuer is always expected.
  await verifyVerdict(token, { amount: '40.50' });
  // @ts-expect-error A mistyped option would not be compared.
  await verifyVerdict(token, { issuer, ammount: '40.50' });
  // @ts-expect-error An event has no amount.
  await verifyEvent(token, { issuer, amount: '40.50' });
}
