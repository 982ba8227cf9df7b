// All vectors in Node: node node.mjs PACKAGE VECTORS. Prints one JSON object.

import { readFileSync } from 'node:fs';
import { both } from './vectors.mjs';

const [folder, vectors] = process.argv.slice(2);
const mandate = await import(`${folder}/lib/node.js`);
const read = (name) => JSON.parse(readFileSync(`${vectors}/${name}.json`, 'utf8'));
const files = { verdicts: read('verdicts'), events: read('events'), tokens: read('tokens'), log: read('log') };
console.log(JSON.stringify(await both(mandate, files)));
