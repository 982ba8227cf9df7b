// Says whether a checkpoint is signed by the key of its log, with nothing but Node's own cryptography.
const { createHash, createPublicKey, verify } = require("node:crypto");

const [verifierKey, note] = process.argv.slice(1);
const [, name, id, encoded] = /^([^+]+)\+([0-9a-f]{8})\+(.+)$/.exec(verifierKey);
const key = Buffer.from(encoded, "base64");
const text = note.slice(0, note.indexOf("\n\n") + 1);
const lines = note.slice(text.length + 1).split("\n");
const line = lines.find((line) => line.startsWith(`— ${name} `));
const signed = Buffer.from(line.split(" ")[2], "base64");
const made = createHash("sha256").update(`${name}\n`).update(key).digest().subarray(0, 4);
const x = key.subarray(1).toString("base64url");
const publicKey = createPublicKey({ format: "jwk", key: { kty: "OKP", crv: "Ed25519", x } });
const isOfKey = key[0] === 1 && made.toString("hex") === id && made.equals(signed.subarray(0, 4));
const isSigned = isOfKey && verify(null, Buffer.from(text), publicKey, signed.subarray(4));
console.log(isSigned ? text.split("\n").slice(0, 3).join(" ") : "refused");
