// A chain on this machine with one token, and what settles payments on it.

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { x402Facilitator } from "@x402/core/facilitator";
import { toFacilitatorEvmSigner } from "@x402/evm";
import { ExactEvmScheme } from "@x402/evm/exact/facilitator";
import solc from "solc";
import { createWalletClient, http, publicActions } from "viem";
import { mnemonicToAccount } from "viem/accounts";
import { foundry } from "viem/chains";

/** The words that the chain gives everyone money by. */
const WORDS = "test test test test test test test test test test test junk";

export const NETWORK = `eip155:${foundry.id}`;

/** Starts the chain on a port of its own, and puts the token on it. */
export async function chain(anvil) {
  const child = spawn(anvil, ["--port", "0", "--mnemonic", WORDS], { stdio: ["ignore", "pipe", "inherit"] });
  process.on("exit", () => child.kill());
  let address;
  for await (const line of createInterface({ input: child.stdout })) {
    address = /Listening on (\S+)/.exec(line)?.[1];
    if (address) break;
  }
  child.stdout.resume();
  const account = mnemonicToAccount(WORDS);
  const wallet = createWalletClient({ account, chain: foundry, transport: http(`http://${address}`), pollingInterval: 20 }).extend(publicActions);
  const { abi, bytecode } = compiled();
  const deployed = await wallet.waitForTransactionReceipt({ hash: await wallet.deployContract({ abi, bytecode }) });
  const token = deployed.contractAddress;
  const write = async (functionName, args) =>
    wallet.waitForTransactionReceipt({ hash: await wallet.writeContract({ abi, address: token, functionName, args }) });
  const facilitator = new x402Facilitator().register(NETWORK, new ExactEvmScheme(toFacilitatorEvmSigner({ ...wallet, address: account.address })));
  return {
    token,
    mint: (to, value) => write("mint", [to, value]),
    burn: (from) => write("burn", [from]),
    balance: async (of) => Number(await wallet.readContract({ abi, address: token, functionName: "balanceOf", args: [of] })) / 1e6,
    facilitator: {
      verify: (payload, requirements) => facilitator.verify(payload, requirements),
      settle: (payload, requirements) => facilitator.settle(payload, requirements),
      getSupported: async () => facilitator.getSupported(),
    },
  };
}

function compiled() {
  const content = readFileSync(new URL("Token.sol", import.meta.url), "utf8");
  const settings = { viaIR: true, optimizer: { enabled: true }, outputSelection: { "*": { "*": ["abi", "evm.bytecode.object"] } } };
  const input = { language: "Solidity", sources: { "Token.sol": { content } }, settings };
  const { contracts, errors = [] } = JSON.parse(solc.compile(JSON.stringify(input)));
  const fatal = errors.find((error) => error.severity === "error");
  if (fatal) throw new Error(fatal.formattedMessage);
  const { abi, evm } = contracts["Token.sol"].Token;
  return { abi, bytecode: `0x${evm.bytecode.object}` };
}
