// What the console's pages do: passkeys, answers, the queue that updates by itself, and keys.

const byId = (id) => document.getElementById(id);
const { base, roles = '', mode: loaded } = document.body.dataset;
/** The mode in force: that with which the page was loaded, until the news say otherwise. */
let mode = loaded;
const own = new Set(roles.split(' '));

const bytes = (text) => Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (char) => char.charCodeAt(0));
const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');

// --- Messages ---

/** Shows what a form has come to, below the button that was used; below a form that is hidden. */
function say(form, message) {
  const place = byId('message');
  const button = form.querySelector('[type="submit"]').closest('p');
  if (form.id === 'sign-out') byId('main').prepend(place);
  else (form.hidden ? form : button).after(place);
  place.textContent = message;
  place.hidden = message === '';
  if (message !== '') place.scrollIntoView({ block: 'nearest' });
}

/** Runs what a form does, with its buttons off meanwhile. */
async function during(form, work) {
  const buttons = [...form.querySelectorAll('button')];
  buttons.forEach((button) => { button.disabled = true; });
  say(form, '');
  try {
    await work();
  } catch (error) {
    say(form, explained(error));
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
  }
}

function explained(error) {
  switch (error.name) {
    case 'NotAllowedError': return 'The passkey was not used: it was cancelled, or took too long. Nothing was answered. Try again.';
    case 'InvalidStateError': return 'This device has a passkey of yours already. Sign in with it.';
    case 'NotSupportedError': return 'This device has no passkey that can be used: the algorithm ES256 is needed.';
    case 'SecurityError': return `Passkeys of this console work at ${location.origin} alone, and there only with TLS or on localhost.`;
    case 'TypeError': return 'The server was not reached. Check the connection, and try again.';
    default: return error.message;
  }
}

/** Whether an answer says that the session is over; then the page goes to sign in. */
function signedOut(response) {
  if (response.status !== 401) return false;
  const to = (location.pathname + location.search).slice(base.length + 1);
  location.assign(`${base}/sign-in?to=${encodeURIComponent(to)}`);
  return true;
}

