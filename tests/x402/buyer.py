"""The buyer in Python: pays for each of the pages in turn, and prints what came of it.

    buyer.py BASE_URL AGENT_KEY PRIVATE_KEY ASSET URL...
"""

import asyncio
import json
import sys
import warnings
from types import SimpleNamespace

from eth_account import Account
from mandate_order import order_of
from mandate_x402 import Mandate
from x402 import x402Client
from x402.http.clients import x402HttpxClient
from x402.mechanisms.evm.exact import ExactEvmScheme
from x402.mechanisms.evm.signers import EthAccountSigner

base_url, agent_key, private_key, asset, *urls = sys.argv[1:]


class Counting(EthAccountSigner):
    """Counts what is signed."""

    signed = 0

    def sign_typed_data(self, *args, **kwargs):
        Counting.signed += 1
        return super().sign_typed_data(*args, **kwargs)


def ordered(atomic, decimals, scheme="exact"):
    offer = SimpleNamespace(scheme=scheme, network="eip155:1", asset="0xAB", amount=atomic, pay_to="0xCD")
    try:
        return order_of(offer, {"eip155:1/0xab": ("USDC", decimals)})
    except ValueError as refused:
        return str(refused)


async def main():
    client = x402Client().register("eip155:*", ExactEvmScheme(signer=Counting(Account.from_key(private_key))))
    client.set_spend_controls({"allowed_assets": True})
    network, address = asset.split("/")
    Mandate(base_url, agent_key, {f"{network}/{address.lower()}": ("USDC", 6)}).guard(client)
    outcomes = []
    async with x402HttpxClient(client, timeout=30) as http:
        for url in urls:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                try:
                    outcome = (await http.get(url)).status_code
                except Exception as error:
                    outcome = str(error)
                said = [str(warning.message) for warning in warned if "observe" in str(warning.message)]
            outcomes.append([outcome, Counting.signed, *said])
    orders = [ordered("40500000", 6), ordered("1", 6), ordered("123456789012345", 8), ordered("1", 18), ordered("1.5", 6)]
    orders.append(ordered("1", 6, "batch-settlement"))
    print(json.dumps({"outcomes": outcomes, "orders": orders}))


asyncio.run(main())
