// Shows the contract. The API is another host, so nothing is sent from here, and no key is asked for.

// The library writes HTML that it has made safe. Scripts are never made from text.
globalThis.trustedTypes?.createPolicy('default', { createHTML: (html) => html });

// The library's style has a dark half, behind this class.
const dark = matchMedia('(prefers-color-scheme: dark)');
const colour = () => document.documentElement.classList.toggle('dark-mode', dark.matches);
dark.addEventListener('change', colour);
colour();

const nothing = () => () => null;
SwaggerUIBundle({
  url: '/openapi.yaml',
  dom_id: '#reference',
  deepLinking: true,
  supportedSubmitMethods: [],
  validatorUrl: null,
  plugins: [() => ({ wrapComponents: { AuthorizeBtnContainer: nothing, authorizeBtn: nothing, authorizeOperationBtn: nothing } })],
});
