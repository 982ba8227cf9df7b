// Computes the hash of a token in the page, so that the token is sent nowhere. Without WebCrypto the form takes the hash alone.

const [form, token, hash] = ['lookup', 'token', 'hash'].map((id) => document.getElementById(id));

async function hashOf(text) {
  const signed = new TextEncoder().encode(text.trim().split('.').slice(0, 2).join('.'));
  const bytes = new Uint8Array(await crypto.subtle.digest('SHA-256', signed));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

if (globalThis.crypto?.subtle !== undefined) {
  document.getElementById('with-token').hidden = false;
  token.addEventListener('input', async () => {
    const text = token.value;
    const isToken = text.trim().split('.').length === 3;
    const found = isToken ? await hashOf(text) : '';
    // What was typed meanwhile has its own hash.
    if (token.value === text) hash.value = found;
    token.setCustomValidity(isToken || text.trim() === '' ? '' : 'A token has three parts with a full stop between them.');
  });
  form.addEventListener('submit', (event) => {
    // The hash may still be on its way.
    if (token.value.trim() !== '' && hash.value === '') event.preventDefault();
  });
}