async function post(path, body = {}) {
  const response = await fetch(`${base}/${path}`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
  if (response.status === 204) return undefined;
  if (!path.startsWith('sign-in') && !path.startsWith('enrol') && signedOut(response)) return new Promise(() => {});
  const answer = await response.json().catch(() => undefined);
  if (!response.ok || answer === undefined) throw new Error(answer?.error?.message ?? foreign(response.status));
  return answer;
}

/** What to do about an answer that is none of the console's: a proxy has sent it. */
function foreign(status) {
  if (status === 429) return 'Too many requests at once (429). Wait a moment, and try again: nothing counts twice.';
  if (status >= 500) return `The console cannot be reached now (${status}). Try again in a moment: nothing counts twice.`;
  return `What came back is not from the console (${status}). Load the page again; if that does not help, tell the operator.`;
}

// --- Passkeys ---

async function assertion({ challenge, rp, credential }) {
  const allowCredentials = credential === undefined ? [] : [{ type: 'public-key', id: bytes(credential) }];
  const key = await navigator.credentials.get({
    publicKey: { challenge: bytes(challenge), rpId: rp, userVerification: 'required', allowCredentials },
  });
  const { authenticatorData, clientDataJSON, signature } = key.response;
  return {
    credential: text(key.rawId),
    authenticatorData: text(authenticatorData),
    clientDataJSON: text(clientDataJSON),
    signature: text(signature),
  };
}

on('sign-in', async (form) => {
  const begun = await post('sign-in');
  await post('sign-in/passkey', { challenge: begun.challenge, assertion: await assertion(begun) });
  location.replace(`${base}/${form.dataset.to}`);
});

on('sign-out', async () => {
  await post('sign-out');
  location.replace(`${base}/sign-in`);
});

on('enrol', async (form) => {
  const secret = location.hash.slice(1);
  if (secret === '') throw new Error('The link has lost its end: the part behind #. Open the link as it was given to you.');
  // Before the device makes a passkey that could not be named.
  const label = form.elements.label.value.trim();
  if (label === '') throw new Error('The name of this passkey is empty. Give it one, such as that of the device.');
  const { challenge, rp, user, exclude } = await post('enrol', { secret });
  const key = await navigator.credentials.create({
    publicKey: {
      challenge: bytes(challenge),
      rp: { id: rp, name: `mandate, ${document.title.split(': ').at(-1)}` },
      user: { id: bytes(user.id), name: user.name, displayName: user.name },
      pubKeyCredParams: [{ type: 'public-key', alg: -7 }],
      excludeCredentials: exclude.map((id) => ({ type: 'public-key', id: bytes(id) })),
      authenticatorSelection: { residentKey: 'required', userVerification: 'required' },
      attestation: 'none',
    },
  });
  const registration = {
    authenticatorData: text(key.response.getAuthenticatorData()),
    clientDataJSON: text(key.response.clientDataJSON),
  };
  await post('enrol/passkey', { secret, challenge, label, registration });
  location.replace(`${base}/`);
});

function on(id, work) {
  const form = byId(id);
  form?.addEventListener('submit', (event) => {
    event.preventDefault();
    during(form, () => work(form));
  });
}

// --- Answers ---

const DONE = { approve: 'Approve', deny: 'Deny', stop: 'Stop' };
const SHOWN = ['answer', 'amount', 'currency', 'recipient', 'category', 'agent', 'reason', 'review', 'decision', 'mandate', 'organization', 'kind', 'issuer', 'person', 'credential', 'nonce', 'expires', 'version'];
let issued;
/** The form that asked for it. */
let asking;

const digits = () => /"amount":"?([0-9.]+)/.exec(issued.statement)[1];

/** Names on the button that signs what it does and where: on a narrow screen nothing else that says so is beside it. */
function nameButton() {
  const { answer, currency, recipient, agent, kind } = JSON.parse(issued.statement);
  const what = answer === 'stop' ? agent : `${digits()} ${currency} to ${recipient}`;
  const where = `${kind === 'production' ? 'LIVE' : 'sandbox'}${mode === 'observe' ? ', observe mode' : ''}`;
  byId('confirm').textContent = `${DONE[answer]} ${what}, ${where}, with my passkey`;
}

/** Gets a statement, and shows it in full beside the button that signs it. */
async function ask(form) {
  const { review, mandate } = byId('respond').dataset;
  const answer = form.dataset.answer;
  asking = form;
  const reason = form.elements.reason?.value;
  issued = await post('statements', { answer, review, mandate, reason });
  const statement = JSON.parse(issued.statement);
  const missing = Object.keys(statement).filter((name) => !SHOWN.includes(name));
  const names = [...SHOWN, ...missing].filter((name) => name in statement);
  byId('fields').replaceChildren(...names.flatMap((name) => {
    const [term, value] = [document.createElement('dt'), document.createElement('dd')];
    term.textContent = name;
    // Of the numbers, as they are in the text: a number of JavaScript could be another.
    value.textContent = name === 'amount' ? digits() : String(statement[name]);
    if (['answer', 'amount', 'currency', 'recipient'].includes(name)) value.className = 'digits';
    return [term, value];
  }));
  byId('statement').textContent = issued.statement;
  nameButton();
  byId('confirm').className = answer === 'approve' ? '' : 'deny';
  byId('until').textContent = `Until ${new Date(issued.expires).toLocaleTimeString()}.`;
  byId('sign').hidden = false;
  byId('choose').hidden = true;
  byId('statement-title').focus();
}

for (const id of ['approve', 'deny', 'stop']) on(id, ask);

on('sign', async () => {
  // Where its answer was lost, the same is sent again.
  issued.signed ??= await assertion(issued);
  const answer = await post('answers', { challenge: issued.challenge, assertion: issued.signed });
  if (answer.outcome === 'lost') {
    byId('sign').hidden = true;
    const by = answer.by ? ` by ${answer.by}` : '';
    throw new Error(`Yours came second: this review has been answered already${by}. Load the page again to see how.`);
  }
  location.reload();
});

byId('sign')?.addEventListener('reset', () => {
  byId('sign').hidden = true;
  byId('choose').hidden = false;
  asking.querySelector('input, button').focus();
});

// --- Time left ---

function left(end) {
  const minutes = Math.floor((Date.parse(end) - Date.now()) / 60_000);
  if (minutes < 0) return 'over';
  if (minutes === 0) return 'under 1 min';
  return minutes < 120 ? `${minutes} min` : `${Math.floor(minutes / 60)} h`;
}

function tick() {
  for (const time of document.querySelectorAll('time.left')) {
    const shown = left(time.dateTime);
    if (time.textContent !== shown) time.textContent = shown;
    time.classList.toggle('soon', Date.parse(time.dateTime) - Date.now() < 30 * 60_000);
  }
}
tick();
setInterval(tick, 10_000);

// --- The queue ---

const queue = byId('queue');

function row(waiting) {
  const item = byId('row').content.firstElementChild.cloneNode(true);
  item.dataset.review = waiting.review;
  item.firstElementChild.href = `${base}/reviews/${waiting.review}`;
  const set = (name, value) => { item.querySelector(`.${name}`).textContent = value; };
  set('amount', `${waiting.amount} ${waiting.currency}`);
  set('route', `${waiting.agent} → ${waiting.recipient}`);
  set('category', waiting.category);
  if (waiting.mode === 'observe') {
    const observed = document.createElement('strong');
    observed.className = 'care';
    observed.textContent = 'observed';
    item.querySelector('.category').append(' ', observed);
  }
  set('for', waiting.waits_for);
  const time = item.querySelector('.left');
  time.dateTime = waiting.expires_at;
  time.textContent = left(waiting.expires_at);
  return item;
}

function mark() {
  for (const item of queue.children) item.classList.toggle('mine', own.has(item.querySelector('.for').textContent));
}

/** As the server says it. */
function counted(total, isCut, shown) {
  if (total === 0) return 'Nothing waits for an answer.';
  if (total === 1) return '1 review waits for an answer.';
  if (total === shown) return `${total} reviews wait for an answer.`;
  return `${total}${isCut ? ' or more' : ''} reviews wait for an answer. ${shown} are shown, yours first.`;
}

/** Puts the rows in their order. Those that stay are not touched, so that focus and scroll stay too. */
function update({ waiting, total, is_cut: isCut }) {
  const rows = new Map([...queue.children].map((item) => [item.dataset.review, item]));
  const focused = [...queue.children].findIndex((item) => item.contains(document.activeElement));
  const wanted = new Set(waiting.map(({ review }) => review));
  for (const [review, item] of rows) if (!wanted.has(review)) item.remove();
  waiting.forEach((one, place) => {
    const item = rows.get(one.review) ?? row(one);
    if (queue.children[place] !== item) queue.insertBefore(item, queue.children[place] ?? null);
  });
  if (focused >= 0 && !queue.contains(document.activeElement)) {
    queue.children[Math.min(focused, queue.children.length - 1)]?.firstElementChild.focus({ preventScroll: true });
  }
  const count = counted(total, isCut, waiting.length);
  if (byId('count').textContent !== count) byId('count').textContent = count;
  mark();
  tick();
}

// --- News ---

const watched = byId('state')?.dataset.review;
/** How long to wait before a stream that has ended is opened again: twice as long each time, up to the last. */
const [FIRST_MILLIS, LAST_MILLIS] = [2_000, 60_000];
let events;
let again;
let wait = FIRST_MILLIS;

function stale() {
  if (queue !== null) byId('stale').hidden = false;
}

function switched(now) {
  mode = now;
  byId('switched').hidden = mode === loaded;
  if (issued !== undefined) nameButton();
}

/** Ends the stream. */
function leave() {
  clearTimeout(again);
  events?.close();
  events = undefined;
}

/** Opens the stream: its first news is the queue, or the review of the page, as it is. */
function listen() {
  leave();
  const stream = new EventSource(watched === undefined ? `${base}/events` : `${base}/events?review=${watched}`);
  events = stream;
  stream.addEventListener('queue', ({ data }) => {
    wait = FIRST_MILLIS;
    const news = JSON.parse(data);
    byId('stale').hidden = true;
    switched(news.mode);
    update(news);
  });
  stream.addEventListener('review', ({ data }) => {
    wait = FIRST_MILLIS;
    const news = JSON.parse(data);
    switched(news.mode);
    byId('gone').hidden = !news.is_gone;
  });
  stream.addEventListener('stale', stale);
  stream.addEventListener('ended', () => {
    leave();
    stale();
  });
  stream.addEventListener('error', () => {
    stale();
    // A lost connection is opened again by the browser. An answer that is no stream, as a proxy's 502, ends it for good.
    if (stream.readyState !== EventSource.CLOSED || events !== stream) return;
    again = setTimeout(listen, wait);
    wait = Math.min(wait * 2, LAST_MILLIS);
  });
}

/** A browser has six connections to an origin. A page that nobody sees holds none of them. */
function attend() {
  if (document.visibilityState === 'hidden') leave();
  else listen();
}

if (queue !== null || watched !== undefined) {
  document.addEventListener('visibilitychange', attend);
  attend();
  if (queue !== null) mark();
}

// --- Keys ---

const KEYS_OFF = 'mandate-keys-off';
const help = byId('keys');
const keysOn = byId('keys-on');

function stored(change) {
  try {
    return change(localStorage);
  } catch {
    return null;
  }
}

function move(step) {
  const links = [...queue.querySelectorAll('a')];
  const here = links.indexOf(document.activeElement);
  const next = here < 0 ? (step > 0 ? 0 : links.length - 1) : here + step;
  links[Math.max(0, Math.min(next, links.length - 1))]?.focus();
}

/** Begins an answer: here, or on the page of the review that has the focus. */
function begin(answer) {
  if (byId('choose') !== null && !byId('choose').hidden) {
    if (answer === 'deny') byId('why')?.focus();
    else byId('approve')?.requestSubmit();
  } else if (queue !== null && queue.contains(document.activeElement)) {
    location.assign(`${document.activeElement.href}#${answer}`);
  }
}

const KEYS = {
  j: () => queue && move(1),
  k: () => queue && move(-1),
  a: () => begin('approve'),
  d: () => begin('deny'),
  '?': () => help.showModal(),
};

if (help !== null) {
  keysOn.checked = stored((storage) => storage.getItem(KEYS_OFF)) === null;
  keysOn.addEventListener('change', () => {
    stored((storage) => (keysOn.checked ? storage.removeItem(KEYS_OFF) : storage.setItem(KEYS_OFF, 'off')));
  });
  byId('show-keys')?.addEventListener('click', () => help.showModal());
  document.addEventListener('keydown', (event) => {
    const typing = event.target.closest('input:not([type="checkbox"]), textarea, select, dialog') !== null;
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    // The help is where the keys are turned on again.
    if (!keysOn.checked && event.key !== '?') return;
    const act = Object.hasOwn(KEYS, event.key) ? KEYS[event.key] : undefined;
    if (act === undefined) return;
    event.preventDefault();
    act();
  });
  if (location.hash === '#approve' || location.hash === '#deny') begin(location.hash.slice(1));
}
