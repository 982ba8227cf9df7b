// Writes what the pages need that run the core: node build.mjs PACKAGE ESBUILD OUTPUT BUILT
//
// PACKAGE is the built npm package, ESBUILD the module of that name. OUTPUT is the page that verifies, in one file. BUILT is a
// folder for what a server embeds: scripts and the core. Style and form are the server's own templates, for both.

import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const [folder, esbuild, output, built] = process.argv.slice(2);
const { build } = (await import(esbuild)).default;
const here = fileURLToPath(new URL('.', import.meta.url));
const templates = fileURLToPath(new URL('../../../mandate-server/templates/', import.meta.url));

// The pages import the package's modules by their place beside them.
const work = mkdtempSync(join(tmpdir(), 'mandate-page-'));
try {
  cpSync(here, join(work, 'page'), { recursive: true });
  cpSync(join(folder, 'lib'), join(work, 'lib'), { recursive: true });
  const bundle = async (entry) => {
    const { outputFiles } = await build({
      entryPoints: [join(work, 'page', entry)],
      bundle: true,
      minify: true,
      write: false,
      format: 'esm',
      target: 'es2022',
      loader: { '.wasm': 'binary' },
      logLevel: 'warning',
    });
    return outputFiles[0].text.trim();
  };
  const read = (path) => readFileSync(path, 'utf8').trim();
  const script = (await bundle('standalone.js')).replaceAll('</script', '<\\/script');
  const style = read(join(templates, 'pages.css'));
  const hash = (text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
  const policy = [
    "default-src 'none'",
    `script-src ${hash(script)} 'wasm-unsafe-eval'`,
    `style-src ${hash(style)}`,
    'img-src data:',
    'connect-src https: http://localhost:* http://127.0.0.1:*',
    "base-uri 'none'",
    "form-action 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; ');
  const parts = { policy, style, script, form: read(join(templates, 'verify_form.html')) };
  const page = readFileSync(join(here, 'standalone.html'), 'utf8');
  writeFileSync(output, page.replace(/\{(policy|style|script|form)\}/g, (_, name) => parts[name]));

  mkdirSync(built, { recursive: true });
  writeFileSync(join(built, 'verify.js'), `${await bundle('hosted_verify.js')}\n`);
  writeFileSync(join(built, 'contract.js'), `${await bundle('contract.js')}\n`);
  cpSync(join(folder, 'lib/core_bg.wasm'), join(built, 'core.wasm'));
} finally {
  rmSync(work, { recursive: true });
}
