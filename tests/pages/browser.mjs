// A browser for the tests of pages: tabs that let no message in the console and no request to another place pass.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** Starts one. `allowed` are the beginnings of the addresses that a page may ask; `secret` is a text that no address may have. */
export async function start({ playwright, axe, screenshots, allowed, secret }) {
  const { chromium } = await import(playwright);
  const axeSource = readFileSync(axe, 'utf8');
  const browser = await chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
  });
  let pictures = 0;

  /** A tab at an address, what was wrong in it, and how to close it. `expected`: a message of the console that is none. */
  async function open(address, { expected, ...options } = {}) {
    const context = await browser.newContext(options);
    context.setDefaultTimeout(15_000);
    const tab = await context.newPage();
    const wrong = [];
    tab.on('console', (message) => expected?.test(message.text()) || wrong.push(`console: ${message.text()}`));
    tab.on('pageerror', (error) => wrong.push(`error: ${error}`));
    tab.on('request', (request) => {
      const url = request.url();
      if (!allowed.some((place) => url.startsWith(place))) wrong.push(`request: ${url}`);
      if (url.includes(secret)) wrong.push(`the token leaves the page: ${url}`);
    });
    await tab.goto(address);
    return {
      tab,
      wrong,
      close: async () => {
        assert.deepEqual(wrong, [], address);
        await context.close();
      },
    };
  }

  /** Each scheme, narrow and wide: a picture, nothing sticks out, and no violation of accessibility, but for these rules. */
  async function looks(name, address, { prepare = async () => {}, except = [], ...options } = {}) {
    const faults = [];
    for (const colorScheme of ['light', 'dark']) {
      for (const width of [320, 1280]) {
        const { tab, close } = await open(address, { colorScheme, viewport: { width, height: 900 }, reducedMotion: 'reduce', ...options });
        await prepare(tab);
        await tab.screenshot({ path: join(screenshots, `${name}-${colorScheme}-${width}.png`), fullPage: true });
        pictures += 1;
        const sticksOut = await tab.evaluate(() => document.documentElement.scrollWidth > innerWidth);
        if (sticksOut) faults.push(`${name} ${width}: wider than the window`);
        const { violations } = await tab.evaluate(`${axeSource}; axe.run()`);
        const counted = violations.filter(({ id }) => !except.includes(id));
        faults.push(...counted.map(({ id, nodes }) => `${name} ${colorScheme} ${width}: ${id}: ${nodes[0].html}`));
        await close();
      }
    }
    assert.deepEqual(faults, []);
  }

  /** Runs all parts; what is wrong in one does not keep the next from running. */
  async function run(parts) {
    const failed = [];
    for (const part of parts) {
      try {
        await part();
      } catch (error) {
        failed.push(`${part.name}: ${error.stack}`);
      }
    }
    if (failed.length > 0) throw new Error(failed.join('\n\n'));
  }

  return { open, looks, run, pictures: () => pictures, close: () => browser.close() };
}

/** A passkey for a tab: a new one, or those given. */
export async function passkey(tab, credentials = []) {
  const session = await tab.context().newCDPSession(tab);
  await session.send('WebAuthn.enable');
  const { authenticatorId } = await session.send('WebAuthn.addVirtualAuthenticator', {
    options: {
      protocol: 'ctap2', transport: 'internal', hasResidentKey: true, hasUserVerification: true, isUserVerified: true,
      automaticPresenceSimulation: true,
    },
  });
  for (const credential of credentials) await session.send('WebAuthn.addCredential', { authenticatorId, credential });
  return {
    credentials: async () => (await session.send('WebAuthn.getCredentials', { authenticatorId })).credentials,
    verified: (isUserVerified) => session.send('WebAuthn.setUserVerified', { authenticatorId, isUserVerified }),
  };
}

/** A POST to the API at an address. */
export async function call(api, key, path, body) {
  const response = await fetch(`${api}${path}`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
  return response.json();
}

/** A review that waits: of a payment of an agent's, who asks the API at an address. */
export async function review(api, agent, amount, recipient = 'vendor:acme') {
  const asked = await call(api, agent, '/authorizations', { amount, currency: 'USD', recipient, category: 'software' });
  assert.equal(asked.verdict, 'review', JSON.stringify(asked));
  return asked.review.id;
}

/** The proof of a token from the log of sandboxes, and the log's key. It is there some seconds after the token. */
export async function proofOf(issuer, hash) {
  for (let attempt = 0; attempt < 120; attempt++) {
    const response = await fetch(`${issuer}/log/sandbox/proof/${hash}`);
    if (response.ok) return { proof: await response.text(), key: await (await fetch(`${issuer}/log/sandbox/key`)).text() };
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
  throw new Error('the log has no proof of the token');
}
